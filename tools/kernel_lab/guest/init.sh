#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# First stage, from the initrd: put a throw-away layer over the host's root and move there.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for module in /boot-modules/*.ko; do $B insmod "$module" || $B echo "kernel-lab: no $module"; done
give_up() { $B echo "kernel-lab: no root: $1"; $B poweroff -f; }
$B mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,ro,cache=loose root /lower ||
    give_up "9p"
$B mount -t tmpfs -o mode=755 layer /layer
$B mkdir /layer/upper /layer/work
$B mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work root /root ||
    give_up "overlay"
for folder in proc sys dev; do
    $B mkdir -p /root/$folder
    $B mount --move /$folder /root/$folder
done
# The host's /run names daemons and locks that do not run here.
$B mkdir -p /root/run
$B mount -t tmpfs -o mode=755 run /root/run
$B mkdir /root/run/kernel-lab
$B cp -r /lab/. /root/run/kernel-lab
$B cp $B /root/run/kernel-lab/busybox
exec $B switch_root /root /run/kernel-lab/busybox sh /run/kernel-lab/job.sh

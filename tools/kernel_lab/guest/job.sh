#!/bin/sh
# SPDX-License-Identifier: MIT
# Second stage, on the host's root: run the command, then power off.
# ttyS0 is the kernel's console, S1 and S2 the command's stdout and stderr, S3 tells the verdict.
LAB=/run/kernel-lab
B=$LAB/busybox
for tty in 1 2 3; do $B stty -F /dev/ttyS$tty 115200 raw -echo; done
exec 8>/dev/ttyS1 9>/dev/ttyS2 7>/dev/ttyS3
$B mount -t debugfs none /sys/kernel/debug
$B mount -t tracefs none /sys/kernel/tracing
$B mount -t bpf none /sys/fs/bpf
$B mkdir -p /dev/shm /dev/pts
$B mount -t tmpfs none /dev/shm
$B mount -t devpts none /dev/pts
$B ip link set lo up
$B hostname kernel-lab
. $LAB/environment.sh
# Modules, bcc and DKMS look where an installed kernel would be.
modules=/lib/modules/$($B uname -r)
$B mkdir -p "$modules"
$B rm -f "$modules/build" "$modules/source"
$B ln -s "$KERNEL_LAB_BUILD" "$modules/build"
$B ln -s "$KERNEL_LAB_SOURCE" "$modules/source"
if [ -n "$KERNEL_LAB_SHARE" ]; then
    $B mkdir -p "$KERNEL_LAB_SHARE"
    $B mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none share "$KERNEL_LAB_SHARE"
fi
echo up >&7
/bin/sh $LAB/command.sh </dev/null >&8 2>&9 7>&- 8>&- 9>&-
echo "status $?" >&7
$B dmesg >&7
$B sync
exec 7>&- 8>&- 9>&-
exec $B poweroff -f

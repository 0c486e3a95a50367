#!/bin/sh
# SPDX-License-Identifier: MIT
# What is measured on a GPU about several allocating at once, part by part.
#
#     benchmarks/several_at_once.sh DIR [PART...]
#
# Each part ends by MAX_TIME (200s) and leaves its recording, table and JSON in
# DIR. Without a PART all that one GPU can do are run, one after the other. PYTHON
# is the interpreter that has vmmprof. The parts of several GPUs (peers, grid,
# victim-other-gpu) use the first GPUS of them (2); grid wants MAX_TIME=560s.
set -eu

if [ $# -lt 1 ]; then
    echo "usage: $0 DIR [threads-twin processes-twin victim-query victim-alloc victim-launch" >&2
    echo "       pool chunks busy green rate peers grid victim-other-gpu]" >&2
    exit 2
fi
here=$(dirname "$0")
python=${PYTHON:-python3}
gpus=${GPUS:-2}
max_time=${MAX_TIME:-200s}
out=$1
shift
mkdir -p "$out"

# sweep NAME ARGUMENT...: measure into DIR/NAME.vmmprof, with table and JSON beside it.
sweep() {
    name=$1
    shift
    code=0
    "$python" -m vmmprof sweep --output "$out/$name" --max-time "$max_time" "$@" \
        >"$out/$name.txt" 2>"$out/$name.err" || code=$?
    echo "$name: exit $code"
    "$python" -m vmmprof report "$out/$name" --json >"$out/$name.json" || true
}

# first N: the first N devices as --devices takes them.
first() {
    seq -s , 0 $(($1 - 1))
}

twin() {
    name=$1
    shift
    code=0
    "$python" "$here/threads_against_twin.py" "$out/$name" --max-time 170s --within 5% "$@" \
        >"$out/$name.txt" 2>"$out/$name.err" || code=$?
    echo "$name: exit $code"
}

measure() {
    case $1 in
    threads-twin) twin "$1" --threads 1,2,4,8 ;;
    processes-twin) twin "$1" --processes 1,2,4 --threads 1 ;;
    victim-other-gpu)
        # Nobody allocates on the last one.
        sweep "$1" --sizes 64M --devices "$(first $((gpus - 1)))" --threads 1,4,8 \
            --placement compressible --scatter --victim query --victim-device $((gpus - 1)) \
            --repeats 16 --burst 20
        ;;
    victim-*)
        sweep "$1" --sizes 64M --placement compressible --scatter --threads 1,4 \
            --repeats 16 --burst 20 --victim "${1#victim-}"
        ;;
    pool) sweep "$1" --api pool --sizes 2M:1G:x2 --repeats 100 ;;
    chunks)
        sweep "$1" --sizes 64M --placement compressible --variant chunks:2M --repeats 200
        ;;
    busy)
        sweep "$1" --sizes 64M --variant chunks:2M --variant busy --variant chunks:2M+busy \
            --repeats 100 --burst 10
        ;;
    green) sweep "$1" --sizes 2M,64M,1G --green-context 64 --repeats 30 --burst 20 ;;
    rate) sweep "$1" --sizes 64M --threads 1,4 --rate 1000 --repeats 30 ;;
    peers)
        sweep "$1" --sizes 2M,64M,1G --devices "$(first "$gpus")" --variant "peers:$gpus" \
            --variant "peers:$gpus:calls" --repeats 20 --burst 20
        ;;
    grid)
        # Ten bursts of twenty cycles a worker: 200 of each.
        sets=""
        n=1
        while [ "$n" -le "$gpus" ]; do
            sets="$sets --devices $(first "$n")"
            n=$((2 * n))
        done
        # shellcheck disable=SC2086 # words on purpose
        sweep "$1" --sizes 2M,64M,1G $sets --threads 1,2,4,8 --placement compressible --scatter \
            --repeats 10 --burst 20 --warmup 1
        ;;
    *)
        echo "$0: no part $1" >&2
        exit 2
        ;;
    esac
}

if [ $# -eq 0 ]; then
    set -- threads-twin processes-twin victim-query victim-alloc victim-launch pool chunks busy \
        green rate
fi
for part in "$@"; do
    measure "$part"
done

#!/bin/sh
# SPDX-License-Identifier: MIT
# What is measured on a GPU about several allocating at once, part by part.
#
#     benchmarks/several_at_once.sh DIR [PART...]
#
# Each part takes less than four minutes and leaves its recording, table and
# JSON in DIR. Without a PART all are run, one after the other. PYTHON is the
# interpreter that has vmmprof.
set -eu

if [ $# -lt 1 ]; then
    echo "usage: $0 DIR [threads-twin processes-twin victim-query victim-alloc victim-launch" >&2
    echo "       pool chunks busy green rate peers devices]" >&2
    exit 2
fi
here=$(dirname "$0")
python=${PYTHON:-python3}
out=$1
shift
mkdir -p "$out"

# sweep NAME ARGUMENT...: measure into DIR/NAME.vmmprof, with table and JSON beside it.
sweep() {
    name=$1
    shift
    code=0
    "$python" -m vmmprof sweep --output "$out/$name" --max-time 200s "$@" \
        >"$out/$name.txt" 2>"$out/$name.err" || code=$?
    echo "$name: exit $code"
    "$python" -m vmmprof report "$out/$name" --json >"$out/$name.json" || true
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
        sweep "$1" --sizes 2M,64M,1G --devices all --variant peers:2 --variant peers:2:calls
        ;;
    devices)
        sweep "$1" --sizes 2M,64M,1G --devices 0 --devices all --threads 1,2,4,8 \
            --repeats 20 --burst 20
        ;;
    *)
        echo "$0: no part $1" >&2
        exit 2
        ;;
    esac
}

if [ $# -eq 0 ]; then
    # peers and devices need more than one GPU, so they are not among them.
    set -- threads-twin processes-twin victim-query victim-alloc victim-launch pool chunks busy \
        green rate
fi
for part in "$@"; do
    measure "$part"
done

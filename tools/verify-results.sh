#!/bin/bash
# SPDX-License-Identifier: MIT
# Run `vmmprof verify` as root and as an ordinary user and keep what
# they say: tools/verify-results.sh FOLDER [PYTHON]
#
# Each step writes FOLDER/STEP.log (text), FOLDER/STEP.json (stdout) and a line in
# FOLDER/exit-codes.txt, and a failing step does not keep the next one from running. STEPS chooses
# (default: all); STEP_SECONDS bounds each.
set -u

folder=${1:?usage: $0 FOLDER [PYTHON]}
python=${2:-python3}
steps=${STEPS:-"root-bar1 root-reuse root-sharing root-leak user-bar1 user-reuse user-sharing user-leak"}
limit=${STEP_SECONDS:-170}
user=65534

mkdir -p "$folder"
export CUDA_CACHE_DISABLE=1

# An ordinary user may not be able to read the checkout or the virtual environment; the package
# then goes to a folder that everybody can read, and the libraries are loaded before root is left.
shared=$(mktemp -d /tmp/vmmprof-verify.XXXXXX)
trap 'rm -rf "$shared"' EXIT
"$python" - "$shared" <<'PYTHON' || exit 1
import pathlib, shutil, sys
import vmmprof
shutil.copytree(pathlib.Path(vmmprof.__file__).parent, sys.argv[1] + "/vmmprof",
                ignore=shutil.ignore_patterns("__pycache__"))
PYTHON
chmod -R a+rX "$shared"

as_user() {
    if setpriv --reuid=$user --regid=$user --clear-groups env PYTHONPATH="$shared${PYTHONPATH:+:$PYTHONPATH}" HOME=/tmp \
        "$python" -c 'import cuda.bindings.driver, numpy, pynvml, vmmprof' 2>/dev/null; then
        setpriv --reuid=$user --regid=$user --clear-groups \
            env PYTHONPATH="$shared${PYTHONPATH:+:$PYTHONPATH}" HOME=/tmp "$python" -m vmmprof "$@"
    else
        PYTHONPATH="$shared${PYTHONPATH:+:$PYTHONPATH}" HOME=/tmp "$python" - "$@" <<'PYTHON'
import os, sys
import cuda.bindings.driver, numpy, pynvml
import vmmprof.cli.main
import vmmprof.verify.cuda, vmmprof.verify.leak
numpy.random.default_rng(0)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(vmmprof.cli.main.main(sys.argv[1:]))
PYTHON
    fi
}
export -f as_user
export python user shared

for step in $steps; do
    check=${step#*-}
    case $step in
        root-*) runner=("$python" -m vmmprof) ;;
        user-*) runner=(bash -c 'as_user "$@"' as_user) ;;
        *) echo "unknown step $step" >&2; continue ;;
    esac
    start=$SECONDS
    timeout --signal=INT --kill-after=10 "$limit" "${runner[@]}" verify "$check" --json \
        >"$folder/$step.json" 2>"$folder/$step.log"
    echo "$step: exit $? after $((SECONDS - start)) s" | tee -a "$folder/exit-codes.txt"
done

# SPDX-License-Identifier: MIT
"""Runs Python modules as a fresh process would, without importing the packages each time.

``python -m tests.cuda.forker`` imports what the children need, but does not
load libcuda. For each line of standard input, a request, it forks a child that
runs the module to its end and answers with the child's exit status.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LIBRARY = "libcuda.so.1"


class Forker:
    """A server of forks; :meth:`run` is subprocess.run of ``python -m MODULE ARGUMENTS``."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"LD_LIBRARY_PATH": str(library)},
            cwd=folder,
        )

    def run(
        self, module: str, arguments: tuple[str, ...], env: Mapping[str, str], folder: Path
    ) -> subprocess.CompletedProcess[str]:
        """Run it with ``env``; its output goes through files in ``folder``."""
        out, err = folder / "stdout", folder / "stderr"
        request = [module, arguments, dict(env), str(out), str(err)]
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(request), file=self._server.stdin, flush=True)
        status = int(self._server.stdout.readline())
        return subprocess.CompletedProcess(
            [module, *arguments], status, out.read_text(), err.read_text()
        )

    def close(self) -> None:
        self._server.communicate()


def _become(module: str, arguments: list[str], env: dict[str, str], out: str, err: str) -> Any:
    """In the child: stand where a new process would, and run."""
    for path, stream in ((os.devnull, 0), (out, 1), (err, 2)):
        flags = os.O_RDONLY if stream == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, stream)
        os.close(opened)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *arguments]
    return runpy.run_module(module, run_name="__main__", alter_sys=True)


def _serve(timeout_s: int) -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.alarm(timeout_s)  # a child that hangs ends by SIGALRM, and its test fails
            _become(*json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _import_all() -> None:
    import cuda.bindings.driver  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import vmmprof.analysis.overview
    import vmmprof.cli.main
    import vmmprof.doctor
    import vmmprof.drivers.cuda.driver
    import vmmprof.experiment.session
    import vmmprof.report.json
    import vmmprof.report.terminal
    import vmmprof.report.trace  # noqa: F401

    assert _LIBRARY not in Path("/proc/self/maps").read_text(), "children load it on their own"


if __name__ == "__main__":
    _import_all()
    _serve(timeout_s=60)

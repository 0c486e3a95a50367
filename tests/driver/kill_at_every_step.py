# SPDX-License-Identifier: MIT
"""Kill install or revert at each of its steps, then revert and compare the root.

Run as a program, because it forks: killing in the test's own process is not
possible, and forking there is not safe once libraries have started threads.
Prints the number of steps; exits 1 with what differs when the root is not as before.

Arguments: WHERE (a scratch directory), install or revert.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent.parent
sys.path[:0] = [
    str(REPOSITORY),
    str(REPOSITORY / "tools"),
    str(REPOSITORY / "kernel_module_tests"),
]

from driverpatch import install  # noqa: E402
from driverpatch.system import System  # noqa: E402
from tests.driver.machine import Machine, make_machine, put_stand_ins_on_path  # noqa: E402


class KillAt:
    """Counts steps and kills this process when the count reaches `step`."""

    def __init__(self, step: int) -> None:
        self._left = step

    def tick(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            self.tick()
            result = function(*arguments, **named)
            self.tick()
            return result

        return wrapped


def _hook(kill: KillAt) -> None:
    """A step is the moment before and after everything that changes the disk."""
    for owner, names in (
        (Path, ("replace", "unlink", "mkdir", "rmdir")),
        (shutil, ("copy2", "rmtree")),
        (System, ("depmod", "rebuild_initramfs")),
    ):
        for name in names:
            setattr(owner, name, kill.around(getattr(owner, name)))


def _quiet(line: str) -> None:
    del line


def _install(machine: Machine) -> None:
    install.install(
        machine.build, machine.system, machine.series, next_boot=False, dry_run=False, say=_quiet
    )


def _revert(machine: Machine) -> None:
    install.revert(machine.system, force=False, dry_run=False, next_boot=False, say=_quiet)


def _in_child(work: Callable[[Machine], None], machine: Machine, step: int) -> bool:
    """Whether the work came to its end before the step was reached."""
    child = os.fork()
    if child == 0:
        _hook(KillAt(step))
        work(machine)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"step {step}: the child failed")
    return True


def main() -> None:
    where, what = Path(sys.argv[1]), sys.argv[2]
    os.environ["PATH"] = f"{put_stand_ins_on_path(where, REPOSITORY)}:{os.environ['PATH']}"
    machine = make_machine(where)
    os.environ["MACHINE_ROOT"] = str(machine.root)
    # SIGKILL loses nothing that was written: waiting for the disk would only take time.
    os.fsync = lambda descriptor: None
    before = machine.snapshot()
    installed = where / "installed"
    if what == "revert":
        _install(machine)
        shutil.copytree(machine.root, installed, symlinks=True)
        _revert(machine)
    step, ended = 0, False
    while not ended:
        step += 1
        if what == "revert":
            shutil.rmtree(machine.root)
            shutil.copytree(installed, machine.root, symlinks=True)
        ended = _in_child(_install if what == "install" else _revert, machine, step)
        _revert(machine)
        after = machine.snapshot()
        if after != before:
            names = sorted(before.items() ^ after.items())
            sys.exit(f"killed at step {step} of {what}: {names}")
    print(step - 1)


if __name__ == "__main__":
    main()

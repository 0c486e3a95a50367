# SPDX-License-Identifier: MIT
"""The command line of tools/driver; thin."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from driverpatch import building, install, signing
from driverpatch.check import arm_name, check
from driverpatch.errors import DriverError, DriverUsageError, ExitCode
from driverpatch.patching import Patched, describe, patch_tree
from driverpatch.series import Series
from driverpatch.status import status
from driverpatch.support import table_command
from driverpatch.system import System
from driverpatch.tree import Tree

_EPILOG = """\
exit codes of direct calls (make turns each but 0 into 2):
  0  done; check: patchable; verify: what runs is what was installed
  1  failed; verify: it is not
  2  bad arguments
  3  check, patch: already patched, or fixed by its own code
  4  check, patch: not affected, there is no such loop
  5  check, patch: unknown or older body, nothing was touched
  6  refused: it must not be done now; the message says what would change it
"""


def default_source(system: System) -> Path:
    """DRIVER_SRC, else the DKMS source of the running driver when there is just one."""
    named = os.environ.get("DRIVER_SRC")
    if named:
        return Path(named)
    version_file = system.root / "sys/module/nvidia/version"
    running = version_file.read_text().strip() if version_file.is_file() else "*"
    found = [
        path
        for path in sorted((system.root / "usr/src").glob(f"nvidia*-{running}"))
        if (path / "src/nvidia").is_dir()
    ]
    if len(found) == 1:
        return found[0]
    what = "several driver sources" if found else "no driver source"
    raise DriverUsageError(f"{what} under {system.root / 'usr/src'}; name one: DRIVER_SRC or --src")


def _print(options: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    print(json.dumps(data, indent=2) if options.json else text)


def _check(options: argparse.Namespace, system: System) -> int:
    result = check(Tree.at(options.src or default_source(system)), Series.load())
    _print(options, result.data(), result.text())
    return int(result.code)


def _patch(options: argparse.Namespace, system: System) -> int:
    tree = Tree.at(options.src or default_source(system))
    patched = patch_tree(tree, options.into, options.arms, Series.load(), dry_run=options.dry_run)
    prefix = "would give: " if options.dry_run else ""
    data = {"version": patched.version, "arm": patched.arm, "digest": patched.digest}
    _print(options, data | {"dry_run": options.dry_run}, prefix + describe(patched))
    return ExitCode.OK


def _build(options: argparse.Namespace, system: System) -> int:
    patched = Patched.load(options.tree)
    arch = options.arch or os.uname().machine
    if options.dry_run:
        commands = [building.object_command(patched, arch, debug=options.debug)]
        if not options.object_only:
            headers = building.find_headers(system, options.headers)
            commands.append(building.modules_command(patched, system, headers, options.jobs))
        lines = [" ".join(command) for command in commands]
        _print(options, {"commands": lines}, "\n".join(lines))
        return ExitCode.OK
    built_object = building.compile_object(patched, arch, debug=options.debug)
    if options.object_only:
        _print(options, {"object": str(built_object)}, f"compiled {built_object}")
        return ExitCode.OK
    headers = building.find_headers(system, options.headers)
    build = building.build_modules(patched, system, headers, options.jobs)
    _print_build(options, build)
    return ExitCode.OK


def _print_build(options: argparse.Namespace, build: building.Build) -> None:
    modules = {module.name: module.build_id for module in build.modules}
    lines = [f"{describe(build.patched)}, for kernel {build.kernel}:"]
    lines += [f"  {name:<16} build-id {identity}" for name, identity in modules.items()]
    _print(options, {"kernel": build.kernel, "modules": modules}, "\n".join(lines))


def _sign(options: argparse.Namespace, system: System) -> int:
    build = building.Build.load(options.tree)
    why = system.enforces_signatures()
    if not why and options.key is None:
        text = "this kernel takes unsigned modules; nothing to sign (name a key to sign anyway)"
        _print(options, {"signed": False}, text)
        return ExitCode.OK
    key = signing.find_key(system, options.key, options.certificate)
    if options.dry_run:
        _print(options, {"signed": False, "key": str(key.key)}, f"would sign with {key.key}")
        return ExitCode.OK
    build = signing.sign(build, system, key)
    _print(options, {"signed": True, "key": str(key.key)}, f"signed with {key.key}")
    return ExitCode.OK


def _install(options: argparse.Namespace, system: System) -> int:
    build = building.Build.load(options.tree)
    lines: list[str] = []
    with install.exclusive(system):
        install.install(
            build,
            system,
            Series.load(),
            next_boot=options.next_boot,
            dry_run=options.dry_run,
            say=lines.append if options.json else print,
        )
    done = "would install" if options.dry_run else "installed"
    when = "from the next boot on" if options.next_boot else "now"
    what = f"{done} {arm_name(build.patched.arm)} of {build.patched.version}, {when}"
    _print(options, {"installed": not options.dry_run, "said": lines}, what)
    return ExitCode.OK


def _revert(options: argparse.Namespace, system: System) -> int:
    lines: list[str] = []
    with install.exclusive(system):
        reverted = install.revert(
            system,
            force=options.force,
            dry_run=options.dry_run,
            next_boot=options.next_boot,
            say=lines.append if options.json else print,
        )
    if options.json:
        print(json.dumps({"reverted": reverted and not options.dry_run, "said": lines}, indent=2))
    return ExitCode.OK


def _status(options: argparse.Namespace, system: System) -> int:
    found = status(system)
    _print(options, found.data(), found.text())
    return ExitCode.OK


def _verify(options: argparse.Namespace, system: System) -> int:
    found = status(system)
    good = found.state == "installed" and not found.problems
    _print(options, found.data() | {"verified": good}, found.text())
    return ExitCode.OK if good else ExitCode.FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="driver",
        description="Recognise, patch, build, sign, install and revert NVIDIA's open kernel "
        "modules with vmmprof's patch series.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print JSON")
    common.add_argument(
        "--root", type=Path, default=Path("/"), metavar="DIR", help="act on a system below DIR"
    )
    common.add_argument("--kernel", metavar="RELEASE", help="kernel release; default: the running")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, function: Any, help_: str, *, dry_run: bool = False) -> Any:
        added = commands.add_parser(name, parents=[common], help=help_, description=help_)
        added.set_defaults(function=function)
        if dry_run:
            added.add_argument("--dry-run", action="store_true", help="say what would be done")
        return added

    source = "a driver source tree; default: DRIVER_SRC, or the running driver's DKMS source"
    checked = command("check", _check, "say whether a source tree can be patched")
    checked.add_argument("--src", type=Path, metavar="DIR", help=source)

    patched = command("patch", _patch, "apply the series to a copy of a tree", dry_run=True)
    patched.add_argument("--src", type=Path, metavar="DIR", help=source)
    patched.add_argument("--into", type=Path, metavar="DIR", required=True, help="a new directory")
    patched.add_argument(
        "--arms",
        choices=["a", "b", "ab", "abc"],
        default="ab",
        help="which patches: a coalesces runs, b defers the sync, c updates once (default: ab)",
    )

    built = command("build", _build, "compile a patched tree", dry_run=True)
    built.add_argument("tree", type=Path, help="what 'patch --into' made")
    built.add_argument("--object-only", action="store_true", help="only the patched object")
    built.add_argument("--arch", choices=["x86_64", "aarch64"], help="of the object")
    built.add_argument("--debug", action="store_true", help="object with the driver's assertions")
    built.add_argument("--headers", type=Path, metavar="DIR", help="kernel headers")
    built.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")

    signed = command("sign", _sign, "sign built modules", dry_run=True)
    signed.add_argument("tree", type=Path, help="a built tree")
    signed.add_argument("--key", type=Path, help="private key; default: the one of DKMS")
    signed.add_argument("--certificate", type=Path, help="its certificate (DER)")

    later = "do not touch the loaded modules; the change takes effect at the next boot"
    installed = command(
        "install", _install, "install a built tree, or change nothing", dry_run=True
    )
    installed.add_argument("tree", type=Path, help="a built tree")
    installed.add_argument("--next-boot", action="store_true", help=later)

    command("status", _status, "show which builds run, lie on disk and in the initramfs")
    command("verify", _verify, "exit 0 only when all of them are the one installed")

    reverted = command("revert", _revert, "restore what was there before", dry_run=True)
    reverted.add_argument("--next-boot", action="store_true", help=later)
    reverted.add_argument(
        "--force", action="store_true", help="keep files that others changed since"
    )

    tabled = command("table", table_command, "print the support table, or write it into the docs")
    tabled.add_argument("--write", action="store_true", help="write it into the docs")
    return parser


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # An installation has to be taken back on SIGTERM as it is on Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        system = System.running(options.root.resolve(), options.kernel)
        return int(options.function(options, system))
    except DriverError as error:
        print(f"driver: {error}", file=sys.stderr)
        return int(error.exit_code)
    except PermissionError as error:
        print(f"driver: {error.filename}: not permitted; run as root", file=sys.stderr)
        return int(ExitCode.FAILED)
    except KeyboardInterrupt:
        print("driver: interrupted", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)

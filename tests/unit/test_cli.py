# SPDX-License-Identifier: MIT
"""The program as a user runs it: help, bad input, exit codes, what is imported when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

HEAVY = ("numpy", "pandas", "pyarrow", "matplotlib", "rich.table", "cuda")


def vmmprof(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vmmprof", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        check=False,
    )


COMMANDS = (
    "sweep",
    "report",
    "compare",
    "amortise",
    "advise",
    "reproduce",
    "export",
    "trace",
    "verify",
    "doctor",
    "model",
)


@pytest.mark.parametrize("arguments", [["--help"], *([command, "--help"] for command in COMMANDS)])
def test_help_is_light_and_fits_80_columns(arguments: list[str]) -> None:
    code = f"""
import sys
sys.argv = ["vmmprof", *{arguments!r}]
from vmmprof.cli.main import run
try:
    run()
finally:
    heavy = [name for name in {HEAVY!r} if name in sys.modules]
    print("heavy:", heavy, file=sys.stderr)
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "80"},
        check=False,
    )
    assert result.returncode == 0
    assert result.stderr.strip().endswith("heavy: []")
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "arguments are required: COMMAND"),
        (["swep"], "invalid choice: 'swep'"),
        (["sweep", "--sizes", "2X"], "'2X' is not a size"),
        (["sweep", "--sizes", ""], "empty part"),
        (["sweep", "--driver", "vulkan"], "driver 'vulkan' is unknown; one of auto, cuda"),
        (["sweep", "--patch", "ab"], "--patch ab changes a model"),
        (["sweep", "--patch", "abc"], "invalid choice: 'abc'"),
        (["sweep", "--repeats", "0"], "--repeats '0' is not a whole number from 1"),
        (["sweep", "--repeats", "many"], "--repeats 'many' is not a whole number"),
        (["sweep", "--warmup", "-1"], "--warmup '-1' is not a whole number"),
        (["sweep", "--max-time", "soon"], "--max-time 'soon' is not a time such as"),
        (["sweep", "--max-time", "0"], "--max-time '0' is not a time such as"),
        (["sweep", "--until-ci", "2"], "--until-ci '2' is not a percentage such as 2%"),
        (["sweep", "--order", "random"], "invalid choice: 'random'"),
        (["sweep", "--device", "x"], "--device 'x' is not a whole number"),
        (["sweep", "--size", "2M"], "unrecognized arguments: --size 2M"),
        (["report"], "arguments are required: NAME"),
        (["report", "no-such-recording"], "no-such-recording.vmmprof is not there"),
        (["report", "two\nlines\x1b[31m"], r"two\nlines\x1b[31m.vmmprof is not there"),
        (["doctor", "--bundle", "/proc/none/b.tar.gz"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], complaint: str) -> None:
    result = vmmprof(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("vmmprof: error: ")


@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--json"], ["model", "show"]])
def test_a_reader_that_goes_away_is_no_failure(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, "-m", "vmmprof", *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


def test_without_standard_error_a_sweep_goes_on(tmp_path: Path) -> None:
    command = f"{sys.executable} -m vmmprof sweep --driver model:b300 --sizes 2M --output a 2>&-"
    result = subprocess.run(
        ["sh", "-c", command], stdout=subprocess.PIPE, text=True, cwd=tmp_path, check=False
    )
    assert result.returncode == 0
    assert "recording: a.vmmprof" in result.stdout


@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--json"], ["model", "show"]])
def test_output_without_room_is_one_line_and_exit_2(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "vmmprof", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 2
    assert result.stderr == "vmmprof: error: output cannot be written: No space left on device\n"


def test_ctrl_c_while_the_program_is_imported_is_one_line() -> None:
    code = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "vmmprof.cli.sweep":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from vmmprof.__main__ import run
run()
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (130, "vmmprof: interrupted by SIGINT\n")


def test_without_a_driver_cuda_is_nothing_measured(tmp_path: Path) -> None:
    code = """
import sys
from vmmprof.drivers.cuda import api
from vmmprof.errors import NothingMeasuredError
def none():
    raise NothingMeasuredError("libcuda.so.1 was not found")
api.device_count = none
from vmmprof.cli.main import main
sys.exit(main(["sweep", "--driver", "cuda"]))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert result.returncode == 3
    assert result.stderr == "vmmprof: error: libcuda.so.1 was not found\n"
    assert list(tmp_path.iterdir()) == []


def test_doctor_answers_every_question_as_json_and_in_a_bundle(tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    result = vmmprof("doctor", "--json", "--bundle", str(bundle))
    assert result.returncode == 0
    document = json.loads(result.stdout)
    keys = set(document["findings"])
    always = {"cuda", "bindings", "version", "static_bar1", "kprobes", "perf", "lockdown"}
    assert always | {"headers", "btf", "bcc"} <= keys
    answers = {finding["answer"] for finding in document["findings"].values()}
    assert answers <= {"yes", "no", "unknown", None}
    model = next(a for a in document["abilities"] if "model" in a["what"])
    assert model["answer"] == "yes"
    with tarfile.open(bundle) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert names == {"findings.json", "machine.json", "nvidia_module.json", "kernel_log.json"}

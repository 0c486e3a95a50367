# SPDX-License-Identifier: MIT
"""`vmmprof verify` from arguments to text, JSON and exit code, on a simulated card."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.simulated.card import Card, Fault
from tests.simulated.cuda import SimulatedAllocation, SimulatedGpu
from tests.simulated.rm import SimulatedRm
from vmmprof.cli.main import main
from vmmprof.errors import ExitCode
from vmmprof.experiment.lock import measurement_lock
from vmmprof.verify import leak, text
from vmmprof.verify import session as sessions
from vmmprof.verify.outcome import Report

SNAPSHOTS = Path(__file__).parent / "snapshots"


class EnteredGpu(SimulatedGpu):
    def __enter__(self) -> EnteredGpu:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


Run = Callable[..., ExitCode]


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """``verify("bar1", "--sizes", "8M", faults=[...])``."""
    lock_path = tmp_path / "lock"

    def run(*arguments: str, faults: tuple[Fault, ...] = (), pages: int = 64) -> ExitCode:
        card = Card(pages, set(faults))
        rm = SimulatedRm(card)
        monkeypatch.setattr(sessions, "RESERVE_BYTES", 0)
        monkeypatch.setattr("vmmprof.verify.cuda.CudaGpu", lambda device: EnteredGpu(card, rm))
        monkeypatch.setattr("vmmprof.kernel.rm.client.KernelTransport", lambda: rm)
        monkeypatch.setattr(leak, "kill_victim", lambda device, step: None)
        monkeypatch.setattr("vmmprof.experiment.lock.LOCK_PATH", lock_path)
        monkeypatch.setattr("os.geteuid", lambda: 1000 if card.has(Fault.NOT_ROOT) else 0)
        return main(["verify", *arguments])

    return run


@dataclass
class Shown:
    """A run whose text is kept."""

    arguments: list[str]
    faults: tuple[Fault, ...] = ()
    code: ExitCode = ExitCode.OK


SHOWN = {
    "bar1": Shown(["bar1", "--sizes", "2M,8M"]),
    "bar1-not-root": Shown(["bar1", "--sizes", "8M"], (Fault.NOT_ROOT,)),
    "reuse": Shown(["reuse", "--sizes", "8M", "--rounds", "5"]),
    "bar1-refused": Shown(
        ["bar1", "--sizes", "2M", "--placement", "domain:0"],
        (Fault.REFUSED_MAP,),
        ExitCode.FAILED,
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_text_is_what_it_was(
    verify: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """To renew a snapshot, delete its file and run the test again."""
    run = SHOWN[name]
    assert verify(*run.arguments, faults=run.faults) is run.code
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= text.WIDTH
    snapshot = SNAPSHOTS / f"{name}.txt"
    if not snapshot.exists():
        snapshot.write_text(shown)
        pytest.fail(f"{snapshot} was not there and has been written; look at it")
    assert shown == snapshot.read_text()


def test_everything_passes_on_a_sound_card(verify: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("--sizes", "2M,8M", "--cycles", "1", "--json") is ExitCode.OK
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["exit_code"] == 0
    assert document["totals"]["failed"] == 0
    assert document["machine"]["driver"] == "580.159.04"
    cases = {check["case"].split()[0] for check in document["checks"]}
    assert {"device", "compressible", "reuse", "sharing", "leak"} <= cases
    assert "passed, 0 failed" in captured.err


def test_json_carries_the_facts(verify: Run, capsys: pytest.CaptureFixture[str]) -> None:
    verify("bar1", "--sizes", "8M", "--json")
    facts = json.loads(capsys.readouterr().out)["facts"]["compressible+noncontiguous 8 MiB"]
    assert (facts["iterations_stock"], facts["iterations_coalescing"]) == (4, 1)
    assert set(facts["proof"]) == {"proves", "cannot prove"}


def test_quiet_says_nothing(verify: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("bar1", "--sizes", "2M", "--quiet") is ExitCode.OK
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "faults", "code"),
    [
        (["bar1", "--sizes", "2M"], (Fault.PAGE_MISSING,), ExitCode.FAILED),
        (["bar1", "--sizes", "2M,1G"], (), ExitCode.PARTIAL),
        (["bar1"], (), ExitCode.OK),
        (["bar1", "--placement", "domain:all"], (), ExitCode.PARTIAL),
        (["bar1"], (Fault.STATIC_BAR1_OFF,), ExitCode.NOTHING_MEASURED),
        (["reuse", "--sizes", "2M", "--rounds", "1"], (), ExitCode.PARTIAL),
        (["sharing", "--sizes", "8M", "--repeats", "1"], (), ExitCode.OK),
        (["leak", "--sizes", "2M", "--cycles", "1"], (), ExitCode.OK),
        (["bar1", "--sizes", "3M"], (), ExitCode.USAGE),
        (["bar1", "--words", "0"], (), ExitCode.USAGE),
        (["bar1", "--words", "262145"], (), ExitCode.USAGE),
        (["bar2"], (), ExitCode.USAGE),
        (["bar1", "--placement", "devices"], (), ExitCode.USAGE),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_exit_codes(
    verify: Run, arguments: list[str], faults: tuple[Fault, ...], code: ExitCode
) -> None:
    assert verify(*arguments, faults=faults) is code


def test_another_measurement_is_waited_for_by_the_user(
    verify: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with measurement_lock(tmp_path / "lock"):
        assert verify("bar1", "--sizes", "2M") is ExitCode.NOTHING_MEASURED
        assert "another measurement is running" in capsys.readouterr().err
        assert verify("bar1", "--sizes", "2M", "--no-lock") is ExitCode.OK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_back_and_shows_what_was_checked(
    verify: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    poisoned = []
    poison = SimulatedAllocation.poison

    def poison_and_signal(self: SimulatedAllocation, word: int) -> None:
        poison(self, word)
        poisoned.append(self)
        if len(poisoned) == 2:
            signal.raise_signal(number)

    monkeypatch.setattr(SimulatedAllocation, "poison", poison_and_signal)
    before = signal.getsignal(number)
    assert verify("bar1", "--sizes", "2M,8M", "--json") is ExitCode.INTERRUPTED
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["exit_code"] == ExitCode.INTERRUPTED
    # The first case is whole, the second ends where its poison was written.
    assert document["totals"] == {"passed": 20, "failed": 0, "untested": 0, "waived": 1}
    assert captured.err.splitlines()[-1] == "interrupted: this is what was checked until then"
    gpu = poisoned[-1]._gpu
    assert gpu.mapped == 0
    assert len(gpu.card.free_pages) == gpu.card.total_pages
    assert not gpu.rm.files
    assert signal.getsignal(number) is before


def test_bad_input_is_one_line(verify: Run, capsys: pytest.CaptureFixture[str]) -> None:
    verify("bar1", "--sizes", "3M")
    assert capsys.readouterr().err == (
        "vmmprof: error: --sizes 3M: 3145728 bytes is not a multiple of 2M\n"
    )


def test_the_sharing_table_fits(verify: Run) -> None:
    report = Report()
    case = "sharing 1 GiB, scattered"
    report.check(case, "every call succeeds", True)
    calls = dict.fromkeys(text.CALLS, 12345.678)
    report.facts_of(case).update(
        pages=512,
        placements={
            "device": {"physical_runs": 512, "p50_us": calls},
            "domain:0+compressible": {
                "physical_runs": 512,
                "p50_us": calls,
                "loop_reruns": {"export": "yes", "import": "no", "duplicate": "unknown"},
            },
        },
    )
    lines = text.case_lines(report, case)
    assert max(map(len, lines)) <= text.WIDTH
    assert lines[1].split() == [
        "P50",
        "us",
        "create",
        "map",
        "export",
        "import",
        "bar1",
        "map",
        "bar1",
        "unm",
    ]
    assert lines[3].split()[-6:] == ["12345.7"] * 6


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from vmmprof.cli.main import main\n"
        "try: main(['verify', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'matplotlib', 'cuda', 'pynvml'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert result.stderr == ""
    assert result.returncode == 0
    assert all(len(line) <= text.WIDTH for line in result.stdout.splitlines())

# SPDX-License-Identifier: MIT
"""``vmmprof merge``: one data set of many hosts, pairs within each, odd hosts shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vmmprof.analysis.summary import summarise
from vmmprof.errors import ExitCode, UsageError
from vmmprof.operations import VMM_CYCLE
from vmmprof.placement import PLAIN, Condition, Placement
from vmmprof.recording.reader import Recording, load
from vmmprof.recording.schema import ENVIRONMENT_FILE, SUFFIX
from vmmprof.sizes import MIB

from ..analysis.synthetic import samples
from .cli_runs import run, save
from .recordings import environment, frame, measured, modelled

SIZES = np.array([2.0, 64.0])


def host(folder: Path, name: str, level_us: float, attempts: int = 1) -> str:
    """A host whose cycles take ``level_us`` more, plain and placed alike."""
    rng = np.random.default_rng(len(name) + int(level_us))
    parts = []
    for attempt in range(1, attempts + 1):
        plain = 100 + SIZES + level_us + rng.random((20, 2)) + 1000 * (attempts - attempt)
        parts.append(samples({"device": plain, "domain:0": plain + 30}, SIZES, attempt=attempt))
    facts = environment(machine={"host": name, "kernel": "6.18.0"})
    path = folder / name
    return str(save(path, Recording(path, frame(parts), facts, VMM_CYCLE)))


def test_pairs_stay_within_their_host(tmp_path: Path) -> None:
    """Hosts differ by 500 us, and yet the extra cost is 30 us everywhere."""
    words = [host(tmp_path, "one", 0.0), host(tmp_path, "two", 500.0)]
    assert run("merge", str(tmp_path / "all"), *words) is ExitCode.OK
    merged = load(str(tmp_path / "all"))
    for summary in summarise(merged.columns, VMM_CYCLE, "total"):
        assert summary.n == 40
        if summary.extra is not None:
            assert summary.extra.n == 40
            assert 29_990 <= summary.extra.lo <= summary.extra.hi <= 30_010


def test_a_second_attempt_on_one_host_does_not_silence_the_others(tmp_path: Path) -> None:
    words = [host(tmp_path, "one", 0.0), host(tmp_path, "two", 0.0, attempts=2)]
    run("merge", str(tmp_path / "all"), *words)
    merged = load(str(tmp_path / "all"))
    summaries = {s.condition: s for s in summarise(merged.columns, VMM_CYCLE, "total")}
    placed = summaries[Condition(Placement(domain=0), 64 * MIB)]
    assert placed.n == 40, "20 of the first host, the 20 of the second's last attempt"
    assert placed.max_ns is not None and placed.max_ns < 300_000, "the bad attempt is left out"
    assert placed.extra is not None and placed.extra.n == 40


def test_control_rows_that_pairs_need_stay(tmp_path: Path) -> None:
    """The control was measured again with one placement; the other pairs with its first attempt."""
    rng = np.random.default_rng(50)
    plain = 100 + rng.random((20, 2))
    first = samples(
        {"device": plain, "domain:0": plain + 30, "domain:1": plain + 40}, SIZES, attempt=1
    )
    second = samples({"device": plain + 5, "domain:0": plain + 35}, SIZES, attempt=2)
    path = tmp_path / "one"
    save(path, Recording(path, frame([first, second]), environment(), VMM_CYCLE))
    run("merge", str(tmp_path / "all"), str(path))
    merged = load(str(tmp_path / "all"))
    summaries = {s.condition: s for s in summarise(merged.columns, VMM_CYCLE, "total")}
    assert summaries[Condition(PLAIN, 2 * MIB)].n == 40
    for domain, extra_ns in ((0, 30_000), (1, 40_000)):
        extra = summaries[Condition(Placement(domain=domain), 2 * MIB)].extra
        assert extra is not None and (extra.n, extra.value) == (20, pytest.approx(extra_ns, abs=2))


def test_flags_times_and_environments_are_kept(tmp_path: Path) -> None:
    recording = measured()
    words = [str(save(tmp_path / name, recording)) for name in ("one", "two")]
    run("merge", str(tmp_path / "all"), *words)
    merged = load(str(tmp_path / "all"))
    assert (merged.samples["flags"] == 2).sum() == 2
    parts = json.loads((tmp_path / f"all{SUFFIX}" / ENVIRONMENT_FILE).read_text())["merged"]
    assert [part["environment"]["command"] for part in parts] == [recording.command] * 2
    assert merged.samples["round"].nunique() == sum(part["rounds"] for part in parts)
    assert run("report", str(tmp_path / "all"), "--json") is ExitCode.OK


def test_a_model_s_unknown_times_stay_unknown(tmp_path: Path) -> None:
    path = save(tmp_path / "m", modelled())
    run("merge", str(tmp_path / "all"), str(path), str(path))
    merged = load(str(tmp_path / "all"))
    assert merged.is_model
    assert merged.samples["map_ns"].isna().all()
    assert merged.samples["total_ns"].notna().all()


def test_the_odd_host_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [host(tmp_path, name, 0.0) for name in ("aa", "bb", "cc")]
    words.append(host(tmp_path, "slow", 60.0))
    run("merge", str(tmp_path / "all"), *words)
    lines = capsys.readouterr().out.splitlines()
    slow = next(line for line in lines if line.startswith("slow"))
    assert "+58" in slow or "+59" in slow
    assert "at device 2 MiB" in slow


def test_what_is_not_alike_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    words = [str(save(tmp_path / "g", measured())), str(save(tmp_path / "m", modelled()))]
    with pytest.raises(UsageError, match="has is_model"):
        run("merge", str(tmp_path / "all"), *words)
    other = replace_headline(measured())
    with pytest.raises(UsageError, match="has headline"):
        run("merge", str(tmp_path / "all"), words[0], str(save(tmp_path / "c", other)))
    assert not (tmp_path / f"all{SUFFIX}").exists()
    with pytest.raises(UsageError, match="cannot be written"):
        run("merge", str(tmp_path / "g"), words[0])


def replace_headline(recording: Recording) -> Recording:
    return replace(recording, environment=recording.environment | {"headline": "create"})

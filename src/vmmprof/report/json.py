# SPDX-License-Identifier: MIT
"""The result of a recording as JSON (``--json``; keys in docs/recording.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vmmprof.analysis.intervals import Estimate
from vmmprof.analysis.overview import PlacementOverview, overview
from vmmprof.analysis.summary import ConditionSummary
from vmmprof.analysis.threshold import Threshold
from vmmprof.analysis.victims import VictimSummary, summarise_victims
from vmmprof.kernel.recorded import load_traced
from vmmprof.operations import Operation
from vmmprof.placement import Level
from vmmprof.recording.reader import Recording, load_victims
from vmmprof.report.context import context
from vmmprof.report.kernel import traced_object
from vmmprof.report.numbers import NS_PER_US, number, whole
from vmmprof.sizes import mib

JsonObject = dict[str, Any]


def dumps(recording: Recording) -> str:
    """The whole result as one JSON document, indented, NaN never in it."""
    return json.dumps(result(recording), indent=2, allow_nan=False)


def result(recording: Recording) -> JsonObject:
    """The result as a JSON-ready object; times in us, sizes in MiB."""
    facts = context(recording)
    placements = overview(recording.columns, recording.operation, recording.headline)
    return {
        "recording": str(recording.path),
        "model": recording.is_model,
        "headline": recording.headline,
        "environment": {
            "driver": facts.driver,
            "machine": facts.machine,
            "command": facts.command,
            "notes": list(facts.notes),
        },
        "placements": [
            placement_object(placement, recording.operation) for placement in placements
        ],
        "victim": _victim_or_none(recording),
        "kernel": None if (traced := load_traced(recording)) is None else traced_object(traced),
    }


def _victim_or_none(recording: Recording) -> JsonObject | None:
    victims = load_victims(recording)
    if victims is None:
        return None
    return _victims(recording.environment["victim"], summarise_victims(victims))


def _victims(victim: Mapping[str, Any], summaries: Sequence[VictimSummary]) -> JsonObject:
    """What a victim met (``victims.parquet``); times in us."""
    return {
        "kind": victim.get("kind"),
        "device": victim.get("device"),
        "pause_us": float(victim.get("pause_ns", 0)) / NS_PER_US,
        "beside": [_beside(summary) for summary in summaries],
    }


def _beside(summary: VictimSummary) -> JsonObject:
    condition = summary.condition
    return {
        "placement": None if summary.is_alone else str(condition.placement),
        "size_mib": None if summary.is_alone else whole(mib(condition.size_bytes)),
        "scattered": condition.scattered,
        "level": _level(condition.level),
        "variant": str(condition.variant) or None,
        "n": summary.n,
        **estimate_fields("p50_us", _us(summary.p50)),
        **estimate_fields("p90_us", _us(summary.p90)),
        **estimate_fields("p99_us", _us(summary.p99)),
        "max_us": None if summary.max_ns is None else number(summary.max_ns / NS_PER_US),
        **estimate_fields("ratio", summary.ratio),
        "outside_window": summary.outside_window,
    }


def _level(level: Level) -> JsonObject:
    return {"processes": level.processes, "threads": level.threads, "devices": level.devices}


def placement_object(placement: PlacementOverview, operation: Operation) -> JsonObject:
    """One placement's threshold and sizes; times in us, sizes in MiB."""
    found = placement.threshold.threshold
    return {
        "placement": str(placement.placement),
        "scattered": placement.scattered,
        "level": _level(placement.level),
        "variant": str(placement.series.variant) or None,
        "threshold": None if found is None else threshold_object(found),
        "threshold_reason": placement.threshold.reason,
        "sizes": [
            _size(summary, _other_attempts(placement, summary), operation)
            for summary in placement.headlines
        ],
    }


def _other_attempts(
    placement: PlacementOverview, headline: ConditionSummary
) -> list[ConditionSummary]:
    return [
        summary
        for summary in placement.summaries
        if summary.condition == headline.condition and not summary.is_headline
    ]


def threshold_object(threshold: Threshold) -> JsonObject:
    """A threshold's sizes in MiB, step in us and slopes in us/MiB, each with its interval."""
    return {
        "lower_mib": whole(threshold.lower_mib),
        "upper_mib": whole(threshold.upper_mib),
        **estimate_fields("step_us", threshold.step_us),
        **estimate_fields("slope_us_per_mib", threshold.slope_us_per_mib),
        **estimate_fields("lower_slope_us_per_mib", threshold.lower_slope_us_per_mib),
    }


def estimate_fields(name: str, estimate: Estimate | None) -> JsonObject:
    """``NAME``, and its ends with ``_lo`` and ``_hi`` before the unit (``p50_lo_us``)."""
    lo_name, hi_name = (_end_name(name, end) for end in ("lo", "hi"))
    if estimate is None:
        return {name: None, lo_name: None, hi_name: None}
    return {
        name: number(estimate.value),
        lo_name: number(estimate.lo),
        hi_name: number(estimate.hi),
    }


def _end_name(name: str, end: str) -> str:
    for unit in ("_us_per_mib", "_us"):
        if name.endswith(unit):
            return f"{name.removesuffix(unit)}_{end}{unit}"
    return f"{name}_{end}"


def _us(estimate: Estimate | None) -> Estimate | None:
    return None if estimate is None else estimate.scaled(1 / NS_PER_US)


def _attempt(summary: ConditionSummary) -> JsonObject:
    return {
        "attempt": summary.attempt,
        "n": summary.n,
        **estimate_fields("p50_us", _us(summary.p50)),
        **estimate_fields("p90_us", _us(summary.p90)),
        **estimate_fields("p99_us", _us(summary.p99)),
        "max_us": None if summary.max_ns is None else number(summary.max_ns / NS_PER_US),
        **estimate_fields("extra_us", _us(summary.extra)),
        **estimate_fields("ratio", summary.ratio),
        **estimate_fields("cycles_per_s", summary.cycles_per_s),
        "flagged_outliers": summary.flagged_outliers,
        "warmup": summary.warmup,
        "failed": summary.failed,
        "discarded": summary.discarded,
        "traced": summary.traced,
        "outside_window": summary.outside_window,
        "untimed": summary.untimed,
    }


def _size(
    headline: ConditionSummary, others: list[ConditionSummary], operation: Operation
) -> JsonObject:
    calls = {call: _us(headline.calls_p50[call]) for call in operation.calls}
    return {
        "size_mib": whole(mib(headline.condition.size_bytes)),
        **_attempt(headline),
        "calls_p50_us": {
            call: None if estimate is None else number(estimate.value)
            for call, estimate in calls.items()
        },
        "other_attempts": [_attempt(summary) for summary in others],
    }

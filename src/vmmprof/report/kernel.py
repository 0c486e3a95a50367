# SPDX-License-Identifier: MIT
"""The kernel side of a traced recording as JSON objects (keys in docs/recording.md).

What a method does not give is null, never 0.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vmmprof.kernel.calls import CallShare, ProbeEffect
from vmmprof.kernel.phases import UpdateGroup, iteration_histogram, update_groups
from vmmprof.kernel.recorded import TracedRecording
from vmmprof.kernel.shares import Share
from vmmprof.report.numbers import NS_PER_US, number, whole
from vmmprof.sizes import mib

JsonObject = dict[str, Any]


def traced_object(traced: TracedRecording) -> JsonObject:
    """How the recording was traced, its calls, update calls by size, and the probe's effect."""
    facts = traced.facts
    period_ns = facts.get("period_ns")
    counted = not traced.is_sampled
    histogram = iteration_histogram(traced.events) if counted else {}
    return {
        "method": facts.get("method"),
        "module": facts.get("module"),
        "period_us": None if period_ns is None else period_ns / NS_PER_US,
        "calibration_ns": facts.get("calibration"),
        "losses": traced.losses,
        "driver_reloaded": facts.get("driver_reloaded"),
        "calls": [call_object(share) for share in traced.shares],
        "updates": [_group(group) for group in update_groups(traced.events)] if counted else None,
        "updates_by_iterations": (
            [{"from": first, "updates": calls} for first, calls in histogram.items()]
            if counted
            else None
        ),
        "probe_effect": [_effect(effect) for effect in traced.effects],
    }


def call_object(share: CallShare) -> JsonObject:
    """One call of one condition, and what it spent in the update path."""
    return {
        "placement": share.placement,
        "variant": share.variant or None,
        "size_mib": whole(mib(share.size_bytes)),
        "scattered": share.scattered,
        "call": share.name,
        "direction": share.direction,
        "cycles": share.cycles,
        "p50_us": number(share.p50_us),
        "sampled_share": number(share.seen),
        **path_fields(share),
    }


def path_fields(share: CallShare | None) -> JsonObject:
    """Counts and shares of the update path, mean a call; all null without a traced call."""
    fields: JsonObject = {
        name: None if share is None else number(getattr(share, name))
        for name in ("updates", "iterations", "runs", "barriers", "invalidates", "path_us")
    }
    for name, part in (
        ("path_share", "path"),
        ("pte_share", "pte"),
        ("barrier_share", "barrier"),
        ("tlb_share", "tlb"),
        ("barrier_tlb_share", "sync"),
    ):
        fields |= share_fields(name, None if share is None else getattr(share, part))
    return fields


def share_fields(name: str, share: Share | None) -> JsonObject:
    """A share of 0 .. 1 with its ends; null where it is unknown or there is nothing to share."""
    if share is None:
        return {name: None, f"{name}_lo": None, f"{name}_hi": None}
    return {
        name: number(share.value),
        f"{name}_lo": number(share.low),
        f"{name}_hi": number(share.high),
    }


def _group(group: UpdateGroup) -> JsonObject:
    plain = {
        name: value if isinstance(value, str | int) else number(value)
        for name, value in asdict(group).items()
        if not isinstance(value, dict)
    }
    shares: JsonObject = {}
    for name in ("pte", "barrier", "tlb"):
        shares |= share_fields(f"{name}_share", getattr(group, name))
    return plain | shares | share_fields("barrier_tlb_share", group.sync)


def _effect(effect: ProbeEffect) -> JsonObject:
    return {
        "placement": effect.placement,
        "ratio": number(effect.ratio),
        "ratio_lo": number(effect.low),
        "ratio_hi": number(effect.high),
    }

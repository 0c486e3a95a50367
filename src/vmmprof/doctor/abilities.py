# SPDX-License-Identifier: MIT
"""From findings to what can be done here: each vmmprof ability with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmmprof.doctor.findings import Answer, Finding


@dataclass(frozen=True)
class Ability:
    """Something vmmprof does, whether it can do it here, and why not."""

    what: str
    answer: Answer
    reason: str


# An ability needs all of its findings to be yes.
_NEEDS: dict[str, tuple[str, ...]] = {
    "time the VMM cycle (sweep --driver cuda)": ("cuda",),
    "time localized memory (--placement domain:N)": ("cuda", "locality_domains"),
    "time compressible memory (--placement compressible)": ("cuda", "compression"),
    "see the driver's static BAR1 update loop at work": ("static_bar1",),
    "sample the kernel under a call": ("perf",),
    "count the update loop's steps by kprobes": ("kprobes", "bcc", "headers"),
}


def abilities(findings: Sequence[Finding]) -> list[Ability]:
    """Every ability with the answer that follows from ``findings``.

    No as soon as one need is no; unknown when none is no and one is unknown.
    """
    by_key = {finding.key: finding for finding in findings}
    result = [Ability("run on a model (sweep --driver model:b300)", Answer.YES, "")]
    for what, needs in _NEEDS.items():
        # A question that only a CUDA device can answer is not there without one.
        found = [by_key[need] for need in needs if need in by_key]
        lacking = [f for f in found if f.answer is Answer.NO]
        lacking = lacking or [f for f in found if f.answer is Answer.UNKNOWN]
        if lacking:
            first = lacking[0]
            answer = first.answer or Answer.UNKNOWN
            result.append(Ability(what, answer, f"{first.question}: {answer.value}"))
        else:
            result.append(Ability(what, Answer.YES, ""))
    return result

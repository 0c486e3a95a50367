# SPDX-License-Identifier: MIT
"""A whole measurement: lock, pinning, driver, recording and runner, given back in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vmmprof.drivers.protocol import (
    ConcurrentDriver,
    Driver,
    PlacementUnavailableError,
    VictimRequest,
)
from vmmprof.errors import ExitCode, NothingMeasuredError, UsageError, VmmprofError
from vmmprof.experiment.interrupts import Interrupts
from vmmprof.experiment.lock import measurement_lock
from vmmprof.experiment.pinning import cpus_to_pin, pinned
from vmmprof.experiment.plan import Plan, make_plan
from vmmprof.experiment.runner import Options, Outcome, ProgressCallback, Runner
from vmmprof.experiment.samples import Samples
from vmmprof.placement import ALONE, NOBODY, Condition, Level
from vmmprof.recording import environment
from vmmprof.recording.writer import RecordingWriter, UnsavedError
from vmmprof.variant import STANDARD, Variant


@dataclass(frozen=True)
class Request:
    """What to measure and how. ``facts`` go into the recording's environment as they are."""

    sizes: Sequence[int]
    placements: Sequence[str] | None
    scatter: bool
    options: Options
    pin: str
    lock: bool
    device: int
    output: Path
    command: Sequence[str]
    facts: Mapping[str, object]
    levels: Sequence[Level] = (ALONE,)
    device_sets: Sequence[tuple[int, ...]] = ()
    """Devices that levels run on, one set a number of devices; empty: ``device`` alone."""
    victim: VictimRequest | None = None
    variants: Sequence[Variant] = (STANDARD,)
    api: str = "vmm"


@dataclass(frozen=True)
class Result:
    """What a session did; ``path`` is the recording.

    ``unreached``: conditions of which a run that ended early has no sample.
    ``not_given_back`` says what could not be given back after everything was
    measured and saved.
    """

    path: Path
    plan: Plan
    outcome: Outcome
    usable: int
    unreached: tuple[Condition, ...] = ()
    not_given_back: str | None = None

    @property
    def missing(self) -> dict[str, str]:
        """What was asked for and could not be measured, with the reason."""
        failed = {str(condition): why for condition, why in self.outcome.failed.items()}
        ended = f"not reached: {self.outcome.ended_early}"
        unreached = {str(condition): ended for condition in self.unreached}
        return self.plan.unavailable | self.outcome.unavailable | unreached | failed

    @property
    def exit_code(self) -> ExitCode:
        """As in docs/exit-codes.md."""
        if self.outcome.interrupted_by is not None:
            return ExitCode.INTERRUPTED
        if self.usable == 0:
            return ExitCode.NOTHING_MEASURED
        return ExitCode.PARTIAL if self.missing else ExitCode.OK


def measure(
    driver: Driver,
    request: Request,
    on_plan: Callable[[Plan], None],
    progress: ProgressCallback,
) -> Result:
    """Measure what ``request`` asks for.

    ``on_plan`` is told the plan before anything is measured. Errors found
    before measuring are raised; from then on everything ends in a Result and a
    saved recording, but for an UnsavedError: a recording that takes no more.
    """
    result = None
    try:
        with ExitStack() as stack:
            result = _measure(stack, driver, request, on_plan, progress)
    except UnsavedError:
        raise
    except VmmprofError as error:
        if result is None:
            raise
        return replace(result, not_given_back=str(error))
    return result


def _measure(
    stack: ExitStack,
    driver: Driver,
    request: Request,
    on_plan: Callable[[Plan], None],
    progress: ProgressCallback,
) -> Result:
    """Everything that is taken for the measurement is given back with ``stack``."""
    # First in, last out: a signal never ends the taking or the giving back half-way.
    interrupts = stack.enter_context(Interrupts(driver.request_stop))
    if request.lock and not driver.is_model:
        stack.enter_context(measurement_lock())
    if request.device_sets:
        _concurrent(driver, "--devices").use_devices(request.device_sets)
    if request.api != "vmm":
        _concurrent(driver, "--api").use_api(request.api)
    if request.options.rate is not None:
        _concurrent(driver, "--rate").use_rate(request.options.rate)
    if request.victim is not None:
        _concurrent(driver, "--victim").use_victim(request.victim)
    stack.enter_context(driver)
    plan = make_plan(
        request.sizes,
        request.placements,
        request.scatter,
        driver,
        request.levels,
        variants=request.variants,
        victim=request.victim is not None,
    )
    on_plan(plan)
    if not plan.conditions:
        reasons = "; ".join(plan.unavailable.values())
        raise NothingMeasuredError(f"no condition can be measured here: {reasons}")
    if request.scatter:
        _require_alone(driver)
    device_facts = driver.environment()
    pci_bus_id = device_facts.get("pci_bus_id")
    cpus, pinning = cpus_to_pin(request.pin, str(pci_bus_id) if pci_bus_id else None)
    stack.enter_context(pinned(cpus))
    facts = environment.merged(
        environment.preamble(list(request.command)),
        _driver_facts(driver),
        {
            "conditions": len(plan.conditions),
            "placements_asked_for": request.placements,
            "scatter": request.scatter,
            "options": asdict(_options(request, plan)),
            "levels": [asdict(level) for level in request.levels],
            "variants": [str(variant) for variant in request.variants],
            "victim": None if request.victim is None else asdict(request.victim),
            "pinning": pinning,
            "locked": request.lock and not driver.is_model,
            "gpu": device_facts,
            "machine": environment.machine(),
        },
        request.facts,
    )
    writer = stack.enter_context(
        RecordingWriter(request.output, driver.operation, facts, victims=request.victim is not None)
    )
    return _run(driver, request, plan, writer, interrupts=interrupts, progress=progress)


def _require_alone(driver: Driver) -> None:
    try:
        driver.require_alone()
    except PlacementUnavailableError as error:
        # The whole run is refused, not a part of it.
        raise NothingMeasuredError(str(error)) from None


def _concurrent(driver: Driver, what: str) -> ConcurrentDriver:
    if not isinstance(driver, ConcurrentDriver):
        raise UsageError(
            f"{what}: --driver {driver.name} runs the usual cycle in one thread; leave it out"
        )
    return driver


def _options(request: Request, plan: Plan) -> Options:
    """The options as they are run: a plan that needs no bursts visits one cycle at a time."""
    if request.options.rate is not None or any(
        condition.level != ALONE or condition.variant.needs_burst for condition in plan.conditions
    ):
        return request.options
    return replace(request.options, burst=None)


def _driver_facts(driver: Driver) -> dict[str, object]:
    return {
        "driver": driver.name,
        "is_model": driver.is_model,
        "operation": driver.operation.name,
        "headline": driver.headline,
        "clock": driver.clock,
    }


def _run(
    driver: Driver,
    request: Request,
    plan: Plan,
    writer: RecordingWriter,
    *,
    interrupts: Interrupts,
    progress: ProgressCallback,
) -> Result:
    begin_s = time.monotonic()
    samples = Samples(plan.conditions, driver.operation, driver.headline, request.device, writer)
    runner = Runner(
        driver,
        plan.conditions,
        _options(request, plan),
        samples=samples,
        interrupts=interrupts,
        progress=progress,
    )
    outcome = runner.run()
    unreached = tuple(
        condition
        for i, condition in enumerate(plan.conditions)
        if outcome.ended_early is not None
        and condition.level != NOBODY
        and not len(samples.headline_ns(i, attempt=1))
    )
    result = Result(request.output, plan, outcome, samples.usable, unreached)
    writer.finish(
        "complete" if outcome.ended_early is None else outcome.ended_early,
        duration_s=round(time.monotonic() - begin_s, 3),
        missing=result.missing,
        remeasured={str(c): why for c, why in outcome.remeasured.items()},
        not_converged={str(c): width for c, width in outcome.not_converged.items()},
        plan_notes=plan.notes,
        kernel_log=[] if driver.is_model else environment.kernel_log_since(begin_s),
    )
    return result

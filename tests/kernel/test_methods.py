# SPDX-License-Identifier: MIT
"""Methods are examined one by one, with reasons; the best that works is taken."""

from __future__ import annotations

import pytest

from vmmprof.errors import NothingMeasuredError, UsageError
from vmmprof.kernel import methods
from vmmprof.kernel.methods import Method, choose


def _method(name: str, reason: str = "") -> Method:
    return Method(name, "about", "gives", reason, "remedy" if reason else "")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Method]:
    listed = [_method("kprobe", "no pads"), _method("module"), _method("sampling")]
    monkeypatch.setattr(methods, "examine", lambda module: listed)
    return listed


def test_auto_takes_the_best_that_works(found: list[Method]) -> None:
    assert choose("auto").name == "module"
    assert choose("sampling").name == "sampling"


def test_a_forced_method_that_does_not_work_says_why(found: list[Method]) -> None:
    with pytest.raises(NothingMeasuredError, match="kprobe does not work here: no pads; remedy"):
        choose("kprobe")


def test_an_unknown_method_is_bad_input(found: list[Method]) -> None:
    with pytest.raises(UsageError, match="one of auto, kprobe, module, sampling"):
        choose("dtrace")


def test_when_nothing_works_each_reason_is_said_once(found: list[Method]) -> None:
    found[:] = [_method("kprobe", "not loaded"), _method("sampling", "not loaded")]
    with pytest.raises(NothingMeasuredError) as raised:
        choose("auto")
    assert str(raised.value).count("not loaded") == 1


def test_other_machines_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    reasons = {method.reason for method in methods.examine("nvidia")}
    assert len(reasons) == 1
    assert "this is aarch64" in reasons.pop()


def test_a_driver_that_is_not_loaded_stops_every_method() -> None:
    for method in methods.examine("no_such_module"):
        assert not method.works
        assert "no_such_module is not loaded" in method.reason or "kallsyms" in method.reason
        assert method.remedy
        # What to do is said once, in the remedy.
        assert ";" not in method.reason


def test_a_file_that_may_not_be_read_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(machine: object) -> None:
        raise PermissionError(1, "Operation not permitted", "/sys/kernel/tracing/kprobe_events")

    monkeypatch.setattr(methods, "_check_machine", refuse)
    method = methods.examine("nvidia")[0]
    assert "kprobe_events cannot be read (Operation not permitted)" in method.reason


def test_advice_on_a_driver_that_is_not_loaded_is_given_once() -> None:
    with pytest.raises(NothingMeasuredError) as caught:
        choose("sampling", "vmmprof_no_such_module")
    text = str(caught.value)
    if "hides its addresses" not in text:
        assert text.count("not loaded") == 1
        assert text.count("load") == 2 and text.count(";") == 1

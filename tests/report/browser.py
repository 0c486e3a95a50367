# SPDX-License-Identifier: MIT
"""A headless Chromium, driven over its DevTools pipe; nothing but the standard library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Chromium reads commands from file 3 and writes answers and events to file 4, each ended by NUL.
_COMMANDS, _ANSWERS = 3, 4


def chromium() -> str | None:
    """The browser's path, None where there is none."""
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


class Page:
    """One open page. ``problems``: console errors, exceptions and requests that failed."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._unread = b""
        self._last_id = 0
        self._session: str | None = None
        self._events: list[str] = []
        self.problems: list[str] = []
        self.requests: list[str] = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come first are noted."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            chunk = os.read(self._from, 1 << 16)
            assert chunk, "the browser went away"
            self._unread += chunk
        raw, self._unread = self._unread.split(b"\0", 1)
        message: dict[str, Any] = json.loads(raw)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, what = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(what["exceptionDetails"]))
        elif method == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.problems.append(str(what["entry"]))
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
            self.problems.append(str(what["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])

    def open(self, path: Path) -> None:
        """Load a file and wait until it has run."""
        self._events.clear()
        self.command("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self._events:
            self._read()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def move_mouse(self, x: float, y: float) -> None:
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def resize(self, width: int, height: int) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def colour_scheme(self, name: str) -> None:
        self.command(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}]
        )

    def screenshot(self) -> str:
        """The whole page as base64 PNG."""
        data: str = self.command("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        return data


@contextmanager
def open_page(profile: Path) -> Iterator[Page]:
    """A page in a browser of its own, which ends with the block."""
    browser = chromium()
    assert browser is not None
    commands_read, commands_write = os.pipe()
    answers_read, answers_write = os.pipe()

    def place_pipes() -> None:
        # First out of the way of 3 and 4, which the pipes' own numbers may be.
        commands, answers = os.dup(commands_read), os.dup(answers_write)
        os.dup2(commands, _COMMANDS)
        os.dup2(answers, _ANSWERS)

    process = subprocess.Popen(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--remote-debugging-pipe", f"--user-data-dir={profile}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=place_pipes, close_fds=False,  # noqa: PLW1509 (no threads here)
    )  # fmt: skip
    os.close(commands_read)
    os.close(answers_write)
    try:
        yield Page(commands_write, answers_read)
    finally:
        process.kill()
        process.wait()
        os.close(commands_write)
        os.close(answers_read)

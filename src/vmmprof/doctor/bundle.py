# SPDX-License-Identifier: MIT
"""A small archive for bug reports: findings, the machine's facts, the driver's log lines."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Mapping

from vmmprof.errors import UsageError
from vmmprof.recording import environment


def write_bundle(path: str, findings: Mapping[str, object]) -> None:
    """Write a .tar.gz; UsageError when it cannot be written. Holds no host name and no user."""
    parts: dict[str, object] = {
        "findings.json": findings,
        "machine.json": environment.machine(),
        "nvidia_module.json": environment.nvidia_module(),
        "kernel_log.json": environment.kernel_log_since(0.0),
    }
    try:
        with tarfile.open(path, "w:gz") as archive:
            for name, part in parts.items():
                content = (json.dumps(part, indent=2) + "\n").encode()
                entry = tarfile.TarInfo(f"vmmprof-doctor/{name}")
                entry.size, entry.mtime = len(content), int(time.time())
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise UsageError(
            f"--bundle {path} cannot be written: {error.strerror}; choose another file"
        ) from None

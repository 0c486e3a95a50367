# SPDX-License-Identifier: MIT
"""What this machine can and cannot measure, and why: yes, no or unknown."""

from vmmprof.doctor.abilities import abilities
from vmmprof.doctor.findings import Answer, Finding, examine, session_facts

__all__ = ["Answer", "Finding", "abilities", "examine", "session_facts"]

# SPDX-License-Identifier: MIT
"""A process that works in bursts, started by processes.py; not for users.

It takes its orders over a socket and meets the others in shared memory. It
leaves when the socket closes, and dies with the process that started it.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from vmmprof.drivers.cuda import api
from vmmprof.drivers.cuda.team import Team, burst_memory, make_core, primary_contexts
from vmmprof.errors import VmmprofError

_PR_SET_PDEATHSIG = 1


def _serve(connection: Connection[Any, Any], control: memoryview, team: Team) -> None:
    while True:
        try:
            kind, body = connection.recv()
        except EOFError:
            return
        if kind == "prepare":
            try:
                team.prepare(body)
            except VmmprofError as error:
                connection.send(str(error))
            else:
                connection.send("prepared")
        else:
            connection.send(team.run(body, control))


def main(arguments: Sequence[str]) -> None:
    """SOCKET-FD MEMORY-FD PROCESS DOMAINS POOLS DEVICE...; -1 domains: the driver knows none."""
    socket_fd, memory_fd, process, domain_count, pools, *devices = map(int, arguments)
    # The one that started this process decides when to stop; a terminal's
    # Ctrl-C reaches both.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    connection: Connection[Any, Any] = Connection(socket_fd)
    control = burst_memory(memory_fd)
    try:
        api.call("cuInit", 0)
        with primary_contexts(devices) as contexts:
            core = make_core(domain_count >= 0, bool(pools))
            with Team(core, contexts, max(0, domain_count), process) as team:
                connection.send("ready")
                _serve(connection, control, team)
    except VmmprofError as error:
        connection.send(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Ports for the daemons of tests."""

import contextlib
import fcntl
import os
import pathlib
import random
import socket
import tempfile

_given = set()
_locks = None  # The open file of which a byte is locked for each port. The process holds the locks until it ends.


def free_ports(count, candidates=None):
    """Returns ports on which nothing listens and that no other test process of this user has got.

    They are below the range from which the system takes ports, so that no other program gets one of them before it is
    used, or while a daemon restarts. A port is locked until this process ends: other tests do not get it either."""
    global _locks
    if _locks is None:
        _locks = open(pathlib.Path(tempfile.gettempdir()) / f"xlad-test-ports-{os.getuid()}", "a")
    if candidates is None:
        lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        candidates = range(1024, max(lowest, 2048))
    found = set()
    while len(found) < count:
        port = random.choice(candidates)
        if port in _given:
            continue
        with contextlib.suppress(OSError), socket.socket() as probe:
            fcntl.lockf(_locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            probe.bind(("0.0.0.0", port))
            _given.add(port)
            found.add(port)
    return sorted(found)

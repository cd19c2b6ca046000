"""Ports for the daemons of tests."""

import fcntl
import os
import pathlib
import random
import socket
import tempfile

_given = set()
_locks = None  # An open file with one locked byte per port. The process holds the locks until it ends.


def free_ports(count, candidates=None):
    """Returns ports on which nothing listens and that no other test process of this user holds.

    The system does not assign ports of this range, so no other program gets one before it is used or while a daemon
    restarts. Other tests do not get the ports either, because they are locked until this process ends. Raises OSError
    if there are not enough of them."""
    global _locks
    if _locks is None:
        _locks = open(pathlib.Path(tempfile.gettempdir()) / f"xlad-test-ports-{os.getuid()}", "a")
    if candidates is None:
        lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        candidates = range(1024, max(lowest, 2048))
    found = []
    for port in random.sample(candidates, len(candidates)):
        if len(found) == count:
            break
        if port not in _given and _take(port):
            found.append(port)
    if len(found) < count:
        for port in found:
            _give_back(port)
        raise OSError(f"found {len(found)} free ports among {len(candidates)}, expected {count}; other programs use "
                      "the rest")
    return sorted(found)


def _take(port):
    """Locks the port. Returns False if another process has it, or listens on it."""
    try:
        fcntl.lockf(_locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _given.add(port)
    try:
        with socket.socket() as probe:
            probe.bind(("0.0.0.0", port))
    except OSError:
        _give_back(port)
        return False
    return True


def _give_back(port):
    fcntl.lockf(_locks, fcntl.LOCK_UN, 1, port)
    _given.remove(port)

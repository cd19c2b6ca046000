"""Ctrl-C that is not lost.

Python drops what is raised inside a callback of its garbage collector, and JAX has such a callback: a KeyboardInterrupt
that happens to be raised there never reaches the user. While a cluster is in use, one that comes then is put off.
"""

from __future__ import annotations

import gc
import signal
import threading
from types import FrameType
from typing import Any

_PUT_OFF_S = 0.01
_users = 0
_lock = threading.Lock()


def _is_dropped_in(frame: FrameType | None) -> bool:
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in callbacks or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_dropped_in(frame):
        signal.default_int_handler(number, frame)
    again = threading.Timer(_PUT_OFF_S, signal.pthread_kill, [threading.main_thread().ident, number])
    again.daemon = True
    again.start()


def hold() -> None:
    """Until as many calls of `release`. Leaves handlers of the user's own, and other threads than the main one, alone."""
    global _users
    with _lock:
        _users += 1
        _replace(signal.default_int_handler, _on_interrupt)


def release() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            _replace(_on_interrupt, signal.default_int_handler)


def _replace(old: Any, new: Any) -> None:
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is old:
        signal.signal(signal.SIGINT, new)

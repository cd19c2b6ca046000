"""Ctrl-C that is not lost.

Python drops what is raised inside a callback of its garbage collector, and JAX has such a callback: a KeyboardInterrupt
that happens to be raised there never reaches the user. And gRPC waits forever where one is raised while it takes a
lock. While a cluster is in use, one that comes then is put off.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import grpc

WHOLE: set[CodeType] = set()  # Functions that return to their caller before one is raised.
_PUT_OFF_S = 0.01
_GRPC = os.path.dirname(grpc.__file__) + os.sep
_WAIT = threading.Condition.wait.__code__
_users = 0
_critical = 0  # Of the main thread: how many `put_off` it is in.
_through = False  # In `let_through`.
_pending = False
_sent_again = False
_handling = False
_lock = threading.Lock()


def _does_harm_in(frame: FrameType | None) -> bool:
    """Inside gRPC it may come where that waits: in a condition, or below `_blocking` in no code of Python's."""
    here = frame
    while frame is not None and not frame.f_code.co_filename.startswith(_GRPC):
        frame = frame.f_back
    return here is not None and frame is not None and here.f_code is not _WAIT and here.f_code.co_name != "_blocking"


def _is_in_whole(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code not in WHOLE:
        frame = frame.f_back
    return frame is not None


def _is_dropped_in(frame: FrameType | None) -> bool:
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in callbacks or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    global _handling, _pending, _sent_again
    if _handling:  # Another one while this one is put off.
        _pending, _sent_again = _pending or not _sent_again, False
        return
    _handling = True
    try:
        _raise_or_put_off(number, frame)
    finally:
        _handling = False


def _raise_or_put_off(number: int, frame: FrameType | None) -> None:
    global _pending, _sent_again
    again, _sent_again = _sent_again, False
    if again and not _pending:
        return  # It was raised while it was on its way.
    first = (again or not _pending) and not _through and (_critical > 0 or _is_in_whole(frame))
    if not (first or _is_dropped_in(frame) or _does_harm_in(frame)):
        _pending = False
        signal.default_int_handler(number, frame)
    _pending = True
    if _critical == 0:
        _send_again()


def _send_again() -> None:
    def send() -> None:
        global _sent_again
        ident = threading.main_thread().ident
        if _pending and ident is not None:
            _sent_again = True
            signal.pthread_kill(ident, signal.SIGINT)

    again = threading.Timer(_PUT_OFF_S, send)
    again.daemon = True
    again.start()


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def check() -> None:
    """Raises one that was put off; where nothing is lost by it."""
    global _pending
    if _pending and _critical == 0 and _is_main():
        _pending = False
        raise KeyboardInterrupt


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Inside, the first Ctrl-C waits for the end, and a second one does not: what a call returns is not to be lost.

    It waits until the function has returned where that is in WHOLE.
    """
    global _critical
    main = _is_main()
    _critical += main
    try:
        yield
    finally:
        _critical -= main
        if main and _pending and _critical == 0:
            _send_again()


@contextlib.contextmanager
def let_through() -> Iterator[None]:
    """Inside `put_off`, around what takes long and may be cut off."""
    global _critical, _through
    before = _critical, _through
    if _is_main():
        _critical, _through = 0, True
    check()
    try:
        yield
    finally:
        if _is_main():
            _critical, _through = before


def hold() -> None:
    """Until as many calls of `release`. Leaves handlers of the user's own alone, and threads but the main one."""
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
    if _is_main() and signal.getsignal(signal.SIGINT) is old:
        signal.signal(signal.SIGINT, new)

"""Delivers Ctrl-C reliably while a cluster is in use.

Python drops exceptions that are raised inside a callback of its garbage collector, and JAX and this package have such
callbacks: a KeyboardInterrupt that is raised there never reaches the user. If a KeyboardInterrupt is raised while gRPC
takes a lock, gRPC waits forever. While a cluster is in use, an interrupt that arrives at either of these points is
deferred. If an interrupt inside this package ends the program, one line with the user's call replaces the traceback.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import site
import sys
import sysconfig
import threading
import traceback
import weakref
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

import grpc

WHOLE: set[CodeType] = set()  # An interrupt during one of these functions is deferred until it has returned.
_PUT_OFF_S = 0.01
_GRPC = os.path.dirname(grpc.__file__) + os.sep
_PACKAGE = os.path.dirname(__file__) + os.sep
# Files that are not the user's: those of Python, and of this package and other installed ones.
_LIBRARIES = (_PACKAGE, _GRPC, "<frozen ", os.path.dirname(os.__file__) + os.sep,
              *(os.path.join(folder, "") for folder in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
                                                        *site.getsitepackages(), site.getusersitepackages())))
_WAIT = threading.Condition.wait.__code__
_users = 0
_critical = 0  # The number of `put_off` blocks that the main thread is in.
_through = False  # Whether the main thread is in `let_through`.
_pending = False
_sent_again = False
_handling = False
_lock = threading.RLock()  # The garbage collector may call `release` inside `hold` or `release`.


def _does_harm_in(frame: FrameType | None) -> bool:
    """Returns whether an interrupt in this frame could make gRPC wait forever. Inside gRPC, an interrupt is harmless
    only if the innermost frame is Condition.wait or `_blocking`, in which gRPC waits."""
    here = frame
    while frame is not None and not frame.f_code.co_filename.startswith(_GRPC):
        frame = frame.f_back
    return here is not None and frame is not None and here.f_code is not _WAIT and here.f_code.co_name != "_blocking"


def _is_in_whole(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code not in WHOLE:
        frame = frame.f_back
    return frame is not None


def _is_dropped_in(frame: FrameType | None) -> bool:
    callbacks = {getattr(callback, "__code__", None) for callback in (*gc.callbacks, weakref.finalize.__call__)}
    while frame is not None:
        if frame.f_code in callbacks or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    global _handling, _pending, _sent_again
    if _handling:  # This interrupt arrived while the handler of another one runs.
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
        return  # `check` has raised the interrupt meanwhile.
    first = (again or not _pending) and not _through and (_critical > 0 or _is_in_whole(frame))
    if not (first or _is_dropped_in(frame) or _does_harm_in(frame)):
        _pending = False
        signal.default_int_handler(number, frame)
    _pending = True
    if _critical == 0:
        _send_again()


def _send_again() -> None:
    def send() -> None:
        global _pending, _sent_again
        ident = threading.main_thread().ident
        if not _pending or ident is None:
            return
        if signal.getsignal(signal.SIGINT) is _on_interrupt:
            _sent_again = True
        else:
            _pending = False
            if _users > 0:
                return  # The interrupt was for a cell of a notebook that has ended. Another cell may be running.
        signal.pthread_kill(ident, signal.SIGINT)

    again = threading.Timer(_PUT_OFF_S, send)
    again.daemon = True
    again.start()


def _without_handler(trace: TracebackType | None) -> TracebackType | None:
    """Removes the frames of the handler from the end of the traceback."""
    at = trace
    while at is not None:
        if at.tb_next is not None and at.tb_next.tb_frame.f_code is _on_interrupt.__code__:
            at.tb_next = None
        at = at.tb_next
    return trace


def _interrupted_call(trace: TracebackType | None) -> str:
    """Returns the user's call into this package, as in "train.py:12: run.result()", if no code of the user was running
    inside it. Otherwise, returns an empty text."""
    frames = traceback.extract_tb(trace)
    is_users = [not frame.filename.startswith(_LIBRARIES) for frame in frames]
    first = next((i for i, frame in enumerate(frames) if frame.filename.startswith(_PACKAGE)), 0)
    if first == 0 or any(is_users[first:]):
        return ""
    # If the program itself is an installed package, its call is the frame before that of this package.
    call = frames[max((i for i in range(first) if is_users[i]), default=first - 1)]
    return f"{call.filename}:{call.lineno}" + (f": {call.line}" if call.line else "")


def _on_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        trace = _without_handler(trace)
        call = _interrupted_call(trace)
        if call:
            print(f"xlad: interrupted in {call}", file=sys.stderr)
            return
    sys.__excepthook__(kind, error, trace)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def check() -> None:
    """Raises a deferred interrupt. Called at points at which no result can be lost, and at the beginning of long work.
    Installs the handler again, because Jupyter installs that of Python before each cell."""
    global _pending
    if _users > 0:
        _install()
    if _pending and _critical == 0 and _is_main():
        _pending = False
        raise KeyboardInterrupt


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Defers the first Ctrl-C until the end of the block, so that the result of a call is not lost. If the block is in
    a function of WHOLE, defers it until that function has returned. A second Ctrl-C is deferred only while it would be
    lost or could make gRPC wait forever."""
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
    """Inside `put_off`: marks a long operation that may be interrupted."""
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
    """Installs the handler until every call of `hold` has a matching call of `release`. Has no effect if the user has
    installed another handler, or outside of the main thread."""
    global _users
    with _lock:
        _users += 1
        _install()


def release() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            _replace(_on_interrupt, signal.default_int_handler)


def _install() -> None:
    """Replaces the handler of Python. An interrupt that was deferred before is dropped. Also replaces the hook of
    Python for errors that end the program, unless the user has installed one. The hook remains after `release`, because
    a `with` block of a cluster ends before the hook is called."""
    global _pending, _sent_again
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _on_uncaught
    if _replace(signal.default_int_handler, _on_interrupt):
        _pending = _sent_again = False


def _replace(old: Any, new: Any) -> bool:
    if not _is_main() or signal.getsignal(signal.SIGINT) is not old:
        return False
    signal.signal(signal.SIGINT, new)
    return True

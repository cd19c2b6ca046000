"""Reports through the logger when something waits for a long time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

SAY_AFTER_S = 5.0
SAY_AGAIN_S = 60.0
WAITS = ("PENDING", "STARTING")


def _answer(why: Callable[[], str]) -> str:
    """Returns the result of `why`, or an empty text if it fails, for example if the coordinator cannot be reached."""
    try:
        return why()
    except Exception:  # noqa: BLE001
        return ""


class Waiting:
    """Logs a warning (logger "xlad") when the state has been one of WAITS for SAY_AFTER_S, and again every SAY_AGAIN_S.
    `update` is called at each change of the state. The text of the warning is the result of `why`, or the state's
    reason if `why` fails or returns an empty text."""

    def __init__(self, what: str, why: Callable[[], str]) -> None:
        self._what = what
        self._why = why
        self._reason = ""
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None  # The timer of the current wait, or None.
        self._waits = 0  # The number of waits so far. Each wait has its own timers.
        self._stopped = False
        self._begin()

    def update(self, state: str, reason: str) -> None:
        self._reason = reason
        if state in WAITS:
            self._begin()
        else:
            self._end()

    def stop(self) -> None:
        self._stopped = True
        self._end()

    def _begin(self) -> None:
        with self._lock:
            if self._timer is None and not self._stopped:
                self._waits += 1
                self._start(SAY_AFTER_S)

    def _start(self, seconds: float) -> None:
        """Requires the lock."""
        self._timer = threading.Timer(seconds, self._say, (self._waits,))
        self._timer.daemon = True
        self._timer.start()

    def _end(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    def _say(self, wait: int) -> None:
        text = _answer(self._why) or self._reason
        text = text if self._what.partition(" ")[0] in text else f"{self._what} {text or 'waits'}"
        with self._lock:
            if self._timer is None or self._waits != wait:  # The wait has ended meanwhile.
                return
            self._start(SAY_AGAIN_S)
        logging.getLogger("xlad").warning("%s", text)


class Silence:
    """Logs a warning (logger "xlad") when no report has come for SAY_AFTER_S, and again every SAY_AGAIN_S. The text of
    the warning is the result of `why`. If it is empty or `why` fails, nothing is logged, and the time until the next
    call of `why` doubles, up to SAY_AGAIN_S. Runs until `stop` is called."""

    def __init__(self, why: Callable[[], str]) -> None:
        self._why = why
        self._reported = time.monotonic()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="xlad silence", daemon=True).start()

    def report(self) -> None:
        self._reported = time.monotonic()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        pause = SAY_AFTER_S
        while not self._stopped.wait(pause):
            if time.monotonic() - self._reported < SAY_AFTER_S:
                pause = SAY_AFTER_S
                continue
            text = _answer(self._why)
            if text and not self._stopped.is_set():
                logging.getLogger("xlad").warning("%s", text)
            pause = SAY_AGAIN_S if text else min(2 * pause, SAY_AGAIN_S)

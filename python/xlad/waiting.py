"""Reports through the logger when something waits for devices for long."""

from __future__ import annotations

import logging
import threading

SAY_AFTER_S = 5.0


class Waiting:
    """Receives `update(state, reason)` at each change. Logs a warning (logger "xlad") if the state stays PENDING."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._reason = ""
        self._timer = threading.Timer(SAY_AFTER_S, self._say)
        self._timer.daemon = True
        self._timer.start()

    def update(self, state: str, reason: str) -> None:
        self._reason = reason
        if state != "PENDING":
            self._timer.cancel()

    def stop(self) -> None:
        self._timer.cancel()

    def _say(self) -> None:
        logging.getLogger("xlad").warning("%s %s", self._what, self._reason or "waits")

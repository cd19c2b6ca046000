"""Calls to the first worker of a session, which serves its clients."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from xlad.connection import TRANSFER_S, Connection
from xlad.errors import Error

SESSION_HOST = "xlad-session"  # The name in the certificates of workers, independent of their address.
REACH_S = 5.0  # If a worker cannot be reached within this time, calls are sent to the coordinator.
END_S = 30.0  # How long calls are repeated, and how long the coordinator may take to report why a session ended.
T = TypeVar("T")


class Place:
    """Calls the first worker directly, or through the coordinator if the worker cannot be reached. Thread-safe.

    If the worker cannot be reached, a call is repeated until the worker answers, the session has ended, or END_S have
    passed since the first failure. All repetitions have the key of the request, so the worker executes it once.
    """

    def __init__(self, coordinator: Connection, session_id: str, why_ended: Callable[[float], str | None]) -> None:
        """`why_ended(seconds)` waits up to `seconds` for the session to end. It returns the reason, or None if the
        session has not ended."""
        self._coordinator = coordinator
        self._session_id = session_id
        self._why_ended = why_ended
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self.direct = False  # Whether the current connection is to the worker itself.

    def call(self, method: str, **fields: Any) -> Any:
        def attempt(connection: Connection, name: str) -> Any:
            return connection.call(name, session_id=self._session_id, timeout=TRANSFER_S, **fields)

        return self._repeat(method, attempt)

    def upload(self, method: str, requests: Callable[[], Iterable[Any]]) -> Any:
        """Sends the messages that `requests()` returns. `requests` is called for each attempt."""
        return self._repeat(method, lambda connection, name: connection.upload(name, requests))

    def download(self, method: str, take: Callable[[Iterator[Any]], T], **fields: Any) -> T:
        """Returns `take(responses)`. `take` is called for each attempt."""
        def attempt(connection: Connection, name: str) -> T:
            stream = connection.stream(name, session_id=self._session_id, timeout=TRANSFER_S, **fields)
            try:
                return take(stream)
            finally:
                stream.close()

        return self._repeat(method, attempt)

    def wait(self) -> None:
        """Blocks until the session runs."""
        self._connect()

    def close(self) -> None:
        self._drop(self._connection)

    def _drop(self, connection: Connection | None) -> None:
        """Closes the connection unless another thread has closed or replaced it."""
        with self._lock:
            if connection is None or self._connection is not connection:
                return
            self._connection = None
        if connection is not self._coordinator:
            connection.close()

    def _repeat(self, method: str, attempt: Callable[[Connection, str], T]) -> T:
        give_up: float | None = None
        while True:
            connection = self._connect()
            direct = connection is not self._coordinator
            try:
                return attempt(connection, f"SessionWorker.{method}" if direct else method)
            except Error as error:
                # Another thread, whose call failed, may have closed the connection during this call or just before.
                dropped = self._connection is not connection and error.code in ("CANCELLED", "FAILED_PRECONDITION")
                if not dropped and error.code not in ("UNAVAILABLE", "ABORTED", "CANCELLED", "UNAUTHENTICATED"):
                    raise
                # The coordinator has a more precise reason for the end of a session than the worker.
                why = self._why_ended(END_S if error.code in ("ABORTED", "UNAUTHENTICATED") else 0.5)
                if why is not None:
                    raise Error(f"session {self._session_id} has ended: {why}", "ABORTED") from None
                give_up = give_up or time.monotonic() + END_S
                if not (dropped or error.code == "UNAVAILABLE") or time.monotonic() > give_up:
                    raise
                self._drop(connection)

    def _connect(self) -> Connection:
        with self._lock:
            if self._connection is None:
                place = self._coordinator.call("LocateSession", session_id=self._session_id, timeout=None)
                self._connection = self._reach(place) or self._coordinator
                self.direct = self._connection is not self._coordinator
            return self._connection

    def _reach(self, place: Any) -> Connection | None:
        """Returns a connection to the worker, or None if it cannot be reached from here."""
        authority = (place.authority, SESSION_HOST) if place.authority else None
        try:
            connection = Connection(place.address, token=place.key, what="the session's worker", authority=authority)
        except ValueError:  # A worker of an earlier version on another machine, which offers no TLS.
            return None
        if connection.is_reachable(REACH_S):
            return connection
        connection.close()
        return None


def request_key() -> str:
    """Returns a new key, by which a worker recognizes repetitions of a request."""
    return uuid.uuid4().hex

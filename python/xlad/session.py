"""Sessions: devices that a client holds, and programs that are called on them."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from xlad import element_types, protos
from xlad.connection import CHUNK_BYTES, PATIENCE_S, Connection, sha256
from xlad.errors import Error
from xlad.job import Axes, axes_text
from xlad.run import ENDED
from xlad.session_place import Place, request_key
from xlad.waiting import Waiting

HOLD_AGAIN_S = 0.2


class Held(Protocol):
    """An array that is lost when its session ends, unless it was moved to this process before."""

    def move_here(self) -> None: ...


class Loaded(NamedTuple):
    """A program of a session. `parameters` and `results` list, for each array, the box that each device holds."""

    number: int
    parameters: list[list[tuple[tuple[int, int], ...]]]
    results: list[list[tuple[tuple[int, int], ...]]]
    compile_ms: float
    cached: bool
    warnings: list[str]


def _boxes(value: Any) -> list[tuple[tuple[int, int], ...]]:
    return [tuple(zip(box.lo, box.hi)) for box in value.boxes]


class Session:
    """Holds the devices of one mesh until it is closed. Thread-safe."""

    def __init__(self, connection: Connection, axes: Axes) -> None:
        self.axes = axes
        self._connection = connection
        self.ended: str | None = None  # Why the session has ended; None while it is open.
        self._end = threading.Event()
        self._unused: list[int] = []
        self._lock = threading.Lock()
        self._arrays: weakref.WeakValueDictionary[int, Held] = weakref.WeakValueDictionary()  # By id.
        self._calls = 0
        self.devices = math.prod(axes.values())
        mesh = [{"name": name, "size": size} for name, size in axes.items()]
        name = f"session on {axes_text(axes)}"
        opened = connection.repeat("OpenSession", client_key=uuid.uuid4().hex, name=name, mesh=mesh)
        self.id = opened.session_id
        self._waiting = Waiting(f"{self.id} ({name})", lambda: str(connection.call("WhyJob", job_id=self.id).text))
        self._place = Place(connection, self.id, self._why_ended)
        self._holder = threading.Thread(target=self._hold, name=f"xlad {self.id}", daemon=True)
        self._holder.start()

    def load(self, program: bytes, feeds: Sequence[int]) -> Loaded:
        self._connection.put_blobs([program])
        try:
            self._place.wait()  # LoadProgram would wait as well, but on one of the coordinator's threads.
            loaded = self._connection.call("LoadProgram", session_id=self.id, timeout=None,
                                           program_blob=sha256(program), feeds=feeds)
        except Error as error:
            if error.code == "ABORTED":
                self._has_ended(str(error))
            raise
        number = self._place.call("AddProgram", executable_digest=loaded.executable_digest, plans=loaded.plans,
                                  seal=loaded.seal, request_key=request_key()).program
        return Loaded(int(number), [_boxes(value) for value in loaded.parameters],
                      [_boxes(value) for value in loaded.results], loaded.compile_ms, loaded.cached,
                      list(loaded.warnings))

    def put(self, array: np.ndarray) -> int:
        """Uploads an array, and returns its number on the workers."""
        request = protos.METHODS["PutArray"].request
        row = element_types.of_dtype(array.dtype, "argument")
        view = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        key = request_key()

        def requests() -> Iterator[Any]:
            yield request(session_id=self.id, shape={"element_type": row.number, "dims": array.shape},
                          chunk=bytes(view[:CHUNK_BYTES]), request_key=key)
            for at in range(CHUNK_BYTES, len(view), CHUNK_BYTES):
                yield request(chunk=bytes(view[at : at + CHUNK_BYTES]))

        return int(self._place.upload("PutArray", requests).array)

    def call(self, program: int, arguments: Sequence[int | np.ndarray], donated: Sequence[int]) -> list[int]:
        """Calls a program, and returns the numbers of its results. `arguments` are numbers of arrays on the workers, or
        numpy arrays. `donated` are the numbers of the arguments that the call consumes."""
        uploaded: list[int] = []
        entries = []
        for argument in arguments:
            if not isinstance(argument, int) and argument.nbytes > CHUNK_BYTES:
                argument = self.put(argument)
                uploaded.append(argument)
            entries.append({"array": argument} if isinstance(argument, int) else {"value": argument.tobytes()})
        with self._lock:
            unused, self._unused = self._unused, []
        free = [*donated, *uploaded, *unused]
        answer = self._place.call("CallProgram", program=program, arguments=entries, free=free,
                                  request_key=request_key())
        return list(answer.results)

    def get(self, array: int) -> bytes:
        """Returns the elements of an array, row-major. Blocks until they have been computed."""
        return self._place.download("GetArray", lambda chunks: b"".join(chunk.data for chunk in chunks), array=array)

    def wait(self, array: int) -> None:
        """Blocks until an array has been computed."""
        self._place.download("GetArray", lambda chunks: next(chunks, None), array=array)

    def add(self, array: Held) -> None:
        self._arrays[id(array)] = array

    def forget(self, array: Held) -> None:
        self._arrays.pop(id(array), None)

    def drop(self, array: int) -> None:
        """Frees the array with the next call."""
        with self._lock:
            self._unused.append(array)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1

    def give_up(self, with_arrays: bool) -> bool:
        """Closes the session if no call is running and it has no arrays, and returns whether it did. With
        `with_arrays`, a session that has arrays is also closed, after they have been fetched."""
        if self._calls or (self._arrays and not with_arrays):
            return False
        for array in list(self._arrays.values()):
            array.move_here()
        self.close()
        return True

    def close(self) -> None:
        if self.ended is None:
            self._has_ended("it was closed")
            try:
                self._connection.call("CloseSession", session_id=self.id, timeout=5)
            except Error:
                pass  # The coordinator ends a session that is not held.
        self._place.close()

    def _has_ended(self, why: str) -> None:
        self.ended = self.ended or why
        self._end.set()

    def _why_ended(self, seconds: float) -> str | None:
        self._end.wait(seconds)
        return self.ended

    def _hold(self) -> None:
        """Holds the session until it ends. Calls HoldSession again after the coordinator was restarted."""
        lost_since: float | None = None
        while self.ended is None:
            why = "its coordinator released it"
            ended = False
            try:
                for status in self._connection.stream("HoldSession", session_id=self.id):
                    lost_since = None
                    why = status.reason or why
                    state = protos.enum_name("JobState", status.state)
                    ended = state in ENDED
                    self._waiting.update(state, status.reason)
            except Error as error:
                why = str(error)
                ended = error.code not in ("UNAVAILABLE", "CANCELLED")
            except ValueError:  # The channel was closed.
                ended = True
            lost_since = lost_since or time.monotonic()
            if ended or time.monotonic() - lost_since > PATIENCE_S:
                self._has_ended(why)
            self._end.wait(HOLD_AGAIN_S)
        self._waiting.stop()

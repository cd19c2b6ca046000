"""Sessions: devices that a client holds, and arrays that stay on them between calls."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from xlad import element_types, protos
from xlad.connection import CHUNK_BYTES, Connection, sha256
from xlad.errors import Error
from xlad.job import Axes, axes_text
from xlad.run import ENDED, PATIENCE_S
from xlad.session_place import Place, request_key
from xlad.waiting import Waiting

Tree = Any
HOLD_AGAIN_S = 0.2


class Session:
    """Holds the devices of one mesh until it is closed. Thread-safe."""

    def __init__(self, connection: Connection, axes: Axes) -> None:
        self._connection = connection
        self.ended: str | None = None  # Why the session has ended; None while it is open.
        self._end = threading.Event()
        self._unused: list[int] = []
        self._lock = threading.Lock()
        self._arrays: weakref.WeakSet[RemoteArray] = weakref.WeakSet()
        self._calls = 0
        self.devices = math.prod(axes.values())
        mesh = [{"name": name, "size": size} for name, size in axes.items()]
        name = f"session on {axes_text(axes)}"
        opened = connection.call("OpenSession", client_key=uuid.uuid4().hex, name=name, mesh=mesh)
        self.id = opened.session_id
        self._waiting = Waiting(f"{self.id} ({name})")
        self._place = Place(connection, self.id, self._why_ended)
        self._holder = threading.Thread(target=self._hold, name=f"xlad {self.id}", daemon=True)
        self._holder.start()

    def load(self, program: bytes, feeds: Sequence[int]) -> int:
        self._connection.put_blobs([program])
        try:
            loaded = self._connection.call("LoadProgram", session_id=self.id, timeout=None,
                                           program_blob=sha256(program), feeds=feeds)
        except Error as error:
            if error.code == "ABORTED":
                self._has_ended(str(error))
            raise
        return int(self._place.call("AddProgram", executable_digest=loaded.executable_digest, plans=loaded.plans,
                                    request_key=request_key()).program)

    def put(self, array: np.ndarray) -> int:
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
        """Calls a program. `arguments` are numbers of arrays on the workers, or numpy arrays."""
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
        return self._place.download("GetArray", lambda chunks: b"".join(chunk.data for chunk in chunks), array=array)

    def wait(self, array: int) -> None:
        self._place.download("GetArray", lambda chunks: next(chunks, None), array=array)

    def add(self, array: RemoteArray) -> None:
        self._arrays.add(array)

    def forget(self, array: RemoteArray) -> None:
        self._arrays.discard(array)

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
        """Closes the session if no call is running and no array is in use; `with_arrays` fetches the arrays first."""
        if self._calls or (self._arrays and not with_arrays):
            return False
        for array in list(self._arrays):
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
        """Holds the session, again when the coordinator returns after a restart."""
        lost_since: float | None = None
        while self.ended is None:
            why = "its coordinator let go of it"
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


class RemoteArray:
    """An array on the workers. np.asarray(), float() and int() fetch it. It is freed when no longer referenced."""

    def __init__(self, session: Session, number: int, dtype: np.dtype, shape: tuple[int, ...], key: Any = None) -> None:
        """If the array contains random keys as uint32 words, `key` is the implementation of the keys."""
        self.dtype = dtype
        self.shape = shape
        self._session = session
        self._number: int | None = number
        self._key = key
        self._here: np.ndarray | None = None
        session.add(self)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def get(self) -> Any:
        """Returns a numpy array, or JAX keys if the array has random keys."""
        array = self._here
        if array is None:
            data = self._session.get(self.number())
            array = np.frombuffer(data, self.dtype).reshape(self.shape)
        if self._key is None:
            return array
        from xlad import program

        return program.wrap_keys([array], [self._key])[0]

    def move_here(self) -> None:
        """Fetches the array before its session ends."""
        data = self._session.get(self.number())
        self._here = np.frombuffer(data, self.dtype).reshape(self.shape)

    def number(self, what: str = "the array") -> int:
        """Returns the number of the array. `what` names the array in errors."""
        if self._number is None:
            raise Error(f"{what} was donated to an earlier call, expected an array that exists: use what that call "
                        "returned, or do not donate it", "NOT_FOUND")
        if self._session.ended is not None:
            raise Error(f"{what} was lost with its session: {self._session.ended}", "ABORTED")
        return self._number

    def is_of(self, session: Session) -> bool:
        return self._session is session

    def donate(self) -> None:
        self._number = None
        self._session.forget(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.get(), dtype)

    def item(self) -> Any:
        return self.get().item()

    def block_until_ready(self) -> RemoteArray:
        """Waits like jax.block_until_ready until the array is computed. It cancels a fetch at its first bytes."""
        if self._here is None:
            self._session.wait(self.number())
        return self

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __repr__(self) -> str:
        return f"RemoteArray({element_types.shape_text(self.dtype, self.shape)})"

    def __del__(self) -> None:
        if getattr(self, "_number", None) is not None and self._session.ended is None:
            self._session.drop(self._number)  # type: ignore[arg-type]


def fetch(tree: Tree) -> Tree:
    """Returns the tree with every RemoteArray replaced by its contents."""
    from xlad.program import jax

    return jax.tree_util.tree_map(lambda leaf: leaf.get() if isinstance(leaf, RemoteArray) else leaf, tree)

"""Functions that are called on a cluster, and arrays that stay there between calls."""

from __future__ import annotations

import contextlib
import math
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from xlad import element_types, protos
from xlad.connection import CHUNK_BYTES, TRANSFER_S, Connection, sha256
from xlad.errors import Error
from xlad.job import Axes, axes_text
from xlad.waiting import Waiting

Tree = Any


class Session:
    """Holds the devices of one mesh until it is closed. Thread-safe."""

    def __init__(self, connection: Connection, axes: Axes) -> None:
        self._connection = connection
        self.ended: str | None = None  # Why, where it has.
        self._unused: list[int] = []
        self._lock = threading.Lock()
        self._arrays: weakref.WeakSet[RemoteArray] = weakref.WeakSet()
        self._calls = 0
        self.devices = math.prod(axes.values())
        mesh = [{"name": name, "size": size} for name, size in axes.items()]
        name = f"session on {axes_text(axes)}"
        opened = connection.call("OpenSession", client_key=uuid.uuid4().hex, name=name, mesh=mesh)
        self.id = opened.session_id
        self._status = connection.stream("HoldSession", session_id=self.id)
        self._waiting = Waiting(f"{self.id} ({name})")
        self._holder = threading.Thread(target=self._hold, name=f"xlad {self.id}", daemon=True)
        self._holder.start()

    def load(self, program: bytes, feeds: Sequence[int]) -> int:
        self._connection.put_blobs([program])
        loaded = self._call("LoadProgram", timeout=None, program_blob=sha256(program), feeds=feeds)
        return int(loaded.program)

    def put(self, array: np.ndarray) -> int:
        request = protos.METHODS["PutArray"].request
        row = element_types.of_dtype(array.dtype, "argument")
        view = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        first = request(session_id=self.id, shape={"element_type": row.number, "dims": array.shape},
                        chunk=bytes(view[:CHUNK_BYTES]))
        rest = (request(chunk=bytes(view[at : at + CHUNK_BYTES])) for at in range(CHUNK_BYTES, len(view), CHUNK_BYTES))
        return int(self._connection.upload("PutArray", (r for part in ([first], rest) for r in part)).array)

    def call(self, program: int, arguments: Sequence[int | np.ndarray], donated: Sequence[int]) -> list[int]:
        """`arguments`: numbers of arrays, or arrays themselves."""
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
        answer = self._call("CallProgram", timeout=TRANSFER_S, program=program, arguments=entries, free=free)
        return list(answer.results)

    def get(self, array: int) -> bytes:
        chunks = self._connection.stream("GetArray", session_id=self.id, array=array, timeout=TRANSFER_S)
        return b"".join(chunk.data for chunk in chunks)

    def add(self, array: RemoteArray) -> None:
        self._arrays.add(array)

    def forget(self, array: RemoteArray) -> None:
        self._arrays.discard(array)

    def drop(self, array: int) -> None:
        """Freed with the next call."""
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
        """Closes it where no call is under way and nobody refers to its arrays; with_arrays: these come here first."""
        if self._calls or (self._arrays and not with_arrays):
            return False
        for array in list(self._arrays):
            array.move_here()
        self.close()
        return True

    def close(self) -> None:
        if self.ended is None:
            self.ended = "it was closed"
            try:
                self._connection.call("CloseSession", session_id=self.id, timeout=5)
            except Error:
                pass  # It ends by itself once nobody holds it.

    def _call(self, method: str, **fields: Any) -> Any:
        try:
            return self._connection.call(method, session_id=self.id, **fields)
        except Error as error:
            if error.code == "ABORTED":
                self.ended = self.ended or str(error)
            raise

    def _hold(self) -> None:
        why = "its coordinator let go of it"
        try:
            for status in self._status:
                why = status.reason or why
                self._waiting.update(protos.enum_name("JobState", status.state), status.reason)
        except Error as error:
            why = str(error)
        except ValueError:  # The channel was closed.
            pass
        self.ended = self.ended or why
        self._waiting.stop()


class RemoteArray:
    """An array on the workers. np.asarray(), float() and int() fetch it; it is freed when nobody refers to it."""

    def __init__(self, session: Session, number: int, dtype: np.dtype, shape: tuple[int, ...], key: Any = None) -> None:
        """`key`: the implementation of random keys, whose words (uint32) these are."""
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

    def get(self) -> Any:
        """As a numpy array; random keys as keys of JAX."""
        array = self._here
        if array is None:
            data = self._session.get(self.number())
            array = np.frombuffer(data, self.dtype).reshape(self.shape)
        if self._key is None:
            return array
        from xlad import program

        return program.wrap_keys([array], [self._key])[0]

    def move_here(self) -> None:
        """Its session is about to go."""
        data = self._session.get(self.number())
        self._here = np.frombuffer(data, self.dtype).reshape(self.shape)

    def number(self) -> int:
        if self._number is None:
            raise Error("the array was donated to a call, expected one that is still there", "NOT_FOUND")
        if self._session.ended is not None:
            raise Error(f"the array is gone with its session: {self._session.ended}", "ABORTED")
        return self._number

    def is_of(self, session: Session) -> bool:
        return self._session is session

    def donate(self) -> None:
        self._number = None
        self._session.forget(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.get(), dtype)

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
    """The tree with every RemoteArray in it fetched."""
    import jax

    return jax.tree_util.tree_map(lambda leaf: leaf.get() if isinstance(leaf, RemoteArray) else leaf, tree)


class _Result(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]
    key: Any


class _Program(NamedTuple):
    number: int
    session: Session
    results: list[_Result]
    tree: Any  # Of the results.


class Jitted:
    """What Cluster.jit returns. Every new combination of trees, shapes and types is compiled, once."""

    def __init__(self, function: Callable[..., Any], session_for: Callable[[Axes], AbstractContextManager[Session]],
                 mesh: Any, in_shardings: Any, donate_argnums: int | Sequence[int]) -> None:
        from xlad import program

        if not callable(function):
            raise TypeError(f"found {function!r}, expected a function")
        self._function = function
        self._session_for = session_for
        self._place = program.placement(mesh, in_shardings)
        self._donated = (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums)
        self._programs: dict[Any, _Program] = {}
        self._names: dict[Any, list[str]] = {}  # By tree, of its leaves.
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *arguments: Tree) -> Tree:
        if any(not 0 <= i < len(arguments) for i in self._donated):
            raise ValueError(f"found donate_argnums={self._donated} and {len(arguments)} arguments")
        with self._session_for(self._place.axes) as session:
            return self._call(session, arguments)

    def _call(self, session: Session, arguments: Sequence[Tree]) -> Tree:
        import jax

        from xlad import program

        leaves, tree = jax.tree_util.tree_flatten(arguments)
        keys = [leaf._key if isinstance(leaf, RemoteArray) else None for leaf in leaves]
        if tree not in self._names:
            self._names[tree] = program.leaf_names(tuple(arguments), "")
        leaves, keys = self._on_host(leaves, keys, self._names[tree], session)
        loaded = self._program(session, leaves, keys, tree)
        donated = self._donated_leaves(arguments, session)
        numbers = [leaf.number() if isinstance(leaf, RemoteArray) else leaf for leaf in leaves]
        results = session.call(loaded.number, numbers, [leaf.number() for leaf in donated])
        for leaf in donated:
            leaf.donate()
        arrays = [RemoteArray(session, number, *result) for number, result in zip(results, loaded.results)]
        return jax.tree_util.tree_unflatten(loaded.tree, arrays)

    def _on_host(self, leaves: list[Any], keys: list[Any], names: list[str],
                 session: Session) -> tuple[list[Any], list[Any]]:
        """What is not in this session becomes numpy arrays."""
        from xlad import program

        leaves = [leaf.get() if isinstance(leaf, RemoteArray) and not leaf.is_of(session) else leaf for leaf in leaves]
        found = program.key_leaves(leaves)
        keys = [key or new for key, new in zip(keys, found)]
        leaves = [leaf if isinstance(leaf, RemoteArray) else program.to_array(leaf, f"argument {name}")
                  for name, leaf in zip(names, leaves)]
        return leaves, keys

    def _donated_leaves(self, arguments: Sequence[Tree], session: Session) -> list[RemoteArray]:
        import jax

        leaves = [leaf for i in self._donated for leaf in jax.tree_util.tree_leaves(arguments[i])]
        remote = [leaf for leaf in leaves if isinstance(leaf, RemoteArray) and leaf.is_of(session)]
        return list({id(leaf): leaf for leaf in remote}.values())

    def _program(self, session: Session, leaves: list[Any], keys: list[Any], tree: Any) -> _Program:
        shapes = tuple((np.dtype(leaf.dtype).name, tuple(leaf.shape), str(key)) for leaf, key in zip(leaves, keys))
        known = self._programs.get((tree, shapes))
        if known is None or known.session is not session:
            known = self._programs[tree, shapes] = self._build(session, leaves, keys, tree)
        return known

    def _build(self, session: Session, leaves: list[Any], keys: list[Any], tree: Any) -> _Program:
        import jax

        from xlad import program

        arguments = jax.tree_util.tree_unflatten(tree, leaves)
        names = [program.leaf_names(argument, f"argument {i}") for i, argument in enumerate(arguments)]
        specs = program.argument_specs(self._place, arguments, names, ())
        result_keys: list[Any] = []

        def flat(*words: Any) -> Any:
            given = program.wrap_keys(jax.tree_util.tree_leaves(words), keys)
            returned = self._function(*jax.tree_util.tree_unflatten(tree, given))
            result_keys[:] = program.key_leaves(returned)
            return program.unwrap_keys(returned)

        flat.__name__ = self.__name__
        program.name_arguments(flat, self._function, len(arguments))
        out = program.result_shapes(flat, arguments, self._place)
        feeds, out_specs = self._feeds(arguments, specs.arguments, out)
        lowered = program.lower(flat, arguments, self._place, specs, out_specs=out_specs, donate=self._donated)
        shapes, out_tree = jax.tree_util.tree_flatten(out)
        results = [_Result(np.dtype(s.dtype), tuple(s.shape), key) for s, key in zip(shapes, result_keys)]
        return _Program(session.load(lowered.proto, feeds), session, results, out_tree)

    def _feeds(self, arguments: Sequence[Tree], specs: Sequence[Tree], out: Tree) -> tuple[list[int], Tree]:
        """Parts of the result that look like a donated argument will be passed there again: same shardings, no copies.

        By result leaf the parameter; and the shardings of the results, None where they are free.
        """
        import jax

        like = lambda tree: (jax.tree_util.tree_structure(tree), [(s.shape, np.dtype(s.dtype))
                                                                  for s in jax.tree_util.tree_leaves(tree)])
        starts = np.cumsum([0, *(len(jax.tree_util.tree_leaves(argument)) for argument in arguments)])
        parts = list(out) if type(out) is tuple else [out]
        free = list(self._donated)
        feeds: list[int] = []
        shardings: list[Any] = []
        for part in parts:
            leaves = len(jax.tree_util.tree_leaves(part))
            match = next((i for i in free if leaves and like(arguments[i]) == like(part)), None)
            if match is None:
                feeds += [-1] * leaves
                shardings.append(None)
            else:
                free.remove(match)
                feeds += range(int(starts[match]), int(starts[match]) + leaves)
                shardings.append(specs[match])
        return feeds, tuple(shardings) if type(out) is tuple else shardings[0]

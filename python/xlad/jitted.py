"""Functions that run on a cluster."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from xlad import interrupts
from xlad.job import Axes
from xlad.session import RemoteArray, Session, Tree


class _Result(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]
    key: Any


class _Lowered(NamedTuple):
    program: bytes
    feeds: list[int]
    results: list[_Result]
    tree: Any  # The structure of the results.


class Jitted:
    """The result of Cluster.jit. Each new combination of trees, shapes and types is compiled once. Thread-safe."""

    def __init__(self, function: Callable[..., Any], session_for: Callable[[Axes], AbstractContextManager[Session]],
                 mesh: Any, in_shardings: Any, donate_argnums: int | Sequence[int],
                 static_argnums: int | Sequence[int]) -> None:
        from xlad import program

        if not callable(function):
            raise TypeError(f"found {function!r}, expected a function")
        self._function = function
        self._session_for = session_for
        self._place = program.placement(mesh, in_shardings)
        self._donated = (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums)
        self._static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
        if both := set(self._donated) & set(self._static):
            raise ValueError(f"found {sorted(both)} in donate_argnums and in static_argnums, expected them in one")
        self._lock = threading.Lock()
        self._lowered: dict[Any, _Lowered] = {}
        self._loaded: dict[Any, tuple[Session, int]] = {}  # Session and program number, by signature.
        self._names: dict[Any, list[str]] = {}  # The names of the leaves, by tree.
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *arguments: Tree, **named: Tree) -> Tree:
        if named:
            bound = inspect.signature(self._function).bind(*arguments, **named)
            if bound.kwargs:
                raise TypeError(f"{self.__name__}: found argument {next(iter(bound.kwargs))!r} by name only, expected "
                                "arguments that have a position")
            arguments = bound.args
        for what, numbers in {"donate_argnums": self._donated, "static_argnums": self._static}.items():
            if any(not 0 <= i < len(arguments) for i in numbers):
                raise ValueError(f"{self.__name__}: found {what}={numbers} and {len(arguments)} arguments")
        interrupts.check()
        with interrupts.put_off(), self._session_for(self._place.axes) as session:
            return self._call(session, arguments)

    def _call(self, session: Session, everything: Sequence[Tree]) -> Tree:
        import jax

        from xlad import program

        static = tuple((i, everything[i]) for i in self._static)
        positions = [i for i in range(len(everything)) if i not in self._static]
        arguments = [everything[i] for i in positions]
        leaves, tree = jax.tree_util.tree_flatten(tuple(arguments))
        keys = [leaf._key if isinstance(leaf, RemoteArray) else None for leaf in leaves]
        if tree not in self._names:
            self._names[tree] = [f"argument {i}{name}" for i, argument in zip(positions, arguments)
                                 for name in program.leaf_names(argument, "", ".")]
        names = self._names[tree]
        leaves, keys = self._on_host(leaves, keys, names, session)
        numbers = [leaf.number(f"{self.__name__}: {name} ({leaf!r})") if isinstance(leaf, RemoteArray) else leaf
                   for leaf, name in zip(leaves, names)]
        lowered, number = self._program(session, leaves, keys, tree, positions, static)
        donated = self._donated_leaves(everything, session)
        results = session.call(number, numbers, [leaf.number() for leaf in donated])
        for leaf in donated:
            leaf.donate()
        arrays = [RemoteArray(session, number, *result) for number, result in zip(results, lowered.results)]
        return jax.tree_util.tree_unflatten(lowered.tree, arrays)

    def _on_host(self, leaves: list[Any], keys: list[Any], names: list[str],
                 session: Session) -> tuple[list[Any], list[Any]]:
        """Replaces remote arrays of other sessions by numpy arrays."""
        from xlad import program

        leaves = [leaf.get() if isinstance(leaf, RemoteArray) and not leaf.is_of(session) else leaf for leaf in leaves]
        found = program.key_leaves(leaves)
        keys = [key or new for key, new in zip(keys, found)]
        leaves = [leaf if isinstance(leaf, RemoteArray) else program.to_array(leaf, f"{self.__name__}: {name}")
                  for name, leaf in zip(names, leaves)]
        return leaves, keys

    def _donated_leaves(self, arguments: Sequence[Tree], session: Session) -> list[RemoteArray]:
        import jax

        leaves = [leaf for i in self._donated for leaf in jax.tree_util.tree_leaves(arguments[i])]
        remote = [leaf for leaf in leaves if isinstance(leaf, RemoteArray) and leaf.is_of(session)]
        return list({id(leaf): leaf for leaf in remote}.values())

    def _program(self, session: Session, leaves: list[Any], keys: list[Any], tree: Any, positions: list[int],
                 static: tuple[tuple[int, Any], ...]) -> tuple[_Lowered, int]:
        """Lowers the function once and loads it once into each session."""
        shapes = tuple((np.dtype(leaf.dtype).name, tuple(leaf.shape), str(key)) for leaf, key in zip(leaves, keys))
        signature = (tree, shapes, static, tuple(type(value) for _, value in static))  # 1 and True are equal.
        try:
            hash(signature)
        except TypeError as error:
            raise TypeError(f"{self.__name__}: found static arguments {dict(static)!r} ({error}), expected values that "
                            "have a hash") from None
        with interrupts.let_through(), self._lock:
            if signature not in self._lowered:
                self._lowered[signature] = self._lower(leaves, keys, tree, positions, dict(static))
            lowered = self._lowered[signature]
            known, number = self._loaded.get(signature, (None, 0))
            if known is not session:
                number = session.load(lowered.program, lowered.feeds)
                self._loaded[signature] = session, number
            return lowered, number

    def _lower(self, leaves: list[Any], keys: list[Any], tree: Any, positions: list[int],
               static: dict[int, Any]) -> _Lowered:
        import jax

        from xlad import program

        arguments = jax.tree_util.tree_unflatten(tree, leaves)
        names = [program.leaf_names(argument, f"argument {i}") for i, argument in zip(positions, arguments)]
        specs = program.argument_specs(self._place, arguments, names, ())
        donated = [positions.index(i) for i in self._donated]
        result_keys: list[Any] = []

        def flat(*words: Any) -> Any:
            given = program.wrap_keys(jax.tree_util.tree_leaves(words), keys)
            by_position = {**static, **dict(zip(positions, jax.tree_util.tree_unflatten(tree, given)))}
            returned = self._function(*(by_position[i] for i in range(len(by_position))))
            result_keys[:] = program.key_leaves(returned)
            return program.unwrap_keys(returned)

        flat.__name__ = self.__name__
        program.name_arguments(flat, self._function, positions)
        out = program.result_shapes(flat, arguments, self._place, specs)
        feeds, out_specs = self._feeds(arguments, specs.arguments, out, donated)
        lowered = program.lower(flat, arguments, self._place, specs, out_specs=out_specs, donate=donated)
        shapes, out_tree = jax.tree_util.tree_flatten(out)
        results = [_Result(np.dtype(s.dtype), tuple(s.shape), key) for s, key in zip(shapes, result_keys)]
        return _Lowered(lowered.proto, feeds, results, out_tree)

    def _feeds(self, arguments: Sequence[Tree], specs: Sequence[Tree], out: Tree,
               donated: Sequence[int]) -> tuple[list[int], Tree]:
        """Matches results to donated arguments of the same shape and type. Both get one sharding: loops copy nothing.

        By result leaf the parameter; and the shardings of the results, None where they are free.
        """
        import jax

        like = lambda tree: (jax.tree_util.tree_structure(tree), [(s.shape, np.dtype(s.dtype))
                                                                  for s in jax.tree_util.tree_leaves(tree)])
        starts = np.cumsum([0, *(len(jax.tree_util.tree_leaves(argument)) for argument in arguments)])
        parts = list(out) if type(out) is tuple else [out]
        free = list(donated)
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


interrupts.WHOLE.add(Jitted.__call__.__code__)

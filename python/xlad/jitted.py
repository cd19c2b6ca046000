"""Functions that run on a cluster."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xlad import interrupts
from xlad.arguments import Binder, Call, apply
from xlad.job import Axes, axes_text
from xlad.lowered import Lowered
from xlad.remote_array import Operate, RemoteArray, tell_jax
from xlad.session import Loaded, Session
from xlad.trees import Tree

if TYPE_CHECKING:
    from xlad.shardings import Arguments


class Options(NamedTuple):
    """The arguments of Cluster.jit other than the function."""

    mesh: Any = None
    in_shardings: Any = None
    out_shardings: Any = None
    static_argnums: Any = ()
    static_argnames: Any = ()
    donate_argnums: Any = ()
    donate_argnames: Any = ()


class Host(NamedTuple):
    """What a jitted function uses of a cluster: the session of a mesh, and the operators of its results."""

    session_for: Callable[[Axes], AbstractContextManager[Session]]
    operate: Operate


class _Result(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]
    key: Any
    is_weak: bool


class _Compiled(NamedTuple):
    program: bytes
    feeds: list[int]
    results: list[_Result]
    tree: Any  # The structure of the results.


class _Given(NamedTuple):
    """The arguments of one call as leaves: arrays, or ShapeDtypeStructs."""

    call: Call
    leaves: list[Any]
    keys: list[Any]  # For each leaf, the implementation of its random keys, or None if it has no random keys.
    tree: Any
    names: list[str]

    def arguments(self, present: Sequence[Any]) -> Arguments:
        """`present` has the current PartitionSpec of each leaf, or None if the leaf is not split."""
        import jax

        from xlad import program, shardings

        trees = jax.tree_util.tree_unflatten(self.tree, self.leaves)
        rest = iter(present)
        known = [[next(rest) for _ in jax.tree_util.tree_leaves(tree)] for tree in trees]
        names = [program.leaf_names(tree, what) for what, tree in zip(self.call.names(), trees)]
        return shardings.Arguments(trees, names, self.call.slots, known, self.call.slot_count)

    def signature(self) -> Any:
        from xlad import program

        shapes = tuple([(leaf.dtype, leaf.shape, program.is_weak(leaf), key)
                        for leaf, key in zip(self.leaves, self.keys)])
        # The types of static values are included, because 1 == True.
        return self.tree, shapes, self.call.keys, self.call.static, tuple([type(v) for _, v in self.call.static])


_tracing = threading.local()  # `depth` is the number of jitted functions that this thread is tracing.


class Jitted:
    """The result of Cluster.jit. Each new combination of trees, shapes, types, static arguments and
    shardings of remote arrays is compiled once. Thread-safe."""

    def __init__(self, function: Callable[..., Any], host: Host, options: Options) -> None:
        from xlad import shardings

        if not callable(function):
            raise TypeError(f"found {function!r}, expected a function")
        tell_jax()
        self._function = function
        self._host = host
        self._place = shardings.placement(options.mesh, options.in_shardings, options.out_shardings)
        self._out_shardings = options.out_shardings
        self._binder = Binder(function, static_argnums=options.static_argnums, static_argnames=options.static_argnames,
                              donate_argnums=options.donate_argnums, donate_argnames=options.donate_argnames)
        self._lock = threading.Lock()
        self._lowered: dict[Any, _Compiled] = {}
        self._loaded: dict[Any, tuple[Session, Loaded, list[Any]]] = {}  # By signature, with the specs of the results.
        self._names: dict[Any, list[str]] = {}  # The names of the leaves, by tree.
        self._is_free: dict[Any, list[bool]] = {}  # By signature: for each leaf, whether in_shardings leaves it open.
        functools.update_wrapper(self, function, updated=())
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method can be jitted. The object is then the first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<{self.__name__}, jitted for a cluster, on mesh {axes_text(self._place.axes)}>"

    def __call__(self, *arguments: Tree, **named: Tree) -> Tree:
        call = self._binder.bind(arguments, named)
        if getattr(_tracing, "depth", 0) and _has_tracers(call.values):
            # Called by another jitted function: this function becomes a part of that program.
            return self._function(*arguments, **named)
        interrupts.check()
        with interrupts.put_off(), self._host.session_for(self._place.axes) as session:
            return self._call(session, call)

    def lower(self, *arguments: Tree, **named: Tree) -> Lowered:
        """Converts the function to a program for these arguments, which may be jax.ShapeDtypeStructs. Nothing is sent
        to the cluster before `.compile()`."""
        interrupts.check()
        given = self._given(self._binder.bind(arguments, named), None)
        present = self._present(given, None, given.signature())
        made, lowered = self._lower(given, present)

        def load() -> Loaded:
            with self._host.session_for(self._place.axes) as session:
                return session.load(made.program, made.feeds)

        return Lowered(self.__name__, self._place.axes, made.program, lowered.out, lowered.text, lowered.stablehlo,
                       load, self)

    def eval_shape(self, *arguments: Tree, **named: Tree) -> Tree:
        """Returns the shapes of the results, as jax.eval_shape does."""
        return self.lower(*arguments, **named).out_info

    def _call(self, session: Session, call: Call) -> Tree:
        import jax

        given = self._given(call, session)
        numbers = [leaf.number(f"{self.__name__}: {name} ({leaf!r})") if isinstance(leaf, RemoteArray) else leaf
                   for leaf, name in zip(given.leaves, given.names)]
        compiled, loaded, specs = self._program(session, given)
        donated = _donated_leaves(call, session)
        results = session.call(loaded.number, numbers, [leaf.number() for leaf in donated])
        for leaf in donated:
            leaf.donate()
        arrays = [RemoteArray(session, number, result.dtype, result.shape, key=result.key, spec=spec,
                              operate=self._host.operate, is_weak=result.is_weak)
                  for number, result, spec in zip(results, compiled.results, specs)]
        return jax.tree_util.tree_unflatten(compiled.tree, arrays)

    def _given(self, call: Call, session: Session | None) -> _Given:
        """Returns the leaves of a call, with remote arrays of other sessions replaced by numpy arrays."""
        import jax

        from xlad import program

        leaves, tree = jax.tree_util.tree_flatten(tuple(call.values))
        if (tree, call.keys) not in self._names:
            self._names[tree, call.keys] = [f"{what}{name}" for what, value in zip(call.names(), call.values)
                                            for name in program.leaf_names(value, "", ".")]
        names = self._names[tree, call.keys]
        stays = lambda leaf: (isinstance(leaf, RemoteArray) and (session is None or leaf.is_of(session))) or (
            session is None and isinstance(leaf, jax.ShapeDtypeStruct))
        found = [leaf.get() if isinstance(leaf, RemoteArray) and not stays(leaf) else leaf for leaf in leaves]
        keys = [leaf._key if isinstance(leaf, RemoteArray) else key
                for leaf, key in zip(found, program.key_leaves(found))]
        found = [program.words(leaf) if stays(leaf) else program.to_array(leaf, f"{self.__name__}: {name}")
                 for name, leaf in zip(names, found)]
        return _Given(call, found, keys, tree, names)

    def _present(self, given: _Given, session: Session | None, signature: Any) -> tuple[Any, ...]:
        """Returns the current PartitionSpec of each leaf, or None if in_shardings determines its sharding or it is not
        split."""
        from xlad import shardings

        found = [leaf._spec if isinstance(leaf, RemoteArray) and (
                     leaf.is_of(session) if session is not None else leaf._session.axes == self._place.axes) else None
                 for leaf in given.leaves]
        if not any([spec is not None for spec in found]):
            return tuple(found)
        if signature not in self._is_free:
            wanted = shardings.wanted_specs(self._place, given.arguments([None] * len(found)))
            self._is_free[signature] = [spec is None for of_argument in wanted for spec in of_argument]
        return tuple([spec if is_free else None for spec, is_free in zip(found, self._is_free[signature])])

    def _program(self, session: Session, given: _Given) -> tuple[_Compiled, Loaded, list[Any]]:
        """Lowers the function if its signature is new, and loads it if it was last loaded into another session."""
        from xlad import shardings

        signature = given.signature()
        try:
            hash(given.call.static)
        except TypeError as error:
            raise TypeError(f"{self.__name__}: found static arguments {dict(given.call.static)!r} ({error}), expected "
                            "values that have a hash") from None
        present = self._present(given, session, signature)
        signature = signature, present
        with interrupts.let_through(), self._lock:
            if signature not in self._lowered:
                self._lowered[signature] = self._lower(given, present)[0]
            compiled = self._lowered[signature]
            known = self._loaded.get(signature)
            if known is None or known[0] is not session:
                loaded = session.load(compiled.program, compiled.feeds)
                specs = [shardings.spec_of_boxes(session.axes, result.shape, boxes) or None
                         for result, boxes in zip(compiled.results, loaded.results)]
                known = self._loaded[signature] = session, loaded, specs
            return compiled, known[1], known[2]

    def _lower(self, given: _Given, present: Sequence[Any]) -> tuple[_Compiled, Any]:
        import jax

        from xlad import program, shardings

        call = given.call
        described = given.arguments(present)
        arguments = described.trees
        specs = shardings.argument_specs(self._place, described, ())
        result_keys: list[Any] = []

        def flat(*words: Any) -> Any:
            values = program.wrap_keys(jax.tree_util.tree_leaves(words), given.keys)
            _tracing.depth = getattr(_tracing, "depth", 0) + 1
            try:
                returned = apply(self._function, call.keys, jax.tree_util.tree_unflatten(given.tree, values),
                                 dict(call.static))
            finally:
                _tracing.depth -= 1
            result_keys[:] = program.key_leaves(returned)
            return program.unwrap_keys(returned)

        flat.__name__ = self.__name__
        program.name_arguments(flat, self._function, call.keys)
        out = program.result_shapes(flat, arguments, self._place, specs)
        feeds, out_specs = self._result_specs(arguments, specs.arguments, out, call.donated)
        lowered = program.lower(flat, arguments, self._place, specs, out_specs=out_specs, donate=call.donated)
        shapes, out_tree = jax.tree_util.tree_flatten(out)
        results = [_Result(np.dtype(s.dtype), tuple(s.shape), key, program.is_weak(s))
                   for s, key in zip(shapes, result_keys)]
        return _Compiled(lowered.proto, feeds, results, out_tree), lowered

    def _result_specs(self, arguments: Sequence[Tree], specs: Sequence[Tree], out: Tree,
                      donated: Sequence[int]) -> tuple[list[int], Tree]:
        """Returns two things for each leaf of the result: the parameter that it feeds (-1 for none), and its sharding
        (None if neither out_shardings nor a donated argument determines it).

        Results are matched to donated arguments of the same shapes and types. A result gets the sharding of its match,
        so that a loop that passes the result as the next argument does not copy it.
        """
        import jax

        from xlad import program, shardings

        names = program.leaf_names(out, "result")
        given = shardings.spread(self._place.axes, self._out_shardings, out, names, "out_shardings")
        starts = np.cumsum([0, *(len(jax.tree_util.tree_leaves(argument)) for argument in arguments)])
        is_spec = lambda x: isinstance(x, shardings.P)
        parts = list(out) if type(out) is tuple else [out]
        free = list(donated)
        feeds: list[int] = []
        found: list[Any] = []
        for part in parts:
            count = len(jax.tree_util.tree_leaves(part))
            wanted = given[len(found) : len(found) + count]
            match = next((i for i in free if count and _alike(arguments[i], part)), None)
            of_match = [] if match is None else jax.tree_util.tree_leaves(specs[match], is_leaf=is_spec)
            if match is None or any(spec not in (None, other) for spec, other in zip(wanted, of_match)):
                feeds += [-1] * count
                found += wanted
            else:
                free.remove(match)
                feeds += range(int(starts[match]), int(starts[match]) + count)
                found += of_match
        return feeds, jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(out), found)


def _alike(one: Tree, other: Tree) -> bool:
    """Whether two trees have the same structure, and their leaves the same shapes and types."""
    import jax

    like = lambda tree: (jax.tree_util.tree_structure(tree), [(tuple(s.shape), np.dtype(s.dtype))
                                                              for s in jax.tree_util.tree_leaves(tree)])
    return bool(like(one) == like(other))


def _has_tracers(values: list[Tree]) -> bool:
    import jax

    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(values))


def _donated_leaves(call: Call, session: Session) -> list[RemoteArray]:
    import jax

    leaves = [leaf for i in call.donated for leaf in jax.tree_util.tree_leaves(call.values[i])]
    remote = [leaf for leaf in leaves if isinstance(leaf, RemoteArray) and leaf.is_of(session)]
    return list({id(leaf): leaf for leaf in remote}.values())


interrupts.WHOLE.add(Jitted.__call__.__code__)

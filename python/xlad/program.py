"""Converts JAX functions to HLO programs. Importing this module imports jax, so other modules import it only when they
use it."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import site
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

try:
    import jax

    from xlad import callbacks
except ModuleNotFoundError:
    raise ImportError("found no jax, which exporting, training and jitting functions require: "
                      "pip install 'jax>=0.10.2'") from None
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from xlad.job import axes_text
from xlad.shardings import Placement, Specs
from xlad.trees import Tree, key_text, plain

try:
    from jax._src import source_info_util  # Not public. Without it, source lines may be those of libraries.
except ImportError:
    source_info_util = None  # type: ignore[assignment]


class KeyLeaf(NamedTuple):
    """A leaf with random keys. The user sees JAX's key type; programs and files contain the uint32 words of the
    keys."""

    impl: Any


def leaf_names(tree: Tree, whole: str, before: str = "") -> list[str]:
    """Returns the name of each leaf: its path, as in "layers.0.w", prefixed with `before`. If the tree is a single
    leaf, its name is `whole`. All names are different.
    """
    names: dict[str, None] = {}
    for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = base = before + ".".join(map(key_text, path)) if path else whole
        copies = 1
        while name in names:
            copies += 1
            name = f"{base}~{copies}"
        names[name] = None
    return list(names)


def is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


class WeakArray(np.ndarray):
    """An array of a weak type: the result of an operation with it has the type of the other operand, as in JAX."""

    weak_type = True


def is_weak(leaf: Any) -> bool:
    """Whether jit gives the leaf a weak type, as it does to numbers of Python."""
    is_number = isinstance(leaf, (int, float, complex)) and not isinstance(leaf, (bool, np.generic))
    return is_number or bool(getattr(leaf, "weak_type", False))


_INSTEAD = (" (bind other values with functools.partial, name them in static_argnums of jit, or separate them from the "
            "arrays, as equinox.partition does)")
_KINDS = {"O": "objects", "U": "text", "S": "bytes", "M": "dates", "m": "time differences"}


def to_array(leaf: Any, place: str, instead: str = _INSTEAD) -> np.ndarray:
    """Returns the leaf as jit sees it: with a 32-bit type unless 64-bit types are enabled in JAX, random keys as words,
    and a leaf of a weak type as a WeakArray. `instead` is the advice at the end of an error about a value that is not
    numeric."""
    if is_key(leaf):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.core.Tracer):
        raise TypeError(f"{place}: found a value that JAX is tracing, expected an array: functions of a cluster cannot "
                        "be called inside jit, grad, vmap or scan; use these inside the function")
    if callable(leaf) or isinstance(leaf, (str, bytes)):
        raise TypeError(f"{place}: found {leaf!r}, expected an array or a number{instead}")
    if isinstance(leaf, int):
        limits = np.iinfo(jax.dtypes.canonicalize_dtype(int))
        if not limits.min <= leaf <= limits.max:
            raise OverflowError(f"{place}: found {leaf}, expected an integer from {limits.min} to {limits.max}: JAX "
                                f"converts integers of Python to {limits.dtype}")
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(f"{place}: found a masked array, expected an array without a mask, such as array.filled(0)")
    array = np.asarray(leaf)
    if array.dtype.kind in _KINDS:
        if hasattr(leaf, "dtype"):
            kind = _KINDS[array.dtype.kind]
            raise TypeError(f"{place}: found an array of {kind} ({array.dtype}), expected numbers{instead}")
        raise TypeError(f"{place}: found {type(leaf).__name__} {leaf!r}, expected an array or a number{instead}")
    native = array.dtype.newbyteorder("=")  # Files of other machines may have the other byte order.
    array = array.astype(jax.dtypes.canonicalize_dtype(native), copy=False)
    return array.view(WeakArray) if is_weak(leaf) else array


def words(leaf: Any) -> Any:
    """Returns the struct of the uint32 words if the leaf is a ShapeDtypeStruct of random keys, otherwise the leaf."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
    return leaf


def key_leaves(tree: Tree) -> list[KeyLeaf | None]:
    impl = lambda leaf: leaf.dtype._impl.name if isinstance(leaf, jax.ShapeDtypeStruct) else jax.random.key_impl(leaf)
    return [KeyLeaf(impl(leaf)) if is_key(leaf) else None for leaf in jax.tree_util.tree_leaves(tree)]


def wrap_keys(leaves: Sequence[Any], keys: Sequence[KeyLeaf | None]) -> list[Any]:
    return [leaf if key is None else jax.random.wrap_key_data(leaf, impl=key.impl) for leaf, key in zip(leaves, keys)]


def unwrap_keys(tree: Tree) -> Tree:
    return jax.tree_util.tree_map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, tree)


def name_arguments(wrapper: Any, function: Callable[..., Any], keys: Sequence[int | str]) -> None:
    """Copies the function's argument names and source position to the wrapper, because programs and messages show them.
    `keys` are positions or names of arguments."""
    with contextlib.suppress(TypeError, ValueError, IndexError, KeyError):
        given = inspect.signature(function).parameters
        parameters = [list(given.values())[key] if isinstance(key, int) else given[key] for key in keys]
        wrapper.__signature__ = inspect.Signature([
            p.replace(kind=inspect.Parameter.POSITIONAL_ONLY, default=inspect.Parameter.empty) for p in parameters])
        if (inner := _innermost(function)) is not None:
            wrapper.__wrapped__ = inner


def _innermost(function: Any) -> Any:
    """Returns the Python function that a partial function, a method or a decorated function calls."""
    while not inspect.isfunction(function):
        for name in ("func", "__func__", "__wrapped__", "__call__"):
            if (inner := getattr(function, name, None)) is not None and inner is not function:
                function = inner
                break
        else:
            return None
        if inspect.isbuiltin(function) or type(function).__name__ == "method-wrapper":
            return None
    return inspect.unwrap(function)


class Lowered(NamedTuple):
    text: str
    proto: bytes
    out: Tree  # ShapeDtypeStructs
    stablehlo: Callable[[], str]


def _structs(arguments: Sequence[Tree], mesh: AbstractMesh | None, specs: Specs) -> Tree:
    """Returns the types of the arguments, which may be weak, in trees like those of `plain`, with shardings on meshes
    with explicit axes."""
    typed = mesh if mesh is not None and AxisType.Explicit in mesh.axis_types else None
    leaves, treedef = jax.tree_util.tree_flatten(tuple(plain(argument) for argument in arguments))
    shardings = [NamedSharding(typed, spec) if typed is not None else None
                 for spec in jax.tree_util.tree_leaves(specs.arguments, is_leaf=lambda x: isinstance(x, P))]
    return jax.tree_util.tree_unflatten(treedef, [
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=is_weak(leaf))
        for leaf, sharding in zip(leaves, shardings)])


# Advice for errors of JAX whose own advice does not apply to functions of a cluster, by words of the error.
_ADVICE = {
    "unbound axis name": "xlad: outside of jax.shard_map, a function computes on whole arrays: it has no axes, and a "
                         "mean over the batch needs no pmean. Inside, expected the name of an axis of the mesh.",
    "_internal_pmap_axis_name": "xlad: a function of a cluster cannot call pmap. Write it for the whole batch, for "
                                "example with jax.vmap, and split the batch with in_shardings.",
    "requires a non-empty mesh in context": "xlad: the mesh is the argument `mesh` of jit, train or export.",
}


@contextlib.contextmanager
def _tracing(function: Callable[..., Any]) -> Iterator[None]:
    """A context in which JAX traces the function. Traces of equal arguments are made once. Errors get advice."""
    with _sources_of(function):
        try:
            yield
        except Exception as error:
            for words, advice in _ADVICE.items():
                if words in str(error):
                    error.add_note(advice)
            raise


def result_shapes(function: Callable[..., Any], arguments: Sequence[Tree], place: Placement, specs: Specs) -> Tree:
    """Returns the shapes and types of the results as a tree of ShapeDtypeStructs."""
    mesh = _divisible_mesh(place, specs)
    with _tracing(function), jax.sharding.use_abstract_mesh(mesh) if mesh is not None else contextlib.nullcontext():
        return jax.eval_shape(function, *_structs(arguments, mesh, specs))


def _divisible_mesh(place: Placement, specs: Specs) -> AbstractMesh | None:
    """Returns a mesh on which all sizes are divisible, because JAX requires this for arguments. The coordinator does
    not require it, and replaces the sizes of the axes. Returns None for one device."""
    mesh = place.mesh
    if mesh is None or specs.first_uneven is None:
        return mesh
    return AbstractMesh((1,) * len(place.axes), mesh.axis_names, axis_types=mesh.axis_types)


def _without_module_id(proto: bytes) -> bytes:
    """Removes HloModuleProto.id, a counter of the process, so that equal programs are equal bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = proto[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    kept = []
    while at < len(proto):
        start = at
        field, wire = divmod(varint(), 8)
        if wire == 0:
            varint()
        else:
            size = {1: 8, 5: 4}[wire] if wire != 2 else varint()
            at += size
        if field != 5:
            kept.append(proto[start:at])
    return b"".join(kept)


def lower(function: Callable[..., Any], arguments: Sequence[Tree], place: Placement, specs: Specs, *,
          out_specs: Tree = None, donate: Sequence[int] = ()) -> Lowered:
    """Returns the function's HLO with global shapes and annotations. The mesh is abstract: no devices are needed."""
    options: dict[str, Any] = {"donate_argnums": tuple(donate), "keep_unused": True}
    is_spec = lambda x: isinstance(x, P)
    mesh = _divisible_mesh(place, specs)
    with contextlib.ExitStack() as stack:
        if mesh is not None:
            on_mesh = lambda tree: jax.tree_util.tree_map(
                lambda spec: NamedSharding(mesh, spec), tree, is_leaf=is_spec)
            options["in_shardings"] = on_mesh(specs.arguments)
            if out_specs is not None:
                options["out_shardings"] = on_mesh(out_specs)
            stack.enter_context(jax.sharding.use_abstract_mesh(mesh))
        stack.enter_context(_tracing(function))
        traced = jax.jit(function, **options).trace(*_structs(arguments, mesh, specs))
        if specs.first_uneven is not None:
            callbacks.refuse_shard_map(traced.jaxpr, f"{specs.first_uneven} on mesh {axes_text(place.axes)}")
        more = stack.enter_context(callbacks.without_errors(callbacks.refuse(traced.jaxpr)))
        lowered = traced.lower(lowering_platforms=("cpu",), **more)
        program = lowered.compiler_ir("hlo")
    # This printer keeps source lines, which as_hlo_text omits.
    text = program.get_hlo_module().to_string()
    callbacks.refuse_lowered(text)
    if mesh is not None and "sdy.mesh<" not in text and not jax.tree_util.tree_leaves(out_specs, is_leaf=is_spec):
        # The program has no arguments and no constraints that name a mesh.
        return lower(function, arguments, place, specs, out_specs=P(), donate=donate)
    return Lowered(text, _without_module_id(program.as_serialized_hlo_module_proto()), traced.out_info,
                   lowered.as_text)


_PACKAGES = {os.path.dirname(os.path.abspath(__file__)), *site.getsitepackages(), site.getusersitepackages(),
             sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
_sources_lock = threading.Lock()
_sources_users = 0
_sources_before: tuple[Any, list[str]] = (None, [])


@contextlib.contextmanager
def _sources_of(function: Callable[..., Any]) -> Iterator[None]:
    """Makes instructions refer to the user's source lines: an instruction that a library creates gets the line that
    calls the library. Paths are relative to the working directory, so that messages are the same on every machine."""
    global _sources_before, _sources_users
    name = "jax_hlo_source_file_canonicalization_regex"
    file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "")
    with _sources_lock:
        _sources_users += 1
        if _sources_users == 1:
            _sources_before = getattr(jax.config, name), list(_excluded())
            jax.config.update(name, re.escape(os.getcwd() + os.sep))
            _exclude([*_sources_before[1], *(path + os.sep for path in _PACKAGES if not file.startswith(path))])
    try:
        yield
    finally:
        with _sources_lock:
            _sources_users -= 1
            if _sources_users == 0:
                jax.config.update(name, _sources_before[0])
                _exclude(_sources_before[1])


def _excluded() -> list[str]:
    return getattr(source_info_util, "_exclude_paths", [])


def _exclude(paths: list[str]) -> None:
    """Sets the folders whose files are not the user's. Has no effect in versions of JAX without this list: source lines
    may then be those of libraries."""
    with contextlib.suppress(AttributeError):
        source_info_util._exclude_paths[:] = paths
        source_info_util._exclude_path_regex.cache_clear()
        source_info_util.is_user_filename.cache_clear()
        source_info_util.user_frame.cache_clear()

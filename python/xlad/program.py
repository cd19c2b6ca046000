"""Converts JAX functions to HLO programs. The only module that needs jax, which it imports when it is used."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

try:
    import jax
except ModuleNotFoundError:
    raise ImportError("found no jax, which exporting, training and jitting functions require: "
                      "pip install 'jax>=0.10.2'") from None
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from xlad.job import Axes, parse_axes

Tree = Any


class KeyLeaf(NamedTuple):
    """A leaf that is a typed random key for the user, and its words (uint32) in programs and files."""

    impl: Any


def leaf_names(tree: Tree, whole: str, before: str = "") -> list[str]:
    """"layers.0.w": the path of each leaf, prefixed with `before`; `whole` if the tree is one leaf. Names are
    unlike each other.
    """
    names: dict[str, None] = {}
    for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
        parts = (str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path)
        name = base = before + ".".join(parts) if path else whole
        copies = 1
        while name in names:
            copies += 1
            name = f"{base}~{copies}"
        names[name] = None
    return list(names)


def is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


_INSTEAD = " (bind other values with functools.partial, or name them in static_argnums of jit)"


def to_array(leaf: Any, place: str) -> np.ndarray:
    """Returns the array that jit would see: 32-bit types unless JAX enables 64-bit ones; words of random keys."""
    if is_key(leaf):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.core.Tracer):
        raise TypeError(f"{place}: found a value that JAX is tracing, expected an array: functions of a cluster cannot "
                        "be called inside jit, grad, vmap or scan; put those inside the function")
    if callable(leaf) or isinstance(leaf, (str, bytes)):
        raise TypeError(f"{place}: found {leaf!r}, expected an array or a number{_INSTEAD}")
    array = np.asarray(leaf)
    if array.dtype.kind in "OUSMm":
        raise TypeError(f"{place}: found {type(leaf).__name__} {leaf!r}, expected an array or a number{_INSTEAD}")
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def key_leaves(tree: Tree) -> list[KeyLeaf | None]:
    return [KeyLeaf(jax.random.key_impl(leaf)) if is_key(leaf) else None for leaf in jax.tree_util.tree_leaves(tree)]


def wrap_keys(leaves: Sequence[Any], keys: Sequence[KeyLeaf | None]) -> list[Any]:
    return [leaf if key is None else jax.random.wrap_key_data(leaf, impl=key.impl) for leaf, key in zip(leaves, keys)]


def unwrap_keys(tree: Tree) -> Tree:
    return jax.tree_util.tree_map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, tree)


class Placement(NamedTuple):
    """A mesh and the shardings of the arguments as the caller wrote them."""

    axes: Axes
    mesh: AbstractMesh | None  # None: one device.
    shardings: Any


def placement(mesh: Any, in_shardings: Any) -> Placement:
    """`mesh`: {"dp": 4}, "dp=4", a mesh of JAX, or None: that of the first NamedSharding, otherwise one device."""
    if mesh is None:
        is_leaf = lambda x: isinstance(x, NamedSharding)
        leaves = jax.tree_util.tree_leaves(in_shardings, is_leaf=is_leaf)
        mesh = next((leaf.mesh for leaf in leaves if isinstance(leaf, NamedSharding)), {})
    if isinstance(mesh, str):
        mesh = parse_axes(mesh)
    if isinstance(mesh, Mesh):
        mesh = mesh.abstract_mesh
    if isinstance(mesh, Mapping):
        for name, size in mesh.items():
            if not isinstance(name, str) or type(size) is not int or size < 1:
                raise ValueError(f"found mesh {dict(mesh)!r}, expected axes and their sizes, as {{'dp': 4, 'tp': 2}}")
        mesh = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    if not isinstance(mesh, AbstractMesh):
        raise TypeError(f"found mesh {mesh!r}, expected {{'dp': 4, 'tp': 2}}, 'dp=4,tp=2', or a mesh of JAX")
    axes = dict(zip(mesh.axis_names, mesh.axis_sizes))
    return Placement(axes, mesh if axes else None, in_shardings)


class Specs(NamedTuple):
    """Returns a PartitionSpec for each leaf of each argument, and whether all sizes are divisible by their axes."""

    arguments: tuple[Tree, ...]
    even: bool


def argument_specs(place: Placement, arguments: Sequence[Tree], names: Sequence[list[str]],
                   known_axes: Collection[str]) -> Specs:
    """in_shardings is None, one sharding for everything, or a tuple with an entry for each argument (or for the first
    ones): a sharding, or a tree of them that may stop above the leaves. A sharding is a PartitionSpec, a
    NamedSharding, a function from a leaf's name to a PartitionSpec, or None: not split. Axes of `known_axes` that the
    mesh lacks split nothing.
    """
    entries = place.shardings
    if not isinstance(entries, (tuple, list)) or isinstance(entries, P):
        entries = (entries,) * len(arguments)
    if len(entries) > len(arguments):
        raise ValueError(f"found in_shardings for {len(entries)} arguments, expected at most {len(arguments)}")
    entries = (*entries, *(None,) * (len(arguments) - len(entries)))
    specs = []
    even = True
    for i, (entry, argument, leaves) in enumerate(zip(entries, arguments, names)):
        found = _spread(entry, argument, leaves, f"in_shardings[{i}]")
        shapes = [np.shape(leaf) for leaf in jax.tree_util.tree_leaves(argument)]
        found = [_on_mesh(place.axes, spec, leaf, shape, known_axes)
                 for spec, leaf, shape in zip(found, leaves, shapes)]
        even = even and all(_is_even(place.axes, spec, shape) for spec, shape in zip(found, shapes))
        specs.append(jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(argument), found))
    return Specs(tuple(specs), even)


def _spread(entry: Any, argument: Tree, names: list[str], where: str) -> list[P]:
    """Returns the PartitionSpecs of the argument's leaves; the tree `entry` may be a prefix of the argument's tree."""
    is_sharding = lambda x: x is None or isinstance(x, (P, NamedSharding)) or callable(x)
    treedef = jax.tree_util.tree_structure(argument)
    found = [P()] * len(names)

    def put(sharding: Any, part: Tree) -> None:
        for i in jax.tree_util.tree_leaves(part):
            spec = sharding.spec if isinstance(sharding, NamedSharding) else sharding
            spec = spec(names[i]) if callable(spec) and not isinstance(spec, P) else spec
            if spec is not None and not isinstance(spec, P):
                raise TypeError(f"found {spec!r} for {names[i]}, expected a PartitionSpec, a NamedSharding, a function "
                                "or None")
            found[i] = P() if spec is None else spec

    numbered = jax.tree_util.tree_unflatten(treedef, list(range(len(names))))
    try:
        jax.tree_util.tree_map(put, entry, numbered, is_leaf=is_sharding)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{where}: {str(error).replace('tree_map tree', where)}") from None
    return found


def _axes_of(entry: Any) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else tuple(entry or ())


def _on_mesh(axes: Axes, spec: P, name: str, shape: tuple[int, ...], known_axes: Collection[str]) -> P:
    for axis in (axis for entry in spec for axis in _axes_of(entry)):
        if axis not in axes and axis not in known_axes:
            raise ValueError(f"found axis {axis!r} in {spec} for {name}, expected one of {', '.join(axes) or 'none'}")
    dims = [tuple(axis for axis in _axes_of(entry) if axis in axes) or None for entry in spec]
    used = [axis for dim in dims for axis in dim or ()]
    if twice := [axis for axis in axes if used.count(axis) > 1]:
        raise ValueError(f"found axis {twice[0]!r} twice in {spec} for {name}, expected each axis once")
    if any(dims[len(shape):]):
        raise ValueError(f"found {spec} for {name} of shape {list(shape)}, expected at most {len(shape)} entries")
    return P(*dims[: len(shape)])


def _is_even(axes: Axes, spec: P, shape: tuple[int, ...]) -> bool:
    return all(size % math.prod(axes[axis] for axis in _axes_of(entry)) == 0 for size, entry in zip(shape, spec))


def positional(function: Callable[..., Any], default: int) -> int:
    """Returns the number of positional arguments of the function, or `default` if it has no signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return default
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind == inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return default
    needed = sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)
    allowed = sum(p.kind in kinds for p in parameters)
    return min(max(default, needed), allowed)


def name_arguments(wrapper: Any, function: Callable[..., Any], positions: Sequence[int]) -> None:
    """Names the wrapper's arguments like those of the function, because programs and messages show these names."""
    with contextlib.suppress(TypeError, ValueError, IndexError):
        given = list(inspect.signature(function).parameters.values())
        parameters = [given[i] for i in positions]
        wrapper.__signature__ = inspect.Signature([
            p.replace(kind=inspect.Parameter.POSITIONAL_ONLY, default=inspect.Parameter.empty) for p in parameters])


class Lowered(NamedTuple):
    text: str
    proto: bytes
    out: Tree  # ShapeDtypeStructs


def _structs(arguments: Sequence[Tree], mesh: AbstractMesh | None, specs: Specs) -> Tree:
    """Adds shardings to the types on meshes with explicit axes."""
    typed = mesh if mesh is not None and AxisType.Explicit in mesh.axis_types else None
    leaves, treedef = jax.tree_util.tree_flatten(tuple(arguments))
    shardings = [NamedSharding(typed, spec) if typed is not None else None
                 for spec in jax.tree_util.tree_leaves(specs.arguments, is_leaf=lambda x: isinstance(x, P))]
    return jax.tree_util.tree_unflatten(treedef, [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
                                                  for leaf, sharding in zip(leaves, shardings)])


def result_shapes(function: Callable[..., Any], arguments: Sequence[Tree], place: Placement, specs: Specs) -> Tree:
    """ShapeDtypeStructs."""
    mesh = _mesh_of_doors(place, specs)
    with jax.sharding.use_abstract_mesh(mesh) if mesh is not None else contextlib.nullcontext():
        return jax.eval_shape(function, *_structs(arguments, mesh, specs))


def _mesh_of_doors(place: Placement, specs: Specs) -> AbstractMesh | None:
    """Returns a mesh on which all sizes are divisible, which JAX requires for arguments. The coordinator does not, and
    replaces the sizes of the axes."""
    mesh = place.mesh
    if mesh is None or specs.even:
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
    mesh = _mesh_of_doors(place, specs)
    with contextlib.ExitStack() as stack:
        if mesh is not None:
            on_mesh = lambda tree: jax.tree_util.tree_map(
                lambda spec: NamedSharding(mesh, spec), tree, is_leaf=is_spec)
            options["in_shardings"] = on_mesh(specs.arguments)
            if out_specs is not None:
                options["out_shardings"] = on_mesh(out_specs)
            stack.enter_context(jax.sharding.use_abstract_mesh(mesh))
        stack.enter_context(_sources_from_here())
        traced = jax.jit(function, **options).trace(*_structs(arguments, mesh, specs))
        program = traced.lower(lowering_platforms=("cpu",)).compiler_ir("hlo")
    # This printer keeps source lines, which as_hlo_text omits.
    text = program.get_hlo_module().to_string()
    if mesh is not None and "sdy.mesh<" not in text and not jax.tree_util.tree_leaves(out_specs, is_leaf=is_spec):
        # The program has no arguments and no constraints that name a mesh.
        return lower(function, arguments, place, specs, out_specs=P(), donate=donate)
    if "python_cpu_callback" in text:
        raise TypeError("found calls back into Python (jax.debug.print, pure_callback, io_callback), expected none: "
                        "workers run no Python; return what is to be seen as a metric")
    return Lowered(text, _without_module_id(program.as_serialized_hlo_module_proto()), traced.out_info)


@contextlib.contextmanager
def _sources_from_here() -> Any:
    """Makes paths of source files relative to the working directory, so that messages are the same on every machine."""
    name = "jax_hlo_source_file_canonicalization_regex"
    before = getattr(jax.config, name)
    jax.config.update(name, re.escape(os.getcwd() + os.sep))
    try:
        yield
    finally:
        jax.config.update(name, before)

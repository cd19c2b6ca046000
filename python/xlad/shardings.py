"""Meshes, and how arguments and results are split over them: in_shardings and out_shardings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from xlad.arguments import positional
from xlad.job import Axes, as_int, parse_axes
from xlad.trees import Tree, label, plain


class Placement(NamedTuple):
    """A mesh and the shardings of the arguments as the caller wrote them."""

    axes: Axes
    mesh: AbstractMesh | None  # None if there is only one device.
    shardings: Any


def abstract_mesh(axes: Mapping[str, int]) -> AbstractMesh:
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def placement(mesh: Any, *shardings: Any) -> Placement:
    """`mesh` is {"dp": 4}, "dp=4", a mesh of JAX, or None. If it is None, the mesh is that of the first NamedSharding
    in `shardings`, otherwise that of jax.set_mesh or jax.sharding.use_abstract_mesh, otherwise one device. The first of
    `shardings` is in_shardings.
    """
    if mesh is None:
        is_leaf = lambda x: isinstance(x, NamedSharding)
        leaves = jax.tree_util.tree_leaves(shardings, is_leaf=is_leaf)
        mesh = next((leaf.mesh for leaf in leaves if isinstance(leaf, NamedSharding)), None)
    if mesh is None:
        mesh = jax.sharding.get_abstract_mesh()
        mesh = {} if mesh.empty else mesh
    if isinstance(mesh, str):
        mesh = parse_axes(mesh)
    if isinstance(mesh, Mesh):
        mesh = mesh.abstract_mesh
    if isinstance(mesh, Mapping):
        sizes = {name: as_int(size) or 0 for name, size in mesh.items()}
        if any(not isinstance(name, str) or size < 1 for name, size in sizes.items()):
            raise ValueError(f"found mesh {dict(mesh)!r}, expected axes and their sizes, as {{'dp': 4, 'tp': 2}}")
        mesh = abstract_mesh(sizes)
    if not isinstance(mesh, AbstractMesh):
        raise TypeError(f"found mesh {mesh!r}, expected {{'dp': 4, 'tp': 2}}, 'dp=4,tp=2', or a mesh of JAX")
    axes = dict(zip(mesh.axis_names, mesh.axis_sizes))
    return Placement(axes, mesh if axes else None, shardings[0] if shardings else None)


class RemoteSharding(NamedSharding):
    """The sharding of a remote array. JAX functions that are called with the array compute in this process, so
    `num_devices` tells them that the array is on one device."""

    @property
    def num_devices(self) -> int:
        return 1


class Specs(NamedTuple):
    """A PartitionSpec for each leaf of each argument, in trees like those of `plain`."""

    arguments: tuple[Tree, ...]
    first_uneven: str | None  # Describes the first leaf with a size that is not divisible by its axes.


class Arguments(NamedTuple):
    """The arguments of a call. Each list has one entry for each argument."""

    trees: Sequence[Tree]
    names: Sequence[list[str]]  # The names of the leaves.
    # The positions of the arguments' entries in in_shardings, or None for an argument without entry. None instead of a
    # list means 0, 1, 2, ...
    slots: Sequence[int | None] | None = None
    # The current sharding of each leaf, which it keeps if in_shardings has none for it. None means that no leaf is
    # split.
    present: Sequence[Sequence[P | None]] | None = None
    slot_count: int | None = None  # The largest allowed number of entries; None means the number of arguments.


def argument_specs(place: Placement, arguments: Arguments, known_axes: Collection[str]) -> Specs:
    """Returns the PartitionSpecs of the arguments.

    in_shardings is None, one sharding for all arguments, or a tuple with an entry for each argument (or only for the
    first ones). An entry is a sharding, or a tree of shardings, which may be a prefix of the argument's tree. A
    sharding is a PartitionSpec, a NamedSharding, a function from a leaf's name (or its name and its shape) to a
    PartitionSpec, or None. None means that an array that is split keeps its sharding, and that other arrays are not
    split. Axes of `known_axes` that the mesh lacks are ignored.
    """
    specs = []
    first_uneven = None
    for i, (found, argument) in enumerate(zip(wanted_specs(place, arguments, known_axes), arguments.trees)):
        present = arguments.present[i] if arguments.present is not None else [None] * len(found)
        filled = [spec if spec is not None else known if known is not None else P()
                  for spec, known in zip(found, present)]
        for name, spec, leaf in zip(arguments.names[i], filled, jax.tree_util.tree_leaves(argument)):
            if first_uneven is None and not _is_even(place.axes, spec, np.shape(leaf)):
                first_uneven = f"{name} of shape {list(np.shape(leaf))} split by {spec}"
        specs.append(jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(plain(argument)), filled))
    return Specs(tuple(specs), first_uneven)


def wanted_specs(place: Placement, arguments: Arguments, known_axes: Collection[str] = ()) -> list[list[P | None]]:
    """Returns for each leaf of each argument its PartitionSpec in in_shardings, or None if in_shardings has none."""
    entries = place.shardings
    count = len(arguments.trees)
    slots = range(count) if arguments.slots is None else arguments.slots
    if not isinstance(entries, (tuple, list)) or isinstance(entries, P) or hasattr(entries, "_fields"):
        chosen = [entries] * count
    else:
        allowed = count if arguments.slot_count is None else arguments.slot_count
        if len(entries) > allowed:
            raise ValueError(f"found in_shardings for {len(entries)} arguments, expected at most {allowed} (arguments "
                             "that are static or can only be passed by name have no entry)")
        chosen = [entries[slot] if slot is not None and slot < len(entries) else None for slot in slots]
    return [spread(place.axes, entry, argument, names, f"in_shardings[{i if slot is None else slot}]", known_axes)
            for i, (entry, argument, names, slot) in enumerate(zip(chosen, arguments.trees, arguments.names, slots))]


def is_sharding(entry: Any) -> bool:
    """Whether an entry of a tree of shardings is a sharding and not a tree. A callable object that is a tree (a module
    of equinox, a variable of nnx) counts as a tree of shardings."""
    if entry is None or isinstance(entry, (P, jax.sharding.Sharding)):
        return True
    return callable(entry) and jax.tree_util.treedef_is_leaf(jax.tree_util.tree_structure(entry))


def _text_error(text: str, place: str = "") -> TypeError:
    return TypeError(f"found the text {text!r}{place}, expected a PartitionSpec, such as P({text!r})")


def spread(axes: Axes, entry: Any, tree: Tree, names: list[str], where: str,
           known_axes: Collection[str] = ()) -> list[P | None]:
    """Returns for each leaf of `tree` its PartitionSpec in `entry`, or None if `entry` has none. `entry` may be a
    prefix of the tree."""
    leaves = jax.tree_util.tree_leaves(tree)
    found: list[P | None] = [None] * len(names)

    def put(sharding: Any, positions: Iterable[int]) -> None:
        for i in positions:
            spec = sharding.spec if isinstance(sharding, NamedSharding) else sharding
            if callable(spec) and not isinstance(spec, P):
                leaf = leaves[i]
                shape = jax.ShapeDtypeStruct(np.shape(leaf), getattr(leaf, "dtype", None) or np.result_type(leaf))
                spec = spec(names[i], shape) if positional(spec, 1) == 2 else spec(names[i])
            if isinstance(spec, NamedSharding):
                spec = spec.spec
            if isinstance(spec, jax.sharding.Sharding):
                spec = _of_devices(axes, spec, label(names[i]))
            if isinstance(spec, str):
                raise _text_error(spec, f" for {label(names[i])}")
            if spec is not None and not isinstance(spec, P):
                raise TypeError(f"found {spec!r} for {label(names[i])}, expected a PartitionSpec, a NamedSharding, a "
                                "function or None")
            found[i] = None if spec is None else _on_mesh(axes, spec, label(names[i]), np.shape(leaves[i]), known_axes)

    structure: Any  # JAX does not declare the methods of a PyTreeDef.
    entries, structure = jax.tree_util.tree_flatten(entry, is_leaf=is_sharding)
    try:
        try:
            parts = structure.flatten_up_to(tree)
        except ValueError:
            if text := next((part for part in entries if isinstance(part, str)), None):
                raise _text_error(text) from None
            jax.tree_util.tree_map(lambda *_: None, entry, tree, is_leaf=is_sharding)  # Its error names the node.
            raise
        first = 0
        for sharding, part in zip(entries, parts):
            count = len(jax.tree_util.tree_leaves(part))
            put(sharding, range(first, first + count))
            first += count
    except (ValueError, TypeError) as error:
        raise type(error)(f"{where}: {str(error).replace('tree_map tree', where)}") from None
    return found


def _of_devices(axes: Axes, sharding: jax.sharding.Sharding, name: str) -> P:
    """Returns the spec of a sharding that consists of devices, such as a SingleDeviceSharding. As in jax.jit, their
    number must be that of the mesh. How they would split an array is not known, therefore each must have all of it."""
    count, expected = len(sharding.device_set), math.prod(axes.values())
    if count == expected and sharding.is_fully_replicated:
        return P()
    raise ValueError(f"found {sharding!r} for {name}, which is on {count} device{'s' * (count != 1)} of this process, "
                     f"on a mesh of {expected}, expected a PartitionSpec or a NamedSharding: P() copies the array to "
                     "all devices")


def _axes_of(entry: Any) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else tuple(entry or ())


def _on_mesh(axes: Axes, spec: P, name: str, shape: tuple[int, ...], known_axes: Collection[str]) -> P:
    if P.UNCONSTRAINED in spec:
        raise ValueError(f"found UNCONSTRAINED in {spec} for {name}, expected axes of the mesh or None")
    for axis in (axis for entry in spec for axis in _axes_of(entry)):
        if axis not in axes and axis not in known_axes:
            expected = f"one of {', '.join(axes)}" if axes else f"a mesh with this axis, such as mesh={{{axis!r}: 2}}"
            raise ValueError(f"found axis {axis!r} in {spec} for {name}, expected {expected}")
    dims = [tuple(axis for axis in _axes_of(entry) if axis in axes) or None for entry in spec]
    used = [axis for dim in dims for axis in dim or ()]
    if twice := [axis for axis in axes if used.count(axis) > 1]:
        raise ValueError(f"found axis {twice[0]!r} twice in {spec} for {name}, expected each axis once")
    if any(dims[len(shape):]):
        raise ValueError(f"found {spec} for {name} of shape {list(shape)}, expected at most {len(shape)} entries")
    return _short(dims[: len(shape)])


def _is_even(axes: Axes, spec: P, shape: tuple[int, ...]) -> bool:
    return all(size % math.prod(axes[axis] for axis in _axes_of(entry)) == 0 for size, entry in zip(shape, spec))


Intervals = list[tuple[tuple[int, int], ...]]


def spec_of_boxes(axes: Axes, shape: Sequence[int], boxes: Intervals) -> P | None:
    """Returns the PartitionSpec under which each device d holds boxes[d], an interval for each dimension, or None if
    there is no such spec. If there is at most one box, all devices hold it. Devices are numbered in row-major order of
    the axes."""
    if len(boxes) <= 1:
        return P()
    coordinates = list(itertools.product(*(range(size) for size in axes.values())))
    if len(boxes) != len(coordinates):
        return None
    dims: list[tuple[str, ...] | None] = []
    for d in range(len(shape)):
        at = {coordinate: box[d] for coordinate, box in zip(coordinates, boxes)}
        used = [name for a, name in enumerate(axes) if _differs_along(at, a, axes[name])]
        dims.append(tuple(used) or None)
    for order in itertools.product(*(itertools.permutations(dim or ()) for dim in dims)):
        if _boxes_of(axes, shape, order, coordinates) == list(boxes):
            return _short(order)
    return None


def _short(dims: Sequence[Any]) -> P:
    """Returns the spec without trailing dimensions that are not split, so that equal shardings have equal specs."""
    length = max((d + 1 for d, names in enumerate(dims) if names), default=0)
    return P(*(names or None for names in dims[:length]))


def _differs_along(at: Mapping[tuple[int, ...], Any], axis: int, size: int) -> bool:
    return any(at[c[:axis] + (0,) + c[axis + 1:]] != interval for c, interval in at.items() if size > 1)


def _boxes_of(axes: Axes, shape: Sequence[int], dims: Sequence[Sequence[str]],
              coordinates: Sequence[tuple[int, ...]]) -> Intervals:
    position = {name: a for a, name in enumerate(axes)}
    boxes = []
    for coordinate in coordinates:
        box = []
        for size, names in zip(shape, dims):
            parts = math.prod(axes[name] for name in names)
            number = 0
            for name in names:
                number = number * axes[name] + coordinate[position[name]]
            length = -(-size // parts)
            box.append((min(size, number * length), min(size, (number + 1) * length)))
        boxes.append(tuple(box))
    return boxes

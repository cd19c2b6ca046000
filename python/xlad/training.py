"""Converts a JAX training step, its state and its data to jobs for any number of meshes."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from xlad import batches, metrics, safetensors
from xlad.arguments import positional
from xlad.batches import Batches, DataOptions
from xlad.element_types import of_dtype, shape_text
from xlad.job import Axes, Job, axes_text, whole_number
from xlad.trees import Tree, first_difference, flatten, plain, unflatten


class Training:
    """A step, its state and its data.

    If `stream` is set, iterators of batches are read batch by batch while the job runs. Otherwise all their batches are
    read at construction.
    """

    def __init__(self, step: Callable[..., Any], state: Tree, data: Any, *, steps: int, options: DataOptions,
                 name: str | None, stream: bool = False) -> None:
        if not callable(step):
            raise TypeError(f"found a step of type {type(step).__name__}, expected a function step(state, batch) -> "
                            "(state, metrics)")
        steps = whole_number(steps, "steps")
        if stream and 0 < steps <= options.start_step:
            raise ValueError(f"found steps={steps} and start_step={options.start_step}, expected more steps: steps "
                             "includes those before start_step")
        from xlad import program

        self.name = str(name or getattr(step, "__name__", type(step).__name__))
        self.steps = steps
        self._step = step
        self._state = state
        leaves, self._treedef = flatten(state)
        self._keys = program.key_leaves(state)
        self.state_names = program.leaf_names(state, "state")
        self._arrays = [program.to_array(leaf, f"state {n}") for n, leaf in zip(self.state_names, leaves)]
        data = batches.as_data(data)
        self._stream = batches.stream(data, options, steps) if stream else None
        self._batches: Batches | None = (self._stream.first if self._stream is not None
                                         else batches.all_batches(data, options, steps))
        arguments = 1 if self._batches is None else 2
        self._takes = positional(step, arguments)
        if not arguments <= self._takes <= arguments + 1:
            before = "state" if arguments == 1 else "state, batch"
            raise TypeError(f"found a step of {self._takes} arguments, expected step({before}) or step({before}, t)")
        self._arguments: list[Tree] = [unflatten(self._treedef, self._arrays)]
        self._argument_names = [self.state_names]
        if self._batches is not None:
            self._arguments.append(self._batches.example)
            self._argument_names.append(self._batches.names)
        if self._takes > arguments:
            self._arguments.append(np.int32(0))
            self._argument_names.append(["step"])
        self._metrics: list[tuple[str, str]] = []  # The names and kinds, which are set when the step is traced.

    def lower(self, mesh: Any, in_shardings: Any, known_axes: Collection[str] = ()) -> tuple[Axes, Any]:
        """Returns the axes and the program for one mesh."""
        from jax.sharding import PartitionSpec as P

        from xlad import program, shardings

        place = shardings.placement(mesh, in_shardings)
        arguments = shardings.Arguments(self._arguments, self._argument_names)
        specs = shardings.argument_specs(place, arguments, known_axes)

        def flat(state: Tree, *rest: Any) -> tuple[Tree, Any]:
            return self._call(state, rest)

        flat.__name__ = self.name
        program.name_arguments(flat, self._step, range(len(self._arguments)))
        while any(map(program.is_weak, self._arrays)):
            if not self._change_types(program.result_shapes(flat, self._arguments, place, specs)[0]):
                break
        return place.axes, program.lower(flat, self._arguments, place, specs, out_specs=(specs.arguments[0], P()),
                                         donate=[0])

    def _change_types(self, new_state: Tree) -> bool:
        """Converts each leaf of the state that has a weak type to the type that the step returns for it. In a loop over
        jax.jit(step), it has this type from the second step on. Returns whether a type has changed."""
        from xlad import program

        has_changed = False
        for i, after in enumerate(flatten(new_state)[0]):
            before = self._arrays[i]
            if not program.is_weak(before) or (program.is_weak(after) and after.dtype == before.dtype):
                continue
            array = np.asarray(before).astype(after.dtype)
            self._arrays[i] = array.view(program.WeakArray) if program.is_weak(after) else array
            has_changed = True
        self._arguments[0] = unflatten(self._treedef, self._arrays)
        return has_changed

    def _call(self, state: Tree, rest: Sequence[Any]) -> tuple[Tree, Any]:
        """Calls the step on plain arrays: random keys are passed as words, and metrics are returned as f32 scalars. The
        state and the batch are trees like those of `plain`."""
        import jax

        from xlad import program

        state = unflatten(self._treedef, program.wrap_keys(jax.tree_util.tree_leaves(state), self._keys))
        rest = list(rest)
        if self._batches is not None:
            _, treedef = flatten(self._batches.example)
            rest[0] = unflatten(treedef, jax.tree_util.tree_leaves(rest[0]))
        if self._batches is not None and self._batches.stacked:
            rest[0] = jax.tree_util.tree_map(lambda leaf: leaf[0], rest[0])
        returned = self._step(state, *rest)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError(f"the step returned {_kind(returned)}, expected a pair (state, metrics)")
        new_state, of_step = returned
        structure = jax.tree_util.tree_structure
        # A loss has the structure of a state that is one array, so its place shows nothing.
        is_one_leaf = jax.tree_util.treedef_is_leaf(self._treedef)
        if not is_one_leaf and structure(of_step) == self._treedef != structure(new_state):
            raise TypeError("the step returned (metrics, state), expected (state, metrics)")
        self._check_state(new_state)
        self._metrics, values = _metrics(of_step)
        return program.unwrap_keys(plain(new_state)), values

    def _check_state(self, new_state: Tree) -> None:
        import jax

        from xlad import program

        if jax.tree_util.tree_structure(new_state) != self._treedef:
            raise TypeError("the step returned a state whose structure is not that of the initial state: "
                            f"{first_difference(new_state, self._state, 'state')}")
        for name, leaf, before in zip(self.state_names, jax.tree_util.tree_leaves(new_state), self._arrays):
            leaf = jax.random.key_data(leaf) if program.is_key(leaf) else leaf
            dtype = jax.dtypes.canonicalize_dtype(leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype)
            if (dtype != before.dtype and not _may_change(before, dtype, program.is_weak(leaf))) or (
                    np.shape(leaf) != before.shape):
                raise TypeError(f"the step returned {shape_text(dtype, np.shape(leaf), name)} for state {name}, "
                                f"expected {shape_text(before.dtype, before.shape)}, as in the initial state")

    def manifest(self) -> dict[str, Any]:
        """Returns manifest.json without the meshes. The step must have been lowered."""
        parameters = [{"name": n, "shape": shape_text(a.dtype, a.shape), "kind": "state"}
                      for n, a in zip(self.state_names, self._arrays)]
        state_count = len(parameters)
        results = [{**entry, "feeds": i} for i, entry in enumerate(parameters)]
        results += [{"name": n, "shape": "f32[]", "kind": kind, "feeds": None} for n, kind in self._metrics]
        if self._batches is not None:
            parameters += [{"name": n, "shape": shape_text(a.dtype, (self._batches.rows, *a.shape[1:])), "kind": "data"}
                           for n, a in zip(self._batches.names, self._batches.arrays)]
        if len(self._arguments) > (1 if self._batches is None else 2):
            parameters.append({"name": "step", "shape": "s32[]", "kind": "step"})
        manifest: dict[str, Any] = {
            "name": self.name,
            "parameters": [{"index": i, **entry} for i, entry in enumerate(parameters)],
            "results": [{"index": i, **entry} for i, entry in enumerate(results)],
            "donated": list(range(state_count)),
            "steps": self.steps,
        }
        if self._batches is not None:
            manifest["batches"] = {"file": "data.safetensors", "batch": self._batches.rows,
                                   "count": self._batches.batches if self._stream is None else self.steps}
        return manifest

    def state_bytes(self) -> bytes:
        return safetensors.dump(dict(zip(self.state_names, self._arrays)))

    def data_bytes(self) -> bytes:
        if self._batches is None or self._stream is not None:
            return b""
        return safetensors.dump(dict(zip(self._batches.names, self._batches.arrays)))

    def job(self, mesh: Any, in_shardings: Any) -> Job:
        axes, lowered = self.lower(mesh, in_shardings)
        stream = None if self._stream is None else self._stream.read
        return Job(self.manifest(), axes, lowered.proto, self.state_bytes(), self.data_bytes(), stream)

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Tree:
        """Returns a state whose leaves have the types of the original: JAX arrays, random keys, or otherwise numpy
        arrays."""
        return restore_like(self._state, self._arrays)(arrays)


def restore_like(state: Tree, types: Sequence[np.ndarray] | None = None) -> Callable[[Mapping[str, np.ndarray]], Tree]:
    """Returns a function that converts arrays by name to a tree like `state`, whose leaves may be ShapeDtypeStructs.

    The leaves have the types of the arrays `types`. Without these, a leaf of a weak type gets the type of its saved
    array. The function raises ValueError if a saved array is missing or has another type or shape.
    """
    import jax

    from xlad import program

    leaves, treedef = flatten(state)
    keys = program.key_leaves(state)
    names = program.leaf_names(state, "state")
    before = types or [program.words(leaf) if isinstance(leaf, jax.ShapeDtypeStruct)
                       else program.to_array(leaf, f"state {n}") for n, leaf in zip(names, leaves)]
    are_of_jax = [isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)) for leaf in leaves]
    shapes = [(a.dtype, a.shape, types is None and program.is_weak(a)) for a in before]

    def restore(arrays: Mapping[str, np.ndarray]) -> Tree:
        if missing := [name for name in names if name not in arrays]:
            raise ValueError(f"found no {missing[0]} in the saved state, which has {', '.join(arrays) or 'nothing'}, "
                             "expected a state of the same structure")
        found: list[Any] = []
        for name, (dtype, shape, may_change), of_jax in zip(names, shapes, are_of_jax):
            array = arrays[name]
            if isinstance(arrays, safetensors.Unindexed) and of_dtype(dtype, name).safetensors is None:
                stored = shape if dtype.itemsize == 1 else (*shape, dtype.itemsize)
                if array.dtype == np.uint8 and array.shape == stored:
                    array = array.view(dtype).reshape(shape)
            if array.shape != shape or (array.dtype != dtype and not may_change):
                raise ValueError(f"found {shape_text(array.dtype, array.shape)} for state {name} in the saved state, "
                                 f"expected {shape_text(dtype, shape)}")
            found.append(jax.numpy.asarray(array) if of_jax else array.copy())
        return unflatten(treedef, program.wrap_keys(found, keys))

    return restore


def _may_change(before: np.ndarray, dtype: Any, is_weak: bool) -> bool:
    """Whether the initial value of a leaf may be converted to the type that the step returns: its own type is weak, and
    its value stays the same. A type that stays weak changes only from integer to real to complex, so that the changes
    end."""
    import jax

    from xlad import program

    if not program.is_weak(before) or (is_weak and jax.numpy.promote_types(before.dtype, dtype) != dtype):
        return False
    value = np.asarray(before)
    with np.errstate(all="ignore"):
        after = value.astype(dtype)
        # The first comparison finds -1 as u32, the second finds 257 as bf16.
        is_same = (after == value) & (after.real.astype(value.real.dtype) == value.real)
        both_nan = (after != after) & (value != value)
        return bool(np.all(is_same | both_nan))


def write_directory(training: Training, directory: str | pathlib.Path, meshes: Sequence[Any],
                    in_shardings: Any) -> pathlib.Path:
    from xlad import shardings

    out = pathlib.Path(directory)
    places = [shardings.placement(mesh, in_shardings) for mesh in meshes]
    known_axes = {axis for place in places for axis in place.axes}
    entries = []
    lowered = [training.lower(mesh, in_shardings, known_axes) for mesh in meshes]
    out.mkdir(parents=True, exist_ok=True)
    for axes, step in lowered:
        name = axes_text(axes).replace("=", "").replace(",", "_")
        files = [f"step.{name}.hlo.pb"]
        if "{...}" not in step.text:  # The text form omits large constants, so such a step is written only as a proto.
            files.insert(0, f"step.{name}.hlo")
            (out / files[0]).write_text(step.text)
        (out / files[-1]).write_bytes(step.proto)
        devices = int(np.prod(list(axes.values()), dtype=int))
        entries.append({"name": name, "axes": axes, "devices": devices, "files": files})
    (out / "state.safetensors").write_bytes(training.state_bytes())
    if data := training.data_bytes():
        (out / "data.safetensors").write_bytes(data)
    (out / "manifest.json").write_text(json.dumps({**training.manifest(), "meshes": entries}, indent=1) + "\n")
    return out


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return "an array" if hasattr(value, "dtype") else type(value).__name__


def _metrics(returned: Any) -> tuple[list[tuple[str, str]], list[Any]]:
    """Returns the names, kinds and values of the scalars. If the metrics are a single number, it is the loss."""
    from xlad import program

    leaves, _ = flatten(returned)
    names, values = metrics.encode(program.leaf_names(returned, "loss"), leaves)
    return [(name, "loss" if name == "loss" else "metric") for name in names], values

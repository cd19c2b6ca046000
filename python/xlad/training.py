"""Converts a JAX training step, its state and its data to jobs for any number of meshes."""

from __future__ import annotations

import itertools
import json
import pathlib
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlad import safetensors
from xlad.element_types import shape_text
from xlad.job import Axes, Job, axes_text

Tree = Any


class Batches(NamedTuple):
    """The data of all batches."""

    example: Tree  # One batch as programs receive it.
    names: list[str]
    arrays: list[np.ndarray]  # count * rows of each leaf, in the order of the batches.
    rows: int
    batches: int
    stacked: bool  # Leaves have a leading dimension of 1 that the step does not see.


class Training:
    """A step, its state and its data. `batch` is the number of rows per batch, unless `data` consists of batches.

    If `stream` is set, iterators of batches are read one batch at a time while the job runs, and not before.
    """

    def __init__(self, step: Callable[..., Any], state: Tree, data: Any, *, steps: int, batch: int | None,
                 name: str | None, stream: bool = False) -> None:
        if not callable(step):
            raise TypeError(f"found step {step!r}, expected a function step(state, batch) -> (state, metrics)")
        if not isinstance(steps, int) or steps < 0:
            raise ValueError(f"found steps={steps!r}, expected 0 or more")
        from xlad import program

        self.name = str(name or getattr(step, "__name__", type(step).__name__))
        self.steps = steps
        self._step = step
        self._state = state
        leaves, self._treedef = _flatten(state)
        self._keys = program.key_leaves(state)
        self.state_names = program.leaf_names(state, "state")
        self._arrays = [program.to_array(leaf, f"state {n}") for n, leaf in zip(self.state_names, leaves)]
        self._stream: _Stream | None = None
        if stream and steps > 0 and batch is None and _is_iterable(data) and not isinstance(data, list):
            self._stream = _Stream(data)
            self._batches: Batches | None = self._stream.first
        else:
            self._batches = _batches(data, batch, steps)
        arguments = 1 if self._batches is None else 2
        self._takes = program.positional(step, arguments)
        if not arguments <= self._takes <= arguments + 1:
            before = "state" if arguments == 1 else "state, batch"
            raise TypeError(f"found a step of {self._takes} arguments, expected step({before}) or step({before}, t)")
        self._arguments: list[Tree] = [_unflatten(self._treedef, self._arrays)]
        self._argument_names = [self.state_names]
        if self._batches is not None:
            self._arguments.append(self._batches.example)
            self._argument_names.append(self._batches.names)
        if self._takes > arguments:
            self._arguments.append(np.int32(0))
            self._argument_names.append(["step"])
        self._metrics: list[tuple[str, str]] = []  # Name and kind, found when the step is traced.

    def lower(self, mesh: Any, in_shardings: Any, known_axes: Collection[str] = ()) -> tuple[Axes, Any]:
        """Returns the axes and the program for one mesh."""
        from jax.sharding import PartitionSpec as P

        from xlad import program

        place = program.placement(mesh, in_shardings)
        specs = program.argument_specs(place, self._arguments, self._argument_names, known_axes)

        def flat(state: Tree, *rest: Any) -> tuple[Tree, Any]:
            return self._call(state, rest)

        flat.__name__ = self.name
        program.name_arguments(flat, self._step, range(len(self._arguments)))
        lowered = program.lower(flat, self._arguments, place, specs, out_specs=(specs.arguments[0], P()), donate=[0])
        return place.axes, lowered

    def _call(self, state: Tree, rest: Sequence[Any]) -> tuple[Tree, Any]:
        """Calls the step on plain arrays: random keys are passed as words, and metrics are returned as f32 scalars."""
        import jax

        from xlad import program

        state = _unflatten(self._treedef, program.wrap_keys(jax.tree_util.tree_leaves(state), self._keys))
        rest = list(rest)
        if self._batches is not None and self._batches.stacked:
            rest[0] = jax.tree_util.tree_map(lambda leaf: leaf[0], rest[0])
        returned = self._step(state, *rest)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError(f"the step returned {_kind(returned)}, expected a pair (state, metrics)")
        new_state, metrics = returned
        self._check_state(new_state)
        self._metrics, values = _metrics(metrics)
        return program.unwrap_keys(new_state), values

    def _check_state(self, new_state: Tree) -> None:
        import jax

        from xlad import program

        found = jax.tree_util.tree_structure(new_state)
        if found != self._treedef:
            raise TypeError(f"the step returned a state of structure {found}, expected {self._treedef}, as it is given")
        for name, leaf, before in zip(self.state_names, jax.tree_util.tree_leaves(new_state), self._arrays):
            leaf = jax.random.key_data(leaf) if program.is_key(leaf) else leaf
            dtype = jax.dtypes.canonicalize_dtype(leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype)
            if dtype != before.dtype or np.shape(leaf) != before.shape:
                raise TypeError(f"the step returned {shape_text(dtype, np.shape(leaf), name)} for state {name}, "
                                f"expected {shape_text(before.dtype, before.shape)}, as it is given")

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
        stream = None if self._stream is None else self._stream.read()
        return Job(self.manifest(), axes, lowered.proto, self.state_bytes(), self.data_bytes(), stream)

    def restore(self, arrays: dict[str, np.ndarray]) -> Tree:
        """Returns the state with the leaf types of the original: JAX arrays, random keys, or otherwise numpy arrays."""
        import jax
        import jax.numpy as jnp

        from xlad import program

        was = jax.tree_util.tree_leaves(self._state)
        leaves: list[Any] = [arrays[name].view(a.dtype).reshape(a.shape)
                             for name, a in zip(self.state_names, self._arrays)]
        leaves = [jnp.asarray(leaf) if isinstance(old, jax.Array) else leaf.copy() for leaf, old in zip(leaves, was)]
        return _unflatten(self._treedef, program.wrap_keys(leaves, self._keys))


def write_directory(training: Training, directory: str | pathlib.Path, meshes: Sequence[Any],
                    in_shardings: Any) -> pathlib.Path:
    from xlad import program

    out = pathlib.Path(directory)
    places = [program.placement(mesh, in_shardings) for mesh in meshes]
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
    if training.data_bytes():
        (out / "data.safetensors").write_bytes(training.data_bytes())
    (out / "manifest.json").write_text(json.dumps({**training.manifest(), "meshes": entries}, indent=1) + "\n")
    return out


def _flatten(tree: Tree) -> tuple[list[Any], Any]:
    import jax

    leaves, treedef = jax.tree_util.tree_flatten(tree)
    return leaves, treedef


def _unflatten(treedef: Any, leaves: Sequence[Any]) -> Tree:
    import jax

    return jax.tree_util.tree_unflatten(treedef, leaves)


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"{type(value).__name__}"


def _metrics(metrics: Any) -> tuple[list[tuple[str, str]], list[Any]]:
    """Returns the names, kinds and f32 values of the metrics. If the metrics are a single scalar, it is the loss."""
    import jax.numpy as jnp

    from xlad import program

    leaves, _ = _flatten(metrics)
    named = []
    values = []
    for name, leaf in zip(program.leaf_names(metrics, "loss"), leaves):
        if np.shape(leaf) != ():
            raise TypeError(f"the step returned metric {name} of shape {list(np.shape(leaf))}, expected a scalar")
        named.append((name, "loss" if name == "loss" else "metric"))
        values.append(jnp.asarray(leaf).astype(jnp.float32))
    return named, values


def _batches(data: Any, rows: int | None, steps: int) -> Batches | None:
    """`data` is None, a tree of arrays whose rows are cut into batches, or a list or iterator of batches."""
    from xlad import program

    if data is None:
        if rows is not None:
            raise ValueError(f"found batch={rows} without data")
        return None
    if _is_iterable(data):
        if rows is not None:
            raise ValueError(f"found batch={rows} with a list or iterator of batches, expected no batch")
        return _from_batches(list(itertools.islice(data, max(1, steps))))
    leaves, treedef = _flatten(data)
    names = program.leaf_names(data, "batch")
    arrays = [_data_array(leaf, f"data {n}") for n, leaf in zip(names, leaves)]
    totals = {array.shape[0] if array.ndim else 0 for array in arrays}
    if len(totals) != 1 or 0 in totals:
        raise ValueError(f"found data of shapes {', '.join(f'{n} {list(a.shape)}' for n, a in zip(names, arrays))}, "
                         "expected arrays with equal numbers of rows, 1 or more")
    total = totals.pop()
    rows = total if rows is None else rows
    if not isinstance(rows, int) or not 1 <= rows <= total:
        raise ValueError(f"found batch={rows!r}, expected 1 to {total}, as many rows as the data has")
    count = total // rows
    arrays = [array[: count * rows] for array in arrays]
    return Batches(_unflatten(treedef, [array[:rows] for array in arrays]), names, arrays, rows, count, False)


def _is_iterable(data: Any) -> bool:
    """Whether `data` is a list or iterator of batches, or an object that can be iterated over for them."""
    if data is None:
        return False
    return isinstance(data, list) or hasattr(data, "__next__") or (hasattr(data, "__iter__") and not _is_tree(data))


class _Stream:
    """Batches that are read one by one. An object that is not an iterator itself is iterated over again and again."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._iterator = iter(data)
        try:
            self._example = next(self._iterator)
        except StopIteration:
            raise ValueError("found no batches in the data, expected at least one") from None
        self.first = _from_batches([self._example])

    def read(self) -> Iterator[bytes]:
        """Yields each batch as a safetensors file."""
        yield safetensors.dump(dict(zip(self.first.names, self.first.arrays)))
        number = 1
        while True:
            for batch in self._iterator:
                both = _from_batches([self._example, batch], number)
                arrays = [array[self.first.rows :] for array in both.arrays]
                yield safetensors.dump(dict(zip(both.names, arrays)))
                number += 1
            again = iter(self._data)
            if again is self._iterator:
                return
            self._iterator = again


def _data_array(leaf: Any, place: str) -> np.ndarray:
    from xlad import program

    if program.is_key(leaf):
        raise TypeError(f"{place}: found random keys, expected them in the state, or as words (jax.random.key_data)")
    return program.to_array(leaf, place)


def _is_tree(data: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns about iterable leaves.
        leaves, _ = _flatten(data)
    return not (len(leaves) == 1 and leaves[0] is data) or hasattr(data, "dtype")


def _from_batches(batches: list[Any], number: int = 1) -> Batches:
    """`number` is that of the second batch, in messages."""
    from xlad import program

    if not batches:
        raise ValueError("found no batches in the data, expected at least one")
    _, treedef = _flatten(batches[0])
    names = program.leaf_names(batches[0], "batch")
    columns: list[list[np.ndarray]] = [[] for _ in names]
    for i, batch in enumerate(batches, number - 1):
        leaves, found = _flatten(batch)
        if found != treedef:
            raise ValueError(f"found batch {i} of structure {found}, expected {treedef}, as batch 0 has")
        for column, name, leaf in zip(columns, names, leaves):
            array = _data_array(leaf, f"batch {i} {name}")
            if column and (array.shape, array.dtype) != (column[0].shape, column[0].dtype):
                raise ValueError(f"found {shape_text(array.dtype, array.shape)} for {name} in batch {i}, expected "
                                 f"{shape_text(column[0].dtype, column[0].shape)}, as batch 0 has")
            column.append(array)
    rows = {column[0].shape[0] if column[0].ndim else 0 for column in columns}
    if len(rows) == 1 and 0 not in rows:
        example = _unflatten(treedef, [column[0] for column in columns])
        return Batches(example, names, [np.concatenate(column) for column in columns], rows.pop(), len(batches), False)
    arrays = [np.stack(column) for column in columns]
    return Batches(_unflatten(treedef, [array[:1] for array in arrays]), names, arrays, 1, len(batches), True)

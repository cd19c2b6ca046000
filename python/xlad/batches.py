"""The data of a training job: arrays that are cut into batches, lists of batches, and streams of batches."""

from __future__ import annotations

import dataclasses
import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import numpy as np

from xlad import safetensors
from xlad.element_types import shape_text
from xlad.job import as_int
from xlad.trees import MAX_KEYS, Tree, first_difference, flatten, label, unflatten

_MAX_PATH = 200  # The number of characters of a path that an error shows.


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """How data is cut into batches, and the order of the batches."""

    batch: int | None = None  # Rows per batch. None if a batch has all rows, or if `data` consists of batches.
    shuffle: bool | int = False  # Whether each epoch has another order; a number is the seed of these orders.
    drop_last: bool = False  # Whether batches with fewer rows than the first one are skipped.
    start_step: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.shuffle, (bool, int, np.integer)):
            raise TypeError(f"found shuffle={self.shuffle!r}, expected True, False or a number that seeds the order")

    @property
    def seed(self) -> int | None:
        """The seed of the order, or None if data is not shuffled."""
        if self.shuffle is False:
            return None
        return 0 if self.shuffle is True else int(self.shuffle)


class Batches(NamedTuple):
    """The data of all batches."""

    example: Tree  # One batch as programs receive it.
    names: list[str]
    arrays: list[np.ndarray]  # For each leaf at least `batches` * `rows` rows, in the order of the batches.
    rows: int
    batches: int
    stacked: bool  # Whether leaves have a leading dimension of 1, which is removed before the step is called.

    def one(self, rows: Any) -> bytes:
        """Returns the batch with these rows as a safetensors file."""
        return safetensors.dump({name: array[rows] for name, array in zip(self.names, self.arrays)})


class Stream(NamedTuple):
    """Batches that are read one by one while the job runs. `read(step)` yields the batch of `step`, the job's first
    step, and all later batches, as safetensors files."""

    first: Batches
    read: Callable[[int], Iterator[bytes]]


def as_data(data: Any) -> Any:
    """Returns `data` as a tree of arrays, or as a list or iterator of batches. A mapping that JAX does not know, such
    as the result of np.load for an .npz file, becomes a dictionary. Raises TypeError for anything else."""
    if data is None or isinstance(data, list) or _is_tree(data):
        return data
    if isinstance(data, Mapping):
        return dict(data)
    if isinstance(data, (str, os.PathLike)):
        path = os.fspath(data)
        shown = repr(path if len(path) <= _MAX_PATH else path[:_MAX_PATH] + "...")
        raise TypeError(f"found data {shown}, expected a tree of arrays, or batches: read the file first")
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):  # A data frame would yield the names of its columns.
        raise TypeError(f"found data of type {type(data).__name__}, expected a tree of arrays, such as a dictionary "
                        "with an array for each column: dict(df) of a data frame df of pandas")
    if not is_iterable(data) or isinstance(data, (bytes, bytearray, Set)):
        advice = "; call the function first" if callable(data) else ""
        raise TypeError(f"found data of type {type(data).__name__}, expected a tree of arrays, a list of batches, or "
                        f"an object that yields batches, such as a data loader{advice}")
    return data


def all_batches(data: Any, options: DataOptions, steps: int) -> Batches | None:
    """Returns the batches of `data`, which is a tree of arrays whose rows are cut into batches, or a list or iterator
    of batches. Returns None if `data` is None."""
    if data is None:
        for name, value in (("batch", options.batch), ("shuffle", options.shuffle or None)):
            if value is not None:
                raise ValueError(f"found {name}={value} without data, expected {name} only together with data")
        return None
    if is_iterable(data):
        if options.batch is not None:
            raise ValueError(f"found batch={options.batch} with a list or iterator of batches, expected no batch; "
                             "arrays of rows that belong together can be a tuple or a dictionary")
        return _from_batches(list(_of_equal_size(itertools.islice(data, max(1, steps)), options.drop_last)))
    return _from_rows(data, options.batch, cut=options.seed is None)


def stream(data: Any, options: DataOptions, steps: int) -> Stream | None:
    """Returns the stream that reads the batches one by one, or None if the batches are part of the job."""
    if data is None or steps <= options.start_step:
        return None
    if options.seed is not None:
        if is_iterable(data) and not isinstance(data, list):
            raise TypeError(f"found shuffle={options.shuffle} with an iterator of batches, expected arrays or a list "
                            "of batches: shuffle the data where it is read")
        batches = all_batches(data, options, len(data) if isinstance(data, list) else steps)
        assert batches is not None
        return Stream(batches, lambda step: _shuffled(batches, options.seed or 0, step))
    if options.batch is None and is_iterable(data) and not isinstance(data, list):
        return _streamed(data, options.drop_last)
    return None


def epoch_order(seed: int, epoch: int, count: int) -> np.ndarray:
    """Returns the order of `count` rows or batches in one epoch. It is the same in every run and for every first
    step."""
    return np.random.default_rng([seed & (2**64 - 1), epoch]).permutation(count)


def _shuffled(batches: Batches, seed: int, step: int) -> Iterator[bytes]:
    """Shuffles the rows among all batches, and yields the batches of `step` and of later steps."""
    rows, count = batches.rows, batches.batches
    total = batches.arrays[0].shape[0]
    while True:
        epoch, first = divmod(step, count)
        order = epoch_order(seed, epoch, total)
        for number in range(first, count):
            yield batches.one(order[number * rows : (number + 1) * rows])
            step += 1


def is_iterable(data: Any) -> bool:
    """Whether `data` is a list or iterator of batches, or an object whose iterators yield batches."""
    if data is None:
        return False
    return isinstance(data, list) or hasattr(data, "__next__") or (hasattr(data, "__iter__") and not _is_tree(data))


def _streamed(data: Any, drop_last: bool) -> Stream:
    """Streams the batches of `data`. If `data` is not an iterator itself, it is iterated over again at its end. The
    stream ends after a pass that yields no batch to send, because `data` can then be read only once."""
    iterator = iter(data)
    try:
        example = next(iterator)
    except StopIteration:
        raise ValueError("found no batches in the data, expected at least one") from None
    first = _from_batches([example])

    def read(_: int) -> Iterator[bytes]:
        yield first.one(slice(None))
        number = 1  # The number of batches that have been sent.
        before = 0  # The number of batches that had been sent when this pass over `data` began.
        current = iterator
        while True:
            for batch in current:
                if drop_last and _has_fewer_rows(batch, example):
                    continue
                both = _from_batches([example, batch], number)
                _check_weak_types(first, both, number)
                yield both.one(slice(first.rows, None))
                number += 1
            if number == before:
                return
            again = iter(data)
            if again is current:
                return
            current, before = again, number

    return Stream(first, read)


def _has_fewer_rows(batch: Tree, first: Tree) -> bool:
    """Whether the batch has the structure and shapes of the first one, except that it has fewer rows."""
    (leaves, tree), (others, expected) = flatten(batch), flatten(first)
    shapes = [(np.shape(a), np.shape(b)) for a, b in zip(leaves, others)]
    if tree != expected or any(len(a) != len(b) or not b or a[1:] != b[1:] for a, b in shapes):
        return False
    return len({a[0] for a, _ in shapes}) == 1 and shapes[0][0][0] < shapes[0][1][0]


def _of_equal_size(batches: Iterable[Tree], drop_last: bool) -> Iterator[Tree]:
    first = None
    for batch in batches:
        if first is not None and drop_last and _has_fewer_rows(batch, first):
            continue
        first = batch if first is None else first
        yield batch


def _from_rows(data: Tree, rows: int | None, cut: bool) -> Batches:
    """Cuts the rows of `data` into batches. If `cut` is set, rows after the last complete batch are omitted."""
    from xlad import program

    leaves, treedef = flatten(data)
    names = program.leaf_names(data, "batch")
    arrays = [_data_array(leaf, f"data {n}") for n, leaf in zip(names, leaves)]
    totals = {array.shape[0] if array.ndim else 0 for array in arrays}
    if len(totals) != 1 or 0 in totals:
        shapes = [f"{label(name)} {list(array.shape)}" for name, array in zip(names[:MAX_KEYS], arrays)]
        advice = "" if all(array.ndim for array in arrays) else "; np.asarray converts lists of numbers"
        more = ", ..." if len(names) > MAX_KEYS else ""
        raise ValueError(f"found data of shapes {', '.join(shapes)}{more}, expected arrays with equal numbers of rows, "
                         f"1 or more{advice}")
    total = totals.pop()
    per_batch = total if rows is None else as_int(rows)
    if per_batch is None or not 1 <= per_batch <= total:
        raise ValueError(f"found batch={rows!r}, expected a whole number from 1 to {total}, the rows of the data")
    count = total // per_batch
    arrays = [array[: count * per_batch] if cut else array for array in arrays]
    example = unflatten(treedef, [array[:per_batch] for array in arrays])
    return Batches(example, names, arrays, per_batch, count, False)


def _data_array(leaf: Any, place: str) -> np.ndarray:
    from xlad import program

    if program.is_key(leaf):
        raise TypeError(f"{place}: found random keys, expected them in the state, or as words (jax.random.key_data)")
    return program.to_array(leaf, place, instead="")


def _is_tree(data: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns about iterable leaves.
        leaves, _ = flatten(data)
    return not (len(leaves) == 1 and leaves[0] is data) or hasattr(data, "dtype")


def _from_batches(batches: list[Any], number: int = 1) -> Batches:
    """Joins batches of equal shapes. Messages call the second batch `number`."""
    from xlad import program

    if not batches:
        raise ValueError("found no batches in the data, expected at least one")
    _, treedef = flatten(batches[0])
    names = program.leaf_names(batches[0], "batch")
    columns: list[list[np.ndarray]] = [[] for _ in names]
    for i, batch in enumerate(batches, number - 1):
        leaves, found = flatten(batch)
        if found != treedef:
            raise ValueError(f"{first_difference(batch, batches[0], f'batch {i}')}, as batch 0 has")
        for column, name, leaf in zip(columns, names, leaves):
            array = _data_array(leaf, f"batch {i} {name}")
            if column and (array.shape, array.dtype) != (column[0].shape, column[0].dtype):
                advice = " (drop_last=True skips smaller batches)" if _has_fewer_rows(batch, batches[0]) else ""
                raise ValueError(f"found {shape_text(array.dtype, array.shape)} for {name} in batch {i}, expected "
                                 f"{shape_text(column[0].dtype, column[0].shape)}, as batch 0 has{advice}")
            column.append(array)
    rows = {column[0].shape[0] if column[0].ndim else 0 for column in columns}
    if len(rows) == 1 and 0 not in rows:
        arrays = [_joined(np.concatenate, column) for column in columns]
        count = rows.pop()
        example = unflatten(treedef, [array[:count] for array in arrays])
        return Batches(example, names, arrays, count, len(batches), False)
    arrays = [_joined(np.stack, column) for column in columns]
    return Batches(unflatten(treedef, [array[:1] for array in arrays]), names, arrays, 1, len(batches), True)


def _check_weak_types(first: Batches, both: Batches, number: int) -> None:
    """Checks that batch `number` has weak types where the first batch has, because the step is traced with the types of
    the first batch. `both` has these two batches."""
    from xlad import program

    for name, one, other in zip(first.names, first.arrays, both.arrays):
        if program.is_weak(one) and not program.is_weak(other):
            shape = other.shape[1:] if first.stacked else (first.rows, *other.shape[1:])
            raise ValueError(f"found {shape_text(other.dtype, shape)} for {name} in batch {number}, expected a weak "
                             "type, as that of a number of Python, which batch 0 has")


def _joined(join: Callable[[list[np.ndarray]], np.ndarray], column: list[np.ndarray]) -> np.ndarray:
    """Joins the arrays of one leaf. Its type is weak if it is weak in every batch."""
    from xlad import program

    joined = join(column)
    return joined.view(program.WeakArray) if all(map(program.is_weak, column)) else joined

"""Indices of arrays, split into the parts that a program contains and the arrays that are passed to the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Index(NamedTuple):
    """An index whose integers and integer arrays are in `arrays`. `place(*arrays)` returns the index, and
    `take(array, *arrays)` returns the indexed part of `array`. Indices with equal `static` have equal
    functions."""

    static: str
    arrays: list[Any]
    place: Callable[..., Any]

    def take(self, array: Any, *passed: Any) -> Any:
        return array[self.place(*passed)]


def split(index: Any, shape: tuple[int, ...], *, is_checked: bool = True) -> Index:
    """Splits an index. Integers and arrays of integers are passed to the program, so that x[i] is compiled once for all
    i. Slices, None and ... are part of the program. Raises IndexError if there are too many indices, if an index has
    another type, or if `is_checked` is set and a single number is out of range. Elements of arrays are not
    checked."""
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [p for part in parts for p in _without_masks(part)]
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    if taken > len(shape):
        raise IndexError(f"found {taken} indices, expected at most {len(shape)}, the number of dimensions")
    static: list[Any] = []
    arrays: list[Any] = []
    dim = 0
    for part in parts:
        if part is Ellipsis:
            dim += len(shape) - taken
        elif part is None or isinstance(part, slice):
            dim += part is not None
        else:
            arrays.append(_passed(part, shape[dim] if is_checked else None, dim))
            static.append(_Passed)
            dim += 1
            continue
        static.append(part)

    def place(*passed: Any) -> Any:
        given = iter(passed)
        return tuple(next(given) if part is _Passed else part for part in static)

    return Index(repr(static), arrays, place)


class _Passed:
    """Stands for an index that is passed to the program."""


def _without_masks(part: Any) -> list[Any]:
    """Replaces a boolean mask by the indices of its true elements, because their number is not known to the program."""
    if isinstance(part, slice):
        return [slice(*(None if end is None else int(end) for end in (part.start, part.stop, part.step)))]
    if part is None or part is Ellipsis or (hasattr(part, "__index__") and not hasattr(part, "shape")
                                           and not isinstance(part, bool)):
        return [part]
    if isinstance(part, (bool, list)) or np.dtype(getattr(part, "dtype", object)) == bool:
        part = np.asarray(part)
    if isinstance(part, np.ndarray) and part.dtype == bool:
        return list(np.nonzero(part)) if part.ndim else [np.zeros(int(part), np.int32)]
    return [part]


def _passed(part: Any, size: int | None, dim: int) -> Any:
    """Returns an index as it is passed to the program. `size` is that of dimension `dim`, or None if a number may be
    out of range."""
    if hasattr(part, "shape") and np.shape(part) != ():
        if np.dtype(part.dtype).kind not in "iu":
            raise IndexError(f"found an index of {part.dtype}, expected an array of whole numbers or booleans")
        return part
    if not hasattr(part, "__index__"):
        raise IndexError(f"found index {part!r}, expected whole numbers, booleans, slices, None or ...")
    number = int(part)
    if size is not None and not -size <= number < size:
        raise IndexError(f"found index {number} in dimension {dim} of size {size}, expected {-size} to {size - 1}")
    return np.int32(number)

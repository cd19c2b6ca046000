"""Indices of arrays, split into the parts that a program contains and the arrays that are passed to the program."""

from __future__ import annotations

import operator
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
    i. Slices, None, ... and single booleans are part of the program. Raises IndexError if there are too many indices or
    more than one ..., if an index has another type or a mask another shape, or if `is_checked` is set and a single
    number is out of range. Elements of arrays of integers are not checked."""
    parts = [_normal(part) for part in (index if isinstance(index, tuple) else (index,))]
    if sum(part is Ellipsis for part in parts) > 1:
        raise IndexError(f"found index {index!r}, expected at most one ...")
    taken = sum(map(_dimensions, parts))
    if taken > len(shape):
        raise IndexError(f"found {taken} indices, expected at most {len(shape)}, the number of dimensions")
    static: list[Any] = []
    arrays: list[Any] = []
    dim = 0
    for part in parts:
        if part is None or isinstance(part, (bool, slice)):
            static.append(part)
        elif part is Ellipsis:
            static.append(part)
            dim += len(shape) - taken
        else:
            passed = _positions(part, shape, dim) if _is_mask(part) else [_passed(part, shape, dim, is_checked)]
            arrays += passed
            static += [_Passed] * len(passed)
        dim += _dimensions(part)

    def place(*passed: Any) -> Any:
        given = iter(passed)
        return tuple(next(given) if part is _Passed else part for part in static)

    return Index(repr(static), arrays, place)


class _Passed:
    """Stands for an index that is passed to the program."""


def _normal(part: Any) -> Any:
    """Returns a mask as a numpy array, a single boolean as a bool, and a slice with ends of type int."""
    if isinstance(part, slice):
        return slice(*(None if end is None else _whole(end, repr(part)) for end in (part.start, part.stop, part.step)))
    if isinstance(part, (bool, list)) or getattr(part, "dtype", None) == bool:
        part = np.asarray(part)
        return bool(part) if part.dtype == bool and part.ndim == 0 else part
    return part


def _is_mask(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == bool


def _dimensions(part: Any) -> int:
    """The number of dimensions of the array to which a part of an index belongs. A single boolean adds a dimension of
    size 0 or 1 instead."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if _is_mask(part) else 1


def _whole(number: Any, name: str) -> int:
    try:
        return operator.index(number)  # For an array, this raises TypeError unless the array is one integer.
    except TypeError:
        raise IndexError(f"found index {name}, expected whole numbers, booleans, slices, None or ...") from None


def _positions(mask: np.ndarray, shape: tuple[int, ...], dim: int) -> list[Any]:
    """Returns the indices of the true elements of a mask, because their number is not known to the program."""
    expected = shape[dim : dim + mask.ndim]
    if mask.shape != expected:
        raise IndexError(f"found a mask of shape {list(mask.shape)} at dimension {dim}, expected {list(expected)}, the "
                         "sizes of the array's dimensions")
    return list(np.nonzero(mask))


def _passed(part: Any, shape: tuple[int, ...], dim: int, is_checked: bool) -> Any:
    """Returns the index of dimension `dim` as it is passed to the program."""
    if hasattr(part, "shape") and np.shape(part) != ():
        if np.dtype(part.dtype).kind not in "iu":
            raise IndexError(f"found an index of {part.dtype}, expected an array of whole numbers or booleans")
        return part
    number, size = _whole(part, repr(part)), shape[dim]
    if is_checked and not -size <= number < size:
        raise IndexError(f"found index {number} in dimension {dim} of size {size}, expected {-size} to {size - 1}")
    return np.int32(number)

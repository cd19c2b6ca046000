"""Metrics as the f32 scalars that programs return: arrays element by element, 64-bit numbers in parts.

The name of a scalar consists of the name of the metric, the index of the element and the number of the part: "loss",
"accuracy[2]", "matrix[0,3]~2". Part 1 of a 64-bit number ("loss~1") is the remainder that part 0 does not
represent, and part 2 is the remainder of that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

MAX_ELEMENTS = 1024
_PARTS_OF_64_BITS = 3
_NAME = re.compile(r"(?P<name>.*?)(\[(?P<index>\d+(,\d+)*)\])?(~(?P<part>\d+))?", re.DOTALL)


def encode(names: Sequence[str], leaves: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """Returns the names and the values of the scalars. Called while JAX traces the step."""
    import jax.numpy as jnp

    scalars: list[str] = []
    values: list[Any] = []
    for name, leaf in zip(names, leaves):
        try:
            array = jnp.asarray(leaf)
        except (TypeError, ValueError):
            raise TypeError(f"the step returned {leaf!r} as metric {name}, expected a number or an array") from None
        if jnp.iscomplexobj(array):
            raise TypeError(f"the step returned metric {name} of type {array.dtype}, expected real numbers")
        if array.size > MAX_ELEMENTS:
            raise TypeError(f"the step returned metric {name} of shape {list(array.shape)}, expected a scalar or an "
                            f"array of at most {MAX_ELEMENTS} elements; larger arrays can be part of the state")
        parts = _parts(array)
        for index in np.ndindex(array.shape):
            for part, of_array in enumerate(parts):
                place = f"[{','.join(map(str, index))}]" if index else ""
                scalars.append(f"{name}{place}{f'~{part}' if part else ''}")
                values.append(of_array[index])
    return scalars, values


def _parts(array: Any) -> list[Any]:
    """Returns f32 arrays whose sum is the array, exactly if the parts are in the range of f32. Only an array with
    64-bit elements has more than one part."""
    import jax.numpy as jnp

    parts = [array.astype(jnp.float32)]
    if array.dtype.itemsize == 8:
        rest = array
        for _ in range(_PARTS_OF_64_BITS - 1):
            rest = jnp.where(jnp.isfinite(parts[0]), rest - parts[-1].astype(array.dtype), 0)
            parts.append(rest.astype(jnp.float32))
    return parts


class _Scalar(NamedTuple):
    name: str
    at: tuple[int, ...]  # The index of the scalar in the array.
    part: int


class Decoder:
    """Combines the scalars of a step into metrics: numbers and numpy arrays."""

    def __init__(self, names: Sequence[str]) -> None:
        self._scalars = [_parse(name) for name in names]
        last: dict[str, tuple[int, ...]] = {}
        for scalar in self._scalars:
            last[scalar.name] = max(last.get(scalar.name, ()), scalar.at)
        self._shapes = {name: tuple(i + 1 for i in index) for name, index in last.items()}
        self._wide = {scalar.name for scalar in self._scalars if scalar.part}

    def __call__(self, values: Sequence[float]) -> dict[str, Any]:
        dtype_of = lambda name: np.float64 if name in self._wide else np.float32
        metrics: dict[str, Any] = {name: np.zeros(shape, dtype_of(name)) if shape else 0.0
                                   for name, shape in self._shapes.items()}
        for scalar, value in zip(self._scalars, values):
            if scalar.at:
                metrics[scalar.name][scalar.at] += value
            else:
                metrics[scalar.name] += value
        return metrics


def _parse(name: str) -> _Scalar:
    found = _NAME.fullmatch(name)
    assert found is not None
    index = tuple(int(i) for i in (found["index"] or "").split(",") if i)
    return _Scalar(found["name"], index, int(found["part"] or 0))

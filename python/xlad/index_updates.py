"""x.at[index], which reads a part of a remote array or returns a changed copy of the array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from xlad import indexing


class Array(Protocol):
    """The members of RemoteArray that this module uses."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def run(self, key: Any, function: Callable[..., Any], *others: Any) -> Any: ...


class At:
    """x.at of a remote array."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> IndexUpdate:
        return IndexUpdate(self._array, index)


class IndexUpdate:
    """x.at[index] of a remote array. Its methods are those of jax.Array.at, and compute on the cluster.

    `options` are the keyword arguments that the method of JAX has: mode, indices_are_sorted, unique_indices and
    wrap_negative_indices. Without a mode, a single number that is out of range raises IndexError, as in x[index].
    """

    def __init__(self, array: Array, index: Any) -> None:
        self._array = array
        self._index = index

    def _run(self, name: str, key: Any, call: Callable[..., Any], options: dict[str, Any], *values: Any) -> Any:
        """Returns call(x.at[index], *values, **options), computed on the cluster. Equal names and keys mean equal
        functions."""
        found = indexing.split(self._index, self._array.shape, is_checked=options.get("mode") is None)

        def function(array: Any, *passed: Any) -> Any:
            rest = passed[: len(values)]
            return call(array.at[found.place(*passed[len(values) :])], *rest, **options)

        key = ("at", name, key, found.static, repr(sorted(options.items())))
        return self._array.run(key, function, *values, *found.arrays)

    def _changed(self, name: str, value: Any, options: dict[str, Any]) -> Any:
        call = lambda at, given, **named: getattr(at, name)(given, **named)
        return self._run(name, None, call, options, value)

    def get(self, *, fill_value: Any = None, **options: Any) -> Any:
        if fill_value is not None:
            options["fill_value"] = np.asarray(fill_value).item()  # Equal keys of operations need an exact repr.
        return self._run("get", None, lambda at, **named: at.get(**named), options)

    def apply(self, function: Callable[[Any], Any], **options: Any) -> Any:
        """`function` becomes a part of the program, which is compiled once for each function object."""
        return self._run("apply", function, lambda at, **named: at.apply(function, **named), options)

    def set(self, value: Any, **options: Any) -> Any:
        return self._changed("set", value, options)

    def add(self, value: Any, **options: Any) -> Any:
        return self._changed("add", value, options)

    def subtract(self, value: Any, **options: Any) -> Any:
        return self._changed("subtract", value, options)

    def multiply(self, value: Any, **options: Any) -> Any:
        return self._changed("multiply", value, options)

    mul = multiply

    def divide(self, value: Any, **options: Any) -> Any:
        return self._changed("divide", value, options)

    def power(self, value: Any, **options: Any) -> Any:
        return self._changed("power", value, options)

    def min(self, value: Any, **options: Any) -> Any:
        return self._changed("min", value, options)

    def max(self, value: Any, **options: Any) -> Any:
        return self._changed("max", value, options)

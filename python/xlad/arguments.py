"""Which arguments of a function are static, which are donated, and how a call passes them."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from xlad.trees import Tree

Key = int | str  # A position, or the name of an argument that is passed by name.

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Call(NamedTuple):
    """The arguments of one call. `static` has pairs of key and value; `donated` has indices into `keys`."""

    keys: tuple[Key, ...]
    values: list[Tree]
    static: tuple[tuple[Key, Any], ...]
    donated: tuple[int, ...]
    # For each key, the position among the arguments that are not static, or None if it can only be passed by name.
    slots: list[int | None]
    slot_count: int

    def names(self) -> list[str]:
        return [f"argument {key}" for key in self.keys]


def _integers(value: Any) -> tuple[int, ...]:
    """Returns an integer or a sequence of integers as a tuple, and raises TypeError for anything else. As in JAX, both
    may be arrays. All arrays have `__index__`, which raises TypeError if the array is not one integer."""
    try:
        return (operator.index(value),)
    except TypeError:
        return tuple(map(operator.index, value))


def apply(function: Callable[..., Any], keys: Sequence[Key], values: Sequence[Tree],
          static: Mapping[Key, Any]) -> Any:
    """Calls the function. `keys` are the keys of `values`; `static` has the static arguments by key."""
    given = {**static, **dict(zip(keys, values))}
    positions = [key for key in given if isinstance(key, int)]
    return function(*(given[i] for i in range(len(positions))),
                    **{key: value for key, value in given.items() if isinstance(key, str)})


def positional(function: Callable[..., Any], default: int) -> int:
    """Returns how many positional arguments to pass to the function: `default`, or the number that it requires or
    allows if it does not accept `default` arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return default
    needed = sum(p.kind in _POSITIONAL and p.default is p.empty for p in parameters)
    if any(p.kind == p.VAR_POSITIONAL for p in parameters):
        return max(default, needed)
    return min(max(default, needed), sum(p.kind in _POSITIONAL for p in parameters))


class Binder:
    """Binds calls to the parameters of a function."""

    def __init__(self, function: Callable[..., Any], *, static_argnums: Any, static_argnames: Any, donate_argnums: Any,
                 donate_argnames: Any) -> None:
        self._name = getattr(function, "__name__", type(function).__name__)
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None
        parameters = [] if self._signature is None else list(self._signature.parameters.values())
        self._positional = [p.name for p in parameters if p.kind in _POSITIONAL]
        self._by_name = {p.name for p in parameters if p.kind != inspect.Parameter.POSITIONAL_ONLY}
        # Whether the function may take more positional arguments than it names, and arguments of any name.
        self._open = self._signature is None or any(p.kind == p.VAR_POSITIONAL for p in parameters)
        self._any_name = self._signature is None or any(p.kind == p.VAR_KEYWORD for p in parameters)
        self._static = self._keys("static", static_argnums, static_argnames)
        self._donated = self._keys("donate", donate_argnums, donate_argnames)
        if both := {self._canonical(key) for key in self._static} & {self._canonical(key) for key in self._donated}:
            raise ValueError(f"{self._name}: found {sorted(both, key=str)} in donate_argnums and in static_argnums, "
                             "expected each in at most one of them")

    def bind(self, arguments: Sequence[Tree], named: Mapping[str, Tree]) -> Call:
        """Binds positional and named arguments. TypeError if the function does not accept them; ValueError if
        the function takes any number of positional arguments and donate_argnums has a position that the call does not
        have."""
        if self._signature is not None:
            try:
                bound = self._signature.bind(*arguments, **named)
            except TypeError as error:
                raise TypeError(f"{self._name}: {error}") from None
            arguments, named = bound.args, bound.kwargs
        given: dict[Key, Tree] = {**dict(enumerate(arguments)), **{name: value for name, value in named.items()}}
        count = len(arguments)
        if wrong := [key for key in self._donated if isinstance(key, int) and not -count <= key < count
                     and self._open]:
            raise ValueError(f"{self._name}: found donate_argnums={wrong[0]}, expected positions of its {count} "
                             "arguments")
        static = {key for key in given if self._is_in(self._static, key, count)}
        keys = tuple(key for key in given if key not in static)
        donated = tuple(i for i, key in enumerate(keys) if self._is_in(self._donated, key, count))
        return Call(keys, [given[key] for key in keys], tuple((key, given[key]) for key in given if key in static),
                    donated, [self._slot(key, count) for key in keys], self._slot_count(count))

    def _keys(self, what: str, numbers: Any, names: Any) -> set[Key]:
        try:
            numbers = () if numbers is None else _integers(numbers)
        except TypeError:
            raise TypeError(f"{self._name}: found {what}_argnums={numbers!r}, expected positions of "
                            "arguments") from None
        names = () if names is None else (names,) if isinstance(names, str) else tuple(names)
        count = len(self._positional)
        for number in numbers:
            if not self._open and not -count <= number < count:
                raise ValueError(f"{self._name}: found {what}_argnums={numbers!r}, expected positions of its {count} "
                                 "arguments")
        for name in names:
            if not self._any_name and name not in self._by_name:
                raise ValueError(f"{self._name}: found {name!r} in {what}_argnames, expected one of "
                                 f"{', '.join(sorted(self._by_name)) or 'none'}")
        keys = [n + count if n < 0 and not self._open else n for n in numbers]
        return {*keys, *names}

    def _canonical(self, key: Key) -> Key:
        return self._positional.index(key) if key in self._positional else key

    def _is_in(self, keys: set[Key], key: Key, count: int) -> bool:
        """Whether an argument is among `keys`, which may name it by its position or by its name."""
        if isinstance(key, int):
            name = self._positional[key] if key < len(self._positional) else None
            return key in keys or key - count in keys or name in keys
        return key in keys or self._canonical(key) in keys

    def _slot(self, key: Key, count: int) -> int | None:
        position = self._canonical(key)
        if not isinstance(position, int):
            return None
        return position - sum(self._is_in(self._static, i, count) for i in range(position))

    def _slot_count(self, count: int) -> int:
        count = count if self._open else len(self._positional)
        return count - sum(self._is_in(self._static, i, count) for i in range(count))

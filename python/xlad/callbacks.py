"""Calls that a program cannot contain. Callbacks into Python, which workers cannot execute, are refused or replaced.

Most callbacks are in the jaxpr of the function. A primitive of a library, such as lineax's linear_solve, may add others
when it is lowered. Only the lowered program shows these.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

_REFUSED = {"debug_callback": "jax.debug.callback", "debug_print": "jax.debug.print",
            "pure_callback": "jax.pure_callback", "io_callback": "io_callback"}
_EXPECTED = ("expected no calls back into Python: workers run no Python; return the values that you need as metrics or "
             "results")
_CALL = re.compile(r"custom_call_target=\"\w*python_\w*callback\".*")
_lock = threading.RLock()


def refuse(jaxpr: Any) -> bool:
    """Raises an error that names the first callback into Python and its line. Accepts calls of equinox.error_if, which
    `without_errors` replaces, and returns whether there are any."""
    found = False
    for eqn in _equations(jaxpr):
        name = eqn.primitive.name
        if name in _REFUSED and _only_raises(eqn.params):
            found = True
        elif name in _REFUSED:
            raise TypeError(f"{_place(eqn)}found {_REFUSED[name]}, {_EXPECTED}")
    return found


def refuse_shard_map(jaxpr: Any, uneven: str) -> None:
    """Raises an error if there is a shard_map, with its line if JAX knows it. `uneven` describes an argument with a
    size that is not divisible by its axes. JAX refuses such an argument, so the jaxpr was made for a mesh whose axes
    have size 1. The function inside a shard_map would compute with axes of size 1."""
    for eqn in _equations(jaxpr):
        if eqn.primitive.name == "shard_map":
            raise ValueError(f"{_place(eqn)}found shard_map and {uneven}, expected sizes that are divisible by their "
                             "axes in a function with shard_map: choose such a size or smaller axes, or split this "
                             "argument by P()")


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yields the equations of a jaxpr, each before those of its inner jaxprs."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)


def refuse_lowered(text: str) -> None:
    """Raises an error if the HLO text contains a callback. `refuse` does not find a callback that a primitive adds when
    it is lowered."""
    if (call := _CALL.search(text)) is not None:
        name = re.search(r'op_name="(?:[^"]*/)?([^"/]+)"', call[0])
        what = f"a callback into Python in {name[1]}" if name else "a callback into Python"
        raise TypeError(f"{_lowered_place(text, call[0])}found {what}, {_EXPECTED}")


@contextlib.contextmanager
def without_errors(found: bool) -> Iterator[dict[str, Any]]:
    """Yields options of jax.stages.Traced.lower. With these options, a failed equinox.error_if raises no error and
    returns NaN (the largest number for integers, true for booleans), as with EQX_ON_ERROR=nan. `found` is the result of
    `refuse`: whether there are such calls. JAX lowers them for an abstract mesh only in this context."""
    parts = _private_parts()
    if parts is None:
        yield {}  # `refuse_lowered` then refuses the calls.
        return
    options = {"_private_parameters": parts.parameters}
    if not found:
        yield options
        return
    with _lock:
        parts.need_devices.discard(parts.pure_callback)
        parts.forget_need()
        try:
            yield options
        finally:
            parts.need_devices.add(parts.pure_callback)
            parts.forget_need()


class _PrivateParts(NamedTuple):
    parameters: Any  # Parameters of the lowering that replace the callbacks of equinox.error_if.
    pure_callback: Any  # The primitive.
    need_devices: set[Any]  # The primitives that cannot be lowered for an abstract mesh.
    forget_need: Callable[[], None]  # Called after a change of `need_devices`, because JAX caches what depends on it.


@functools.cache
def _private_parts() -> _PrivateParts | None:
    """Returns parts of JAX that are not public, or None if another version of JAX does not have them."""
    import jax

    try:
        from jax._src import callback, dispatch
        from jax._src.interpreters import mlir

        primitive, usual = callback.pure_callback_p, callback.pure_callback_lowering
        not_a_number = mlir.lower_fun(_not_a_number, multiple_results=True)

        def rule(context: Any, *arguments: Any, **parameters: Any) -> Any:
            return (not_a_number if _only_raises(parameters) else usual)(context, *arguments, **parameters)

        parts = _PrivateParts(mlir.LoweringParameters(override_lowering_rules=((primitive, rule),)), primitive,
                              dispatch.prim_requires_devices_during_lowering,
                              dispatch.jaxpr_has_prim_requiring_devices.cache_clear)
        is_known = ("_private_parameters" in inspect.signature(jax.stages.Traced.lower).parameters
                    and isinstance(parts.need_devices, set))
        return parts if is_known else None
    except (ImportError, AttributeError, TypeError):
        return None


def _only_raises(parameters: Any) -> bool:
    """Whether the callback belongs to equinox.error_if."""
    function = getattr(parameters.get("callback"), "callback_func", None)
    return getattr(function, "__module__", None) == "equinox._errors"


def _not_a_number(*_: Any, result_avals: Any, **__: Any) -> list[Any]:
    import jax.numpy as jnp

    def of(aval: Any) -> Any:
        if jnp.issubdtype(aval.dtype, jnp.inexact):
            return jnp.full(aval.shape, jnp.nan, aval.dtype)
        largest = True if aval.dtype == bool else np.iinfo(aval.dtype).max
        return jnp.full(aval.shape, largest, aval.dtype)

    return [of(aval) for aval in result_avals]


def _place(eqn: Any) -> str:
    """Returns "step.py:12: ", or "" if the line is not known."""
    try:
        from jax._src import source_info_util

        frame = source_info_util.user_frame(eqn.source_info.traceback)
    except (ImportError, AttributeError, TypeError):
        return ""
    return "" if frame is None else f"{os.path.relpath(frame.file_name)}:{frame.start_line}: "


def _lowered_place(text: str, instruction: str) -> str:
    """Like `_place`, from the tables of source lines in the HLO text."""
    found = re.search(r"stack_frame_id=(\d+)", instruction)
    for table, value in (("StackFrames", r"{file_location_id=(\d+)"), ("FileLocations", r"{(.*)}")):
        found = found and re.search(rf"^{table}\n(?:.+\n)*?{found[1]} {value}", text, re.MULTILINE)
    fields = dict(re.findall(r"(\w+)=(\d+)", found[1])) if found else {}
    file = re.search(rf'^FileNames\n(?:.+\n)*?{fields.get("file_name_id")} "(.*)"', text, re.MULTILINE)
    return f"{os.path.relpath(file[1])}:{fields['line']}: " if file and "line" in fields else ""

"""Callbacks into Python, which workers cannot execute: they are refused or replaced."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

_REFUSED = {"debug_callback": "jax.debug.callback", "debug_print": "jax.debug.print",
            "pure_callback": "jax.pure_callback", "io_callback": "io_callback"}
_lock = threading.RLock()


def refuse(jaxpr: Any) -> bool:
    """Raises an error that names the first callback into Python and its line. Accepts calls of equinox.error_if, which
    `without_errors` replaces, and returns whether there are any."""
    found = False
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in _REFUSED and _only_raises(eqn.params):
            found = True
        elif name in _REFUSED:
            raise TypeError(f"{_place(eqn)}found {_REFUSED[name]}, expected no calls back into Python: workers run no "
                            "Python; return the values that you need as metrics or results")
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    found = refuse(inner) or found
    return found


@contextlib.contextmanager
def without_errors(found: bool) -> Iterator[dict[str, Any]]:
    """Yields options of jax.stages.Traced.lower. With these, equinox.error_if raises no error and returns NaN, as with
    EQX_ON_ERROR=nan (for integers the largest number, for booleans true). Yields no options if `found` is false: the
    program does not call equinox.error_if."""
    if not found:
        yield {}
        return
    from jax._src import callback, dispatch
    from jax._src.interpreters import mlir

    rule = mlir.lower_fun(_not_a_number, multiple_results=True)
    parameters = mlir.LoweringParameters(override_lowering_rules=((callback.pure_callback_p, rule),))
    need_devices = dispatch.prim_requires_devices_during_lowering
    with _lock:
        need_devices.discard(callback.pure_callback_p)
        dispatch.jaxpr_has_prim_requiring_devices.cache_clear()
        try:
            yield {"_private_parameters": parameters}
        finally:
            need_devices.add(callback.pure_callback_p)
            dispatch.jaxpr_has_prim_requiring_devices.cache_clear()


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

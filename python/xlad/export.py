"""Writes a job directory from a JAX training step: what `xlad run` and `xlad submit` take."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from xlad.training import Training, write_directory


def export(
    step: Callable[..., Any],
    state: Any,
    data: Any = None,
    *,
    to: str | pathlib.Path,
    steps: int,
    batch: int | None = None,
    mesh: Any = None,
    in_shardings: Any = None,
    name: str | None = None,
) -> pathlib.Path:
    """Exports `step(state, batch) -> (state, metrics)` to the folder `to`; returns its path.

    step: may take the step number as one more argument, and no batch where `data` is None. metrics is a scalar, the
      loss, or a tree of scalars, of which the one named "loss" is the loss.
    state: a tree of arrays and numbers; random keys may be among them.
    data: a tree of arrays of equal numbers of rows, of which every step takes the next `batch` (none: all), from the
      start again after the last whole batch; or a list or iterator of batches: the first `steps`, again and again
      where there are fewer.
    mesh: {"dp": 4, "tp": 2}, "dp=4,tp=2" or a mesh of JAX; none: one device. A list of meshes gives a program for
      each. No devices are needed.
    in_shardings: how state and batch are split, as (state, batch): each a PartitionSpec, a NamedSharding, a function
      from a leaf's name ("params.w0") to a PartitionSpec, None (not split), or a tree of these. Axes that are in none
      of the meshes are an error; those that are in another of them split nothing.
    """
    training = Training(step, state, data, steps=steps, batch=batch, name=name)
    meshes = mesh if isinstance(mesh, (list, tuple)) else [mesh]
    return write_directory(training, to, meshes, in_shardings)

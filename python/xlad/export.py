"""Writes a job directory, the input of `xlad run` and `xlad submit`, from a JAX training step."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from xlad.batches import DataOptions
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
    drop_last: bool = False,
) -> pathlib.Path:
    """Exports `step(state, batch) -> (state, metrics)` to the folder `to`; returns its path.

    step: may take the step number as one more argument, and takes no batch if `data` is None. metrics is the loss, a
      scalar, or a tree of scalars with one named "loss".
    state: a tree of arrays, numbers and random keys.
    data: a tree of arrays with equal numbers of rows. Each step takes the next `batch` rows (default: all) and starts
      again after the last complete batch. Or a list or iterator of batches, of which the first `steps` are used,
      starting again if there are fewer.
    mesh: {"dp": 4, "tp": 2}, "dp=4,tp=2" or a mesh of JAX; default: one device. A list of meshes exports a program for
      each. No devices are needed.
    in_shardings: how state and batch are split, as (state, batch): each a PartitionSpec, a NamedSharding, a function
      from a leaf's name ("params.w0") to a PartitionSpec, None (replicated), or a tree of these. An axis that no mesh
      has is an error; an axis of another mesh of the list splits nothing.
    drop_last: batches of a list or an iterator that have fewer rows than the first one are left out.
    """
    training = Training(step, state, data, steps=steps, options=DataOptions(batch, drop_last=drop_last), name=name)
    meshes = mesh if isinstance(mesh, (list, tuple)) else [mesh]
    return write_directory(training, to, meshes, in_shardings)

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

    step: may take the step number as one more argument, and takes no batch if `data` is None. metrics is a number,
      which is the loss, or a tree of numbers and arrays of at most 1024 elements, in which the loss is named "loss".
    state: a tree of arrays, numbers and random keys.
    steps: the number of steps to train.
    data: a tree of arrays with equal numbers of rows. Each step takes the next `batch` rows (default: all), and the
      first rows again after the last complete batch. It may also be a list or an iterator of batches: the first
      `steps` batches are used, and if there are fewer, they are used again from the first one.
    mesh: {"dp": 4, "tp": 2}, "dp=4,tp=2" or a mesh of JAX; default: one device. A list of meshes exports a program for
      each. No devices are needed.
    in_shardings: how state and batch are split, as a pair (state, batch). Each entry is a PartitionSpec, a
      NamedSharding, None (not split), a function, or a tree of these. A function takes a leaf's name ("params.w0"), or
      its name and its ShapeDtypeStruct, and returns a PartitionSpec or a NamedSharding. An axis that is in no mesh of
      the list is an error; in meshes that lack an axis of the list, that axis is ignored.
    name: the name of the job; default: the name of the step.
    drop_last: whether batches of a list or an iterator that have fewer rows than the first one are skipped.
    """
    training = Training(step, state, data, steps=steps, options=DataOptions(batch, drop_last=drop_last), name=name)
    meshes = mesh if isinstance(mesh, (list, tuple)) else [mesh]
    return write_directory(training, to, meshes, in_shardings)

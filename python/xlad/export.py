"""Writes a job directory from a JAX training step: what `xlad run` and `xlad submit` take.

The format is described in docs/job-directory.md.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class MeshSpec:
    """One mesh to export the step for.

    axes: axis sizes, in order; empty for one device.
    state: PartitionSpec of a state leaf, by its name ("params.w0").
    data: PartitionSpec of a data array, by its name.
    """

    axes: Mapping[str, int]
    state: Callable[[str], Any] | None = None
    data: Callable[[str], Any] | None = None


def export(
    directory: str | pathlib.Path,
    step: Callable[..., tuple[Any, dict[str, Any]]],
    state: Any,
    data: Mapping[str, np.ndarray],
    *,
    batch: int,
    steps: int,
    meshes: Mapping[str, MeshSpec],
    name: str | None = None,
    about: str = "",
    tolerance: float = 2e-4,
    curve: bool = True,
) -> pathlib.Path:
    """Exports `step(state, batch, t) -> (state, {"loss": ..., metrics ...})`.

    `state` is a pytree of arrays; `data` maps names to arrays with equal numbers of rows, of which step t takes rows
    [i * batch, (i + 1) * batch) with i = t modulo the number of whole batches. With `curve`, also runs all steps on
    one device in JAX and writes the losses to curve.json.
    """
    import jax

    out = pathlib.Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    rows = {len(array) for array in data.values()}
    if len(rows) != 1:
        raise ValueError(f"found data arrays with {sorted(rows)} rows, expected equal numbers")
    count = rows.pop() // batch
    if count == 0:
        raise ValueError(f"found fewer than {batch} rows of data, expected at least one batch")

    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    state_names = [_name(path) for path, _ in leaves]
    example = {key: np.asarray(array[:batch]) for key, array in data.items()}
    manifest = _manifest(step, state, example, state_names)
    manifest["name"] = name or out.name
    manifest["about"] = about
    manifest["jax"] = jax.__version__
    manifest["steps"] = steps
    manifest["batches"] = {"file": "data.safetensors", "batch": batch, "count": count}
    manifest["tolerance"] = {"loss_relative": tolerance}
    manifest["meshes"] = [_lower(out, step, state, example, key, mesh) for key, mesh in meshes.items()]

    _save(out / "state.safetensors", {n: np.asarray(leaf) for n, (_, leaf) in zip(state_names, leaves)})
    _save(out / "data.safetensors", {key: np.asarray(array) for key, array in data.items()})
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    if curve:
        (out / "curve.json").write_text(json.dumps(_run(step, state, data, batch, count, steps)) + "\n")
    return out


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path)


def _shape(value: Any) -> str:
    types = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "pred"}
    dtype = str(value.dtype)
    short = types.get(dtype) or dtype.replace("uint", "u").replace("int", "s")
    return f"{short}[{','.join(str(size) for size in value.shape)}]"


def _manifest(step, state, example, state_names: list[str]) -> dict[str, Any]:
    import jax

    new_state, metrics = jax.eval_shape(step, state, example, np.int32(0))
    if "loss" not in metrics:
        raise ValueError(f"found metrics {sorted(metrics)}, expected one named loss")
    leaves = jax.tree_util.tree_leaves(state)
    parameters = [
        {"index": i, "name": n, "shape": _shape(leaf), "kind": "state"}
        for i, (n, leaf) in enumerate(zip(state_names, leaves))
    ]
    for key in sorted(example):
        parameters.append({"index": len(parameters), "name": key, "shape": _shape(example[key]), "kind": "data"})
    parameters.append({"index": len(parameters), "name": "step", "shape": "s32[]", "kind": "step"})
    results = [
        {"index": i, "name": n, "shape": _shape(leaf), "feeds": i, "kind": "state"}
        for i, (n, leaf) in enumerate(zip(state_names, jax.tree_util.tree_leaves(new_state)))
    ]
    for key in sorted(metrics):
        kind = "loss" if key == "loss" else "metric"
        results.append({"index": len(results), "name": key, "shape": "f32[]", "feeds": None, "kind": kind})
    return {"parameters": parameters, "results": results, "donated": list(range(len(leaves)))}


def _lower(out: pathlib.Path, step, state, example, key: str, spec: MeshSpec) -> dict[str, Any]:
    """Lowers the step for one mesh without needing its devices, and writes program text and proto."""
    import jax
    from jax.sharding import AbstractMesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    options: dict[str, Any] = {"donate_argnums": 0, "keep_unused": True}
    if spec.axes:
        mesh = AbstractMesh(tuple(spec.axes.values()), tuple(spec.axes))
        place = lambda rule, leaf_name: NamedSharding(mesh, (rule(leaf_name) if rule else None) or P())  # noqa: E731
        states = jax.tree_util.tree_map_with_path(lambda path, _: place(spec.state, _name(path)), state)
        datas = {name: place(spec.data, name) for name in example}
        options["in_shardings"] = (states, datas, NamedSharding(mesh, P()))
        options["out_shardings"] = (states, NamedSharding(mesh, P()))
    # Source files by their path from here, so that errors and explanations read the same on every machine.
    here = re.escape(os.getcwd() + os.sep)
    before = jax.config.jax_hlo_source_file_canonicalization_regex
    jax.config.update("jax_hlo_source_file_canonicalization_regex", here)
    try:
        traced = jax.jit(step, **options).trace(state, example, np.int32(0))
        program = traced.lower(lowering_platforms=("cpu",)).compiler_ir("hlo")
    finally:
        jax.config.update("jax_hlo_source_file_canonicalization_regex", before)
    # The module's own printer keeps the source lines, which as_hlo_text leaves out.
    module = program.get_hlo_module() if hasattr(program, "get_hlo_module") else None
    (out / f"step.{key}.hlo").write_text(module.to_string() if module else program.as_hlo_text())
    (out / f"step.{key}.hlo.pb").write_bytes(program.as_serialized_hlo_module_proto())
    devices = int(np.prod(list(spec.axes.values()), dtype=int))
    files = [f"step.{key}.hlo", f"step.{key}.hlo.pb"]
    return {"name": key, "axes": dict(spec.axes), "devices": devices, "files": files}


def _run(step, state, data, batch: int, count: int, steps: int) -> dict[str, Any]:
    import jax

    run = jax.jit(step)
    losses = []
    metrics: dict[str, list[float]] = {}
    for t in range(steps):
        i = t % count
        rows = {key: np.asarray(array[i * batch : (i + 1) * batch]) for key, array in data.items()}
        state, values = run(state, rows, np.int32(t))
        losses.append(float(values["loss"]))
        for key, value in values.items():
            if key != "loss":
                metrics.setdefault(key, []).append(float(value))
    return {"steps": steps, "meshes": {"single": {"loss": losses, "metrics": metrics}}}


def _save(path: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, path)

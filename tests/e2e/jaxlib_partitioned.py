r"""Runs a partitioned and the unpartitioned program in jaxlib and compares their results.

An independent check of the output of `xlad partition`: XLA loads the per-device module and runs it on N virtual CPU
devices. The results, assembled from the shards, must equal those of the unpartitioned program on one device.

    python jaxlib_partitioned.py --job JOBDIR --mesh dp4_tp2 --partitioned step.partitioned.hlo.pb \
        --axes dp=4,tp=2 [--steps 3]
    python jaxlib_partitioned.py --job JOBDIR --whole step.single.hlo.pb --partitioned local.hlo.pb \
        --axes dp=8 --specs specs.json

--partitioned is a serialized HloModuleProto. --specs is a JSON file with the shardings of parameters and results:
{"parameters": [spec, ...], "results": [spec, ...]}. A spec has one list of axis names per dimension. Without --specs,
the shardings are from the job's manifest: parameters have their parameter_shardings, a result that feeds a parameter
has the parameter's sharding, and other results are replicated.
"""

import argparse
import ast
import json
import os
import pathlib
import sys


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", type=pathlib.Path, required=True, help="job directory (manifest, state, data)")
    parser.add_argument("--mesh", help="name of the mesh in the manifest")
    parser.add_argument("--whole", type=pathlib.Path, help="the program for one device; default: the job's")
    parser.add_argument("--partitioned", type=pathlib.Path, required=True)
    parser.add_argument("--axes", required=True, help="dp=4,tp=2")
    parser.add_argument("--specs", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--rtol", type=float, default=1e-4)
    parser.add_argument("--atol", type=float, default=1e-5)
    return parser.parse_args()


ARGS = parse_arguments()
AXES = {name: int(size) for name, size in (part.split("=") for part in ARGS.axes.split(",") if part)}
DEVICES = 1
for _size in AXES.values():
    DEVICES *= _size
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402  (flags must be set first)
import numpy as np  # noqa: E402
from jax._src.lib import _jax, xla_client as xc  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402


def load_computation(path):
    data = path.read_bytes()
    if data.lstrip().startswith(b"HloModule"):
        sys.exit(f"{path}: found HLO text, expected a serialized HloModuleProto, because jaxlib cannot read text")
    return _jax.mlir.xla_computation_to_mlir_module(xc.XlaComputation(data))


def compile_program(path, devices):
    options = xc.CompileOptions()
    options.num_replicas = 1
    options.num_partitions = len(devices)
    build = options.executable_build_options
    build.num_replicas = 1
    build.num_partitions = len(devices)
    build.use_spmd_partitioning = len(devices) > 1
    ids = np.array([[device.id for device in devices]])
    build.device_assignment = xc.DeviceAssignment.create(ids)
    client = devices[0].client
    return client.compile_and_load(load_computation(path), _jax.DeviceList(tuple(devices)), options)


def coordinates(device):
    result = {}
    for name in reversed(list(AXES)):
        result[name] = device % AXES[name]
        device //= AXES[name]
    return result


def box_of(shape, spec, device):
    """Returns the slice of every dimension that a device holds, and the padded local shape."""
    at = coordinates(device)
    slices, local = [], []
    for size, axes in zip(shape, spec):
        count, position = 1, 0
        for axis in axes:
            position = position * AXES[axis] + at[axis]
            count *= AXES[axis]
        shard = -(-size // count)
        slices.append(slice(min(size, position * shard), min(size, (position + 1) * shard)))
        local.append(shard)
    return tuple(slices), tuple(local)


def shard(array, spec, device):
    slices, local = box_of(array.shape, spec, device)
    result = np.zeros(local, array.dtype)
    part = array[slices]
    result[tuple(slice(0, n) for n in part.shape)] = part
    return result


def join(shards, shape, spec):
    result = np.zeros(shape, shards[0].dtype)
    for device, part in enumerate(shards):
        slices, _ = box_of(shape, spec, device)
        result[slices] = part[tuple(slice(0, s.stop - s.start) for s in slices)]
    return result


def execute(executable, devices, inputs_by_device):
    """Runs a program on inputs_by_device[d][p], for device d and parameter p. Returns results[r][d], for result r."""
    arguments = []
    for p in range(len(inputs_by_device[0])):
        pieces = [jax.device_put(inputs_by_device[d][p], devices[d]) for d in range(len(devices))]
        if len(devices) == 1:
            arguments.append(pieces[0])
            continue
        mesh = jax.sharding.Mesh(np.array(devices), ("all",))
        shape = (len(devices) * pieces[0].shape[0], *pieces[0].shape[1:]) if pieces[0].ndim else ()
        spec = jax.sharding.PartitionSpec("all") if pieces[0].ndim else jax.sharding.PartitionSpec()
        sharding = jax.sharding.NamedSharding(mesh, spec)
        arguments.append(jax.make_array_from_single_device_arrays(shape, sharding, pieces))
    results = executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
    return [[np.asarray(piece) for piece in result] for result in results]


def spec_from_text(text, ndim):
    """Converts a text such as "P('dp', None)" to a list of axis names for each dimension: [["dp"], []]."""
    text = text.strip()
    entries = ast.literal_eval(text[1:] if text.startswith("P") else text)
    entries = list(entries) if isinstance(entries, tuple) else [entries]
    spec = [[] if e is None else list(e) if isinstance(e, (tuple, list)) else [e] for e in entries]
    return spec + [[]] * (ndim - len(spec))


def manifest_specs(manifest, mesh):
    def ndim(entry):
        inside = entry["shape"].split("[")[1].rstrip("]")
        return len(inside.split(",")) if inside else 0

    parameters = manifest["parameters"]
    specs = [spec_from_text(text, ndim(p)) for text, p in zip(mesh["parameter_shardings"], parameters)]
    results = [specs[r["feeds"]] if isinstance(r.get("feeds"), int) else [[]] * ndim(r) for r in manifest["results"]]
    return {"parameters": specs, "results": results}


def step_inputs(manifest, state, data, t):
    i = t % manifest["batches"]["count"]
    batch = manifest["batches"]["batch"]
    inputs = []
    for p in manifest["parameters"]:
        if p["kind"] == "step":
            inputs.append(np.int32(t))
        elif p["kind"] == "data":
            inputs.append(data[p["name"]][i * batch : (i + 1) * batch])
        else:
            inputs.append(state[p["name"]])
    return [np.asarray(x) for x in inputs]


def compare(name, got, expected):
    if got.shape != expected.shape or got.dtype != expected.dtype:
        sys.exit(f"{name}: found {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}")
    if not np.issubdtype(got.dtype, np.inexact) and got.dtype.name != "bfloat16":
        if not np.array_equal(got, expected):
            at = tuple(np.argwhere(got != expected)[0].tolist())
            sys.exit(f"{name}: element {list(at)}: found {got[at]}, expected {expected[at]}")
        return 0.0
    wide = np.complex128 if np.issubdtype(got.dtype, np.complexfloating) else np.float64
    a, b = got.astype(wide), expected.astype(wide)
    if not np.allclose(a, b, rtol=ARGS.rtol, atol=ARGS.atol, equal_nan=True):
        sys.exit(f"{name}: largest difference {np.nanmax(np.abs(a - b))}, expected differences within "
                 f"--rtol {ARGS.rtol} and --atol {ARGS.atol}")
    return float(np.nanmax(np.abs(a - b))) if a.size else 0.0


def main():
    manifest = json.loads((ARGS.job / "manifest.json").read_text())
    mesh = next(m for m in manifest["meshes"] if m["name"] == ARGS.mesh) if ARGS.mesh else None
    specs = json.loads(ARGS.specs.read_text()) if ARGS.specs else manifest_specs(manifest, mesh)
    state = load_file(ARGS.job / "state.safetensors")
    data = load_file(ARGS.job / "data.safetensors")
    devices = jax.devices()[:DEVICES]
    whole = compile_program(ARGS.whole or ARGS.job / "step.single.hlo.pb", devices[:1])
    partitioned = compile_program(ARGS.partitioned, devices)
    for t in range(ARGS.steps):
        inputs = step_inputs(manifest, state, data, t)
        expected = [result[0] for result in execute(whole, devices[:1], [inputs])]
        local = [[shard(x, spec, d) for x, spec in zip(inputs, specs["parameters"])] for d in range(DEVICES)]
        shards = execute(partitioned, devices, local)
        worst = 0.0
        for r, entry in enumerate(manifest["results"]):
            got = join(shards[r], expected[r].shape, specs["results"][r])
            worst = max(worst, compare(f"step {t}, result {entry['name']}", got, expected[r]))
            if isinstance(entry.get("feeds"), int):
                state[manifest["parameters"][entry["feeds"]]["name"]] = expected[r]
        print(f"step {t}: {len(manifest['results'])} results agree, largest difference {worst:.3g}")


if __name__ == "__main__":
    main()

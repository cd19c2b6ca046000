"""Runs a job directory on one mesh in jaxlib. Reads the same commands from standard input as xlad_side.cc.

    python jax_side.py JOBDIR MESH DEVICES      MESH is a name in the manifest, or single

XLAD_BENCH_PLATFORM is the platform of JAX; the default is cpu.

The program is compiled and called as in jax.jit: StableHLO (or HLO) to MeshExecutable, then the C++ fast path with
donated arguments. Batches are on the devices before the clock starts. Results that feed the next step stay there.
"""

import json
import os
import pathlib
import resource
import sys
import time

JOB, MESH, DEVICES = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
os.environ["JAX_PLATFORMS"] = os.environ.get("XLAD_BENCH_PLATFORM", "cpu")
os.environ["JAX_ENABLE_X64"] = "1"  # Otherwise JAX converts arrays of f64 to f32.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402  (flags must be set first)
import numpy as np  # noqa: E402
from jax._src import core, sharding_impls, stages  # noqa: E402
from jax._src.interpreters import mlir, pxla  # noqa: E402
from jax._src.lib import _jax, xla_client  # noqa: E402
from jaxlib import _hlo, lapack  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402


def read_program():
    """Returns the job's program as a StableHLO module: from the portable artifact if there is one,
    otherwise from HLO."""
    path = JOB / f"step.{MESH}"
    context = mlir.make_ir_context()
    portable = path.with_name(path.name + ".mlirbc")
    if portable.exists():
        with context:
            return _jax.mlir.deserialize_portable_artifact(portable.read_bytes(), context)
    proto = path.with_name(path.name + ".hlo.pb")
    if proto.exists():
        data = proto.read_bytes()
    else:
        text = path.with_name(path.name + ".hlo").read_text()
        data = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    text = _jax.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(data))
    with context:
        return mlir.ir.Module.parse(text)


def avals_of(entries):
    def aval(text):
        kind, rest = text.split("[")
        dims = [int(d) for d in rest.split("]")[0].split(",") if d]
        names = {"pred": "bool", "bf16": "bfloat16", "s": "int", "u": "uint", "f": "float"}
        name = names.get(kind) or names[kind[0]] + kind[1:]
        return core.ShapedArray(tuple(dims), jax.numpy.dtype(name))

    return [aval(entry["shape"]) for entry in entries]


class Side:
    def __init__(self):
        self.manifest = json.loads((JOB / "manifest.json").read_text())
        self.devices = jax.devices()[:DEVICES]
        self.step = 0
        self.call = None
        # JAX finds SciPy's LAPACK when it first lowers a routine. Programs that were lowered in another process would
        # call null pointers without it.
        lapack._lapack.initialize()
        # Starts the client and LLVM before any measurement.
        jax.jit(lambda x: x + 1)(np.float32(1)).block_until_ready()

    def compile(self):
        hlo = read_program()
        inputs, outputs = avals_of(self.manifest["parameters"]), avals_of(self.manifest["results"])
        unspecified = sharding_impls.UNSPECIFIED
        options = {
            "global_in_avals": inputs,
            "global_out_avals": outputs,
            "in_shardings": [unspecified] * len(inputs),
            "out_shardings": [unspecified] * len(outputs),
            "tuple_args": False,
            "unordered_effects": [],
            "ordered_effects": [],
            "host_callbacks": [],
            "keepalive": None,
            "kept_var_idx": set(range(len(inputs))),
            "backend": self.devices[0].client,
            "device_list": _jax.DeviceList(tuple(self.devices)),
            "committed": True,
            "in_layouts": [None] * len(inputs),
            "out_layouts": [None] * len(outputs),
            "compiler_options_kvs": (),
            "num_devices": DEVICES,
        }
        if DEVICES == 1:
            single = jax.sharding.SingleDeviceSharding(self.devices[0])
            options["in_shardings"] = [single] * len(inputs)
            options["out_shardings"] = [single] * len(outputs)
        start = time.perf_counter()
        executable = pxla.UnloadedMeshExecutable.from_hlo("step", hlo, **options)
        return executable, (time.perf_counter() - start) * 1e3

    def build(self):
        executable, milliseconds = self.compile()
        if self.call is None:
            self.prepare(executable)
        return {"build_ms": milliseconds}

    def prepare(self, executable):
        parameters, results = self.manifest["parameters"], self.manifest["results"]
        self.executable = executable
        trees = [jax.tree.structure(((0,) * len(parameters), {})), jax.tree.structure([0] * len(results))]
        params = stages.CompiledCallParams(executable, True, *trees, [], None, None)
        self.call = executable.create_cpp_call(params)
        self.shardings = executable._in_shardings
        state = load_file(JOB / "state.safetensors")
        data = load_file(JOB / "data.safetensors") if (JOB / "data.safetensors").exists() else {}
        put = lambda p, value: jax.device_put(value, self.shardings[p])  # noqa: E731
        self.arguments = [None] * len(parameters)
        self.batches = []
        if data:
            count, batch = self.manifest["batches"]["count"], self.manifest["batches"]["batch"]
            for i in range(count):
                rows = slice(i * batch, (i + 1) * batch)
                of_data = [(p, e["name"]) for p, e in enumerate(parameters) if e["kind"] == "data"]
                self.batches.append([(p, put(p, data[name][rows])) for p, name in of_data])
        self.step_parameters = [p for p, e in enumerate(parameters) if e["kind"] == "step"]
        for p, entry in enumerate(parameters):
            if entry["kind"] in ("state", "rng"):
                self.arguments[p] = put(p, state[entry["name"]])
        feeds = [(r, e.get("feeds")) for r, e in enumerate(results) if isinstance(e.get("feeds"), int)]
        out = executable._out_shardings
        self.feeds = [(r, p, not out[r].is_equivalent_to(self.shardings[p], len(executable.in_avals[p].shape)))
                      for r, p in feeds if p >= 0]
        self.losses = [r for r, e in enumerate(results) if e["kind"] in ("loss", "metric")]

    def run_steps(self, count):
        if self.call is None:
            self.build()
        arguments = self.arguments
        jax.block_until_ready(arguments)
        start = time.perf_counter()
        for _ in range(count):
            if self.batches:
                for p, rows in self.batches[self.step % len(self.batches)]:
                    arguments[p] = rows
            for p in self.step_parameters:
                arguments[p] = jax.device_put(np.int32(self.step), self.shardings[p])
            results = self.call(*arguments)
            for r, p, moves in self.feeds:
                arguments[p] = jax.device_put(results[r], self.shardings[p]) if moves else results[r]
            self.step += 1
            jax.block_until_ready([results[r] for r in self.losses])
        jax.block_until_ready(arguments)
        return {"ms": (time.perf_counter() - start) * 1e3, "steps": count}

    def memory(self):
        s = self.executable.xla_executable.get_compiled_memory_stats()
        plan = s.argument_size_in_bytes + s.output_size_in_bytes - s.alias_size_in_bytes + s.temp_size_in_bytes
        return {"plan_bytes": plan, "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main():
    side = Side()
    for line in sys.stdin:
        words = line.split()
        if words[0] == "build":
            answer = side.build()
        elif words[0] == "steps":
            answer = side.run_steps(int(words[1]))
        elif words[0] == "memory":
            answer = side.memory()
        else:
            sys.exit(f"jax_side: found {line!r}, expected build, steps N or memory")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

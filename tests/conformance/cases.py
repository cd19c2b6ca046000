"""Conformance cases: programs with inputs and expected results, in a folder with a manifest.jsonl.

A case is HLO text, inputs, and expected results from jaxlib's CPU backend or from a function of the caller. `xlad eval
--corpus` reads the folder. Element types that are not in PLAIN are stored as bytes.
"""

import dataclasses
import json
import multiprocessing
import os
import pathlib
import re
import subprocess

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402  (the platform must be set first)
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from jax._src.lib import _jax, xla_client  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

jax.config.update("jax_enable_x64", True)

DTYPES = {
    "pred": np.bool_, "s2": ml_dtypes.int2, "s4": ml_dtypes.int4, "s8": np.int8, "s16": np.int16, "s32": np.int32,
    "s64": np.int64, "u2": ml_dtypes.uint2, "u4": ml_dtypes.uint4, "u8": np.uint8, "u16": np.uint16,
    "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "c64": np.complex64, "c128": np.complex128, "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3": ml_dtypes.float8_e4m3, "f8e3m4": ml_dtypes.float8_e3m4, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz, "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "f4e2m1fn": ml_dtypes.float4_e2m1fn,
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
SIGNED = ["s2", "s4", "s8", "s16", "s32", "s64"]
UNSIGNED = ["u2", "u4", "u8", "u16", "u32", "u64"]
INTEGERS = SIGNED + UNSIGNED
F8 = [name for name in DTYPES if name.startswith("f8")]
FLOATS = ["f16", "bf16", "f32", "f64"]
COMPLEX = ["c64", "c128"]
BITS = {name: int(re.search(r"\d+", name).group()) if name != "pred" else 8 for name in DTYPES}
PLAIN = {"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "pred", "c64"}


def shape_text(array):
    return f"{NAMES[array.dtype]}[{','.join(map(str, array.shape))}]"


def stored(array):
    """Returns the array in the form that safetensors stores."""
    name = NAMES[array.dtype]
    array = np.ascontiguousarray(array).reshape(array.shape)
    if name in PLAIN:
        return array
    data = np.frombuffer(array.tobytes(), np.uint8).reshape(*array.shape, array.dtype.itemsize)
    if BITS[name] < 8:
        data = data & ((1 << BITS[name]) - 1)
    return data[..., 0] if array.dtype.itemsize == 1 else data


@dataclasses.dataclass
class Case:
    """`compare` has one entry per result, or one for all results. `expected` is None until the results are known.

    If `processes` is not 1, `inputs` and `expected` have a list for each process. `extra` is added to the entry of the
    manifest."""

    name: str
    text: str
    inputs: list
    compare: list
    expected: list = None
    processes: int = 1
    replicas: int = 1
    extra: dict = dataclasses.field(default_factory=dict)

    def tensors(self):
        if self.processes == 1:
            sets = [("", self.inputs, self.expected)]
        else:
            sets = [(f"p{k}.", self.inputs[k], self.expected[k]) for k in range(self.processes)]
        found = {}
        for prefix, inputs, outputs in sets:
            found.update({f"{prefix}in.{i}": stored(x) for i, x in enumerate(inputs)})
            found.update({f"{prefix}out.{i}": stored(x) for i, x in enumerate(outputs)})
        return found

    def manifest(self):
        inputs = self.inputs if self.processes == 1 else self.inputs[0]
        outputs = self.expected if self.processes == 1 else self.expected[0]
        compare = self.compare if len(self.compare) == len(outputs) else self.compare * len(outputs)
        entry = {"name": self.name, "family": self.name.split("/")[0], "opcodes": opcodes_of(self.text),
                 "params": [shape_text(x) for x in inputs], "results": [shape_text(x) for x in outputs],
                 "compare": compare}
        if self.processes > 1:
            entry.update(replicas=self.replicas, partitions=self.processes // self.replicas)
        return {**entry, **self.extra}


def opcodes_of(text):
    names = set()
    for line in text.splitlines():
        # The opcode follows the shape, directly before a parenthesis. The shape of a tuple is in parentheses.
        found = re.search(r"^\s*(?:ROOT )?%?[\w.-]+ = (?:\(.*?\)|\S+) ([a-z][\w-]*)\(", line)
        if found:
            names.add(found.group(1))
    return sorted(names)


def write(folder, cases):
    folder = pathlib.Path(folder)
    with open(folder_made(folder) / "manifest.jsonl", "w") as manifest:
        for case in sorted(cases, key=lambda case: case.name):
            path = folder / f"{case.name}.hlo"
            folder_made(path.parent)
            path.write_text(case.text)
            save_file(case.tensors(), folder / f"{case.name}.safetensors")
            manifest.write(json.dumps(case.manifest(), separators=(",", ":")) + "\n")


def folder_made(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def evaluate(xlad, folder, *flags):
    """Returns {name: (passed, message)} for all cases."""
    done = subprocess.run([xlad, "eval", "--corpus", folder, "--format", "json", *flags], capture_output=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"xlad eval: exit {done.returncode}: {done.stderr.decode()}")
    return {case["name"]: (case["passed"], case["message"]) for case in json.loads(done.stdout)["cases"]}


class Refused(Exception):
    """`xlad opt` or the reference cannot process the program; the text is the reason."""


def to_proto(xlad, text):
    done = subprocess.run([xlad, "opt", "-", "--emit", "proto", "-o", "-"], input=text.encode(), capture_output=True)
    if done.returncode != 0:
        raise Refused("xlad opt: " + done.stderr.decode().strip())
    return done.stdout


def run_in_jaxlib(proto, inputs):
    """Returns the results of a serialized HloModuleProto on XLA's CPU backend, in a flat list."""
    device = jax.devices()[0]
    try:
        module = _jax.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(proto))
        options = xla_client.CompileOptions()
        program = device.client.compile_and_load(module, _jax.DeviceList((device,)), options)
        arguments = [jax.device_put(x, device) for x in inputs]
        results = program.execute_sharded(arguments).disassemble_into_single_device_arrays()
    except Exception as error:  # jaxlib raises several kinds of errors.
        raise Refused(str(error).splitlines()[0][:300]) from error
    return [np.asarray(result[0]) for result in results]


class Jaxlib:
    """Runs jaxlib in a separate process, because some programs abort it. The process is restarted after each abort,
    and if it does not answer within 60 s."""

    def __init__(self):
        self.process = None

    def run(self, proto, inputs):
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=serve, args=(other,), daemon=True)
            self.process.start()
            other.close()
        try:
            self.pipe.send((proto, inputs))
            if not self.pipe.poll(60):
                raise EOFError
            ok, answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.kill()
            self.process = None
            raise Refused("jaxlib aborts or hangs") from error
        if not ok:
            raise Refused(answer)
        return answer


def serve(pipe):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while True:
        try:
            proto, inputs = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, run_in_jaxlib(proto, inputs)))
        except Refused as error:
            pipe.send((False, str(error)))

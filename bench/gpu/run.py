"""Checks the results of a GPU and measures its speed: loss curves of the examples, step times compared with jax.jit,
and the speed of copies and transposes.

    python3 bench/gpu/run.py                              all job directories with a curve.json
    python3 bench/gpu/run.py --only cnn,lstm --json gpu.json

Without a GPU, the script prints "no GPU here" with xlad's reason, and the exit code is 2.

curve   the largest relative difference of a loss from the job directory's curve.json, next to the manifest's tolerance
step    milliseconds of a step: the median of `xlad run` on one GPU, and that of jax.jit if JAX's CUDA plugin is
        installed. A ratio is JAX's time over xlad's: above 1, xlad is faster
kernels bytes read and written per second, next to those of the driver's copy of the same array: the best of --rounds
        rounds of ten launches each. xlad compiles the kernels

Job directories are those of $XLAD_EXAMPLES and of examples/. Jobs run on one device, so they have no collectives. The
exit code is 1 if a curve leaves the tolerance or a job fails.
"""

import argparse
import ctypes
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "bench" / "step_vs_jax"))
import step_vs_jax  # noqa: E402

KERNELS = {
    "copy (negate)": "ENTRY main {{ x = f32[{n},{n}] parameter(0) ROOT r = f32[{n},{n}] negate(x) }}",
    "transpose": "ENTRY main {{ x = f32[{n},{n}] parameter(0) "
                 "ROOT r = f32[{n},{n}] transpose(x), dimensions={{1,0}} }}",
    "transpose of [n,8]": "ENTRY main {{ x = f32[{tall},8] parameter(0) "
                          "ROOT r = f32[8,{tall}] transpose(x), dimensions={{1,0}} }}",
}


def xlad(flags, *args):
    return subprocess.run([str(flags.build / "xlad"), *map(str, args)], capture_output=True, text=True)


def gpu_row(flags):
    kinds = {row["kind"]: row for row in json.loads(xlad(flags, "version", "--format", "json").stdout)["devices"]}
    return kinds["cuda"]


def curve(job, flags):
    """Trains a job, and returns its row or its error."""
    manifest = json.loads((job / "manifest.json").read_text())
    with tempfile.TemporaryDirectory() as where:
        path = pathlib.Path(where) / "curve.json"
        steps = ["--steps", flags.steps] if flags.steps else []
        done = xlad(flags, "run", job, "--device", "cuda:1", "--workers", 1, "--curve", path, "--compile-tier",
                    "optimized", *steps)
        if done.returncode != 0:
            return {"error": (done.stdout + done.stderr).strip()[-300:]}
        found = json.loads(path.read_text())
    expected = json.loads((job / "curve.json").read_text())["meshes"]["single"]["loss"]
    pairs = list(zip(found["loss"], expected))
    return {"steps": len(pairs), "difference": max(abs(a - b) / abs(b) for a, b in pairs),
            "tolerance": manifest["tolerance"]["loss_relative"], "xlad_ms": statistics.median(found["step_ms"])}


def jax_ms(job, flags):
    """Returns the milliseconds of a step of jax.jit on the GPU, or None if this Python has no JAX for GPUs."""
    os.environ["XLAD_BENCH_PLATFORM"] = "cuda"
    script = REPO / "bench/step_vs_jax/jax_side.py"
    side = step_vs_jax.Side("jax", [sys.executable, str(script), str(job), "single", "1"], None)
    try:
        side.ask("build")
        steps = step_vs_jax.block_size(side, 300)
        return statistics.median(side.step_ms(steps) for _ in range(flags.rounds))
    except RuntimeError:
        return None
    finally:
        side.close()


class Driver:
    """The functions of the CUDA driver with which kernels are launched and timed."""

    def __init__(self):
        self.library = ctypes.CDLL(os.environ.get("XLAD_CUDA_DRIVER") or "libcuda.so.1")
        self.context, self.stream, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def call(self, name, *args):
        code = getattr(self.library, name)(*args)
        if code != 0:
            raise RuntimeError(f"{name}: CUDA error {code}")

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def seconds(self, enqueue, rounds):
        """Returns the mean seconds of ten successive calls, in the fastest of `rounds` rounds."""
        enqueue()
        self.call("cuStreamSynchronize", self.stream)
        best = float("inf")
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(10):
                enqueue()
            self.call("cuStreamSynchronize", self.stream)
            best = min(best, (time.perf_counter() - start) / 10)
        return best


def compile_kernel(text, where, flags):
    """Returns the PTX of a program of one kernel, and the number of its blocks."""
    program, ptx, executable = where / "program.hlo", where / "program.ptx", where / "executable"
    program.write_text(f"HloModule kernel\n{text}\n")
    target = ["--target", f"nvptx-{flags.target}"]
    for output in (["--emit", "ptx", "-o", ptx], ["-o", executable]):
        done = xlad(flags, "compile", program, *target, *output)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
    decode = ["protoc", f"-I{REPO}", "--decode=xlad.Executable", "proto/executable.proto"]
    steps = subprocess.run(decode, stdin=executable.open("rb"), capture_output=True, check=True).stdout
    return ptx.read_bytes() + b"\0", int(re.search(rb"tiles: (\d+)", steps).group(1))


def rates(driver, text, flags):
    """Returns the bytes per second of the program's kernel, and of a copy of the same array by the driver."""
    size = 4 * flags.side ** 2
    with tempfile.TemporaryDirectory() as where:
        ptx, blocks = compile_kernel(text.format(n=flags.side, tall=flags.side ** 2 // 8), pathlib.Path(where), flags)
    name, threads = re.search(rb"\.entry (\w+)\(.*?\.reqntid (\d+)", ptx, re.S).groups()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuModuleLoadDataEx", ctypes.byref(module), ptx, 0, None, None)
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, name)
    memory = [driver.allocate(size), driver.allocate(size)]
    values = [*memory, ctypes.c_uint64(0), ctypes.c_uint64(0)]  # The kernels use neither scratch nor the api.
    arguments = (ctypes.c_void_p * 4)(*[ctypes.addressof(value) for value in values])

    def launch():
        driver.call("cuLaunchKernel", function, blocks, 1, 1, int(threads), 1, 1, 0, driver.stream, arguments, None)

    def copy():
        driver.call("cuMemcpyAsync", memory[1], memory[0], ctypes.c_size_t(size), driver.stream)

    found = [2 * size / driver.seconds(enqueue, flags.rounds) for enqueue in (launch, copy)]
    for address in memory:
        driver.call("cuMemFree_v2", address)
    driver.call("cuModuleUnload", module)
    return found


def jobs(flags):
    folders = [REPO / "examples"] + ([pathlib.Path(flags.examples)] if flags.examples else [])
    found = [manifest.parent for folder in folders for manifest in sorted(folder.glob("*/manifest.json"))]
    wanted = flags.only.split(",") if flags.only else None
    return [job for job in found if (job / "curve.json").exists() and (wanted is None or job.name in wanted)]


def measure_jobs(flags):
    print(f"{'example':18} {'steps':>5} {'difference':>10} {'tolerance':>9} {'xlad ms':>9} {'jax ms':>9} {'ratio':>6}")
    rows = []
    for job in jobs(flags):
        row = {"example": job.name, **curve(job, flags)}
        rows.append(row)
        if "error" in row:
            print(f"{job.name:18} FAILED: {row['error']}", flush=True)
            continue
        row["jax_ms"] = jax_ms(job, flags)
        jax = f"{row['jax_ms']:9.3f} {row['jax_ms'] / row['xlad_ms']:6.2f}" if row["jax_ms"] else f"{'-':>9} {'-':>6}"
        print(f"{job.name:18} {row['steps']:5} {row['difference']:10.2e} {row['tolerance']:9.0e} {row['xlad_ms']:9.3f} "
              f"{jax}", flush=True)
    return rows


def measure_kernels(flags):
    print(f"\n{'kernel':18} {'GB/s':>9} {'copy GB/s':>9} {'share':>6}   f32[{flags.side},{flags.side}]")
    driver, rows = Driver(), []
    for name, text in KERNELS.items():
        kernel, copy = rates(driver, text, flags)
        rows.append({"kernel": name, "bytes_per_s": kernel, "copy_bytes_per_s": copy})
        print(f"{name:18} {kernel / 1e9:9.1f} {copy / 1e9:9.1f} {kernel / copy:6.2f}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPO / "build/release/bin", help="folder with xlad")
    parser.add_argument("--examples", default=os.environ.get("XLAD_EXAMPLES"))
    parser.add_argument("--only", default="", help="names of job directories, comma-separated")
    parser.add_argument("--steps", type=int, default=0, help="steps; default: as in the manifests")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--side", type=int, default=8192, help="rows and columns of the array that kernels move")
    parser.add_argument("--target", default="sm_90", choices=("sm_80", "sm_90"), help="the GPU that kernels are for")
    parser.add_argument("--json", type=pathlib.Path)
    flags = parser.parse_args()
    gpu = gpu_row(flags)
    if not gpu["available"]:
        print(f"no GPU here: {gpu['reason']}")
        return 2
    if os.environ.get("XLAD_CUDA_DRIVER"):
        print(f"XLAD_CUDA_DRIVER is {os.environ['XLAD_CUDA_DRIVER']}: times are not those of NVIDIA's driver")
    print(f"libraries: {gpu['libraries']}")
    rows = measure_jobs(flags)
    kernels = measure_kernels(flags)
    if flags.json:
        flags.json.write_text(json.dumps({"libraries": gpu["libraries"], "examples": rows, "kernels": kernels},
                                              indent=1))
    return 1 if any("error" in row or row["difference"] > row["tolerance"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

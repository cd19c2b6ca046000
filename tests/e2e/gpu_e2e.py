"""GPUs on machines without a GPU. Simulated GPUs train like CPUs, and kernels pass all checks. Devices of kind cuda
train with a test double of NVIDIA's driver. Without a driver, requests for them are refused.
"""

import itertools
import json
import os
import pathlib
import struct
import subprocess
import sys
import unittest
from unittest import mock

from harness import (ALL_CASES, OWN_EXAMPLES, REPO, XLAD, cluster, folder, job_directories, mesh_text, one_of,
                     wait_for, xlad)

JOB = OWN_EXAMPLES / "spiral_mlp"
DRIVER_DOUBLE = pathlib.Path(XLAD).parent / "libxlad_cuda_driver_double.so"
CUBLASLT_DOUBLE = pathlib.Path(XLAD).parent / "libxlad_cublaslt_double.so"


def driver(library, settings="", cublaslt="off"):
    """Chooses the libraries that replace NVIDIA's driver and cuBLASLt, and the properties of the test doubles."""
    return mock.patch.dict(os.environ, {"XLAD_CUDA_DRIVER": str(library), "XLAD_CUDA_DOUBLE": settings,
                                        "XLAD_CUBLASLT": str(cublaslt)})


# A step of several kernels: a product, elementwise operations and a sum.
SMALL = """HloModule small
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  w = f32[16,16] parameter(0)
  p = f32[16,16] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,16] tanh(p)
  zero = f32[] constant(0)
  loss = f32[] reduce(t, zero), dimensions={0,1}, to_apply=add
  m = f32[16,16] multiply(w, t)
  n = f32[16,16] subtract(w, m)
  ROOT r = (f32[16,16], f32[]) tuple(n, loss)
}
"""


def small_job(where):
    """Writes a job whose steps take much less time on the test double than those of the examples."""
    where.mkdir()
    (where / "step.hlo").write_text(SMALL)
    header = json.dumps({"w": {"dtype": "F32", "shape": [16, 16], "data_offsets": [0, 1024]}}).encode()
    numbers = [(1 + i * i % 17) / 200 for i in range(256)]
    (where / "state.safetensors").write_bytes(
        struct.pack("<Q", len(header)) + header + struct.pack("<256f", *numbers))
    state = {"index": 0, "name": "w", "shape": "f32[16,16]", "kind": "state"}
    (where / "manifest.json").write_text(json.dumps({
        "name": "small", "steps": 22, "parameters": [state],
        "results": [{**state, "feeds": 0}, {"index": 1, "name": "loss", "shape": "f32[]", "kind": "loss"}],
        "meshes": [{"name": "single", "axes": {}, "files": ["step.hlo"]}]}))
    return where


class GpuTest(unittest.TestCase):
    def train(self, directory, axes, device, where, steps=4):
        """Returns the losses of `steps` steps on two workers."""
        curve = where / "curve.json"
        mesh = ["--mesh", mesh_text(axes)] if axes else []
        code, _, err = xlad("run", directory, *mesh, "--workers", 2, "--steps", steps, "--device", device, "--curve",
                            curve)
        self.assertEqual(code, 0, err)
        return json.loads(curve.read_text())["loss"]

    def test_simulated_gpus_train_like_cpu_devices(self):
        for directory, manifest in job_directories():
            for mesh in manifest["meshes"] if ALL_CASES else manifest["meshes"][-1:]:
                with self.subTest(example=directory.name, mesh=mesh["name"]), folder() as where:
                    cpu = self.train(directory, mesh["axes"], "cpu", where)
                    gpu = self.train(directory, mesh["axes"], "gpu_sim", where)
                    # Sums of columns are computed in another order.
                    for a, b in zip(cpu, gpu, strict=True):
                        self.assertAlmostEqual(a, b, delta=1e-5 * abs(a))

    def test_kernels_of_training_access_memory_without_errors(self):
        more = os.environ.get("XLAD_EXAMPLES")
        manifests = sorted(pathlib.Path(more).glob("*/manifest.json")) if more else []
        for directory in [JOB] + [manifest.parent for manifest in manifests]:
            if directory.name == "nano_gpt" and not ALL_CASES:
                continue  # The checks of nano_gpt_bf16, which is the same model, take less time.
            with self.subTest(example=directory.name), folder() as where:
                self.train(directory, {}, "gpu_sim_checked", where, steps=1)

    def test_requests_for_gpus_are_refused_with_the_reason(self):
        for library, settings, words in (
                ("libcuda_that_is_missing.so.1", "", ["libcuda_that_is_missing.so.1", "cannot be loaded", "gpu_sim"]),
                (DRIVER_DOUBLE, "version=11040", ["for CUDA 11.4, expected CUDA 12.0 or later"]),
                (DRIVER_DOUBLE, "devices=0", ["finds no GPU", "CUDA_VISIBLE_DEVICES"]),
                (DRIVER_DOUBLE, "capability=70", ["found compute capability 7.0, expected 8.0 or later"])):
            with driver(library, settings):
                for command in (("run", JOB), ("up",), ("worker", "--coordinator", "127.0.0.1:1"), ("bench",)):
                    with self.subTest(command=command[0], settings=settings):
                        code, _, err = xlad(*command, "--device", "cuda:1")
                        self.assertNotEqual(code, 0)
                        for word in ("cuda", *words):
                            self.assertIn(word, err)
                self.assertFalse(self.kinds()["cuda"]["available"])

    def test_jobs_fail_with_the_error_of_the_driver(self):
        for settings, words in (
                ("memory=4096", ["cannot allocate", "of its 4096 bytes are free"]),
                ("fail=cuModuleLoadDataEx:218", ["cannot load the PTX", "CUDA_ERROR_INVALID_PTX"]),
                ("fail=cuLaunchKernel:719:5", ["CUDA_ERROR_LAUNCH_FAILED", "the last kernel"])):
            with self.subTest(settings=settings), driver(DRIVER_DOUBLE, settings), folder() as where:
                code, out, err = xlad("run", small_job(where / "job"), "--device", "cuda:1", "--workers", 1)
                self.assertNotEqual(code, 0)
                for word in words:
                    self.assertIn(word, out + err)

    def test_a_job_that_fails_on_a_gpu_does_not_affect_one_on_the_cpu(self):
        with driver(DRIVER_DOUBLE, "fail=cuLaunchKernel:719:5"), cluster(workers=0, devices=1) as made:
            made.start_worker("w0", "--device", "cuda:1,cpu:1")
            wait_for(lambda: len(made.status()["workers"]) == 1, "the worker to register")
            on_gpu = made.submit(small_job(made.where / "job"), "--device", "cuda:1")
            on_cpu = made.submit(JOB, "--steps", 2, "--device", "cpu:1")
            wait_for(lambda: made.job(on_cpu)["state"] == "SUCCEEDED", "the job on the CPU to succeed")
            wait_for(lambda: made.job(on_gpu)["state"] == "FAILED", "the job on the GPU to fail")
            self.assertIn("CUDA_ERROR_LAUNCH_FAILED", made.job(on_gpu)["reason"])

    def test_the_ptx_trains_like_jax(self):
        manifests = dict(job_directories())
        cases = itertools.product(("off", CUBLASLT_DOUBLE), manifests)
        for cublaslt, directory in one_of(2 if len(manifests) > 1 else 1, cases):
            with self.subTest(example=directory.name, cublaslt=cublaslt), folder() as where:
                with driver(DRIVER_DOUBLE, cublaslt=cublaslt):
                    expected = json.loads((directory / "curve.json").read_text())["meshes"]["single"]["loss"]
                    found = self.train(directory, {}, "cuda", where, steps=2)
                    self.assertEqual(len(found), 2)
                    for a, b in zip(found, expected):
                        tolerance = manifests[directory]["tolerance"]["loss_relative"]
                        self.assertAlmostEqual(a, b, delta=tolerance * abs(b))

    def test_graphs_do_not_change_the_losses(self):
        # Steps 17 and later that are not traced are launched as graphs.
        made = self.enterContext(folder())
        job, curves = small_job(made / "job"), []
        for number, (setting, library) in enumerate((
                ("", "libxlad_cuda_driver_double.so"), ("off", "libxlad_cuda_driver_double.so"),
                ("", "libxlad_cuda_driver_double_without_graphs.so"))):
            data, curve = made / f"data{number}", made / f"curve{number}.json"
            with driver(DRIVER_DOUBLE.parent / library), mock.patch.dict(os.environ, {"XLAD_CUDA_GRAPHS": setting}):
                code, _, err = xlad("run", job, "--workers", 1, "--device", "cuda:1", "--curve", curve, "--data", data)
            self.assertEqual(code, 0, err)
            curves.append(json.loads(curve.read_text())["loss"])
            logs = "".join(log.read_text() for log in data.glob("*.log"))
            is_plain = setting == "off" or "without" in library
            self.assertEqual("kernels are launched one by one, without graphs" in logs, is_plain)
            self.assertNotIn("their graph cannot be made", logs)
        self.assertEqual(len(set(curves[0])), 22, "the losses of all steps differ")
        self.assertEqual(curves[0], curves[1])
        self.assertEqual(curves[0], curves[2])
        with driver(DRIVER_DOUBLE, "fail=cuGraphLaunch:719:1"):
            code, out, err = xlad("run", job, "--device", "cuda:1", "--workers", 1)
        self.assertNotEqual(code, 0)
        self.assertIn("cuGraphLaunch (a graph that ends with", out + err)

    def test_a_mix_with_cuda_devices_trains_like_cpu_devices(self):
        with driver(DRIVER_DOUBLE), folder() as where:
            cpu = self.train(JOB, {"dp": 4}, "cpu", where, steps=2)
            mixed = self.train(JOB, {"dp": 4}, "cuda:2,cpu:1,gpu_sim:1", where, steps=2)
            for a, b in zip(cpu, mixed, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-5 * abs(a))

    def test_collectives_on_cuda_devices_and_a_mix(self):
        with driver(DRIVER_DOUBLE):
            for device in ("cuda:2", "cpu:1,cuda:2"):
                code, out, err = xlad("bench", "--device", device, "--max-bytes", 1024, "--repeats", 2, "--format",
                                      "json")
                self.assertEqual(code, 0, err)
                self.assertEqual(json.loads(out)[0]["launches"]["cuda"], 4)

    def test_processes_share_the_memory_of_a_gpu(self):
        with driver(DRIVER_DOUBLE), folder() as where:
            runs = {}
            for workers, media in ((1, {"device memory"}), (2, {"shared device memory"})):
                curve = where / f"curve{workers}.json"
                code, _, err = xlad("run", JOB, "--mesh", "dp=2", "--steps", 2, "--device", "cuda", "--workers",
                                    workers, "--curve", curve)
                self.assertEqual(code, 0, err)
                runs[workers] = json.loads(curve.read_text())
                self.assertEqual(set(runs[workers]["collectives"]), media)
            self.assertEqual(runs[1]["loss"], runs[2]["loss"])
        with driver(DRIVER_DOUBLE, "fail=cuIpcOpenMemHandle_v2:801"), folder() as where:
            curve = where / "curve.json"
            code, _, err = xlad("run", JOB, "--mesh", "dp=2", "--steps", 2, "--device", "cuda", "--workers", 2,
                                "--curve", curve)
            self.assertEqual(code, 0, err)
            staged = json.loads(curve.read_text())
            self.assertEqual(staged["loss"], runs[1]["loss"])
            self.assertIn("cannot open the memory of device", "".join(staged["collectives"]))

    def test_errors_in_device_memory_have_the_cause(self):
        for function in ("cuStreamWaitEvent", "cuEventRecord", "cuLaunchKernel"):
            for calls in (5, 16, 19):
                failure = f"fail={function}:719:{calls}"
                with self.subTest(failure=failure), driver(DRIVER_DOUBLE, failure):
                    code, _, err = xlad("bench", "--device", "cuda:3", "--max-bytes", 1024, "--repeats", 20)
                    self.assertEqual(code, 1, err)
                    self.assertIn("CUDA_ERROR_LAUNCH_FAILED", err)

    def test_the_measurement_on_gpus(self):
        def measure(*flags):
            script = [sys.executable, REPO / "bench/gpu/run.py", "--build", pathlib.Path(XLAD).parent, *flags]
            done = subprocess.run(list(map(str, script)), capture_output=True, text=True, timeout=300)
            return done.returncode, done.stdout + done.stderr

        with driver("libcuda_that_is_missing.so.1"):
            code, out = measure()
            self.assertEqual(code, 2, out)
            self.assertIn("no GPU here: NVIDIA's driver (libcuda_that_is_missing.so.1) cannot be loaded", out)
        with driver(DRIVER_DOUBLE), folder() as where:
            code, out = measure("--only", "spiral_mlp", "--steps", 1, "--rounds", 1, "--side", 64, "--json",
                                where / "gpu.json")
            self.assertEqual(code, 0, out)
            found = json.loads((where / "gpu.json").read_text())
        self.assertEqual([row["example"] for row in found["examples"]], ["spiral_mlp"])
        self.assertEqual(len(found["kernels"]), 3)

    def test_own_kernels_replace_a_missing_cublaslt(self):
        for settings, library, words in (
                ("", "libcublasLt_that_is_missing.so.12", "libcublasLt_that_is_missing.so.12) cannot be loaded"),
                ("cublaslt=110403", CUBLASLT_DOUBLE, "found cuBLASLt 11.4.3"),
                ("fail=cublasLtCreate:1", CUBLASLT_DOUBLE, "cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED (1)")):
            with self.subTest(words=words), driver(DRIVER_DOUBLE, settings, library), folder() as where:
                code, _, err = xlad("run", small_job(where / "job"), "--steps", 1, "--device", "cuda:1", "--workers", 1,
                                    "--data", where / "data")
                self.assertEqual(code, 0, err)
                logs = "".join(log.read_text() for log in (where / "data").glob("*.log"))
                self.assertIn("xlad's own kernels compute matrix products", logs)
                self.assertIn(words, logs)

    def test_jobs_fail_with_the_error_of_cublaslt(self):
        for function in ("cublasLtMatmulAlgoGetHeuristic:14", "cublasLtMatmul:13:5"):
            fails = driver(DRIVER_DOUBLE, f"fail={function}", CUBLASLT_DOUBLE)
            with self.subTest(function=function), fails, folder() as where:
                code, out, err = xlad("run", small_job(where / "job"), "--device", "cuda:1", "--workers", 1)
                self.assertNotEqual(code, 0)
                for word in (function.split(":")[0], "cuBLASLt 13.1.0", "CUBLAS_STATUS_"):
                    self.assertIn(word, out + err)

    def kinds(self):
        code, out, _ = xlad("version", "--format", "json")
        self.assertEqual(code, 0)
        return {row["kind"]: row for row in json.loads(out)["devices"]}

    def test_version_lists_the_kinds(self):
        self.assertTrue(self.kinds()["gpu_sim"]["available"])
        for cublaslt, words in ((CUBLASLT_DOUBLE, "matrix products by cuBLASLt 13.1.0"),
                                ("off", "matrix products by xlad's own kernels: cuBLASLt is not used")):
            with driver(DRIVER_DOUBLE, cublaslt=cublaslt):
                self.assertTrue(self.kinds()["cuda"]["available"])
                self.assertIn(words, self.kinds()["cuda"]["libraries"])


if __name__ == "__main__":
    unittest.main()

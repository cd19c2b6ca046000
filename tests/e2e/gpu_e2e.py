"""Simulated GPUs: they train as CPUs do, kernels pass all checks, and requests for real GPUs are refused."""

import json
import os
import pathlib
import unittest

from harness import OWN_EXAMPLES, folder, job_directories, mesh_text, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"


class GpuTest(unittest.TestCase):
    def train(self, directory, axes, device, where, steps=4):
        """The losses of some steps on two workers."""
        curve = where / f"{device}.json"
        mesh = ["--mesh", mesh_text(axes)] if axes else []
        code, _, err = xlad("run", directory, *mesh, "--workers", 2, "--steps", steps, "--device", device, "--curve",
                            curve)
        self.assertEqual(code, 0, err)
        return json.loads(curve.read_text())["loss"]

    def test_simulated_gpus_train_like_cpu_devices(self):
        for directory, manifest in job_directories():
            for mesh in manifest["meshes"]:
                with self.subTest(example=directory.name, mesh=mesh["name"]), folder() as where:
                    cpu = self.train(directory, mesh["axes"], "cpu", where)
                    gpu = self.train(directory, mesh["axes"], "gpu_sim", where)
                    # Sums of columns are added in another order.
                    for a, b in zip(cpu, gpu, strict=True):
                        self.assertAlmostEqual(a, b, delta=1e-5 * abs(a))

    def test_kernels_of_training_access_memory_without_errors(self):
        more = os.environ.get("XLAD_EXAMPLES")
        manifests = sorted(pathlib.Path(more).glob("*/manifest.json")) if more else []
        for directory in [JOB] + [manifest.parent for manifest in manifests]:
            with self.subTest(example=directory.name), folder() as where:
                self.train(directory, {}, "gpu_sim_checked", where, steps=1)

    def test_requests_for_real_gpus_are_refused_with_the_reason(self):
        for command in (("run", JOB), ("up",), ("worker", "--coordinator", "127.0.0.1:1")):
            code, _, err = xlad(*command, "--device", "cuda:1")
            self.assertNotEqual(code, 0)
            for word in ("cuda", "libcuda.so.1", "gpu_sim"):
                self.assertIn(word, err)

    def test_version_lists_the_kinds(self):
        code, out, _ = xlad("version", "--format", "json")
        self.assertEqual(code, 0)
        kinds = {row["kind"]: row for row in json.loads(out)["devices"]}
        self.assertTrue(kinds["gpu_sim"]["available"])
        self.assertFalse(kinds["cuda"]["available"])


if __name__ == "__main__":
    unittest.main()

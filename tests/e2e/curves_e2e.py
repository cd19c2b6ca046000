"""Trains examples (job_directories) on every mesh, with 1 worker process and with 2 or 4. The losses must be close to
the curve of the example, and the losses and the final state must have the same bits for all numbers of processes."""

import json
import unittest

from harness import ALL_CASES, expected_losses, folder, job_directories, mesh_text, xlad


class Curves(unittest.TestCase):
    maxDiff = 400

    def train(self, directory, axes, workers, where, tag):
        curve, state = where / f"{tag}.json", where / f"{tag}.safetensors"
        mesh = ["--mesh", mesh_text(axes)] if axes else []
        code, _, err = xlad("run", directory, *mesh, "--workers", workers, "--curve", curve, "--save-state", state)
        self.assertEqual(code, 0, err)
        return json.loads(curve.read_text()), state.read_bytes()

    def test_follow_the_curve_with_the_same_bits_on_any_number_of_workers(self):
        for directory, manifest in job_directories():
            tolerance = manifest["tolerance"]["loss_relative"]
            for number, mesh in enumerate(manifest["meshes"]):
                others = (2, 4) if ALL_CASES else ((2, 4)[number % 2],)
                with self.subTest(example=directory.name, mesh=mesh["name"]), folder() as where:
                    first = None
                    for workers in (1, *others):
                        curve, state = self.train(directory, mesh["axes"], workers, where, f"w{workers}")
                        for step, (found, want) in enumerate(
                            zip(curve["loss"], expected_losses(directory, mesh["name"]), strict=True)
                        ):
                            self.assertLessEqual(abs(found - want), tolerance * abs(want),
                                                 f"step {step}, {workers} workers")
                        if first is None:
                            first = (curve["loss"], state)
                        self.assertEqual(curve["loss"], first[0], f"losses with {workers} workers")
                        self.assertTrue(state == first[1], f"final state with {workers} workers differs")

    def test_sizes_are_rebound_by_axis_name(self):
        directory, _ = next(iter(job_directories()))
        with folder() as where:
            for axes in ({"dp": 6}, {"dp": 5}, {"dp": 2, "tp": 3}):
                with self.subTest(axes=axes):
                    curve, _ = self.train(directory, axes, 2, where, "rebound")
                    want = expected_losses(directory, "single")
                    for found, wanted in zip(curve["loss"], want, strict=True):
                        self.assertLessEqual(abs(found - wanted), 5e-4 * abs(wanted))


if __name__ == "__main__":
    unittest.main()

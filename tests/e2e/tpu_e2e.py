"""Simulated TPUs train the examples within the stated tolerance, and report the time of each step by unit."""

import json
import unittest

from harness import OWN_EXAMPLES, REPO, expected_losses, folder, job_directories, mesh_text, some, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
# docs/reference/tpu.md states this tolerance: f32 products are computed from bf16 factors.
TOLERANCE = 0.1


class Tpu(unittest.TestCase):
    maxDiff = 400

    def run_job(self, directory, where, *args):
        curve = where / "curve.json"
        code, _, err = xlad("run", directory, "--curve", curve, *args)
        self.assertEqual(code, 0, err)
        return json.loads(curve.read_text()), err

    def test_examples_follow_their_curves_on_any_number_of_workers(self):
        for directory, manifest in job_directories():
            for mesh in some(manifest["meshes"]):
                with self.subTest(example=directory.name, mesh=mesh["name"]), folder() as where:
                    axes = ["--mesh", mesh_text(mesh["axes"])] if mesh["axes"] else []
                    first = None
                    for workers in (1, 2, 4):
                        curve, _ = self.run_job(directory, where, *axes, "--workers", workers, "--device", "tpu_sim")
                        for step, (found, want) in enumerate(
                            zip(curve["loss"], expected_losses(directory, mesh["name"]), strict=True)
                        ):
                            error = abs(found - want)
                            self.assertLessEqual(error, TOLERANCE * abs(want), f"step {step}, {workers} workers")
                        if first is None:
                            first = curve
                        self.assertEqual(curve["loss"], first["loss"], f"{workers} workers")
                        self.assertEqual(curve["simulated"], first["simulated"], f"{workers} workers")
                    self.assertTrue(all(us > 0 for us in first["simulated"]["step_us"]))

    def test_every_step_reports_its_units(self):
        with folder() as where:
            curve, err = self.run_job(JOB, where, "--mesh", "dp=4,tp=2", "--steps", 3, "--device", "tpu_sim:v4:8")
            time = curve["simulated"]
            self.assertEqual(time["topology"], "v4-2x2x2")
            self.assertIn("simulated on v4-2x2x2", err)
            self.assertEqual(set(time["units"]), {"mxu", "vpu", "hbm", "ici"})
            for values in (time["step_us"], time["stall_us"], *time["units"].values()):
                self.assertEqual(len(values), 3)
                self.assertGreater(values[0], 0)

    def test_the_time_of_a_run_is_that_of_simulate(self):
        with folder() as where:
            curve, _ = self.run_job(JOB, where, "--mesh", "dp=4,tp=2", "--steps", 1, "--device", "tpu_sim:v5e")
            code, out, err = xlad("simulate", JOB, "--topology", "v5e-2x4", "--mesh", "dp=4,tp=2", "--format", "json")
            self.assertEqual(code, 0, err)
            self.assertAlmostEqual(json.loads(out)["step_us"], curve["simulated"]["step_us"][0], places=3)

    def test_a_chip_file_changes_the_time_and_a_wrong_one_is_refused(self):
        with folder() as where:
            text = (REPO / "deploy" / "chips" / "v5e.toml").read_text()
            chip = where / "slow.toml"
            chip.write_text(text.replace("819 GB/s", "8.19 GB/s"))
            slow, _ = self.run_job(JOB, where, "--steps", 2, "--device", f"tpu_sim:{chip}")
            fast, _ = self.run_job(JOB, where, "--steps", 2, "--device", "tpu_sim:v5e")
            self.assertEqual(slow["loss"], fast["loss"])
            self.assertAlmostEqual(slow["simulated"]["units"]["hbm"][0] / fast["simulated"]["units"]["hbm"][0], 100, 3)
            chip.write_text(text.replace("819 GB/s", "819 GB"))
            code, _, err = xlad("run", JOB, "--device", f"tpu_sim:{chip}")
            self.assertNotEqual(code, 0)
            for word in ("slow.toml:", 'found "819 GB"', "expected"):
                self.assertIn(word, err)

    def test_unknown_chips_are_refused(self):
        for command in (("run", JOB), ("up",), ("worker",), ("bench",)):
            code, _, err = xlad(*command, "--device", "tpu_sim:v5f")
            self.assertIn(code, (1, 2))
            for word in ('found chip "v5f"', "v6e", "did you mean v5e?"):
                self.assertIn(word, err)

    def test_profile_has_simulated_times(self):
        code, out, err = xlad("run", JOB, "--profile", "--steps", 2, "--device", "tpu_sim:v5e", "--format", "json")
        self.assertEqual(code, 0, err)
        profile = json.loads(out)
        self.assertEqual(profile["simulated"]["topology"], "v5e-1x1")
        self.assertGreater(sum(kernel["simulated_us"] for kernel in profile["kernels"]), 0)

    def test_compile_prints_the_instructions(self):
        code, out, err = xlad("compile", JOB, "--target", "tpu-v5e", "--emit", "llo")
        self.assertEqual(code, 0, err)
        for word in ("on v5e: ", "dma.in", "vmat.push", "loop"):
            self.assertIn(word, out)
        code, _, err = xlad("compile", JOB, "--emit", "llo")
        self.assertNotEqual(code, 0)
        self.assertIn("tpu-v5e", err)


if __name__ == "__main__":
    unittest.main()

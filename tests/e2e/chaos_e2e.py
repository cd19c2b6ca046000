"""`xlad chaos` with a fixed seed, for a few seconds."""

import contextlib
import json
import os
import pathlib
import unittest

from harness import OWN_EXAMPLES, Cluster, folder, xlad


class Chaos(unittest.TestCase):
    def chaos(self, job, *args):
        code, out, err = xlad("chaos", job, "--workers", 2, "--seed", 5, "--format", "json", *args)
        self.assertEqual(code, 0, out + err)
        return json.loads(out)

    def test_killed_processes_cost_steps_but_no_results(self):
        with folder() as where:
            report = self.chaos(OWN_EXAMPLES / "spiral_mlp", "--steps", 2000, "--period", 1.5, "--data", where,
                                "--faults", "kill-attempt,kill-coordinator")
            self.check_starts(where / "disturbed")
        self.assertEqual(report["mesh"], "dp=8", "the first mesh of the manifest with axes")
        self.assertEqual(report["steps"], 2000)
        for result in ("succeeded", "same_parameters", "same_losses"):
            self.assertTrue(report[result], report)
        kinds = {fault["kind"] for fault in report["faults"]}
        self.assertIn("kill-attempt", kinds, "the seed begins with this fault")
        self.assertLessEqual(kinds, {"kill-attempt", "kill-coordinator"})
        lost = report["lost"]
        # A fault may hit between two attempts, or before the first step.
        self.assertLessEqual(lost["attempts"], len(report["faults"]), report)
        self.assertLess(lost["steps"], max(1, lost["attempts"]) * report["steps"], report)
        if lost["attempts"] > 0:
            self.assertGreater(lost["seconds"]["lost"], 0, report)
        # The client is started before the job is submitted, and ends after the job.
        self.assertTrue(0.5 < sum(report["time_s"].values()) / report["disturbed_s"] <= 1, report)
        self.assertGreater(report["goodput"], 0, report)

    def check_starts(self, where):
        """Checks in the log of the job that its attempts start from checkpoints. A coordinator that is away for some
        seconds commits none, so the number of repeated steps has no useful limit."""
        with contextlib.closing(Cluster(where, workers=0, devices=1)) as made:
            events = made.events(made.ps()[0]["id"])
        starts = [event["step"] for event in events if event["kind"] == "placed"]
        ends = [event.get("step", 0) for event in events if event["kind"] == "attempt_ended"]
        self.assertEqual(starts, sorted(starts), "an attempt started from an older checkpoint than the one before it")
        # There is a checkpoint every 10 steps, so an attempt that has run 500 steps has left one.
        if any(end - start >= 500 for start, end in zip(starts[:-1], ends)):
            self.assertGreater(starts[-1], 0, "no attempt started from a checkpoint")

    @unittest.skipUnless("XLAD_EXAMPLES" in os.environ, "XLAD_EXAMPLES is not set")
    def test_a_job_without_a_mesh_of_one_axis_dp(self):
        job = pathlib.Path(os.environ["XLAD_EXAMPLES"]) / "ring_shard_map"
        report = self.chaos(job, "--steps", 20, "--period", 1000)
        self.assertEqual(report["faults"], [])
        self.assertEqual((report["lost"]["attempts"], report["lost"]["steps"]), (0, 0))


if __name__ == "__main__":
    unittest.main()

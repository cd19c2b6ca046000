"""`xlad chaos` with a fixed seed, for a few seconds."""

import contextlib
import json
import os
import pathlib
import unittest

from harness import OWN_EXAMPLES, Cluster, folder, xlad


class Chaos(unittest.TestCase):
    def chaos(self, job, *args):
        # With the kinds and the period of the first test, this seed kills attempts 1.1, 3.3 and 8.1 s after the start,
        # while the coordinator runs, and the coordinator after 5.7 and 10.9 s.
        code, out, err = xlad("chaos", job, "--workers", 2, "--seed", 1800, "--format", "json", *args)
        self.assertEqual(code, 0, out + err)
        return json.loads(out)

    def test_killed_processes_cost_steps_but_no_results(self):
        with folder() as where:
            report = self.chaos(OWN_EXAMPLES / "spiral_mlp", "--steps", 2000, "--period", 2, "--data", where,
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
        """Checks in the log of the job that each attempt starts from the newest checkpoint of that time. A coordinator
        that is away for some seconds commits none, so the number of repeated steps has no useful limit."""
        with contextlib.closing(Cluster(where, workers=0, devices=1)) as made:
            events = made.events(made.ps()[0]["id"])
        self.assertIn("placed", [event["kind"] for event in events])
        newest = 0  # After a minute, the coordinator removes old checkpoints from the log, so this may be too small.
        for event in events:
            if event["kind"] == "checkpoint":
                newest = event["step"]
            elif event["kind"] == "placed":
                self.assertGreaterEqual(event["step"], newest, event["text"])

    @unittest.skipUnless("XLAD_EXAMPLES" in os.environ, "XLAD_EXAMPLES is not set")
    def test_a_job_without_a_mesh_of_one_axis_dp(self):
        job = pathlib.Path(os.environ["XLAD_EXAMPLES"]) / "ring_shard_map"
        report = self.chaos(job, "--steps", 20, "--period", 1000)
        self.assertEqual(report["faults"], [])
        self.assertEqual((report["lost"]["attempts"], report["lost"]["steps"]), (0, 0))


if __name__ == "__main__":
    unittest.main()

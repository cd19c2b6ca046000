"""Modes of reduction: the bits of canonical jobs and collectives do not depend on devices, transports or plans."""

import json
import os
import pathlib
import unittest

from harness import ALL_CASES, OWN_EXAMPLES, cluster, folder, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"


class CanonicalJobs(unittest.TestCase):
    def train(self, directory, where, *args):
        curve, state = where / "curve.json", where / "state.safetensors"
        code, _, err = xlad("run", directory, *args, "--steps", 6, "--curve", curve, "--save-state", state)
        self.assertEqual(code, 0, err)
        return json.loads(curve.read_text())["loss"], state.read_bytes()

    def examples(self):
        yield JOB, "dp=8"
        yield JOB, "dp=4,tp=2"
        if "XLAD_EXAMPLES" in os.environ:
            yield pathlib.Path(os.environ["XLAD_EXAMPLES"]) / "nano_gpt", "dp=8"

    def test_bits_do_not_depend_on_devices_workers_or_transport(self):
        for directory, mesh in self.examples():
            with folder() as where:
                common = ("--mesh", mesh, "--mode", "canonical")
                first = self.train(directory, where, *common)
                others = (("--devices", 1), ("--devices", 2, "--workers", 2, "--transport", "tcp"))
                if directory == JOB or ALL_CASES:  # The steps of the other example take much longer.
                    others += (("--devices", 4), ("--devices", 2), ("--devices", 4, "--workers", 2),
                               ("--devices", 4, "--transport", "in-process"), ("--device", "opaque:2"))
                for args in others:
                    with self.subTest(example=directory.name, mesh=mesh, args=args):
                        self.assertTrue(self.train(directory, where, *common, *args) == first)

    def test_fewer_devices_are_refused_in_other_modes_and_if_they_do_not_divide_the_shards(self):
        for mode, devices in (("run-to-run", 4), ("fast", 4), ("canonical", 3)):
            code, _, err = xlad("run", JOB, "--mesh", "dp=8", "--mode", mode, "--devices", devices)
            self.assertEqual(code, 2, err)
            self.assertIn("expected 8 or more devices", err)
        code, _, err = xlad("run", JOB, "--mesh", "dp=8", "--mode", "exact")
        self.assertNotEqual(code, 0)
        self.assertIn("canonical", err)

    def test_fast_jobs_train(self):
        with folder() as where:
            losses, _ = self.train(JOB, where, "--mesh", "dp=4", "--mode", "fast")
            self.assertLess(losses[-1], losses[0])

    def test_a_submitted_job_uses_and_prints_the_available_devices(self):
        with cluster(workers=1, devices=2) as made:
            wait_for(lambda: made.status()["workers"], "the worker to register")
            job = made.submit(JOB, "--mesh", "dp=8", "--mode", "canonical", "--steps", 3)
            wait_for(lambda: made.job(job)["state"] == "SUCCEEDED", "the job to succeed")
            _, events, _ = xlad("events", job, "--coordinator", made.address)
            self.assertIn("8 logical shards, mode canonical", events)
            self.assertIn("2 devices of 4 logical shards each", events)


class CanonicalCollectives(unittest.TestCase):
    def digests(self, collective, ranks, *args):
        with folder() as where:
            path = where / "rows.json"
            code, out, err = xlad("bench", collective, "--ranks", ranks, "-b", 80 * ranks, "-e", 90000 * ranks,
                                  "-f", 33, "-n", 2, "-w", 1, "--batches", 1, "--digest", "--json", path, *args)
            self.assertEqual(code, 0, err + out)
            rows = json.loads(path.read_text())["rows"]
        return [side["digest"] for row in rows for side in (row["out_of_place"], row["in_place"]) if side]

    def test_digests_are_equal_on_all_transports_and_plans(self):
        for collective, kind, ranks in (("all_reduce", "float", 8), ("all_reduce", "bfloat16", 3),
                                        ("reduce_scatter", "float", 3), ("reduce", "half", 5)):
            common = ("--mode", "canonical", "-d", kind)
            first = self.digests(collective, ranks, *common)
            for args in (("-R", 1), ("--transport", "tcp"),
                         ("--transport", "in-process", "--algorithm", "direct chunks=3 channels=2"),
                         ("--algorithm", "mapped_slots chunks=17")):
                with self.subTest(collective=collective, kind=kind, ranks=ranks, args=args):
                    self.assertEqual(self.digests(collective, ranks, *common, *args), first)

    def test_digests_do_not_depend_on_partial_results_that_are_sent(self):
        for kind in ("bfloat16", "half", "float"):
            common = ("--mode", "canonical", "-d", kind)
            first = self.digests("all_reduce", 8, *common)
            for args in (("--algorithm", "halving_doubling"),
                         ("--algorithm", "recursive_doubling", "--transport", "in-process"),
                         ("--algorithm", "hierarchical grid=4x2", "--transport", "tcp")):
                with self.subTest(kind=kind, args=args):
                    self.assertEqual(self.digests("all_reduce", 8, *common, *args), first)

    def test_the_modes_canonical_and_run_to_run_differ_in_their_bits(self):
        self.assertNotEqual(self.digests("all_reduce", 8, "--mode", "canonical"),
                            self.digests("all_reduce", 8, "--mode", "run-to-run"))

    def test_other_algorithms_are_refused(self):
        for transport in ("in-process", "auto"):
            code, _, err = xlad("bench", "all_reduce", "--ranks", 4, "-b", 64, "-e", 64, "--mode", "canonical",
                                "--algorithm", "ring", "--transport", transport)
            self.assertEqual(code, 2)
            self.assertIn("does not keep the canonical order of reduction; expected one of direct", err)


if __name__ == "__main__":
    unittest.main()

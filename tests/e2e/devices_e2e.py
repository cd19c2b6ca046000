"""Kinds of device: the opaque device trains with the same bits as cpu, and requests that make no sense are refused."""

import json
import unittest

from harness import OWN_EXAMPLES, cluster, folder, job_directories, mesh_text, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"


class DevicesTest(unittest.TestCase):
    def train(self, directory, axes, device, where):
        curve, state = where / f"{device}.json", where / f"{device}.safetensors"
        mesh = ["--mesh", mesh_text(axes)] if axes else []
        code, _, err = xlad("run", directory, *mesh, "--workers", 2, "--steps", 4, "--device", device, "--curve", curve,
                            "--save-state", state)
        self.assertEqual(code, 0, err)
        return json.loads(curve.read_text())["loss"], state.read_bytes()

    def test_opaque_devices_train_with_the_bits_of_cpu_devices(self):
        for directory, manifest in job_directories():
            for mesh in manifest["meshes"]:
                with self.subTest(example=directory.name, mesh=mesh["name"]), folder() as where:
                    cpu = self.train(directory, mesh["axes"], "cpu", where)
                    self.assertEqual(cpu, self.train(directory, mesh["axes"], "opaque", where))

    def test_version_lists_the_kinds(self):
        code, out, _ = xlad("version", "--format", "json")
        self.assertEqual(code, 0)
        kinds = {row["kind"]: row for row in json.loads(out)["devices"]}
        self.assertLessEqual({"cpu", "opaque"}, set(kinds))
        self.assertTrue(kinds["cpu"]["available"])

    def refused(self, *args, words):
        code, out, err = xlad(*args)
        self.assertIn(code, (1, 2))
        self.assertEqual(out, "")
        for word in ("--device", *words):
            self.assertIn(word, err)

    def test_requests_that_make_no_sense_are_refused(self):
        for command in (("run", JOB), ("up",), ("worker",), ("bench",)):
            self.refused(*command, "--device", "opqaue", words=["found kind", "did you mean opaque?"])
            self.refused(*command, "--device", "cpu:fast", words=["cpu has no models"])
            self.refused(*command, "--device", "cpu:0", words=["found count 0", "a number from 1 to 1024"])
            self.refused(*command, "--device", "cpu:1,cpu:1", words=["twice"])
            self.refused(*command, "--device", "cpu:2", "--devices", "2", words=["--devices"])
        self.refused("run", JOB, "--mesh", "dp=4", "--device", "cpu:2", words=["found cpu:2", "expected 4 or more"])
        self.refused("run", JOB, "--mesh", "dp=2", "--device", "cpu:1,opaque:1", words=["mixed jobs"])
        self.refused("bench", "--device", "cpu:1,opaque:1", words=["expected one kind"])
        self.refused("up", "--workers", "3", "--devices", "2,2", words=["found 2 numbers", "3 workers"])

    def test_a_job_that_needs_two_kinds_is_refused(self):
        with cluster(workers=0, devices=1) as made:
            made.start_worker("w0", "--device", "cpu:1")
            made.start_worker("w1", "--device", "opaque:1")
            # A job that was built for the first worker would wait for more workers of its kind.
            wait_for(lambda: len(made.status()["workers"]) == 2, "both workers to register")
            job = made.submit(JOB, "--mesh", "dp=2")
            wait_for(lambda: made.job(job)["state"] == "FAILED", "the job to be refused")
            reason = made.job(job)["reason"]
            for word in ("mixed jobs", "cpu: 1 on w0", "opaque: 1 on w1"):
                self.assertIn(word, reason)

    def test_bench_measures_opaque_devices(self):
        code, out, err = xlad("bench", "--device", "opaque:2", "--max-bytes", 4096, "--repeats", 3, "--format", "json")
        self.assertEqual(code, 0, err)
        self.assertEqual([row["bytes"] for row in json.loads(out)], [1024, 4096])


if __name__ == "__main__":
    unittest.main()

"""Jobs on several GPUs whose collectives NCCL runs: two workers, each with a GPU of its own. The libraries are the test
doubles of NVIDIA's driver and of NCCL.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest
from unittest import mock

from attempts_e2e import running_attempt
from harness import OWN_EXAMPLES, PATIENCE_S, XLAD, cluster, folder, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
FOLDER = pathlib.Path(XLAD).parent
DRIVER_DOUBLE, NCCL_DOUBLE = FOLDER / "libxlad_cuda_driver_double.so", FOLDER / "libxlad_nccl_double.so"


def libraries(nccl=NCCL_DOUBLE, settings=""):
    return mock.patch.dict(os.environ, {"XLAD_CUDA_DRIVER": str(DRIVER_DOUBLE), "XLAD_CUDA_DOUBLE": "devices=2",
                                        "XLAD_NCCL": str(nccl), "XLAD_NCCL_DOUBLE": settings})


@contextlib.contextmanager
def two_gpus(gpus=("0", "1")):
    """Yields a cluster with a worker for each GPU."""
    with cluster(workers=0, devices=1) as made:
        for number, gpu in enumerate(gpus):
            with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": gpu}):
                made.start_worker(f"w{number}", "--device", "cuda:1")
        made.wait_for_workers(len(gpus))
        yield made


def numbers_by_nccl(made):
    """Returns, for each worker, the number of collectives that NCCL runs."""
    return [int(found) for worker in made.workers.values() for found in re.findall(r'by_nccl\W+(\d+) of', worker.log())]


class NcclTest(unittest.TestCase):
    def losses(self, made, where, *flags):
        curve = where / "curve.json"
        code, out, err = xlad("submit", JOB, "--coordinator", made.address, "--mesh", "dp=2", "--steps", 2, "--device",
                              "cuda:2", "--curve", curve, *flags)
        self.assertEqual(code, 0, out + err)
        return json.loads(curve.read_text())["loss"]

    def cpu_losses(self, where):
        curve = where / "cpu.json"
        code, out, err = xlad("run", JOB, "--mesh", "dp=2", "--workers", 2, "--steps", 2, "--curve", curve)
        self.assertEqual(code, 0, out + err)
        return json.loads(curve.read_text())["loss"]

    def assert_close(self, found, expected):
        for a, b in zip(found, expected, strict=True):
            self.assertAlmostEqual(a, b, delta=1e-5 * abs(b))

    def test_two_gpus_train_like_two_cpus(self):
        with libraries(), folder() as where, two_gpus() as made:
            found = self.losses(made, where, "--mode", "fast")
            numbers = numbers_by_nccl(made)
            self.assertEqual(len(numbers), 2)
            self.assertGreater(min(numbers), 0)
            self.assert_close(found, self.cpu_losses(where))

    def test_collectives_are_staged_if_nccl_cannot_run(self):
        """Tests the default mode, two workers on one GPU, and a missing library."""
        for name, gpus, nccl, flags in (("mode", ("0", "1"), NCCL_DOUBLE, ()),
                                        ("one GPU", ("0", "0"), NCCL_DOUBLE, ("--mode", "fast")),
                                        ("no library", ("0", "1"), "off", ("--mode", "fast"))):
            with self.subTest(name), libraries(nccl), folder() as where, two_gpus(gpus) as made:
                found = self.losses(made, where, *flags)
                self.assertEqual(numbers_by_nccl(made), [0, 0])
                self.assert_close(found, self.cpu_losses(where))

    def test_the_reason_of_the_failure_names_a_killed_worker(self):
        for settings in ("", "silent=1"):
            with self.subTest(settings), libraries(settings=settings), two_gpus() as made:
                job_id = made.submit(JOB, "--mesh", "dp=2", "--device", "cuda:2", "--mode", "fast", "--attempts", "1",
                                     "--steps", "1000000")
                made.wait_for_steps(job_id, 1)
                os.kill(running_attempt(made.workers["w1"]), signal.SIGKILL)
                job = wait_for(lambda: (j := made.job(job_id))["state"] == "FAILED" and j, "the job's end")
                self.assertIn("w1", job["reason"])

    def test_errors_of_nccl_are_the_reason_of_the_failure(self):
        for settings, words in (("fail=ncclCommInitRankConfig:2", ["ncclCommInitRankConfig", "system error (2)"]),
                                ("stop=6:2", ["all_reduce", "step", "remote process exited"])):
            with self.subTest(settings), libraries(settings=settings), two_gpus() as made:
                job_id = made.submit(JOB, "--mesh", "dp=2", "--device", "cuda:2", "--mode", "fast", "--attempts", "1",
                                     "--steps", "5")
                job = wait_for(lambda: (j := made.job(job_id))["state"] == "FAILED" and j, "the job's end")
                for word in words:
                    self.assertIn(word, job["reason"])

    def test_ranks_of_a_launch_measure_nccl(self):
        def measure(gpus):
            command = [XLAD, "bench", "--device", "cuda:1", "--algorithm", "nccl", "--max-bytes", "1024", "--repeats",
                       "2", "--format", "json"]
            with folder() as where:
                launch = {"XLAD_RANKS": "2", "XLAD_LAUNCH": where.name, "XLAD_COMM_DIR": str(where)}
                ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          env={**os.environ, **launch, "XLAD_RANK": str(rank),
                                               "CUDA_VISIBLE_DEVICES": gpu})
                         for rank, gpu in enumerate(gpus)]
                return [(*rank.communicate(timeout=PATIENCE_S), rank.returncode) for rank in ranks]

        with libraries():
            for out, err, code in measure(("0", "1")):
                self.assertEqual(code, 0, err)
                if out:
                    row, = json.loads(out)
            self.assertEqual(row["launches"], {"cuda": 4})
            self.assertIn("engine=nccl", row["plan"])
            for _, err, code in measure(("1", "1")):
                self.assertEqual(code, 1)
                self.assertIn("devices 0 and 1 share a GPU", err)

    def test_the_command_says_whether_nccl_was_found(self):
        with libraries():
            code, out, _ = xlad("version", "--format", "json")
            self.assertEqual((code, json.loads(out)["nccl"]), (0, {"available": True, "version": "2.28.9"}))
            code, out, err = xlad("bench", "--device", "cuda:1", "--algorithm", "nccl", "--explain", "--max-bytes",
                                  1024, "--repeats", 2)
            self.assertEqual(code, 0, err)
            self.assertIn("NCCL: version 2.28.9", out)
            self.assertIn("engine=nccl", out)
            code, _, err = xlad("bench", "--device", "cuda:2", "--algorithm", "nccl", "--max-bytes", 1024)
            self.assertNotEqual(code, 0)
            self.assertIn("devices 0 and 1 share a GPU", err)
            code, _, err = xlad("bench", "all_reduce", "--algorithm", "nccl")
            self.assertNotEqual(code, 0)
            self.assertIn("memory of the host", err)
        with libraries("libnccl_that_is_missing.so.2"):
            code, out, _ = xlad("version")
            self.assertIn("NCCL (libnccl_that_is_missing.so.2) cannot be loaded", out)
        with libraries(settings="version=21701"):
            code, _, err = xlad("bench", "--device", "cuda:1", "--algorithm", "nccl", "--max-bytes", 1024)
            self.assertNotEqual(code, 0)
            self.assertIn("has version 2.17.1, expected 2.18.0 or later", err)


if __name__ == "__main__":
    unittest.main()

"""Jobs on several kinds of devices. Training on opaque devices, or on opaque and cpu devices together, has the same
bits as training on cpu devices. Invalid requests are refused."""

import json
import math
import os
import signal
import unittest
from unittest import mock

from grid import children
from harness import OWN_EXAMPLES, PATIENCE_S, Process, cluster, folder, job_directories, mesh_text, some, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"


class DevicesTest(unittest.TestCase):
    def run_job(self, directory, axes, device, where, *flags, steps=4, workers=2):
        """Returns the contents of the --curve file and the final state."""
        curve, state = where / "curve.json", where / "state.safetensors"
        mesh = ["--mesh", mesh_text(axes)] if axes else []
        code, _, err = xlad("run", directory, *mesh, "--workers", workers, "--steps", steps, "--device", device,
                            "--curve", curve, "--save-state", state, *flags)
        self.assertEqual(code, 0, err)
        return json.loads(curve.read_text()), state.read_bytes()

    def test_opaque_devices_and_a_mix_train_with_the_bits_of_cpu_devices(self):
        for directory, manifest in job_directories():
            for mesh in some(manifest["meshes"]):
                devices = math.prod(mesh["axes"].values())
                with self.subTest(example=directory.name, mesh=mesh["name"]), folder() as where:
                    cpu, state = self.run_job(directory, mesh["axes"], "cpu", where)
                    opaque, opaque_state = self.run_job(directory, mesh["axes"], "opaque", where)
                    self.assertEqual(cpu["loss"], opaque["loss"])
                    self.assertEqual(state, opaque_state)
                    if devices < 2:
                        continue
                    mix = f"cpu:{devices // 2},opaque:{devices - devices // 2}"
                    mixed, mixed_state = self.run_job(directory, mesh["axes"], mix, where)
                    self.assertEqual(cpu["loss"], mixed["loss"])
                    self.assertEqual(state, mixed_state)
                    self.assertEqual(set(cpu["launches"]), {"cpu"})
                    self.assertEqual(set(mixed["launches"]), {"cpu", "opaque"})
                    self.assertEqual(sum(mixed["launches"].values()), sum(cpu["launches"].values()))
                    share = mixed["launches"]["cpu"] / cpu["launches"]["cpu"]
                    self.assertAlmostEqual(share, (devices // 2) / devices, delta=0.1)

    def test_a_mix_runs_on_any_workers_and_transports_and_modes(self):
        axes = {"dp": 4, "tp": 2}
        with folder() as where:
            expected = self.run_job(JOB, axes, "cpu", where)
            for workers, flags in ((1, []), (3, []), (2, ["--transport", "tcp"]), (8, ["--transport", "shm"]),
                                   (2, ["--executor", "op-by-op"])):
                with self.subTest(workers=workers, flags=flags):
                    curve, state = self.run_job(JOB, axes, "opaque:3,cpu:5", where, *flags, workers=workers)
                    if "op-by-op" in flags:  # Op-by-op execution rounds where fused kernels do not.
                        for a, b in zip(curve["loss"], expected[0]["loss"], strict=True):
                            self.assertAlmostEqual(a, b, delta=1e-4 * max(1, abs(b)))
                    else:
                        self.assertEqual((curve["loss"], state), (expected[0]["loss"], expected[1]))

    def test_a_mix_saves_and_resumes_on_other_kinds(self):
        axes = {"dp": 4}
        with folder() as where:
            expected, state = self.run_job(JOB, axes, "cpu", where, steps=10)
            checkpoints = where / "checkpoints"
            self.run_job(JOB, axes, "cpu:1,opaque:3", where, "--checkpoint-every", 3, "--checkpoint-to",
                         f"file:{checkpoints}", steps=6)
            index = sorted(checkpoints.rglob("*.json"), key=lambda path: path.stat().st_mtime)[-1]
            curve, resumed = self.run_job(JOB, axes, "opaque:2,cpu:2", where, "--resume", f"file:{index.parent}",
                                          steps=10)
            self.assertEqual(curve["loss"], expected["loss"][-len(curve["loss"]):])
            self.assertEqual(resumed, state)

    def test_a_mix_of_all_kinds_follows_the_losses_of_cpu_devices(self):
        axes = {"dp": 4, "tp": 2}
        directories = [directory for directory, _ in job_directories() if directory.name == "nano_gpt"] or [JOB]
        with folder() as where:
            expected, _ = self.run_job(directories[0], axes, "cpu", where, steps=8)
            first = None
            for workers in (1, 2):
                curve, _ = self.run_job(directories[0], axes, "cpu:4,gpu_sim:2,tpu_sim:v5e:2", where, steps=8,
                                        workers=workers)
                for a, b in zip(curve["loss"], expected["loss"], strict=True):  # tpu_sim computes with bf16.
                    self.assertAlmostEqual(a, b, delta=0.1 * abs(b))
                self.assertEqual(set(curve["launches"]), {"cpu", "gpu_sim", "tpu_sim"})
                first = first or curve
                self.assertEqual(curve["loss"], first["loss"], "the bits do not depend on the workers")

    def test_gpu_sim_devices_run_collectives_in_their_memory(self):
        axes = {"dp": 4, "tp": 2}
        with folder() as where:
            trace = where / "trace.json"
            inside = self.run_job(JOB, axes, "gpu_sim", where, "--trace", trace, workers=1)
            shared_trace = where / "shared_trace.json"
            shared = self.run_job(JOB, axes, "gpu_sim", where, "--trace", shared_trace, workers=4)
            mixed, _ = self.run_job(JOB, axes, "gpu_sim:4,cpu:4", where, workers=1)
            self.assertEqual((inside[0]["loss"], inside[1]), (shared[0]["loss"], shared[1]))
            self.assertEqual(set(shared[0]["collectives"]), {"device memory", "shared device memory"})
            self.assertEqual(set(inside[0]["collectives"]), {"device memory"})
            self.assertIn(", device memory", trace.read_text())
            events = json.loads(shared_trace.read_text())["traceEvents"]
            sent, received = ({event["id"] for event in events if event["ph"] == end} for end in "sf")
            self.assertGreater(len(sent), 0, "the timeline has the messages of shared device memory")
            self.assertEqual(sent, received)
            total = inside[0]["collectives"]["device memory"]
            self.assertGreater(total, 0)
            code, _, err = xlad("run", JOB, "--mesh", mesh_text(axes), "--workers", 1, "--steps", 4, "--device",
                                "gpu_sim")
            self.assertEqual(code, 0, err)
            self.assertIn(f", collectives: device memory {total}, ", err)
            for curve, medium in ((shared[0], "shared device memory"),
                                  (mixed, "host memory (staged: the devices of the group do not share one memory)")):
                self.assertEqual(sum(curve["collectives"].values()), total)
                self.assertGreater(curve["collectives"][medium], 0)

    def test_jobs_on_a_cluster_of_two_kinds(self):
        with cluster(workers=0, devices=1) as made:
            made.start_worker("w0", "--device", "cpu:2,opaque:2")
            made.start_worker("w1", "--device", "opaque:2")
            wait_for(lambda: len(made.status()["workers"]) == 2, "both workers to register")
            named = made.submit(JOB, "--mesh", "dp=4", "--steps", 4, "--device", "cpu:2,opaque:2")
            any_kind = made.submit(JOB, "--mesh", "dp=6", "--steps", 4)
            missing = made.submit(JOB, "--mesh", "dp=4", "--steps", 4, "--device", "cpu:3,opaque:1")
            for job in (named, any_kind):
                wait_for(lambda job=job: made.job(job)["state"] == "SUCCEEDED", "the job to run on both kinds")
            reason = "waits for 4 devices of cpu:3,opaque:1"
            wait_for(lambda: reason in made.job(missing)["reason"], "the reason of the job whose devices are missing")

    def test_collectives_in_device_memory_end_with_a_killed_worker_and_with_their_job(self):
        endless = ("--steps", 1000000, "--attempts", 1)
        with cluster(workers=0, devices=1) as made:
            for name in ("w0", "w1"):
                made.start_worker(name, "--device", "gpu_sim:4")
            made.wait_for_workers(2)
            # All devices of a group of tp are on one worker. The groups of dp have devices of both workers.
            killed = made.submit(JOB, "--mesh", "dp=2,tp=4", *endless)
            made.wait_for_steps(killed)
            made.workers["w1"].kill()
            ended = wait_for(lambda: (job := made.job(killed))["state"] == "FAILED" and job, "the end of the job")
            self.assertIn("w1", ended["reason"])
            canceled = made.submit(JOB, "--mesh", "dp=4", *endless)
            made.wait_for_steps(canceled)
            code, _, err = xlad("cancel", canceled, "--coordinator", made.address)
            self.assertEqual(code, 0, err)
            wait_for(lambda: made.job(canceled)["state"] == "CANCELLED", "the job to be canceled")
            again = made.submit(JOB, "--mesh", "dp=4", "--steps", 20)
            wait_for(lambda: made.job(again)["state"] == "SUCCEEDED", "a later job")

    def test_a_run_waits_for_the_kinds_of_a_worker_that_starts_late(self):
        with folder() as where:
            run = Process(where / "run.log", "run", JOB, "--mesh", "dp=2", "--steps", 3, "--workers", 2, "--device",
                          "cpu:1,opaque:1", "--data", where / "data")
            try:
                late = wait_for(lambda: [pid for pid, line in children(run.pid).items() if b"worker-1" in line],
                                "the second worker")[0]
                os.kill(late, signal.SIGSTOP)
                # After five seconds, the run prints what the job waits for. It prints nothing if the worker was stopped
                # too late and has already registered.
                log = where / "data" / "coordinator.log"
                lines = lambda: log.read_text().splitlines() if log.exists() else []
                wait_for(lambda: "no worker has devices of kind" in run.log() or
                         any("worker registered" in line and "worker-1" in line for line in lines()), "the job to wait")
                os.kill(late, signal.SIGCONT)
                self.assertEqual(run.popen.wait(PATIENCE_S), 0, run.log())
            finally:
                run.close()

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
            self.refused(*command, "--device", "rocm:2", words=["not available: ", "AMD"])
            self.refused(*command, "--device", "cpu:fast", words=["cpu has no models"])
            self.refused(*command, "--device", "cpu:0", words=["found count 0", "a number from 1 to 1024"])
            self.refused(*command, "--device", "cpu:1,cpu:1", words=["twice"])
            self.refused(*command, "--device", "cpu:2", "--devices", "2", words=["--devices"])
        self.refused("run", JOB, "--mesh", "dp=4", "--device", "cpu:2", words=["found cpu:2", "expected 4 or more"])
        self.refused("run", JOB, "--mesh", "dp=4", "--device", "cpu:1,opaque:2",
                     words=["found cpu:1,opaque:2", "expected 4 or more"])
        self.refused("up", "--workers", "3", "--devices", "2,2", words=["found 2 numbers", "each of the 3 workers"])

    def test_bench_measures_opaque_devices_and_mixes(self):
        for device, launches in (("opaque:2", {"opaque": 6}), ("cpu:1,opaque:2", {"cpu": 3, "opaque": 6})):
            code, out, err = xlad("bench", "--device", device, "--max-bytes", 4096, "--repeats", 3, "--format", "json")
            self.assertEqual(code, 0, err)
            rows = json.loads(out)
            self.assertEqual([row["bytes"] for row in rows], [1024, 4096])
            for row in rows:
                self.assertEqual(row["launches"], launches)

    def test_bench_says_in_which_memory_the_collective_runs(self):
        apart = "host memory (staged: the devices of the group do not share one memory)"
        for device, media in (("gpu_sim:2", ["device memory"]), ("cpu:1,gpu_sim:1", ["host memory", apart]),
                              ("opaque:2", ["host memory (staged: devices of this kind do not run schedules)"])):
            command = ("bench", "--device", device, "--max-bytes", 4096, "--repeats", 1)
            with self.subTest(device=device):
                code, out, err = xlad(*command, "--format", "json")
                self.assertEqual(code, 0, err)
                self.assertEqual([row["memory"] for row in json.loads(out)], [media, media])
                code, out, err = xlad(*command, "--explain")
                self.assertEqual(code, 0, err)
                self.assertEqual(out.count("# memory: " + "; ".join(media) + "\n"), 1)
                self.assertNotIn("# memory", xlad(*command)[1])

    def test_bench_of_devices_refuses_flags_that_it_does_not_use(self):
        fast = ("--device", "cpu:2", "--max-bytes", "1024", "--repeats", "1")
        of_messages = [("--transport", "tcp"), ("--insecure-network",), ("--meet", "."), ("--listen", "127.0.0.1"),
                       ("--deadline-ms", "1000")]
        of_collectives = [("--checksums",), ("--ranks", "2"), ("-b", "8"), ("-e", "8"), ("-n", "3"), ("-d", "float"),
                          ("--op", "sum"), ("--json", "rows.json"), ("--digest",), ("--shrink",), ("-R", "1")]
        for flag in of_messages + of_collectives:
            for position in ((*fast, *flag), (*flag, *fast)):
                with self.subTest(position):
                    name = {"--op": "-o"}.get(flag[0], flag[0])
                    code, out, err = xlad("bench", *position)
                    self.assertEqual((code, out), (2, ""))
                    self.assertIn(f"{name}: found the flag without COLLECTIVE", err)
                    self.assertEqual("no launcher" in err, flag in of_messages)
        for flag in (("--mode", "fast"), ("--algorithm", "ring"), ("--explain",), ("--format", "json")):
            code, _, err = xlad("bench", *fast, *flag)
            self.assertEqual(code, 0, err)
        with mock.patch.dict(os.environ, {"XLAD_RANK": "0", "XLAD_RANKS": "1"}):
            for flag in of_messages:
                code, _, err = xlad("bench", *fast, *flag)
                self.assertEqual(code, 0, err)
            code, _, err = xlad("bench", *fast, "--checksums")
            self.assertIn("--checksums: found the flag without COLLECTIVE", err)

    def test_bench_of_collectives_refuses_flags_of_devices(self):
        for flag in (("--device", "cpu:2"), ("--devices", "2"), ("--max-bytes", "1024"), ("--repeats", "3"),
                     ("--format", "json")):
            for position in (("all_reduce", *flag), (*flag, "all_reduce"), ("--calibrate", *flag)):
                with self.subTest(position):
                    code, out, err = xlad("bench", *position, "--ranks", "2")
                    self.assertEqual((code, out), (2, ""))
                    self.assertIn(f"{flag[0]}: found the flag with "
                                  f"{'--calibrate and without ' if '--calibrate' in position else ''}COLLECTIVE", err)
        code, _, err = xlad("bench", "--calibrate", "-b", "8")
        self.assertEqual(code, 2)
        self.assertIn("-b: found the flag with --calibrate and without COLLECTIVE", err)


if __name__ == "__main__":
    unittest.main()

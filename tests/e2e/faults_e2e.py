"""Faults: a killed worker is named in the error, a restarted coordinator adopts running jobs, SIGTERM drains.

No command hangs, and no acknowledged job or step is lost.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from harness import OWN_EXAMPLES, XLAD, Process, cluster, folder, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
MESH = ("--mesh", "dp=4,tp=2")
LONG = ("--steps", "1000000")


class Faults(unittest.TestCase):
    def test_killed_worker_is_named_within_five_seconds(self):
        with cluster(workers=4, devices=2) as made:
            job_id = made.submit(JOB, *MESH, *LONG, "--attempts", "1")
            made.wait_for_steps(job_id)
            victim = made.workers["w2"]
            victim.kill()
            killed = time.monotonic()
            job = wait_for(lambda: (j := made.job(job_id))["state"] != "RUNNING" and j, "ps to say so", 5)
            self.assertLess(time.monotonic() - killed, 5)
            self.assertEqual(job["state"], "FAILED")
            for word in ("w2", f"pid {victim.pid}", "host ", "step "):
                self.assertIn(word, job["reason"])
            self.assertEqual([w["state"] for w in job["workers"] if w["id"] == "w2"], ["lost"])
            for name in ("w0", "w1", "w3"):
                wait_for(lambda: f"pid {victim.pid}" in made.workers[name].log(), f"{name}'s log to name the victim", 5)
                lines = [line for line in made.workers[name].log().splitlines() if f"pid {victim.pid}" in line]
                self.assertTrue(any("w2" in line and "step" in line for line in lines), lines)
            # The remaining workers run the next job.
            again = made.submit(JOB, "--mesh", "dp=3,tp=2", "--steps", "20")
            wait_for(lambda: made.job(again)["state"] == "SUCCEEDED", "the next job")

    def test_a_job_continues_when_its_killed_worker_is_back(self):
        with cluster(workers=2, devices=2) as made:
            job_id = made.submit(JOB, "--mesh", "dp=4", *LONG)
            made.wait_for_steps(job_id)
            made.workers["w1"].kill()
            job = wait_for(lambda: (j := made.job(job_id))["state"] == "PENDING" and j, "the attempt to end", 10)
            self.assertIn("w1", job["reason"])
            why = xlad("why", job_id, "--coordinator", made.address)[1]
            for word in ("w1", "was lost", "waits for 4 devices", "What you can do"):
                self.assertIn(word, why)
            made.start_worker("w1")
            made.wait_for_steps(job_id)
            self.assertEqual(made.job(job_id)["attempt"], 2)
            events = json.loads(xlad("events", job_id, "--coordinator", made.address, "--format", "json")[1])
            kinds = [event["kind"] for event in events]
            self.assertEqual(kinds, ["submitted", "built", "placed", "started", "attempt_ended", "placed", "started"])
            self.assertEqual(events[4]["worker"], "w1")
            # What its time was spent on, while it runs and when it has ended.
            status = lambda *args: json.loads(xlad("status", *args, "--coordinator", made.address, "--json")[1])
            running = status()["running"]
            self.assertEqual([job["id"] for job in running], [job_id])
            self.assertEqual(xlad("cancel", job_id, "--coordinator", made.address)[0], 0)
            wait_for(lambda: status(job_id)["state"] == "CANCELLED", "the job to end")
            self.assertEqual(status()["running"], [])
            ended = status(job_id)
            for shown in (running[0], ended):
                time_s = shown["time_s"]
                self.assertEqual(list(time_s), ["wait", "compile", "load", "step", "checkpoint", "restart", "lost"])
                self.assertGreater(time_s["restart"], 0)
                self.assertAlmostEqual(shown["goodput"], time_s["step"] / sum(time_s.values()))
            self.assertIn(f"{100 * ended['goodput']:.1f} %  ", xlad("status", job_id, "--coordinator", made.address)[1])

    def test_drained_and_resized_jobs_continue_from_their_state(self):
        with cluster(workers=2, devices=2) as made:
            job_id = made.submit(JOB, "--mesh", "dp=2", *LONG)
            made.wait_for_steps(job_id)
            code, _, err = xlad("resize", job_id, "--mesh", "dp=8", "--coordinator", made.address)
            self.assertEqual(code, 1)
            self.assertIn("found workers with 4 devices that it may use, expected 8 for mesh dp=8", err)
            self.assertEqual(made.job(job_id)["attempt"], 1, "the job is not stopped")
            code, _, err = xlad("resize", job_id, "--mesh", "dp=4", "--coordinator", made.address)
            self.assertEqual(code, 0, err)
            wait_for(lambda: (j := made.job(job_id))["attempt"] == 2 and j["state"] == "RUNNING", "the larger mesh")
            self.assertEqual(made.job(job_id)["mesh"], "dp=4")
            at = made.job(job_id)["step"]
            self.assertGreater(at, 0)
            self.assertEqual(xlad("resize", job_id, "--mesh", "dp=2", "--coordinator", made.address)[0], 0)
            wait_for(lambda: (j := made.job(job_id))["attempt"] == 3 and j["state"] == "RUNNING", "the smaller mesh")
            self.assertGreaterEqual(made.job(job_id)["step"], at)
            busy = made.job(job_id)["workers"][0]["id"]
            self.assertEqual(xlad("drain", busy, "--coordinator", made.address)[0], 0)
            wait_for(lambda: (j := made.job(job_id))["attempt"] == 4 and j["state"] == "RUNNING", "the other worker")
            self.assertNotEqual(made.job(job_id)["workers"][0]["id"], busy)
            status = json.loads(xlad("status", "--coordinator", made.address, "--format", "json")[1])
            self.assertEqual([w["state"] for w in status["workers"] if w["id"] == busy], ["drained"])
            self.assertEqual(status["jobs"], {"RUNNING": 1})
            self.assertTrue(status["coordinator"]["serving"])
            self.assertEqual(xlad("undrain", busy, "--coordinator", made.address)[0], 0)

    def test_a_restored_backup_has_the_jobs_and_a_higher_term(self):
        with folder() as where, cluster(workers=1, devices=2) as made:
            job_id = made.submit(JOB, "--mesh", "dp=2", "--steps", "20")
            wait_for(lambda: made.job(job_id)["state"] == "SUCCEEDED", "the job")
            code, _, err = xlad("backup", where / "backup", "--coordinator", made.address)
            self.assertEqual(code, 0, err)
            term = json.loads(xlad("status", "--json", "--coordinator", made.address)[1])["coordinator"]["term"]
            made.coordinator.kill()
            code, _, err = xlad("restore", where / "backup", "--data", where / "data")
            self.assertEqual(code, 0, err)
            made.where = where
            made.start_coordinator()
            self.assertEqual([job["id"] for job in made.ps()], [job_id])
            restored = json.loads(xlad("status", "--json", "--coordinator", made.address)[1])["coordinator"]["term"]
            self.assertGreater(restored, term + 1000)

    def test_killed_coordinator_does_not_stop_the_job(self):
        with cluster(workers=2, devices=4) as made:
            ended = made.submit(JOB, "--mesh", "dp=8", "--steps", "3")
            wait_for(lambda: made.job(ended)["state"] == "SUCCEEDED", "the first job")
            job_id = made.submit(JOB, *MESH, *LONG)
            made.wait_for_steps(job_id)
            before = made.job(job_id)
            made.coordinator.kill()
            time.sleep(1)  # The job continues without a coordinator.
            made.start_coordinator()
            self.assertEqual([job["id"] for job in made.ps()], [ended, job_id])
            made.wait_for_steps(job_id, before["step"] + 1)
            after = made.job(job_id)
            self.assertEqual(after["attempt"], before["attempt"])
            self.assertEqual(len({w["pid"] for w in after["workers"]}), 2)
            code, _, err = xlad("cancel", job_id, "--coordinator", made.address)
            self.assertEqual(code, 0, err)
            wait_for(lambda: made.job(job_id)["state"] == "CANCELLED", "the cancelled job")

    def test_metrics_are_whole_after_a_coordinator_restart(self):
        with cluster(workers=2, devices=4) as made, folder() as where:
            key = ("--key", "whole")
            job_id = made.submit(JOB, *MESH, "--steps", "3000", *key)
            made.wait_for_steps(job_id)
            made.coordinator.kill()
            made.start_coordinator()
            code, out, err = xlad("submit", JOB, *MESH, "--steps", "3000", *key, "--coordinator", made.address,
                                  "--curve", where / "curve.json")
            self.assertEqual(code, 0, err)
            self.assertEqual(out.split()[0], job_id)
            curve = json.loads((where / "curve.json").read_text())
            self.assertEqual(len(curve["loss"]), 3000)

    def test_sigterm_drains_a_worker_and_the_job_continues_elsewhere(self):
        with cluster(workers=2, devices=1) as made:
            job_id = made.submit(JOB, "--mesh", "dp=2", *LONG)
            made.wait_for_steps(job_id)
            self.assertEqual(made.workers["w1"].terminate(), 75)
            job = made.job(job_id)
            self.assertEqual(job["state"], "PENDING")
            self.assertGreater(job["step"], 0)
            made.start_worker("w2")
            made.wait_for_steps(job_id, job["step"] + 1)

    def test_up_drains_and_resumes(self):
        with folder() as where:
            args = ("up", "--listen", "127.0.0.1:0", "--data", where / "data", "--workers", 2, "--devices", 2)

            def address(up):
                text = up.log()
                return text.split("xlad is up at ")[1].split()[0] if "xlad is up at " in text else None

            up = Process(where / "up1.log", *args)
            try:
                where_up = wait_for(lambda: address(up), "xlad up")
                code, out, err = xlad("submit", JOB, "--coordinator", where_up, "--mesh", "dp=4", *LONG)
                self.assertEqual(code, 0, err)

                def step():
                    jobs = json.loads(xlad("ps", "--coordinator", where_up, "--format", "json")[1])
                    return jobs[0]["step"]

                wait_for(lambda: step() > 5, "steps")
                self.assertEqual(up.terminate(), 0)
                up.close()
                up = Process(where / "up2.log", *args)
                where_up = wait_for(lambda: address(up), "xlad up again")
                wait_for(lambda: step() > 5, "the job to continue")
                log = xlad("logs", out.split()[0], "--coordinator", where_up)[1]
                self.assertIn("drains", log)
                for path in [where / "data", *(where / "data").rglob("*")]:
                    self.assertEqual(path.lstat().st_mode & 0o077, 0, f"others may use {path}")
            finally:
                up.close()

    def test_a_job_that_waits_says_for_what(self):
        with cluster(1, 1) as made:
            submit = Process(made.where / "submit.log", "submit", JOB, "--mesh", "dp=8", "--wait", "--coordinator",
                             made.address)
            try:
                words = "waits for 8 devices, the workers have 1"
                wait_for(lambda: words in submit.log(), "what the job waits for", 30)
                code, out, err = xlad("resize", made.ps()[0]["id"], "--mesh", "dp=4", "--coordinator", made.address)
                self.assertEqual(code, 0, err)
                self.assertIn("4 devices, the workers have 1", out, "it may be as large as any job")
            finally:
                submit.close()

    def test_ctrl_c_while_it_is_built_is_not_a_failure(self):
        with folder() as where:  # Like a terminal, sends SIGINT to every process of the group.
            with subprocess.Popen([XLAD, "run", JOB, *MESH, "--cache", "off", "--data", where], start_new_session=True,
                                  stderr=subprocess.PIPE) as run:
                try:
                    wait_for(lambda: any(b"__build" in line for line in command_lines(children(run.pid))), "the build")
                finally:
                    os.killpg(run.pid, signal.SIGINT)
                self.assertNotIn(b"FAILED", run.communicate(timeout=30)[1])
                self.assertEqual(run.returncode, 130)

    def test_run_replaces_a_worker_that_was_killed(self):
        with folder() as where:
            run = Process(where / "run.log", "run", JOB, *MESH, *LONG, "--checkpoint-every", 20, "--workers", 2,
                          "--data", where / "data")
            log = where / "data" / "coordinator.log"

            def says(text):
                return log.exists() and text in log.read_text(errors="replace")

            try:
                wait_for(lambda: says("checkpoint of step"), "a checkpoint")
                os.kill(children(run.pid)[0], signal.SIGKILL)
                wait_for(lambda: says("attempt 2 running"), "the job to continue")
                run.popen.send_signal(signal.SIGINT)
                self.assertEqual(run.popen.wait(30), 130)
            finally:
                run.close()

    def test_interrupted_run_leaves_no_process_behind(self):
        with folder() as where:
            run = Process(where / "run.log", "run", JOB, *MESH, *LONG, "--workers", 4, "--data", where / "data")
            try:
                wait_for(lambda: len(children(run.pid)) == 4, "the workers")
                pids = children(run.pid)
                wait_for(lambda: (where / "data" / "jobs").exists(), "the job")
                time.sleep(1)
                run.popen.send_signal(signal.SIGINT)
                self.assertEqual(run.popen.wait(30), 130)
                wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the workers to end", 10)
            finally:
                run.close()


def command_lines(pids):
    for pid in pids:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                yield file.read()
        except (FileNotFoundError, ProcessLookupError):
            pass


def children(pid):
    """Returns the CPU time of all threads of a process."""
    found = []
    for file in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in file.read_text().split()]
    return found


if __name__ == "__main__":
    unittest.main()

"""Faults: a killed worker is named in the error, a restarted coordinator adopts running jobs, SIGTERM drains a worker.

No command hangs, and no acknowledged job or step is lost.
"""

import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from grid import children
from harness import OWN_EXAMPLES, PATIENCE_S, XLAD, Process, cluster, folder, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
MESH = ("--mesh", "dp=4,tp=2")
LONG = ("--steps", "1000000")


class Faults(unittest.TestCase):
    def test_a_killed_worker_is_named_before_its_heartbeats_time_out(self):
        with cluster(workers=4, devices=2) as made:
            job_id = made.submit(JOB, *MESH, *LONG, "--attempts", "1")
            made.wait_for_steps(job_id)
            victim = made.workers["w2"]
            victim.kill()
            job = wait_for(lambda: (j := made.job(job_id))["state"] != "RUNNING" and j, "the job to end")
            self.assertEqual(job["state"], "FAILED")
            for word in ("w2", f"pid {victim.pid}", "host ", "step "):
                self.assertIn(word, job["reason"])
            # The reason is not that heartbeats are missing, because a worker counts as lost only after ten seconds
            # without any.
            self.assertNotRegex(job["reason"], "no heartbeat for|not been connected for")
            self.assertEqual([w["state"] for w in job["workers"] if w["id"] == "w2"], ["lost"])
            for name in ("w0", "w1", "w3"):
                named = lambda: any(all(word in line for word in (f"pid {victim.pid}", "w2", "step"))
                                    for line in made.workers[name].log().splitlines())
                wait_for(named, f"{name}'s log to name the victim and the step")
            # Checks that the remaining workers run the next job.
            again = made.submit(JOB, "--mesh", "dp=3,tp=2", "--steps", "20")
            wait_for(lambda: made.job(again)["state"] == "SUCCEEDED", "the next job")

    def test_a_job_continues_when_its_killed_worker_is_back(self):
        with cluster(workers=2, devices=2) as made:
            job_id = made.submit(JOB, "--mesh", "dp=4", *LONG, "--compile-tier", "optimized")
            made.wait_for_steps(job_id)
            made.workers["w1"].kill()
            job = wait_for(lambda: (j := made.job(job_id))["state"] == "PENDING" and j, "the attempt to end")
            self.assertIn("w1", job["reason"])
            why = xlad("why", job_id, "--coordinator", made.address)[1]
            for word in ("w1", "was lost", "waits for 4 devices", "What you can do"):
                self.assertIn(word, why)
            made.start_worker("w1")
            made.wait_for_steps(job_id)
            self.assertEqual(made.job(job_id)["attempt"], 2)
            events = made.events(job_id)
            kinds = [event["kind"] for event in events]
            self.assertEqual(kinds, ["submitted", "built", "placed", "started", "attempt_ended", "placed", "started"])
            self.assertEqual(events[4]["worker"], "w1")
            # The status says how the job has spent its time, while it runs and when it has ended.
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
            made.wait_for_workers(2)
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

    def test_the_final_state_of_a_job_is_kept(self):
        with folder() as where, cluster(workers=1, devices=2) as made:
            code, _, err = xlad("run", JOB, "--steps", "3", "--save-state", where / "state", "--checkpoint-to",
                                f"file:{where}/kept")
            self.assertEqual(code, 0, err)
            code, _, err = xlad("run", JOB, "--steps", "2", "--checkpoint-to", f"file:{where}/other")
            self.assertEqual(code, 0, err)
            for name, step in (("kept", 3), ("other", 2)):
                code, out, err = xlad("ckpt", "ls", where / name, "--format", "json")
                self.assertEqual([found["step"] for found in json.loads(out)], [step], err)
            # No flag of the submission asks for the state or for checkpoints.
            job_id = made.submit(JOB, "--steps", "3")
            wait_for(lambda: made.job(job_id)["state"] == "SUCCEEDED", "the job")
            code, _, err = xlad("ckpt", "export", job_id, "--to", where / "exported", "--coordinator", made.address)
            self.assertEqual(code, 0, err)
            self.assertEqual((where / "exported").read_bytes(), (where / "state").read_bytes())

    def test_a_checkpoint_that_a_job_cannot_resume_is_refused(self):
        with folder() as where:
            code, _, err = xlad("run", JOB, "--steps", "2", "--checkpoint-to", f"file:{where}/kept")
            self.assertEqual(code, 0, err)
            uri = json.loads(xlad("ckpt", "ls", where / "kept", "--format", "json")[1])[0]["uri"]
            other = where / "job"
            shutil.copytree(JOB, other)
            manifest = json.loads((other / "manifest.json").read_text())
            state = [entry["name"] for entry in manifest["parameters"] if entry["kind"] == "state"][0]
            text = (other / "manifest.json").read_text()
            (other / "manifest.json").write_text(text.replace(f'"{state}"', '"renamed"'))
            for job, flags, words in (
                    (JOB, ("--steps", "1", "--resume", uri), "steps: found 1 for a job that starts from step 2"),
                    (JOB, ("--resume", uri[5:]), "expected a job's id, or the URI of a checkpoint, such as file:/PATH"),
                    (JOB, ("--resume", f"file:{where}/kept"), "xlad ckpt ls lists those of a job or a folder"),
                    (other, ("--resume", uri), "found no such tensor for the state parameter renamed of shape f32")):
                code, _, err = xlad("run", job, *flags)
                self.assertEqual(code, 1, err)
                self.assertIn(words, err)
            code, _, err = xlad("run", JOB, "--steps", "2", "--resume", uri, "--save-state", where / "state")
            self.assertEqual(code, 0, err)

    def test_a_damaged_checkpoint_is_dropped_and_the_one_before_it_is_used(self):
        def stored(job):
            code, out, err = xlad("ckpt", "ls", job, "--coordinator", made.address, "--format", "json")
            return sorted(json.loads(out), key=lambda found: found["step"]) if code == 0 else []

        def damage(checkpoint):
            """Flips one bit of a tensor."""
            shard = next(pathlib.Path(checkpoint["uri"].removeprefix("file:")).glob("*.safetensors"))
            contents = bytearray(shard.read_bytes())
            contents[-1] ^= 1
            shard.write_bytes(contents)

        def wait_for_a_start(job, older):
            """Waits until the job runs after it has dropped a checkpoint, and checks where it started."""
            wait_for(lambda: made.job(job)["state"] == "RUNNING" and
                     any("damaged" in event["text"] for event in made.events(job) if event["kind"] == "dropped"),
                     "the job to run again")
            starts = [event["step"] for event in made.events(job) if event["kind"] == "placed"]
            self.assertEqual(starts[-1], older["step"])
            why = xlad("why", job, "--coordinator", made.address)[1]
            for words in ("a damaged checkpoint was dropped", "found in 5 attempts in a row: worker w0 (",
                          ".safetensors is damaged: its bytes [", ") have checksum ", ", expected "):
                self.assertIn(words, why)

        with folder() as where, cluster(workers=1, devices=3) as made:
            # With --attempts 2, the jobs would end if the failures of a damaged checkpoint counted.
            flags = ("--mesh", "dp=1", "--attempts", "2", "--checkpoint-to", f"file:{where}/kept")
            long = (*flags, *LONG, "--checkpoint-every", "500")
            first, canceled = made.submit(JOB, *long), made.submit(JOB, *long)
            short = made.submit(JOB, *flags, "--steps", "5")  # Its final state is its only checkpoint.
            wait_for(lambda: made.job(short)["state"] == "SUCCEEDED", "the short job")
            wait_for(lambda: len(stored(first)) == 2 and len(stored(canceled)) == 2, "two checkpoints of both jobs")
            self.assertEqual(xlad("cancel", canceled, "--coordinator", made.address)[0], 0)
            wait_for(lambda: made.job(canceled)["state"] == "CANCELLED", "the canceled job")
            made.workers["w0"].kill()
            wait_for(lambda: made.job(first)["state"] == "PENDING", "the attempt to end")
            (older, newest), (canceled_older, canceled_newest), (only,) = map(stored, (first, canceled, short))
            for checkpoint in (newest, canceled_newest, only):
                damage(checkpoint)
            # The five attempts of a job take 15 s, so the jobs make them at the same time.
            resumed, last = (made.submit(JOB, *long, "--resume", job) for job in (canceled, short))
            made.start_worker("w0")
            wait_for_a_start(first, older)
            self.assertTrue(pathlib.Path(newest["uri"].removeprefix("file:")).exists(), "its files are kept")
            wait_for(lambda: len(stored(first)) == 2 and stored(first)[0]["step"] > newest["step"], "new checkpoints")
            wait_for_a_start(resumed, canceled_older)
            wait_for(lambda: made.job(last)["state"] == "FAILED", "the job without a checkpoint to fail")
            for words in ("is damaged", "found no older checkpoint", "xlad ckpt verify"):
                self.assertIn(words, made.job(last)["reason"])

    def test_checkpoints_that_a_running_job_replaces_are_not_damaged(self):
        with folder() as where, cluster(workers=1, devices=1) as made:
            job_id = made.submit(JOB, "--mesh", "dp=1", *LONG, "--checkpoint-every", "1",
                                 "--checkpoint-to", f"file:{where}/kept")
            wait_for(lambda: xlad("ckpt", "ls", job_id, "--coordinator", made.address)[0] == 0, "a checkpoint")
            of_job = (job_id, "--coordinator", made.address)

            def reads(command, what):
                """Returns whether the command has read the checkpoints."""
                code, out, err = xlad("ckpt", command, *what, "--format", "json")
                if "the job replaces its checkpoints faster than they can be read" in out + err:
                    return False  # On a busy machine, the job may be faster than ten attempts to read.
                self.assertEqual(code, 0, err)
                rows = json.loads(out)
                self.assertTrue(rows)
                self.assertFalse([row for row in rows if "error" in row])
                return True

            forms = list(itertools.product(("ls", "verify"), (of_job, (where / "kept",))))
            for command, what in 8 * forms:
                reads(command, what)
            for command, what in forms:
                wait_for(lambda: reads(command, what), f"{command} {what} to read a checkpoint")

    def test_the_folder_of_a_coordinator_is_not_removed_by_another(self):
        with cluster(workers=0, devices=1) as made:
            data = made.where / "data"
            code, _, err = xlad("up", "--listen", "127.0.0.1:0", "--data", data, "--remove-data")
            self.assertEqual(code, 3, err)
            self.assertRegex(err, "--remove-data: found .* in .*/data, expected a new or empty folder")
            self.assertTrue((data / "jobs.sqlite").exists())

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
            wait_for(lambda: made.job(job_id)["state"] == "CANCELLED", "the canceled job")

    def test_metrics_are_complete_after_a_coordinator_restart(self):
        with cluster(workers=2, devices=4) as made, folder() as where:
            key = ("--key", "whole")
            job_id = made.submit(JOB, *MESH, "--steps", "1500", *key)
            wait_for(lambda: made.job(job_id)["step"] >= 5, "the first steps")
            made.coordinator.kill()
            made.start_coordinator()
            code, out, err = xlad("submit", JOB, *MESH, "--steps", "1500", *key, "--coordinator", made.address,
                                  "--curve", where / "curve.json")
            self.assertEqual(code, 0, err)
            self.assertEqual(out.split()[0], job_id)
            events = made.events(job_id)
            self.assertLess(events[0]["term"], events[-1]["term"],
                            "the job ended before the coordinator was killed: it needs more steps")
            curve = json.loads((where / "curve.json").read_text())
            self.assertEqual(len(curve["loss"]), 1500)

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
                found = re.search(r"xlad is up at (\S+) with", text)
                return found[1] if found else None

            up = Process(where / "up1.log", *args)
            try:
                where_up = wait_for(lambda: address(up), "xlad up")
                code, out, err = xlad("submit", JOB, "--coordinator", where_up, "--mesh", "dp=4", *LONG)
                self.assertEqual(code, 0, err)

                def step():
                    jobs = json.loads(xlad("ps", "--coordinator", where_up, "--format", "json")[1])
                    return jobs[0]["step"]

                wait_for(lambda: step() > 5, "steps")
                self.assertEqual(up.terminate(), 75)
                up.close()
                up = Process(where / "up2.log", *args)
                where_up = wait_for(lambda: address(up), "xlad up again")
                wait_for(lambda: step() > 5, "the job to continue")
                log = xlad("logs", out.split()[0], "--coordinator", where_up)[1]
                self.assertIn("drains", log)
                for at, folders, files in os.walk(where / "data"):
                    for path in [at, *(os.path.join(at, name) for name in folders + files)]:
                        with contextlib.suppress(FileNotFoundError):  # The job deletes old checkpoints meanwhile.
                            self.assertEqual(os.lstat(path).st_mode & 0o077, 0, f"other users can access {path}")
            finally:
                up.close()

    def test_a_waiting_job_has_a_reason(self):
        with cluster(1, 1) as made:
            submit = Process(made.where / "submit.log", "submit", JOB, "--mesh", "dp=8", "--wait", "--coordinator",
                             made.address)
            try:
                words = "waits for 8 devices, the workers have 1"
                wait_for(lambda: words in submit.log(), "what the job waits for")
                code, out, err = xlad("resize", made.ps()[0]["id"], "--mesh", "dp=4", "--coordinator", made.address)
                self.assertEqual(code, 0, err)
                self.assertIn("4 devices, the workers have 1", out, "a waiting job may be resized to more than that")
            finally:
                submit.close()

    def test_ctrl_c_while_a_job_is_built_is_not_a_failure(self):
        with folder() as where:
            with subprocess.Popen([XLAD, "run", JOB, *MESH, "--cache", "off", "--data", where], start_new_session=True,
                                  stderr=subprocess.PIPE) as run:
                try:
                    wait_for(lambda: any(b"__build" in line for line in children(run.pid).values()), "the build")
                finally:
                    os.killpg(run.pid, signal.SIGINT)  # To every process of the group, as a terminal does.
                err = run.communicate(timeout=PATIENCE_S)[1]
                self.assertNotIn(b"FAILED", err)
                self.assertIn(b"was canceled at step 0 of", err)
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
                os.kill(next(pid for pid, line in children(run.pid).items() if b"worker" in line), signal.SIGKILL)
                wait_for(lambda: says("attempt 2 running"), "the job to continue")
                run.popen.send_signal(signal.SIGINT)
                self.assertEqual(run.popen.wait(PATIENCE_S), 130)
                canceled = re.search(r"xlad: job-\w+ was canceled at step (\d+) of", run.log())
                self.assertIsNotNone(canceled, run.log())
                saved = max(map(int, re.findall(r"checkpoint of step (\d+)", log.read_text(errors="replace"))))
                self.assertGreaterEqual(int(canceled[1]), saved, "the step is older than a checkpoint")
            finally:
                run.close()

    def started_run(self, where, *flags):
        """A run of many steps that has stored a checkpoint in where/kept or where/data, or has a process for its
        attempt if neither is in the flags."""
        run = Process(where / "run.log", "run", JOB, "--mesh", "dp=2", *LONG, "--checkpoint-every", 20, "--workers", 2,
                      "--compile-tier", "optimized", *flags)
        try:
            if f"file:{where}/kept" in flags:
                wait_for(lambda: json.loads(xlad("ckpt", "ls", where / "kept", "--format", "json")[1] or "[]"),
                         "a checkpoint")
            elif where / "data" in flags:
                log = where / "data" / "coordinator.log"
                wait_for(lambda: log.exists() and "checkpoint of step" in log.read_text(errors="replace"),
                         "a checkpoint")
            else:
                wait_for(lambda: any(b"__attempt" in line for worker in children(run.pid)
                                     for line in children(worker).values()), "the attempt")
        except BaseException:
            run.close()
            raise
        return run

    def test_sigterm_of_run_commits_a_checkpoint(self):
        for place in ("--checkpoint-to", "--data"):
            with self.subTest(place), folder() as where:
                to = f"file:{where}/kept" if place == "--checkpoint-to" else where / "data"
                run = self.started_run(where, place, to)
                try:
                    # A batch system may signal all processes of a job.
                    for pid, line in children(run.pid).items():
                        if b"worker" in line:
                            os.kill(pid, signal.SIGTERM)
                    self.assertEqual(run.terminate(), 75, run.log())
                    said = re.search(r"the state of step (\d+) is saved; .* again with --resume (.*)", run.log())
                    self.assertTrue(said, run.log())
                    step, resume = int(said[1]), said[2].split()
                finally:
                    run.close()
                self.assertGreater(step, 0)
                common = (JOB, "--mesh", "dp=2", "--steps", step + 5, "--compile-tier", "optimized")
                states = [where / "continued", where / "undisturbed"]
                for state, flags in zip(states, (("--resume", *resume), ())):
                    code, _, err = xlad("run", *common, *flags, "--save-state", state)
                    self.assertEqual(code, 0, err)
                self.assertEqual(states[0].read_bytes(), states[1].read_bytes())

    def test_sigterm_of_a_run_in_a_temporary_folder_says_what_would_keep_the_state(self):
        with folder() as where:
            run = self.started_run(where)
            try:
                self.assertEqual(run.terminate(), 130)
                self.assertIn("--checkpoint-to file:/PATH or --data FOLDER keeps its state", run.log())
            finally:
                run.close()

    def test_a_second_sigterm_ends_a_run_at_once(self):
        with folder() as where:
            run = self.started_run(where, "--checkpoint-to", f"file:{where}/kept")
            try:
                for pid, line in children(run.pid).items():
                    if b"worker" in line:
                        os.kill(pid, signal.SIGSTOP)  # The state cannot be saved.
                run.popen.send_signal(signal.SIGTERM)
                wait_for(lambda: "saves its state" in run.log(), "the drain to begin")
                self.assertEqual(run.terminate(), 130)
            finally:
                run.close()

    def test_interrupted_run_leaves_no_process_behind(self):
        with folder() as where:
            run = Process(where / "run.log", "run", JOB, *MESH, *LONG, "--workers", 4, "--data", where / "data")
            try:
                workers = lambda: [pid for pid, line in children(run.pid).items() if b"worker" in line]
                wait_for(lambda: len(workers()) == 4, "the workers")
                pids = workers()
                wait_for(lambda: (where / "data" / "jobs").exists(), "the job")
                time.sleep(1)
                run.popen.send_signal(signal.SIGINT)
                self.assertEqual(run.popen.wait(PATIENCE_S), 130)
                wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the workers to end")
            finally:
                run.close()


if __name__ == "__main__":
    unittest.main()

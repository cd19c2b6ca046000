"""Tokens of workers and users on one machine, with a coordinator that other machines can reach."""

import json
import os
import re
import time
import unittest
from unittest import mock

from harness import OWN_EXAMPLES, PATIENCE_S, Process, folder, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
ENDLESS = ("--steps", "1000000", "--checkpoint-every", "10")


class Tokens(unittest.TestCase):
    def setUp(self):
        made = folder()
        self.where = made.__enter__()
        self.addCleanup(made.__exit__, None, None, None)
        config = mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(self.where / "config")})
        config.start()
        self.addCleanup(config.stop)
        self.data = self.where / "data"
        self.coordinator = self.start("coordinator", "coordinator", "--listen", "0.0.0.0:0", "--advertise", "localhost",
                                      "--data", self.data)
        wait_for((self.where / "config/xlad/join").exists, "the join file of the coordinator's user")

    def start(self, name, *args):
        process = Process(self.where / f"{name}.log", *args)
        self.addCleanup(process.close)
        return process

    def token(self, name, *args):
        """Writes a join file and returns its path and the id of its token."""
        path = self.where / f"{name}.join"
        code, _, err = xlad("token", "--data", self.data, "-o", path, *args)
        self.assertEqual(code, 0, err)
        return path, err.split()[1].rstrip(":")

    def revoke(self, token):
        self.assertEqual(xlad("token", "--data", self.data, "--revoke", token)[0], 0)

    def json(self, *args):
        code, out, err = xlad(*args, "--format", "json")
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def start_workers(self, count):
        """Starts workers with one device and a token each, and returns them with the ids of their tokens."""
        started = []
        for w in range(count):
            path, token = self.token(f"w{w}", "--role", "worker")
            started.append((self.start(f"w{w}", "worker", "--join", path, "--id", f"w{w}", "--devices", 1), token))
        wait_for(lambda: len(self.json("status")["workers"]) == count, "the workers to register")
        return started

    def job(self, job_id):
        return next(job for job in self.json("ps") if job["id"] == job_id)

    def running(self, job_id, mesh):
        wait_for(lambda: (job := self.job(job_id))["state"] == "RUNNING" and job["mesh"] == mesh and job["step"] > 20,
                 f"the job to run on {mesh}")

    def test_a_replaced_token_is_taken_and_a_revoked_one_loses_the_worker(self):
        (first, first_token), (second, second_token) = self.start_workers(2)
        code, out, err = xlad("submit", JOB, "--mesh", "dp=2", "--on-loss", "shrink", *ENDLESS)
        self.assertEqual(code, 0, err)
        job_id = out.split()[0]
        self.running(job_id, "dp=2")
        self.token("w0", "--role", "worker")  # Replaces the file.
        self.revoke(first_token)
        wait_for(lambda: first_token in first.log(), "the stream of the revoked token to end")
        time.sleep(2)
        self.assertIsNone(first.popen.poll(), first.log())
        self.assertEqual(self.job(job_id)["attempt"], 1, "the job continues")
        self.assertEqual([worker["state"] for worker in self.json("status")["workers"]], ["alive", "alive"])
        self.revoke(second_token)
        began = time.monotonic()
        self.assertNotEqual(second.popen.wait(PATIENCE_S), 0)
        print(f"the worker of the revoked token ended after {time.monotonic() - began:.1f} s")
        self.assertIn(f"found token {second_token}, which was revoked", second.log())
        self.running(job_id, "dp=1")
        reason = next(worker["reason"] for worker in self.json("status")["workers"] if worker["id"] == "w1")
        self.assertIn(f"it was refused: found token {second_token}, which was revoked", reason)
        self.assertEqual(xlad("cancel", job_id)[0], 0)

    def test_a_command_that_waits_takes_a_replaced_token(self):
        (worker, _), = self.start_workers(1)
        alice = ("--role", "submitter", "--user", "alice")
        path, token = self.token("alice", *alice)
        command = self.start("submit", "submit", JOB, "--mesh", "dp=1", "--wait", "--join", path, *ENDLESS)
        job_id = wait_for(lambda: re.search(r"^job-\w+$", command.log(), re.MULTILINE), "the job")[0]
        self.running(job_id, "dp=1")
        self.token("alice", *alice)  # Replaces the file.
        self.revoke(token)
        ended = lambda: any("the stream of a client is ended" in line and token in line
                            for line in self.coordinator.log().splitlines())
        wait_for(ended, "the stream of the revoked token to end")
        said = len(command.log())
        worker.terminate()
        wait_for(lambda: "waits for" in command.log()[said:], "the command to say for what the job waits")
        self.assertIsNone(command.popen.poll(), command.log())
        code, _, err = xlad("cancel", job_id, "--join", path)
        self.assertEqual(code, 0, err)
        self.assertEqual(command.popen.wait(PATIENCE_S), 1, command.log())
        self.assertIn(f"job {job_id} CANCELLED", command.log())

    def test_another_user_gets_neither_the_id_of_a_worker_nor_the_jobs_on_it(self):
        self.start_workers(1)
        alice, bob = (self.token(user, "--role", "submitter", "--user", user)[0] for user in ("alice", "bob"))
        code, out, err = xlad("submit", JOB, "--mesh", "dp=1", "--join", alice, *ENDLESS)
        self.assertEqual(code, 0, err)
        job_id = out.split()[0]
        self.running(job_id, "dp=1")
        for command in ("status", "nodes", "ps"):
            self.assertIn(job_id, json.dumps(self.json(command, "--join", alice)), command)
            self.assertNotIn(job_id, json.dumps(self.json(command, "--join", bob)), command)
        for command in ("cancel", "why", "logs"):
            code, out, err = xlad(command, job_id, "--join", bob)
            self.assertEqual(code, 1, out)
            self.assertIn("of user bob", err)
        thief_join, _ = self.token("thief", "--role", "worker", "--user", "mallory")
        thief = self.start("thief", "worker", "--join", thief_join, "--id", "w0", "--devices", 1)
        self.assertNotEqual(thief.popen.wait(PATIENCE_S), 0)
        self.assertIn("worker w0 belongs to a different user than the token of this worker (mallory)", thief.log())
        self.assertEqual(self.job(job_id)["attempt"], 1)

    def test_a_second_coordinator_on_the_same_folder_leaves_the_first_one_alone(self):
        second = self.start("second", "coordinator", "--listen", "0.0.0.0:0", "--advertise", "elsewhere.example",
                            "--data", self.data)
        self.assertEqual(second.popen.wait(PATIENCE_S), 3, second.log())
        self.assertIn("is in use by another coordinator", second.log())
        time.sleep(2)  # A changed certificate would be read within a second.
        self.json("ps")


if __name__ == "__main__":
    unittest.main()

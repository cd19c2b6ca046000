"""Training continues after every fault without intervention, and its result has the same bits as an undisturbed run.

The short form runs with the other tests. The long form prints a table:

  XLAD_GRID=kill-daemon=50,cut=20 XLAD_SEED=7 python3 -m unittest -v grid_e2e.Table

XLAD_GRID names the faults (grid.FAULTS) and how often each is injected. The prefix "end-" injects a fault near the last
step instead of at a random step. XLAD_SEED repeats the same choices.

  XLAD_STORM=100 python3 -m unittest -v grid_e2e.Storm

kills the coordinator that many times while 50 clients submit jobs.
"""

import collections
import os
import pathlib
import random
import subprocess
import time
import unittest

from grid import FAULTS, STEPS, Grid, Outcome, percentile
from harness import OWN_EXAMPLES, PATIENCE_S, XLAD, cluster, folder, wait_for, xlad

SEED = int(os.environ.get("XLAD_SEED", "1"))


def job_and_mesh():
    examples = os.environ.get("XLAD_EXAMPLES")
    if examples:
        return pathlib.Path(examples) / "digits_mlp", "dp=8"
    return OWN_EXAMPLES / "spiral_mlp", "dp=4,tp=2"


class Trial:
    """The outcome of one run with one fault."""

    def __init__(self, grid, kind, dice, calm):
        self.kind = kind
        run = grid.train(*job_and_mesh())
        start = time.monotonic()
        try:
            if kind.startswith("end-"):
                run.wait_for_step(STEPS - 20)
                time.sleep(dice.uniform(0, 0.3))
            else:
                run.wait_for_step(dice.randrange(1, STEPS))
            self.at = run.seen[-1][1] if run.seen else 0  # Nothing is displayed if the job ends soon.
            self.what, died = FAULTS[kind.removeprefix("end-")](grid, dice)
            code = run.wait()
            self.wall_s = time.monotonic() - start
            new_step = run.next_new_step(died) if died is not None else None
            self.next_step_s = new_step - died if new_step is not None else None
            self.problems = Outcome(run).differences(calm) if code == 0 else [f"exit code {code}: {run.text[-600:]}"]
            self.attempts = grid.attempts_of(run.job_id)
        finally:
            run.close()

    def line(self):
        next_step = f"{self.next_step_s:5.2f} s" if self.next_step_s is not None else "      -"
        return (f"{self.kind:23} at step {self.at:3}  {self.what:30} next new step {next_step}  "
                f"wall {self.wall_s:5.1f} s  attempts {self.attempts}  {'; '.join(self.problems) or 'same'}")


def calm_run(grid):
    run = grid.train(*job_and_mesh())
    try:
        assert run.wait() == 0, run.text
        return Outcome(run)
    finally:
        run.close()


def run_trials(kinds, dice, show):
    """Runs one trial of each kind on one grid."""
    with folder() as where:
        grid = Grid(where, cuts=any("cut" in kind for kind in kinds))
        try:
            calm = calm_run(grid)
            trials = []
            for kind in kinds:
                trials.append(Trial(grid, kind, dice, calm))
                show(trials[-1].line())
            return trials
        finally:
            grid.close()


class Faults(unittest.TestCase):
    """The short form of the test."""

    def test_killed_processes_and_a_coordinator_that_is_killed_at_the_end(self):
        lines = []
        kinds = ("kill-attempt", "kill-both", "end-kill-daemon", "end-kill-coordinator", "end-restart-coordinator")
        trials = run_trials(kinds, random.Random(SEED), lines.append)
        self.assertEqual([trial.line() for trial in trials if trial.problems], [], lines)


class Resize(unittest.TestCase):
    def running(self, grid, run, mesh):
        """Returns the job if it runs on the mesh."""
        job = grid.job(run.job_id)
        self.assertNotIn(job["state"], ("SUCCEEDED", "FAILED", "CANCELLED"), f"the job has ended, expected {mesh}")
        return job if job["state"] == "RUNNING" and job["mesh"] == mesh else None

    def test_fewer_devices_and_more_again(self):
        with folder() as where:
            grid = Grid(where)
            try:
                run = grid.train(OWN_EXAMPLES / "spiral_mlp", "dp=8", steps=2500)
                self.addCleanup(run.close)
                step = 20
                for size in (5, 8):
                    run.wait_for_step(step)
                    code, _, err = xlad("resize", run.job_id, "--mesh", f"dp={size}", "--coordinator", grid.address)
                    self.assertEqual(code, 0, err)
                    job = wait_for(lambda: self.running(grid, run, f"dp={size}"), f"the job to run on {size} devices")
                    self.assertGreaterEqual(job["step"], step, "no step is lost")
                    step = job["step"] + 20
                self.assertEqual(run.wait(), 0, run.text)
                job = grid.job(run.job_id)
                self.assertEqual((job["state"], job["step"], job["mesh"]), ("SUCCEEDED", 2500, "dp=8"))
            finally:
                grid.close()


class Policies(unittest.TestCase):
    """Tests the effect of --on-loss on a job whose worker does not reconnect."""

    def test_shrink_and_wait(self):
        with cluster(workers=3, devices=1) as made:
            def running(job_id, mesh, attempt):
                return wait_for(lambda: (j := made.job(job_id))["state"] == "RUNNING" and j["mesh"] == mesh and
                                j["attempt"] == attempt and j["step"] > 20, f"attempt {attempt} on {mesh}")

            args = ("--mesh", "dp=3", "--steps", "1000000", "--checkpoint-every", "10")
            waits = made.submit(OWN_EXAMPLES / "spiral_mlp", *args, "--on-loss", "wait")
            running(waits, "dp=3", 1)
            made.workers["w2"].kill()
            wait_for(lambda: "waits for worker w2" in xlad("why", waits, "--coordinator", made.address)[1], "the wait")
            made.start_worker("w2")
            running(waits, "dp=3", 2)
            xlad("cancel", waits, "--coordinator", made.address)
            shrinks = made.submit(OWN_EXAMPLES / "spiral_mlp", *args, "--on-loss", "shrink")
            running(shrinks, "dp=3", 1)
            made.workers["w2"].kill()
            running(shrinks, "dp=2", 2)
            self.assertIn("resized", [event["kind"] for event in made.events(shrinks)])


class Checkpoints(unittest.TestCase):
    def test_a_folder_that_cannot_be_written(self):
        with cluster(workers=1, devices=1) as made:
            file = made.where / "file"
            file.write_text("not a folder")
            submit = subprocess.Popen(
                [XLAD, "submit", OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=1", "--steps", "1000000",
                 "--checkpoint-every", "5", "--checkpoint-to", f"file:{file}/checkpoints", "--coordinator",
                 made.address, "--wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            with submit:
                try:
                    job_id = submit.stdout.readline().strip()
                    said = next(line for line in submit.stderr if "stored" in line)
                    what = "part of the checkpoint of step 5 cannot be stored"
                    self.assertIn(f"xlad: {job_id}: worker w0's {what}", said)
                    why = xlad("why", job_id, "--coordinator", made.address)[1]
                    self.assertIn(what, why)
                    self.assertIn(f"make file:{file}/checkpoints a folder that all workers", why)
                    steps = [event["step"] for event in made.events(job_id) if event["kind"] == "checkpoint_failed"]
                    self.assertEqual(steps, [5])
                    self.assertEqual(made.job(job_id)["state"], "RUNNING", "the job continues")
                finally:
                    submit.kill()


class Storm(unittest.TestCase):
    """The coordinator is killed while clients submit jobs, which a worker runs. Each accepted job must exist exactly
    once, succeed, and have run once."""

    def storm(self, rounds, clients, dice):
        """Returns the time from each restart until the coordinator answered a client."""
        accepted, restarts = {}, []
        with cluster(workers=1, devices=1) as made:
            for number in range(rounds):
                keys = [f"{number}-{client}" for client in range(clients)]
                submits = {key: subprocess.Popen(
                    [XLAD, "submit", OWN_EXAMPLES / "spiral_mlp", "--steps", "1", "--coordinator", made.address,
                     "--key", key], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for key in keys}
                time.sleep(dice.uniform(0, 0.05 * clients))
                made.coordinator.kill()
                start = time.monotonic()
                made.start_coordinator()
                restarts.append(time.monotonic() - start)
                for key, submit in submits.items():
                    out, err = submit.communicate(timeout=PATIENCE_S)
                    if submit.returncode == 3:  # The client did not reach a coordinator.
                        self.assertIn(f"submit again with --key {key}", err.decode())
                        accepted[key] = made.submit(OWN_EXAMPLES / "spiral_mlp", "--steps", "1", "--key", key)
                        continue
                    self.assertEqual(submit.returncode, 0, err)
                    accepted[key] = out.decode().split()[0]
                jobs = collections.Counter(job["id"] for job in made.ps())
                self.assertEqual(sorted(jobs), sorted(accepted.values()), "each accepted job, and no other")
                self.assertEqual(set(jobs.values()), {1})
            wait_for(lambda: {job["state"] for job in made.ps()} == {"SUCCEEDED"}, "all jobs to succeed",
                     max(PATIENCE_S, len(accepted)))
            for job in made.ps():
                self.assertEqual(self.runs(made, job), 1, job)
        return restarts

    def runs(self, made, job):
        """Returns how many attempts of the job have begun to run, without those whose worker was lost, as on a busy
        machine. An attempt whose worker the coordinator had not yet told to start when it was killed is not counted."""
        if job["attempt"] == 1:
            return 1
        events = made.events(job["id"])
        lost = sum(event["kind"] == "attempt_ended" and "was lost" in event["text"] for event in events)
        return sum(event["kind"] == "started" for event in events) - lost

    def test_submissions_are_neither_lost_nor_doubled(self):
        rounds = int(os.environ.get("XLAD_STORM", "0"))
        restarts = self.storm(rounds or 2, 50 if rounds else 8, random.Random(SEED))
        if rounds:
            print(f"{rounds} kills, 50 clients each: serving again after {percentile(restarts, 0.5):.2f} s (median), "
                  f"{max(restarts):.2f} s (longest)")


class Table(unittest.TestCase):
    @unittest.skipUnless("XLAD_GRID" in os.environ, "XLAD_GRID names no faults")
    def test_table(self):
        dice = random.Random(SEED)
        kinds = []
        for item in os.environ["XLAD_GRID"].split(","):
            kind, _, count = item.partition("=")
            kinds += [kind] * int(count or 1)
        dice.shuffle(kinds)
        trials = run_trials(kinds, dice, lambda line: print(line, flush=True))
        for kind in sorted(set(kinds)):
            of_kind = [trial for trial in trials if trial.kind == kind]
            times = [trial.next_step_s for trial in of_kind if trial.next_step_s is not None]
            print(f"{kind:23} {len(of_kind)} runs, {sum(bool(t.problems) for t in of_kind)} with problems; "
                  f"next new step after the death: median {percentile(times, 0.5):.2f} s, "
                  f"p99 {percentile(times, 0.99):.2f} s")
        self.assertEqual([trial.line() for trial in trials if trial.problems], [])


if __name__ == "__main__":
    unittest.main()

"""Jobs that start on quickly compiled code: the same bits, the change to optimized code, caches, restarts."""

import json
import os
import pathlib
import signal
import unittest

from grid import children
from harness import OWN_EXAMPLES, cluster, folder, wait_for, xlad

JOBS = [OWN_EXAMPLES / "spiral_mlp"]
if "XLAD_EXAMPLES" in os.environ:
    JOBS.append(pathlib.Path(os.environ["XLAD_EXAMPLES"]) / "nano_gpt")
LONG = ("--steps", "1000000", "--checkpoint-every", "100")


def newest_checkpoint(made, job_id):
    return max([event["step"] for event in made.events(job_id) if event["kind"] == "checkpoint"], default=-1)


def wait_for_optimized_code(made, job_id):
    """Waits until the job has changed to optimized code, and returns the first step that runs optimized code."""
    found = wait_for(lambda: [e for e in made.events(job_id) if e["kind"] == "code_replaced"], "optimized code")
    return found[0]["step"]


def idle_builds(pid):
    """The processes of the coordinator that wait for the next build."""
    return [child for child, line in children(pid).items() if line[1:3] == [b"__build", b"idle"]]


def has_ended(pid):
    """Whether there is no such process. One that has ended and is not reaped yet has no command line."""
    try:
        return not pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True


class QuickCode(unittest.TestCase):
    def run_ok(self, *args):
        code, out, err = xlad(*args)
        self.assertEqual(code, 0, err)
        return out, err

    def trained(self, where, job, name, *flags):
        """Returns the losses, final state, quick steps and summary of a run with an empty cache."""
        summary = self.run_ok("run", job, "--steps", 4, "--cache", where / f"cache-{name}", "--curve", where / name,
                              "--save-state", where / f"{name}.safetensors", *flags)[1]
        curve = json.loads((where / name).read_text())
        return curve["loss"], (where / f"{name}.safetensors").read_bytes(), curve["quick_steps"], summary

    def test_runs_have_the_same_bits(self):
        for job in JOBS:
            for mesh in ([], ["--mesh", "dp=8"]):
                with folder() as where, self.subTest(job=job.name, mesh=mesh):
                    *quick, quick_steps, summary = self.trained(where, job, "quick", *mesh)
                    *optimized, none, other = self.trained(where, job, "usual", *mesh, "--compile-tier", "optimized")
                    self.assertEqual(quick, optimized)
                    self.assertGreaterEqual(quick_steps, 1)
                    self.assertIn("on quickly compiled code", summary)
                    self.assertEqual(none, 0)
                    self.assertNotIn("quickly", other)

    def state_of(self, made, where, job, job_id, step):
        """Returns the state of the job's newest checkpoint, which must be the state before `step`."""
        path = where / "resumed.safetensors"
        self.run_ok("submit", job, "--coordinator", made.address, "--resume", job_id, "--steps", step,
                    "--save-state", path)
        return path.read_bytes()

    def test_optimized_code_replaces_quick_code_between_two_steps(self):
        for workers, devices, mesh in ((1, 1, []), (2, 4, ["--mesh", "dp=8"])):
            with cluster(workers=workers, devices=devices) as made, folder() as where:
                job_id = made.submit(JOBS[0], *mesh, *LONG)
                first = wait_for_optimized_code(made, job_id)
                wait_for(lambda: newest_checkpoint(made, job_id) > first, "a later checkpoint")
                self.run_ok("cancel", job_id, "--coordinator", made.address)
                wait_for(lambda: made.job(job_id)["state"] == "CANCELLED", "the end")
                step = newest_checkpoint(made, job_id)
                state = self.state_of(made, where, JOBS[0], job_id, step)
                self.run_ok("run", JOBS[0], *mesh, "--steps", step, "--compile-tier", "optimized", "--cache", "off",
                            "--save-state", where / "usual")
                self.assertEqual(state, (where / "usual").read_bytes())
                texts = [event["text"] for event in made.events(job_id)]
                self.assertRegex(texts[1], r"compiled executable \w+ quickly in \d+ ms")
                self.assertIn(f"training started on quickly compiled code; optimized code from step {first}", texts)
                # Only the optimized code was kept. It is found, so the next job starts on it.
                again = made.submit(JOBS[0], *mesh, *LONG)
                made.wait_for_steps(again)
                self.assertIn("in the cache", made.events(again)[1]["text"])
                self.assertNotIn("code_replaced", [event["kind"] for event in made.events(again)])

    def test_a_restarted_coordinator_and_a_killed_worker_change_nothing(self):
        with cluster(workers=2, devices=4) as made:
            job_id = made.submit(JOBS[0], "--mesh", "dp=8", *LONG)
            wait_for(lambda: "started" in [event["kind"] for event in made.events(job_id)], "the start")
            made.coordinator.kill()
            made.start_coordinator()
            wait_for_optimized_code(made, job_id)
            made.workers["w1"].kill()
            wait_for(lambda: made.job(job_id)["state"] == "PENDING", "the attempt to end")
            made.start_worker("w1")
            step = made.job(job_id)["step"]
            made.wait_for_steps(job_id, step + 20)
            self.assertEqual(made.job(job_id)["attempt"], 2)
            kinds = [event["kind"] for event in made.events(job_id)]
            self.assertEqual(kinds.count("code_replaced"), 1, "the second attempt starts on optimized code")

    def test_builds_use_the_idle_process_and_do_not_need_it(self):
        with cluster(workers=1, devices=1) as made:
            coordinator = made.coordinator.pid
            used = wait_for(lambda: idle_builds(coordinator), "an idle process")[0]
            first = made.submit(JOBS[0], *LONG)
            wait_for_optimized_code(made, first)
            self.assertTrue(has_ended(used), "it has served the build for which the job waited")
            self.assertNotIn("idle process for builds cannot be used", made.coordinator.log())
            self.run_ok("cancel", first, "--coordinator", made.address)
            killed = wait_for(lambda: idle_builds(coordinator), "the next idle process")[0]
            self.assertNotEqual(killed, used)
            os.kill(killed, signal.SIGKILL)
            wait_for(lambda: has_ended(killed), "the end of the idle process")
            second = made.submit(JOBS[0], *LONG, "--mesh", "dp=1,tp=1")
            made.wait_for_steps(second)
            self.assertRegex(made.events(second)[1]["text"], "(built|compiled) executable")
            self.assertIn("idle process for builds cannot be used", made.coordinator.log())
            last = wait_for(lambda: idle_builds(coordinator), "the idle process after that build")[0]
            self.assertEqual(made.coordinator.terminate(), 0)
            wait_for(lambda: has_ended(last), "the end of the idle process")


if __name__ == "__main__":
    unittest.main()

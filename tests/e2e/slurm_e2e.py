"""The batch script of deploy/slurm on a real Slurm: a controller and four slurmd on this machine, without munge.

The test is skipped if Slurm's programs are not installed (Debian: slurmctld slurmd slurm-client), if it does not run as
root, because a slurmd runs tasks as the user who submitted them, or if the machine has only loopback addresses. It does
not affect an installed Slurm: all ports, folders and the configuration are the test's own, and the names of its nodes
exist only in its mount namespace.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import unittest

from deploy_e2e import own_address
from harness import OWN_EXAMPLES, PATIENCE_S, REPO, XLAD, folder, free_ports, wait_for
from slurm_cluster import SlurmCluster, missing_programs

NODES = 4
SETTINGS = ("AuthInfo=cred_expire=10", "KillWait=10", "SchedulerType=sched/backfill",
            "SchedulerParameters=batch_sched_delay=0", "RequeueExit=75")
# Runs its arguments with a hosts file in which n1, n2, ... are names of this machine.
NAMESPACE = ["unshare", "-m", "bash", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']


def why_not():
    if missing := missing_programs():
        return f"{', '.join(missing)} not installed (apt-get install slurmctld slurmd slurm-client)"
    if os.geteuid() != 0:
        return "a slurmd of several nodes needs root"
    return "this machine has only loopback addresses" if own_address() is None else None


class Slurm(SlurmCluster):
    """A cluster that ends with the test. The names of its nodes are host names in its processes."""

    def __init__(self, where):
        address = own_address()
        names = " ".join([socket.gethostname(), socket.gethostname().split(".")[0],
                          *(f"n{i}" for i in range(1, NODES + 1))])
        (where / "hosts").write_text(f"127.0.0.1 localhost\n{address} {names}\n")
        # On a machine with much other load, workers may need longer than 30 s to save the state.
        super().__init__(where, NODES, address, SETTINGS, [*NAMESPACE, str(where / "hosts")], XLAD=XLAD,
                         XLAD_PORT=str(free_ports(1)[0]), XLAD_DATA=str(where / "data"),
                         XLAD_WORKER_GRACE_MS=str(1000 * PATIENCE_S))

    def __enter__(self):
        idle = lambda: self.run("sinfo", "-h", "-N", "-o", "%t")[1].split() == ["idle"] * NODES
        try:
            self.start()
            wait_for(idle, "all nodes to be idle")
        except BaseException:
            self.show()
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.run("scancel", "--signal=KILL", "--full", "--name=xlad")
        self.stop()
        for pid in self.tasks(b"xlad"):  # Kills the processes that a slurmd has left behind.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def tasks(self, *words):
        """Returns the processes of this cluster whose command line contains these words."""
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry)
                line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                mine = f"XLAD_DATA={self.where}/data\0".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
                if mine and all(word in line for word in words):
                    found.append(pid)
        return found

    def show(self):
        """Prints the end of the output of the daemons and of the batch script, for the message of a failure."""
        for path in sorted([*self.where.glob("*.log"), *self.where.glob("slurm-*.out")]):
            print(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}")

    def state(self, job):
        """Returns the state of a job of Slurm, and how often it was requeued."""
        shown = self.run("scontrol", "show", "job", job)[1]
        found = re.search(r"JobState=(\w+)(?:.|\n)*?Restarts=(\d+)", shown)
        return (found[1], int(found[2])) if found else ("?", 0)


@unittest.skipIf(why_not() is not None, f"no Slurm: {why_not()}")
class RealSlurm(unittest.TestCase):
    def xlad(self, slurm, *args):
        join = slurm.where / "data/config/xlad/join"
        return slurm.run(XLAD, *args, "--join", join)

    def job(self, slurm):
        code, out, _ = self.xlad(slurm, "ps", "--format", "json")
        jobs = json.loads(out) if code == 0 and out.strip() else []
        return jobs[0] if jobs else None

    def running_at(self, slurm, step):
        return lambda: (now := self.job(slurm)) and now["state"] == "RUNNING" and now["step"] >= step and now

    def last_start(self, slurm, job):
        """Returns the event of the last attempt that was placed."""
        events = json.loads(self.xlad(slurm, "events", job, "--format", "json")[1])
        return [event for event in events if event["kind"] == "placed"][-1]

    def sbatch(self, slurm, *job):
        return slurm.output("sbatch", "--parsable", f"--nodes={NODES}", f"--chdir={slurm.where}",
                            REPO / "deploy/slurm/xlad.sbatch", OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=2",
                            *job).strip()

    def test_a_job_survives_a_killed_task_and_requeues(self):
        with folder() as where, Slurm(where) as slurm:
            try:
                self.train(slurm)
            except BaseException:
                slurm.show()
                raise

    def train(self, slurm):
        batch = self.sbatch(slurm, "--steps", 100_000_000, "--checkpoint-every", 200)
        running = wait_for(self.running_at(slurm, 500), "the job to run")
        workers = json.loads(self.xlad(slurm, "nodes", "--format", "json")[1])
        self.assertEqual(sum(len(node["workers"]) for node in workers), NODES)
        # One task is killed: srun and the other tasks stay, and the job continues on another node.
        victim = running["workers"][0]
        slurm_pid = next(pid for pid in slurm.tasks(b"worker", b"--join") if pid == victim["pid"])
        os.kill(slurm_pid, signal.SIGKILL)
        again = wait_for(lambda: (now := self.running_at(slurm, 700)()) and now["attempt"] > running["attempt"] and now,
                         "the job to continue without the task")
        self.assertNotIn(victim["id"], [worker["id"] for worker in again["workers"]])
        self.assertEqual(slurm.state(batch), ("RUNNING", 0))
        # SIGTERM of the batch script, which precedes the time limit: the workers save the state of their last step.
        reached = wait_for(self.running_at(slurm, again["step"] + 1), "more steps")["step"]
        slurm.output("scancel", "--batch", "--signal=TERM", batch)
        wait_for(lambda: slurm.state(batch) == ("RUNNING", 1), "the batch job to start again")
        saved = wait_for(self.running_at(slurm, reached), "the job to continue after SIGTERM")
        self.assertEqual(saved["id"], running["id"])
        self.assertGreaterEqual(self.last_start(slurm, saved["id"])["step"], reached, "the state was not saved")
        # The allocation ends without a warning and is granted again.
        slurm.output("scontrol", "requeue", batch)
        wait_for(lambda: slurm.state(batch) == ("RUNNING", 2), "the batch job to start again")
        after = wait_for(self.running_at(slurm, saved["step"]), "the job to continue after the requeue")
        self.assertEqual(after["id"], running["id"])
        self.assertIn("from a checkpoint", self.last_start(slurm, after["id"])["text"])
        # The exit code of the job is that of the batch script.
        self.xlad(slurm, "cancel", after["id"])
        wait_for(lambda: slurm.state(batch) == ("FAILED", 2), "the batch job to end with its job")
        self.assertIn(running["id"], (slurm.where / f"slurm-{batch}.out").read_text())
        short = self.sbatch(slurm, "--steps", 20)
        wait_for(lambda: slurm.state(short) == ("COMPLETED", 0), "the second batch job to end")


if __name__ == "__main__":
    unittest.main()

"""The batch script of deploy/slurm on a real Slurm: a controller and four slurmd of this machine, without munge.

Skipped where slurmctld and slurmd are not installed (Debian: slurmctld slurmd), or if this is not root: a slurmd runs
tasks as their user. Nothing else of Slurm is used, and a Slurm of this machine is not touched: all ports, folders and
the configuration are the test's own, and the names of its nodes exist only in its mount namespace.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

from deploy_e2e import own_address
from harness import OWN_EXAMPLES, REPO, XLAD, folder, wait_for

NODES = 4
CONFIG = """
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=10
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
SchedulerType=sched/backfill
SlurmdParameters=config_overrides
MpiDefault=none
StateSaveLocation={where}/state
SlurmdSpoolDir={where}/spool.%n
SlurmctldPidFile={where}/slurmctld.pid
SlurmdPidFile={where}/slurmd.%n.pid
SlurmctldLogFile={where}/slurmctld.log
SlurmdLogFile={where}/slurmd.%n.log
ReturnToService=2
KillWait=10
SchedulerParameters=batch_sched_delay=0
{nodes}
PartitionName=all Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP
"""
# Runs its arguments where n1, n2, ... are names of this machine.
NAMESPACE = ["unshare", "-m", "bash", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']


def why_not():
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "srun", "scontrol") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (apt-get install slurmctld slurmd slurm-client)"
    if os.geteuid() != 0:
        return "a slurmd of several nodes needs root"
    return "this machine has no address off loopback" if own_address() is None else None


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("0.0.0.0", 0))
        return [s.getsockname()[1] for s in sockets]


class Slurm:
    """A controller and its nodes, which end with the test."""

    def __init__(self, where):
        self.where, self.processes = where, []
        self.ports = free_ports(NODES + 2)
        address, host = own_address(), socket.gethostname()
        names = " ".join(f"n{i}" for i in range(1, NODES + 1))
        (where / "hosts").write_text(f"127.0.0.1 localhost\n{address} {host} {names}\n")
        nodes = "\n".join(f"NodeName=n{i} NodeHostname={host} NodeAddr={address} Port={self.ports[i]} CPUs=1 "
                          "RealMemory=100 State=UNKNOWN" for i in range(1, NODES + 1))
        (where / "slurm.conf").write_text(CONFIG.format(address=address, host=host, ports=self.ports, where=where, nodes=nodes,
                                                        count=NODES))
        (where / "state").mkdir()
        self.env = {**os.environ, "SLURM_CONF": str(where / "slurm.conf"), "XLAD": XLAD,
                    "XLAD_PORT": str(self.ports[-1]), "XLAD_DATA": str(where / "data")}

    def argv(self, *command):
        return [*NAMESPACE, str(self.where / "hosts"), *map(str, command)]

    def start(self, *command):
        with open(self.where / "daemons.log", "ab") as log:
            self.processes.append(subprocess.Popen(self.argv(*command), stdout=log, stderr=log, env=self.env))

    def run(self, *command):
        done = subprocess.run(self.argv(*command), capture_output=True, text=True, env=self.env, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def __enter__(self):
        self.start("slurmctld", "-D", "-c")
        for i in range(1, NODES + 1):
            (self.where / f"spool.n{i}").mkdir()
            self.start("slurmd", "-D", "-N", f"n{i}")
        idle = lambda: self.run("sinfo", "-h", "-N", "-o", "%t")[1].split() == ["idle"] * NODES
        try:
            wait_for(idle, "all nodes to be idle", 60)
        except BaseException:
            self.show()
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.run("scancel", "--signal=KILL", "--full", "--name=xlad")
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self.tasks(b"xlad"):  # Whatever a slurmd has left.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def tasks(self, *words):
        """The processes of this cluster whose command line has these words."""
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
        """What the daemons and the batch script wrote, for a failure."""
        for path in sorted([*self.where.glob("*.log"), *self.where.glob("slurm-*.out")]):
            print(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}")

    def state(self, job):
        return (re.search(r"JobState=(\w+)", self.run("scontrol", "show", "job", job)[1]) or [0, "?"])[1]


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

    def test_a_job_survives_a_killed_task_and_a_requeue(self):
        with folder() as where, Slurm(where) as slurm:
            try:
                self.train(slurm)
            except BaseException:
                slurm.show()
                raise

    def train(self, slurm):
        begin = time.monotonic()
        code, out, err = slurm.run("sbatch", "--parsable", f"--nodes={NODES}", f"--chdir={slurm.where}",
                                   REPO / "deploy/slurm/xlad.sbatch", OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=2",
                                   "--steps", 12000, "--checkpoint-every", 200)
        self.assertEqual(code, 0, err)
        batch = out.strip()
        running = wait_for(self.running_at(slurm, 500), "the job to run", 90)
        workers = json.loads(self.xlad(slurm, "nodes", "--format", "json")[1])
        self.assertEqual(sum(len(node["workers"]) for node in workers), NODES)
        # A task is killed: srun and the other tasks stay, and the job continues on another node.
        victim = running["workers"][0]
        slurm_pid = next(pid for pid in slurm.tasks(b"worker", b"--join") if pid == victim["pid"])
        os.kill(slurm_pid, signal.SIGKILL)
        again = wait_for(lambda: (now := self.running_at(slurm, 700)()) and now["attempt"] > running["attempt"] and now,
                         "the job to continue without the task", 60)
        self.assertNotIn(victim["id"], [worker["id"] for worker in again["workers"]])
        self.assertEqual(slurm.state(batch), "RUNNING")
        # The whole allocation ends and is granted again: the same job, from its newest checkpoint.
        self.assertEqual(slurm.run("scontrol", "requeue", batch)[0], 0)
        wait_for(lambda: slurm.state(batch) == "PENDING", "the batch job to be requeued", 60)
        requeued = time.monotonic()
        wait_for(lambda: slurm.state(batch) == "RUNNING", "the batch job to start again", 120)
        started = time.monotonic()
        after = wait_for(self.running_at(slurm, again["step"]), "the job to continue after the requeue", 90)
        self.assertEqual(after["id"], running["id"])
        events = json.loads(self.xlad(slurm, "events", after["id"], "--format", "json")[1])
        placed = [event["text"] for event in events if event["kind"] == "placed"]
        self.assertIn("from a checkpoint", placed[-1], "the last attempt began at step 0")
        print(f"Slurm: {requeued - begin:.0f} s until the requeue, {started - requeued:.0f} s until it was granted, "
              f"{time.monotonic() - started:.0f} s until the job ran on", flush=True)
        wait_for(lambda: slurm.state(batch) == "COMPLETED", "the batch job to end", 240)
        written = (slurm.where / f"slurm-{batch}.out").read_text()
        self.assertIn(running["id"], written)


if __name__ == "__main__":
    unittest.main()

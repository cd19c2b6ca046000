"""A Slurm cluster on this machine, without munge: a controller and one slurmd per node. Needs Debian's packages
slurmctld, slurmd and slurm-client.

It does not affect an installed Slurm: all ports, folders and the configuration are its own.
"""

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import time

from harness import PATIENCE_S, free_ports

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
CONFIG = """
ClusterName=xlad
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
StateSaveLocation={where}/state
SlurmdSpoolDir={where}/spool.%n
SlurmctldPidFile={where}/slurmctld.pid
SlurmdPidFile={where}/slurmd.%n.pid
SlurmctldLogFile={where}/slurmctld.log
SlurmdLogFile={where}/slurmd.%n.log
{settings}
{nodes}
PartitionName=all Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName=n{n} NodeHostname={host} NodeAddr={address} Port={port} CPUs=1 RealMemory=100 State=UNKNOWN"


def missing_programs():
    return [name for name in PROGRAMS if shutil.which(name) is None]


class SlurmCluster:
    """A controller and `count` nodes n1, n2, ..., which all have the same address.

    `settings` are more lines of slurm.conf. Every command of the cluster begins with the words of `prefix` and has the
    variables of `environment`. All processes belong to the user who runs this program."""

    def __init__(self, where, count, address="127.0.0.1", settings=(), prefix=(), **environment):
        self.where = pathlib.Path(where)
        self.count = count
        self.prefix = list(prefix)
        self.controller = None
        self.nodes = []
        controller_port, *node_ports = free_ports(count + 1)
        host = socket.gethostname().split(".")[0]
        nodes = [NODE.format(n=n, host=host, address=address, port=port) for n, port in enumerate(node_ports, 1)]
        config = CONFIG.format(host=host, address=address, port=controller_port, where=self.where, count=count,
                               user=pwd.getpwuid(os.geteuid()).pw_name, settings="\n".join(settings),
                               nodes="\n".join(nodes))
        (self.where / "slurm.conf").write_text(config)
        for name in ("state", *(f"spool.n{n}" for n in range(1, count + 1))):
            (self.where / name).mkdir()
        self.environment = {**os.environ, **environment, "SLURM_CONF": str(self.where / "slurm.conf")}

    def start(self):
        try:
            self.start_controller()
            for n in range(1, self.count + 1):
                self.nodes.append(self._start("slurmd", "-D", "-N", f"n{n}"))
        except BaseException:
            self.stop()
            raise

    def start_controller(self):
        """Starts the controller and waits until it answers."""
        self.controller = self._start("slurmctld", "-D")
        deadline = time.monotonic() + PATIENCE_S
        while " UP" not in self.run("scontrol", "ping")[1]:
            if self.controller.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"slurmctld does not answer; see {self.where}/slurmctld.log")
            time.sleep(0.02)

    def kill_controller(self):
        self.controller.kill()
        self.controller.wait()

    def run(self, *command):
        """Runs a command to its end; returns (exit code, stdout, stderr)."""
        done = subprocess.run(self._argv(*command), capture_output=True, text=True, env=self.environment,
                              timeout=PATIENCE_S)
        return done.returncode, done.stdout, done.stderr

    def output(self, *command):
        """Runs a command to its end; returns its stdout. Raises RuntimeError if the command fails."""
        code, out, err = self.run(*command)
        if code != 0:
            raise RuntimeError(f"{command[0]} ended with code {code}: {err}")
        return out

    def stop(self):
        """Ends the daemons."""
        for daemon in [*reversed(self.nodes), self.controller]:
            if daemon is None:
                continue
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _argv(self, *command):
        return [*self.prefix, *map(str, command)]

    def _start(self, *command):
        with open(self.where / "daemons.log", "ab") as log:
            return subprocess.Popen(self._argv(*command), env=self.environment, stdout=log, stderr=log,
                                    stdin=subprocess.DEVNULL)

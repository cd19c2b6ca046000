"""A Slurm of several nodes on this machine, as one user, in a folder that goes away. Needs Debian's slurmctld and slurmd."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

NEEDED = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol")


def missing():
    """The programs that are not installed."""
    return [name for name in NEEDED if shutil.which(name) is None]


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class SlurmCluster:
    """`nodes` nodes n1, n2, ..., all at this host, with one processor each."""

    def __init__(self, folder, nodes):
        self.folder = pathlib.Path(folder)
        self.nodes = nodes
        self.controller = None
        self.daemons = []
        controller_port, *node_ports = free_ports(nodes + 1)
        host = socket.gethostname().split(".")[0]
        for name in ("state", *(f"n{n}" for n in range(1, nodes + 1))):
            (self.folder / name).mkdir()
        user = os.environ.get("USER", "root")
        lines = [
            "ClusterName=xlad", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={controller_port}", f"SlurmUser={user}",
            f"SlurmdUser={user}", "AuthType=auth/none", "CredType=cred/none", "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none", "SelectType=select/linear", "MpiDefault=none", "SwitchType=switch/none",
            "JobAcctGatherType=jobacct_gather/none", "AccountingStorageType=accounting_storage/none",
            "SlurmdParameters=config_overrides", "ReturnToService=2", "MaxJobCount=100000",
            f"StateSaveLocation={self.folder}/state", f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmctldLogFile={self.folder}/slurmctld.log", f"SlurmdLogFile={self.folder}/slurmd.%n.log",
            f"SlurmdPidFile={self.folder}/slurmd.%n.pid", f"SlurmdSpoolDir={self.folder}/%n",
            *(f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN"
              for n, port in enumerate(node_ports, 1)),
            f"PartitionName=all Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE State=UP",
        ]
        self.config = self.folder / "slurm.conf"
        self.config.write_text("\n".join(lines) + "\n")
        self.environment = {**os.environ, "SLURM_CONF": str(self.config)}

    def start(self):
        self.start_controller()
        for n in range(1, self.nodes + 1):
            self.daemons.append(self._start("slurmd", "-D", "-N", f"n{n}"))

    def start_controller(self):
        """Returns once the controller answers."""
        self.controller = self._start("slurmctld", "-D")
        deadline = time.monotonic() + 30
        while self.run("scontrol", "ping", check=False).stdout.find(" UP") < 0:
            if self.controller.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"slurmctld does not answer; see {self.folder}/slurmctld.log")
            time.sleep(0.02)

    def kill_controller(self):
        self.controller.send_signal(signal.SIGKILL)
        self.controller.wait()

    def run(self, *command, check=True):
        return subprocess.run([str(part) for part in command], env=self.environment, capture_output=True, text=True,
                              check=check, timeout=60)

    def jobs(self):
        """The ids of all jobs that the controller knows."""
        return set(self.run("squeue", "--all", "--noheader", "--format=%i", "--states=all").stdout.split())

    def stop(self):
        for daemon in [*self.daemons, self.controller]:
            if daemon is not None and daemon.poll() is None:
                daemon.kill()
                daemon.wait()

    def _start(self, *command):
        out = open(self.folder / f"{command[0]}.out", "ab")
        return subprocess.Popen(command, env=self.environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

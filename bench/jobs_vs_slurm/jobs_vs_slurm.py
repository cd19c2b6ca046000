"""Compares Slurm and xlad, alternately on one machine: whether acknowledged jobs survive a crash, and how fast jobs are
acknowledged.

    python3 bench/jobs_vs_slurm/jobs_vs_slurm.py --rounds 10 --jobs 5

Survival: `sbatch` or `xlad submit` submits some jobs. Then the controller is killed by SIGKILL, started again, and
asked for all its jobs. `pause` is the time between the last acknowledgment and the signal. Both
controllers write to the same disk. Speed: the script measures the time of one such command, and the commands per second
with several clients. Both include the start of the command's process. Slurm is Debian's, without accounting and without
munge (auth/none), and with MaxJobCount=100000; tests/e2e/slurm_cluster.py has its other settings.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("XLAD", str(REPO / "build/release/bin/xlad"))
os.environ.setdefault("XLAD_REPO", str(REPO))
sys.path.insert(0, str(REPO / "tests/e2e"))

from harness import free_ports  # noqa: E402
from slurm_cluster import SlurmCluster, missing_programs  # noqa: E402


class Slurm:
    name = "slurm"

    def __init__(self, folder, args):
        self.cluster = SlurmCluster(folder, count=1, settings=["MaxJobCount=100000"])
        self.cluster.start()

    def submit(self):
        """Returns the id of a held job."""
        return self.cluster.output("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap", "true").strip()

    def kill(self):
        self.cluster.kill_controller()

    def restart(self):
        self.cluster.start_controller()

    def jobs(self):
        return set(self.cluster.output("squeue", "--all", "--noheader", "--format=%i", "--states=all").split())

    def stop(self):
        self.cluster.stop()


class Xlad:
    name = "xlad"

    def __init__(self, folder, args):
        self.args = args
        self.data = pathlib.Path(folder) / "data"
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.restart()

    def run(self, *command):
        return subprocess.run([str(self.args.xlad), *map(str, command), "--coordinator", self.address], check=True,
                              capture_output=True, text=True, timeout=60).stdout

    def submit(self):
        """Returns the id of a job that is queued, because there are no workers."""
        return self.run("submit", self.args.job).split()[0]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        with open(self.data.parent / "coordinator.log", "ab") as log:
            self.process = subprocess.Popen([self.args.xlad, "coordinator", "--listen", self.address,
                                             "--data", self.data],
                                            stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.jobs()
                return
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def jobs(self):
        return {job["id"] for job in json.loads(self.run("ps", "--format", "json"))}

    def stop(self):
        self.process.kill()
        self.process.wait()


def lost_in_a_round(system, jobs, pause):
    """Kills the controller once. Returns the number of acknowledged jobs that it has lost, and the seconds until it
    serves requests again."""
    acknowledged = {system.submit() for _ in range(jobs)}
    time.sleep(pause)
    system.kill()
    start = time.monotonic()
    system.restart()
    seconds = time.monotonic() - start
    return len(acknowledged - system.jobs()), seconds


def rate(system, clients, jobs):
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda _: system.submit(), range(jobs)))
    return jobs / (time.monotonic() - start)


def latency_ms(system):
    start = time.monotonic()
    system.submit()
    return 1e3 * (time.monotonic() - start)


def compare(systems, args):
    for pause in args.pauses:
        rounds = {system.name: [] for system in systems}
        for _ in range(args.rounds):
            for system in systems:
                rounds[system.name].append(lost_in_a_round(system, args.jobs, pause))
        for name, results in rounds.items():
            lost = sum(each for each, _ in results)
            longest = max(seconds for _, seconds in results)
            print(f"pause {pause:4g} s  {name:6} {lost:4d} of {args.rounds * args.jobs} acknowledged jobs lost; "
                  f"serving again after at most {longest:.2f} s")
    times = {system.name: [] for system in systems}
    rates = {system.name: [] for system in systems}
    for _ in range(args.rounds):
        for system in systems:
            times[system.name] += [latency_ms(system) for _ in range(5)]
            rates[system.name].append(rate(system, args.clients, args.burst))
    for name in times:
        print(f"{name:6} one command {statistics.median(times[name]):6.1f} ms (longest {max(times[name]):.1f}); "
              f"{args.clients} clients {statistics.median(rates[name]):6.1f} commands/s "
              f"({min(rates[name]):.1f} to {max(rates[name]):.1f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", type=pathlib.Path, default=os.environ["XLAD"])
    parser.add_argument("--job", type=pathlib.Path, default=REPO / "examples/spiral_mlp")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=5, help="submissions before each kill")
    parser.add_argument("--pauses", type=lambda text: [float(part) for part in text.split(",")], default=[0, 7],
                        help="seconds between acknowledgment and kill, comma-separated")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--burst", type=int, default=96, help="submissions in each measurement of the rate")
    args = parser.parse_args()
    if missing := missing_programs():
        sys.exit(f"jobs_vs_slurm: {', '.join(missing)} not installed; Debian's packages are slurmctld, "
                 "slurmd and slurm-client")
    with tempfile.TemporaryDirectory(prefix="xlad-slurm-") as one, \
            tempfile.TemporaryDirectory(prefix="xlad-jobs-") as two:
        systems = []
        try:
            for kind, folder in ((Slurm, one), (Xlad, two)):
                systems.append(kind(folder, args))
            compare(systems, args)
        finally:
            for system in systems:
                system.stop()


if __name__ == "__main__":
    main()

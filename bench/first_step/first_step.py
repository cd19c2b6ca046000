"""Measures the time from a job's submission to the end of its first step, with a warm cache.

    python3 bench/first_step/first_step.py                 # examples/spiral_mlp on 8 workers, 10 jobs of each kind
    python3 bench/first_step/first_step.py --rounds 100

Jobs alternate between two clusters. The workers of one keep an idle process for the next attempt; those of the other
do not. The first job on each cluster fills the cache of executables and is not counted. The coordinator's log has the
time of the submission, and the job's timeline the time at which the last device ended the first step. Prints one JSON
object: for each kind, the median, the 99th percentile and all times, in milliseconds. With fewer than 100 rounds, the
99th percentile is the longest time.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("XLAD", str(REPO / "build/release/bin/xlad"))
os.environ.setdefault("XLAD_REPO", str(REPO))
sys.path.insert(0, str(REPO / "tests/e2e"))

from grid import attempts, cpu_seconds, percentile  # noqa: E402
from harness import Cluster, folder, wait_for, xlad  # noqa: E402

STEPS = 20


class Workers(Cluster):
    """A cluster. If `keeps_idle` is true, its workers keep an idle attempt process."""

    def __init__(self, where, workers, keeps_idle):
        self.keeps_idle = keeps_idle
        super().__init__(where, workers, 1)
        self.wait_for_workers(workers)

    def start_worker(self, name, *devices):
        super().start_worker(name, *(devices or ("--devices", self.devices)), "--idle-attempt",
                             "true" if self.keeps_idle else "false")

    def settle(self):
        """Waits until the processes of the previous job have ended and the idle ones are ready."""
        expected = 1 if self.keeps_idle else 0

        def used():
            of_workers = [attempts(worker) for worker in self.workers.values()]
            if any(len(pids) != expected for pids in of_workers):
                return None
            return sum(cpu_seconds(pid) for pids in of_workers for pid in pids)

        before = None
        while (now := used()) is None or now != before:
            before = now
            time.sleep(0.3)


def first_step_ms(made, arguments):
    """Runs a job and returns the milliseconds from its submission to the end of its first step."""
    made.settle()
    job_id = made.submit(arguments.job, "--mesh", arguments.mesh, "--steps", STEPS, "--compile-tier", "optimized")
    job = wait_for(lambda: (j := made.job(job_id))["state"] in ("SUCCEEDED", "FAILED") and j, "the end")
    assert job["state"] == "SUCCEEDED", job
    path = made.where / "trace.json"
    code, out, err = xlad("trace", job_id, "--coordinator", made.address, "-o", path)
    assert code == 0, out + err
    # Times of the timeline are microseconds since the submission.
    steps = [event for event in json.loads(path.read_text())["traceEvents"]
             if event["ph"] == "X" and event["cat"] == "step"]
    first = min(int(event["name"].split()[1]) for event in steps)
    ends = [event["ts"] + event["dur"] for event in steps if event["name"] == f"step {first}"]
    assert len(ends) == arguments.workers, f"found the first step of {len(ends)} devices"
    return round(max(ends) / 1000, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", type=pathlib.Path, default=REPO / "examples/spiral_mlp")
    parser.add_argument("--mesh", default="dp=8")
    parser.add_argument("--workers", type=int, default=8, help="workers with one device each")
    parser.add_argument("--rounds", type=int, default=10, help="counted jobs of each kind")
    arguments = parser.parse_args()
    times = {"idle process": [], "no idle process": []}
    with contextlib.ExitStack() as stack:
        clusters = {}
        for kind in times:
            clusters[kind] = Workers(stack.enter_context(folder()), arguments.workers, kind == "idle process")
            stack.callback(clusters[kind].close)
            first_step_ms(clusters[kind], arguments)
        for _ in range(arguments.rounds):
            for kind, made in clusters.items():
                times[kind].append(first_step_ms(made, arguments))
    print(json.dumps({"workers": arguments.workers, "load": os.getloadavg(), "cores": os.cpu_count(),
                      **{kind: {"p50_ms": percentile(found, 0.5), "p99_ms": percentile(found, 0.99), "all_ms": found}
                         for kind, found in times.items()}}, indent=2))


if __name__ == "__main__":
    main()

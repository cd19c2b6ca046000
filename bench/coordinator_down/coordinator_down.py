"""Measures how a coordinator that is away for some seconds changes the steps of a running job.

    python3 bench/coordinator_down/coordinator_down.py                      # 3 windows of 10 s, stopped by SIGSTOP
    python3 bench/coordinator_down/coordinator_down.py --rounds 20 --fault kill --seed 2

The job runs on one cluster throughout. Windows in which the coordinator is away (stopped by SIGSTOP, or killed and
started again) alternate with undisturbed windows of the same length; each begins after a random pause. The first step
of a window is the step that the job runs when the window begins. Its last step is the last one for which the sum of
the step times does not exceed the length of the window. Prints one JSON object: for each pair of windows the medians
and 99th percentiles of the step times, and their ratios (disturbed divided by undisturbed), and the same ratios over
the steps of all windows. `steps_per_s` is the number of steps between the job's status before a window and its status
after it, divided by the time on the wall clock. It therefore includes pauses between steps. Exits with 1 if the job has
failed or needed another attempt.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("XLAD", str(REPO / "build/release/bin/xlad"))
os.environ.setdefault("XLAD_REPO", str(REPO))
sys.path.insert(0, str(REPO / "tests/e2e"))

from grid import Grid, percentile, send_signal  # noqa: E402
from harness import Process, folder, wait_for, xlad  # noqa: E402

SETTLE_S = 3  # The time that the coordinator needs after a fault to process what the workers have sent meanwhile.


def step_now(grid, job_id):
    """Returns the number of finished steps, and when it was read."""
    job = grid.job(job_id)
    assert job["state"] == "RUNNING" and job["attempt"] == 1, job
    return job["step"], time.monotonic()


def window(grid, job_id, away, seconds, pause):
    """Returns the first step of a window and its steps per second."""
    time.sleep(pause)
    first, start = step_now(grid, job_id)
    if away == "stop":
        send_signal(grid.coordinator.pid, signal.SIGSTOP)
    elif away == "kill":
        grid.coordinator.kill()
    time.sleep(seconds)
    if away == "stop":
        send_signal(grid.coordinator.pid, signal.SIGCONT)
    elif away == "kill":
        grid.restart_coordinator()
        wait_for(lambda: xlad("ps", "--coordinator", grid.address)[0] == 0, "the coordinator to answer")
    time.sleep(SETTLE_S)  # In undisturbed windows too, so that both take the same time.
    wait_for(lambda: grid.job(job_id)["state"] == "RUNNING", "the job to be adopted")
    last, end = step_now(grid, job_id)
    return {"first": first, "steps_per_s": (last - first) / (end - start)}


def times_of(found, step_ms, seconds):
    """The times of the steps of a window."""
    times, total = [], 0
    for ms in step_ms[found["first"]:]:
        total += ms
        if total > 1000 * seconds:
            break
        times.append(ms)
    return times


def ratios(disturbed, calm):
    return {"median": statistics.median(disturbed) / statistics.median(calm),
            "p99": percentile(disturbed, 0.99) / percentile(calm, 0.99)}


def measure(arguments, where):
    dice = random.Random(arguments.seed)
    grid = Grid(where, arguments.workers)
    follower = None
    try:
        follower = Process(where / "follower.log", "submit", arguments.job, "--mesh", arguments.mesh, "--steps", 10**8,
                           "--checkpoint-every", 10**9, "--compile-tier", "optimized", "--coordinator", grid.address,
                           "--wait", "--curve", where / "curve.json")
        job_id = wait_for(lambda: next((job["id"] for job in grid.ps() if job["step"] > 100), None), "100 steps")
        pairs = []
        for number in range(arguments.rounds):
            kinds = [arguments.fault, "none"] if number % 2 == 0 else ["none", arguments.fault]
            pairs.append({kind: window(grid, job_id, kind, arguments.seconds, dice.uniform(0, 3)) for kind in kinds})
        code, out, err = xlad("cancel", job_id, "--coordinator", grid.address)
        assert code == 0, out + err
        follower.popen.wait(120)
        step_ms = json.loads((where / "curve.json").read_text())["step_ms"]
    finally:
        if follower is not None:
            follower.close()
        grid.close()
    all_times = {arguments.fault: [], "none": []}
    rows = []
    for pair in pairs:
        times = {kind: times_of(found, step_ms, arguments.seconds) for kind, found in pair.items()}
        for kind, found in times.items():
            all_times[kind] += found
        rows.append({**{kind: {"steps": len(found), "median_ms": statistics.median(found),
                               "p99_ms": percentile(found, 0.99), "steps_per_s": pair[kind]["steps_per_s"]}
                        for kind, found in times.items()},
                     "ratio": {**ratios(times[arguments.fault], times["none"]),
                               "steps_per_s": pair[arguments.fault]["steps_per_s"] / pair["none"]["steps_per_s"]}})
    return {"fault": arguments.fault, "seconds": arguments.seconds, "workers": arguments.workers,
            "load": os.getloadavg(), "cores": os.cpu_count(), "windows": rows,
            "ratio_of_all_steps": ratios(all_times[arguments.fault], all_times["none"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", type=pathlib.Path, default=REPO / "examples/spiral_mlp")
    parser.add_argument("--mesh", default="dp=8")
    parser.add_argument("--workers", type=int, default=8, help="workers with one device each")
    parser.add_argument("--rounds", type=int, default=3, help="disturbed windows")
    parser.add_argument("--seconds", type=float, default=10, help="length of a window")
    parser.add_argument("--fault", choices=("stop", "kill"), default="stop")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with folder() as where:
        try:
            print(json.dumps(measure(arguments, where), indent=2))
        except AssertionError as error:
            sys.exit(f"coordinator_down: {error}")


if __name__ == "__main__":
    main()

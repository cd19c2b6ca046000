"""Measures how much time checkpoints add to a training job, and how long a model with many tensors takes until its
first step.

    python3 bench/checkpoint_cost/checkpoint_cost.py                       # examples/spiral_mlp
    python3 bench/checkpoint_cost/checkpoint_cost.py --job DIR --mesh dp=2 --seconds 12 --rounds 3
    python3 bench/checkpoint_cost/checkpoint_cost.py --leaves 1600

Runs of the same number of steps alternate on one cluster: without checkpoints, with a checkpoint every 5 seconds, and
with a checkpoint every 10 steps. The coordinator's events give the time of a run, from the beginning of its steps to
its end. Each run is compared with the runs without checkpoints directly before and after it. Prints one JSON object:
the added time of each run in percent, and the number of checkpoints that the run committed.

With --leaves, the state has this many tensors on 8 workers instead. The job has one step, and its executable is in the
cache. The script prints the times from the submission to the end of the build, to the start and to the end of the job.
"""

import argparse
import json
import os
import pathlib
import statistics
import struct
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("XLAD", str(REPO / "build/release/bin/xlad"))
os.environ.setdefault("XLAD_REPO", str(REPO))
sys.path.insert(0, str(REPO / "tests/e2e"))

from harness import cluster, wait_for  # noqa: E402

NEVER = "1000000000"
KINDS = {"every 5 s": "5s", "every 10 steps": "10"}


def wait_for_success(made, job_id):
    done = wait_for(lambda: (j := made.job(job_id))["state"] in ("SUCCEEDED", "FAILED") and j, "the end", 600)
    assert done["state"] == "SUCCEEDED", done


def run(made, job, mesh, steps, every):
    """Runs a job to its end; returns the seconds of its steps and the number of its checkpoints."""
    job_id = made.submit(job, "--mesh", mesh, "--steps", steps, "--checkpoint-every", every, "--compile-tier",
                         "optimized")
    wait_for_success(made, job_id)
    events = made.events(job_id)
    at = {event["kind"]: event["unix_ns"] for event in events}
    return (at["ended"] - at["started"]) / 1e9, sum(event["kind"] == "checkpoint" for event in events)


def measure_cost(arguments):
    result = {kind: {"added_percent": [], "checkpoints": []} for kind in KINDS}
    with cluster(workers=arguments.workers, devices=arguments.devices) as made:
        seconds, _ = run(made, arguments.job, arguments.mesh, 20, NEVER)
        steps = max(20, int(20 * arguments.seconds / seconds))
        before, _ = run(made, arguments.job, arguments.mesh, steps, NEVER)
        plain = [before]
        for _ in range(arguments.rounds):
            for kind, every in KINDS.items():
                took, checkpoints = run(made, arguments.job, arguments.mesh, steps, every)
                after, _ = run(made, arguments.job, arguments.mesh, steps, NEVER)
                result[kind]["added_percent"].append(round(100 * (2 * took / (before + after) - 1), 2))
                result[kind]["checkpoints"].append(checkpoints)
                plain.append(after)
                before = after
    for kind in KINDS:
        result[kind]["median_percent"] = statistics.median(result[kind]["added_percent"])
    result["plain"] = {"steps": steps, "seconds": [round(seconds, 2) for seconds in plain]}
    return result


def write_leaves(where, leaves):
    """Writes a job whose state is `leaves` small matrices, to which each step adds 1."""
    shape = "f32[16,8]"
    names = [f"leaf{i}" for i in range(leaves)]
    sharding = 'frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"dp\\"}, {}]>"}'
    lines = [f"  %{name} = {shape} parameter({i}), {sharding}\n  %next{i} = {shape} add(%{name}, %ones)"
             for i, name in enumerate(names)]
    types = ", ".join([shape] * leaves)
    (where / "step.hlo").write_text(
        'HloModule leaves, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["dp"=8]>}}\n\n'
        f"ENTRY %main ({', '.join(f'{name}: {shape}' for name in names)}, s: s32[]) -> ({types}, f32[]) {{\n"
        f"  %s = s32[] parameter({leaves})\n  %loss = f32[] convert(%s)\n  %one = f32[] constant(1)\n"
        f"  %ones = {shape} broadcast(%one), dimensions={{}}\n" + "\n".join(lines) +
        f"\n  ROOT %out = ({types}, f32[]) tuple({', '.join(f'%next{i}' for i in range(leaves))}, %loss)\n}}\n")
    state = [{"index": i, "name": name, "shape": shape, "kind": "state"} for i, name in enumerate(names)]
    (where / "manifest.json").write_text(json.dumps({
        "name": "leaves", "steps": 3,
        "parameters": [*state, {"index": leaves, "name": "step", "shape": "s32[]", "kind": "step"}],
        "results": [*({**entry, "feeds": entry["index"]} for entry in state),
                    {"index": leaves, "name": "loss", "shape": "f32[]", "kind": "loss"}],
        "meshes": [{"name": "dp8", "axes": {"dp": 8}, "files": ["step.hlo"]}]}))
    header = json.dumps({name: {"dtype": "F32", "shape": [16, 8], "data_offsets": [512 * i, 512 * i + 512]}
                         for i, name in enumerate(names)}).encode()
    (where / "state.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(512 * leaves))


def measure_leaves(arguments):
    times = []
    with cluster(workers=8, devices=1) as made, tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        write_leaves(where, arguments.leaves)
        run(made, where, "dp=8", 3, NEVER)  # This run fills the cache.
        for _ in range(arguments.rounds):
            time.sleep(1)  # The workers prepare a process for the next attempt.
            job_id = made.submit(where, "--mesh", "dp=8", "--steps", "1", "--compile-tier", "optimized")
            wait_for_success(made, job_id)
            at = {event["kind"]: event["unix_ns"] for event in made.events(job_id)}
            # The job has one step, which begins with "started" and ends before "ended".
            times.append({f"submitted to {kind}": round((at[kind] - at["submitted"]) / 1e9, 3)
                          for kind in ("built", "started", "ended")})
    return {"leaves": arguments.leaves, "devices": 8, "seconds": times}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", type=pathlib.Path, default=REPO / "examples/spiral_mlp", help="a job directory")
    parser.add_argument("--mesh", default="dp=2")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--devices", type=int, default=1, help="devices of each worker")
    parser.add_argument("--seconds", type=float, default=12, help="approximate length of a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--leaves", type=int, default=0)
    arguments = parser.parse_args()
    print(json.dumps(measure_leaves(arguments) if arguments.leaves else measure_cost(arguments), indent=1))


if __name__ == "__main__":
    main()

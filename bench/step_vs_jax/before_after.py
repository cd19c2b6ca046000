"""Compares the step times and compile times of two builds of xlad on job directories, measured alternately.

    python bench/step_vs_jax/before_after.py --before /path/to/an/older/build/release/bin
    python bench/step_vs_jax/before_after.py --before DIR --only cnn,lstm --mesh single

The two processes run in turn, and each is idle while the other one works. A pair is one block of steps of each, one
right after the other. Ratios are the new build's time (or bytes) divided by the old build's: above 1, the new build is
slower (or larger). `best` is the ratio of the fastest blocks, which is more reliable if other programs also use the
CPUs.
"""

import argparse
import os
import pathlib
import statistics

import step_vs_jax as bench


def side(name, folder, job, mesh, cpus):
    command = [str(folder / "step_vs_jax_xlad"), str(folder / "xlad"), str(job), mesh]
    return bench.Side(name, command, cpus)


def measure(job, mesh, args):
    devices, flag, cpus = bench.place(mesh, args.threads)
    sides = [side("before", args.before, job, flag, cpus), side("after", args.after, job, flag, cpus)]
    try:
        builds = [[s.ask("build")["build_ms"] for s in sides] for _ in range(args.builds)]
        steps = bench.block_size(sides[0], args.block_ms)
        sides[1].step_ms(3)
        blocks = [[s.step_ms(steps) for s in sides] for _ in range(args.rounds)]
        memory = [s.ask("memory")["plan_bytes"] for s in sides]
    finally:
        for s in sides:
            s.close()
    return {
        "step": statistics.median(after / before for before, after in blocks),
        "best": min(after for _, after in blocks) / min(before for before, _ in blocks),
        "compile": statistics.median(after / before for before, after in builds),
        "memory": memory[1] / max(1, memory[0]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=pathlib.Path, required=True, help="folder of the older build's binaries")
    parser.add_argument("--after", type=pathlib.Path, default=bench.REPO / "build/release/bin")
    parser.add_argument("--examples", type=pathlib.Path,
                        default=os.environ.get("XLAD_EXAMPLES", bench.REPO / "examples"))
    parser.add_argument("--only", default="", help="names of job directories, comma-separated")
    parser.add_argument("--mesh", default="", help="names of meshes, comma-separated")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of blocks")
    parser.add_argument("--threads", type=int, default=1, help="number of CPUs for one device")
    parser.add_argument("--builds", type=int, default=5, help="pairs of compilations")
    parser.add_argument("--block-ms", type=float, default=150, help="approximate length of a block in milliseconds")
    args = parser.parse_args()
    rows = []
    print(f"{'example':18} {'mesh':14} {'step':>6} {'best':>6} {'compile':>8} {'memory':>7}")
    for manifest in sorted(pathlib.Path(args.examples).glob("*/manifest.json")):
        job = manifest.parent
        for mesh in bench.meshes_of(job):
            if (args.only and job.name not in args.only.split(",")) or (
                    args.mesh and mesh["name"] not in args.mesh.split(",")):
                continue
            row = measure(job, mesh, args)
            rows.append(row)
            print(f"{job.name:18} {mesh['name']:14} {row['step']:6.3f} {row['best']:6.3f} {row['compile']:8.3f}"
                  f" {row['memory']:7.3f}", flush=True)
    for what in ("step", "best", "compile", "memory"):
        values = [row[what] for row in rows]
        print(f"{what}: geometric mean {bench.geometric(values):.3f}, largest {max(values):.3f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Times collectives of xlad, Open MPI, MPICH, Gloo and a ring over Open MPI's messages, alternately, on this host.

All sides use the method of `xlad bench`: the median over batches of the maximum over ranks. A ratio is the time of the
fastest library (not counting the ring) divided by the time of xlad, so xlad is faster if the ratio is above 1.
Libraries that are not installed are listed and left out. Build xlad's side with `ninja -C build/release
collectives_vs_peers_xlad`.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BINARIES = HERE.parents[1] / "build" / "release" / "bin"
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--min-bytes", type=int, default=8)
    parser.add_argument("--max-bytes", type=int, default=256 << 20)
    parser.add_argument("--factor", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=0, help="operations per batch; 0: 20, fewer for large sizes")
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3, help="how often each library is measured")
    parser.add_argument("--in-place", action="store_true", help="run collectives in place on all sides")
    parser.add_argument("--registered", action="store_true", help="use buffers that xlad allocated")
    parser.add_argument("--rotate", type=int, default=0, help="bytes of buffers that iterations use in turn")
    parser.add_argument("--timeout", type=int, default=120, help="limit in seconds for one library, size and round")
    parser.add_argument("--only", nargs="+", help="peers to run: openmpi, mpich, gloo, ring")
    parser.add_argument("--json", help="also write all times to this file")
    return parser.parse_args()


def compile_sides(folder):
    """Compiles the programs of the installed libraries, and returns them by name."""
    built = {}
    for name in ("openmpi", "mpich"):
        compiler = shutil.which(f"mpicc.{name}")
        if compiler and shutil.which(f"mpirun.{name}"):
            program = folder / name
            subprocess.run([compiler, "-O2", "-o", program, HERE / "mpi_side.c"], check=True)
            built[name] = program
    if shutil.which("g++"):
        program = folder / "gloo"
        done = subprocess.run(["g++", "-O2", "-std=c++17", "-o", program, HERE / "gloo_side.cc", "-lgloo"],
                              capture_output=True)
        if done.returncode == 0:
            built["gloo"] = program
    if "openmpi" in built:
        built["ring"] = built["openmpi"]
    return built


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def run_mpi(name, program, ranks, size, options):
    if name == "ring" and options.collective != "all_reduce":
        return []
    launcher = {"mpich": ["mpirun.mpich"]}.get(name, ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"])
    collective = "ring" if name == "ring" else options.collective
    command = [*launcher, "-np", str(ranks), program, collective, size, size, 2, options.iterations, options.batches,
               int(options.in_place), options.rotate]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=ENVIRONMENT,
                          timeout=options.timeout)
    return lines(done.stdout)


def run_gloo(program, ranks, size, options):
    # gloo_side cannot rotate buffers, and Gloo has no AllToAll in place.
    if options.rotate or (options.in_place and options.collective == "all_to_all"):
        return []
    with tempfile.TemporaryDirectory() as folder:
        tail = [folder, options.collective, size, size, 2, options.iterations, options.batches, int(options.in_place)]
        started = [subprocess.Popen([str(word) for word in (program, rank, ranks, *tail)], stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, text=True) for rank in range(ranks)]
        try:
            return lines("".join(process.communicate(timeout=options.timeout)[0] for process in started))
        finally:
            for process in started:
                process.kill()
                process.wait()


def run_xlad(ranks, size, options, folder):
    path = folder / "xlad.json"
    command = [BINARIES / "collectives_vs_peers_xlad", options.collective, "--ranks", ranks, "-b", size, "-e", size,
               "-f", 2, "-R", int(options.registered), "--batches", options.batches, "--rotate", options.rotate,
               "--json", path]
    if options.iterations:
        command += ["-n", options.iterations]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=options.timeout)
    if done.returncode != 0:
        sys.exit(f"xlad failed: {done.stderr}{done.stdout}")
    row = json.loads(path.read_text())["rows"][0]
    side = row["in_place" if options.in_place else "out_of_place"]
    return [{"bytes": size, "mean_us": side["mean_us"], "median_us": side["time_us"], "p99_us": side["p99_us"]}]


def measure(name, program, ranks, size, options, folder):
    try:
        if name == "xlad":
            return run_xlad(ranks, size, options, folder)
        if name == "gloo":
            return run_gloo(program, ranks, size, options)
        return run_mpi(name, program, ranks, size, options)
    except subprocess.TimeoutExpired:
        return []


def middle(rows, key):
    return statistics.median(row[key] for row in rows)


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sides = compile_sides(folder)
        for peer in ("openmpi", "mpich", "gloo"):
            if peer not in sides:
                print(f"# {peer} is not installed")
        if options.only:
            sides = {peer: program for peer, program in sides.items() if peer in options.only}
        where = "in place" if options.in_place else "out of place"
        kind = "registered" if options.registered else "plain"
        print(f"# {options.collective}, float, sum; xlad: {kind} buffers; {where} on all sides; "
              f"median of {options.rounds} rounds")
        peers = list(sides)
        print(f"{'ranks':>5} {'bytes':>10} {'xlad us':>10} " + " ".join(f"{peer + ' us':>11}" for peer in peers) +
              f" {'best peer':>10} {'median':>7} {'mean':>7} {'p99':>7}")
        rows = []
        for ranks in options.ranks:
            size = options.min_bytes
            while size <= options.max_bytes:
                times = {"xlad": [], **{peer: [] for peer in peers}}
                for _ in range(options.rounds):
                    for side in times:
                        times[side] += measure(side, sides.get(side), ranks, size, options, folder)
                if not times["xlad"]:
                    sys.exit(f"xlad took more than {options.timeout} s in every round ({ranks} ranks, {size} bytes)")
                found = {peer: times[peer] for peer in peers if times[peer] and peer != "ring"}
                ratios, best = {}, "none"
                if found:
                    best = min(found, key=lambda peer: middle(found[peer], "median_us"))
                    for key in ("median_us", "mean_us", "p99_us"):
                        ratios[key] = min(middle(found[peer], key) for peer in found) / middle(times["xlad"], key)
                cells = [f"{middle(times[peer], 'median_us'):>11.2f}" if times[peer] else f"{'-':>11}"
                         for peer in peers]
                print(f"{ranks:>5} {size:>10} {middle(times['xlad'], 'median_us'):>10.2f} " + " ".join(cells) +
                      f" {best:>10} " + " ".join(f"{ratios.get(key, 0):>6.2f}x"
                                                 for key in ("median_us", "mean_us", "p99_us")),
                      flush=True)
                rows.append({"ranks": ranks, "bytes": size, "times": times, "ratios": ratios})
                size *= options.factor
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

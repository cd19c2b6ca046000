"""Compares the plan that xlad chooses for a collective with all others that it could have chosen.

    python3 bench/plan_selection/plan_selection.py --transport tcp --ranks 2,4,8 --bytes 1K,64K,1M

For each collective, number of ranks and size, `xlad bench` measures the plan that it chooses and each candidate that
`--explain` lists, in turn, several times. The script prints the chosen plan, its predicted and measured time, the
fastest plan, and the ratio of the two measured times. At the end, it prints the share of ratios that are at most 1.1,
and the median error of predictions.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

CANDIDATE = re.compile(r"^#   (\S.*?)\s+predicted\s+([0-9.]+) us(  \(chosen\))?$")


def run(args, collective, ranks, size, *more):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        command = [args.xlad, "bench", collective, "--ranks", str(ranks), "-b", size, "-e", size, "-f", "2", "-c", "0",
                   "-n", str(args.iterations), "--batches", str(args.batches), "--transport", args.transport,
                   "--json", path]
        done = subprocess.run([*map(str, command), *more], capture_output=True, text=True, check=True)
        return done.stdout, json.loads(path.read_text())["rows"][0]["out_of_place"]["time_us"]


def measure_point(args, collective, ranks, size):
    text, _ = run(args, collective, ranks, size, "--explain")
    predicted, chosen = {}, None
    for line in text.splitlines():
        if match := CANDIDATE.match(line):
            predicted[match[1]] = float(match[2])
            chosen = match[1] if match[3] else chosen
    times = {plan: [] for plan in predicted}
    for _ in range(args.rounds):
        for plan in predicted:
            times[plan].append(run(args, collective, ranks, size, "--algorithm", plan)[1])
    best_of = {plan: min(found) for plan, found in times.items()}
    fastest = min(best_of, key=best_of.get)
    ratio = best_of[chosen] / best_of[fastest]
    error = abs(predicted[chosen] - best_of[chosen]) / best_of[chosen]
    print(f"{collective:15} {ranks:3} {size:>6} {ratio:6.2f}  chosen {chosen} {best_of[chosen]:.1f} us, "
          f"predicted {predicted[chosen]:.1f}; fastest {fastest} {best_of[fastest]:.1f} us", flush=True)
    return ratio, error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", default=os.environ.get("XLAD", "build/release/bin/xlad"))
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--collectives", default="all_reduce,reduce_scatter,all_gather,broadcast")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--bytes", default="1K,8K,64K,256K,1M")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=5)
    args = parser.parse_args()
    points = [measure_point(args, collective, int(ranks), size)
              for collective in args.collectives.split(",")
              for ranks in args.ranks.split(",") for size in args.bytes.split(",")]
    within = sum(ratio <= 1.1 for ratio, _ in points)
    print(f"{within} of {len(points)} points within 10 % of the fastest plan; "
          f"median error of the predicted time {100 * statistics.median(error for _, error in points):.0f} %")


if __name__ == "__main__":
    main()

"""Compares the plan that xlad chooses for a collective with all others that it could have chosen.

    python3 bench/plan_selection/plan_selection.py --transport shm --ranks 2,4,8 -b 1K -e 4M -f 4

For each collective and number of ranks, `xlad bench` measures at all sizes the plan that it chooses and each candidate
that `--explain` lists. One run measures one plan of each size. Because other work may slow a run down, the runs take
turns for several rounds. Each plan is measured once in a round, and its shortest time counts. The script prints the
chosen plan, its predicted and measured time, the fastest plan, and the ratio of the two measured times. At the end, it
prints the share of ratios that are at most 1.1, and the median error of predictions.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

HEAD = re.compile(r"^# (\d+) bytes: ")
CANDIDATE = re.compile(r"^#   (\S.*?)\s+predicted\s+([0-9.]+) us(  \(chosen\))?$")


def run(args, collective, ranks, *more):
    """Returns what `xlad bench` prints, and its rows by size."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        command = [args.xlad, "bench", collective, "--ranks", ranks, "-b", args.least, "-e", args.most, "-f",
                   args.factor, "-c", 0, "-n", args.iterations, "--batches", args.batches,
                   "--transport", args.transport, "-R", args.registered, "--json", path, *more]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
        rows = json.loads(path.read_text())["rows"]
        return done.stdout, {row["bytes"]: row for row in rows}


def candidates(text):
    """Returns, by size, the predicted time of each plan, and the chosen plan."""
    predicted, chosen, size = {}, {}, 0
    for line in text.splitlines():
        if match := HEAD.match(line):
            size = int(match[1])
            predicted[size] = {}
        elif match := CANDIDATE.match(line):
            predicted[size][match[1]] = float(match[2])
            if match[3]:
                chosen[size] = match[1]
    assert predicted and predicted.keys() == chosen.keys(), f"a size has no chosen plan in:\n{text}"
    return predicted, chosen


def measure(args, collective, ranks):
    """Yields, for each size, the ratio of the chosen plan to the fastest one, and the error of its prediction."""
    predicted, chosen = candidates(run(args, collective, ranks, "--explain")[0])
    times = {size: {plan: [] for plan in plans} for size, plans in predicted.items()}
    for _ in range(args.rounds):
        for turn in range(max(map(len, predicted.values()))):
            # A size with fewer plans repeats them so that each run has the same sizes. These times do not count.
            rules = {size: list(plans)[turn % len(plans)] for size, plans in predicted.items()}
            with tempfile.NamedTemporaryFile("w", suffix=".plans") as file:
                file.writelines(f"{collective} {size}-{size} {plan}\n" for size, plan in rules.items())
                file.flush()
                _, found = run(args, collective, ranks, "--plans", file.name)
            for size, plan in rules.items():
                used = found[size]["algorithm"]
                assert used == plan, f"{size} bytes: found plan {used}, expected {plan}"
                if turn < len(predicted[size]):
                    times[size][plan].append(found[size]["out_of_place"]["time_us"])
    for size, found in times.items():
        best_of = {plan: min(all_times) for plan, all_times in found.items()}
        fastest = min(best_of, key=best_of.get)
        plan = chosen[size]
        print(f"{collective:15} {ranks:3} {size:8} {best_of[plan] / best_of[fastest]:6.2f}  chosen {plan} "
              f"{best_of[plan]:.1f} us, predicted {predicted[size][plan]:.1f}; fastest {fastest} "
              f"{best_of[fastest]:.1f} us", flush=True)
        if args.verbose:
            print("   ", ", ".join(f"{name} {us:.1f}" for name, us in best_of.items()))
        yield best_of[plan] / best_of[fastest], abs(predicted[size][plan] - best_of[plan]) / best_of[plan]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", default=os.environ.get("XLAD", "build/release/bin/xlad"))
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--collectives", default="all_reduce,reduce_scatter,all_gather,broadcast")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("-b", dest="least", default="1K")
    parser.add_argument("-e", dest="most", default="1M")
    parser.add_argument("-f", dest="factor", type=int, default=4)
    parser.add_argument("-R", dest="registered", type=int, default=0, help="1 measures registered buffers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--verbose", action="store_true", help="also prints the time of each plan")
    args = parser.parse_args()
    points = [point for collective in args.collectives.split(",") for ranks in args.ranks.split(",")
              for point in measure(args, collective, int(ranks))]
    within = sum(ratio <= 1.1 for ratio, _ in points)
    print(f"{within} of {len(points)} points within 10 % of the fastest plan; "
          f"median error of the predicted time {100 * statistics.median(error for _, error in points):.0f} %")


if __name__ == "__main__":
    main()

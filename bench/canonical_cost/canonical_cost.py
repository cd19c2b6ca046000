"""Measures the cost of the mode canonical: the time of a collective in this mode divided by its time in the mode fast.

    python3 bench/canonical_cost/canonical_cost.py --ranks 2,4,8 --bytes 64K,1M,16M

The two modes run in turn for several rounds, and each round yields one ratio. The script prints the medians of both
times and of the ratios, the smallest and the largest ratio, and the ratio of the shortest times of both modes. If other
processes use the cores, a round may be several times slower than the next; then only the last number is meaningful.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

MODES = ("canonical", "fast")


def measure(args, ranks, size, mode):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        command = [args.xlad, "bench", args.collective, "--ranks", ranks, "-b", size, "-e", size, "-f", 2, "-c", 0,
                   "-d", args.type, "-R", args.registered, "--batches", args.batches, "--transport", args.transport,
                   "--mode", mode, "--json", path]
        subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, check=True)
        row = json.loads(path.read_text())["rows"][0]
        return {side: row[side]["time_us"] for side in ("out_of_place", "in_place") if row[side]}


def compare(args, ranks, size):
    rounds = []
    for number in range(args.rounds):
        # The order alternates, so that a machine that becomes slower or faster favors neither mode.
        order = MODES if number % 2 == 0 else MODES[::-1]
        rounds.append({mode: measure(args, ranks, size, mode) for mode in order})
    for side in rounds[0]["fast"]:
        ratios = [times["canonical"][side] / times["fast"][side] for times in rounds]
        middle = {mode: statistics.median(times[mode][side] for times in rounds) for mode in MODES}
        least = {mode: min(times[mode][side] for times in rounds) for mode in MODES}
        print(f"{ranks:>5} {size:>7} {side:13} {middle['canonical']:12.1f} {middle['fast']:12.1f} "
              f"{statistics.median(ratios):8.3f} {min(ratios):8.3f} {max(ratios):8.3f} "
              f"{least['canonical'] / least['fast']:12.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", default=os.environ.get("XLAD", "build/release/bin/xlad"))
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--type", default="float")
    parser.add_argument("--registered", type=int, default=0)
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--bytes", default="64K,256K,1M,4M,16M,64M")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=15)
    args = parser.parse_args()
    print(f"{'ranks':>5} {'bytes':>7} {'':13} {'canonical us':>12} {'fast us':>12} {'ratio':>8} {'least':>8} "
          f"{'most':>8} {'least/least':>12}")
    for ranks in args.ranks.split(","):
        for size in args.bytes.split(","):
            compare(args, ranks, size)


if __name__ == "__main__":
    main()

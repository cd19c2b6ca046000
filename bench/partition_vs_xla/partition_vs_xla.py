"""Compares propagation and partitioning of a corpus of programs with XLA's.

    python3 bench/partition_vs_xla/partition_vs_xla.py                     all train steps on more than one device
    python3 bench/partition_vs_xla/partition_vs_xla.py --all --json partitioned.json
    python3 bench/partition_vs_xla/partition_vs_xla.py --only llama3       all steps of these programs

The corpus ($XLAD_CORPUS or --corpus) has a manifest.jsonl with the results of XLA's partitioner for each program; see
its README. Each row is one program, which runs in its own process:

instr     instructions after inlining
prop s, part s, chk s   seconds of xlad's propagation, partitioning and checks. XLA s: seconds of XLA's propagation and
          partitioning, measured once on another machine: compare bytes and flops, not seconds.
MB sent   the fewest bytes that one device must send in a step, in millions; the bytes of a loop are multiplied by its
          trip count. MB XLA: the same for XLA, with all-reduces that are followed by a slice counted as
          reduce-scatters. ratio: xlad's over XLA's; below 1, xlad sends less
flops     dot and convolution flops of all devices together over those of the program; 1 means no duplicated
          computation. XLA: the same for XLA
RSS       peak resident megabytes of the process

The exit code is 1 if a program fails to propagate, to partition or to pass the checks.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
TIMEOUT_S = 600


def programs(corpus, everything, only):
    with open(corpus / "manifest.jsonl") as lines:
        for line in lines:
            entry = json.loads(line)
            if entry.get("num_partitions", 1) < 2 or (only and only not in entry["name"]):
                continue
            if everything or only or entry["step"] == "train_step":
                yield entry


def measure(binary, corpus, entry, folder):
    path = pathlib.Path(folder) / "program.hlo"
    with open(path, "wb") as out:
        subprocess.run(["zstd", "-qdc", str(corpus / entry["file"])], stdout=out, check=True)
    try:
        done = subprocess.run([binary, str(path)], capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {TIMEOUT_S} s"}
    if done.returncode != 0:
        return {"error": done.stderr.strip()[-300:]}
    return json.loads(done.stdout)


def geomean(values):
    values = [v for v in values if v > 0]
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else float("nan")


ROW = "{:<54} {:>6} {:>6} {:>6} {:>6} {:>11} {:>12} {:>12} {:>6} {:>6} {:>6} {:>5}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default=os.environ.get("XLAD_CORPUS"))
    parser.add_argument("--binary", default=str(REPO / "build/release/bin/partition_vs_xla_xlad"))
    parser.add_argument("--only", help="only programs whose name contains this, with all steps")
    parser.add_argument("--all", action="store_true", help="all steps, not only train steps")
    parser.add_argument("--json", help="also write all rows to this file")
    flags = parser.parse_args()
    if not flags.corpus:
        parser.error("found no corpus; set XLAD_CORPUS or use --corpus")
    corpus = pathlib.Path(flags.corpus)
    print(ROW.format("program", "instr", "prop s", "part s", "chk s", "XLA s", "MB sent", "MB XLA", "ratio", "flops",
                     "XLA", "RSS"))
    rows, failed = [], 0
    for entry in programs(corpus, flags.all, flags.only):
        with tempfile.TemporaryDirectory() as folder:
            ours = measure(flags.binary, corpus, entry, folder)
        xla = entry["xla_partitioned"]
        spmd = xla["after_spmd"]
        rows.append({"name": entry["name"], "xlad": ours, "xla": xla})
        if "error" in ours:
            failed += 1
            print(f"{entry['name']:<54} FAILED: {ours['error']}", flush=True)
            continue
        bytes_xla = spmd["bytes_per_device_if_reduce_scattered"]
        print(ROW.format(entry["name"], ours["instructions"], f"{ours['propagate_s']:.2f}",
                         f"{ours['partition_s']:.2f}", f"{ours['check_s']:.2f}",
                         f"{xla['propagate_s']:.2f}+{xla['partition_s']:.2f}",
                         f"{ours['bytes_per_device'] / 1e6:.1f}", f"{bytes_xla / 1e6:.1f}",
                         f"{ours['bytes_per_device'] / bytes_xla:.2f}" if bytes_xla else "-",
                         f"{ours['flops_overhead']:.3f}", f"{spmd['flops_overhead']:.3f}", ours["peak_rss_mb"]),
              flush=True)
    good = [row for row in rows if "error" not in row["xlad"]]
    sent = [row["xlad"]["bytes_per_device"] / (row["xla"]["after_spmd"]["bytes_per_device_if_reduce_scattered"] or 1)
            for row in good if row["xla"]["after_spmd"]["bytes_per_device_if_reduce_scattered"]]
    print(f"{len(good)} programs, {failed} failed; bytes sent over XLA's: geometric mean {geomean(sent):.3f}, "
          f"largest {max(sent, default=float('nan')):.2f}; flops_overhead: geometric mean "
          f"{geomean([row['xlad']['flops_overhead'] for row in good]):.3f}, "
          f"XLA's {geomean([row['xla']['after_spmd']['flops_overhead'] for row in good]):.3f}; "
          "seconds to propagate and partition: "
          f"{sum(row['xlad']['propagate_s'] + row['xlad']['partition_s'] for row in good):.1f}, XLA's "
          f"{sum(row['xla']['propagate_s'] + row['xla']['partition_s'] for row in good):.1f}")
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

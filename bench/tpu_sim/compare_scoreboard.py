#!/usr/bin/env python3
"""Compares the two performance models of a simulated TPU on the same kernels.

    bench/tpu_sim/compare_scoreboard.py [--chip v5e]

`xlad simulate` estimates each kernel of the compiled program as a whole. The scoreboard model issues the instruction
bundles that `xlad compile --emit llo` prints, one by one. For each example, the table has the total time of the kernels
that both models have; each kernel counts once. Loops and branches are not kernels. `macros` is the number of kernels
that contain a macro-operation, and `ratio` the scoreboard's time divided by the time of `xlad simulate`.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNEL = re.compile(r"# +([0-9.]+) us  .*bundles  (\S+?)\.k[0-9]+( \(macro-operation (\S+)\))?$")


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip())
    return result.stdout


def scoreboard_of(xlad, example, chip):
    """Returns the microseconds of each instruction, and the instructions that are macro-operations."""
    us, macros = collections.Counter(), set()
    for text in run(xlad, "compile", example, "--target", f"tpu-{chip}", "--emit", "llo").splitlines():
        match = KERNEL.match(text)
        if match and match[4] not in ("while", "conditional"):
            us[match[2]] += float(match[1])
            if match[4]:
                macros.add(match[2])
    return us, macros


def model_of(xlad, example, chip):
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        topology = f"{chip}-{'x'.join('1' * (3 if chip in ('v4', 'v5p', '7x') else 2))}"
        run(xlad, "simulate", example, "--topology", topology, "--trace", trace)
        us = collections.Counter()
        for event in json.loads(trace.read_text())["traceEvents"]:
            if event["ph"] == "X":
                us[event["name"]] += event["dur"]
    return us


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", default=ROOT / "build/release/bin/xlad", help="the xlad binary")
    parser.add_argument("--chip", default="v5e", help="a chip of deploy/chips")
    parser.add_argument("--examples", default=os.environ.get("XLAD_EXAMPLES", ROOT / "examples"),
                        help="a folder of job directories")
    arguments = parser.parse_args()
    print(f"{'example':18} {'kernels':>7} {'macros':>6} {'model us':>10} {'scoreboard us':>13} {'ratio':>6}")
    for manifest in sorted(pathlib.Path(arguments.examples).glob("*/manifest.json")):
        board, macros = scoreboard_of(arguments.xlad, manifest.parent, arguments.chip)
        model = model_of(arguments.xlad, manifest.parent, arguments.chip)
        both = sorted(board.keys() & model.keys())
        ours, theirs = (sum(us[name] for name in both) for us in (model, board))
        ratio = theirs / ours if ours else 0
        print(f"{manifest.parent.name:18} {len(both):7} {len(macros & set(both)):6} {ours:10.1f} {theirs:13.1f} "
              f"{ratio:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env bash
# Trains the step of examples/gpt.py on 8 devices: a coordinator and 4 worker processes with 2 devices each, on this
# machine. Draws the loss curve, names the files that it leaves in build/demo, and prints what the devices send in a
# step.
set -euo pipefail
cd "$(dirname "$0")/.."
export JAX_PLATFORMS=cpu
rm -rf build/demo
mkdir -p build/demo
echo "demo: exporting the JAX step of examples/gpt.py to build/demo/job"
build/venv/bin/python -c '
import sys
sys.path.insert(0, "examples")
import gpt, xlad
xlad.export(gpt.step, gpt.state, gpt.data, to="build/demo/job", **gpt.job)'
echo "demo: training on dp=4,tp=2: 8 devices in 4 worker processes"
build/release/bin/xlad run build/demo/job --mesh dp=4,tp=2 --workers 4 --data build/demo/run \
  --curve build/demo/curve.json --plot build/demo/loss.svg --chart
echo "loss curve: build/demo/loss.svg (values: build/demo/curve.json)"
build/venv/bin/python - <<'END'
import collections, json, subprocess, sys

losses = json.load(open("build/demo/curve.json"))["loss"]
if losses[-1] > 0.5 * losses[0]:
    sys.exit(f"demo: found loss {losses[0]:.3f} -> {losses[-1]:.3f}, expected at most half of the first")
explain = ["build/release/bin/xlad", "explain", "build/demo/job", "--mesh", "dp=4,tp=2"]
explained = json.loads(subprocess.run([*explain, "--format", "json"], check=True, capture_output=True).stdout)
groups = collections.defaultdict(list)
for collective in explained["collectives"]:
    times = collective["trip_count"] or 1  # Null if it is unknown, which counts as 1 in the total, too.
    groups[collective["kind"], ",".join(collective["axes"])].append((times, collective["bytes"]))
print("what every device sends in a step:")
for (kind, axes), sent in groups.items():
    times, sum_of_bytes = sum(n for n, _ in sent), sum(n * once for n, once in sent)
    print(f"  {times:2} x {kind} over {axes}: {sum_of_bytes:,} bytes")
print(f"  {explained['bytes_per_device']:,} bytes in total; the source line of each: {' '.join(explain)}")
END

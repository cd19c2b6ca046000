#!/usr/bin/env bash
# Trains examples/gpt.py on 8 devices: a coordinator and 4 worker processes with 2 devices each, all on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
export JAX_PLATFORMS=cpu
rm -rf build/demo
mkdir -p build/demo
echo "xlad: training examples/gpt.py on dp=4,tp=2: 8 devices in 4 worker processes"
build/venv/bin/python -u examples/gpt.py | tee build/demo/steps.txt | awk 'NR % 10 == 1; { last = $0 } END { print last }'
build/venv/bin/python - <<'END'
import collections, json, statistics, subprocess, sys
sys.path.insert(0, "examples")
import gpt, xlad

lines = [line.split() for line in open("build/demo/steps.txt")]
losses, times = [float(line[3]) for line in lines], [float(line[4]) for line in lines]
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {statistics.median(times):.1f} ms a step")
if losses[-1] > 0.5 * losses[0]:
    sys.exit("demo: the loss did not fall")
xlad.export(gpt.step, gpt.state, gpt.data, to="build/demo/job", **gpt.job)
explain = ["build/release/bin/xlad", "explain", "build/demo/job", "--mesh", "dp=4,tp=2"]
explained = json.loads(subprocess.run([*explain, "--format", "json"], check=True, capture_output=True).stdout)
groups = collections.defaultdict(list)
for collective in explained["collectives"]:
    groups[collective["kind"], ",".join(collective["axes"])].append(collective["bytes"])
print("what every device sends in a step:")
for (kind, axes), sent in groups.items():
    print(f"  {len(sent):2} x {kind} over {axes}: {sum(sent):,} bytes")
print(f"  {explained['bytes_per_device']:,} bytes in all; why, to the line: {' '.join(explain)}")
END

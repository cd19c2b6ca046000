#!/usr/bin/env bash
# Trains examples/spiral_mlp on 8 devices: a coordinator and 4 worker processes with 2 devices each, all on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/demo
rm -rf "$out"
mkdir -p "$out"
echo "xlad: training examples/spiral_mlp on dp=4,tp=2: 8 devices in 4 worker processes"
build/release/bin/xlad run examples/spiral_mlp --mesh dp=4,tp=2 --workers 4 --data "$out" \
  --curve "$out/curve.json" --plot "$out/loss.svg" --chart
echo "curve: $out/curve.json
picture: $out/loss.svg
what it sends and why: build/release/bin/xlad explain examples/spiral_mlp --mesh dp=4,tp=2"

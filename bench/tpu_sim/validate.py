#!/usr/bin/env python3
"""Published times on TPUs and predictions of `xlad simulate`: bench/tpu_sim/validate.py [--only WORD] [--json FILE]

Every row names its source. No constant is fitted to a row; docs/reference/simulate.md says which two choices were made
after rows had been seen. Batch, sharding and what is kept for the backward pass are those of the published recipe; rows
of models need jax.

  book     "How to Scale Your Model" (2025), https://jax-ml.github.io/scaling-book
  recipes  https://github.com/AI-Hypercomputer/tpu-recipes, training/trillium: tokens per second and chip of MaxText
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "models"))

DOT = """HloModule m, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<[{mesh}]>}}}}
ENTRY main {{
  x = bf16[{m},{k}] parameter(0), frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, [{x}, {{}}]>"}}
  w = bf16[{k},{n}] parameter(1), frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, [{{}}, {w}]>"}}
  ROOT y = bf16[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
QUOTED = '{{\\"{0}\\"}}'
# One core of TPU v2 as a device.
V2_CORE = [("cores = 2", "cores = 1"), ("46 TFLOP/s", "23 TFLOP/s"), ("716 GB/s", "358 GB/s"), ("16 GB", "8 GB")]


def run(xlad, *arguments):
    result = subprocess.run([xlad, *map(str, arguments), "--format", "json"], capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip())
    return json.loads(result.stdout)


def dot(mesh, m, k, n):
    axes = ", ".join(f'"{name}"={size}' for name, size in (axis.split("=") for axis in mesh.split(",")))
    return DOT.format(mesh=axes, m=m, k=k, n=n, x=QUOTED.format("dp"), w=QUOTED.format("tp"))


def feed_forward_on_v2(xlad, folder):
    chip = (ROOT / "deploy/chips/v2.toml").read_text()
    for old, new in V2_CORE:
        assert old in chip, old
        chip = chip.replace(old, new)
    (folder / "core.toml").write_text(chip)
    (folder / "dot.hlo").write_text(dot("dp=4,tp=2", 32 * 1024, 8192, 32768))
    chip = folder / "core.toml"
    return run(xlad, "simulate", folder / "dot.hlo", "--topology", "4x2", "--chip", chip)["step_us"] / 1e3


def collective(xlad, name, topology, size, plan):
    return run(xlad, "comm", "simulate", name, "--topology", topology, "--bytes", size, "--algorithm", plan)["time_us"]


def weights_of_a_token(xlad, folder):
    # One token through 200 billion weights in layers of 16384 x 65536; a step is one of them.
    (folder / "dot.hlo").write_text(dot("dp=1,tp=32", 1, 16384, 65536))
    step_us = run(xlad, "simulate", folder / "dot.hlo", "--topology", "v4-2x4x4")["step_us"]
    return step_us * 200e9 / (16384 * 65536) / 1e3


def tokens_per_second(xlad, folder, model, topology, chips, recipe):
    import transformer
    batch, length, save = recipe
    mesh = {"dp": 1, "fsdp": chips, "tp": 1}
    (folder / "model.hlo.pb").write_bytes(transformer.export(model, mesh, batch * chips, length, save))
    result = run(xlad, "simulate", folder / "model.hlo.pb", "--topology", topology)
    return batch * length / result["step_us"] * 1e6


QKV = ("q", "k", "v")
# Case, source, unit, published value, prediction.
ROWS = [
    ("bf16[32768,8192] x [8192,32768] on 8 cores of v2, 4 x 2", "book, measured", "ms", 96, feed_forward_on_v2),
    ("reduce-scatter of 134 MB between 2 neighbors of v2", "book, measured", "us", 1130,
     lambda xlad, _: collective(xlad, "reduce_scatter", "v2-2x1", 134217728, "ring")),
    ("all-gather of 34 MB on v5e-4x4", "book, measured", "us", 680,
     lambda xlad, _: collective(xlad, "all_gather", "v5e-4x4", 34000000, "ring_2d grid=4x4 channels=2")),
    ("one token through 200e9 bf16 weights on 32 v4", "book, computed", "ms", 10.4, weights_of_a_token),
    ("Llama 3.1 8B, 256 v6e, 4 x 8192 tokens per chip", "recipes, measured", "tokens/s/chip", 7207,
     lambda xlad, folder: tokens_per_second(xlad, folder, "llama3-8b", "v6e-16x16", 256,
                                            (4, 8192, (*QKV, "attention")))),
    ("Llama 3.1 70B, 256 v6e, 5 x 8192 tokens per chip", "recipes, measured", "tokens/s/chip", 960,
     lambda xlad, folder: tokens_per_second(xlad, folder, "llama3-70b", "v6e-16x16", 256, (5, 8192, QKV))),
    ("Llama 2 70B, 256 v6e, 3 x 4096 tokens per chip", "recipes, measured", "tokens/s/chip", 900,
     lambda xlad, folder: tokens_per_second(xlad, folder, "llama2-70b", "v6e-16x16", 256, (3, 4096, QKV))),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", default=ROOT / "build/release/bin/xlad", help="the xlad binary")
    parser.add_argument("--only", default="", help="only rows whose case has this word")
    parser.add_argument("--json", help="also write the rows to a file")
    arguments = parser.parse_args()
    rows = []
    print(f"{'case':58} {'published':>10} {'predicted':>10} {'error':>7}  unit, source")
    for case, source, unit, published, predict in ROWS:
        if arguments.only not in case:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                predicted = predict(str(arguments.xlad), pathlib.Path(folder))
            except (RuntimeError, ImportError) as error:
                print(f"{case:58} {published:10} {'-':>10} {'-':>7}  {error}")
                rows.append({"case": case, "published": published, "failed": str(error)})
                continue
        error = predicted / published - 1
        rows.append({"case": case, "published": published, "predicted": predicted, "error": error})
        print(f"{case:58} {published:10} {predicted:10.1f} {100 * error:+6.1f}%  {unit}, {source}", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if rows and all("predicted" in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

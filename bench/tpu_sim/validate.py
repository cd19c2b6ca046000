#!/usr/bin/env python3
"""Compares published times on TPUs with predictions of `xlad simulate`.

    bench/tpu_sim/validate.py [--only WORD] [--unfitted] [--json FILE]

Every row names its source. The batch, the sharding and the values that are kept for the backward pass are those of a
published recipe. If there is no recipe, the row is printed with the reason why it cannot be predicted. Rows of models,
and some others, need jax.

Predictions use the unchanged chip files. Models of MaxText are also predicted with fitted rates. On v5p, the rate of
the matrix units is fitted to one model. On v6e, the rates of the matrix and vector units are fitted to every second
model of the table. Rows that are used for the fit are marked "fit", and all others "blind". docs/reference/simulate.md
says which choices of the performance model were made after rows had been seen. With --unfitted, rates are not fitted,
which takes a small part of the time.

  book     "How to Scale Your Model" (2025), https://jax-ml.github.io/scaling-book
  MaxText  https://github.com/AI-Hypercomputer/maxtext, its page on tiering and the recipes that it links
  PaLM     Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (2022)
"""
import argparse
import itertools
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

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
# Changes of chip files: one core of TPU v2 becomes a device, and v5e gets the book's link rate and no launch time.
V2_CORE = [("cores = 2", "cores = 1"), ("46 TFLOP/s", "23 TFLOP/s"), ("716 GB/s", "358 GB/s"), ("16 GB", "8 GB")]
BOOK_V5E = [("50 GB/s", "45 GB/s"), ('launch = "5 us"', 'launch = "1 ns"')]
# Factors for the fitted rates.
MATRIX_FACTORS = [0.5 + 0.05 * i for i in range(11)]
VECTOR_FACTORS = [0.5, 1, 2, 4]


def run(xlad, *arguments):
    result = subprocess.run([xlad, *map(str, arguments), "--format", "json"], capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip())
    return json.loads(result.stdout)


def chip_file(folder, name, changes):
    """Writes a chip file with changed texts and returns its path."""
    text = (ROOT / "deploy/chips" / f"{name}.toml").read_text()
    for old, new in changes:
        if old not in text:
            raise RuntimeError(f"deploy/chips/{name}.toml: found no {old}")
        text = text.replace(old, new)
    path = folder / f"{name}-{len(list(folder.iterdir()))}.toml"
    path.write_text(text)
    return path


def dot(folder, mesh, m, k, n):
    axes = ", ".join(f'"{name}"={size}' for name, size in (axis.split("=") for axis in mesh.split(",")))
    path = folder / "dot.hlo"
    path.write_text(DOT.format(mesh=axes, m=m, k=k, n=n, x=QUOTED.format("dp"), w=QUOTED.format("tp")))
    return path


def lowered(folder, function, axes, splits, out, *arguments):
    """Writes the HLO of a function of arrays that are split over a mesh, and returns its path."""
    import jax
    from jax.sharding import AbstractMesh, AxisType, NamedSharding
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    with jax.sharding.use_abstract_mesh(mesh):
        jitted = jax.jit(function, in_shardings=tuple(NamedSharding(mesh, split) for split in splits),
                         out_shardings=NamedSharding(mesh, out))
        module = jitted.trace(*arguments).lower(lowering_platforms=("cpu",)).compiler_ir("hlo")
    path = folder / "function.hlo.pb"
    path.write_bytes(module.as_serialized_hlo_module_proto())
    return path


def feed_forward_on_v2(xlad, folder):
    chip = chip_file(folder, "v2", V2_CORE)
    program = dot(folder, "dp=4,tp=2", 32 * 1024, 8192, 32768)
    return run(xlad, "simulate", program, "--topology", "4x2", "--chip", chip)["step_us"] / 1e3


def collective(xlad, name, topology, size, plan):
    return run(xlad, "comm", "simulate", name, "--topology", topology, "--bytes", size, "--algorithm", plan)["time_us"]


def weights_of_a_token(xlad, folder):
    # A step is one layer of 16384 x 65536 weights; its time is scaled to 200 billion weights.
    program = dot(folder, "dp=1,tp=32", 1, 16384, 65536)
    step_us = run(xlad, "simulate", program, "--topology", "v4-2x4x4")["step_us"]
    return step_us * 200e9 / (16384 * 65536) / 1e3


def corner_to_corner(xlad, folder):
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    def send(x):
        return jax.shard_map(lambda t: jax.lax.ppermute(t, "d", [(0, 15)]), in_specs=P("d"), out_specs=P("d"))(x)

    array = jax.ShapeDtypeStruct((16 * 8, 128, 8192), jnp.bfloat16)
    program = lowered(folder, send, {"d": 16}, [P("d")], P("d"), array)
    result = run(xlad, "simulate", program, "--topology", "4x4", "--chip", chip_file(folder, "v5e", BOOK_V5E))
    return result["collectives"][0]["us"]


def all_gather_on_an_axis(xlad, folder):
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P
    array = jax.ShapeDtypeStruct((2048, 8192), jnp.bfloat16)
    program = lowered(folder, lambda x: -x, {"x": 8, "y": 4}, [P("y")], P(), array)
    result = run(xlad, "simulate", program, "--topology", "8x4", "--assign", "y=y,x=x", "--chip",
                 chip_file(folder, "v5e", BOOK_V5E))
    return result["collectives"][0]["us"]


def days_of_llama3(_, folder):
    import transformer
    flops = 6 * transformer.parameters_of("llama3-70b") * 15e12
    rate = float((ROOT / "deploy/chips/v5p.toml").read_text().split('bf16 = "')[1].split()[0]) * 1e12
    return flops / (8960 * rate * 0.4) / 86400


def ratio_of_shardings(xlad, folder):
    """Returns the ratio of the step times of two shardings of a layer on 4 x 2 cores of v2. The first splits the width
    of activations and gathers no weights. The second splits the batch, and shards the weights as Megatron does. The
    sizes are those of the book's chapter on profiles."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    def layer(split, x, w_in, w_out):
        x = jax.lax.with_sharding_constraint(x, split)
        return x + jax.nn.gelu(x @ w_in) @ w_out

    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16)
              for shape in ((32, 1024, 8192), (8192, 32768), (32768, 8192))]
    chip = chip_file(folder, "v2", V2_CORE)
    us = []
    for split, weights in ((P(None, None, "x"), (P("x", "y"), P("y", "x"))), (P("x"), (P(None, "y"), P("y", None)))):
        program = lowered(folder, lambda *a, split=split: layer(split, *a), {"x": 4, "y": 2}, [split, *weights], split,
                          *arrays)
        us.append(run(xlad, "simulate", program, "--topology", "4x2", "--chip", chip)["step_us"])
    return us[0] / us[1]


class Recipe(NamedTuple):
    model: str
    topology: str
    mesh: dict
    batch: int  # The number of sequences per chip; may be a fraction.
    length: int  # The number of tokens of a sequence.
    # The arguments of transformer.export.
    save: tuple = ()
    capacity: float = 0
    weights: str = "float32"


class Row(NamedTuple):
    number: int
    case: str
    source: str
    unit: str
    published: float
    predict: object  # A function of the binary and a folder, a Recipe, or the reason why the row cannot be predicted.
    fit: bool = False  # True if rates are fitted to this row.


SPEED = "tokens/s/chip"
QKV = ("q", "k", "v")
OUT = (*QKV, "out")
FSDP = {"dp": 1, "fsdp": 256, "tp": 1}
ROWS = [
    Row(1, "bf16[32768,8192] x [8192,32768] on 8 cores of v2, 4 x 2", "book, measured", "ms", 96, feed_forward_on_v2),
    Row(2, "reduce-scatter of 134 MB between 2 neighbors of v2", "book, measured", "us", 1130,
        lambda xlad, _: collective(xlad, "reduce_scatter", "v2-2x1", 134217728, "ring")),
    # The sizes of the notebook that was measured are not published, so the only check is that the ratio is above 1.
    Row(3, "a layer with a bad sharding over one with a good one", "book, measured; only > 1 counts", "times", 184 / 67,
        ratio_of_shardings),
    Row(4, "PaLM 540B on 2 x 3072 v4", "PaLM, measured", SPEED, 238.3e3 / 6144,
        Recipe("palm-540b", "2xv4-12x16x16", {"dp": 2, "fsdp": 256, "tp": 12}, 2048 / 6144, 2048)),
    Row(5, "MLPerf 1.1, 480B on 2048 v4", "MLPerf", "%", 63, "neither the model nor its sharding is published"),
    Row(6, "Llama 2 70B on 512 v5p", "MaxText, measured", SPEED, 692,
        Recipe("llama2-70b", "v5p-8x8x8", {"dp": 1, "fsdp": 512, "tp": 1}, 4, 4096, (*OUT, "down")), fit=True),
    Row(7, "Mixtral 8x7B on 128 v5p", "MaxText, measured", SPEED, 2909,
        Recipe("mixtral-8x7b", "v5p-8x4x4", {"dp": 1, "fsdp": 128, "tp": 1}, 36, 4096, weights="bfloat16")),
    Row(8, "Llama 3.1 8B on 256 v6e", "MaxText, measured", SPEED, 7207,
        Recipe("llama3-8b", "v6e-16x16", FSDP, 4, 8192, OUT), fit=True),
    Row(8, "Llama 3.1 70B on 256 v6e", "MaxText, measured", SPEED, 960,
        Recipe("llama3-70b", "v6e-16x16", FSDP, 5, 8192, QKV)),
    Row(8, "Llama 3.1 405B on 2 x 256 v6e", "MaxText, measured", SPEED, 123,
        Recipe("llama3-405b", "2xv6e-16x16", {"dp": 1, "fsdp": 128, "tp": 4}, 1, 8192, OUT), fit=True),
    Row(9, "Llama 2 70B on 256 v6e", "MaxText, measured", SPEED, 900,
        Recipe("llama2-70b", "v6e-16x16", FSDP, 3, 4096, QKV)),
    Row(9, "Mixtral 8x7B on 256 v6e", "MaxText, measured", SPEED, 3899,
        Recipe("mixtral-8x7b", "v6e-16x16", FSDP, 12, 4096, OUT, 1.25), fit=True),
    Row(9, "Mixtral 8x22B on 256 v6e", "MaxText, measured", SPEED, 1326,
        Recipe("mixtral-8x22b", "v6e-16x16", {"dp": 1, "fsdp": 64, "ep": 4, "tp": 1}, 8, 4096, OUT, 1.25, "bfloat16")),
    Row(10, "OpenLLaMA 7B on v4", "EasyLM", SPEED, 2200, "the number of chips and the batch are not published"),
    Row(11, "six programs on TPU v1", "ISCA 2017", "TOP/s", 12.3, "the paper has no shapes of layers"),
    Row(12, "one token through 200e9 bf16 weights on 32 v4", "book, computed", "ms", 10.4, weights_of_a_token),
    Row(12, "16.8 MB from corner to corner of v5e-4x4", "book, computed", "us", 194, corner_to_corner),
    Row(12, "all-gather of 34 MB along 4 chips of v5e", "book, computed", "us", 560, all_gather_on_an_axis),
    Row(12, "all-gather of 34 MB on v5e-4x4", "book, measured", "us", 680,
        lambda xlad, _: collective(xlad, "all_gather", "v5e-4x4", 34000000, "ring_2d grid=4x4 channels=2")),
    Row(12, "all-reduce of 1 GB along 28 chips of v5p, 2 V / W", "book, computed", "us", 2e9 / 200e9 * 1e6,
        lambda xlad, _: collective(xlad, "all_reduce", "v5p-1x1x28", 10 ** 9, "ring channels=2")),
    Row(12, "15e12 tokens of Llama 3 70B, 8960 v5p, 40 % MFU", "book, computed", "days", 44, days_of_llama3),
]


def factors_of(row):
    """Returns pairs of factors for the rates of the matrix and vector units. The first pair, (1, 1), is the unchanged
    chip."""
    vector = VECTOR_FACTORS if "v6e" in row.predict.topology else [1]
    return [(1, 1), *(pair for pair in itertools.product(MATRIX_FACTORS, vector) if pair != (1, 1))]


def scaled(folder, name, factors):
    text = (ROOT / "deploy/chips" / f"{name}.toml").read_text()
    changes = []
    for key, factor in zip(("bf16", "clock"), factors):
        value, unit = text.split(f'\n{key} = "')[1].split('"')[0].split()
        changes.append((f'{key} = "{value} {unit}"', f'{key} = "{float(value) * factor} {unit}"'))
    return chip_file(folder, name, changes)


def speeds_of(xlad, folder, row, factors):
    """Returns the predicted tokens per second and chip for each pair of factors."""
    import transformer
    recipe = row.predict
    chips = math.prod(recipe.mesh.values())
    (folder / "model.hlo.pb").write_bytes(
        transformer.export(recipe.model, recipe.mesh, round(recipe.batch * chips), recipe.length, recipe.save,
                           recipe.capacity, recipe.weights))
    name = recipe.topology.split("-")[0]
    name = name.removeprefix("2x")
    files = [argument for pair in factors for argument in ("--chip", scaled(folder, name, pair))]
    result = run(xlad, "simulate", folder / "model.hlo.pb", "--topology", recipe.topology, *files)
    tokens = recipe.batch * recipe.length * 1e6
    return {pair: tokens / each["step_us"] for pair, each in zip(factors, result.get("runs", [result]))}


def fitted(rows):
    """Returns the pair of factors that minimizes the sum of the squared logarithmic errors over the rows of the fit, or
    None if there are no such rows."""
    rows = [row for row in rows if row["fit"]]
    if not rows:
        return None
    return min(rows[0]["speeds"], key=lambda pair: sum(math.log(row["speeds"][pair] / row["published"]) ** 2
                                                       for row in rows))


def predict(xlad, row, fits=True):
    """Returns the results of a row: its prediction, or the reason why there is none. Rates can be fitted to the results
    only if `fits` is true."""
    found = {"row": row.number, "case": row.case, "source": row.source, "unit": row.unit, "published": row.published}
    if isinstance(row.predict, str):
        return found | {"not_done": row.predict}
    with tempfile.TemporaryDirectory() as folder:
        try:
            if isinstance(row.predict, Recipe):
                speeds = speeds_of(xlad, pathlib.Path(folder), row, factors_of(row) if fits else [(1, 1)])
                return found | {"predicted": speeds[1, 1], "speeds": speeds, "fit": row.fit}
            return found | {"predicted": row.predict(xlad, pathlib.Path(folder))}
        except (RuntimeError, ImportError) as error:
            return found | {"failed": str(error)}


def line(row, predicted, note=""):
    if predicted is None:
        return f"{row['row']:3} {row['case']:56} {row['published']:9.4g} {'-':>9} {'-':>7}  {note}"
    error = 100 * (predicted / row["published"] - 1)
    return (f"{row['row']:3} {row['case']:56} {row['published']:9.4g} {predicted:9.4g} {error:+6.1f}%  {row['unit']}, "
            f"{row['source']}{note}")


def print_fitted(rows):
    """Prints the models of v5p and v6e with fitted rates."""
    for chip in ("v5p", "v6e"):
        models = [row for row in rows if "speeds" in row and f" {chip}" in row["case"]]
        pair = fitted(models)
        if pair is None:
            continue
        print(f"\n{chip} with fitted rates: matrix units {pair[0]:.2f}, vector units {pair[1]:.2f} of the chip file")
        errors = []
        for row in models:
            row["fitted"] = row["speeds"][pair]
            print(line(row, row["fitted"], ", fit" if row["fit"] else ", blind"))
            if not row["fit"]:
                errors.append(abs(row["fitted"] / row["published"] - 1))
        if errors:
            print(f"blind: median {100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", default=ROOT / "build/release/bin/xlad", help="the xlad binary")
    parser.add_argument("--only", default="", help="only rows whose case has this word")
    parser.add_argument("--unfitted", action="store_true", help="only predict with the unchanged chip files")
    parser.add_argument("--json", help="also write the rows to a file")
    arguments = parser.parse_args()
    rows = []
    print(f"row {'case':56} {'published':>9} {'predicted':>9} {'error':>7}  unit, source")
    for row in ROWS:
        if arguments.only not in row.case:
            continue
        rows.append(predict(str(arguments.xlad), row, not arguments.unfitted))
        note = f"not done: {rows[-1]['not_done']}" if "not_done" in rows[-1] else rows[-1].get("failed", "")
        print(line(rows[-1], rows[-1].get("predicted"), note), flush=True)
    if not arguments.unfitted:
        print_fitted(rows)
    if arguments.json:
        for row in rows:
            row.pop("speeds", None)
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if rows and not any("failed" in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Compares attention as library ops with attention as separate steps, and checks the compiler's choice between them.

    python bench/attention_cost/attention_cost.py                        random shapes
    python bench/attention_cost/attention_cost.py --only 8x128x128x64    heads x rows x columns x features
    python bench/attention_cost/attention_cost.py --seed 1 --fit         also fits the constants of the estimates

Each row is a program with the same attention in both forms, which are measured alternately on one thread, in CPU time.
`ratio` is the ratio of the measured times, and `estimate` the ratio of the estimated times. A choice is right if it is
the faster form. Regret is the time of the chosen form divided by the time of the faster form. Constants that were
fitted with one seed should be tested with another seed, which selects different shapes.

--fit prints constants for compiler/analysis/attention_cost.cc, all above zero, that minimize the relative errors of the
estimates. Constants that contribute nothing to the times can be left out.
"""

import argparse
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402  (the environment must be set first)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import scipy.optimize  # noqa: E402

REPO = pathlib.Path(__file__).resolve().parents[2]
FEATURES = [8, 16, 20, 32, 48, 64, 80, 128]
TYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16}
MOST_SCORES = 1 << 22


def attention(case):
    """Returns the function of a case. Its operands have the dimensions (batch, position, head, feature)."""

    def forward(q, k, v):
        # In bf16 and f16, half of the programs have scores in f32.
        kind = jnp.float32 if case["wide"] else None
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=kind)
        scores = scores * np.float32(case["features"] ** -0.5).astype(scores.dtype)
        if case["causal"]:
            mask = jnp.tril(jnp.ones((case["rows"], case["columns"]), bool))
            scores = jnp.where(mask, scores, jnp.asarray(-6e4, scores.dtype))
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(q.dtype), v)

    def gradients(q, k, v, g):
        out, backward = jax.vjp(forward, q, k, v)
        return out, backward(g)

    return gradients if case["gradient"] else forward


def write(case, folder):
    kind = TYPES[case["type"]]
    shape = lambda n: jax.ShapeDtypeStruct((case["batch"], n, case["heads"], case["features"]), kind)  # noqa: E731
    operands = [shape(case["rows"]), shape(case["columns"]), shape(case["columns"])]
    operands += [shape(case["rows"])] if case["gradient"] else []
    module = jax.jit(attention(case)).lower(*operands).compiler_ir("hlo")
    path = pathlib.Path(folder) / "program.hlo"
    path.write_bytes(module.as_serialized_hlo_module_proto())
    return path


def name_of(case):
    words = [f"{case['batch'] * case['heads']}x{case['rows']}x{case['columns']}x{case['features']}", case["type"]]
    words += [word for word in ("wide", "causal", "gradient") if case[word]]
    return " ".join(words)


def sizes_of(text):
    heads, rows, columns, features = map(int, text.split("x"))
    return {"batch": 1, "heads": heads, "rows": rows, "columns": columns, "features": features}


def random_sizes(rng):
    def size(low, high):
        n = round(2 ** rng.uniform(math.log2(low), math.log2(high)))
        return n if rng.random() < 0.4 else max(low, 2 ** round(math.log2(n)))  # Most sizes are powers of two.

    while True:
        rows = size(32, 2048)
        columns = rows if rng.random() < 0.8 else size(32, 2048)
        sizes = {"batch": size(1, 16), "heads": size(1, 16), "rows": rows, "columns": columns,
                 "features": rng.choice(FEATURES)}
        scores = sizes["batch"] * sizes["heads"] * rows * columns
        if 1 << 14 <= scores <= MOST_SCORES:
            return sizes


def cases_of(args):
    rng = random.Random(args.seed)
    if args.only:
        forms = [(kind, wide, causal, gradient) for kind in TYPES for wide in ((False,) if kind == "f32" else
                 (False, True)) for causal in (False, True) for gradient in (False, True)]
        return [sizes_of(text) | dict(zip(("type", "wide", "causal", "gradient"), form))
                for text in args.only.split(",") for form in forms]
    cases = []
    for _ in range(args.cases):
        kind = rng.choice(list(TYPES))
        cases.append(random_sizes(rng) | {"type": kind, "wide": kind != "f32" and rng.random() < 0.5,
                                          "causal": rng.random() < 0.6, "gradient": rng.random() < 0.6})
    return cases


def estimate(terms):
    return sum(count * ns for count, ns in terms.values())


def measure(cases, args):
    command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), str(args.build / "attention_cost_xlad"),
               str(args.blocks), str(args.block_ms)]
    rows = []
    print(f"{'program':44} {'fused us':>10} {'separate us':>12} {'ratio':>6} {'estimate':>9}  choice")
    with tempfile.TemporaryDirectory() as folder, \
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as side:
        for case in cases:
            side.stdin.write(f"{write(case, folder)}\n")
            side.stdin.flush()
            line = side.stdout.readline()
            if not line:
                sys.exit(f"attention_cost.py: attention_cost_xlad has ended at {name_of(case)}")
            row = json.loads(line) | {"case": case}
            rows.append(row)
            ratio = row["fused_ns"] / row["separate_ns"]
            estimated = estimate(row["fused"]) / max(1e-9, estimate(row["separate"]))
            right = (ratio < 1) == (row["chosen"] == "fused")
            print(f"{name_of(case):44} {row['fused_ns'] / 1e3:10.1f} {row['separate_ns'] / 1e3:12.1f} {ratio:6.2f}"
                  f" {estimated:9.2f}  {row['chosen']}{'' if right else ' (wrong)'}", flush=True)
        side.stdin.close()
    return rows


def summarize(rows):
    regrets = [row[f"{row['chosen']}_ns"] / min(row["fused_ns"], row["separate_ns"]) for row in rows]
    always = [row["fused_ns"] / min(row["fused_ns"], row["separate_ns"]) for row in rows]
    never = [row["separate_ns"] / min(row["fused_ns"], row["separate_ns"]) for row in rows]
    for what, values in (("chosen", regrets), ("always fused", always), ("never fused", never)):
        right = sum(value == 1 for value in values)
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(f"{what}: right in {right} of {len(values)}, regret: geometric mean {mean:.3f},"
              f" largest {max(values):.2f}")


def fit(rows, form):
    names = list(rows[0][form])
    times = np.array([row[f"{form}_ns"] for row in rows])
    shares = np.array([[row[form][name][0] for name in names] for row in rows]) / times[:, None]
    scale = np.maximum(shares.max(axis=0), 1e-30)
    shares /= scale
    # Errors are differences of logarithms, so that short and long programs have the same weight. Large errors have
    # little weight, because other processes disturb some measurements.
    errors = lambda x: np.log(np.maximum(shares @ np.exp(x), 1e-12))  # noqa: E731
    found = scipy.optimize.least_squares(errors, np.full(len(names), math.log(0.1)), loss="soft_l1", f_scale=0.1).x
    ratios = shares @ np.exp(found)
    print(f"{form}: estimate over measured time: median {np.median(ratios):.2f},"
          f" 5 % and 95 %: {np.quantile(ratios, 0.05):.2f} {np.quantile(ratios, 0.95):.2f}")
    constants = dict(zip(names, np.exp(found) / scale))
    for k, name in enumerate(names):
        share = np.mean(shares[:, k] * np.exp(found[k]))
        print(f"    {{\"{name}\", 0, {constants[name]:.3g}}},  {share:.0%} of the times")
    return constants


def refit(rows):
    constants = {form: fit(rows, form) for form in ("fused", "separate")}
    for row in rows:
        for form in constants:
            row[form] = {name: (count, constants[form][name]) for name, (count, _) in row[form].items()}
        row["chosen"] = "fused" if estimate(row["fused"]) < estimate(row["separate"]) else "separate"
    print("with these constants:")
    summarize(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="sizes, comma-separated")
    parser.add_argument("--cases", type=int, default=150, help="number of random programs")
    parser.add_argument("--seed", type=int, default=2, help="seed of the random programs")
    parser.add_argument("--blocks", type=int, default=60, help="number of blocks of runs of each form")
    parser.add_argument("--block-ms", type=int, default=2, help="approximate length of a block in ms")
    parser.add_argument("--fit", action="store_true", help="fit the constants")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    parser.add_argument("--build", type=pathlib.Path, default=REPO / "build/release/bin", help="folder of the binaries")
    args = parser.parse_args()
    rows = measure(cases_of(args), args)
    summarize(rows)
    if args.json:
        args.json.write_text(json.dumps(rows))
    if args.fit:
        refit(rows)


if __name__ == "__main__":
    main()

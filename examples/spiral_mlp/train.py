"""A small MLP that classifies the arms of three spirals. Writes this folder, a job directory for xlad.

    python examples/spiral_mlp/train.py

The script also writes curve.json, the losses of JAX, to which tests compare those of xlad. Needs pip install
./python[jax].
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import xlad

ARMS, WIDTH, BATCH, ROWS, STEPS = 3, 192, 192, 1920, 200


def spirals(rng: np.random.Generator) -> dict[str, np.ndarray]:
    label = rng.integers(0, ARMS, ROWS).astype(np.int32)
    radius = np.sqrt(rng.uniform(0.02, 1.0, ROWS))
    angle = 4.0 * radius + 2 * np.pi * label / ARMS + rng.normal(0, 0.2, ROWS)
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    point = np.stack([x, y, x * y, x * x, y * y, np.sin(3 * x), np.sin(3 * y), np.ones(ROWS)], 1)
    return {"label": label, "point": point.astype(np.float32)}


def initial_state(rng: np.random.Generator) -> dict:
    sizes = [8, WIDTH, WIDTH, ARMS]
    params = {}
    for i, (rows, columns) in enumerate(zip(sizes, sizes[1:])):
        params[f"w{i}"] = rng.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)
        params[f"b{i}"] = np.zeros(columns, np.float32)
    return {"momentum": jax.tree.map(np.zeros_like, params), "params": params}


def step(state: dict, batch: dict, t: jax.Array) -> tuple[dict, dict]:
    def loss_fn(params):
        h = jax.nn.silu(batch["point"] @ params["w0"] + params["b0"])
        h = jax.nn.silu(h @ params["w1"] + params["b1"])
        logits = h @ params["w2"] + params["b2"]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["label"][:, None], 1)
        accuracy = jnp.mean((jnp.argmax(logits, 1) == batch["label"]).astype(jnp.float32))
        return -jnp.mean(chosen), accuracy

    (loss, accuracy), gradients = jax.value_and_grad(loss_fn, has_aux=True)(state["params"])
    rate = 0.03 * jnp.where(t < 150, 1.0, 0.2)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradients)
    params = jax.tree.map(lambda p, m: p - rate * m, state["params"], momentum)
    return {"momentum": momentum, "params": params}, {"loss": loss, "accuracy": accuracy}


def tensor_parallel(name: str) -> P:
    """Splits the weights as Megatron does: the first matrix by columns, the second one by rows."""
    return {"w0": P(None, "tp"), "b0": P("tp"), "w1": P("tp", None)}.get(name.split(".")[-1], P())


def curve(state: dict, data: dict) -> dict:
    """Returns the losses of JAX on one device."""
    metrics = []
    for t in range(STEPS):
        first = t * BATCH % ROWS
        state, values = jax.jit(step)(state, jax.tree.map(lambda a, i=first: a[i : i + BATCH], data), np.int32(t))
        metrics.append(jax.tree.map(float, values))
    columns = {name: [values[name] for values in metrics] for name in metrics[0]}
    return {"steps": STEPS, "meshes": {"single": {"loss": columns.pop("loss"), "metrics": columns}}}


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    state, data = initial_state(np.random.default_rng(0)), spirals(np.random.default_rng(1))
    xlad.export(step, state, data, to=here, name=here.name, batch=BATCH, steps=STEPS,
                mesh=["", "dp=8", "dp=4,tp=2", "dp=3", "dp=3,tp=2"], in_shardings=(tensor_parallel, P("dp")))
    manifest = json.loads((here / "manifest.json").read_text())
    manifest["about"] = "3-layer MLP on three spirals: SiLU, cross entropy, SGD with momentum."
    manifest["tolerance"] = {"loss_relative": 2e-4}
    (here / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    (here / "curve.json").write_text(json.dumps(curve(state, data)) + "\n")

"""An LSTM that learns to sum the marked numbers of a sequence, on 6 devices (dp=3, tp=2): python examples/lstm.py"""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import xlad

WIDTH, LENGTH, BATCH = 64, 24, 48


def sequences(rng, count):
    """Returns numbers and marks. The target at every position is the sum of the marked numbers up to it."""
    number = rng.uniform(-1, 1, (count, LENGTH)).astype(np.float32)
    mark = (rng.uniform(size=(count, LENGTH)) < 0.3).astype(np.float32)
    return {"input": np.stack([number, mark], -1), "wanted": np.cumsum(number * mark, 1)}


def init(rng):
    normal = lambda rows, *rest: rng.normal(0, rows**-0.5, (rows, *rest)).astype(np.float32)  # noqa: E731
    bias = np.zeros((4, WIDTH), np.float32)
    bias[1] = 1  # The forget gate is initially open.
    params = {"input": normal(2, 4, WIDTH), "hidden": normal(WIDTH, 4, WIDTH), "bias": bias, "out": normal(WIDTH, 1)}
    return {"params": params, "square": jax.tree.map(np.zeros_like, params), "dropout": jax.random.key(7)}


def loss_of(params, batch, key):
    def cell(carry, x):
        h, c = carry
        i, f, g, o = jnp.moveaxis(jnp.einsum("bx,xgh->bgh", x, params["input"])
                                  + jnp.einsum("bk,kgh->bgh", h, params["hidden"]) + params["bias"], 1, 0)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((BATCH, WIDTH))
    _, hidden = jax.lax.scan(cell, (zeros, zeros), batch["input"].swapaxes(0, 1))
    hidden *= jax.random.bernoulli(key, 0.95, hidden.shape) / 0.95
    return jnp.mean(((hidden @ params["out"])[..., 0].T - batch["wanted"]) ** 2)


def step(state, batch):
    key, dropout = jax.random.split(state["dropout"])
    loss, grads = jax.value_and_grad(loss_of)(state["params"], batch, dropout)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, state["square"], grads)
    params = jax.tree.map(lambda p, g, s: p - 2e-3 * g / (jnp.sqrt(s) + 1e-4), state["params"], grads, square)
    return {"params": params, "square": square, "dropout": key}, loss


def split(name):
    """Splits the hidden units: the last dimension of the gates' weights and biases, and the rows of `out`."""
    return {"input": P(None, None, "tp"), "hidden": P(None, None, "tp"), "bias": P(None, "tp"),
            "out": P("tp")}.get(name.split(".")[-1])


state = init(np.random.default_rng(0))
data = sequences(np.random.default_rng(1), 30 * BATCH)
job = dict(steps=90, batch=BATCH, mesh={"dp": 3, "tp": 2}, in_shardings=(split, P("dp")))

if __name__ == "__main__":
    with xlad.local(devices=6, workers=3) as cluster:
        for s in cluster.train(step, state, data, **job):
            print(f"step {s.step:3}  loss {s.loss:.4f}  {s.ms:.1f} ms")

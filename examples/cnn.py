"""A CNN that classifies circles, squares, crosses and stripes, data parallel on 4 devices: python examples/cnn.py"""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import xlad

SIDE, BATCH, CLASSES = 24, 32, 4


def pictures(rng, count):
    y, x = np.mgrid[:SIDE, :SIDE]
    label = rng.integers(0, CLASSES, count).astype(np.int32)
    image = rng.normal(0, 0.3, (count, SIDE, SIDE, 1)).astype(np.float32)
    for i, shape in enumerate(label):
        u, v = x - rng.uniform(9, 15), y - rng.uniform(9, 15)
        size = rng.uniform(4, 8)
        inside = np.maximum(abs(u), abs(v)) < size
        image[i, ..., 0] += [u**2 + v**2 < size**2, inside, inside & (np.minimum(abs(u), abs(v)) < 2),
                             inside & (v % 4 < 2)][shape]
    return {"image": image, "label": label}


def init(rng):
    normal = lambda *shape: rng.normal(0, np.prod(shape[:-1]) ** -0.5, shape).astype(np.float32)  # noqa: E731
    kernels = {"first": normal(3, 3, 1, 16), "second": normal(3, 3, 16, 32), "third": normal(3, 3, 32, 32)}
    params = {**kernels, "scale": np.ones(32, np.float32), "dense": normal(32, CLASSES)}
    return {"params": params, "momentum": jax.tree.map(np.zeros_like, params)}


def loss_of(params, batch):
    x = batch["image"]
    for name in ("first", "second", "third"):
        x = jax.lax.conv_general_dilated(x, params[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = (x - x.mean((0, 1, 2))) * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-3)  # The mean is over the global batch.
        x = jax.lax.reduce_window(jax.nn.silu(x), 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    x = x.mean((1, 2)) * params["scale"]
    logits = x @ params["dense"]
    accuracy = (logits.argmax(-1) == batch["label"]).mean()
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["label"][:, None], -1).mean(), accuracy


def step(state, batch):
    (loss, accuracy), grads = jax.value_and_grad(loss_of, has_aux=True)(state["params"], batch)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], grads)
    params = jax.tree.map(lambda p, m: p - 0.03 * m, state["params"], momentum)
    return {"params": params, "momentum": momentum}, {"loss": loss, "accuracy": accuracy}


state = init(np.random.default_rng(0))
data = pictures(np.random.default_rng(1), 40 * BATCH)
job = dict(steps=80, batch=BATCH, mesh={"dp": 4}, in_shardings=(None, P("dp")))

if __name__ == "__main__":
    with xlad.local(devices=4, workers=2) as cluster:
        for s in cluster.train(step, state, data, **job):
            print(f"step {s.step:3}  loss {s.loss:.4f}  accuracy {s.metrics['accuracy']:.2f}  {s.ms:.1f} ms")

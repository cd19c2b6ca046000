"""A small GPT on 8 devices, data parallel by 4 and tensor parallel by 2: python examples/gpt.py"""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
import xlad
VOCAB, WIDTH, INNER, HEADS, HEAD, LAYERS, CONTEXT, BATCH = 64, 128, 512, 8, 16, 2, 64, 16
SHAPES = {"qkv": (3, WIDTH, HEADS, HEAD), "out": (HEADS, HEAD, WIDTH), "up": (WIDTH, INNER), "down": (INNER, WIDTH)}
SPLIT = {"qkv": P(None, None, "tp"), "out": P("tp"), "up": P(None, "tp"), "down": P("tp")}
rng = np.random.default_rng(0)
weight = lambda *shape: jnp.asarray(rng.normal(0, 0.05, shape), jnp.float32)
params = {"token": weight(VOCAB, WIDTH), "position": weight(CONTEXT, WIDTH),
          "blocks": [{name: weight(*shape) for name, shape in SHAPES.items()} for _ in range(LAYERS)]}
state = {"params": params, "m": jax.tree.map(jnp.zeros_like, params), "v": jax.tree.map(jnp.zeros_like, params)}
data = np.zeros((40 * BATCH, CONTEXT + 1), np.int32)  # 4 successors per token: loss falls from log(64) to log(4).
for i in range(CONTEXT):
    data[:, i + 1] = (data[:, i] * 5 + rng.choice([1, 7, 18, 40], len(data))) % VOCAB

def loss_of(params, text):
    norm = lambda x: (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    x = params["token"][text[:, :-1]] + params["position"]
    for block in params["blocks"]:
        q, k, v = jnp.einsum("btd,cdhe->cbthe", norm(x), block["qkv"])
        x += jnp.einsum("bthe,hed->btd", jax.nn.dot_product_attention(q, k, v, is_causal=True), block["out"])
        x += jax.nn.gelu(norm(x) @ block["up"]) @ block["down"]
    return -jnp.take_along_axis(jax.nn.log_softmax(norm(x) @ params["token"].T), text[:, 1:, None], -1).mean()

def step(state, text, t):  # Adam
    loss, grads = jax.value_and_grad(loss_of)(state["params"], text)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], grads)
    update = lambda p, m, v: p - 3e-3 * m / (1 - 0.9 ** (t + 1)) / (jnp.sqrt(v / (1 - 0.99 ** (t + 1))) + 1e-8)
    return {"params": jax.tree.map(update, state["params"], m, v), "m": m, "v": v}, loss

by_name = lambda name: SPLIT.get(name.split(".")[-1])
job = dict(steps=120, batch=BATCH, mesh={"dp": 4, "tp": 2}, in_shardings=(by_name, P("dp")))
if __name__ == "__main__":
    with xlad.local(devices=8, workers=4) as cluster:
        for s in cluster.train(step, state, data, **job):
            print(f"step {s.step:3}  loss {s.loss:.4f}  {s.ms:.1f} ms")

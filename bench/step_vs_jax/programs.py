"""Writes job directories of programs that are larger than the examples, for step_vs_jax.py.

    python bench/step_vs_jax/programs.py FOLDER [NAME ...]       default: all of them

matmul     f32[2048,2048] times f32[2048,2048]
mlp        512-1024-1024-10, batch 256, SGD
gpt        4 layers of width 256, 8 sequences of 128 tokens, Adam
gpt2       GPT-2 124M: 12 layers of width 768, 50257 tokens, 1 sequence of 256 tokens, Adam
resnet18   on images of 32 x 32, batch 16, SGD with momentum
lstm       width 256, 64 steps, batch 16, SGD
attention  8 heads, 1024 tokens, width 64: causal softmax attention, forward and backward
tiny_loop  10,000 iterations on 16 numbers
ssm        a language model with 2 layers of selective scans, as in Mamba, 4 sequences of 128 tokens, Adam
graph      a graph network with 3 layers: 1,000 nodes, 8,000 edges, sums over the edges of each node, Adam
bodies     200 steps of 64 bodies that attract each other, in f64
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from xlad.export import export

rng = np.random.default_rng(0)


def normal(*shape, scale=1.0):
    return (rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)).astype(np.float32)


def cross_entropy(logits, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1))


def sgd(loss_of, rate, momentum=0.0):
    def step(state, batch):
        loss, gradient = jax.value_and_grad(loss_of)(state["params"], batch)
        if momentum == 0.0:
            return {"params": jax.tree.map(lambda p, g: p - rate * g, state["params"], gradient)}, loss
        velocity = jax.tree.map(lambda v, g: momentum * v + g, state["velocity"], gradient)
        params = jax.tree.map(lambda p, v: p - rate * v, state["params"], velocity)
        return {"params": params, "velocity": velocity}, loss

    return step


def adam(loss_of, rate=3e-4, b1=0.9, b2=0.999):
    def step(state, batch):
        loss, gradient = jax.value_and_grad(loss_of)(state["params"], batch)
        count = state["count"] + 1
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["m"], gradient)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["v"], gradient)
        c1, c2 = 1 - b1 ** count.astype(jnp.float32), 1 - b2 ** count.astype(jnp.float32)
        params = jax.tree.map(lambda p, m, v: p - rate * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), state["params"], m, v)
        return {"params": params, "m": m, "v": v, "count": count}, loss

    return step


def with_moments(params):
    zeros = lambda: jax.tree.map(np.zeros_like, params)  # noqa: E731
    return {"params": params, "m": zeros(), "v": zeros(), "count": np.int32(0)}


def matmul():
    n = 2048
    state = {"x": normal(n, n), "w": normal(n, n, scale=n ** -0.5)}

    def step(state):
        x = state["x"] @ state["w"]
        return {"x": x, "w": state["w"]}, x[0, 0]

    return step, state, None


def mlp():
    sizes = [512, 1024, 1024, 10]
    params = [{"w": normal(i, o, scale=i ** -0.5), "b": np.zeros(o, np.float32)} for i, o in zip(sizes, sizes[1:])]

    def loss_of(params, batch):
        x = batch["x"]
        for layer in params[:-1]:
            x = jax.nn.silu(x @ layer["w"] + layer["b"])
        return cross_entropy(x @ params[-1]["w"] + params[-1]["b"], batch["y"])

    data = {"x": normal(1024, 512), "y": rng.integers(0, 10, 1024).astype(np.int32)}
    return sgd(loss_of, 0.01), {"params": params}, (data, 256)


def layer_norm(x, p):
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["g"] + p["b"]


def causal_attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1]).astype(np.float32)
    length = q.shape[-2]
    mask = jnp.tril(jnp.ones((length, length), bool))
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(mask, scores, -1e30)), v)


def gpt_of(layers, width, heads, tokens, length, sequences):
    def dense(i, o):
        return {"w": normal(i, o, scale=0.02), "b": np.zeros(o, np.float32)}

    def norm():
        return {"g": np.ones(width, np.float32), "b": np.zeros(width, np.float32)}

    params = {"wte": normal(tokens, width, scale=0.02), "wpe": normal(length, width, scale=0.02), "norm": norm(),
              "blocks": [{"n1": norm(), "qkv": dense(width, 3 * width), "proj": dense(width, width), "n2": norm(),
                          "up": dense(width, 4 * width), "down": dense(4 * width, width)} for _ in range(layers)]}

    def loss_of(params, batch):
        x = params["wte"][batch["x"]] + params["wpe"]
        for p in params["blocks"]:
            h = layer_norm(x, p["n1"]) @ p["qkv"]["w"] + p["qkv"]["b"]
            q, k, v = (t.reshape(*t.shape[:2], heads, -1).transpose(0, 2, 1, 3) for t in jnp.split(h, 3, axis=-1))
            a = causal_attention(q, k, v).transpose(0, 2, 1, 3).reshape(x.shape)
            x = x + a @ p["proj"]["w"] + p["proj"]["b"]
            h = jax.nn.gelu(layer_norm(x, p["n2"]) @ p["up"]["w"] + p["up"]["b"])
            x = x + h @ p["down"]["w"] + p["down"]["b"]
        return cross_entropy(layer_norm(x, params["norm"]) @ params["wte"].T, batch["y"])

    rows = rng.integers(0, tokens, (4 * sequences, length + 1)).astype(np.int32)
    return adam(loss_of), with_moments(params), ({"x": rows[:, :-1].copy(), "y": rows[:, 1:].copy()}, sequences)


def gpt():
    return gpt_of(layers=4, width=256, heads=8, tokens=512, length=128, sequences=8)


def gpt2():
    return gpt_of(layers=12, width=768, heads=12, tokens=50257, length=256, sequences=1)


def resnet18():
    def conv(i, o, size):
        return normal(size, size, i, o, scale=(2 / (size * size * i)) ** 0.5)

    def norm(channels):
        return {"g": np.ones(channels, np.float32), "b": np.zeros(channels, np.float32)}

    params = {"stem": conv(3, 64, 3), "norm": norm(64), "blocks": [],
              "head": {"w": normal(512, 10, scale=0.05), "b": np.zeros(10, np.float32)}}
    strides, channels = [], 64
    for out, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        block = {"c1": conv(channels, out, 3), "n1": norm(out), "c2": conv(out, out, 3), "n2": norm(out)}
        if stride != 1 or channels != out:
            block["short"], block["n3"] = conv(channels, out, 1), norm(out)
        params["blocks"].append(block)
        strides.append(stride)
        channels = out

    def convolve(x, w, stride=1):
        return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def batch_norm(x, p):
        mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["g"] + p["b"]

    def loss_of(params, batch):
        x = jax.nn.relu(batch_norm(convolve(batch["x"], params["stem"]), params["norm"]))
        for p, stride in zip(params["blocks"], strides):
            h = jax.nn.relu(batch_norm(convolve(x, p["c1"], stride), p["n1"]))
            h = batch_norm(convolve(h, p["c2"]), p["n2"])
            x = jax.nn.relu(h + (batch_norm(convolve(x, p["short"], stride), p["n3"]) if "short" in p else x))
        return cross_entropy(jnp.mean(x, (1, 2)) @ params["head"]["w"] + params["head"]["b"], batch["y"])

    data = {"x": normal(64, 32, 32, 3), "y": rng.integers(0, 10, 64).astype(np.int32)}
    state = {"params": params, "velocity": jax.tree.map(np.zeros_like, params)}
    return sgd(loss_of, 0.01, 0.9), state, (data, 16)


def lstm():
    width, length = 256, 64
    params = {"x": normal(width, 4 * width, scale=width ** -0.5), "h": normal(width, 4 * width, scale=width ** -0.5),
              "b": np.zeros(4 * width, np.float32), "out": normal(width, 64, scale=width ** -0.5)}

    def loss_of(params, batch):
        def cell(carry, x):
            h, c = carry
            i, f, g, o = jnp.split(x + h @ params["h"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        x = batch["x"].transpose(1, 0, 2) @ params["x"] + params["b"]
        zero = jnp.zeros((batch["x"].shape[0], width), jnp.float32)
        _, h = jax.lax.scan(cell, (zero, zero), x)
        return cross_entropy(h @ params["out"], batch["y"].T)

    data = {"x": normal(64, length, width), "y": rng.integers(0, 64, (64, length)).astype(np.int32)}
    return sgd(loss_of, 0.01), {"params": params}, (data, 16)


def attention():
    state = {"params": {name: normal(1, 8, 1024, 64) for name in "qkv"}}

    def loss_of(params):
        return jnp.mean(jnp.square(causal_attention(params["q"], params["k"], params["v"])))

    def step(state):
        loss, gradient = jax.value_and_grad(loss_of)(state["params"])
        return {"params": jax.tree.map(lambda p, g: p - 0.1 * g, state["params"], gradient)}, loss

    return step, state, None


def tiny_loop():
    def step(state):
        x = jax.lax.fori_loop(0, 10000, lambda i, x: x * 0.999 + jnp.sin(x) * 0.001, state["x"])
        return {"x": x}, jnp.sum(x)

    return step, {"x": normal(16)}, None


def ssm():
    layers, width, inner, states, length, tokens = 2, 128, 256, 16, 128, 256

    def block():
        return {"norm": np.ones(width, np.float32), "in": normal(width, 2 * inner, scale=0.08),
                "conv": normal(4, 1, inner, scale=0.4), "x": normal(inner, 8 + 2 * states, scale=0.06),
                "dt": normal(8, inner, scale=0.3), "a": np.log(np.tile(np.arange(1, states + 1, dtype=np.float32),
                                                                      (inner, 1))),
                "out": normal(inner, width, scale=0.06)}

    def rms_norm(x, g):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * g

    def scan(u, dt, a, b, c):
        decay, added = jnp.exp(dt[..., None] * a), (dt * u)[..., None] * b[:, :, None, :]

        def update(h, row):
            h = row[0] * h + row[1]
            return h, jnp.einsum("ben,bn->be", h, row[2])

        rows = tuple(t.swapaxes(0, 1) for t in (decay, added, c))
        return jax.lax.scan(update, jnp.zeros_like(decay[:, 0]), rows)[1].swapaxes(0, 1)

    def loss_of(params, batch):
        x = params["tokens"][batch["x"]]
        for p in params["blocks"]:
            u, gate = jnp.split(rms_norm(x, p["norm"]) @ p["in"], 2, -1)
            u = jax.nn.silu(jax.lax.conv_general_dilated(u, p["conv"], (1,), [(3, 0)], feature_group_count=inner,
                                                         dimension_numbers=("NWC", "WIO", "NWC")))
            d, b, c = jnp.split(u @ p["x"], [8, 8 + states], -1)
            y = scan(u, jax.nn.softplus(d @ p["dt"]), -jnp.exp(p["a"]), b, c) + u
            x = x + (y * jax.nn.silu(gate)) @ p["out"]
        return cross_entropy(x @ params["tokens"].T, batch["y"])

    params = {"tokens": normal(tokens, width, scale=0.02), "blocks": [block() for _ in range(layers)]}
    rows = rng.integers(0, tokens, (16, length + 1)).astype(np.int32)
    return adam(loss_of), with_moments(params), ({"x": rows[:, :-1].copy(), "y": rows[:, 1:].copy()}, 4)


def graph():
    nodes, edges, width = 1000, 8000, 64

    def mlp(i, o):
        return {"a": normal(i, width, scale=i ** -0.5), "b": normal(width, o, scale=width ** -0.5),
                "norm": {"g": np.ones(o, np.float32), "b": np.zeros(o, np.float32)}}

    def apply(x, p):
        return layer_norm(jax.nn.relu(x @ p["a"]) @ p["b"], p["norm"])

    def loss_of(params, batch):
        to, source = batch["to"][0], batch["from"][0]
        n, e = apply(batch["nodes"][0], params["nodes"]), apply(batch["edges"][0], params["edges"])
        degree = jnp.maximum(jax.ops.segment_sum(jnp.ones(edges), to, nodes), 1)
        for p in params["layers"]:
            message = apply(jnp.concatenate([e, n[source], n[to]], -1), p["edges"])
            received = jax.ops.segment_sum(message, to, nodes) / degree[:, None]
            n, e = n + apply(jnp.concatenate([n, received], -1), p["nodes"]), e + message
        return jnp.mean(jnp.square(jnp.mean(n, 0) @ params["out"] - batch["y"][0]))

    params = {"nodes": mlp(16, width), "edges": mlp(4, width), "out": normal(width, 8, scale=0.1),
              "layers": [{"edges": mlp(3 * width, width), "nodes": mlp(2 * width, width)} for _ in range(3)]}
    data = {"nodes": normal(4, nodes, 16), "edges": normal(4, edges, 4), "y": normal(4, 8),
            "to": rng.integers(0, nodes, (4, edges)).astype(np.int32),
            "from": rng.integers(0, nodes, (4, edges)).astype(np.int32)}
    return adam(loss_of), with_moments(params), (data, 1)


def bodies():
    count = 64

    def acceleration(position):
        d = position[None] - position[:, None]
        return jnp.sum(d * (jnp.sum(d * d, -1, keepdims=True) + 1e-2) ** -1.5, 1) / count

    def step(state):
        def leapfrog(_, at):
            v = at[1] + 5e-4 * acceleration(at[0])
            x = at[0] + 1e-3 * v
            return x, v + 5e-4 * acceleration(x)

        x, v = jax.lax.fori_loop(0, 200, leapfrog, (state["x"], state["v"]))
        return {"x": x, "v": v}, jnp.sum(v * v).astype(jnp.float32)

    return step, {"x": rng.standard_normal((count, 3)), "v": 0.3 * rng.standard_normal((count, 3))}, None


PROGRAMS = [matmul, mlp, gpt, gpt2, resnet18, lstm, attention, tiny_loop, ssm, graph, bodies]


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    known = {program.__name__: program for program in PROGRAMS}
    for name in sys.argv[2:] or known:
        if name not in known:
            sys.exit(f"programs.py: found {name!r}, expected one of {', '.join(known)}")
        jax.config.update("jax_enable_x64", name == "bodies")
        step, state, data = known[name]()
        arrays, batch = data if data else (None, None)
        print(export(step, state, arrays, batch=batch, steps=10, to=pathlib.Path(sys.argv[1]) / name, name=name))


if __name__ == "__main__":
    main()

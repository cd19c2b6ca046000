"""Training programs as users of other libraries write them: (step, state, data) of each, made by a function."""

from __future__ import annotations

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

rng = np.random.default_rng(0)
IMAGES = {"x": rng.normal(size=(48, 8, 8, 3)).astype(np.float32), "y": rng.integers(0, 4, 48).astype(np.int32)}
TOKENS = {"x": rng.integers(0, 11, (48, 12)).astype(np.int32)}
ROWS = {"x": rng.normal(size=(48, 8)).astype(np.float32), "y": rng.normal(size=(48, 1)).astype(np.float32)}


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def squared(found, batch):
    return jnp.mean((found - batch["y"]) ** 2)


def mlp(params, x):
    return jnp.tanh(x @ params["up"]) @ params["down"]


def weights(rows=8, hidden=16, columns=1):
    return {"up": rng.normal(0, 0.3, (rows, hidden)).astype(np.float32),
            "down": rng.normal(0, 0.3, (hidden, columns)).astype(np.float32)}


def linen_with_statistics_and_dropout():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.BatchNorm(use_running_average=False)(nn.Conv(8, (3, 3), strides=2)(x)))
            x = nn.GroupNorm(4)(nn.ConvTranspose(8, (3, 3), strides=(2, 2))(x)).mean((1, 2))
            return nn.Dense(4)(nn.Dropout(0.2, deterministic=False)(x))

    net, optimizer = Net(), optax.adamw(1e-2, mask=lambda tree: jax.tree.map(lambda leaf: leaf.ndim > 1, tree))
    variables = net.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, IMAGES["x"][:2])
    params = variables.pop("params")

    def step(state, batch):
        key, use = jax.random.split(state["key"])

        def loss_of(params):
            found, new = net.apply({"params": params, **state["rest"]}, batch["x"], rngs={"dropout": use},
                                   mutable=["batch_stats"])
            return cross_entropy(found, batch["y"]), new

        (loss, rest), grads = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
        updates, opt = optimizer.update(grads, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "rest": rest, "opt": opt, "key": key}, loss

    return step, {"params": params, "rest": variables, "opt": optimizer.init(params), "key": jax.random.key(2)}, IMAGES


def nnx_attention_with_lora():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(11, 16, rngs=rngs)
            self.attend = nnx.MultiHeadAttention(4, 16, decode=False, rngs=rngs)
            self.drop = nnx.Dropout(0.1, rngs=rngs)
            self.out = nnx.LoRALinear(16, 11, lora_rank=3, rngs=rngs)

        def __call__(self, tokens):
            x = self.embed(tokens)
            return self.out(self.drop(x + self.attend(x, mask=nnx.make_causal_mask(tokens))))

    model = Net(nnx.Rngs(0, dropout=1))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.LoRAParam)
    definition, state = nnx.split((model, optimizer))

    def step(state, batch):
        model, optimizer = nnx.merge(definition, state)
        loss_of = lambda model: cross_entropy(model(batch["x"])[:, :-1], batch["x"][:, 1:])
        loss, grads = nnx.value_and_grad(loss_of, argnums=nnx.DiffState(0, nnx.LoRAParam))(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), loss

    return step, state, TOKENS


def equinox_with_state():
    class Net(eqx.Module):
        first: eqx.nn.Linear
        norm: eqx.nn.BatchNorm
        last: eqx.nn.Linear

        def __init__(self, key):
            keys = jax.random.split(key)
            self.first, self.last = eqx.nn.Linear(8, 16, key=keys[0]), eqx.nn.Linear(16, 1, key=keys[1])
            self.norm = eqx.nn.BatchNorm(16, axis_name="rows", mode="batch")

        def __call__(self, x, state):
            x, state = self.norm(self.first(x), state)
            return self.last(jax.nn.relu(x)), state

    model, running = eqx.nn.make_with_state(Net)(jax.random.key(0))
    arrays, rest = eqx.partition((model, running), eqx.is_array)
    optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=optax.cosine_decay_schedule(1e-2, 20))

    @eqx.filter_jit
    def update(arrays, opt, batch):
        def loss_of(parts):
            model, running = eqx.combine((parts, arrays[1]), rest)
            found, running = jax.vmap(model, axis_name="rows", in_axes=(0, None), out_axes=(0, None))(batch["x"], running)
            return squared(found, batch), running

        (loss, running), grads = eqx.filter_value_and_grad(loss_of, has_aux=True)(arrays[0])
        updates, opt = optimizer.update(grads, opt)
        return (eqx.apply_updates(arrays[0], updates), eqx.filter(running, eqx.is_array)), opt, loss

    def step(state, batch):
        arrays, opt, loss = update(state["arrays"], state["opt"], batch)
        return {"arrays": arrays, "opt": opt}, loss

    return step, {"arrays": arrays, "opt": optimizer.init(arrays[0])}, ROWS


def haiku_with_statistics():
    def forward(x):
        encoded = hk.nets.MLP([16, 6])(hk.dropout(hk.next_rng_key(), 0.1, x))
        quantized = hk.nets.VectorQuantizerEMA(6, 8, 0.25, 0.99)(encoded, True)
        return hk.nets.MLP([16, 8])(quantized["quantize"]), quantized["loss"]

    net, optimizer = hk.transform_with_state(forward), optax.MultiSteps(optax.lion(1e-3), 2)
    params, running = net.init(jax.random.key(0), ROWS["x"][:4])

    def step(state, batch):
        key, use = jax.random.split(state["key"])

        def loss_of(params):
            (found, extra), running = net.apply(params, state["running"], use, batch["x"])
            return jnp.mean((found - batch["x"]) ** 2) + extra, running

        (loss, running), grads = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
        updates, opt = optimizer.update(grads, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "running": running, "opt": opt, "key": key}, loss

    return step, {"params": params, "running": running, "opt": optimizer.init(params), "key": jax.random.key(1)}, ROWS


def optax_with_line_search():
    params, optimizer = weights(), optax.lbfgs(linesearch=optax.scale_by_backtracking_linesearch(8))

    def step(state, batch):
        loss_of = lambda params: squared(mlp(params, batch["x"]), batch)
        loss, grads = jax.value_and_grad(loss_of)(state["params"])
        updates, opt = optimizer.update(grads, state["opt"], state["params"], value=loss, grad=grads, value_fn=loss_of)
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, loss

    return step, {"params": params, "opt": optimizer.init(params)}, ROWS


def two_players_with_a_gradient_penalty():
    players = {"make": weights(4, 16, 8), "judge": weights()}
    optimizer = optax.multi_transform({"make": optax.adam(1e-2), "judge": optax.rmsprop(1e-2)},
                                      {"make": "make", "judge": "judge"})

    def step(state, batch):
        noise = jax.random.normal(jax.random.fold_in(jax.random.key(0), state["t"]), (len(batch["x"]), 4))

        def loss_of(make, judge):
            slopes = jax.vmap(jax.grad(lambda x: mlp(judge, x)[0]))(batch["x"])
            penalty = jnp.mean((jnp.linalg.norm(slopes, axis=1) - 1) ** 2)
            return mlp(judge, mlp(make, noise)).mean() - mlp(judge, batch["x"]).mean() + penalty

        loss, (up, down) = jax.value_and_grad(loss_of, argnums=(0, 1))(state["make"], state["judge"])
        grads = {"make": jax.tree.map(jnp.negative, up), "judge": down}
        now = {"make": state["make"], "judge": state["judge"]}
        updates, opt = optimizer.update(grads, state["opt"], now)
        return {**optax.apply_updates(now, updates), "opt": opt, "t": state["t"] + 1}, loss

    return step, {**players, "opt": optimizer.init(players), "t": np.int32(0)}, ROWS


def gradients_of_each_row():
    def step(params, batch):
        loss_of = lambda params, x, y: jnp.mean((mlp(params, x) - y) ** 2)
        each = jax.vmap(jax.grad(loss_of), (None, 0, 0))(params, batch["x"], batch["y"])
        norms = jnp.sqrt(sum(jnp.sum(leaf ** 2, (1, 2)) for leaf in jax.tree.leaves(each)))
        mean = jax.tree.map(lambda leaf: (leaf / jnp.maximum(1, norms)[:, None, None]).mean(0), each)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, mean), squared(mlp(params, batch["x"]), batch)

    return step, weights(), ROWS


PROGRAMS = [linen_with_statistics_and_dropout, nnx_attention_with_lora, equinox_with_state, haiku_with_statistics,
            optax_with_line_search, two_players_with_a_gradient_penalty, gradients_of_each_row]

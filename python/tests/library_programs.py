"""Training programs as users of other libraries write them. Each function returns (step, state, data) of a program."""

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
            rows = jax.vmap(model, axis_name="rows", in_axes=(0, None), out_axes=(0, None))
            found, running = rows(batch["x"], running)
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


def numpyro_variational():
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([8, 1]).to_event(2))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal((x @ w)[:, 0], noise + 0.1), obs=y[:, 0])

    svi = SVI(model, autoguide.AutoNormal(model), numpyro.optim.Adam(1e-2), Trace_ELBO(num_particles=2))
    state = svi.init(jax.random.key(0), ROWS["x"][:4], ROWS["y"][:4])

    def step(state, batch):
        return svi.update(state, batch["x"], batch["y"])

    return step, state, ROWS


def numpyro_hamiltonian():
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer.util import initialize_model, potential_energy

    def model(x, y):
        w = numpyro.sample("w", dist.StudentT(4.0, 0, 1).expand([8, 1]).to_event(2))
        numpyro.sample("y", dist.Normal(x @ w, 0.5).to_event(2), obs=y)

    start = initialize_model(jax.random.key(0), model, model_args=(ROWS["x"][:4], ROWS["y"][:4])).param_info.z

    def step(state, batch):
        energy = lambda z: potential_energy(model, (batch["x"], batch["y"]), {}, z)
        key, kick, accept = jax.random.split(state["key"], 3)
        z = state["z"]
        momentum = {"w": jax.random.normal(kick, z["w"].shape)}

        def leap(_, now):
            z, momentum = now
            momentum = jax.tree.map(lambda p, g: p - 0.005 * g, momentum, jax.grad(energy)(z))
            z = jax.tree.map(lambda x, p: x + 0.01 * p, z, momentum)
            return z, jax.tree.map(lambda p, g: p - 0.005 * g, momentum, jax.grad(energy)(z))

        proposed, final = jax.lax.fori_loop(0, 5, leap, (z, momentum))
        kinetic = lambda momentum: 0.5 * jnp.sum(momentum["w"] ** 2)
        change = energy(z) + kinetic(momentum) - energy(proposed) - kinetic(final)
        taken = jnp.log(jax.random.uniform(accept)) < change
        z = jax.tree.map(lambda new, old: jnp.where(taken, new, old), proposed, z)
        return {"z": z, "key": key}, energy(z)

    return step, {"z": start, "key": jax.random.key(1)}, ROWS


def diffrax_neural_ode():
    import diffrax

    params, optimizer = weights(8, 16, 8), optax.adam(1e-2)

    def step(state, batch):
        def loss_of(params):
            term = diffrax.ODETerm(lambda t, y, params: mlp(params, y))
            solved = diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, batch["x"], params, max_steps=32,
                                         saveat=diffrax.SaveAt(ts=jnp.array([0.5, 1.0])), throw=False,
                                         stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-4))
            return squared(solved.ys[-1].sum(1, keepdims=True), batch)

        loss, grads = jax.value_and_grad(loss_of)(state["params"])
        updates, opt = optimizer.update(grads, state["opt"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, loss

    return step, {"params": params, "opt": optimizer.init(params)}, ROWS


def diffrax_stochastic():
    import diffrax

    params, optimizer = weights(8, 16, 8), optax.sgd(1e-2)

    def step(state, batch):
        key, use = jax.random.split(state["key"])

        def loss_of(params):
            brownian = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-2, (), use)
            terms = diffrax.MultiTerm(diffrax.ODETerm(lambda t, y, params: mlp(params, y)),
                                      diffrax.ControlTerm(lambda t, y, params: 0.1 * y, brownian))
            solved = diffrax.diffeqsolve(terms, diffrax.EulerHeun(), 0.0, 1.0, 0.25, batch["x"], params, max_steps=8,
                                         throw=False)
            return squared(solved.ys[-1].sum(1, keepdims=True), batch)

        loss, grads = jax.value_and_grad(loss_of)(state["params"])
        updates, opt = optimizer.update(grads, state["opt"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt, "key": key}, loss

    return step, {"params": params, "opt": optimizer.init(params), "key": jax.random.key(3)}, ROWS


def transformers_step(model, optimizer):
    """Trains a Flax model of transformers that returns logits for each token."""
    def step(state, batch):
        key, use = jax.random.split(state["key"])

        def loss_of(params):
            found = model(batch["x"], params=params, dropout_rng=use, train=True).logits
            return cross_entropy(found[:, :-1], batch["x"][:, 1:])

        loss, grads = jax.value_and_grad(loss_of)(state["params"])
        updates, opt = optimizer.update(grads, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt, "key": key}, loss

    state = {"params": model.params, "opt": optimizer.init(model.params), "key": jax.random.key(5)}
    return step, state, TOKENS


def transformers_gpt2():
    from transformers import FlaxGPT2LMHeadModel, GPT2Config

    config = GPT2Config(vocab_size=11, n_positions=16, n_embd=16, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    return transformers_step(FlaxGPT2LMHeadModel(config, seed=0, input_shape=(1, 12)), optax.adamw(1e-2))


def transformers_bert():
    from transformers import BertConfig, FlaxBertForMaskedLM

    config = BertConfig(vocab_size=11, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
                        max_position_embeddings=16)
    return transformers_step(FlaxBertForMaskedLM(config, seed=0, input_shape=(1, 12)), optax.adafactor(1e-2))


def transformers_llama():
    from transformers import FlaxLlamaForCausalLM, LlamaConfig

    config = LlamaConfig(vocab_size=11, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16)
    return transformers_step(FlaxLlamaForCausalLM(config, seed=0, input_shape=(1, 12)), optax.adam(1e-2))


PROGRAMS = [linen_with_statistics_and_dropout, nnx_attention_with_lora, equinox_with_state, haiku_with_statistics,
            optax_with_line_search, two_players_with_a_gradient_penalty, gradients_of_each_row]
# The name of each of these programs begins with the library that it needs, which scripts/setup.sh does not install.
MORE_PROGRAMS = [numpyro_variational, numpyro_hamiltonian, diffrax_neural_ode, diffrax_stochastic, transformers_gpt2,
                 transformers_bert, transformers_llama]

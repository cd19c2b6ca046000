"""Training steps of public language models, exported as HLO without weights, for `xlad simulate`.

  python examples/models/transformer.py llama3-70b --mesh dp=1,fsdp=256,tp=1 --batch 1280 --length 8192 -o step.hlo.pb
  xlad simulate step.hlo.pb --topology v6e-16x16

The step is like those of MaxText: bf16 computation on f32 weights, a scan over the layers, each of which is computed
again in the backward pass, and Adam. The batch is split over dp and fsdp, weights over fsdp, heads and inner dimensions
over tp. All arrays are abstract, so that a model of any size takes seconds.
"""
import argparse
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

# Vocabulary, width, inner width, layers, heads, heads of keys and values, experts (0: dense) and experts of a token.
# Sources: the papers "Llama 2" (2023), "The Llama 3 Herd of Models" (2024) and "Mixtral of Experts" (2024), and the
# configurations that were published with the weights.
MODELS = {
    "llama2-70b": (32000, 8192, 28672, 80, 64, 8, 0, 0),
    "llama3-8b": (128256, 4096, 14336, 32, 32, 8, 0, 0),
    "llama3-70b": (128256, 8192, 28672, 80, 64, 8, 0, 0),
    "llama3-405b": (128256, 16384, 53248, 126, 128, 8, 0, 0),
    "mixtral-8x7b": (32000, 4096, 14336, 32, 32, 8, 8, 2),
    "mixtral-8x22b": (32768, 6144, 16384, 56, 48, 8, 8, 2),
}


PARTS = 4  # Parts of a sequence, whose queries need the keys of the parts before.


class Options(NamedTuple):
    save: tuple[str, ...]
    shards: int  # The devices among which the heads are split.
    block: int   # The queries of a block of attention.


def shapes_of(model):
    """Returns the shape and the split of each weight; those of layers are stacked."""
    vocabulary, width, inner, layers, heads, key_heads, experts, _ = MODELS[model]
    head = width // heads
    weights = {
        "token": ((vocabulary, width), P("tp", "fsdp")),
        "head": ((width, vocabulary), P("fsdp", "tp")),
        "norm": ((width,), P()),
        "q": ((layers, width, heads, head), P(None, "fsdp", "tp")),
        "k": ((layers, width, key_heads, head), P(None, "fsdp", "tp")),
        "v": ((layers, width, key_heads, head), P(None, "fsdp", "tp")),
        "out": ((layers, heads, head, width), P(None, "tp", None, "fsdp")),
        "norm1": ((layers, width), P()),
        "norm2": ((layers, width), P()),
    }
    expert = (experts,) if experts else ()
    free = (None,) * len(expert)
    weights |= {name: ((layers, *expert, width, inner), P(None, *free, "fsdp", "tp")) for name in ("gate", "up")}
    weights["down"] = ((layers, *expert, inner, width), P(None, *free, "tp", "fsdp"))
    if experts:
        weights["router"] = ((layers, width, experts), P(None, "fsdp"))
    return weights


def normalize(x, scale):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def rotate(x):
    """Rotary positions of [batch, length, heads, head]."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] / 10000 ** (jnp.arange(half) / half)
    sin, cos = jnp.sin(angles)[None, :, None].astype(x.dtype), jnp.cos(angles)[None, :, None].astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def attention_block(q, k, v, first):
    """Queries [batch, block, shard, head], from position `first` on, and keys [batch, length, shard, head]."""
    scores = jnp.einsum("bqse,bkse->bsqk", q, k).astype(jnp.float32)
    after = jnp.arange(k.shape[1])[None] > first + jnp.arange(q.shape[1])[:, None]
    scores = jnp.where(after, -1e30, scores)
    weights = jnp.exp(scores - jax.lax.stop_gradient(scores.max(-1, keepdims=True)))
    total = weights.sum(-1).transpose(0, 2, 1)[..., None]
    return (jnp.einsum("bsqk,bkse->bqse", weights.astype(q.dtype), v) / total).astype(q.dtype)


def attention(x, w, shards, block):
    """Attention in blocks of one head on each shard, which are computed again in the backward pass, so that scores are
    small enough to stay on the chip. Each part of the queries reads the keys up to its end."""
    q, k, v = (checkpoint_name(jnp.einsum("btd,dhe->bthe", x, w[name]), name) for name in "qkv")
    (batch, length, heads, head), key_heads = q.shape, k.shape[2]
    q, k = rotate(q) * head ** -0.5, rotate(k)
    groups, parts = heads // key_heads, min(PARTS, length // block)
    blocks = length // block // parts
    # Key heads in front; each has `groups` heads, and each of these `blocks` blocks of queries in each part.
    split = lambda t: t.reshape(batch, length, shards, key_heads // shards, head).transpose(3, 0, 1, 2, 4)
    k, v = split(k), split(v)
    q = q.reshape(batch, parts, blocks, block, shards, key_heads // shards, groups, head)
    q = q.transpose(1, 5, 6, 2, 0, 3, 4, 7).reshape(parts, key_heads // shards, -1, batch, block, shards, head)
    results = []
    for part in range(parts):
        end = (part + 1) * blocks * block
        firsts = jnp.tile(part * blocks * block + jnp.arange(blocks) * block, groups)

        def key_head(_, of_head):
            q, k, v = of_head
            one = jax.checkpoint(lambda _, at: (None, attention_block(at[0], k, v, at[1])), prevent_cse=False)
            return None, jax.lax.scan(one, None, (q, firsts))[1]

        results.append(jax.lax.scan(key_head, None, (q[part], k[:, :, :end], v[:, :, :end]))[1])
    y = jnp.stack(results).reshape(parts, key_heads // shards, groups, blocks, batch, block, shards, head)
    y = y.transpose(4, 0, 3, 5, 6, 1, 2, 7).reshape(batch, length, heads, head)
    return jnp.einsum("bthe,hed->btd", checkpoint_name(y, "attention"), w["out"])


def feed_forward(x, w, experts, chosen):
    if not experts:
        return jnp.einsum("btf,fd->btd", jax.nn.silu(jnp.einsum("btd,df->btf", x, w["gate"])) *
                          jnp.einsum("btd,df->btf", x, w["up"]), w["down"])
    # Every expert takes an equal part of the tokens of a sequence: `chosen` of `experts` of them, those with the
    # highest scores.
    scores = jax.nn.softmax(jnp.einsum("btd,de->bte", x, w["router"]).astype(jnp.float32))
    capacity = x.shape[1] * chosen // experts
    gates, places = jax.lax.top_k(scores.transpose(0, 2, 1), capacity)
    tokens = jax.vmap(lambda rows, at: rows[at])(x, places)  # [batch, expert, capacity, width]
    inner = jax.nn.silu(jnp.einsum("becd,edf->becf", tokens, w["gate"])) * jnp.einsum("becd,edf->becf", tokens, w["up"])
    result = jnp.einsum("becf,efd->becd", inner, w["down"]) * gates[..., None].astype(x.dtype)
    return jax.vmap(lambda rows, at: jnp.zeros_like(x[0]).at[at].add(rows))(result, places)


def loss_of(params, text, model, options):
    experts, chosen = MODELS[model][-2:]
    bf16 = {name: weight.astype(jnp.bfloat16) for name, weight in params.items()}
    stacked = {name: weight for name, weight in bf16.items() if name not in ("token", "head", "norm")}
    keep = lambda x: jax.lax.with_sharding_constraint(x, P(("dp", "fsdp")))

    @functools.partial(jax.checkpoint, prevent_cse=False,
                       policy=jax.checkpoint_policies.save_only_these_names(*options.save))
    def layer(x, w):
        x = keep(x + attention(normalize(x, w["norm1"]), w, options.shards, options.block))
        return keep(x + feed_forward(normalize(x, w["norm2"]), w, experts, chosen)), None

    x, _ = jax.lax.scan(layer, keep(bf16["token"][text[:, :-1]]), stacked)
    logits = (normalize(x, bf16["norm"]) @ bf16["head"]).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), text[:, 1:, None], -1).mean()


def step(model, options, state, text):
    """Adam."""
    params, m, v = state
    loss, grads = jax.value_and_grad(loss_of)(params, text, model, options)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, v, grads)
    params = jax.tree.map(lambda p, m, v: p - 3e-4 * m / (jnp.sqrt(v) + 1e-8), params, m, v)
    return (params, m, v), loss


def export(model, mesh, batch, length, save=()):
    """Returns the HLO proto of a training step on sequences of `length` tokens, `batch` of them in all. `save` has the
    names of what the forward pass keeps for the backward pass besides the inputs of layers: q, k, v, attention."""
    shards = mesh["tp"]
    # Scores of f32 of at most 32 MiB on a device.
    block = max(8, min(length, 2 ** 23 // (length * max(1, batch // (mesh["dp"] * mesh["fsdp"])))))
    options = Options(tuple(save), shards, 1 << (block.bit_length() - 1))
    mesh = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    shapes = shapes_of(model)
    weights = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, (shape, _) in shapes.items()}
    splits = {name: NamedSharding(mesh, split) for name, (_, split) in shapes.items()}
    text = jax.ShapeDtypeStruct((batch, length + 1), jnp.int32)
    with jax.sharding.use_abstract_mesh(mesh):
        jitted = jax.jit(functools.partial(step, model, options), donate_argnums=0, keep_unused=True,
                         in_shardings=((splits,) * 3, NamedSharding(mesh, P(("dp", "fsdp")))),
                         out_shardings=((splits,) * 3, NamedSharding(mesh, P())))
        traced = jitted.trace((weights,) * 3, text)
        return traced.lower(lowering_platforms=("cpu",)).compiler_ir("hlo").as_serialized_hlo_module_proto()


def parse_mesh(text):
    return {name: int(size) for name, size in (axis.split("=") for axis in text.split(","))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--mesh", type=parse_mesh, default="dp=1,fsdp=8,tp=1",
                        help="sizes of the axes dp, fsdp and tp")
    parser.add_argument("--batch", type=int, required=True, help="sequences of one step, on all devices together")
    parser.add_argument("--length", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--save", default="", help="what is kept for the backward pass: q,k,v,attention")
    parser.add_argument("-o", dest="output", required=True, help="output file (.hlo.pb)")
    arguments = parser.parse_args()
    proto = export(arguments.model, arguments.mesh, arguments.batch, arguments.length,
                   [name for name in arguments.save.split(",") if name])
    with open(arguments.output, "wb") as file:
        file.write(proto)


if __name__ == "__main__":
    main()

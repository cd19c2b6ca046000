"""Training steps of public language models, exported as HLO without weights, for `xlad simulate`.

  python examples/models/transformer.py llama3-70b --mesh dp=1,fsdp=256,tp=1 --batch 1280 --length 8192 -o step.hlo.pb
  xlad simulate step.hlo.pb --topology v6e-16x16

The step is like those of MaxText: bf16 computation on f32 weights, Adam, and a scan over the layers, which are
recomputed in the backward pass. The batch is split over dp, fsdp and ep. Weights are split over fsdp, and also over ep:
the weights of experts by expert, all others in the same dimension as over fsdp. Heads, inner dimensions and, if its
size is a multiple of tp, the vocabulary are split over tp. All arrays are abstract, so exporting a model of any size
takes seconds.
"""
import argparse
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P



class Model(NamedTuple):
    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    head: int
    experts: int = 0  # If 0, the model is dense.
    chosen: int = 0   # The number of experts per token.
    parallel: bool = False  # Attention and the feed-forward layer have the same input.


# Sources: the papers "Llama 2" (2023), "The Llama 3 Herd of Models" (2024), "Mixtral of Experts" (2024) and "PaLM"
# (2022), and the configurations that were published with the weights.
MODELS = {
    "llama2-70b": Model(32000, 8192, 28672, 80, 64, 8, 128),
    "llama3-8b": Model(128256, 4096, 14336, 32, 32, 8, 128),
    "llama3-70b": Model(128256, 8192, 28672, 80, 64, 8, 128),
    "llama3-405b": Model(128256, 16384, 53248, 126, 128, 8, 128),
    "mixtral-8x7b": Model(32000, 4096, 14336, 32, 32, 8, 128, 8, 2),
    "mixtral-8x22b": Model(32768, 6144, 16384, 56, 48, 8, 128, 8, 2),
    "palm-540b": Model(256000, 18432, 73728, 118, 48, 1, 256, parallel=True),
}

PARTS = 4  # The parts of a sequence. The queries of a part need the keys of their own part and of earlier parts.


class Options(NamedTuple):
    save: tuple[str, ...]
    batch: tuple[str, ...]  # The axes of the mesh over which the batch is split.
    shards: int             # The number of devices over which the heads are split.
    data: int               # The number of devices over which the batch is split.
    block: int              # The number of queries in a block of attention.
    split_experts: bool     # Whether experts are split over ep.
    capacity: float         # If 0, experts take equal parts of the tokens.


def shapes_of(model, mesh):
    """Returns the shape and the split of each weight. Weights of layers are stacked. `mesh` has the sizes of axes."""
    m = MODELS[model]
    fsdp = tuple(axis for axis in ("fsdp", "ep") if axis in mesh)
    keys = "tp" if m.key_heads > 1 else None  # A single key head is needed on every device.
    words = "tp" if m.vocabulary % mesh["tp"] == 0 else None
    weights = {
        "token": ((m.vocabulary, m.width), P(words, fsdp)),
        "head": ((m.width, m.vocabulary), P(fsdp, words)),
        "norm": ((m.width,), P()),
        "q": ((m.layers, m.width, m.heads, m.head), P(None, fsdp, "tp")),
        "k": ((m.layers, m.width, m.key_heads, m.head), P(None, fsdp, keys)),
        "v": ((m.layers, m.width, m.key_heads, m.head), P(None, fsdp, keys)),
        "out": ((m.layers, m.heads, m.head, m.width), P(None, "tp", None, fsdp)),
        "norm1": ((m.layers, m.width), P()),
        "norm2": ((m.layers, m.width), P()),
    }
    expert = (m.experts,) if m.experts else ()
    split = (("ep",) if "ep" in mesh else (None,)) if m.experts else ()
    inside = "fsdp" if m.experts else fsdp
    weights |= {name: ((m.layers, *expert, m.width, m.inner), P(None, *split, inside, "tp")) for name in ("gate", "up")}
    weights["down"] = ((m.layers, *expert, m.inner, m.width), P(None, *split, "tp", inside))
    if m.experts:
        weights["router"] = ((m.layers, m.width, m.experts), P(None, fsdp))
    return weights


def normalize(x, scale):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def rotate(x):
    """Applies rotary position embeddings to an array [batch, length, heads, head]."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] / 10000 ** (jnp.arange(half) / half)
    sin, cos = jnp.sin(angles)[None, :, None].astype(x.dtype), jnp.cos(angles)[None, :, None].astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def attention_block(q, k, v, first):
    """Attention of queries [batch, block, shard, head], from position `first`, to keys [batch, length, shard, head]."""
    scores = jnp.einsum("bqse,bkse->bsqk", q, k).astype(jnp.float32)
    after = jnp.arange(k.shape[1])[None] > first + jnp.arange(q.shape[1])[:, None]
    scores = jnp.where(after, -1e30, scores)
    weights = jnp.exp(scores - jax.lax.stop_gradient(scores.max(-1, keepdims=True)))
    total = weights.sum(-1).transpose(0, 2, 1)[..., None]
    return (jnp.einsum("bsqk,bkse->bqse", weights.astype(q.dtype), v) / total).astype(q.dtype)


def attention(x, w, options):
    """Attention in blocks of queries. A block is of one head and one sequence on each device, so its scores are small
    enough to stay on the chip. Blocks are recomputed in the backward pass. Each part of the queries reads the keys up
    to the end of the part."""
    q, k, v = (checkpoint_name(jnp.einsum("btd,dhe->bthe", x, w[name]), name) for name in "qkv")
    shards, data, block = options.shards, options.data, options.block
    if k.shape[2] < shards:  # Repeats the keys, so that each shard has the keys of its heads.
        k, v = (jnp.repeat(t, shards // t.shape[2], 2) for t in (k, v))
    (batch, length, heads, head), key_heads = q.shape, k.shape[2]
    q, k = rotate(q) * head ** -0.5, rotate(k)
    local, near, groups, parts = batch // data, key_heads // shards, heads // key_heads, min(PARTS, length // block)
    blocks = length // block // parts
    # The dimensions of the key heads and sequences of a device are moved to the front. Each key head has `groups` query
    # heads, with `blocks` blocks of queries in each part.
    split = lambda t: t.reshape(data, local, length, shards, near, head).transpose(4, 1, 0, 2, 3, 5).reshape(
        near * local, data, length, shards, head)
    k, v = split(k), split(v)
    q = q.reshape(data, local, parts, blocks, block, shards, near, groups, head).transpose(2, 6, 1, 7, 3, 0, 4, 5, 8)
    q = q.reshape(parts, near * local, -1, data, block, shards, head)
    results = []
    for part in range(parts):
        end = (part + 1) * blocks * block
        firsts = jnp.tile(part * blocks * block + jnp.arange(blocks) * block, groups)

        def key_head(_, of_head):
            q, k, v = of_head
            one = jax.checkpoint(lambda _, at: (None, attention_block(at[0], k, v, at[1])), prevent_cse=False)
            return None, jax.lax.scan(one, None, (q, firsts))[1]

        results.append(jax.lax.scan(key_head, None, (q[part], k[:, :, :end], v[:, :, :end]))[1])
    y = jnp.stack(results).reshape(parts, near, local, groups, blocks, data, block, shards, head)
    y = y.transpose(5, 2, 0, 4, 6, 7, 1, 3, 8).reshape(batch, length, heads, head)
    return checkpoint_name(jnp.einsum("bthe,hed->btd", checkpoint_name(y, "attention"), w["out"]), "out")


def experts_by_gathers(x, scores, chosen, compute):
    """Each expert takes the tokens of a sequence whose scores for this expert are highest. All experts take the same
    number of tokens. On average, a token is taken by `chosen` experts."""
    capacity = x.shape[1] * chosen // scores.shape[-1]
    gates, places = jax.lax.top_k(scores.transpose(0, 2, 1), capacity)
    tokens = jax.vmap(lambda rows, at: rows[at])(x, places)  # [batch, expert, capacity, width]
    result = compute(tokens) * gates[..., None].astype(x.dtype)
    return jax.vmap(lambda rows, at: jnp.zeros_like(x[0]).at[at].add(rows))(result, places)


def experts_by_products(x, scores, chosen, compute, options):
    """Moves tokens to their experts and back by products with one-hot matrices. In each sequence an expert has
    `capacity` times its equal share of places; tokens without a place are dropped."""
    experts = scores.shape[-1]
    places = int(x.shape[1] * chosen // experts * options.capacity)
    gates, at = jax.lax.top_k(scores, chosen)
    one_hot = jax.nn.one_hot(at, experts, dtype=jnp.float32)  # [batch, token, choice, expert]
    mask, gates = one_hot.sum(2), (one_hot * gates[..., None]).sum(2)
    place = (jnp.cumsum(mask, 1) * mask).astype(jnp.int32) - 1
    send = jax.nn.one_hot(place, places, dtype=x.dtype)  # [batch, token, expert, place]
    receive = send * gates[..., None].astype(x.dtype)
    experts_axis = "ep" if options.split_experts else None
    rest = tuple(axis for axis in options.batch if axis != experts_axis)
    tokens = jnp.einsum("btd,btec->becd", x, send)
    tokens = jax.lax.with_sharding_constraint(tokens, P(rest, experts_axis))
    result = jax.lax.with_sharding_constraint(compute(tokens), P(options.batch))
    return jnp.einsum("becd,btec->btd", result, receive)


def feed_forward(x, w, model, options):
    if not model.experts:
        inner = jax.nn.silu(jnp.einsum("btd,df->btf", x, w["gate"])) * jnp.einsum("btd,df->btf", x, w["up"])
        return checkpoint_name(jnp.einsum("btf,fd->btd", inner, w["down"]), "down")

    def compute(tokens):
        inner = jax.nn.silu(jnp.einsum("becd,edf->becf", tokens, w["gate"]))
        inner *= jnp.einsum("becd,edf->becf", tokens, w["up"])
        return checkpoint_name(jnp.einsum("becf,efd->becd", inner, w["down"]), "down")

    scores = jax.nn.softmax(jnp.einsum("btd,de->bte", x, w["router"]).astype(jnp.float32))
    if options.capacity == 0:
        return experts_by_gathers(x, scores, model.chosen, compute)
    return experts_by_products(x, scores, model.chosen, compute, options)


def loss_of(params, text, model, options):
    model = MODELS[model]
    bf16 = {name: weight.astype(jnp.bfloat16) for name, weight in params.items()}
    stacked = {name: weight for name, weight in bf16.items() if name not in ("token", "head", "norm")}
    keep = lambda x: jax.lax.with_sharding_constraint(x, P(options.batch))

    @functools.partial(jax.checkpoint, prevent_cse=False,
                       policy=jax.checkpoint_policies.save_only_these_names(*options.save))
    def layer(x, w):
        y = normalize(x, w["norm1"])
        attended = attention(y, w, options)
        if model.parallel:
            return keep(x + attended + feed_forward(y, w, model, options)), None
        x = keep(x + attended)
        return keep(x + feed_forward(normalize(x, w["norm2"]), w, model, options)), None

    x, _ = jax.lax.scan(layer, keep(bf16["token"][text[:, :-1]]), stacked)
    logits = (normalize(x, bf16["norm"]) @ bf16["head"]).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), text[:, 1:, None], -1).mean()


def step(model, options, state, text):
    """One training step with Adam."""
    params, m, v = state
    loss, grads = jax.value_and_grad(loss_of)(params, text, model, options)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, v, grads)
    params = jax.tree.map(lambda p, m, v: p - 3e-4 * m / (jnp.sqrt(v) + 1e-8), params, m, v)
    return (params, m, v), loss


def parameters_of(model):
    return sum(math.prod(shape) for shape, _ in shapes_of(model, {"tp": 1}).values())


def export(model, mesh, batch, length, save=(), capacity=0, weight_type="float32"):
    """Returns the HLO proto of a training step on `batch` sequences of `length` tokens. `save` has the names of values
    that the forward pass keeps for the backward pass, in addition to the inputs of layers: q, k, v, attention, and out
    and down (products with these weights). If `capacity` is not 0, experts drop tokens that exceed their capacity."""
    axes = tuple(axis for axis in ("dp", "fsdp", "ep") if axis in mesh)
    # A block has at most as many scores as the blocks of 2,048 x 2,048 in MaxText's recipes, but at least 8 rows.
    block = max(8, min(length, 2 ** 22 // length))
    options = Options(tuple(save), axes, mesh["tp"], math.prod(mesh[axis] for axis in axes),
                      1 << (block.bit_length() - 1), "ep" in mesh, capacity)
    shapes = shapes_of(model, mesh)
    mesh = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    weights = {name: jax.ShapeDtypeStruct(shape, weight_type) for name, (shape, _) in shapes.items()}
    splits = {name: NamedSharding(mesh, split) for name, (_, split) in shapes.items()}
    text = jax.ShapeDtypeStruct((batch, length + 1), jnp.int32)
    with jax.sharding.use_abstract_mesh(mesh):
        jitted = jax.jit(functools.partial(step, model, options), donate_argnums=0, keep_unused=True,
                         in_shardings=((splits,) * 3, NamedSharding(mesh, P(axes))),
                         out_shardings=((splits,) * 3, NamedSharding(mesh, P())))
        traced = jitted.trace((weights,) * 3, text)
        return traced.lower(lowering_platforms=("cpu",)).compiler_ir("hlo").as_serialized_hlo_module_proto()


def parse_mesh(text):
    return {name: int(size) for name, size in (axis.split("=") for axis in text.split(","))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--mesh", type=parse_mesh, default="dp=1,fsdp=8,tp=1",
                        help="sizes of the axes dp, fsdp, tp, and ep for experts")
    parser.add_argument("--batch", type=int, required=True, help="sequences of one step, on all devices together")
    parser.add_argument("--length", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--save", default="", help="values to keep for the backward pass: q,k,v,attention,out,down")
    parser.add_argument("--capacity", type=float, default=0,
                        help="places of an expert, as a factor of its equal share; default: each expert takes as "
                             "many tokens as the others")
    parser.add_argument("--weights", default="float32", choices=("float32", "bfloat16"), help="type of the weights")
    parser.add_argument("-o", dest="output", required=True, help="output file (.hlo.pb)")
    arguments = parser.parse_args()
    proto = export(arguments.model, arguments.mesh, arguments.batch, arguments.length,
                   [name for name in arguments.save.split(",") if name], arguments.capacity, arguments.weights)
    with open(arguments.output, "wb") as file:
        file.write(proto)


if __name__ == "__main__":
    main()

"""Programs whose results on simulated GPUs and TPUs are compared with those on CPUs.

Each function of PROGRAMS takes the arrays that the table gives for it, and returns a tree of arrays.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

rng = np.random.default_rng(0)


def floats(*dims):
    return rng.normal(size=dims).astype(np.float32)


def integers(end, *dims, dtype=np.int32):
    return rng.integers(0, end, size=dims).astype(dtype)


def with_nans(array, share):
    return np.where(rng.random(array.shape) < share, np.nan, array).astype(np.float32)


def attend(q, k, v, mask):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(mask, scores, -1e30), -1), v)


def convolve(x, w, strides=(1, 1), **attributes):
    return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), **attributes)


def causal_attention(q, k, v):
    mask = jnp.tril(jnp.ones((40, 40), bool))
    return jax.value_and_grad(lambda qkv: jnp.sum(jnp.sin(attend(*qkv, mask))))((q, k, v))


def attention_with_bias_and_padding(q, k, v, lengths):
    def loss(q, k, v):
        distance = jnp.abs(jnp.arange(33)[:, None] - jnp.arange(33))
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) - distance * jnp.array([0.5, 0.25])[:, None, None]
        inside = jnp.arange(33) <= lengths[:, None, None, None]
        weights = jax.nn.softmax(jnp.where(inside, scores, -jnp.inf), -1)
        return jnp.sum(jnp.einsum("bhqk,bhkd->bhqd", weights, v) ** 2)

    return jax.grad(loss, (0, 1, 2))(q, k, v)


def rotary_attention_in_a_window(q, k, v):
    def rotate(x):
        angles = jnp.arange(24)[:, None] * 10000.0 ** (-jnp.arange(4) / 4)
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * jnp.cos(angles) - b * jnp.sin(angles),
                                b * jnp.cos(angles) + a * jnp.sin(angles)], -1)

    def loss(q, k, v):
        mask = jnp.tril(jnp.ones((24, 24), bool)) & ~jnp.tril(jnp.ones((24, 24), bool), -8)
        return jnp.sum(attend(rotate(q), jnp.repeat(rotate(k), 2, 1), jnp.repeat(v, 2, 1), mask) ** 3)

    return jax.value_and_grad(loss, (0, 1, 2))(q, k, v)


def lstm(x, of_input, of_state, bias):
    def step(carry, at):
        state, cell = carry
        i, f, g, o = jnp.split(at @ of_input + state @ of_state + bias, 4, -1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        state = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (state, cell), state

    def loss(of_input, of_state):
        zeros = jnp.zeros((4, 16))
        return jnp.mean(lax.scan(step, (zeros, zeros), x)[1] ** 2)

    return jax.value_and_grad(loss, (0, 1))(of_input, of_state)


def scans(x, a, b):
    def compose(first, second):
        return first[0] * second[0], first[1] * second[0] + second[1]

    return [lax.associative_scan(compose, (a, b)), lax.associative_scan(compose, (a, b), reverse=True),
            jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, 1, reverse=True), lax.cumlogsumexp(x, 1)]


def scatters(x, index, updates):
    at = x.at[index]
    results = [at.add(updates, mode="drop"), at.max(updates, mode="drop"), at.min(updates, mode="drop"),
               at.mul(updates, mode="drop")]
    return results, jax.grad(lambda u: jnp.sum(jnp.tanh(jax.ops.segment_sum(u, index, 11)) ** 2))(updates)


def backward_convolutions(x, strided, depthwise, grouped):
    return [jax.grad(lambda x, w, a=attributes: jnp.sum(jnp.cos(convolve(x, w, **a))), (0, 1))(x, w)
            for w, attributes in ((strided, {"strides": (2, 2), "rhs_dilation": (2, 1)}),
                                  (depthwise, {"feature_group_count": 6}), (grouped, {"feature_group_count": 2}))]


def transposed_and_spatial_convolutions(x, w, x3, w3):
    def spatial(x, w):
        return jnp.sum(lax.conv_general_dilated(x, w, (1, 2, 1), "SAME",
                                                dimension_numbers=("NDHWC", "DHWIO", "NDHWC")) ** 2)

    return (jax.grad(lambda w: jnp.sum(lax.conv_transpose(x, w, (2, 2), "SAME") ** 2))(w),
            jax.grad(spatial, (0, 1))(x3, w3))


def pools(x):
    def largest(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    return [largest(x), jax.grad(lambda x: jnp.sum(largest(x) ** 2))(x),
            lax.reduce_window(x, 0.0, lax.add, (1, 4, 2, 1), (1, 3, 1, 1), ((0, 0), (1, 2), (0, 1), (0, 0)),
                              window_dilation=(1, 2, 1, 1))]


def sorts(x, keys):
    return [lax.sort((keys, x), dimension=1, num_keys=2), jnp.argsort(-keys, 1, stable=True), jnp.sort(x, 0)]


def top_values(x, w):
    def loss(x, w):
        values, places = lax.top_k(x, 5)
        return jnp.sum(values[..., None] * w[places])

    return lax.top_k(x, 5), jax.value_and_grad(loss, (0, 1))(x, w)


def fourier_transforms(x):
    return [jnp.fft.fft(x, axis=1), jnp.fft.ifft(x), jnp.fft.rfft2(x), jnp.fft.irfft2(jnp.fft.rfft2(x))]


def collatz(n):
    def step(carry):
        n, count = carry
        return jnp.where(n == 1, 1, jnp.where(n % 2 == 0, n // 2, 3 * n + 1)), count + (n != 1)

    return lax.while_loop(lambda carry: jnp.any(carry[0] != 1), step, (n, jnp.zeros_like(n)))


def nested_loops_with_branches(x, kinds):
    def outer(carry):
        i, x = carry
        branches = [lambda v: v * 2, lambda v: jnp.sin(v) + 1,
                    lambda v: lax.fori_loop(0, i + 1, lambda j, a: a * 0.5 + j, v)]
        y = lax.switch(kinds[i], branches, x[i])

        def inner(carry):
            j, x = carry
            return j + 1, lax.dynamic_update_slice(x, (x[j] + y)[None], (j,))

        return i + 1, lax.while_loop(lambda carry: carry[0] < i, inner, (0, x))[1].at[i].set(y)

    return lax.while_loop(lambda carry: carry[0] < 6, outer, (0, x))


def square_roots_by_newton(a):
    def root(a):
        def step(carry):
            x, count = carry
            return lax.cond(x > 1e6, lambda x: x * 0.1, lambda x: 0.5 * (x + a / x), x), count + 1

        return lax.while_loop(lambda carry: (jnp.abs(carry[0] ** 2 - a) > 1e-6 * a) & (carry[1] < 50), step,
                              (a + 1.0, 0))[0]

    return jax.vmap(root)(a)


def branches_in_a_loop(x):
    def row(x):
        return lax.cond(jnp.sum(x) > 0, lambda y: jnp.sort(y)[::-1],
                        lambda y: lax.cond(y[0] > 0, jnp.cumsum, lambda z: z * 2, y), x)

    return lax.map(row, x)


def linear_algebra(a, b):
    def loss(a, b):
        product = a @ a.swapaxes(-1, -2) + 3 * jnp.eye(6)
        factor = jnp.linalg.cholesky(product)
        return jnp.sum(jnp.linalg.solve(product, b) ** 2) + jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)))

    return jax.value_and_grad(loss, (0, 1))(a, b), jnp.linalg.slogdet(a)


def random_numbers(seed):
    keys = jax.random.split(jax.random.key(seed), 4)
    return [jax.random.normal(keys[0], (33,)), jax.random.categorical(keys[1], jnp.zeros((4, 7)), -1),
            jax.random.permutation(keys[2], 40), jax.random.randint(keys[3], (9,), -5, 100)]


def quantized_product(x, w):
    of_x, of_w = jnp.max(jnp.abs(x), 1, keepdims=True) / 127, jnp.max(jnp.abs(w), 0) / 127
    rounded_x, rounded_w = jnp.round(x / of_x).astype(jnp.int8), jnp.round(w / of_w).astype(jnp.int8)
    product = lax.dot_general(rounded_x, rounded_w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
    return product, product * of_x * of_w, rounded_x @ rounded_w


def bits(a, b, c):
    return [lax.population_count(a), lax.clz(b), c << 3, (c - 64) >> 2, lax.shift_right_logical(c - 100, jnp.int8(1)),
            a * a, b * b + b, a // jnp.uint8(7), (c - 64) // jnp.int8(5), (c - 64) % jnp.int8(5)]


def floats_of_8_bits(a, b):
    a, b = a.astype(jnp.float8_e5m2), b.astype(jnp.float8_e4m3fn)
    return [(a + a).astype(jnp.float32), jnp.max(b.astype(jnp.bfloat16), 1),
            lax.dot_general(b, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)]


def slices_out_of_bounds(x, at):
    return [[lax.dynamic_slice(x, (at[k], at[k + 1]), (4, 3)) for k in range(4)],
            [lax.dynamic_update_slice(x, x[:2, :3] * 9, (at[k], at[k + 1])) for k in range(4)]]


def counts(x, edges, labels):
    return [jnp.histogram(x, bins=edges)[0], jnp.bincount(labels, length=15), jnp.searchsorted(edges, x),
            jnp.quantile(x, jnp.array([0.1, 0.5, 0.93])), jnp.nonzero(labels > 6, size=30, fill_value=99),
            jnp.unique(labels, size=15, fill_value=-1, return_counts=True, return_inverse=True)]


def places_of_extremes(x):
    return [jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.nanmax(x, 1), jnp.nanmean(x, 0), jnp.max(x, 1)]


def experts(x, gate, up, down):
    def loss(x, gate, up, down):
        values, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
        hot = jax.nn.one_hot(chosen, 4)
        place = jnp.cumsum(hot.reshape(-1, 4), 0).reshape(24, 2, 4)
        slots = jax.nn.one_hot((place - 1).astype(int), 14)
        combine = jnp.einsum("tke,tkec->tec", hot * values[..., None] * (place <= 14), slots)
        hidden = jnp.einsum("tec,td->ecd", (combine > 0).astype(x.dtype), x)
        hidden = jnp.einsum("ecf,efd->ecd", jax.nn.gelu(jnp.einsum("ecd,edf->ecf", hidden, up)), down)
        return jnp.sum(jnp.einsum("tec,ecd->td", combine, hidden) ** 2)

    return jax.value_and_grad(loss, (0, 1, 2, 3))(x, gate, up, down)


def checkpointed_layers(x, layers):
    def loss(x, layers):
        layer = jax.checkpoint(lambda x, w: (jax.nn.gelu(x @ w) + x, jnp.sum(x)))
        x, sums = lax.scan(layer, x, layers)
        return jnp.sum(x**2) + jnp.sum(sums)

    return jax.value_and_grad(loss, (0, 1))(x, layers)


def most_likely_path(scores, transitions):
    def forward(best, score):
        through = best[:, None] + transitions
        return jnp.max(through, 0) + score, jnp.argmax(through, 0)

    best, origins = lax.scan(forward, scores[0], scores[1:])
    return lax.scan(lambda at, origin: (origin[at], origin[at]), jnp.argmax(best), origins, reverse=True), jnp.max(best)


def beam_search(table):
    def step(carry, _):
        scores, last = carry
        following = (scores[:, None] + jax.nn.log_softmax(table)[last]).reshape(-1)
        values, places = lax.top_k(following, 4)
        return (values, places % 20), (places // 20, places % 20)

    return lax.scan(step, (jnp.array([0.0, -1, -2, -3]), jnp.arange(4)), None, length=9)


def clusters_of_points(x):
    def step(_, centers):
        nearest = jax.nn.one_hot(jnp.argmin(jnp.sum((x[:, None] - centers) ** 2, -1), 1), 5)
        sizes = nearest.sum(0)[:, None]
        return jnp.where(sizes > 0, (nearest.T @ x) / jnp.maximum(sizes, 1), centers)

    return lax.fori_loop(0, 10, step, x[:5])


def game_of_life(cells):
    def step(cells, _):
        around = sum(jnp.roll(cells.astype(jnp.int32), (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - cells
        return (around == 3) | (cells & (around == 2)), around.sum()

    return lax.scan(step, cells, None, length=12)


PROGRAMS = {
    causal_attention: (floats(2, 3, 40, 16), floats(2, 3, 40, 16), floats(2, 3, 40, 16)),
    attention_with_bias_and_padding: (floats(2, 2, 33, 8), floats(2, 2, 33, 8), floats(2, 2, 33, 8), integers(33, 2)),
    rotary_attention_in_a_window: (floats(2, 4, 24, 8), floats(2, 2, 24, 8), floats(2, 2, 24, 8)),
    lstm: (floats(12, 4, 8), floats(8, 64) * 0.3, floats(16, 64) * 0.3, floats(64)),
    scans: (floats(9, 31), floats(37, 5) * 0.5, floats(37, 5)),
    scatters: (floats(10, 4), integers(13, 25), floats(25, 4)),
    backward_convolutions: (floats(2, 8, 9, 6), floats(3, 3, 6, 5), floats(3, 3, 1, 12), floats(5, 5, 3, 4)),
    transposed_and_spatial_convolutions: (floats(2, 7, 6, 4), floats(3, 3, 4, 6), floats(2, 5, 6, 7, 2),
                                          floats(2, 3, 2, 2, 3)),
    pools: (floats(2, 9, 9, 3),),
    sorts: (with_nans(floats(6, 50), 0.05), integers(9, 6, 50)),
    top_values: (floats(8, 33), floats(33, 4)),
    fourier_transforms: (floats(3, 12, 16),),
    collatz: (integers(1000, 13) + 1,),
    nested_loops_with_branches: (floats(6), integers(3, 6)),
    square_roots_by_newton: (np.abs(floats(20)) + 0.1,),
    branches_in_a_loop: (floats(6, 40),),
    linear_algebra: (floats(3, 6, 6), floats(3, 6, 2)),
    random_numbers: (np.uint32(5),),
    quantized_product: (floats(9, 32), floats(32, 11)),
    bits: (integers(256, 40, dtype=np.uint8), integers(65536, 40, dtype=np.uint16), integers(128, 40, dtype=np.int8)),
    floats_of_8_bits: (floats(33, 65), floats(33, 65)),
    slices_out_of_bounds: (floats(9, 8), integers(30, 5) - 10),
    counts: (floats(200), np.sort(floats(9)), integers(12, 40)),
    places_of_extremes: (with_nans(np.round(floats(7, 40) * 2), 0.02),),
    experts: (floats(24, 16), floats(16, 4), floats(4, 16, 8), floats(4, 8, 16)),
    checkpointed_layers: (floats(8, 12), floats(4, 12, 12) * 0.3),
    most_likely_path: (floats(30, 5), floats(5, 5)),
    beam_search: (floats(20, 20),),
    clusters_of_points: (floats(40, 8),),
    game_of_life: (floats(20, 20) > 0,),
}

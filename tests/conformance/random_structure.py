"""Random instructions that move, combine and contract elements."""

import numpy as np

from cases import COMPLEX, DTYPES, F8, FLOATS
from program import FLUSHED_EQUAL, close, shape
from values import dims_text, random_array, random_shape

WHOLE = ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"]
NUMBERS = WHOLE + FLOATS + COMPLEX
MOVED = ["pred"] + NUMBERS + F8
EPSILON = {"f64": 1e-12, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2, "c64": 1e-5, "c128": 1e-12}


def sums(name, scale=1.0):
    """Returns the allowed error of sums of at most a few hundred numbers of magnitude `scale`."""
    return close(EPSILON[name], EPSILON[name] * scale) if name in EPSILON else FLUSHED_EQUAL


def tame(rng, name, dims):
    return random_array(rng, name, dims, wide=False, special=False)


def identity(name, opcode):
    """Returns the opcode's identity. With any other start value, XLA's results depend on how it splits the work."""
    if opcode in ("add", "or"):
        value = 0
    elif opcode in ("multiply", "and"):
        value = 1
    elif name in FLOATS:
        value = np.inf if opcode == "minimum" else -np.inf
    else:
        info = np.iinfo(DTYPES[name])
        value = info.max if opcode == "minimum" else info.min
    return np.asarray(value).astype(DTYPES[name])


def one(program, name, dims, opcode, operands, attributes, compare=FLUSHED_EQUAL):
    result = shape(name, dims)
    program.result(program.op(result, opcode, operands, attributes), result, compare)


def broadcast(program, rng, name):
    dims = random_shape(rng, 4)
    kept = sorted(rng.choice(len(dims), int(rng.integers(0, len(dims) + 1)), replace=False)) if dims else []
    x = program.parameter(random_array(rng, name, [dims[d] for d in kept]))
    one(program, name, dims, "broadcast", [x], f"dimensions={{{dims_text(kept)}}}")


def transpose(program, rng, name):
    dims = random_shape(rng, 4)
    order = rng.permutation(len(dims))
    x = program.parameter(random_array(rng, name, dims))
    one(program, name, [dims[d] for d in order], "transpose", [x], f"dimensions={{{dims_text(order)}}}")


def reshape(program, rng, name):
    dims = random_shape(rng, 3)
    x = program.parameter(random_array(rng, name, dims))
    one(program, name, [int(np.prod(dims, dtype=int)), 1], "reshape", [x], "")


def slice_(program, rng, name):
    dims = random_shape(rng, 3, 7)
    parts, result = [], []
    for size in dims:
        low, high = sorted(rng.integers(0, size + 1, 2))
        stride = int(rng.integers(1, 4))
        parts.append(f"[{low}:{high}:{stride}]")
        result.append(-(-(high - low) // stride))
    x = program.parameter(random_array(rng, name, dims))
    one(program, name, result, "slice", [x], f"slice={{{', '.join(parts)}}}")


def concatenate(program, rng, name):
    dims = list(random_shape(rng, 3)) + [2]
    d = int(rng.integers(0, len(dims)))
    operands, total = [], 0
    for _ in range(int(rng.integers(1, 4))):
        dims[d] = int(rng.integers(0, 4))
        total += dims[d]
        operands.append(program.parameter(random_array(rng, name, dims)))
    dims[d] = total
    one(program, name, dims, "concatenate", operands, f"dimensions={{{d}}}")


def pad(program, rng, name):
    dims, parts, result = random_shape(rng, 3), [], []
    for size in dims:
        inner = int(rng.integers(0, 3))
        spread = size + max(0, size - 1) * inner
        low, high = (int(rng.integers(-2, 4)) for _ in range(2))
        if spread + low + high < 0:
            low = high = 0
        parts.append(f"{low}_{high}_{inner}")
        result.append(spread + low + high)
    operands = [program.parameter(random_array(rng, name, dims)), program.parameter(random_array(rng, name, ()))]
    one(program, name, result, "pad", operands, f"padding={'x'.join(parts)}" if parts else "padding=")


def reverse(program, rng, name):
    dims = random_shape(rng, 3)
    turned = [d for d in range(len(dims)) if rng.random() < 0.5]
    x = program.parameter(random_array(rng, name, dims))
    one(program, name, dims, "reverse", [x], f"dimensions={{{dims_text(turned)}}}")


def iota(program, rng, name):
    dims = [*random_shape(rng, 2), int(rng.integers(1, 9))]
    one(program, name, dims, "iota", [], f"iota_dimension={int(rng.integers(0, len(dims)))}")


def starts(program, rng, dims):
    """Returns an index for each dimension, from -3 (u32: 0) to the size of the dimension + 2."""
    kind = str(rng.choice(["s32", "s64", "u32", "s8"]))
    low = 0 if kind == "u32" else -3
    return [program.parameter(np.asarray(rng.integers(low, size + 3), DTYPES[kind])) for size in dims]


def dynamic_slice(program, rng, name):
    # jaxlib does not accept a dynamic-slice of a scalar.
    dims = [*random_shape(rng, 2, empty=0), int(rng.integers(1, 6))]
    sizes = [int(rng.integers(0, size + 1)) for size in dims]
    x = program.parameter(random_array(rng, name, dims))
    operands = [x, *starts(program, rng, dims)]
    one(program, name, sizes, "dynamic-slice", operands, f"dynamic_slice_sizes={{{dims_text(sizes)}}}")


def dynamic_update_slice(program, rng, name):
    dims = random_shape(rng, 3, empty=0)
    sizes = [int(rng.integers(0, size + 1)) for size in dims]
    operands = [program.parameter(random_array(rng, name, d)) for d in (dims, sizes)]
    one(program, name, dims, "dynamic-update-slice", [*operands, *starts(program, rng, dims)], "")


def dot(program, rng, name):
    batch, contracted, left, right = (list(random_shape(rng, 2, 4)) for _ in range(4))
    operands, attributes = [], []
    for side, free in (("lhs", left), ("rhs", right)):
        kinds = [("b", i) for i in range(len(batch))] + [("c", i) for i in range(len(contracted))]
        kinds += [("f", i) for i in range(len(free))]
        # Free dimensions keep their order; the other dimensions are inserted at random positions.
        order = [kinds[i] for i in rng.permutation(len(kinds))]
        frees = iter(sorted(k for k in order if k[0] == "f"))
        order = [next(frees) if k[0] == "f" else k for k in order]
        sizes = {"b": batch, "c": contracted, "f": free}
        operands.append(program.parameter(tame(rng, name, [sizes[k][i] for k, i in order])))
        for kind, sizes_of, word in (("b", batch, "batch"), ("c", contracted, "contracting")):
            places = [order.index((kind, i)) for i in range(len(sizes_of))]
            if places:
                attributes.append(f"{side}_{word}_dims={{{dims_text(places)}}}")
    one(program, name, batch + left + right, "dot", operands, ", ".join(attributes), sums(name, 50))


def window_dims(rng, dims):
    """Returns random windows over `dims`: their attribute text and the sizes of the result."""
    columns, result = {"size": [], "stride": [], "pad": [], "lhs_dilate": [], "rhs_dilate": []}, []
    for size in dims:
        while True:
            window, stride = int(rng.integers(1, 4)), int(rng.integers(1, 4))
            base = int(rng.integers(1, 4))
            dilation, low, high = int(rng.integers(1, 3)), int(rng.integers(-1, 3)), int(rng.integers(-1, 3))
            padded = (0 if size == 0 else (size - 1) * base + 1) + low + high
            reach = (window - 1) * dilation + 1
            if padded >= 0:
                break
        result.append(0 if padded < reach else (padded - reach) // stride + 1)
        for key, value in zip(columns, (window, stride, f"{low}_{high}", base, dilation)):
            columns[key].append(str(value))
    return "window={" + " ".join(f"{k}={'x'.join(v)}" for k, v in columns.items()) + "}", result, columns


def convolution(program, rng, name):
    spatial = int(rng.integers(1, 4))
    sizes = [int(rng.integers(2, 6)) for _ in range(spatial)]
    window, out, columns = window_dims(rng, sizes)
    if rng.random() < 0.2:
        window = window[:-1] + " rhs_reversal=" + "x".join(str(int(v)) for v in rng.integers(0, 2, spatial)) + "}"
    batch_groups, feature_groups = (2, 1) if rng.random() < 0.15 else (1, int(rng.integers(1, 4)))
    batch, inputs, outputs = 2 * int(rng.integers(1, 3)), int(rng.integers(1, 3)), int(rng.integers(1, 3)) * 2
    outputs *= feature_groups
    letters = "0123456789"[:spatial]
    roles = [{"b": batch, "f": inputs * feature_groups}, {"i": inputs, "o": outputs},
             {"b": batch // batch_groups, "f": outputs}]
    labels, shapes = [], []
    for role, spatials in zip(roles, (sizes, [int(v) for v in columns["size"]], out)):
        role = {**role, **dict(zip(letters, spatials))}
        label = [list(role)[i] for i in rng.permutation(len(role))]
        labels.append("".join(label))
        shapes.append([role[c] for c in label])
    attributes = f"{window}, dim_labels={labels[0]}_{labels[1]}->{labels[2]}"
    if feature_groups > 1:
        attributes += f", feature_group_count={feature_groups}"
    if batch_groups > 1:
        attributes += f", batch_group_count={batch_groups}"
    operands = [program.parameter(tame(rng, name, dims)) for dims in shapes[:2]]
    one(program, name, shapes[2], "convolution", operands, attributes, sums(name, 50))


def reduce(program, rng, name):
    opcodes = ["and", "or"] if name == "pred" else ["add", "multiply"]
    opcode = str(rng.choice(opcodes + (["maximum", "minimum"] if name in WHOLE + FLOATS else [])))
    dims = random_shape(rng, 4)
    away = [d for d in range(len(dims)) if rng.random() < 0.5]
    exact = opcode in ("maximum", "minimum", "and", "or")
    x = random_array(rng, name, dims) if exact else tame(rng, name, dims)
    operands = [program.parameter(x), program.parameter(identity(name, opcode))]
    combiner = program.combiner(name, opcode)
    result = [size for d, size in enumerate(dims) if d not in away]
    scale = 50 if opcode == "add" else 3.0 ** min(20, x.size)
    one(program, name, result, "reduce", operands, f"dimensions={{{dims_text(away)}}}, to_apply={combiner}",
        FLUSHED_EQUAL if exact else sums(name, scale))


def reduce_pairs(program, rng, name):
    """Adds a reduction of two operands at once, which computes the value and the index of the largest element."""
    dims = (int(rng.integers(1, 5)), int(rng.integers(1, 6)))
    operands = [program.parameter(random_array(rng, name, dims, special=False))]
    operands.append(program.op(shape("s32", dims), "iota", [], "iota_dimension=1"))
    operands += [program.parameter(identity(name, "maximum")), program.constant("s32", -1)]
    combiner = program.computation(
        f"{{name}} {{\n  a = {name}[] parameter(0)\n  i = s32[] parameter(1)\n  b = {name}[] parameter(2)\n"
        f"  j = s32[] parameter(3)\n  c = pred[] compare(a, b), direction=GT\n  v = {name}[] select(c, a, b)\n"
        f"  k = s32[] select(c, i, j)\n  ROOT r = ({name}[], s32[]) tuple(v, k)\n}}")
    pair = program.op(f"({name}[{dims[0]}], s32[{dims[0]}])", "reduce", operands,
                      f"dimensions={{1}}, to_apply={combiner}")
    for i, kind in enumerate((name, "s32")):
        one(program, kind, dims[:1], "get-tuple-element", [pair], f"index={i}")


def reduce_window(program, rng, name):
    opcode = str(rng.choice(["add", "maximum", "minimum"]))
    dims = [int(rng.integers(1, 7)) for _ in range(int(rng.integers(1, 4)))]
    window, result, _ = window_dims(rng, dims)
    exact = opcode != "add"
    x = random_array(rng, name, dims, special=False) if exact else tame(rng, name, dims)
    operands = [program.parameter(x), program.parameter(identity(name, opcode))]
    one(program, name, result, "reduce-window", operands, f"{window}, to_apply={program.combiner(name, opcode)}",
        FLUSHED_EQUAL if exact else sums(name, 50))


def select_and_scatter(program, rng, name):
    dims = [int(rng.integers(2, 7)) for _ in range(int(rng.integers(1, 3)))]
    sizes = [int(rng.integers(1, min(4, size + 1))) for size in dims]
    strides = [int(rng.integers(1, 4)) for _ in dims]
    result = [(size - window) // stride + 1 for size, window, stride in zip(dims, sizes, strides)]
    operands = [program.parameter(tame(rng, name, d)) for d in (dims, result, ())]
    select = program.computation(f"{{name}} {{\n  x = {name}[] parameter(0)\n  y = {name}[] parameter(1)\n"
                                 "  ROOT r = pred[] compare(x, y), direction=GE\n}")
    window = f"window={{size={'x'.join(map(str, sizes))} stride={'x'.join(map(str, strides))}}}"
    one(program, name, dims, "select-and-scatter", operands,
        f"{window}, select={select}, scatter={program.combiner(name, 'add')}", sums(name, 20))


def index_layout(rng, depth, batch):
    """Returns the shape and the index_vector_dim of the indices of a batch of places. Each index has `depth` numbers
    along some dimension. If `depth` is 1, the dimension may be missing."""
    vector = int(rng.integers(0, len(batch) + 1))
    if depth == 1 and rng.random() < 0.5:
        return batch, len(batch)
    return [*batch[:vector], depth, *batch[vector:]], vector


def gather_parts(rng, dims):
    """Chooses the indexed dimensions, the collapsed dimensions and the sizes of slices."""
    indexed = [int(d) for d in rng.permutation(len(dims))[:int(rng.integers(0, len(dims) + 1))]]
    sizes = [int(rng.integers(1, size + 1)) for size in dims]
    collapsed = [d for d in indexed if rng.random() < 0.6]
    for d in collapsed:
        sizes[d] = 1
    return indexed, sorted(collapsed), sizes


def place_offsets(rng, batch, offsets):
    total = len(batch) + len(offsets)
    places = sorted(int(p) for p in rng.permutation(total)[:len(offsets)])
    inner, outer = iter(offsets), iter(batch)
    return places, [next(inner) if d in places else next(outer) for d in range(total)]


def gather(program, rng, name):
    dims = list(random_shape(rng, 3, empty=0)) or [4]
    batch = list(random_shape(rng, 2))
    indexed, collapsed, sizes = gather_parts(rng, dims)
    index_dims, vector = index_layout(rng, len(indexed), batch)
    if vector == len(index_dims) and len(indexed) != 1:
        return
    kind = str(rng.choice(["s32", "s64", "u32"]))
    indices = rng.integers(0 if kind == "u32" else -2, max(dims) + 2, index_dims).astype(DTYPES[kind])
    places, result = place_offsets(rng, batch, [s for d, s in enumerate(sizes) if d not in collapsed])
    operands = [program.parameter(random_array(rng, name, dims)), program.parameter(indices)]
    one(program, name, result, "gather", operands,
        f"offset_dims={{{dims_text(places)}}}, collapsed_slice_dims={{{dims_text(collapsed)}}}, "
        f"start_index_map={{{dims_text(indexed)}}}, index_vector_dim={vector}, slice_sizes={{{dims_text(sizes)}}}")


def scatter(program, rng, name):
    dims = list(random_shape(rng, 3, empty=0)) or [4]
    batch = list(random_shape(rng, 2))
    indexed, inserted, sizes = gather_parts(rng, dims)
    index_dims, vector = index_layout(rng, len(indexed), batch)
    if not indexed or (vector == len(index_dims) and len(indexed) != 1):
        return  # XLA's CPU backend leaves out updates whose indices have no components.
    opcode = str(rng.choice(["add", "maximum", "minimum"])) if name not in COMPLEX else "add"
    places, updates = place_offsets(rng, batch, [s for d, s in enumerate(sizes) if d not in inserted])
    operands = [program.parameter(tame(rng, name, dims)),
                program.parameter(rng.integers(-2, max(dims) + 2, index_dims).astype(np.int32)),
                program.parameter(tame(rng, name, updates))]
    one(program, name, dims, "scatter", operands,
        f"update_window_dims={{{dims_text(places)}}}, inserted_window_dims={{{dims_text(inserted)}}}, "
        f"scatter_dims_to_operand_dims={{{dims_text(indexed)}}}, index_vector_dim={vector}, "
        f"to_apply={program.combiner(name, opcode)}", sums(name, 50))


def sort(program, rng, name):
    dims = list(random_shape(rng, 2)) + [int(rng.integers(1, 20))]
    d = int(rng.integers(0, len(dims)))
    direction = str(rng.choice(["LT", "GT"]))
    kind = ", type=TOTALORDER" if name in FLOATS else ""
    compare = program.computation(
        f"{{name}} {{\n  a = {name}[] parameter(0)\n  b = {name}[] parameter(1)\n  c = s32[] parameter(2)\n"
        f"  d = s32[] parameter(3)\n  ROOT r = pred[] compare(a, b), direction={direction}{kind}\n}}")
    x = random_array(rng, name, dims)
    operands = [program.parameter(x), program.op(shape("s32", dims), "iota", [], f"iota_dimension={d}")]
    pair = program.op(f"({shape(name, dims)}, {shape('s32', dims)})", "sort", operands,
                      f"dimensions={{{d}}}, is_stable=true, to_apply={compare}")
    for i, kind in enumerate((name, "s32")):
        one(program, kind, dims, "get-tuple-element", [pair], f"index={i}")


def topk(program, rng, name):
    dims = [int(rng.integers(1, 4)), int(rng.integers(2, 30))]
    k = int(rng.integers(1, dims[1] + 1))
    result = f"({name}[{dims[0]},{k}], s32[{dims[0]},{k}])"
    x = program.parameter(random_array(rng, name, dims))
    pair = program.op(result, "topk", [x], f"k={k}, largest={'true' if rng.random() < 0.8 else 'false'}")
    for i, kind in enumerate((name, "s32")):
        one(program, kind, [dims[0], k], "get-tuple-element", [pair], f"index={i}")


def fft(program, rng, name):
    """`name` is the real element type."""
    complex_name = {"f32": "c64", "f64": "c128"}[name]
    kind = str(rng.choice(["FFT", "IFFT", "RFFT", "IRFFT"]))
    rank = int(rng.integers(1, 4))
    dims = [*random_shape(rng, 1), *(int(rng.integers(1, 9)) for _ in range(rank))]
    half = [*dims[:-1], dims[-1] // 2 + 1]
    source = (name, dims) if kind == "RFFT" else (complex_name, half if kind == "IRFFT" else dims)
    target = (name, dims) if kind == "IRFFT" else (complex_name, half if kind == "RFFT" else dims)
    x = program.parameter(tame(rng, *source))
    one(program, *target, "fft", [x], f"fft_type={kind}, fft_length={{{dims_text(dims[-rank:])}}}", sums(name, 100))


def matrix(rng, name, dims, n):
    """Returns a well-conditioned, symmetric (Hermitian) positive definite matrix."""
    a = tame(rng, name, (*dims, n, n))
    return (a @ np.conj(np.swapaxes(a, -1, -2)) / 9 + np.eye(n) * 2).astype(DTYPES[name])


def cholesky(program, rng, name):
    dims, n = random_shape(rng, 2, 3), int(rng.integers(1, 7))
    a = matrix(rng, name, dims, n)
    lower = bool(rng.random() < 0.5)
    root = program.op(shape(name, a.shape), "cholesky", [program.parameter(a)], f"lower={str(lower).lower()}")
    # Backends differ in the triangle that is undefined, so it is masked.
    row, column = (program.op(shape("s32", a.shape), "iota", [], f"iota_dimension={a.ndim - k}") for k in (2, 1))
    mask = program.op(shape("pred", a.shape), "compare", [row, column], f"direction={'GE' if lower else 'LE'}")
    zero = program.op(shape(name, a.shape), "broadcast", [program.constant(name, "(0, 0)" if name in COMPLEX else 0)],
                      "dimensions={}")
    one(program, name, a.shape, "select", [mask, root, zero], "", close(EPSILON[name] * 10, EPSILON[name] * 10))


def triangular_solve(program, rng, name):
    dims, n, m = random_shape(rng, 2, 3), int(rng.integers(1, 7)), int(rng.integers(1, 4))
    left = rng.random() < 0.5
    a = matrix(rng, name, dims, n)
    b = tame(rng, name, (*dims, n, m) if left else (*dims, m, n))
    flags = [f"{key}={str(bool(rng.random() < 0.5)).lower()}" for key in ("lower", "unit_diagonal")]
    transpose_a = str(rng.choice(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]))
    if "unit_diagonal=true" in flags:
        a = (a / 20).astype(a.dtype)
    one(program, name, b.shape, "triangular-solve", [program.parameter(a), program.parameter(b)],
        f"left_side={str(bool(left)).lower()}, {', '.join(flags)}, transpose_a={transpose_a}",
        close(EPSILON[name] * 50, EPSILON[name] * 50))


def batch_norm(program, rng, name):
    dims = [int(rng.integers(1, 5)) for _ in range(int(rng.integers(2, 5)))]
    feature = int(rng.integers(0, len(dims)))
    attributes = f"epsilon=0.01, feature_index={feature}"
    whole, part = shape(name, dims), shape(name, dims[feature:feature + 1])
    x, grad = (program.parameter(tame(rng, name, dims)) for _ in range(2))
    scale, offset, mean = (program.parameter(tame(rng, name, dims[feature:feature + 1])) for _ in range(3))
    variance = program.parameter(np.abs(tame(rng, name, dims[feature:feature + 1])) + np.asarray(1, DTYPES[name]))
    compare = close(EPSILON[name] * 20, EPSILON[name] * 100)
    one(program, name, dims, "batch-norm-inference", [x, scale, offset, mean, variance], attributes, compare)
    for opcode, operands in (("batch-norm-training", [x, scale, offset]),
                             ("batch-norm-grad", [x, scale, mean, variance, grad])):
        three = program.op(f"({whole}, {part}, {part})", opcode, operands, attributes)
        for i, result in enumerate((dims, dims[feature:feature + 1], dims[feature:feature + 1])):
            one(program, name, result, "get-tuple-element", [three], f"index={i}", compare)


def rng_bits(program, rng, name):
    algorithm = str(rng.choice(["rng_three_fry", "rng_philox", "rng_default"]))
    dims = random_shape(rng, 3, 7)
    words = 2 if algorithm == "rng_three_fry" else int(rng.choice([2, 3]))
    state = random_array(rng, "u64", (words,))
    if rng.random() < 0.3:
        state[1] = np.uint64(2**64 - 1 - int(rng.integers(0, 4)))
    pair = program.op(f"(u64[{words}], {shape(name, dims)})", "rng-bit-generator", [program.parameter(state)],
                      f"algorithm={algorithm}")
    one(program, "u64", [words], "get-tuple-element", [pair], "index=0")
    one(program, name, dims, "get-tuple-element", [pair], "index=1")


def control(program, rng, name):
    """Adds a call, a map and a loop of the same small function, and a conditional."""
    step = program.combiner(name, str(rng.choice(["add", "multiply", "maximum", "subtract"])))
    x, y = (program.parameter(tame(rng, name, ())) for _ in range(2))
    one(program, name, (), "call", [x, y], f"to_apply={step}", sums(name, 10))
    dims = random_shape(rng, 2)
    arrays = [program.parameter(tame(rng, name, dims)) for _ in range(2)]
    one(program, name, dims, "map", arrays, f"dimensions={{{dims_text(range(len(dims)))}}}, to_apply={step}",
        sums(name, 10))
    pair = f"(s32[], {name}[], {name}[])"
    body = program.computation(
        f"{{name}} {{\n  t = {pair} parameter(0)\n  i = s32[] get-tuple-element(t), index=0\n"
        f"  a = {name}[] get-tuple-element(t), index=1\n  b = {name}[] get-tuple-element(t), index=2\n"
        f"  one = s32[] constant(1)\n  n = s32[] add(i, one)\n  c = {name}[] call(a, b), to_apply={step}\n"
        f"  ROOT r = {pair} tuple(n, c, b)\n}}")
    condition = program.computation(
        f"{{name}} {{\n  t = {pair} parameter(0)\n  i = s32[] get-tuple-element(t), index=0\n"
        f"  n = s32[] constant({int(rng.integers(0, 4))})\n  ROOT r = pred[] compare(i, n), direction=LT\n}}")
    first = program.op(pair, "tuple", [program.constant("s32", 0), x, y])
    loop = program.op(pair, "while", [first], f"condition={condition}, body={body}")
    one(program, name, (), "get-tuple-element", [loop], "index=1", sums(name, 300))
    branches = [program.computation(f"{{name}} {{\n  x = {name}[] parameter(0)\n  ROOT r = {name}[] add(x, x)\n}}"),
                program.computation(f"{{name}} {{\n  ROOT x = {name}[] parameter(0)\n}}")]
    which = program.parameter(np.asarray(rng.integers(-1, 4), np.int32))
    one(program, name, (), "conditional", [which, x, y], f"branch_computations={{{', '.join(branches)}}}")


TABLE = [
    (broadcast, MOVED), (transpose, MOVED), (reshape, MOVED), (slice_, MOVED), (concatenate, MOVED), (pad, MOVED),
    (reverse, MOVED), (iota, NUMBERS), (dynamic_slice, MOVED), (dynamic_update_slice, MOVED), (dot, NUMBERS),
    (convolution, NUMBERS), (reduce, ["pred"] + NUMBERS), (reduce_pairs, WHOLE + FLOATS),
    (reduce_window, WHOLE + FLOATS), (select_and_scatter, WHOLE + FLOATS), (gather, MOVED), (scatter, NUMBERS),
    (sort, WHOLE + FLOATS), (topk, ["f32", "bf16", "s32"]), (fft, ["f32", "f64"]),
    (cholesky, ["f32", "f64"] + COMPLEX), (triangular_solve, ["f32", "f64"] + COMPLEX),
    (batch_norm, ["f32", "f64"]), (rng_bits, ["u8", "u16", "u32", "u64"]), (control, NUMBERS),
]


def generators():
    return [(f"{make.__name__.strip('_')}/{name}",
             lambda program, rng, make=make, name=name: make(program, rng, name))
            for make, names in TABLE for name in names if name in DTYPES]

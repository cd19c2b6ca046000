"""Cases with expected values from numpy, mpmath or the opcode's definition. Most are of opcodes that JAX does not
emit."""

import ml_dtypes
import numpy as np

from cases import DTYPES, Case, shape_text
from precise import FUNCTIONS, rounded

ADD = "add { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT r = f32[] add(x, y) }\n"
EQ, ULP = {"kind": "eq"}, {"kind": "ulp", "max_ulp": 1}


def close(atol):
    return {"kind": "close", "rtol": atol, "atol": atol}


def program(body, before="", header=""):
    return f"HloModule m{header}\n\n{before}ENTRY e {{\n  " + "\n  ".join(body.strip().splitlines()) + "\n}\n"


def case(name, body, inputs, expected, compare=EQ, before="", header="", **fields):
    parameters = "".join(f"p{i} = {shape_text(x)} parameter({i})\n" for i, x in enumerate(inputs))
    return Case(name, program(parameters + body, before, header), list(inputs), [compare], list(expected), **fields)


def spmd(name, body, inputs, expected, replicas, partitions, before=ADD, compare=EQ):
    """`inputs` and `expected` have one list per process. All processes run the same program."""
    parameters = "".join(f"p{i} = {shape_text(x)} parameter({i})\n" for i, x in enumerate(inputs[0]))
    header = f", replica_count={replicas}, num_partitions={partitions}"
    return Case(name, program(parameters + body, before, header), inputs, [compare], expected,
                processes=replicas * partitions, replicas=replicas)


def math_cases(rng):
    for opcode in FUNCTIONS:
        for name in ("f32", "f64", "bf16", "c64"):
            if name == "c64" and FUNCTIONS[opcode].real_only:
                continue
            x = FUNCTIONS[opcode].arguments(rng, name, 24)
            expected = rounded(FUNCTIONS[opcode].function, x, FUNCTIONS[opcode].result(name))
            yield case(f"{opcode}/{opcode}_{name}", f"ROOT r = {shape_text(expected)} {opcode}(p0)", [x], [expected],
                       {"kind": "ulp", "max_ulp": 2} if name == "c64" else ULP)


def structure_cases(rng):
    f = np.float32
    x = rng.standard_normal((3, 4)).astype(f)
    y = rng.standard_normal((3, 4)).astype(f)
    yield case("bitcast/transposed", "a = f32[3,4]{1,0} copy(p0)\nROOT r = f32[4,3]{0,1} bitcast(a)", [x], [x.T])
    yield case("bitcast/flat", "ROOT r = f32[12] bitcast(p0)", [x], [x.reshape(-1)])
    yield case("copy/copy", "c = f32[3,4]{0,1} copy(p0)\nROOT r = f32[3,4]{1,0} copy(c)", [x], [x])
    yield case("copy/async", "s = (f32[3,4], f32[3,4], u32[]) copy-start(p0)\nROOT r = f32[3,4] copy-done(s)", [x], [x])
    yield case("dimension_size/get", "ROOT r = s32[] get-dimension-size(p0), dimensions={1}", [x], [np.int32(4)])
    yield case("dimension_size/set_whole", "n = s32[] constant(3)\n"
               "ROOT r = f32[<=3,4] set-dimension-size(p0, n), dimensions={0}", [x], [x])
    yield case("dynamic_reshape/whole", "a = s32[] constant(2)\nb = s32[] constant(6)\n"
               "ROOT r = f32[2,6] dynamic-reshape(p0, a, b)", [x], [x.reshape(2, 6)])
    neg = "neg { x = f32[3,4] parameter(0)\n ROOT n = f32[3,4] negate(x) }\n"
    yield case("fusion/loop", "ROOT r = f32[3,4] fusion(p0), kind=kLoop, calls=neg", [x], [-x], before=neg)
    yield case("async/call", "s = ((f32[3,4]), f32[3,4], s32[]) async-start(p0), calls=neg\n"
               "u = ((f32[3,4]), f32[3,4], s32[]) async-update(s)\nROOT r = f32[3,4] async-done(u)", [x], [-x],
               before=neg)
    yield case("token/order",
               "t = token[] after-all()\nu = token[] after-all(t, t)\na = f32[3,4] add-dependency(p0, u)\n"
               "ROOT r = f32[3,4] add(a, p1)", [x, y], [x + y])
    yield case("domain/domain", "d = f32[3,4] domain(p0), domain={kind=\"sharding\", entry={maximal device=0}, "
               "exit={maximal device=1}}\nROOT r = f32[3,4] negate(d)", [x], [-x])
    yield case("custom_call/sharding", "a = f32[3,4] custom-call(p0), custom_call_target=\"Sharding\", "
               "sharding={devices=[1,1]<=[1]}\nROOT r = f32[3,4] negate(a)", [x], [-x])
    yield case("opt_barrier/tuple", "t = (f32[3,4], f32[3,4]) tuple(p0, p1)\nb = (f32[3,4], f32[3,4]) opt-barrier(t)\n"
               "ROOT r = f32[3,4] get-tuple-element(b), index=1", [x, y], [y])
    step = ("step { x = f32[3] parameter(0)\n c = f32[3] parameter(1)\n s = f32[3] add(x, c)\n"
            " p = f32[3] multiply(x, c)\n ROOT r = (f32[3], f32[3]) tuple(p, s) }\n")
    carry = np.concatenate([np.zeros((3, 1), f), np.cumsum(x, 1, dtype=f)], 1)
    yield case("scan/products_and_sum", "z = f32[] constant(0)\ni = f32[3] broadcast(z), dimensions={}\n"
               "ROOT r = (f32[3,4], f32[3]) scan(p0, i), dimensions={1}, num_carries=1, to_apply=step", [x],
               [x * carry[:, :-1], carry[:, -1]], close(1e-6), before=step)
    fma = ("fma { x = f32[] parameter(0)\n y = f32[] parameter(1)\n p = f32[] multiply(x, y)\n"
           " ROOT r = f32[] add(p, y) }\n")
    yield case("map/two", "ROOT r = f32[3,4] map(p0, p1), dimensions={0,1}, to_apply=fma", [x, y], [x * y + y],
               before=fma)
    for opcode, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        for name in ("pred", "s16", "u64"):
            a, b = (rng.integers(0, 2 if name == "pred" else 1000, 9).astype(DTYPES[name]) for _ in range(2))
            yield case(f"{opcode}/{opcode}_{name}", f"ROOT r = {name}[9] {opcode}(p0, p1)", [a, b], [function(a, b)])
    bits = rng.integers(0, 1 << 32, (3, 4), np.uint32)
    z = (x * 3).astype(f)
    up = bits.astype(np.float64) < np.modf(np.abs(z).astype(np.float64))[0] * 2.0**32
    expected = (np.copysign(np.floor(np.abs(z)) + up, z)).astype(np.int8)
    yield case("stochastic_convert/s8", "ROOT r = s8[3,4] stochastic-convert(p0, p1)", [z, bits], [expected])
    hi = rng.integers(-128, 128, 40).astype(np.int8)
    lo = rng.integers(-128, 128, 40).astype(np.int8)
    yield case("mulhi/s8", "ROOT r = s8[40] mulhi(p0, p1)", [hi, lo],
               [((hi.astype(int) * lo.astype(int)) >> 8).astype(np.int8)])
    u, v = (rng.integers(0, 2**64, 20, np.uint64) for _ in range(2))
    high = [(int(a) * int(b)) >> 64 for a, b in zip(u, v)]
    yield case("mulhi/u64", "ROOT r = u64[20] mulhi(p0, p1)", [u, v], [np.array(high, np.uint64)])


def denormal_cases(rng):
    """Denormal results, which XLA's CPU backend flushes to zero, are expected as numpy computes them."""
    exact = {"kind": "ulp", "max_ulp": 0, "signed_zero": True}
    two = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
           "maximum": np.maximum, "minimum": np.minimum}
    one = {"abs": np.abs, "negate": np.negative, "ceil": np.ceil, "floor": np.floor, "sqrt": np.sqrt, "sign": np.sign}
    for name in ("f32", "f64", "f16"):
        dtype = DTYPES[name]
        tiny = np.finfo(dtype).smallest_subnormal.astype(np.float64)
        steps = rng.integers(-5, 6, (2, 40)) * 2.0 ** rng.integers(0, np.finfo(dtype).nmant + 3, (2, 40))
        x, y = (steps * tiny).astype(dtype)
        y = np.where(rng.random(40) < 0.3, y, rng.standard_normal(40)).astype(dtype)
        body, expected, shape = [], [], shape_text(x)
        with np.errstate(all="ignore"):
            for i, (opcode, function) in enumerate([*two.items(), *one.items()]):
                operands = "p0, p1" if opcode in two else "p0"
                body.append(f"v{i} = {shape} {opcode}({operands})")
                expected.append(function(x, y) if opcode in two else function(x))
            body.append("lt = pred[40] compare(p0, p1), direction=LT")
            body.append("wide = f64[40] convert(p0)")
            body.append("narrow = f16[40] convert(p0)")
            expected += [x < y, x.astype(np.float64), x.astype(np.float16)]
        names = [line.split(" = ")[0] for line in body]
        body.append(f"ROOT r = ({', '.join(shape_text(e) for e in expected)}) tuple({', '.join(names)})")
        yield case(f"denormals/{name}", "\n".join(body), [x, y], expected, exact)


def contraction_cases(rng):
    f8, scale = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
    a, b = rng.standard_normal((2, 8)).astype(f8), rng.standard_normal((8, 3)).astype(f8)
    s, t = (2.0 ** rng.integers(-3, 4, (2, 2))).astype(scale), (2.0 ** rng.integers(-3, 4, (2, 3))).astype(scale)
    wide = a.astype(np.float64) * np.repeat(s.astype(np.float64), 4, 1)
    other = b.astype(np.float64) * np.repeat(t.astype(np.float64), 4, 0)
    yield case("scaled_dot/blocks_of_4", "ROOT r = f32[2,3] scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, "
               "rhs_contracting_dims={0}", [a, b, s, t], [(wide @ other).astype(np.float32)], close(1e-5))
    x, w = rng.standard_normal((5, 3)), rng.standard_normal((2, 3, 4))
    sizes = np.array([2, 3], np.int32)
    yield case("ragged_dot/rows", "ROOT r = f64[5,4] ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, "
               "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}", [x, w, sizes],
               [np.concatenate([x[:2] @ w[0], x[2:] @ w[1]])], close(1e-13))
    for name in ("f32", "f64", "c64", "c128"):
        g = rng.standard_normal((2, 4, 4)) + (1j * rng.standard_normal((2, 4, 4)) if name[0] == "c" else 0)
        m = (g @ np.conj(np.swapaxes(g, 1, 2)) + np.eye(4)).astype(DTYPES[name])
        expected = np.linalg.cholesky(m.astype(np.complex128 if name[0] == "c" else np.float64)).astype(DTYPES[name])
        tolerance = close(1e-5 if name in ("f32", "c64") else 1e-13)
        shape = shape_text(m)
        yield case(f"cholesky/lower_{name}", f"ROOT r = {shape} cholesky(p0), lower=true", [m], [expected], tolerance)
        yield case(f"cholesky/upper_{name}", f"ROOT r = {shape} cholesky(p0), lower=false", [m],
                   [np.conj(np.swapaxes(expected, 1, 2))], tolerance)


def batch_norm_cases(rng):
    for feature, name in ((1, "f32"), (3, "f64"), (0, "f32")):
        dims = (2, 3, 4, 5)
        n = dims[feature]
        x, dy = (rng.standard_normal(dims).astype(DTYPES[name]) for _ in range(2))
        scale, offset, mean = (rng.standard_normal(n).astype(DTYPES[name]) for _ in range(3))
        variance = rng.uniform(0.5, 2, n).astype(DTYPES[name])
        axes, epsilon = tuple(d for d in range(4) if d != feature), 0.0009765625  # The exact value as a float.
        along = tuple(n if d == feature else 1 for d in range(4))
        wide = x.astype(np.float64)
        m, v = wide.mean(axes), wide.var(axes)
        normal = (wide - m.reshape(along)) / np.sqrt(v.reshape(along) + epsilon)
        training = [normal * scale.reshape(along) + offset.reshape(along), m, v]
        fixed = (wide - mean.reshape(along)) / np.sqrt(variance.reshape(along).astype(np.float64) + epsilon)
        inference = fixed * scale.reshape(along) + offset.reshape(along)
        count = x.size // n
        g = dy.astype(np.float64)
        inner = (g * fixed).sum(axes)
        grad_x = (scale.reshape(along) / np.sqrt(variance.reshape(along).astype(np.float64) + epsilon) / count) * (
            count * g - g.sum(axes).reshape(along) - fixed * inner.reshape(along))
        whole, part = f"{name}[2,3,4,5]", f"{name}[{n}]"
        attributes = f"epsilon={epsilon}, feature_index={feature}"
        tolerance = close(2e-5 if name == "f32" else 1e-12)
        yield case(f"batch_norm/training_{feature}_{name}",
                   f"ROOT r = ({whole}, {part}, {part}) batch-norm-training(p0, p1, p2), {attributes}",
                   [x, scale, offset], [v.astype(DTYPES[name]) for v in training], tolerance)
        yield case(f"batch_norm/inference_{feature}_{name}",
                   f"ROOT r = {whole} batch-norm-inference(p0, p1, p2, p3, p4), {attributes}",
                   [x, scale, offset, mean, variance], [inference.astype(DTYPES[name])], tolerance)
        yield case(f"batch_norm/grad_{feature}_{name}",
                   f"ROOT r = ({whole}, {part}, {part}) batch-norm-grad(p0, p1, p2, p3, p4), {attributes}",
                   [x, scale, mean, variance, dy],
                   [a.astype(DTYPES[name]) for a in (grad_x, inner, g.sum(axes))], tolerance)


def groups_of(mode, groups, replicas, partitions):
    """Returns the groups of devices that communicate in each mode; device = replica * partitions + partition."""
    if mode == "replica":
        return [[r * partitions + p for r in group] for group in groups for p in range(partitions)]
    if mode == "partition":
        return [[r * partitions + p for p in group] for group in groups for r in range(replicas)]
    if mode == "both":
        return [[r * partitions + p for r in group for p in range(partitions)] for group in groups]
    return groups


MODES = {"replica": "", "both": "channel_id=1, ", "partition": "channel_id=1, ",
         "device": "channel_id=1, use_global_device_ids=true, "}


def collective_cases(rng):
    grids = {"replica": (2, 2, [[0, 1]]), "both": (2, 2, [[0], [1]]), "partition": (2, 2, [[1, 0]]),
             "device": (2, 2, [[0, 3], [2, 1]])}
    for mode, (replicas, partitions, groups) in grids.items():
        devices = replicas * partitions
        x = [rng.integers(-9, 10, (4, 3)).astype(np.float32) for _ in range(devices)]
        meeting = groups_of(mode, groups, replicas, partitions)
        text = "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"
        flags = f"{MODES[mode]}replica_groups={text}"
        ranks = len(meeting[0])

        def gathered(combine):
            result = [None] * devices
            for group in meeting:
                for rank, device in enumerate(group):
                    result[device] = [combine([x[d] for d in group], rank).astype(np.float32)]
            return result

        inputs = [[v] for v in x]
        if mode != "partition":
            for start, done in (("all-reduce", ""), ("all-reduce-start", "\nROOT d = f32[4,3] all-reduce-done(r)")):
                body = f"{'' if done else 'ROOT '}r = f32[4,3] {start}(p0), {flags}, to_apply=add{done}"
                yield spmd(f"collectives/{start}_{mode}", body, inputs, gathered(lambda v, r: sum(v)), replicas,
                           partitions)
            if mode != "both":  # The sum is on each group's first device; the other devices keep their values.
                yield spmd(f"collectives/collective_reduce_{mode}",
                           f"ROOT r = f32[4,3] collective-reduce(p0), {flags}, to_apply=add", inputs,
                           gathered(lambda v, r: v[r] if r else sum(v)), replicas, partitions)
            rows = 4 // ranks if 4 % ranks == 0 else 1
            yield spmd(f"collectives/reduce_scatter_{mode}",
                       f"ROOT r = f32[{rows},3] reduce-scatter(p0), {flags}, dimensions={{0}}, to_apply=add", inputs,
                       gathered(lambda v, r: np.split(sum(v), len(v))[r]), replicas, partitions)
            shape = f"f32[4,{3 * ranks}]"
            expected = gathered(lambda v, r: np.concatenate(v, 1))
            yield spmd(f"collectives/all_gather_{mode}", f"ROOT r = {shape} all-gather(p0), {flags}, dimensions={{1}}",
                       inputs, expected, replicas, partitions)
            yield spmd(f"collectives/all_gather_start_{mode}",
                       f"s = (f32[4,3], {shape}) all-gather-start(p0), {flags}, dimensions={{1}}\n"
                       f"ROOT r = {shape} all-gather-done(s)", inputs, expected, replicas, partitions)
        if mode != "both":
            yield spmd(f"collectives/all_to_all_{mode}", f"ROOT r = f32[4,3] all-to-all(p0), {flags}, dimensions={{0}}",
                       inputs, gathered(lambda v, r: np.concatenate([np.split(a, len(v))[r] for a in v])), replicas,
                       partitions)
            yield spmd(f"collectives/broadcast_{mode}", f"ROOT r = f32[4,3] collective-broadcast(p0), {flags}", inputs,
                       gathered(lambda v, r: v[0]), replicas, partitions)
        if mode in ("replica", "partition"):
            zeros = np.zeros((4, 3), np.float32)
            expected = [None] * devices
            for r in range(replicas):
                for p in range(partitions):
                    own, source = (r, p) if mode == "replica" else (p, r), None
                    if own[0] == 1:  # The pair is {0,1}: replica or partition 1 gets the value of 0, which gets zeros.
                        source = p if mode == "replica" else r * partitions
                    expected[r * partitions + p] = [zeros if source is None else x[source]]
            pairs = f"{MODES[mode]}source_target_pairs={{{{0,1}}}}"
            yield spmd(f"collectives/permute_{mode}", f"ROOT r = f32[4,3] collective-permute(p0), {pairs}", inputs,
                       expected, replicas, partitions)
            yield spmd(f"collectives/permute_start_{mode}",
                       f"s = (f32[4,3], f32[4,3], u32[], u32[]) collective-permute-start(p0), {pairs}\n"
                       "ROOT r = f32[4,3] collective-permute-done(s)", inputs, expected, replicas, partitions)
    yield from ragged_cases(rng)


def ragged_cases(rng):
    x = [rng.standard_normal((4, 2)).astype(np.float32) for _ in range(2)]
    # Device d sends rows [0, 1 + d) to device 0 and the next row to device 1.
    offsets = [np.array([0, 1 + d], np.int32) for d in range(2)]
    sizes = [np.array([1 + d, 1], np.int32) for d in range(2)]
    received = [np.array([sizes[s][d] for s in range(2)], np.int32) for d in range(2)]
    placed = [np.array([0 if d == 0 else sizes[0][t] for t in range(2)], np.int32) for d in range(2)]
    empty = np.full((5, 2), -1, np.float32)
    expected = []
    for to in range(2):
        out = empty.copy()
        for s in range(2):
            rows = x[s][offsets[s][to]:offsets[s][to] + sizes[s][to]]
            out[placed[s][to]:placed[s][to] + len(rows)] = rows
        expected.append([out])
    inputs = [[x[d], empty, offsets[d], sizes[d], placed[d], received[d]] for d in range(2)]
    yield spmd("collectives/ragged_all_to_all", "ROOT r = f32[5,2] ragged-all-to-all(p0, p1, p2, p3, p4, p5), "
               "channel_id=1, replica_groups={{0,1}}", inputs, expected, 1, 2)
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}'
    v = [rng.standard_normal(3).astype(np.float32) for _ in range(3)]
    yield spmd("collectives/send_recv", "t = token[] after-all()\n"
               f"s = (f32[3], u32[], token[]) send(p0, t), channel_id=2, {pairs}\n"
               "sd = token[] send-done(s), channel_id=2\n"
               f"r = (f32[3], u32[], token[]) recv(sd), channel_id=2, {pairs}\n"
               "rd = (f32[3], token[]) recv-done(r), channel_id=2\nROOT x = f32[3] get-tuple-element(rd), index=0",
               [[a] for a in v], [[np.zeros(3, np.float32)], [v[0]], [v[1]]], 1, 3)
    yield spmd("collectives/ids", "a = u32[] replica-id()\nb = u32[] partition-id()\nc = u32[] convert(p0)\n"
               "ROOT r = (u32[], u32[], u32[]) tuple(a, b, c)", [[np.int32(d)] for d in range(6)],
               [[np.uint32(d // 2), np.uint32(d % 2), np.uint32(d)] for d in range(6)], 3, 2)


def all_cases():
    rng = np.random.default_rng(5)
    for family in (math_cases, structure_cases, denormal_cases, contraction_cases, batch_norm_cases, collective_cases):
        yield from family(rng)

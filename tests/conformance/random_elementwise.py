"""Random elementwise instructions, each of one opcode and element type."""

import numpy as np

from cases import BITS, COMPLEX, DTYPES, FLOATS, INTEGERS, SIGNED, UNSIGNED
from program import FLUSHED_EQUAL, close, shape, ulp
from values import random_array, random_shape

# s4 and u4 come last, so that popcnt can omit them with a slice: for them, XLA counts the bits of the whole byte.
WHOLE = ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "s4", "u4"]
REAL = FLOATS + ["f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e4m3", "f8e3m4"]

# opcode: (element types, the allowed error of f32 and f64 in units in the last place, or None if results must be exact
# except for denormals). Types of at most 16 bits are allowed one unit, and complex types the errors in RELATIVE.
UNARY = {
    "abs": (SIGNED[1:] + REAL + COMPLEX, None), "negate": (WHOLE + REAL + COMPLEX, None),
    "sign": (SIGNED[1:] + REAL + COMPLEX, None), "not": (["pred"] + WHOLE, None),
    "popcnt": (WHOLE[:-2], None), "count-leading-zeros": (WHOLE, None),
    "ceil": (REAL, None), "floor": (REAL, None), "round-nearest-afz": (REAL, None),
    "round-nearest-even": (REAL, None), "is-finite": (REAL, None), "real": (FLOATS + COMPLEX, None),
    "imag": (FLOATS + COMPLEX, None), "copy": (list(DTYPES), None), "reverse": (WHOLE + REAL + COMPLEX, None),
    "cbrt": (REAL, 4), "cosine": (FLOATS + COMPLEX, 4), "erf": (FLOATS, 4), "exponential": (REAL + COMPLEX, 4),
    "exponential-minus-one": (FLOATS + COMPLEX, 8), "log": (REAL + COMPLEX, 4),
    "log-plus-one": (FLOATS + COMPLEX, 8), "logistic": (FLOATS + COMPLEX, 8), "rsqrt": (FLOATS + COMPLEX, 4),
    "sine": (FLOATS + COMPLEX, 4), "sqrt": (REAL + COMPLEX, 1), "tan": (FLOATS + COMPLEX, 8),
    "tanh": (FLOATS + COMPLEX, 8),
}
BINARY = {
    "add": ["pred"] + WHOLE + REAL + COMPLEX, "subtract": WHOLE + REAL + COMPLEX,
    "multiply": ["pred"] + WHOLE + REAL + COMPLEX, "divide": WHOLE + REAL + COMPLEX, "remainder": WHOLE + REAL,
    "maximum": ["pred"] + WHOLE + REAL, "minimum": ["pred"] + WHOLE + REAL, "and": ["pred"] + WHOLE,
    "or": ["pred"] + WHOLE, "xor": ["pred"] + WHOLE, "power": WHOLE + FLOATS + COMPLEX, "atan2": FLOATS + COMPLEX,
    "shift-left": WHOLE, "shift-right-arithmetic": WHOLE, "shift-right-logical": WHOLE, "mulhi": WHOLE,
    "complex": ["f32", "f64"],
}
RESULT = {"is-finite": lambda name: "pred", "complex": lambda name: {"f32": "c64", "f64": "c128"}[name]}
PARTS = {"c64": "f32", "c128": "f64"}
RELATIVE = {"c64": 3e-5, "c128": 1e-13}


def dims_for(rng):
    return (int(rng.integers(20, 60)),) if rng.random() < 0.7 else random_shape(rng)


def tolerance(opcode, name, units):
    if units is None or name in ("s32", "pred"):
        rounds = name in COMPLEX and opcode in ("abs", "sign")
        return {**close(RELATIVE[name]), "flush_denormals": True} if rounds else FLUSHED_EQUAL
    if name in COMPLEX:
        return close(RELATIVE[name], RELATIVE[name])
    return ulp(1 if BITS[name] <= 16 else units)


def result_type(opcode, name):
    if opcode in ("abs", "real", "imag") and name in PARTS:
        return PARTS[name]
    return RESULT.get(opcode, lambda name: name)(name)


def unary(program, rng, opcode, name):
    # XLA's formulas for complex functions overflow to NaN, but those of C and xlad overflow to infinities. Arguments
    # that overflow are avoided.
    tame = name in COMPLEX and UNARY[opcode][1] is not None
    x = random_array(rng, name, dims_for(rng), name not in COMPLEX, not tame)
    attributes = "dimensions={" + ",".join(map(str, range(x.ndim))) + "}" if opcode == "reverse" else ""
    result = shape(result_type(opcode, name), x.shape)
    root = program.op(result, opcode, [program.parameter(x)], attributes)
    program.result(root, result, tolerance(opcode, name, UNARY[opcode][1]))


def binary(program, rng, opcode, name):
    dims = dims_for(rng)
    special = name not in COMPLEX or opcode in ("add", "subtract")
    x = random_array(rng, name, dims, name not in COMPLEX, special)
    y = random_array(rng, name, dims, name not in COMPLEX, special)
    if opcode.startswith("shift") and rng.random() < 0.7:  # Most shift counts are near the width.
        y = rng.integers(-1 if name in SIGNED else 0, BITS[name] + 2, dims).clip(
            0 if name in UNSIGNED else -2, 7 if BITS[name] == 4 else 127).astype(DTYPES[name])
    if opcode == "power" and name in INTEGERS:
        y = rng.integers(-3 if name in SIGNED else 0, 6, dims).astype(DTYPES[name])
    result = shape(result_type(opcode, name), dims)
    root = program.op(result, opcode, [program.parameter(x), program.parameter(y)])
    if name in COMPLEX:
        compare = FLUSHED_EQUAL if opcode in ("add", "subtract") else close(RELATIVE[name] * 10, RELATIVE[name])
    else:
        compare = ulp(8 if BITS[name] > 16 else 1) if opcode in ("power", "atan2") and name in FLOATS else FLUSHED_EQUAL
    program.result(root, result, compare)


def compare(program, rng, opcode, name):
    dims = dims_for(rng)
    x, y = random_array(rng, name, dims), random_array(rng, name, dims)
    y = np.where(rng.random(dims) < 0.3, x, y).astype(x.dtype)
    operands = [program.parameter(x), program.parameter(y)]
    directions = ["EQ", "NE"] if name in COMPLEX else ["EQ", "NE", "LT", "LE", "GT", "GE"]
    kinds = [""] + ([", type=TOTALORDER"] if name in FLOATS else [])
    for direction in directions:
        for kind in kinds:
            root = program.op(shape("pred", dims), "compare", operands, f"direction={direction}{kind}")
            program.result(root, shape("pred", dims), FLUSHED_EQUAL)


def select(program, rng, opcode, name):
    dims = dims_for(rng)
    x, y = random_array(rng, name, dims), random_array(rng, name, dims)
    condition = random_array(rng, "pred", dims if rng.random() < 0.7 else ())
    root = program.op(shape(name, dims), "select", [program.parameter(v) for v in (condition, x, y)])
    program.result(root, shape(name, dims), FLUSHED_EQUAL)


def clamp(program, rng, opcode, name):
    dims = dims_for(rng)
    low, high = (random_array(rng, name, dims if rng.random() < 0.5 else ()) for _ in range(2))
    operands = [program.parameter(v) for v in (low, random_array(rng, name, dims), high)]
    program.result(program.op(shape(name, dims), "clamp", operands), shape(name, dims), FLUSHED_EQUAL)


def convert(program, rng, source, target):
    # XLA has no rule for converting NaN to a type that has no NaN.
    x = random_array(rng, source, dims_for(rng), special=target != "f4e2m1fn")
    result = shape(target, x.shape)
    program.result(program.op(result, "convert", [program.parameter(x)]), result, FLUSHED_EQUAL)


def bitcast_convert(program, rng, source, target):
    ratio = BITS[source] / BITS[target]
    dims = random_shape(rng)
    x = random_array(rng, source, dims if ratio >= 1 else (*dims, int(1 / ratio)), special=False)
    result = shape(target, dims if ratio <= 1 else (*dims, int(ratio)))
    root = program.op(result, "bitcast-convert", [program.parameter(x)])
    program.result(root, result, {"kind": "eq"})


def reduce_precision(program, rng, opcode, name):
    x = random_array(rng, name, dims_for(rng))
    operand = program.parameter(x)
    bits = {"f64": (11, 52), "f32": (8, 23), "f16": (5, 10), "bf16": (8, 7)}[name]
    for _ in range(4):
        exponent, mantissa = int(rng.integers(1, 12)), int(rng.integers(0, bits[1] + 1))
        exponent = min(exponent, bits[0])
        root = program.op(shape(name, x.shape), "reduce-precision", [operand],
                          f"exponent_bits={exponent}, mantissa_bits={mantissa}")
        program.result(root, shape(name, x.shape), FLUSHED_EQUAL)


def generators():
    """Returns (name, function that adds an instruction to a program) for every kind of instruction."""
    found = []

    def add(family, name, function, *arguments):
        found.append((f"{family}/{name}", lambda program, rng: function(program, rng, *arguments)))

    for opcode, (names, _) in UNARY.items():
        for name in names:
            add(opcode, name, unary, opcode, name)
    for opcode, names in BINARY.items():
        for name in names:
            add(opcode, name, binary, opcode, name)
    for name in ["pred"] + WHOLE + REAL + COMPLEX:
        add("compare", name, compare, "compare", name)
        add("select", name, select, "select", name)
    for name in WHOLE + REAL:
        add("clamp", name, clamp, "clamp", name)
    for name in FLOATS:
        add("reduce-precision", name, reduce_precision, "reduce-precision", name)
    for source in DTYPES:
        for target in DTYPES:
            # XLA converts the largest number of f4 to the largest integer, so these conversions are left out.
            wrong = source == "f4e2m1fn" and target in INTEGERS
            if source != target and not (source in COMPLEX and target not in COMPLEX) and not wrong:
                add("convert", f"{source}_{target}", convert, source, target)
            wide = "pred" not in (source, target) and not {source, target} & set(COMPLEX)
            if wide and max(BITS[source], BITS[target]) % min(BITS[source], BITS[target]) == 0 and source != target:
                add("bitcast-convert", f"{source}_{target}", bitcast_convert, source, target)
    return found

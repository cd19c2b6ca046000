"""Random values of every element type: special ones, extremes, wide exponents."""

import ml_dtypes
import numpy as np

from cases import BITS, COMPLEX, DTYPES, INTEGERS, UNSIGNED


def float_values(rng, name, count, wide, special):
    dtype = DTYPES[name]
    values = rng.standard_normal(count) * 3
    if wide:
        exponents = {"f64": 300, "f32": 37, "bf16": 37, "f16": 4}.get(name, 2)
        chosen = rng.random(count) < 0.3
        values = np.where(chosen, values * 10.0 ** rng.uniform(-exponents, exponents, count), values)
    values = np.where(rng.random(count) < 0.1, np.round(values), values)
    with np.errstate(all="ignore"):
        result = values.astype(dtype)
        info = ml_dtypes.finfo(dtype)
        # As an f32, the smallest value of f8e8m0fnu (2**-127) is denormal.
        smallest = max(float(info.smallest_normal), 2.0**-126 if name == "f8e8m0fnu" else 0)
        small = np.abs(result.astype(np.float64)) < smallest
        result = np.where(small, np.zeros_like(result), result)
        if special:
            table = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, 3.5, -2.5, float(info.max),
                              float(info.min), smallest, -smallest]).astype(dtype)
            places = rng.random(count) < 0.25
            result = np.where(places, table[rng.integers(0, len(table), count)], result)
    return result.astype(dtype)


def int_values(rng, name, count, wide=True):
    bits, signed = BITS[name], name not in UNSIGNED
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if not wide:
        low, high = max(low, -4), min(high, 4)
        return rng.integers(low, high + 1, count).astype(DTYPES[name])
    # Random bits of random widths, some of them replaced by extreme values.
    values = [int(rng.integers(0, 1 << 63)) * 2 + int(rng.integers(0, 2)) for _ in range(count)]
    values = [(v >> int(rng.integers(64 - bits, 64))) * (int(rng.choice([-1, 1])) if signed else 1) for v in values]
    table = [v for v in (0, 1, -1, 2, 3, -2, low, high, low + 1, high - 1, bits, bits - 1) if low <= v <= high]
    values = [table[rng.integers(len(table))] if rng.random() < 0.3 else min(max(v, low), high) for v in values]
    return np.array(values, dtype=object).astype(np.int64 if signed else np.uint64).astype(DTYPES[name])


def random_array(rng, name, shape, wide=True, special=True):
    count = int(np.prod(shape, dtype=np.int64))
    if name == "pred":
        values = rng.random(count) < 0.5
    elif name in INTEGERS:
        values = int_values(rng, name, count, wide)
    elif name in COMPLEX:
        part = "f32" if name == "c64" else "f64"
        values = np.empty(count, DTYPES[name])
        values.real = float_values(rng, part, count, wide, special)
        values.imag = float_values(rng, part, count, wide, special)
    else:
        values = float_values(rng, name, count, wide, special)
    return values.reshape(shape)


def random_shape(rng, max_ndim=3, max_size=5, empty=0.05):
    ndim = int(rng.integers(0, max_ndim + 1))
    return tuple(0 if rng.random() < empty else int(rng.integers(1, max_size + 1)) for _ in range(ndim))


def dims_text(dims):
    return ",".join(str(int(d)) for d in dims)

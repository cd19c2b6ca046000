"""Element types and their names in numpy, HLO and safetensors."""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes  # noqa: F401  Registers bfloat16 and the 8-bit floats with numpy.
import numpy as np


class ElementType(NamedTuple):
    numpy: str
    hlo: str
    number: int  # XLA's PrimitiveType
    # None if safetensors lacks the type. Then it is stored as bytes, with one more dimension if an element has several.
    safetensors: str | None


TYPES = [
    ElementType("bool", "pred", 1, "BOOL"),
    ElementType("int8", "s8", 2, "I8"),
    ElementType("int16", "s16", 3, "I16"),
    ElementType("int32", "s32", 4, "I32"),
    ElementType("int64", "s64", 5, "I64"),
    ElementType("uint8", "u8", 6, "U8"),
    ElementType("uint16", "u16", 7, "U16"),
    ElementType("uint32", "u32", 8, "U32"),
    ElementType("uint64", "u64", 9, "U64"),
    ElementType("float16", "f16", 10, "F16"),
    ElementType("float32", "f32", 11, "F32"),
    ElementType("float64", "f64", 12, "F64"),
    ElementType("complex64", "c64", 15, "C64"),
    ElementType("bfloat16", "bf16", 16, "BF16"),
    ElementType("complex128", "c128", 18, None),
    ElementType("float8_e5m2", "f8e5m2", 19, "F8_E5M2"),
    ElementType("float8_e4m3fn", "f8e4m3fn", 20, "F8_E4M3"),
    ElementType("int4", "s4", 21, None),
    ElementType("uint4", "u4", 22, None),
    ElementType("float8_e4m3b11fnuz", "f8e4m3b11fnuz", 23, None),
    ElementType("float8_e5m2fnuz", "f8e5m2fnuz", 24, None),
    ElementType("float8_e4m3fnuz", "f8e4m3fnuz", 25, None),
    ElementType("int2", "s2", 26, None),
    ElementType("uint2", "u2", 27, None),
    ElementType("float8_e4m3", "f8e4m3", 28, None),
    ElementType("float8_e3m4", "f8e3m4", 29, None),
    ElementType("float4_e2m1fn", "f4e2m1fn", 32, None),
    ElementType("float8_e8m0fnu", "f8e8m0fnu", 33, None),
]
BY_NUMPY = {row.numpy: row for row in TYPES}
BY_HLO = {row.hlo: row for row in TYPES}
BY_NUMBER = {row.number: row for row in TYPES}
BY_SAFETENSORS = {row.safetensors: row for row in TYPES if row.safetensors}


def of_dtype(dtype: np.dtype, place: str) -> ElementType:
    row = BY_NUMPY.get(np.dtype(dtype).name)
    if row is None:
        raise TypeError(f"{place}: found an array of {dtype}, expected one of {', '.join(BY_NUMPY)}")
    return row


def shape_text(dtype: np.dtype, shape: tuple[int, ...], place: str = "") -> str:
    """Returns the shape as HLO text: "f32[8,192]"."""
    return f"{of_dtype(dtype, place).hlo}[{','.join(map(str, shape))}]"


def parse_shape(text: str) -> tuple[ElementType, tuple[int, ...]]:
    name, _, dims = text.rstrip("]").partition("[")
    if name not in BY_HLO or not text.endswith("]"):
        raise ValueError(f"found shape {text!r}, expected a type and its dimensions, as in f32[8,192]")
    return BY_HLO[name], tuple(int(size) for size in dims.split(",") if size)

"""Arrays by name as safetensors bytes: a length, a JSON header and then the arrays in order."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from xlad import element_types


class Unindexed(dict[str, np.ndarray]):
    """The arrays of a file without an index that names the types which safetensors lacks. Arrays of these types are
    bytes."""


def dump(arrays: Mapping[str, np.ndarray]) -> bytes:
    header: dict[str, object] = {}
    offset = 0
    for name, array in arrays.items():
        row = element_types.of_dtype(array.dtype, name)
        shape = list(array.shape)
        if row.safetensors is None and array.itemsize > 1:
            shape.append(array.itemsize)
        end = offset + array.nbytes
        header[name] = {"dtype": row.safetensors or "U8", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [len(text).to_bytes(8, "little"), text]
    parts += [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
    return b"".join(parts)


def parse(data: bytes) -> Unindexed:
    """Returns the arrays by name. They share the memory of `data` and are read-only."""
    size = int.from_bytes(data[:8], "little")
    arrays = Unindexed()
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = np.dtype(element_types.BY_SAFETENSORS[entry["dtype"]].numpy)
        arrays[name] = np.frombuffer(data, dtype, (end - begin) // dtype.itemsize, 8 + size + begin).reshape(
            entry["shape"]
        )
    return arrays

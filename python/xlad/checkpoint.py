"""Checkpoints as arrays by name: docs/reference/checkpoints.md describes the files."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from xlad import element_types, safetensors


def read(uri: str, get_blob: Callable[[str], bytes]) -> dict[str, np.ndarray]:
    """Returns the complete tensors of a checkpoint by name.

    `get_blob` reads blobs (xlad:DIGEST); other URIs (file:FOLDER) are folders on this machine.
    """
    folder = pathlib.Path(uri.removeprefix("file:"))

    def contents(name: str) -> bytes:
        return get_blob(name.removeprefix("xlad:")) if name.startswith("xlad:") else (folder / name).read_bytes()

    index = json.loads(contents(uri if uri.startswith("xlad:") else "index.json"))
    dims = {tensor["name"]: _integers(tensor["shape"].get("dims")) for tensor in index.get("tensors", [])}
    tensors: dict[str, np.ndarray] = {}
    for shard in index.get("shards", []):
        arrays = safetensors.parse(contents(shard["uri"]))
        for piece in shard.get("pieces", []):
            name = piece["tensor"]
            box = list(zip(_integers(piece["box"].get("lo")), _integers(piece["box"].get("hi"))))
            if box == [(0, size) for size in dims[name]]:
                tensors[name] = arrays[name]
                continue
            array = arrays[name + "[" + ", ".join(f"{lo}:{hi}" for lo, hi in box) + "]"]
            if name not in tensors:  # A tensor that is stored as the bytes of its elements has one more dimension.
                tensors[name] = np.empty([*dims[name], *array.shape[len(box):]], array.dtype)
            tensors[name][tuple(slice(lo, hi) for lo, hi in box)] = array
    for tensor in index.get("tensors", []):
        name, row = tensor["name"], element_types.BY_NUMBER[tensor["shape"]["element_type"]]
        array = tensors.setdefault(name, np.empty(dims[name], row.numpy))  # Tensors without elements have no pieces.
        if row.safetensors is None:  # Stored as bytes.
            tensors[name] = array.view(row.numpy).reshape(dims[name])
    return tensors


def _integers(texts: Any) -> list[int]:
    return [int(text) for text in texts or []]

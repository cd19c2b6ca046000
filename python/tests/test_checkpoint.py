"""Checkpoints are read by the package and by the reader that docs/reference/checkpoints.md prints."""

from __future__ import annotations

import json
import pathlib
import re
import tempfile
import unittest
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from xlad import checkpoint

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/checkpoints.md"
STATE = {
    "w": np.arange(48, dtype=np.float32).reshape(6, 8),
    "scale": np.float32(2.5).reshape(()),
    "ids": np.arange(7, dtype=np.int64),
    "z": (np.arange(6) + 1j).astype(np.complex128),  # Stored as the bytes of its elements.
}
ELEMENT_TYPES = {"w": 11, "scale": 11, "ids": 5, "z": 18, "none": 11}
# For each shard, the names and boxes of its pieces.
SHARDS: list[list[tuple[str, list[tuple[int, int]]]]] = [
    [("w", [(0, 6), (0, 3)]), ("scale", []), ("z", [(0, 4)])],
    [("w", [(0, 2), (3, 8)]), ("ids", [(0, 7)])],
    [("w", [(2, 6), (3, 8)]), ("z", [(4, 6)])],
]


def stored(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.complex128:
        return np.ascontiguousarray(array)
    return np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, 16)


def write(folder: pathlib.Path) -> None:
    shards: list[dict[str, Any]] = []
    for number, pieces in enumerate(SHARDS):
        arrays = {}
        for name, box in pieces:
            whole = box == [(0, size) for size in STATE[name].shape]
            text = name if whole else name + "[" + ", ".join(f"{lo}:{hi}" for lo, hi in box) + "]"
            arrays[text] = stored(STATE[name][tuple(slice(lo, hi) for lo, hi in box)])
        save_file(arrays, folder / f"shard-{number}.safetensors")
        described = []
        for name, box in pieces:
            bounds = {"lo": [str(lo) for lo, _ in box], "hi": [str(hi) for _, hi in box]}
            described.append({"tensor": name, "box": bounds if box else {}})
        shards.append({"uri": f"shard-{number}.safetensors", "pieces": described})
    shapes: dict[str, tuple[int, ...]] = {name: array.shape for name, array in STATE.items()} | {"none": (0, 3)}
    tensors = []
    for name, dims in shapes.items():
        shape: dict[str, Any] = {"element_type": ELEMENT_TYPES[name]}
        tensors.append({"name": name, "shape": shape | ({"dims": [str(size) for size in dims]} if dims else {})})
    (folder / "index.json").write_text(json.dumps({"step": "30", "tensors": tensors, "shards": shards}))


class CheckpointTest(unittest.TestCase):
    def test_both_readers_assemble_the_pieces(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write(folder)
            namespace: dict[str, Any] = {}
            [code] = re.findall(r"```python\n(import json\n.*?)```", PAGE.read_text(), re.DOTALL)
            self.assertLessEqual(len(code.splitlines()), 40)
            exec(code, namespace)  # noqa: S102  The page's own code.
            documented, step = namespace["read_checkpoint"](folder)
            self.assertEqual(step, 30)
            read = checkpoint.read(f"file:{folder}", lambda digest: b"")
        self.assertEqual(read["none"].shape, (0, 3))
        for tensors in (documented, read):
            for key, array in STATE.items():
                np.testing.assert_array_equal(tensors[key], stored(array), key)


if __name__ == "__main__":
    unittest.main()

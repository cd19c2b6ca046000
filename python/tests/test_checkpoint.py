"""Checkpoints are read by the package and by the reader that docs/reference/checkpoints.md prints."""

from __future__ import annotations

import json
import pathlib
import re
import tempfile
import unittest
from typing import Any

import jax
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from xlad import checkpoint, safetensors
from xlad.training import restore_like

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/checkpoints.md"
STATE = {
    "w": np.arange(48, dtype=np.float32).reshape(6, 8),
    "scale": np.float32(2.5).reshape(()),
    "ids": np.arange(7, dtype=np.int64),
    "z": (np.arange(6) + 1j).astype(np.complex128),  # Stored as the bytes of its elements, like the next two.
    "one": np.complex128(2 - 1j).reshape(()),
    "small": np.array([1, -2, 3], ml_dtypes.int4),
}
ELEMENT_TYPES = {"w": 11, "scale": 11, "ids": 5, "z": 18, "one": 18, "small": 21, "none": 11}
# For each shard, the names and boxes of its pieces.
SHARDS: list[list[tuple[str, list[tuple[int, int]]]]] = [
    [("w", [(0, 6), (0, 3)]), ("scale", []), ("z", [(0, 4)])],
    [("w", [(0, 2), (3, 8)]), ("ids", [(0, 7)])],
    [("w", [(2, 6), (3, 8)]), ("z", [(4, 6)]), ("one", []), ("small", [(0, 3)])],
]


def stored(array: np.ndarray) -> np.ndarray:
    if array.dtype not in (np.complex128, ml_dtypes.int4):
        return np.ascontiguousarray(array)
    size = array.itemsize
    return np.frombuffer(array.tobytes(), np.uint8).reshape(*array.shape, *([size] if size > 1 else []))


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
        for key, array in STATE.items():
            np.testing.assert_array_equal(documented[key], stored(array), key)
            self.assertEqual((read[key].dtype, read[key].tobytes()), (array.dtype, array.tobytes()), key)

    def test_a_saved_state_gets_the_structure_of_a_tree(self) -> None:
        key = jax.random.key(3)
        words = np.asarray(jax.random.key_data(key))
        saved = {"n": np.array(2 - 1j), "w.0": np.arange(3, dtype=np.int32), "w.1": words}
        tree = {"n": 0, "w": jax.eval_shape(lambda: [jax.numpy.arange(3), key])}
        found = restore_like(tree)(saved)
        self.assertEqual((found["n"].dtype, found["n"]), (np.complex128, 2 - 1j))  # A number of Python has any type.
        np.testing.assert_array_equal(found["w"][0], saved["w.0"])
        self.assertEqual(found["w"][1], key)
        for wrong in (np.zeros(3, np.float32), np.zeros((3, 1), np.int32)):
            with self.assertRaisesRegex(ValueError, r"found s32\[3\] for state w.0 in the saved state, expected"):
                restore_like({"n": 0, "w": [wrong]})(saved)

    def test_bytes_are_of_another_type_only_without_an_index(self) -> None:
        state = {"one": STATE["one"], "small": STATE["small"], "z": STATE["z"]}
        with jax.enable_x64(True):  # Without it, JAX has no type of 128 bits.
            found = restore_like(state)(safetensors.parse(safetensors.dump(state)))
            for key, array in state.items():
                self.assertEqual((found[key].dtype, found[key].tobytes()), (array.dtype, array.tobytes()), key)
            error = r"found u8\[3\] for state small in the saved state, expected s4\[3\]"
            with self.assertRaisesRegex(ValueError, error):
                restore_like({"small": STATE["small"]})({"small": np.zeros(3, np.uint8)})
            for size in (24, 96):
                wrong = safetensors.parse(safetensors.dump({"z": np.zeros(size, np.uint8)}))
                error = rf"found u8\[{size}\] for state z in the saved state, expected c128\[6\]"
                with self.assertRaisesRegex(ValueError, error):
                    restore_like({"z": STATE["z"]})(wrong)


if __name__ == "__main__":
    unittest.main()

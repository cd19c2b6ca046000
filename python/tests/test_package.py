"""The package as a user installs it, and its formats."""

import ast
import graphlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

import numpy as np
from harness import PATIENCE_S, REPO
from safetensors import numpy as reference

import xlad
from xlad import element_types, safetensors
from xlad.installed_command import find_program
from xlad.job import parse_axes, read_directory


class Formats(unittest.TestCase):
    def test_safetensors_files_agree_with_the_reference(self):
        rng = np.random.default_rng(1)
        arrays = {f"{name}.{i}": rng.integers(0, 2, shape).astype(name)
                  for name in ("bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64")
                  for i, shape in enumerate([(), (0,), (1,), (7, 3), (2, 0, 3)])}
        written = safetensors.dump(arrays)
        for found in (reference.load(written), safetensors.parse(written), safetensors.parse(reference.save(arrays))):
            self.assertEqual(set(found), set(arrays))
            for name, array in arrays.items():
                self.assertEqual((found[name].dtype, found[name].shape), (array.dtype, array.shape), name)
                np.testing.assert_array_equal(found[name], array)
        self.assertEqual(safetensors.parse(safetensors.dump({})), {})
        whole = safetensors.parse(safetensors.dump({"c": np.ones((2, 3), np.complex128), "i": np.ones(3, "int4"),
                                                   "b": np.full(3, 1.5, "bfloat16")}))
        np.testing.assert_array_equal(whole["b"], np.full(3, 1.5, "bfloat16"))
        self.assertEqual((whole["c"].shape, whole["c"].dtype, whole["i"].shape), ((2, 3, 16), np.uint8, (3,)))

    def test_versions_are_equal(self):
        project = tomllib.loads((REPO / "python" / "pyproject.toml").read_text())["project"]
        self.assertEqual(xlad.__version__, project["version"])
        self.assertIn(f"project(xlad VERSION {xlad.__version__} ", (REPO / "CMakeLists.txt").read_text())

    def test_shapes_and_axes(self):
        for row in element_types.TYPES:
            for dims in ((), (5,), (2, 0, 3)):
                text = element_types.shape_text(np.dtype(row.numpy), dims)
                self.assertEqual(element_types.parse_shape(text), (row, dims))
        for bad in ("f32", "f33[2]", "[2]", "f32[2", "f32[a]"):
            with self.assertRaises(ValueError):
                element_types.parse_shape(bad)
        for text in ("dp=4,tp=2", " dp=4, tp=2"):
            self.assertEqual(parse_axes(text), {"dp": 4, "tp": 2})
        self.assertEqual(parse_axes("") or parse_axes("single"), {})
        for bad in ("dp", "dp=", "=3", "dp=0", "dp=-1", "dp=2,dp=2", "dp=2,"):
            with self.assertRaisesRegex(ValueError, "expected AXIS=SIZE"):
                parse_axes(bad)

    def test_directories_return_the_text_unless_it_omits_constants(self):
        with tempfile.TemporaryDirectory() as where:
            folder = pathlib.Path(where)
            mesh = {"name": "single", "axes": {}, "files": ["s.hlo", "s.hlo.pb"]}
            manifest = {"name": "j", "parameters": [], "results": [], "steps": 1, "meshes": [mesh]}
            (folder / "manifest.json").write_text(json.dumps(manifest))
            (folder / "state.safetensors").write_bytes(safetensors.dump({}))
            (folder / "s.hlo.pb").write_bytes(b"proto")
            for text, program in ((b"text", b"text"), (b"c = f32[99] constant({...})", b"proto")):
                (folder / "s.hlo").write_bytes(text)
                self.assertEqual(read_directory(folder, {}, None).program, program)


def imports_of(tree: ast.AST) -> set[str]:
    """Returns the modules of the package that a module imports, in functions too, but not for type checkers alone."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        names: list[str] = []  # With the name of the package.
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = ".".join(filter(None, ["xlad" if node.level else "", node.module]))
            names = [f"xlad.{name.name}" for name in node.names] if module == "xlad" else [module]
        found |= {name.removeprefix("xlad.") for name in names if name.startswith("xlad.")}
        found |= imports_of(node)
    return found


class Modules(unittest.TestCase):
    def test_imports_have_no_cycles(self):
        files = {path.stem: path for path in (REPO / "python" / "xlad").glob("*.py")}
        graph = {name: imports_of(ast.parse(path.read_text())) & files.keys() for name, path in files.items()}
        self.assertIn("connection", graph["cluster"])
        graphlib.TopologicalSorter(graph).prepare()  # Raises CycleError, which names the modules of a cycle.

    def test_imports_are_found(self):
        text = ("from xlad import a\nif TYPE_CHECKING:\n  from xlad import b\n"
                "def f():\n  from xlad.c import d\n  if x:\n    from xlad import e, f\n"
                "import os, xlad, xlad.g as h, xlad.i\nfrom . import j\nfrom .k import l\nfrom os import m")
        self.assertEqual(imports_of(ast.parse(text)), {"a", "c", "e", "f", "g", "i", "j", "k"})


class Installed(unittest.TestCase):
    def test_the_script_of_the_readme(self):
        script = re.search(r"```python\n(.*?)```", (REPO / "README.md").read_text(), re.S).group(1)
        done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "XLAD": find_program()},
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        losses = [float(line.split()[1]) for line in done.stdout.splitlines()]
        self.assertLess(losses[-1], 0.5 * losses[0])

    def test_in_a_fresh_environment(self):
        """Installs from a checkout as README.md says, with the installed jax. The checkout is a copy, because an
        installation makes and removes folders in it, which other tests may be reading."""
        with tempfile.TemporaryDirectory() as where, tempfile.TemporaryDirectory() as copy:
            for name in ("python", "proto"):
                shutil.copytree(REPO / name, pathlib.Path(copy) / name,
                                ignore=shutil.ignore_patterns("build", "bin", "__pycache__", "*.egg-info", "*.binpb"))
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", where], check=True)
            python = pathlib.Path(where) / "bin" / "python"
            done = subprocess.run([sys.executable, "-m", "pip", "--python", where, "install", "-q", "--no-deps",
                                   f"{copy}/python"], capture_output=True, text=True)
            unreachable = ("NewConnectionError|NameResolutionError|Temporary failure in name resolution|ConnectTimeout|"
                           "ReadTimeout|ProxyError")
            if done.returncode != 0 and re.search(unreachable, done.stderr):
                self.skipTest(f"the package index cannot be reached: {done.stderr[-1000:]}")
            self.assertEqual(done.returncode, 0, done.stderr)
            here = next(path for path in sys.path if path.endswith("site-packages"))
            there = subprocess.run([python, "-c", "import site; print(site.getsitepackages()[0])"], check=True,
                                   capture_output=True, text=True).stdout.strip()
            packages = pathlib.Path(there)
            self.assertTrue((packages / "xlad" / "py.typed").exists())
            (packages / "of-the-tests.pth").write_text(here + "\n")
            done = subprocess.run([python, "-c", "import xlad, sys; assert 'jax' not in sys.modules, 'imports jax'; "
                                   "print(xlad.__file__); print(xlad.local(devices=2).close())"],
                                  env={**os.environ, "XLAD": find_program()}, cwd=where, check=True,
                                  capture_output=True, text=True)
            self.assertTrue(done.stdout.startswith(there), done.stdout)


if __name__ == "__main__":
    unittest.main()

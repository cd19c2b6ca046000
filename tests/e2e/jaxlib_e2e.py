"""Comparisons with jaxlib: partitioned with unpartitioned protos, random instructions, programs of JAX."""

import json
import os
import struct
import subprocess
import unittest

from harness import ALL_CASES, REPO, folder, job_directories, mesh_text, some, xlad

PYTHON = REPO / "build" / "venv" / "bin" / "python"


@unittest.skipUnless(PYTHON.exists(), "no build/venv; scripts/setup.sh --python makes it")
class Jaxlib(unittest.TestCase):
    def test_partitioned_programs_agree_with_jaxlib(self):
        for directory, manifest in job_directories():
            split = [mesh for mesh in manifest["meshes"] if mesh["axes"] and "parameter_shardings" in mesh]
            for mesh in some(split):
                with self.subTest(example=directory.name, mesh=mesh["name"]), folder() as where:
                    axes = mesh_text(mesh["axes"])
                    proto = where / "partitioned.hlo.pb"
                    code, _, err = xlad("partition", directory, "--mesh", axes, "-o", proto)
                    self.assertEqual(code, 0, err)
                    done = subprocess.run(
                        [PYTHON, REPO / "tests" / "e2e" / "jaxlib_partitioned.py", "--job", directory, "--mesh",
                         mesh["name"], "--partitioned", proto, "--axes", axes, "--steps", "2"],
                        capture_output=True, text=True, timeout=300, env={**os.environ, "JAX_PLATFORMS": "cpu"})
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_imaginary_parts_are_compared(self):
        with folder() as where:
            meshes = 'frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["dp"=2]>}}'
            for name, operation, mesh in (("whole", "copy", "dp=1"), ("copy", "copy", "dp=2"),
                                          ("negate", "negate", "dp=2")):
                program = where / f"{name}.hlo"
                program.write_text(
                    f"HloModule m, {meshes}\nENTRY main {{\n  p = f32[4] parameter(0)\n  q = f32[4] {operation}(p)\n"
                    "  z = c64[4] complex(p, q)\n  ROOT r = (c64[4]) tuple(z)\n}\n")
                code, _, err = xlad("partition", program, "--mesh", mesh, "-o", where / f"{name}.hlo.pb")
                self.assertEqual(code, 0, err)
            header = json.dumps({"p": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
            (where / "state.safetensors").write_bytes(
                struct.pack("<Q", len(header)) + header + struct.pack("<4f", 1, 2, 3, 4))
            (where / "data.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
            (where / "manifest.json").write_text(json.dumps({
                "parameters": [{"name": "p", "shape": "f32[4]", "kind": "state"}],
                "results": [{"name": "z", "shape": "c64[4]"}], "batches": {"count": 1, "batch": 1}}))
            (where / "specs.json").write_text(json.dumps({"parameters": [[[]]], "results": [[[]]]}))
            for operation, code, words in (("copy", 0, "1 results agree"),
                                           ("negate", 1, "result z: largest difference")):
                done = subprocess.run(
                    [PYTHON, REPO / "tests" / "e2e" / "jaxlib_partitioned.py", "--job", where, "--whole",
                     where / "whole.hlo.pb", "--partitioned", where / f"{operation}.hlo.pb", "--axes", "dp=2",
                     "--specs", where / "specs.json"], capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                self.assertIn(words, done.stdout + done.stderr)

    def test_models_of_any_size_are_simulated(self):
        script = REPO / "examples" / "models" / "transformer.py"
        with folder() as where:
            dropped = ("--capacity", "1.25", "--weights", "bfloat16")
            # By default, only the first and the last: a dense model on one slice, and a sparse one on two slices with
            # the flags.
            for model, mesh, topology, flags in some((
                    ("llama3-70b", "dp=280,fsdp=8,tp=4", "v5p-16x20x28", ()),
                    ("mixtral-8x7b", "dp=1,fsdp=16,tp=2", "v4-2x4x4", ()),
                    ("palm-540b", "dp=2,fsdp=4,tp=4", "2xv4-2x2x4", ()),
                    ("mixtral-8x22b", "dp=2,fsdp=4,ep=2,tp=2", "2xv4-2x2x4", dropped))):
                path = where / f"{model}.hlo.pb"
                subprocess.run([PYTHON, "-B", script, model, "--mesh", mesh, "--batch", "2240", "--length", "2048",
                                "--save", "q,k,v", *flags, "-o", path], check=True, timeout=300,
                               env={**os.environ, "JAX_PLATFORMS": "cpu"})
                code, out, err = xlad("simulate", path, "--topology", topology, "--format", "json")
                self.assertEqual(code, 0, err)
                found = json.loads(out)
                self.assertGreater(found["mfu"], 0.01, model)
                self.assertLess(found["mfu"], 1, model)
                self.assertTrue(found["collectives"], model)

    def check_against_jaxlib(self, *flags):
        done = subprocess.run([PYTHON, REPO / "tests" / "conformance" / "differential.py", "--xlad", os.environ["XLAD"],
                               *flags], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_random_instructions(self):
        self.check_against_jaxlib("--cases", "300" if ALL_CASES else "120", "--seed", "1")

    def test_names_of_no_program_are_an_error(self):
        done = subprocess.run([PYTHON, REPO / "tests" / "conformance" / "differential.py", "--xlad", os.environ["XLAD"],
                               "--only", "no_such_program"], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("found no program", done.stdout)

    def test_expressions_of_jax(self):
        self.check_against_jaxlib("--jax", "--cases", "40" if ALL_CASES else "20", "--seed", "1")


if __name__ == "__main__":
    unittest.main()

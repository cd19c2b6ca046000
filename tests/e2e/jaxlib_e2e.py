"""Comparison with jaxlib: partitioned against unpartitioned protos, random instructions, programs of JAX."""

import os
import subprocess
import unittest

from harness import REPO, folder, job_directories, mesh_text, xlad

PYTHON = REPO / "build" / "venv" / "bin" / "python"


@unittest.skipUnless(PYTHON.exists(), "no build/venv; scripts/setup.sh --python makes it")
class Jaxlib(unittest.TestCase):
    def test_second_opinion_on_partitioned_programs(self):
        for directory, manifest in job_directories():
            for mesh in manifest["meshes"]:
                if not mesh["axes"] or "parameter_shardings" not in mesh:
                    continue
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

    def check_against_jaxlib(self, *flags):
        done = subprocess.run([PYTHON, REPO / "tests" / "conformance" / "differential.py", "--xlad", os.environ["XLAD"],
                               *flags], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_random_instructions(self):
        self.check_against_jaxlib("--cases", "300", "--seed", "1")

    def test_expressions_of_jax(self):
        self.check_against_jaxlib("--jax", "--cases", "40", "--seed", "1")


if __name__ == "__main__":
    unittest.main()

"""The package and a program that uses it, checked with mypy. Skipped if mypy is not installed."""

import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from harness import REPO

PROGRAMS = pathlib.Path(__file__).parent / "testdata"


@unittest.skipIf(importlib.util.find_spec("mypy") is None, "mypy is not installed")
class Types(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = cls.enterClassContext(tempfile.TemporaryDirectory())

    def check(self, path):
        """Returns the exit status and the output of mypy, with the settings of the package (strict)."""
        done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", REPO / "python/pyproject.toml",
                               "--cache-dir", self.cache, path], cwd=REPO / "python", capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_the_package(self):
        status, text = self.check(REPO / "python/xlad")
        self.assertEqual(status, 0, text)

    def test_a_program_gets_the_documented_types(self):
        status, text = self.check(PROGRAMS / "typed_program.py")
        self.assertEqual(status, 0, text)

    def test_calls_with_wrong_types_are_refused(self):
        path = PROGRAMS / "wrong_program.py"
        _, text = self.check(path)
        expected = {number: line.split("# ")[1] for number, line in enumerate(path.read_text().splitlines(), 1)
                    if line.startswith("    ")}
        found = re.findall(r"wrong_program\.py:(\d+): error: .*\[([\w-]+)\]", text)
        self.assertEqual({int(number): kind for number, kind in found}, expected, text)


if __name__ == "__main__":
    unittest.main()

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
        """Runs mypy once, with the settings of the package (strict)."""
        with tempfile.TemporaryDirectory() as cache:
            paths = [REPO / "python/xlad", *PROGRAMS.glob("*_program.py")]
            done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", REPO / "python/pyproject.toml",
                                   "--cache-dir", cache, *paths], cwd=REPO / "python", capture_output=True, text=True)
        cls.text = done.stdout + done.stderr
        if not re.search(r"checked \d\d+ source files", cls.text):
            raise AssertionError(f"mypy has not checked the package:\n{cls.text}")

    def lines_of(self, name):
        """Returns what mypy has found in the files whose paths contain the name."""
        return [line for line in self.text.splitlines() if name in line.split(":")[0]]

    def test_the_package(self):
        self.assertEqual(self.lines_of("xlad/"), [])

    def test_a_program_gets_the_documented_types(self):
        self.assertEqual(self.lines_of("typed_program.py"), [])

    def test_calls_with_wrong_types_are_refused(self):
        text = (PROGRAMS / "wrong_program.py").read_text()
        expected = {number: line.split("# ")[1] for number, line in enumerate(text.splitlines(), 1)
                    if line.startswith("    ")}
        found = re.findall(r":(\d+): error: .*\[([\w-]+)\]", "\n".join(self.lines_of("wrong_program.py")))
        self.assertEqual({int(number): kind for number, kind in found}, expected, self.text)


if __name__ == "__main__":
    unittest.main()

"""Runs every Python example of docs/. The blocks of a page run one after the other in one process."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from harness import REPO
from safetensors.numpy import save_file

from xlad.installed_command import find_program

BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
# Runs each block as a part of the page, so that errors name the page's lines.
RUN = """
import pathlib, sys
exec(compile(pathlib.Path(sys.argv[1]).read_text(), sys.argv[2], "exec"), {"__name__": "__main__"})
"""


def program_of(text):
    """Returns the page with a blank line in place of each line that is not part of an example."""
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(2))
        for i, line in enumerate(block[2].splitlines()):
            lines[first + i] = line.removeprefix(block[1])
    return "\n".join(lines) + "\n"


class Examples(unittest.TestCase):
    def test_program_of_a_page(self):
        text = "# A\n\n   ```python\n   x = 1\n   if x:\n       y = 2\n   ```\n\n```\nno\n```\n```python\nz = 3\n```\n"
        self.assertEqual(program_of(text), "\n\n\nx = 1\nif x:\n    y = 2\n\n\n\n\n\n\nz = 3\n\n\n")

    def test_every_page(self):
        pages = [path for path in sorted((REPO / "docs").rglob("*.md")) if BLOCK.search(path.read_text())]
        self.assertGreaterEqual(len(pages), 3)
        for page in pages:
            with self.subTest(page.name), tempfile.TemporaryDirectory() as where:
                script = pathlib.Path(where) / "page.py"
                script.write_text(program_of(page.read_text()))
                # The example for orbax reads this file.
                save_file({"w": np.ones((2, 3), np.float32)}, script.with_name("state.safetensors"))
                done = subprocess.run([sys.executable, "-c", RUN, script, page.relative_to(REPO)], cwd=where,
                                      capture_output=True, text=True, check=False,
                                      env={**os.environ, "XLAD": find_program(), "JAX_PLATFORMS": "cpu"})
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()

"""The xlad command: where it is found, and the command of wheels that contain it."""

from __future__ import annotations

import os
import pathlib
import runpy
import shutil
import sys

from xlad.errors import Error

_OF_PACKAGE = pathlib.Path(__file__).resolve().parent / "bin" / "xlad"  # Only in wheels that contain the command.


def find_program() -> str:
    """Returns the path of the xlad command. It is searched for in this order: the variable XLAD, this package, PATH,
    and build/release/bin of a checkout that contains the main script, the working directory or this package."""
    named = os.environ.get("XLAD")
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise Error(f"found XLAD={named}, expected the path of the xlad command", "NOT_FOUND")
        return os.path.abspath(named)
    if _OF_PACKAGE.is_file():
        if not os.access(_OF_PACKAGE, os.X_OK):  # Some installers do not keep the permissions of a package's files.
            _OF_PACKAGE.chmod(0o755)
        return str(_OF_PACKAGE)
    if on_path := shutil.which("xlad"):
        return on_path
    starts = [pathlib.Path.cwd() / "x", pathlib.Path(__file__)]
    if main := getattr(sys.modules.get("__main__"), "__file__", None):
        starts.insert(0, pathlib.Path(main).resolve())
    for start in starts:
        for folder in start.parents:
            program = folder / "build" / "release" / "bin" / "xlad"
            if program.is_file() and os.access(program, os.X_OK):
                return str(program)
    raise Error("found no xlad command, expected it on PATH, in build/release/bin of the checkout (make build), "
                "or its path in XLAD", "NOT_FOUND")


def run_program() -> None:
    """The command `xlad` of wheels that contain it. `xlad demo` trains a small GPT, written in JAX, on 8 devices."""
    if sys.argv[1:] == ["demo"]:
        runpy.run_path(str(_OF_PACKAGE.parent.parent / "examples" / "gpt.py"), run_name="__main__")
        return
    program = find_program()
    os.execv(program, [program, *sys.argv[1:]])

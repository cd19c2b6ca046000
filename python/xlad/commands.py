"""The xlad commands that analyze a program: explain, verify, partition."""

from __future__ import annotations

import pathlib
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

from xlad.errors import Error
from xlad.installed_command import find_program
from xlad.job import Axes, axes_text


def run(command: str, *arguments: str, standard_input: bytes = b"") -> str:
    """Runs a command and returns its output. If the command fails, raises an error with its message."""
    done = subprocess.run([find_program(), command, *arguments], input=standard_input, capture_output=True,
                          check=False)
    if done.returncode != 0:
        errors = done.stderr.decode(errors="replace")
        said = errors.rpartition("xlad: error: ")[2].strip() or f"xlad {command} ended with {done.returncode}"
        raise Error("\n".join(part for part in (done.stdout.decode(errors="replace").strip(), said) if part),
                    "FAILED_PRECONDITION")
    return done.stdout.decode(errors="replace")


def on_program(command: str, program: bytes, axes: Axes) -> str:
    with tempfile.TemporaryDirectory(prefix="xlad-") as folder:
        path = pathlib.Path(folder) / "program.hlo.pb"
        path.write_bytes(program)
        return run(command, str(path), "--mesh", axes_text(axes))


def explain(step: Callable[..., Any], state: Any, data: Any = None, *, mesh: Any = None, in_shardings: Any = None,
            batch: int | None = None) -> str:
    """Returns a list, as text, of what a training step sends between devices, most bytes first. Each entry names the
    source lines that cause it.

    The arguments are those of `xlad.export`. No cluster is needed.
    """
    return _on_step("explain", step, state, data, mesh, in_shardings, batch)


def verify(step: Callable[..., Any], state: Any, data: Any = None, *, mesh: Any = None, in_shardings: Any = None,
           batch: int | None = None) -> str:
    """Runs the first step on the reference evaluator, partitioned and unpartitioned, and compares the results.

    Returns a report. If the results differ, raises an error that names the first instruction that differs. The
    arguments are those of `xlad.export`. No cluster is needed. The evaluator is slow: use a small state and a small
    batch.
    """
    return _on_step("verify", step, state, data, mesh, in_shardings, batch)


def _on_step(command: str, step: Callable[..., Any], state: Any, data: Any, mesh: Any, in_shardings: Any,
             batch: int | None) -> str:
    from xlad import shardings
    from xlad.export import export

    with tempfile.TemporaryDirectory(prefix="xlad-") as folder:
        export(step, state, data, to=folder, steps=1, batch=batch, mesh=mesh, in_shardings=in_shardings)
        return run(command, folder, "--mesh", axes_text(shardings.placement(mesh, in_shardings).axes))

"""The current phase or step of a training job, drawn as one line of a terminal or as one output of a notebook."""

from __future__ import annotations

import html
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

BAR_CELLS = 24
REDRAW_S = 0.1
PHASES = {"PENDING": "wait for devices", "COMPILING": "compile", "STARTING": "load"}  # By the state of the job.


class Progress:
    """Draws phases (export, upload, wait for devices, compile, load), then a bar of steps. The base class does not
    draw."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._drawn_at: float | None = None
        self._phase = ""
        self._phase_since = clock()
        self._first: tuple[float, int] | None = None  # The time at which the first step was reported, and its number.

    def phase(self, name: str) -> None:
        if name != self._phase:
            self._phase, self._phase_since = name, self._clock()
            self._draw(name, None)

    def update(self, state: str, reason: str, step: int, steps: int, loss: float | None) -> None:
        """Called for each report of the job."""
        if state in PHASES:
            self.phase(PHASES[state] if state != "PENDING" or not reason else f"{PHASES[state]}: {reason}")
            return
        now = self._clock()
        self._first = self._first or (now, step)
        self._phase = ""
        if self._drawn_at is None or now - self._drawn_at >= REDRAW_S or step >= steps:
            self._drawn_at = now
            self._draw(self._steps_text(now, step, steps, loss), step / steps if steps else 1.0)

    def close(self) -> None:
        """Called when the job has ended or the loop over its steps was left."""

    def _steps_text(self, now: float, step: int, steps: int, loss: float | None) -> str:
        text = f"step {step:,} of {steps:,}"
        if loss is not None:
            text += f", loss {loss:.4g}"
        seconds, done = now - self._first[0], step - self._first[1]  # type: ignore[index]
        if done > 0 and seconds > 0:
            text += f", {done / seconds:.3g} steps/s, {_duration((steps - step) * seconds / done)} left"
        return text

    def _draw(self, text: str, fraction: float | None) -> None:
        """`fraction` is the fraction of the steps that are done, or None in a phase."""


class TerminalProgress(Progress):
    def __init__(self, out: TextIO, columns: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._out = out
        self._columns = columns

    def _draw(self, text: str, fraction: float | None) -> None:
        line = text if fraction is None else f"{_bar(fraction)} {text}"
        self._out.write("\r\x1b[K" + line[: max(1, self._columns() - 1)])
        self._out.flush()

    def close(self) -> None:
        self._out.write("\r\x1b[K")
        self._out.flush()


class NotebookProgress(Progress):
    """`display(content, new)` shows text/plain and text/html. Unless `new` is true, it replaces the previous output."""

    def __init__(self, display: Callable[[dict[str, str], bool], None],
                 clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._display = display
        self._is_new = True

    def _draw(self, text: str, fraction: float | None) -> None:
        bar = "" if fraction is None else f'<progress value="{fraction:.4f}" max="1"></progress> '
        plain = text if fraction is None else f"{_bar(fraction)} {text}"
        self._display({"text/plain": plain, "text/html": f"<div>{bar}{html.escape(text)}</div>"}, self._is_new)
        self._is_new = False


def _bar(fraction: float) -> str:
    full = int(BAR_CELLS * min(1.0, fraction))
    return f"[{'#' * full}{'.' * (BAR_CELLS - full)}]"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _notebook_display() -> Callable[[dict[str, str], bool], None] | None:
    """Returns the display function of NotebookProgress, or None outside of notebooks."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    handle: list[Any] = []

    def show(content: dict[str, str], new: bool) -> None:
        if new or not handle:
            handle[:] = [display(content, raw=True, display_id=True)]
        else:
            handle[0].update(content, raw=True)

    return show


def for_user(wanted: bool | None) -> Progress:
    """Returns the progress for a notebook or a terminal. The result does not draw if `wanted` is False, or if it is
    None and the process runs neither in a notebook nor with a terminal as standard error."""
    display = None if wanted is False else _notebook_display()
    if display is not None:
        return NotebookProgress(display)
    is_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if wanted or (wanted is None and is_terminal):
        return TerminalProgress(sys.stderr, _terminal_columns)
    return Progress()


def _terminal_columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80  # Some terminals report 0 columns.
    except (OSError, ValueError, AttributeError):
        return 80

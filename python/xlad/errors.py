"""The one exception of this package that is not about a wrong argument."""

from __future__ import annotations


class Error(RuntimeError):
    """What the coordinator, a job or a local cluster says went wrong, in its own words.

    code: the name of the status ("INVALID_ARGUMENT", "UNAVAILABLE", ...).
    """

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code

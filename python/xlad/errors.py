"""The exception for all errors except wrong arguments."""

from __future__ import annotations


class Error(RuntimeError):
    """An error that the coordinator, a job or a local cluster reported, with the original message.

    code: the name of the status ("INVALID_ARGUMENT", "UNAVAILABLE", ...).
    """

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code

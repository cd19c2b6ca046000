"""The exception for all errors except wrong arguments."""

from __future__ import annotations


class Error(RuntimeError):
    """An error of a call to the coordinator or a worker, of a job, or of a local cluster. If another process reported
    the error, the message contains its message.

    code: the name of a gRPC status code ("INVALID_ARGUMENT", "UNAVAILABLE", ...).
    """

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code

"""One gRPC channel to a coordinator."""

from __future__ import annotations

import hashlib
import ipaddress
import pathlib
import socket
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

import grpc

from xlad import interrupts, protos
from xlad.errors import Error

CALL_S = 30.0  # The default deadline of a call.
PATIENCE_S = 60.0  # The time for which calls are repeated while the coordinator cannot be reached.
_PAUSE_S = 0.2
TRANSFER_S = 600.0  # The deadline of uploads and downloads.
CHUNK_BYTES = 1 << 20
_REREAD_S = 1.0  # The age at which a token is read again.
T = TypeVar("T")
_OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class _Token:
    """A bearer token, or "" if none is sent. If it is in a file, the file may be replaced at any time."""

    def __init__(self, text: str, file: pathlib.Path | None = None) -> None:
        self._text = text
        self._file = file
        self._read_at = time.monotonic()
        if file is not None:
            self._text = self._first_line(file)

    def text(self) -> str:
        """The present token. While the file cannot be read, the last one remains."""
        if time.monotonic() - self._read_at >= _REREAD_S:
            self._read()
        return self._text

    def has_other(self, refused: str) -> bool:
        """Reads the file, and returns whether its token differs from `refused`, which the server has refused."""
        self._read()
        return self._text != refused

    def _read(self) -> None:
        if self._file is None:
            return
        self._read_at = time.monotonic()
        try:
            self._text = self._first_line(self._file) or self._text
        except (OSError, UnicodeDecodeError):
            pass

    @staticmethod
    def _first_line(file: pathlib.Path) -> str:
        return file.read_text().partition("\n")[0]


class Connection:
    """Calls remote methods by name, as in `connection.call("GetJob", job_id=id)`. Every error of a call is an
    xlad.Error. A call whose token is refused is made again if the token's file has another one by then. Thread-safe."""

    def __init__(self, address: str, ca_file: str | None = None, token_file: str | None = None,
                 token: str | None = None, what: str = "coordinator",
                 authority: tuple[str, str] | None = None, advice: str = "") -> None:
        """`what` names the server in errors. `token` is the bearer token if there is no `token_file`. `authority`
        replaces `ca_file`: it is the text of the authority's certificate, and the name in the server's certificate.
        `advice` is part of errors if the server cannot be reached although a program accepts connections there."""
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdigit():
            raise ValueError(f"found address {address!r}, expected HOST:PORT")
        if not ca_file and not authority and not _is_loopback(host):
            raise ValueError(f"found {what} {address}, which is not on loopback, without TLS, expected ca_file and "
                             "token_file")
        self.address = address
        self._what = what
        self._advice = advice
        self._closed = False
        self._token = _Token(token or "", pathlib.Path(token_file) if token_file else None)
        if authority:
            certificate, name = authority
            credentials = grpc.ssl_channel_credentials(certificate.encode())
            options = [*_OPTIONS, ("grpc.ssl_target_name_override", name)]
            self._channel = grpc.secure_channel(address, credentials, options)
        elif ca_file:
            credentials = grpc.ssl_channel_credentials(pathlib.Path(ca_file).read_bytes())
            self._channel = grpc.secure_channel(address, credentials, _OPTIONS)
        else:
            self._channel = grpc.insecure_channel(address, _OPTIONS)

    def is_reachable(self, seconds: float) -> bool:
        """Returns whether a connection can be opened within `seconds`."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=seconds)
        except grpc.FutureTimeoutError:
            return False
        return True

    def call(self, method: str, *, timeout: float | None = CALL_S, **fields: Any) -> Any:
        m = self._method(method)
        stub = self._channel.unary_unary(m.path, m.request.SerializeToString, m.response.FromString)
        return self._with_token(
            lambda token: stub(m.request(**fields), timeout=timeout, metadata=_metadata(token)))

    def repeat(self, method: str, *, alive: Callable[[], None] = lambda: None, **fields: Any) -> Any:
        """Like `call`, for requests that may be repeated: repeats the request for up to PATIENCE_S while the
        coordinator cannot be reached or does not answer in time. `alive` raises an error if the coordinator has ended
        permanently."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.call(method, **fields)
            except Error as error:
                if error.code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED") or time.monotonic() > give_up:
                    raise
            alive()
            time.sleep(_PAUSE_S)

    def upload(self, method: str, requests: Callable[[], Iterable[Any]], timeout: float | None = TRANSFER_S) -> Any:
        """Sends the messages that `requests()` returns. `requests` is called again if the call is made again."""
        m = self._method(method)
        stub = self._channel.stream_unary(m.path, m.request.SerializeToString, m.response.FromString)
        return self._with_token(lambda token: stub(iter(requests()), timeout=timeout, metadata=_metadata(token)))

    def stream(self, method: str, *, timeout: float | None = None, **fields: Any) -> Generator[Any, None, None]:
        """Yields the responses of a streaming call. Closing the generator cancels the call. If the token is refused
        after the first response, and has been replaced, the error is UNAVAILABLE: another call may succeed."""
        has_answered = False
        while True:
            token = self._token.text()
            responses = self._responses(method, token, timeout, fields)
            try:
                for answer in responses:
                    has_answered = True
                    yield answer
                return
            except grpc.RpcError as error:
                if not self._is_replaced(error, token):
                    raise self._error(error) from None
                if has_answered:
                    raise Error(f"the token of this client was replaced: {error.details()}", "UNAVAILABLE") from None
            finally:
                responses.close()

    def put_blobs(self, blobs: Iterable[bytes]) -> None:
        """Uploads the blobs that the coordinator does not have."""
        by_digest = {sha256(blob): blob for blob in blobs}
        for digest in self.call("HasBlobs", digests=list(by_digest)).missing:
            self._put_blob(digest, memoryview(by_digest[digest]))

    def _put_blob(self, digest: str, blob: memoryview) -> None:
        put = protos.METHODS["PutBlob"].request

        def requests() -> Iterable[Any]:
            for at in range(0, max(1, len(blob)), CHUNK_BYTES):
                yield put(digest="" if at else digest, chunk=bytes(blob[at : at + CHUNK_BYTES]))

        self.upload("PutBlob", requests)

    def get_blob(self, digest: str) -> bytes:
        data = self._with_token(lambda token: b"".join(
            chunk.data for chunk in self._responses("GetBlob", token, TRANSFER_S, {"digest": digest})))
        if sha256(data) != digest:
            raise Error(f"found contents of blob {digest} that do not match its digest", "DATA_LOSS")
        return data

    def close(self) -> None:
        self._closed = True
        self._channel.close()

    def _method(self, name: str) -> protos.Method:
        interrupts.check()
        if self._closed:
            raise Error(f"the cluster at {self.address} is closed, expected a call before close() and inside its "
                        "with block", "FAILED_PRECONDITION")
        return protos.METHODS[name]

    def _responses(self, method: str, token: str, timeout: float | None,
                   fields: dict[str, Any]) -> Generator[Any, None, None]:
        """Yields the responses of one call, which is canceled when the generator is closed."""
        m = self._method(method)
        stub = self._channel.unary_stream(m.path, m.request.SerializeToString, m.response.FromString)
        call = stub(m.request(**fields), timeout=timeout, metadata=_metadata(token))
        try:
            for answer in call:
                yield answer
                interrupts.check()
        finally:
            call.cancel()

    def _with_token(self, attempt: Callable[[str], T]) -> T:
        """Returns `attempt(token)`. Calls `attempt` again if this token is refused and has been replaced."""
        while True:
            token = self._token.text()
            try:
                return attempt(token)
            except grpc.RpcError as error:
                if not self._is_replaced(error, token):
                    raise self._error(error) from None

    def _is_replaced(self, error: grpc.RpcError, token: str) -> bool:
        return error.code() == grpc.StatusCode.UNAUTHENTICATED and self._token.has_other(token)

    def _error(self, error: grpc.RpcError) -> Error:
        details = str(error.details())
        if error.code() == grpc.StatusCode.UNAVAILABLE:
            # Only an answer of the coordinator itself has this key in its metadata.
            answered = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
            what = "cannot serve the call now" if answered else "cannot be reached"
            details = f"{self._what} {self.address} {what}: {details}"
            if not answered and self._advice and _accepts_connections(self.address):
                details = f"{details}; {self._advice}"
        return Error(details, error.code().name)


def _metadata(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")] if token else []


def _accepts_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

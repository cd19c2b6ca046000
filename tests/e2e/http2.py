"""Raw frames of HTTP/2 (RFC 9113), for clients that stall calls or never read their responses."""

import contextlib
import select


def frame(kind, flags, stream, payload):
    """Returns a frame of HTTP/2 (RFC 9113)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def call_frame(path, stream, token=None):
    """Returns the headers of a call (RFC 7541). The token is shorter than 100 bytes."""
    def header(name, value):
        return bytes([0x10, len(name)]) + name + bytes([len(value)]) + value

    return frame(1, 4, stream, b"".join(header(*pair) for pair in [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"x"),
        (b"te", b"trailers"), (b"content-type", b"application/grpc"),
        *([(b"authorization", f"Bearer {token}".encode())] if token else [])]))


def start(first_window=65_535):
    """Returns the start of a connection whose calls take at most `first_window` bytes."""
    settings = b"\0\4" + first_window.to_bytes(4, "big")
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, settings)


def prefixed(message):
    """Returns a message of a call with its length."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def stalled_call(path, size=10_000, first=b"", token=None):
    """Returns the start of a call, as raw bytes (RFC 9113). After the messages `first`, it announces a message of 60 MB
    and has its first `size` bytes. A server expects at most 65,000 of them before it has asked for more."""
    body = first + b"\0" + (60_000_000).to_bytes(4, "big") + b"x" * size
    return start() + call_frame(path, 1, token) + frame(0, 0, 1, body)


def unread_calls(path, request, count):
    """Returns a connection with `count` calls that never take any byte of a response."""
    calls = b"".join(call_frame(path, 2 * i + 1) + frame(0, 1, 2 * i + 1, prefixed(request)) for i in range(count))
    return start(first_window=0) + calls


def read_exactly(connection, size):
    read = b""
    while len(read) < size:
        piece = connection.recv(size - len(read))
        if not piece:
            raise ConnectionError("the server has closed the connection")
        read += piece
    return read


def read_frame(connection):
    """Returns the kind, the flags, the stream and the payload of the next frame of HTTP/2."""
    head = read_exactly(connection, 9)
    payload = read_exactly(connection, int.from_bytes(head[:3], "big"))
    return head[3], head[4], int.from_bytes(head[5:], "big"), payload


def read_frame_or_ping(connection):
    """Returns the next frame. If none arrives in time, sends a PING and returns the next frame, or None if this frame
    answers the PING: the server is alive, but silent. It is an error if no frame arrives within a minute."""
    patience = connection.gettimeout()
    is_silent = not select.select([connection], [], [], patience)[0]
    if is_silent:
        connection.sendall(frame(6, 0, 0, b"is alive"))
    connection.settimeout(60)
    try:
        found = read_frame(connection)
        return None if is_silent and found[0] == 6 and found[1] & 1 else found
    except TimeoutError:
        raise AssertionError("found no whole frame within 60 s, expected one, or the answer to a PING") from None
    finally:
        connection.settimeout(patience)


def send_large_body(connection, size, path="/xlad.v1.Coordinator/PutBlob", first=b"", token=None, patience=2,
                    ping=False):
    """Begins a call with the messages `first` and a message of 60 MB, sends `size` bytes as fast as the server permits
    (RFC 9113, section 5.2), and returns how many it takes before it ends the call or is idle for `patience` seconds. If
    `ping`, an idle server must also answer a PING, so a server that is only slow is not taken for one that refuses."""
    next_frame = read_frame_or_ping if ping else read_frame
    connection.settimeout(patience)
    connection.sendall(stalled_call(path, 0, first, token))
    sent = 5 + len(first)
    windows = {0: 65_535 - sent, 1: 65_535 - sent}  # The windows of the connection and of the call.
    first_window = 65_535  # The size of the first window of a call, by the last SETTINGS.
    with contextlib.suppress(OSError):  # The server has closed the connection, or does not read any more.
        while sent < size:
            room = min(windows[0], windows[1], 16_384, size - sent)
            if room > 0:
                connection.sendall(frame(0, 0, 1, b"x" * room))
                sent += room
                windows = {stream: window - room for stream, window in windows.items()}
                continue
            if (found := next_frame(connection)) is None:
                break
            kind, flags, stream, payload = found
            if kind in (3, 7):  # RST_STREAM, GOAWAY
                break
            if kind == 8:  # WINDOW_UPDATE
                windows[stream] += int.from_bytes(payload, "big")
            if kind == 6 and not flags & 1:  # PING
                connection.sendall(frame(6, 1, 0, payload))
            if kind == 4 and not flags & 1:  # SETTINGS
                for at in range(0, len(payload), 6):
                    if payload[at : at + 2] == b"\0\x04":
                        previous, first_window = first_window, int.from_bytes(payload[at + 2 : at + 6], "big")
                        windows[1] += first_window - previous
                connection.sendall(frame(4, 1, 0, b""))
    return sent

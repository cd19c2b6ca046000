"""Attacks ports of a worker from a host that has no key. Usage: intruder.py HOST JOB WORKER PORT...

Prints a JSON list with an object for each port and attack: `port`, `attack`, `closed` (whether the worker closed the
connection), `bytes` (the number of bytes that the worker sent) and, if the worker answered a TLS handshake, `answers`
(what it answered to each call of the session's service)."""

import concurrent.futures
import json
import os
import socket
import ssl
import struct
import sys

HOST, JOB, WORKER, *PORTS = sys.argv[1:]
PATIENCE_S = 60
METHODS = ("AddProgram", "PutArray", "CallProgram", "GetArray", "FreeArrays", "Follow", "GetArrayShard",
           "PutArrayShard")


def field(number, value):
    """Encodes a field of a protocol message: a string, or an integer below 128."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value.encode()


def with_size(message):
    return struct.pack("<I", len(message)) + message


def hello(blobs):
    """The first message of a connection of the job's first attempt: a PeerHello of proto/worker.proto."""
    return with_size(field(1, JOB) + field(2, 1) + field(3, 1) + field(4, 2) + field(5, 0) + field(6, WORKER) +
                     field(10, int(blobs)))


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def call(method):
    """A connection of HTTP/2 with one gRPC call, whose key is wrong and whose request is an empty message."""
    fields = {":method": "POST", ":scheme": "https", ":path": f"/xlad.v1.SessionWorker/{method}", ":authority": HOST,
              "te": "trailers", "content-type": "application/grpc", "authorization": "Bearer " + "0" * 64}
    block = b"".join(b"\0" + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode() for k, v in fields.items())
    return (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, block) +
            frame(0, 1, 1, bytes(5)))


def read_all(connection, until=b"\0never\0"):
    """Returns the bytes before the end of the connection, or up to `until`, and whether the connection ended."""
    received = b""
    try:
        while until not in received:
            part = connection.recv(65536)
            if not part:
                return received, True
            received += part
    except TimeoutError:
        pass
    except OSError:  # The worker has reset the connection.
        return received, True
    return received, False


def connect(port):
    return socket.create_connection((HOST, port), timeout=PATIENCE_S)


def send(port, attack, data):
    with connect(port) as connection:
        try:
            connection.sendall(data)
        except OSError:
            pass  # The worker has closed the connection already; the read says so.
        received, closed = read_all(connection)
    return {"port": port, "attack": attack, "closed": closed, "bytes": len(received)}


def tls(port, attack, first=b""):
    """Sends `first` in plaintext, and then speaks TLS without a key and without checking the worker's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    answers = {}
    for method in METHODS:
        try:
            with connect(port) as plain:
                plain.sendall(first)
                with context.wrap_socket(plain) as connection:
                    connection.sendall(call(method))
                    received, _ = read_all(connection, until=b"grpc-message")
                    answers[method] = received.decode("latin-1")
        except OSError as error:
            if isinstance(error, TimeoutError):
                return {"port": port, "attack": attack, "closed": False, "bytes": 0}
            break  # The handshake failed.
    return {"port": port, "attack": attack, "closed": True, "bytes": 0, "answers": answers}


def attacks(port):
    garbage = os.urandom(1 << 16)
    request = with_size(field(1, "0" * 64) + field(3, 100))  # A PeerBlobRequest.
    yield send, port, "garbage", b"\xff" * 4 + garbage
    yield send, port, "garbage of a plausible size", with_size(b"\xff" * 40) + garbage
    yield send, port, "a request of HTTP/2 in plaintext", call("GetArray")
    yield send, port, "a hello and data in plaintext", hello(False) + with_size(garbage[:4096]) * 8
    yield send, port, "a hello and a request for a blob in plaintext", hello(True) + request
    yield tls, port, "TLS"
    yield tls, port, "a hello and TLS without the key", hello(False)


with concurrent.futures.ThreadPoolExecutor(32) as pool:
    running = [pool.submit(*attack) for port in PORTS for attack in attacks(int(port))]
    print(json.dumps([future.result() for future in running]))

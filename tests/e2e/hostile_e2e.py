"""Attacks on a real coordinator and worker by malicious clients. The clients send impossible values in every field of
every call, register under the id of a live worker, and name other jobs. They also open floods of connections, stall in
the middle of messages, and send garbage to every port.

While a job trains, none of these attacks may end a process or the job. Answers must be errors that say what was
expected. Afterwards, the use of memory and file descriptors must be as before. XLAD_HOSTILE_SECONDS (default 2) is the
length of the flood in seconds. If it is 30 or more, the 99th percentile of an honest client's response times must be at
most twice that without the flood.
"""

import collections
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import re
import socket
import statistics
import struct
import threading
import time
import unittest
import urllib.request
from concurrent import futures

import grpc
from google.protobuf.descriptor import FieldDescriptor as Field
from xlad import protos

from grid import attempts, busiest
from harness import OWN_EXAMPLES, Process, cluster, folder, stays_open, wait_for, xlad
from http2 import prefixed, read_frame, send_large_body, stalled_call, unread_calls
from ports import free_ports

JOB = OWN_EXAMPLES / "spiral_mlp"
SECONDS = float(os.environ.get("XLAD_HOSTILE_SECONDS", "2"))
# The status codes that may answer an impossible request. Any other code is a failure of the server.
ALLOWED = {
    grpc.StatusCode[name]
    for name in "OK INVALID_ARGUMENT NOT_FOUND FAILED_PRECONDITION OUT_OF_RANGE ALREADY_EXISTS RESOURCE_EXHAUSTED "
    "ABORTED CANCELLED DATA_LOSS UNIMPLEMENTED".split()
}
# The call writes to any path in the request, so it is not called here; only operators may make it.
SKIPPED = {"Backup"}
SAMPLES = {"job_id": "job-none", "session_id": "job-none", "worker_id": "nobody", "digest": "0" * 64,
           "program_blob": "0" * 64, "client_key": "hostile", "shard_id": "s"}
INTEGERS = [-1, 0, 2**31 - 1, 2**40, 2**63 - 1, -(2**63)]
TEXTS = ["", "x" * 300, "x" * 100_000, "line\nline", "../../etc/passwd", "\u202e\U0001f600", "a\x00b"]
KINDS = {Field.CPPTYPE_INT64: INTEGERS, Field.CPPTYPE_INT32: [-1, 0, 2**31 - 1, -(2**31)],
         Field.CPPTYPE_UINT64: [0, 2**64 - 1], Field.CPPTYPE_UINT32: [0, 2**32 - 1], Field.CPPTYPE_ENUM: [99, -1],
         Field.CPPTYPE_DOUBLE: [float("nan"), float("inf"), -1e308], Field.CPPTYPE_BOOL: [True],
         Field.CPPTYPE_FLOAT: [float("nan"), float("-inf")]}
MANY = 5000
TAKEN_UNREAD = 4_000_000  # More than the window of a call, which a client may always send.
SESSION_UNREAD = 20_000_000  # The window of a session's call is 4 MiB and can grow until a busy worker ends the call.


def is_repeated(field):
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == Field.LABEL_REPEATED


def values_of(field):
    if field.cpp_type == Field.CPPTYPE_STRING:
        return [b"", b"\xff" * 100_000] if field.type == Field.TYPE_BYTES else TEXTS
    return KINDS[field.cpp_type]


def fill(message):
    """Sets the fields that name something to a plausible value."""
    for field in message.DESCRIPTOR.fields:
        if field.name in SAMPLES and not is_repeated(field) and field.type == Field.TYPE_STRING:
            setattr(message, field.name, SAMPLES[field.name])


def mutants(message, depth=0):
    """Yields copies of the message, each with one impossible field."""
    kind = type(message)
    for field in message.DESCRIPTOR.fields:
        repeated = is_repeated(field)
        if field.cpp_type == Field.CPPTYPE_MESSAGE:
            if depth >= 4 or field.message_type.GetOptions().map_entry:
                continue
            copy = kind()
            copy.CopyFrom(message)
            inner = getattr(copy, field.name).add() if repeated else getattr(copy, field.name)
            inner.SetInParent()
            fill(inner)
            plausible = type(inner)()
            plausible.CopyFrom(inner)
            for mutant in mutants(plausible, depth + 1):
                inner.CopyFrom(mutant)
                yield copy
            if repeated:
                inner.CopyFrom(plausible)
                getattr(copy, field.name).extend([plausible] * MANY)
                yield copy
            continue
        for value in values_of(field):
            copy = kind()
            copy.CopyFrom(message)
            with contextlib.suppress(ValueError):  # An enum that the Python runtime itself refuses.
                if repeated:
                    getattr(copy, field.name).append(value)
                else:
                    setattr(copy, field.name, value)
                yield copy
        if repeated:
            copy = kind()
            copy.CopyFrom(message)
            getattr(copy, field.name).extend([values_of(field)[0]] * MANY)
            yield copy


def call(channel, method, requests, timeout=None, token=None):
    """Makes a call, reads at most one response, and returns the status code and its message. By default, an answer is
    awaited for a minute, and the first response of a stream that stays open, which may never come, for five seconds."""
    if timeout is None:
        timeout = 5.0 if stays_open(method) else 60.0
    options = {"timeout": timeout, "metadata": [("authorization", f"Bearer {token}")] if token else None}
    serialize, parse = method.request.SerializeToString, method.response.FromString
    try:
        if method.client_streams and method.server_streams:
            responses = channel.stream_stream(method.path, serialize, parse)(iter(requests), **options)
        elif method.client_streams:
            channel.stream_unary(method.path, serialize, parse)(iter(requests), **options)
            return grpc.StatusCode.OK, ""
        elif method.server_streams:
            responses = channel.unary_stream(method.path, serialize, parse)(requests[0], **options)
        else:
            channel.unary_unary(method.path, serialize, parse)(requests[0], **options)
            return grpc.StatusCode.OK, ""
        for _ in responses:
            responses.cancel()
            break
        return grpc.StatusCode.OK, ""
    except grpc.RpcError as error:
        return error.code(), error.details() or ""


def listening_ports(pid):
    """Returns the TCP ports on which a process listens (IPv4)."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(link))
    ports = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        parts = line.split()
        if parts[3] == "0A" and f"socket:[{parts[9]}]" in inodes:
            ports.add(int(parts[1].split(":")[1], 16))
    return sorted(ports)


def resident_mb(pid):
    line = next(line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1]) / 1024


@contextlib.contextmanager
def sampled_memory(pid):
    """Yields a list with the resident memory of a process in MB, to which a thread adds samples until the end."""
    samples = [resident_mb(pid)]
    ending = threading.Event()

    def sample():
        while not ending.wait(0.02):
            samples.append(resident_mb(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ending.set()
        thread.join()


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def has_metrics(url):
    """Returns whether a complete page of metrics arrives. Newer connections may have displaced that of the page."""
    with contextlib.suppress(OSError, http.client.HTTPException), urllib.request.urlopen(url, timeout=60) as page:
        return b"xlad_" in page.read()
    return False


def send_large_bodies(kept, count, address, *args, ping=False):
    """Sends large bodies at the same time, because most of the calls end only after some seconds in which the server
    permits no more bytes. `kept` closes their connections."""
    connections = [kept.enter_context(socket.create_connection(address.rsplit(":", 1), 60)) for _ in range(count)]
    with futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda connection: send_large_body(connection, 59_000_000, *args, ping=ping), connections))


def check_large_bodies(test, address, name, token, unread=TAKEN_UNREAD):
    """Checks that a method takes more than `unread` bytes of a message only from callers with the token."""
    method = protos.METHODS[name]
    with grpc.insecure_channel(address) as channel:
        code, details = call(channel, method, [method.request()], timeout=60)
    test.assertEqual(code, grpc.StatusCode.UNAUTHENTICATED, (name, details))
    with contextlib.ExitStack() as kept:
        test.assertLess(max(send_large_bodies(kept, 4, address, method.path, ping=True)), unread, name)
        connection, size = kept.enter_context(socket.create_connection(address.rsplit(":", 1), 60)), unread + 1_000_000
        test.assertEqual(send_large_body(connection, size, method.path, token=token, patience=60), size, name)


def garbage(seed):
    source = random.Random(seed)
    return [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\xff" * 70_000, source.randbytes(5000),
            source.randbytes(8), stalled_call("/xlad.v1.Coordinator/PutBlob"), b""]


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.http = f"127.0.0.1:{free_ports(1)[0]}"
        cls.made = cls.enterClassContext(cluster(workers=1, devices=2, flags=("--http", cls.http)))
        cls.job_id = cls.made.submit(JOB, "--mesh", "dp=2", "--steps", "100000000")
        wait_for(lambda: cls.made.job(cls.job_id)["state"] == "RUNNING", "the job to run")
        cls.channel = cls.enterClassContext(grpc.insecure_channel(cls.made.address))

    def tearDown(self):
        """Checks that the processes and the job continue as before."""
        for process in (self.made.coordinator, self.made.workers["w0"]):
            self.assertIsNone(process.popen.poll(), f"a process has ended:\n{process.log()[-2000:]}")
        job = self.made.job(self.job_id)
        self.assertEqual((job["state"], job["attempt"]), ("RUNNING", 1), job)
        wait_for(lambda: self.made.job(self.job_id)["step"] > job["step"], "the job to continue")

    def test_every_field_of_every_call(self):
        asked = 0
        for name, method in sorted(protos.METHODS.items()):
            if name in SKIPPED:
                continue
            request = method.request()
            fill(request)
            for mutant in mutants(request):
                asked += 1
                code, details = call(self.channel, method, [mutant])
                slow = code == grpc.StatusCode.DEADLINE_EXCEEDED and stays_open(method)
                shown = str(mutant)[:300]
                self.assertTrue(code in ALLOWED or slow, f"{name}({shown}): {code}: {details[:500]}")
                self.assertLess(len(details), 5000, f"{name}({shown}): an error that repeats its request")
        self.assertGreater(asked, 300)

    def test_a_client_with_the_id_of_a_live_worker(self):
        attach = protos.METHODS["Attach"]
        register = attach.request()
        register.register.worker_id = "w0"
        register.register.incarnation = 666
        register.register.devices = 2
        register.register.protocol = 1
        reports = [attach.request() for _ in range(4)]  # None of these is true.
        for report, part in zip(reports, ("failed", "finished", "shard_written", "exited")):
            message = getattr(report, part)
            message.job_id, message.attempt = self.job_id, 1
        reports[2].shard_written.shard.sha256 = "0" * 64
        call(self.channel, attach, [register, *reports])  # Registers under the id of a live worker.
        register.register.worker_id = "stranger"
        for report in reports:
            call(self.channel, attach, [register, report], timeout=1.0)
        code, out, err = xlad("status", "--coordinator", self.made.address, "--format", "json")
        self.assertEqual(code, 0, err)
        workers = {worker["id"]: worker for worker in json.loads(out)["workers"]}
        self.assertEqual(workers["w0"]["pid"], self.made.workers["w0"].pid, "another client cannot use its id")
        self.assertEqual(workers["w0"]["state"], "alive")

    def test_flood(self):
        processes = [self.made.coordinator, self.made.workers["w0"]]
        ports = [(process.pid, port) for process in processes for port in listening_ports(process.pid)]
        self.assertGreaterEqual(len(ports), 3, "the ports of the coordinator, of its pages and of the worker")
        before = {process.pid: (resident_mb(process.pid), descriptors(process.pid)) for process in processes}
        quiet = self.probe(max(1.0, SECONDS / 3))
        ending = threading.Event()
        with contextlib.ExitStack() as kept:
            for _, port in ports:
                for i in range(300):
                    idle = kept.enter_context(socket.create_connection(("127.0.0.1", port), 60))
                    if i < 24:
                        idle.sendall(stalled_call("/xlad.v1.Coordinator/PutBlob"))
            threads = [threading.Thread(target=self.flood, args=(port, ending)) for _, port in ports]
            for thread in threads:
                thread.start()
            try:
                flooded = self.probe(SECONDS)
                wait_for(lambda: has_metrics(f"http://{self.http}/metrics"), "a page during the flood")
            finally:
                ending.set()
                for thread in threads:
                    thread.join()
        print(f"99th percentile of GetStatus: {quiet:.2f} ms without the flood, {flooded:.2f} ms during it", flush=True)
        if SECONDS >= 30:
            self.assertLessEqual(flooded, 2 * quiet)
        for process in processes:
            memory, files = before[process.pid]
            wait_for(lambda: descriptors(process.pid) <= files + 32, "the connections to be closed")
            self.assertLess(resident_mb(process.pid), memory + 200)
        code, _, err = xlad("ps", "--coordinator", self.made.address)
        self.assertEqual(code, 0, err)

    def test_large_bodies_that_stall(self):
        pid = self.made.coordinator.pid
        before = resident_mb(pid)
        with contextlib.ExitStack() as kept:
            with sampled_memory(pid) as samples:
                # The first body has the coordinator's memory quota for itself, so it is large. The others share it.
                connection = kept.enter_context(socket.create_connection(self.made.address.rsplit(":", 1), 60))
                taken = [send_large_body(connection, 51_000_000, patience=60)]
                taken += send_large_bodies(kept, 23, self.made.address)
            peak = max(samples)
            code, _, err = xlad("ps", "--coordinator", self.made.address)
            self.assertEqual(code, 0, err)
        print(f"24 stalled bodies: {sum(taken) / 1e6:.0f} MB sent, the coordinator grew from {before:.0f} to "
              f"{peak:.0f} MB", flush=True)
        self.assertGreater(max(taken), 50_000_000, "no body was large")
        self.assertLess(peak, before + 300)
        wait_for(lambda: resident_mb(pid) < before + 200, "the memory to be free again")

    def test_a_second_message_of_a_call_that_waits(self):
        """The call takes one message and waits for a session that has no devices."""
        open_session, locate = protos.METHODS["OpenSession"], protos.METHODS["LocateSession"]
        stub = self.channel.unary_unary(open_session.path, open_session.request.SerializeToString,
                                        open_session.response.FromString)
        session = stub(open_session.request(client_key="waits", mesh=[{"name": "dp", "size": 64}])).session_id
        hold = protos.METHODS["HoldSession"]
        held = self.channel.unary_stream(hold.path, hold.request.SerializeToString, hold.response.FromString)(
            hold.request(session_id=session))
        self.addCleanup(held.cancel)
        first = prefixed(locate.request(session_id=session).SerializeToString())
        pid = self.made.coordinator.pid
        before = resident_mb(pid)
        with contextlib.ExitStack() as kept, sampled_memory(pid) as samples:
            taken = send_large_bodies(kept, 4, self.made.address, locate.path, first, ping=True)
        peak = max(samples)
        print(f"4 second messages: {sum(taken) / 1e6:.1f} MB taken, the coordinator grew from {before:.0f} to "
              f"{peak:.0f} MB", flush=True)
        self.assertLess(max(taken), 8_000_000)

    def test_responses_that_are_not_read(self):
        blob = os.urandom(1 << 20)
        digest = hashlib.sha256(blob).hexdigest()
        put, get = protos.METHODS["PutBlob"], protos.METHODS["GetBlob"]
        code, details = call(self.channel, put, [put.request(digest=digest, chunk=blob)])
        self.assertEqual(code, grpc.StatusCode.OK, details)
        pid = self.made.coordinator.pid
        port = int(self.made.address.rsplit(":", 1)[1])
        before = resident_mb(pid)
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(unread_calls(get.path, get.request(digest=digest).SerializeToString(), 400))
            while read_frame(connection)[0] != 1:  # The headers of a response: the coordinator answers the calls.
                pass
            peak = level = resident_mb(pid)
            steady = 0  # The number of samples in a row in which it has not grown since it had the memory `level`.
            deadline = time.monotonic() + 60
            while steady < 10 and peak < before + 200 and time.monotonic() < deadline:
                time.sleep(0.2)
                now = resident_mb(pid)
                steady, level = (steady + 1, level) if now <= level + 1 else (0, now)
                peak = max(peak, now)
            code, _, err = xlad("ps", "--coordinator", self.made.address)
            self.assertEqual(code, 0, err)
        print(f"400 responses of 1 MiB that are not read: the coordinator grew from {before:.0f} to {peak:.0f} MB",
              flush=True)
        self.assertLess(peak, before + 200)

    def probe(self, seconds):
        """Returns the 99th percentile of the response times of small valid requests, in milliseconds."""
        method = protos.METHODS["GetStatus"]
        times = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.monotonic()
            code, details = call(self.channel, method, [method.request()], timeout=30)
            self.assertEqual(code, grpc.StatusCode.OK, details)
            times.append(1000 * (time.monotonic() - start))
            time.sleep(0.01)
        return statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0]

    @staticmethod
    def flood(port, ending):
        """Opens about 500 connections per second to the port, and sends garbage on each."""
        due = time.monotonic()
        for number in range(10**9):
            if ending.is_set():
                return
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.settimeout(0.1)
                connection.sendall(garbage(number)[number % 7])
            due += 0.002
            time.sleep(max(0.0, due - time.monotonic()))


# Doubles an array.
PROGRAM = b"""HloModule double, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["dp"=2]>}}

ENTRY main {
  p = f32[4] parameter(0)
  ROOT r = f32[4] add(p, p)
}
"""


class HostileSession(unittest.TestCase):
    """Impossible requests to the port on which a worker serves a session."""

    @classmethod
    def setUpClass(cls):
        cls.made = cls.enterClassContext(cluster(workers=1, devices=2))
        cls.channel = cls.enterClassContext(grpc.insecure_channel(cls.made.address))
        opened = cls.ask("OpenSession", client_key="hostile", name="s", mesh=[{"name": "dp", "size": 2}])
        cls.session_id = opened.session_id
        hold = protos.METHODS["HoldSession"]
        held = cls.channel.unary_stream(hold.path, hold.request.SerializeToString, hold.response.FromString)(
            hold.request(session_id=cls.session_id))
        cls.addClassCleanup(held.cancel)
        cls.place = cls.ask("LocateSession", session_id=cls.session_id)
        cls.worker = cls.enterClassContext(grpc.insecure_channel(cls.place.address))
        cls.array = cls.ask("SessionWorker.PutArray", shape={"element_type": 11, "dims": [4]},
                            chunk=struct.pack("<4f", 1, 2, 3, 4)).array
        digest = hashlib.sha256(PROGRAM).hexdigest()
        cls.ask("PutBlob", digest=digest, chunk=PROGRAM)
        loaded = cls.ask("LoadProgram", session_id=cls.session_id, program_blob=digest)
        cls.program = cls.ask("SessionWorker.AddProgram", executable_digest=loaded.executable_digest,
                              plans=loaded.plans, seal=loaded.seal).program

    @classmethod
    def ask(cls, name, /, **fields):
        """Makes a call and returns its answer, or a list of answers if they are a stream."""
        method = protos.METHODS[name]
        of_worker = name.startswith("SessionWorker.")
        channel = cls.worker if of_worker else cls.channel
        request = method.request(**fields)
        if of_worker:
            request.session_id = cls.session_id
        kind = ("stream" if method.client_streams else "unary") + ("_stream" if method.server_streams else "_unary")
        make = getattr(channel, kind)(method.path, method.request.SerializeToString, method.response.FromString)
        answer = make(iter([request]) if method.client_streams else request, timeout=120,
                      metadata=[("authorization", f"Bearer {cls.place.key}")] if of_worker else None)
        return list(answer) if method.server_streams else answer

    def valid_request(self, method):
        request = method.request()
        fill(request)
        for name, value in (("session_id", self.session_id), ("array", self.array), ("program", self.program)):
            field = method.request.DESCRIPTOR.fields_by_name.get(name)
            if field is not None:
                setattr(request, name, value)
        return request

    def doubled(self):
        called = self.ask("SessionWorker.CallProgram", program=self.program, arguments=[{"array": self.array}])
        chunks = self.ask("SessionWorker.GetArray", array=called.results[0])
        return struct.unpack("<4f", b"".join(chunk.data for chunk in chunks))

    def test_every_field_of_every_call_to_a_session(self):
        self.assertEqual(self.doubled(), (2, 4, 6, 8))
        attempt = busiest(self.made.workers["w0"])
        memory = resident_mb(attempt)
        of_followers = ("SessionWorker.Follow", "SessionWorker.GetArrayShard", "SessionWorker.PutArrayShard")
        asked = collections.Counter()
        for name, method in sorted(protos.METHODS.items()):
            if not name.startswith("SessionWorker."):
                continue
            request = self.valid_request(method)
            for token in (None, "wrong"):
                code, details = call(self.worker, method, [request], token=token)
                self.assertEqual(code, grpc.StatusCode.UNAUTHENTICATED, f"{name} with key {token}: {details}")
            for mutant in mutants(request):
                code, details = call(self.worker, method, [mutant], token=self.place.key)
                asked[code] += 1
                slow = code == grpc.StatusCode.DEADLINE_EXCEEDED and stays_open(method)
                # A client's key is not that of another worker, and a program needs the coordinator's seal.
                allowed = ({grpc.StatusCode.UNAUTHENTICATED} if name in of_followers
                           else ALLOWED | {grpc.StatusCode.PERMISSION_DENIED})
                shown = str(mutant)[:300]
                self.assertTrue(code in allowed or slow, f"{name}({shown}): {code}: {details[:500]}")
                self.assertLess(len(details), 5000, f"{name}({shown}): an error that repeats its request")
        print(f"calls to a session by answer: { {code.name: count for code, count in asked.items()} }", flush=True)
        self.assertGreater(asked.total(), 100)
        self.assertEqual(self.doubled(), (2, 4, 6, 8), "the session continues as before")
        job = self.made.job(self.session_id)
        self.assertEqual((job["state"], job["attempt"]), ("RUNNING", 1), job)
        self.assertIn(attempt, attempts(self.made.workers["w0"]))
        self.assertLess(resident_mb(attempt), memory + 200)

    def test_large_bodies_without_its_key(self):
        before = resident_mb(busiest(self.made.workers["w0"]))
        check_large_bodies(self, self.place.address, "SessionWorker.PutArray", self.place.key, SESSION_UNREAD)
        self.assertLess(resident_mb(busiest(self.made.workers["w0"])), before + 100)


class WithoutAToken(unittest.TestCase):
    def test_large_bodies(self):
        """A call without a valid token ends before its messages fill the memory that all callers share."""
        with folder() as where:
            (where / "token").write_text("the token of this test\n")
            coordinator = Process(where / "log", "coordinator", "--listen", "127.0.0.1:0", "--data", where / "data",
                                  "--token-file", where / "token")
            self.addCleanup(coordinator.close)
            address = wait_for(lambda: re.search(r'listens","address":"([^"]+)"', coordinator.log()), "the address")
            for name in ("PutBlob", "SubmitJob", "Attach"):
                check_large_bodies(self, address[1], name, "the token of this test")


class EndedSession(unittest.TestCase):
    def test_its_key_is_worthless(self):
        """The worker and its device serve the next session."""
        def ask(channel, name, key=None, /, **fields):
            method = protos.METHODS[name]
            stub = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            return stub(method.request(**fields), timeout=120,
                        metadata=[("authorization", f"Bearer {key}")] if key else None)

        def free(place, session, key):
            """Makes a call to the worker of a session, and returns the status code."""
            with grpc.insecure_channel(place.address) as worker:
                try:
                    ask(worker, "SessionWorker.FreeArrays", key, session_id=session, arrays=[])
                    return grpc.StatusCode.OK
                except grpc.RpcError as error:
                    return error.code()

        with cluster(workers=1, devices=1) as made, grpc.insecure_channel(made.address) as coordinator:
            hold = protos.METHODS["HoldSession"]
            places = []
            for name in ("first", "second"):
                session = ask(coordinator, "OpenSession", client_key=name, mesh=[{"name": "dp", "size": 1}]).session_id
                held = coordinator.unary_stream(hold.path, hold.request.SerializeToString, hold.response.FromString)(
                    hold.request(session_id=session))
                self.addCleanup(held.cancel)
                places.append((ask(coordinator, "LocateSession", session_id=session), session))
                self.assertEqual(free(*places[-1], places[-1][0].key), grpc.StatusCode.OK)
                if name == "first":
                    ask(coordinator, "CloseSession", session_id=session)
            (ended, ended_session), (serving, session) = places
            for name in (ended_session, session):
                self.assertEqual(free(serving, name, ended.key), grpc.StatusCode.UNAUTHENTICATED)
            wait_for(lambda: free(ended, ended_session, ended.key) != grpc.StatusCode.OK,
                     "the worker to stop serving the session that has ended")


if __name__ == "__main__":
    unittest.main()

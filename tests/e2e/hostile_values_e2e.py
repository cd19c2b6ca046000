"""Values at, just over and far over their limits, in every field of every call of a coordinator, and messages that are
not valid protocol buffers: text that is not UTF-8, deep nesting, wrong wire types, truncated messages.

hostile_e2e.py changes one field of an otherwise empty request. Here the requests name a job that trains and a session,
so that they pass the first checks. Every refusal must say what was found. Afterwards, the job trains as before, and the
memory and the descriptors of the coordinator are as before. The same holds for messages of up to 60 MB: names, and
lists of millions of empty elements.
"""

import collections
import concurrent.futures
import functools
import json
import re
import threading
import time
import unittest

import grpc
from xlad import protos

from harness import OWN_EXAMPLES, cluster, stays_open, wait_for, xlad
from hostile_e2e import ALLOWED, SKIPPED, call, descriptors, is_repeated, resident_mb

JOB = OWN_EXAMPLES / "spiral_mlp"
NAME, TENSOR, PATH = 256, 1024, 4096  # The limits of texts in service/rpc/validate.h.
INTEGERS = [1, 2**20, 2**20 + 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -1, -(2**31), -(2**62), -(2**63)]
TEXTS = ["x" * size + end for size in (NAME, TENSOR, PATH) for end in ("", "x")] + [
    "\u00e9" * NAME, "xlad:", "xlad:" + "0" * 64, "xlad:" + "0" * 63, "file:/" + "x/" * 5000, "file:/../..", "stream:",
    "cpu:99999999999999999999", "cpu:-1", "cpu," * 2000, "\x00", "0" * 64]
MESHES = [[("a", 2**31), ("b", 2**31)], [("a", 2**62), ("b", 4)], [("a", 2**62), ("b", -4)], [("a", 2**20), ("b", 2)],
          [("a", 1), ("a", 1)], [("a", 0)], [("a", -1)], [("", 1)], [("a" * (NAME + 1), 1)],
          [(f"a{i}", 1) for i in range(17)], [(f"a{i}", 2) for i in range(64)], [(f"a{i}", 1) for i in range(100_000)]]
SHAPES = [[2**31, 2**31], [2**31, 2**31, 2**31], [2**62, 4], [2**62, 2], [2**63 - 1], [2**40] * 8, [-1], [-2, -2],
          [0, 2**62], [2**62, 2**62, 0], [1] * 64, [1] * 65, [1] * 1_000_000]
LARGE = 60_000_000  # Less than any message that gRPC accepts.
BOXES = [([4], [0]), ([0, 0], [1]), ([], [1]), ([0], []), ([-4], [4]), ([0], [2**63 - 1]), ([2**62], [2**62 + 1]),
         ([-(2**63)], [2**63 - 1]), ([0] * 65, [1] * 65), ([0] * 100_000, [1] * 100_000)]
MARK = "replace-these-bytes"


def setter_of(kind):
    """Returns the function that sets a field of this kind to a value of STRUCTURES."""
    def set_mesh(field, value):
        del field[:]
        for name, size in value:
            field.add(name=name, size=size)

    def set_shape(field, value):
        field.element_type = 11  # f32
        field.dims[:] = value

    def set_box(field, value):
        field.lo[:], field.hi[:] = value

    return {"MeshAxis": set_mesh, "ArrayShape": set_shape, "Box": set_box}[kind]


STRUCTURES = {"MeshAxis": MESHES, "ArrayShape": SHAPES, "Box": BOXES}


def paths(descriptor, depth=0):
    """Yields the path of every field of a message and of its parts."""
    for field in descriptor.fields:
        yield (field,)
        is_part = field.cpp_type == field.CPPTYPE_MESSAGE and not field.message_type.GetOptions().map_entry
        if is_part and depth < 3 and field.message_type.name not in STRUCTURES:
            for rest in paths(field.message_type, depth + 1):
                yield (field, *rest)


def values_of(field):
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        return STRUCTURES.get(field.message_type.name, [])
    if field.cpp_type == field.CPPTYPE_STRING:
        return TEXTS if field.type == field.TYPE_STRING else []
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return [float("nan"), float("inf"), float("-inf"), 1e308, -0.0]
    if field.cpp_type in (field.CPPTYPE_BOOL, field.CPPTYPE_ENUM):
        return []
    bits = 32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    is_signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    return [value for value in INTEGERS if low <= value <= high]


def changed(request, path, value):
    """Returns a copy of the request in which the field at the path has the value."""
    copy = type(request)()
    copy.CopyFrom(request)
    at = copy
    for part in path[:-1]:
        inner = getattr(at, part.name)
        at = (inner[0] if inner else inner.add()) if is_repeated(part) else inner
        at.SetInParent()
    field = path[-1]
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        inner = getattr(at, field.name)
        is_mesh = field.message_type.name == "MeshAxis"
        setter_of(field.message_type.name)(inner.add() if is_repeated(field) and not is_mesh else inner, value)
    elif is_repeated(field):
        getattr(at, field.name).append(value)
    else:
        setattr(at, field.name, value)
    return copy


class Raw:
    """A message that is given by its bytes."""

    def __init__(self, data):
        self.data = data

    def SerializeToString(self):
        return self.data

    def __str__(self):
        return f"{len(self.data)} bytes: {self.data[:80]!r}"


def malformed(request, descriptor):
    """Yields messages that are not valid protocol buffers, or barely valid ones."""
    valid = request.SerializeToString()
    for path in paths(descriptor):
        if path[-1].type == path[-1].TYPE_STRING and not any(is_repeated(part) for part in path[:-1]):
            text = changed(request, path, MARK).SerializeToString()
            for bad in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"):
                yield Raw(text.replace(MARK.encode(), (bad * len(MARK))[:len(MARK)]))
    start_group, end_group = b"\xf3\x3e", b"\xf4\x3e"  # Field 1006, which no message has.
    yield Raw(valid + start_group * 100_000)
    yield Raw(valid + start_group * 100_000 + end_group * 100_000)
    yield Raw(valid + start_group * 50 + end_group * 50)
    yield Raw(valid + b"\x0a\xff\xff\xff\xff\x0f")  # A field of 4 GiB that is not there.
    yield Raw(valid + b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    yield Raw(valid + b"\xff" * 20)
    yield Raw(valid[:-1] if valid else b"\x0a")
    for number in range(1, 8):
        for wire_type in range(8):
            yield Raw(bytes([number << 3 | wire_type]) + b"\x7f" * 9)


def inside(path, contents):
    """Returns a message in which the field at the end of the path has these contents."""
    for field in reversed(path):
        size = len(contents)
        length = b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        contents = bytes([field.number << 3 | 2]) + length + bytes([size]) + contents
    return contents


def large(request, descriptor):
    """Yields messages with a text of 60 MB or as many numbers, and with lists of elements of two bytes, whose sizes are
    just below the limits of the calls."""
    valid = request.SerializeToString()
    for path in paths(descriptor):
        field = path[-1]
        if len(path) > 2 or field.number > 15 or path[0].number > 15:
            continue
        if is_repeated(field) and field.cpp_type in (field.CPPTYPE_STRING, field.CPPTYPE_MESSAGE):
            for size in (LARGE, 16_000_000, 4_000_000):
                yield Raw(valid + inside(path[:-1], bytes([field.number << 3 | 2, 0]) * (size // 2)))
        elif field.type == field.TYPE_STRING or is_repeated(field):
            yield Raw(valid + inside(path, b"\x01" * LARGE))


def attach(channel, method, requests):
    """Sends the messages as a worker, and waits until the coordinator has handled all of them or has ended the stream.
    It handles the messages in order, and answers the clock probe that follows them."""
    probe = protos.METHODS["Attach"].request()
    probe.clock_probe.sent_ns = 1
    stream = channel.stream_stream(method.path, lambda message: message.SerializeToString(), method.response.FromString)
    responses = stream(iter([*requests, probe]), timeout=60)
    try:
        for response in responses:
            if response.HasField("clock"):
                responses.cancel()
                return grpc.StatusCode.OK, ""
        return grpc.StatusCode.OK, ""
    except grpc.RpcError as error:
        return error.code(), error.details() or ""


class HostileValues(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = cls.enterClassContext(cluster(workers=1, devices=4))
        cls.job_id = cls.made.submit(JOB, "--mesh", "dp=2", "--steps", "100000000")
        wait_for(lambda: cls.made.job(cls.job_id)["state"] == "RUNNING", "the job to run")
        cls.channel = cls.enterClassContext(grpc.insecure_channel(cls.made.address))
        cls.session_id = cls.ask_for("OpenSession", client_key="v", mesh=[{"name": "dp", "size": 2}]).session_id
        hold = protos.METHODS["HoldSession"]
        held = cls.channel.unary_stream(hold.path, hold.request.SerializeToString, hold.response.FromString)(
            hold.request(session_id=cls.session_id))
        cls.addClassCleanup(held.cancel)
        cls.ask_for("LocateSession", session_id=cls.session_id)  # Waits until the session runs.

    @classmethod
    def ask_for(cls, name, /, **fields):
        method = protos.METHODS[name]
        call_it = cls.channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        return call_it(method.request(**fields), timeout=240)

    def setUp(self):
        self.wrong = {}  # The wrong answers by call and status.
        self.most_mb = 250  # By how much the coordinator may have grown at the end.
        self.before = (resident_mb(self.made.coordinator.pid), descriptors(self.made.coordinator.pid))

    def tearDown(self):
        for process in (self.made.coordinator, self.made.workers["w0"]):
            self.assertIsNone(process.popen.poll(), f"a process has ended:\n{process.log()[-2000:]}")
        for job_id in (self.job_id, self.session_id):
            job = self.made.job(job_id)
            self.assertEqual((job["state"], job["attempt"]), ("RUNNING", 1), job)
        step = self.made.job(self.job_id)["step"]
        wait_for(lambda: self.made.job(self.job_id)["step"] > step, "the job to continue")
        code, out, err = xlad("status", "--coordinator", self.made.address, "--format", "json")
        self.assertEqual(code, 0, err)
        self.assertEqual({worker["id"]: worker["state"] for worker in json.loads(out)["workers"]}["w0"], "alive")
        memory, files = self.before
        wait_for(lambda: descriptors(self.made.coordinator.pid) <= files + 32, "the connections to be closed")
        wait_for(lambda: resident_mb(self.made.coordinator.pid) < memory + self.most_mb, "the memory to be freed")

    def valid(self, name, method):
        """Returns a request that names what exists. Calls that would end or change it name something else."""
        request = method.request()
        ends = name in ("CancelJob", "CloseSession", "DrainWorker", "ResizeJob", "UndrainWorker")
        fields = method.request.DESCRIPTOR.fields_by_name
        for field, value in (("job_id", "job-none" if ends else self.job_id), ("worker_id", "nobody"),
                             ("session_id", "job-none" if ends else self.session_id), ("digest", "0" * 64),
                             ("program_blob", "0" * 64), ("executable_digest", "0" * 64), ("client_key", name)):
            if field in fields:
                setattr(request, field, value)
        if name == "SubmitJob":
            request.spec.program_blob = "0" * 64
            request.spec.steps = 1
            request.spec.mesh.add(name="dp", size=64)  # More devices than there are.
        if name == "Attach":
            request.register.worker_id, request.register.incarnation, request.register.protocol = "stranger", 1, 1
            request.register.devices = 1
        return request

    def report(self, field):
        """Returns a worker's message with this part, about the attempt that runs."""
        message = protos.METHODS["Attach"].request()
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            part = getattr(message, field.name)
            part.SetInParent()
            for name, value in (("job_id", self.job_id), ("attempt", 1), ("generation", 1)):
                if name in part.DESCRIPTOR.fields_by_name:
                    setattr(part, name, value)
        return message

    def note(self, name, code, what):
        """Records a wrong answer, at most three for each call and status."""
        noted = self.wrong.setdefault((name, code.name), [])
        if len(noted) < 3:
            noted.append(what)

    def ask(self, name, method, requests):
        """Makes a call, checks its status, and returns it with the time that it took."""
        start = time.monotonic()
        if name == "Attach":
            code, details = attach(self.channel, method, requests)
        else:
            code, details = call(self.channel, method, requests, timeout=1.0 if stays_open(method) else 60.0)
        shown = " then ".join(str(request)[:300] for request in requests)
        # A stream may have nothing to say yet. A program needs the coordinator's seal.
        waits = code == grpc.StatusCode.DEADLINE_EXCEEDED and stays_open(method) and name != "Attach"
        has_no_seal = code == grpc.StatusCode.PERMISSION_DENIED and name == "AddProgram"
        if not (code in ALLOWED or waits or has_no_seal):
            self.note(name, code, f"{shown}: {details[:500]}")
        if len(details) >= 5000:
            self.note(name, code, f"{shown}: an error that repeats its request")
        if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE):
            if not re.search(r"found .*(expected|cannot be parsed)", details, re.DOTALL):
                self.note(name, code, f"{shown}: {details[:500]}")
        return code.name, time.monotonic() - start

    def ask_all(self, calls):
        """Makes all calls: for each method, the functions that return a call's requests. Eight calls run at once, but
        a worker has one stream."""
        codes, seconds = collections.Counter(), collections.Counter()
        for name, method, makers in calls:
            with concurrent.futures.ThreadPoolExecutor(1 if name == "Attach" else 8) as pool:
                for code, took in pool.map(lambda make: self.ask(name, method, make()), makers):
                    codes[code] += 1
                    seconds[name] += took
        print(f"calls by answer: {dict(codes)}; most seconds: {seconds.most_common(3)}", flush=True)
        self.assertFalse(self.wrong, json.dumps([[*key, *what] for key, what in self.wrong.items()], indent=1))
        self.assertGreater(codes["INVALID_ARGUMENT"], 300)

    def methods(self):
        for name, method in sorted(protos.METHODS.items()):
            if name not in SKIPPED and "." not in name:
                yield name, method, self.valid(name, method)

    def test_values_at_and_over_their_limits(self):
        def requests(request, path, value):
            if "register" in request.DESCRIPTOR.fields_by_name and path[0].name != "register":
                return [request, changed(self.report(path[0]), path, value)]
            return [changed(request, path, value)]

        self.ask_all((name, method, [functools.partial(requests, request, path, value)
                                     for path in paths(method.request.DESCRIPTOR) for value in values_of(path[-1])])
                     for name, method, request in self.methods())

    def test_messages_that_are_not_valid_protocol_buffers(self):
        self.ask_all((name, method._replace(request=Raw),
                      [functools.partial(list, [message]) for message in malformed(request, method.request.DESCRIPTOR)])
                     for name, method, request in self.methods())

    def test_messages_of_60_mb(self):
        pid = self.made.coordinator.pid
        self.most_mb = 600  # The C library keeps memory that other threads have freed.
        before = peak = resident_mb(pid)
        ended, asked = threading.Event(), 0

        def watch():
            nonlocal peak
            while not ended.wait(0.01):
                peak = max(peak, resident_mb(pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for name, method, request in self.methods():
                if not stays_open(method):
                    for message in large(request, method.request.DESCRIPTOR):
                        code, _ = self.ask(name, method._replace(request=Raw), [message])
                        asked += 1
                        if code not in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED") and name != "AddProgram":
                            self.wrong.setdefault((name, code), []).append(str(message))
        finally:
            ended.set()
            watcher.join()
        print(f"{asked} messages of up to 60 MB: the coordinator grew from {before:.0f} to {peak:.0f} MB", flush=True)
        self.assertFalse(self.wrong, json.dumps([[*key, *what] for key, what in self.wrong.items()], indent=1))
        self.assertGreater(asked, 40)
        self.assertLess(peak, before + self.most_mb)


if __name__ == "__main__":
    unittest.main()

"""Connections whose token is replaced while they are open."""

import pathlib
import tempfile
import unittest
from concurrent import futures

import grpc

from xlad import protos
from xlad.connection import Connection, sha256
from xlad.errors import Error

CONTENTS = bytes(range(256)) * (3 << 12)  # 3 MiB, which are three messages.


class Coordinator(grpc.GenericRpcHandler):
    """Accepts the token "second". If the token of a call is "first", writes the second token to the client's file
    before it refuses the call, so that the client cannot have read it earlier. Refuses all other tokens."""

    def __init__(self, token_file):
        self.token_file = token_file
        self.refused = []
        self.uploaded = []

    def service(self, call):
        name = call.method.rpartition("/")[2]
        m = protos.METHODS[name]
        kind = {(False, False): "unary_unary", (False, True): "unary_stream", (True, False): "stream_unary"}
        make = getattr(grpc, kind[m.client_streams, m.server_streams] + "_rpc_method_handler")
        return make(getattr(self, name), m.request.FromString, m.response.SerializeToString)

    def check(self, context):
        token = dict(context.invocation_metadata())["authorization"].removeprefix("Bearer ")
        if token == "second":
            return
        self.refused.append(token)
        if token == "first":
            self.token_file.write_text("second\n")
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "found a token, which was revoked")

    def GetJob(self, request, context):
        self.check(context)
        return protos.message("JobStatus")(id=request.job_id)

    def HasBlobs(self, request, context):
        return protos.message("HasBlobsResponse")(missing=request.digests)

    def PutBlob(self, requests, context):
        first = next(requests)
        self.check(context)
        self.uploaded.append(b"".join([first.chunk, *(request.chunk for request in requests)]))
        return protos.message("PutBlobResponse")()

    def GetBlob(self, request, context):
        half = len(CONTENTS) // 2
        yield protos.message("Chunk")(data=CONTENTS[:half])
        self.check(context)
        yield protos.message("Chunk")(data=CONTENTS[half:])

    def WatchJob(self, request, context):
        """Answers a watch from step 0 once before it checks the token."""
        if request.from_step == 0:
            yield protos.message("WatchJobResponse")(metrics=[{"step": 0}])
        self.check(context)
        yield protos.message("WatchJobResponse")(metrics=[{"step": 1}])


class ReplacedTokens(unittest.TestCase):
    def setUp(self):
        self.file = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "join")
        self.coordinator = Coordinator(self.file)
        server = grpc.server(futures.ThreadPoolExecutor(2), handlers=(self.coordinator,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        self.address = f"127.0.0.1:{port}"

    def connect(self, token="first"):
        self.file.write_text(f"{token}\naddress: {self.address}\n")
        connection = Connection(self.address, token_file=str(self.file))
        self.addCleanup(connection.close)
        return connection

    def test_a_call_is_made_again(self):
        self.assertEqual(self.connect().call("GetJob", job_id="job-1").id, "job-1")
        self.assertEqual(self.coordinator.refused, ["first"])

    def test_an_upload_begins_again(self):
        self.connect().put_blobs([CONTENTS])
        self.assertEqual(self.coordinator.refused, ["first"])
        self.assertEqual(self.coordinator.uploaded, [CONTENTS])

    def test_a_download_begins_again(self):
        self.assertEqual(self.connect().get_blob(sha256(CONTENTS)), CONTENTS)
        self.assertEqual(self.coordinator.refused, ["first"])

    def test_a_stream_that_is_refused_at_its_start_is_opened_again(self):
        steps = [u.metrics[0].step for u in self.connect().stream("WatchJob", job_id="job-1", from_step=1)]
        self.assertEqual(steps, [1])
        self.assertEqual(self.coordinator.refused, ["first"])

    def test_a_stream_that_is_refused_later_can_be_continued(self):
        connection = self.connect()
        stream = connection.stream("WatchJob", job_id="job-1", from_step=0)
        self.assertEqual(next(stream).metrics[0].step, 0)
        with self.assertRaisesRegex(Error, "the token of this client was replaced: found a token") as caught:
            next(stream)
        self.assertEqual(caught.exception.code, "UNAVAILABLE")
        self.assertEqual(next(connection.stream("WatchJob", job_id="job-1", from_step=1)).metrics[0].step, 1)
        self.assertEqual(self.coordinator.refused, ["first"])

    def test_a_token_that_was_not_replaced_is_refused_once(self):
        connection = self.connect("other")
        with self.assertRaisesRegex(Error, "which was revoked") as caught:
            connection.call("GetJob", job_id="job-1")
        self.assertEqual(caught.exception.code, "UNAUTHENTICATED")
        self.assertEqual(self.coordinator.refused, ["other"])

    def test_the_last_token_remains_while_the_file_cannot_be_read(self):
        connection = self.connect("second")
        for break_file in (self.file.unlink, lambda: self.file.write_text(""), lambda: self.file.write_bytes(b"\xff")):
            break_file()
            self.assertFalse(connection._token.has_other("second"))
            self.assertEqual(connection.call("GetJob", job_id="job-1").id, "job-1")


if __name__ == "__main__":
    unittest.main()

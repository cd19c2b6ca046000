"""Calls to the first worker of a session, with connections that fail."""

import types
import unittest
from unittest import mock

from xlad import session_place
from xlad.errors import Error


class FakeConnection:
    """Each call returns or raises the next one of `answers`. If the answer is a function, its result is used."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.closed = False

    def call(self, method, **fields):
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer()
        if isinstance(answer, Error):
            raise answer
        return answer

    def close(self):
        self.closed = True


class Places(unittest.TestCase):
    def setUp(self):
        self.now = 1000.0
        clock = mock.patch.object(session_place, "time", types.SimpleNamespace(monotonic=lambda: self.now))
        clock.start()
        self.addCleanup(clock.stop)
        self.ended = None

    def place(self, *connections):
        """Returns a place that opens these connections, one after the other."""
        coordinator = mock.Mock()
        coordinator.call.return_value = types.SimpleNamespace(address="127.0.0.1:1", key="k")
        place = session_place.Place(coordinator, "job-1", self.wait_for_end)
        place._reach = mock.Mock(side_effect=connections)
        return place

    def wait_for_end(self, seconds):
        self.now += seconds
        return self.ended

    def after(self, seconds, code):
        def fails():
            self.now += seconds
            return Error("it failed", code)
        return fails

    def test_a_long_call_whose_connection_is_lost_is_repeated(self):
        lost, good = FakeConnection(self.after(10 * session_place.END_S, "UNAVAILABLE")), FakeConnection(7)
        self.assertEqual(self.place(lost, good).call("GetArray"), 7)
        self.assertTrue(lost.closed)
        self.assertFalse(good.closed)

    def test_calls_to_a_worker_that_stays_unreachable_fail(self):
        lost = [FakeConnection(self.after(1, "UNAVAILABLE")) for _ in range(100)]
        with self.assertRaisesRegex(Error, "it failed"):
            self.place(*lost).call("CallProgram")
        self.assertGreaterEqual(self.now, 1000 + session_place.END_S)
        self.assertTrue(any(connection.answers for connection in lost))

    def test_the_end_of_the_session_is_the_reason(self):
        self.ended = "worker w1 was lost"
        for code in ("UNAVAILABLE", "ABORTED", "CANCELLED", "UNAUTHENTICATED"):
            with self.subTest(code), self.assertRaisesRegex(Error, "job-1 has ended: worker w1 was lost"):
                self.place(FakeConnection(self.after(0, code))).call("CallProgram")

    def test_a_connection_that_another_thread_closes(self):
        for code in ("CANCELLED", "FAILED_PRECONDITION"):
            def closed_by_another_thread(code=code):
                place._drop(first)
                place._connect()
                return Error("it was closed", code)

            with self.subTest(code):
                first, second = FakeConnection(closed_by_another_thread), FakeConnection(8)
                place = self.place(first, second)
                self.assertEqual(place.call("CallProgram"), 8)
                self.assertTrue(first.closed)
                self.assertFalse(second.closed)

    def test_other_errors_are_not_repeated(self):
        for code in ("CANCELLED", "FAILED_PRECONDITION", "NOT_FOUND"):
            with self.subTest(code), self.assertRaisesRegex(Error, "it failed"):
                self.place(FakeConnection(self.after(0, code), 9)).call("CallProgram")


if __name__ == "__main__":
    unittest.main()

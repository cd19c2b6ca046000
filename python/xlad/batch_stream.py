"""Batches that are read one by one from an iterator, and sent to a job as it needs them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from xlad import protos
from xlad.connection import CHUNK_BYTES, PATIENCE_S, Connection
from xlad.errors import Error

PAUSE_S = 0.2


class BatchSender:
    """Reads batches from an iterator and sends them to a job, on a thread of its own, at the pace of the job.

    When the iterator raises an error or ends before the last step, or a batch cannot be sent, `error` is set and the
    job is canceled.
    """

    def __init__(self, connection: Connection, job_id: str, batches: Callable[[int], Iterator[bytes]],
                 steps: int) -> None:
        """`batches(step)` yields the batch of `step` and all later ones. It is called once, with the job's first step.
        `steps` is the number of steps of the job, those before its first step included."""
        self.error: BaseException | None = None
        self._connection = connection
        self._job_id = job_id
        self._batches = batches
        self._steps = steps
        self._pause = threading.Event()  # Never set; used only to wait with a timeout.
        threading.Thread(target=self._run, name=f"xlad batches of {job_id}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._send_all()
        except BaseException as error:
            self.error = error
            try:
                self._connection.call("CancelJob", job_id=self._job_id)
            except Error:
                pass  # The job has ended, or the coordinator cannot be reached. In the second case the job waits.

    def _send_all(self) -> None:
        number = self._patiently(lambda: self._put(0, b"", False)).next
        for batch in self._batches(number):
            if not self._send(number, batch, False):
                return
            number += 1
        if self._send(number, b"", True) and number < self._steps:
            raise Error(f"found no batch for step {number}, because the iterator has ended; expected one for each of "
                        f"the {self._steps} steps", "OUT_OF_RANGE")

    def _send(self, number: int, batch: bytes, last: bool) -> bool:
        """Sends one batch, and returns whether the job accepts further batches."""
        while True:
            answer = self._patiently(lambda: self._put(number, batch, last))
            if answer.ended:
                return False
            if answer.accepted or answer.next > number:  # The answer to an earlier try may have been lost.
                return True
            if answer.next < number:
                raise Error(f"job {self._job_id} needs batch {answer.next} again, which the iterator has already "
                            "yielded: the coordinator has lost the data of the batch", "DATA_LOSS")

    def _put(self, number: int, batch: bytes, last: bool) -> Any:
        put = protos.METHODS["PutBatch"].request
        view = memoryview(batch)
        first = put(job_id=self._job_id, batch=number, last=last, chunk=bytes(view[:CHUNK_BYTES]))

        def requests() -> Iterator[Any]:
            yield first
            for at in range(CHUNK_BYTES, len(view), CHUNK_BYTES):
                yield put(chunk=bytes(view[at : at + CHUNK_BYTES]))

        return self._connection.upload("PutBatch", requests)

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Repeats a call for about PATIENCE_S while it fails because the coordinator cannot be reached or its disk is
        full, or because the call was aborted or canceled. Then raises the error."""
        tries = int(PATIENCE_S / PAUSE_S)
        for attempt in range(tries + 1):
            try:
                return call()
            except Error as error:
                if error.code not in ("UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED", "CANCELLED") or attempt == tries:
                    raise
            self._pause.wait(PAUSE_S)

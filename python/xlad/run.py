"""A submitted job as an iterator over its steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from xlad import checkpoint, protos, safetensors
from xlad.batch_stream import BatchSender
from xlad.connection import Connection
from xlad.errors import Error
from xlad.waiting import Waiting

PATIENCE_S = 60.0  # How long the coordinator may be unreachable.
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


class Step(NamedTuple):
    """The report of one step."""

    step: int
    metrics: dict[str, float]
    ms: float

    @property
    def loss(self) -> float:
        if "loss" not in self.metrics:
            raise AttributeError(f"the step reports {', '.join(self.metrics) or 'no metrics'}, but no loss")
        return self.metrics["loss"]


class Status(NamedTuple):
    """job_id, name, state ("PENDING", "COMPILING", "STARTING", "RUNNING", or one of ENDED), steps done and in total."""

    job_id: str
    name: str
    state: str
    step: int
    steps: int
    reason: str
    compile_ms: float
    mesh: dict[str, int]
    workers: int

    @staticmethod
    def of(message: Any) -> Status:
        state = protos.enum_name("JobState", message.state)
        mesh = {axis.name: axis.size for axis in message.mesh}
        return Status(message.id, message.name, state, message.step, message.steps, message.reason, message.compile_ms,
                      mesh, len(message.workers))


class Run(Iterator[Step]):
    """Yields each step once, in order, when it is reported. Not thread-safe.

    Leaving the loop early leaves the job running; `cancel()` ends it.
    """

    def __init__(self, connection: Connection, job_id: str, metric_names: list[str],
                 restore: Callable[[Mapping[str, Any]], Any], alive: Callable[[], None],
                 sender: BatchSender | None = None) -> None:
        """`alive` raises an error if the coordinator has ended for good. `sender` sends the batches, if they are not
        part of the job."""
        self.job_id = job_id
        self.history: list[Step] = []
        self._connection = connection
        self._metric_names = metric_names
        self._restore = restore
        self._alive = alive
        self._sender = sender
        self._status: Any = None
        self._updates: Iterator[Step] | None = None

    def __next__(self) -> Step:
        if self._updates is None:
            self._updates = self._watch()
        try:
            return next(self._updates)
        except StopIteration:
            raise
        except BaseException:  # For example Ctrl-C in a notebook: the next iteration continues here.
            self._updates = None
            raise

    @property
    def losses(self) -> list[float]:
        """The metrics of the steps that were iterated over so far."""
        return [step.loss for step in self.history]

    def status(self) -> Status:
        return Status.of(self._connection.call("GetJob", job_id=self.job_id))

    def wait(self) -> Status:
        """Waits until the job has ended. Raises an error if it did not succeed."""
        for _ in self:
            pass
        self._has_ended()
        return Status.of(self._status)

    def result(self) -> Any:
        """Waits and returns the final state: a tree like the initial state (for a job directory: arrays by name)."""
        self.wait()
        if self._status.final_state_blob:
            return self._restore(safetensors.parse(self._connection.get_blob(self._status.final_state_blob)))
        if not self._status.has_checkpoint:
            raise Error(f"job {self.job_id} has no final state", "NOT_FOUND")
        return self._restore(checkpoint.read(self._status.checkpoint_uri, self._connection.get_blob))

    def cancel(self) -> None:
        self._connection.call("CancelJob", job_id=self.job_id)

    def _watch(self) -> Iterator[Step]:
        waiting = Waiting(self.job_id)
        try:
            yield from self._updates_of(waiting)
        finally:
            waiting.stop()

    def _updates_of(self, waiting: Waiting) -> Iterator[Step]:
        lost_since: float | None = None
        while True:
            stream = self._connection.stream("WatchJob", job_id=self.job_id, from_step=len(self.history))
            try:
                for update in stream:
                    lost_since = None
                    self._status = update.status
                    waiting.update(protos.enum_name("JobState", update.status.state), update.status.reason)
                    for metrics in update.metrics:
                        self.history.append(Step(metrics.step, dict(zip(self._metric_names, metrics.values)),
                                                 metrics.step_ms))
                        yield self.history[-1]
                # The stream ends after the last metrics; before that, the job may have ended already.
                if self._status is not None and self._has_ended():
                    return
            except Error as error:
                if error.code != "UNAVAILABLE":
                    raise
                self._alive()
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > PATIENCE_S:
                    raise
            finally:
                stream.close()
            time.sleep(0.2)

    def _has_ended(self) -> bool:
        state = protos.enum_name("JobState", self._status.state)
        if state in ("FAILED", "CANCELLED"):
            if self._sender is not None and self._sender.error is not None:
                raise Error(f"job {self.job_id} {state}: its batches could not be read or sent: {self._sender.error!r}",
                            "ABORTED") from self._sender.error
            raise Error(f"job {self.job_id} {state}: {self._status.reason}", "ABORTED")
        return state == "SUCCEEDED"

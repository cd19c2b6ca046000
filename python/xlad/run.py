"""A submitted job as an iterator over its steps."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from xlad import checkpoint, protos, safetensors
from xlad.batch_stream import BatchSender
from xlad.connection import PATIENCE_S, Connection
from xlad.errors import Error
from xlad.metrics import Decoder
from xlad.progress import Progress
from xlad.waiting import Silence, Waiting

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
_PAUSE_S = 0.2


class Step(NamedTuple):
    """The report of one step. Metrics are numbers, or numpy arrays. `ms` is the time of the step in milliseconds."""

    step: int
    metrics: dict[str, Any]
    ms: float

    @property
    def loss(self) -> Any:
        if "loss" not in self.metrics:
            raise AttributeError(f"the step reports {', '.join(self.metrics) or 'no metrics'}, but no loss")
        return self.metrics["loss"]


class Status(NamedTuple):
    """The status of a job. `state` is "PENDING", "COMPILING", "STARTING", "RUNNING", or one of ENDED. `step` is the
    number of finished steps, and `steps` the total number. `compile_ms` is the time of the build in milliseconds, and
    `workers` the number of workers that run the job."""

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


class Checkpoint(NamedTuple):
    """The state before a step."""

    step: int
    state: Any


class Evaluation(NamedTuple):
    """What the function `evaluate` returned for the state before a step."""

    step: int
    result: Any


class Watching(NamedTuple):
    """How a run handles the reports of its job."""

    metric_names: list[str]
    restore: Callable[[Mapping[str, Any]], Any] = dict  # Converts arrays by name to the state.
    on_step: Callable[[Step], Any] | None = None
    evaluate: Callable[[Any, int], Any] | None = None  # Called with a state and its step.
    evaluate_every: int = 0
    first_step: int = 0
    may_wait_for_batches: bool = True  # False if it is known that the job has all its batches.
    progress: Progress = Progress()
    # True if `progress` is also drawn in loops over the steps; None if it is drawn only in wait() and result(); False
    # if it is never drawn.
    draws_steps: bool | None = None


class Run(Iterator[Step]):
    """Yields each step once, in order, when it is reported. Not thread-safe.

    Leaving the loop early leaves the job running; `cancel()` ends it.
    """

    def __init__(self, connection: Connection, job_id: str, watching: Watching, alive: Callable[[], None],
                 sender: BatchSender | None = None) -> None:
        """`alive` raises an error if the coordinator has ended permanently. `sender` sends the batches, or is None if
        they are part of the job or there are none."""
        self.job_id = job_id
        self.history: list[Step] = []
        self.evaluations: list[Evaluation] = []
        self._connection = connection
        self._watching = watching
        self._decode = Decoder(watching.metric_names)
        self._alive = alive
        self._sender = sender
        self._status: Any = None
        self._updates: Iterator[Step] | None = None
        self._draws = watching.draws_steps is True
        self._skips = False  # Whether a state could not be evaluated.
        self._next_evaluation: int | None = None  # A step; None before the first report.

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

    def __reduce__(self) -> Any:
        raise TypeError(f"a run cannot be pickled; call cluster.job({self.job_id!r}) in the other process")

    def __repr__(self) -> str:
        if self._status is None:
            return f"<run of {self.job_id}>"
        status = Status.of(self._status)
        metrics = self.history[-1].metrics if self.history else {}
        loss = f", loss {metrics['loss']}" if "loss" in metrics else ""
        reason = f": {status.reason}" if status.reason and status.state != "SUCCEEDED" else ""
        return (f"<run of {self.job_id} ({status.name}), {status.state}, step {status.step} of {status.steps}{loss}"
                f"{reason}>")

    @property
    def losses(self) -> list[Any]:
        """The losses of the steps that were iterated over so far."""
        return [step.loss for step in self.history]

    def status(self) -> Status:
        return Status.of(self._connection.call("GetJob", job_id=self.job_id))

    def why(self) -> str:
        """Returns a paragraph that says what the job does or waits for, the evidence, and what you can do."""
        return str(self._connection.call("WhyJob", job_id=self.job_id).text)

    def wait(self) -> Status:
        """Waits until the job has ended. Raises an error if it did not succeed."""
        self._draws = self._watching.draws_steps is not False
        try:
            for _ in self:
                pass
        finally:
            self._draws = self._watching.draws_steps is True
        self._has_ended()
        return Status.of(self._status)

    def result(self) -> Any:
        """Waits for the end of the job, and returns the final state: a tree like the initial state, or, for a job
        directory and for Cluster.job without `like`, arrays by name."""
        self.wait()
        if self._status.final_state_blob:
            return self._final_state(self._status.final_state_blob)
        if not self._status.has_checkpoint:
            raise Error(f"job {self.job_id} has no final state", "NOT_FOUND")
        return self._read(self._status.checkpoint_uri)

    def checkpoint(self) -> Checkpoint | None:
        """Returns the newest saved state, even while the job runs, or None if no state has been saved yet."""
        for _ in range(3):  # Tries again, because the checkpoint may be dropped before it is read.
            status = self._connection.call("GetJob", job_id=self.job_id)
            if not status.has_checkpoint:
                return None
            try:
                return Checkpoint(status.checkpoint_step, self._read(status.checkpoint_uri))
            except (Error, FileNotFoundError) as error:
                dropped = error
        raise dropped

    def cancel(self) -> None:
        self._connection.call("CancelJob", job_id=self.job_id)

    def _final_state(self, digest: str) -> Any:
        return self._watching.restore(safetensors.parse(self._connection.get_blob(digest)))

    def _read(self, uri: str) -> Any:
        return self._watching.restore(checkpoint.read(uri, self._connection.get_blob))

    def _watch(self) -> Iterator[Step]:
        waiting = Waiting(self.job_id, self.why)
        silence = None
        if self._watching.may_wait_for_batches:
            silence = Silence(functools.partial(_why_without_batches, self._connection, self.job_id))
        try:
            yield from self._updates_of(waiting, silence)
        finally:
            if silence is not None:
                silence.stop()
            waiting.stop()
            if self._draws:
                self._watching.progress.close()

    def _updates_of(self, waiting: Waiting, silence: Silence | None) -> Iterator[Step]:
        lost_since: float | None = None
        while True:
            stream = self._connection.stream("WatchJob", job_id=self.job_id, from_step=self._from_step())
            try:
                for update in stream:
                    lost_since = None
                    self._status = update.status
                    waiting.update(protos.enum_name("JobState", update.status.state), update.status.reason)
                    self._draw()
                    for metrics in update.metrics:
                        if silence is not None:
                            silence.report()
                        yield self._report(metrics)
                # The stream ends after the last metrics. The status may say earlier that the job has ended.
                if self._status is not None and self._has_ended():
                    self._evaluate(self._status.steps)
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
            time.sleep(_PAUSE_S)

    def _from_step(self) -> int:
        """Returns the step after the last reported one, or 0. The first step of a resumed job is later than 0."""
        return self.history[-1].step + 1 if self.history else 0

    def _report(self, metrics: Any) -> Step:
        """Evaluates the state before the step, then adds the step to the history."""
        self._evaluate(metrics.step)
        step = Step(metrics.step, self._decode(metrics.values), metrics.step_ms)
        self.history.append(step)
        self._draw()
        if self._watching.on_step is not None:
            self._watching.on_step(step)
        return step

    def _draw(self) -> None:
        if self._draws and self._status is not None:
            done = self.history[-1].step + 1 if self.history else self._watching.first_step
            loss = self.history[-1].metrics.get("loss") if self.history else None
            state = protos.enum_name("JobState", self._status.state)
            self._watching.progress.update(state, self._status.reason, done, self._status.steps,
                                           loss if isinstance(loss, float) else None)

    def _evaluate(self, step: int) -> None:
        """Evaluates all pending states, up to the state before `step`. The first evaluation is after the first reported
        step, which is not 0 if the job resumes another one."""
        every, evaluate = self._watching.evaluate_every, self._watching.evaluate
        if evaluate is None or not every:
            return
        if self._next_evaluation is None:
            self._next_evaluation = (step // every + 1) * every
        while (wanted := self._next_evaluation) <= step:
            state = self._state_before(wanted)
            if state is not None:
                self.evaluations.append(Evaluation(wanted, evaluate(state.state, wanted)))
            self._next_evaluation = wanted + every

    def _state_before(self, step: int) -> Checkpoint | None:
        """Waits for the checkpoint of a step. Returns None if it was not saved, or is no longer kept."""
        while True:
            status = self._connection.repeat("GetJob", job_id=self.job_id, alive=self._alive)
            uris = {saved.step: saved.uri for saved in status.checkpoints}
            state = protos.enum_name("JobState", status.state)
            if step in uris:
                return Checkpoint(step, self._read(uris[step]))
            if state == "SUCCEEDED" and step == status.steps and status.final_state_blob:
                return Checkpoint(step, self._final_state(status.final_state_blob))
            if state in ENDED or any(saved > step for saved in uris):
                if not self._skips:
                    logging.getLogger("xlad").warning(
                        "%s: the state before step %d is not evaluated, because it was not saved or is no longer kept; "
                        "other states may be skipped too, because the job does not wait for evaluations",
                        self.job_id, step)
                self._skips = True
                return None
            time.sleep(_PAUSE_S / 4)

    def _has_ended(self) -> bool:
        state = protos.enum_name("JobState", self._status.state)
        if state in ("FAILED", "CANCELLED"):
            error = None if self._sender is None else self._sender.error
            if error is not None:
                text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
                raise Error(f"job {self.job_id} {state}: its batches could not be read or sent: {text}",
                            "ABORTED") from error
            raise Error(f"job {self.job_id} {state}: {self._status.reason}", "ABORTED")
        return state == "SUCCEEDED"


def _why_without_batches(connection: Connection, job_id: str) -> str:
    """Returns why the job waits if its client has not sent the next batch, and otherwise an empty text."""
    why = connection.call("WhyJob", job_id=job_id)
    return str(why.text) if any(text.startswith("it waits for batch ") for text in why.evidence) else ""

"""A cluster: a coordinator and its workers."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from xlad import interrupts
from xlad.batch_stream import BatchSender
from xlad.connection import Connection
from xlad.jitted import Jitted
from xlad.job import Axes, Job, Recovery, axes_text, parse_axes, read_directory
from xlad.run import Run, Status
from xlad.session import Session
from xlad.training import Training


class Worker(NamedTuple):
    id: str
    host: str
    pid: int
    devices: int
    state: str


class Cluster:
    """The result of `connect` and `local`. Thread-safe. A context manager that closes the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._closed = False
        interrupts.hold()

    @property
    def address(self) -> str:
        return self._connection.address

    def train(
        self,
        step: Callable[..., Any] | str | pathlib.Path,
        state: Any = None,
        data: Any = None,
        *,
        steps: int | None = None,
        batch: int | None = None,
        mesh: Any = None,
        in_shardings: Any = None,
        name: str | None = None,
        checkpoint_every: int | None = None,
        resume: str | None = None,
        start_step: int = 0,
    ) -> Run:
        """Submits a training job. Iterate over the returned `Run` for its steps, then call its `result()`.

        Arguments are as of `xlad.export`. Instead of a function `step` may be the path of a job directory; then only
        `mesh` ("dp=4,tp=2"), `steps` and the recovery options are looked at.

        A checkpoint is saved every `checkpoint_every` steps (otherwise every 5 minutes). `resume` is a job's id or the
        URI of a checkpoint (file:/FOLDER, xlad:DIGEST): training continues from its state and step, and `state` only
        says what the state looks like. `start_step` is the number of the first step of a state that is not a
        checkpoint.

        An iterator of batches (a generator, a data loader) is read in a thread while the job runs: training starts with
        the first batch. The batches since the newest checkpoint are kept by the coordinator, so that recovery replays
        them; when this program ends early, the job waits (`xlad why`). Each step needs a batch; an object that is not an
        iterator itself is iterated over again. When training is resumed, the first batch is that of the first step.
        """
        recovery = Recovery(checkpoint_every, resume, start_step)
        if isinstance(step, (str, pathlib.Path)):
            given = {"state": state, "data": data, "batch": batch, "in_shardings": in_shardings, "name": name}
            if extra := [key for key, value in given.items() if value is not None]:
                raise TypeError(f"found {', '.join(extra)} with a job directory, expected mesh and steps only")
            axes = parse_axes(mesh or "") if isinstance(mesh, str | None) else dict(mesh)
            return self.submit(read_directory(step, axes, steps), recovery=recovery)
        if steps is None:
            raise TypeError("found no steps, expected how many to train")
        training = Training(step, state, data, steps=steps, batch=batch, name=name, stream=True)
        return self.submit(training.job(mesh, in_shardings), training.restore, recovery)

    def jit(
        self,
        function: Callable[..., Any],
        *,
        mesh: Any = None,
        in_shardings: Any = None,
        donate_argnums: int | Sequence[int] = (),
        static_argnums: int | Sequence[int] = (),
    ) -> Jitted:
        """Like jax.jit, but calls run on the cluster and results stay there, as `RemoteArray`s.

        `mesh` and `in_shardings` are as of `xlad.export`, with an entry for each argument that is not static. Arrays
        that are passed to `donate_argnums` cannot be used any more; parts of the result that look like them stay where
        they are. Values of `static_argnums` are part of the program: any that have a hash. All functions on one mesh
        share its devices and can be called with each other's results.
        """
        return Jitted(function, self._session_for, mesh, in_shardings, donate_argnums, static_argnums)

    def submit(self, job: Job, restore: Callable[..., Any] = dict, recovery: Recovery = Recovery()) -> Run:
        with self._lock:
            self._make_room(job.axes)
        spec = job.spec(keep_final_state=True)
        recovery.fill(spec)
        self._connection.put_blobs(blob for blob in (job.program, job.state, job.data) if blob)
        answer = self._connection.call("SubmitJob", client_key=uuid.uuid4().hex, spec=spec)
        sender = None if job.stream is None else BatchSender(self._connection, answer.job_id, job.stream)
        return Run(self._connection, answer.job_id, job.metric_names, restore, self._check_alive, sender)

    def jobs(self) -> list[Status]:
        return [Status.of(job) for job in self._connection.call("ListJobs").jobs]

    def workers(self) -> list[Worker]:
        found = self._connection.call("ListWorkers").workers
        return [Worker(w.id, w.host, w.pid, w.devices, w.state) for w in found]

    def close(self) -> None:
        """Closes the connection. Jobs continue; arrays of jitted functions are freed."""
        for session in self._sessions.values():
            session.close()
        self._connection.close()
        if not self._closed:
            self._closed = True
            interrupts.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    @contextlib.contextmanager
    def _session_for(self, axes: Axes) -> Iterator[Session]:
        with contextlib.ExitStack() as stack:
            with self._lock:
                session = self._sessions.get(axes_text(axes))
                if session is None or session.ended is not None:
                    self._make_room(axes)
                    session = self._sessions[axes_text(axes)] = Session(self._connection, axes)
                stack.enter_context(session.in_use())
            yield session

    def _make_room(self, axes: Axes) -> None:
        """Called before devices for a mesh are requested: closes sessions without arrays. Programs stay cached."""
        self._sessions = {text: session for text, session in self._sessions.items()
                          if session.ended is None and not session.give_up(with_arrays=False)}

    def _check_alive(self) -> None:
        """Raises an error if the coordinator has ended for good."""


def connect(address: str | None = None, *, ca_file: str | None = None, token_file: str | None = None) -> Cluster:
    """Connects to a running coordinator at HOST:PORT.

    Defaults are XLAD_COORDINATOR (otherwise the address of `xlad up`, 127.0.0.1:7411), XLAD_TLS_CA and
    XLAD_TOKEN_FILE. Off loopback both files are required. Raises an error if no coordinator answers.
    """
    address = address or os.environ.get("XLAD_COORDINATOR") or "127.0.0.1:7411"
    ca_file = ca_file or os.environ.get("XLAD_TLS_CA")
    token_file = token_file or os.environ.get("XLAD_TOKEN_FILE")
    connection = Connection(address, ca_file, token_file)
    try:
        connection.call("ListWorkers", timeout=10)
    except BaseException:
        connection.close()
        raise
    return Cluster(connection)

"""A cluster: a coordinator and its workers."""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, overload

import numpy as np

from xlad import interrupts
from xlad.batch_stream import BatchSender
from xlad.batches import DataOptions
from xlad.connection import Connection
from xlad.errors import Error
from xlad.jitted import Host, Jitted, Options
from xlad.job import Axes, Job, Recovery, axes_text, parse_axes, read_directory, whole_number
from xlad.progress import for_user
from xlad.remote_array import RemoteArray
from xlad.run import Run, Status, Step, Watching
from xlad.session import Session
from xlad.training import Training, restore_like


# How many operations of remote arrays, device_put included, stay traced and compiled.
MAX_OPERATIONS = 256


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
        # The operations of remote arrays and of device_put; the one that was used last is the last one.
        self._operations: collections.OrderedDict[Any, Jitted] = collections.OrderedDict()
        self._host = Host(self._session_for, self._operate)
        self._lock = threading.Lock()
        self._closed = False
        interrupts.hold()
        self._release_interrupts = weakref.finalize(self, interrupts.release)  # Also if it is never closed.
        self._release_interrupts.atexit = False

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
        resume: str | Run | None = None,
        start_step: int = 0,
        shuffle: bool | int = False,
        drop_last: bool = False,
        stop_when_not_finite: bool = False,
        mode: str = "run-to-run",
        memory_limit: int = 0,
        compile_tier: str = "quick-first",
        on_step: Callable[[Step], Any] | None = None,
        evaluate: Callable[[Any, int], Any] | None = None,
        evaluate_every: int | None = None,
        progress: bool | None = None,
    ) -> Run:
        """Submits a training job. Iterate over the returned `Run` for its steps, then call its `result()`.

        The arguments of `xlad.export` have the same meaning here. Instead of a function, `step` may be the path of a
        job directory. In this case `state`, `data`, `batch`, `in_shardings`, `name`, `shuffle`, `drop_last`, `evaluate`
        and `evaluate_every` must not be given.

        A checkpoint is saved every `checkpoint_every` steps (default: every 5 minutes). `resume` is a run, a job's id
        or the URI of a checkpoint (file:/FOLDER, xlad:DIGEST): training continues from its state and step, and `state`
        only determines the structure, shapes and types. `start_step` is the number of the first step if `state` does
        not come from a checkpoint. `steps` counts all steps from 0, including those before the first one of this job.

        An iterator of batches (a generator, a data loader) is read in a thread while the job runs, and training starts
        as soon as the first batch is read. Each step needs a batch. The coordinator keeps the batches since the newest
        checkpoint, and recovery replays them. If this program ends early, the job waits (`xlad why`). If `data` is not
        an iterator itself, it is iterated over again at its end. In a resumed training, the first batch of the iterator
        is that of the first step of this job.

        With `shuffle` the rows of `data` (or the batches of a list) are permuted differently in each epoch. The number
        `shuffle` and the epoch determine the order. Batches are then sent while the job runs. With `drop_last`, batches
        of an iterator or a list are skipped if they have fewer rows than the first batch.

        With `stop_when_not_finite` the job fails at the first step whose loss or metric is NaN or infinite; the error
        names the step, the value and the first such tensor of the state.

        `mode` determines the order of sums among devices. With "run-to-run" the bits are the same in every run. With
        "canonical" they are also the same on every number of devices that divides the size of the mesh (a device then
        runs several shards). With "fast" the order is arbitrary.

        `memory_limit` is the maximum number of bytes that a device may need for a step; 0 means no limit. If the
        program needs more, values are recomputed instead of kept. A program that still needs more is refused.

        With `compile_tier` "quick-first", a job whose optimized code is not all in the cache starts on code that is
        compiled quickly; the optimized code replaces it between two steps. With "optimized", the job starts when the
        optimized code is compiled. The bits are the same, except the signs and payloads of NaNs.

        While the run is iterated over or waited for, `on_step` is called with each `Step`, and `evaluate(state, step)`
        with the state before every `evaluate_every`-th step. If `steps` is a multiple of `evaluate_every`, `evaluate`
        is also called with the final state. The results of `evaluate` are in `run.evaluations`. A progress bar is drawn
        on a terminal or in a notebook while `train`, `wait` and `result` wait. With `progress=True` it is drawn in
        loops over the run as well; with `progress=False` it is never drawn.
        """
        if isinstance(resume, Run):
            resume = resume.job_id
        for what, function in (("on_step", on_step), ("evaluate", evaluate)):
            if function is not None and not callable(function):
                raise TypeError(f"found {what}={function!r}, expected a function")
        watching = Watching([], on_step=on_step, draws_steps=progress, progress=for_user(progress),
                            first_step=whole_number(start_step, "start_step"))
        recovery = Recovery(checkpoint_every, resume, watching.first_step, stop_when_not_finite=stop_when_not_finite,
                            mode=mode, memory_limit=memory_limit, compile_tier=compile_tier)
        if isinstance(step, (str, pathlib.Path)):
            given = {"state": state, "data": data, "batch": batch, "in_shardings": in_shardings, "name": name,
                     "evaluate": evaluate, "evaluate_every": evaluate_every, "shuffle": shuffle or None,
                     "drop_last": drop_last or None}
            if extra := [key for key, value in given.items() if value is not None]:
                raise TypeError(f"found {', '.join(extra)} with a job directory, expected none of these arguments")
            axes = parse_axes(mesh or "") if isinstance(mesh, str | None) else dict(mesh)
            steps = None if steps is None else whole_number(steps, "steps")
            return self.submit(read_directory(step, axes, steps), watching, recovery)
        if steps is None:
            raise TypeError("found no steps, expected the number of steps to train")
        recovery = recovery.with_evaluation(evaluate, evaluate_every, whole_number(steps, "steps"))
        interrupts.check()
        watching.progress.phase("export")
        try:
            options = DataOptions(batch, shuffle, drop_last, watching.first_step)
            training = Training(step, state, data, steps=steps, options=options, name=name, stream=True)
            job = training.job(mesh, in_shardings)
            return self.submit(job, watching._replace(restore=training.restore, evaluate=evaluate,
                                                      evaluate_every=evaluate_every or 0), recovery)
        finally:
            watching.progress.close()

    @overload
    def jit(self, function: Callable[..., Any], *, mesh: Any = None, in_shardings: Any = None,
            out_shardings: Any = None, static_argnums: int | Sequence[int] | None = None,
            static_argnames: str | Iterable[str] | None = None, donate_argnums: int | Sequence[int] | None = None,
            donate_argnames: str | Iterable[str] | None = None) -> Jitted: ...

    @overload
    def jit(self, function: None = None, *, mesh: Any = None, in_shardings: Any = None,
            out_shardings: Any = None, static_argnums: int | Sequence[int] | None = None,
            static_argnames: str | Iterable[str] | None = None, donate_argnums: int | Sequence[int] | None = None,
            donate_argnames: str | Iterable[str] | None = None) -> Callable[[Callable[..., Any]], Jitted]: ...

    def jit(
        self,
        function: Callable[..., Any] | None = None,
        *,
        mesh: Any = None,
        in_shardings: Any = None,
        out_shardings: Any = None,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Iterable[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None,
    ) -> Jitted | Callable[[Callable[..., Any]], Jitted]:
        """Like jax.jit, but calls run on the cluster and results stay there, as `RemoteArray`s. Returns a `Jitted`, or
        a decorator if `function` is missing: `@cluster.jit(mesh={"dp": 4})`.

        `mesh` and `in_shardings` are those of `xlad.export`, with an entry for each argument that is not static. None
        means that remote arrays keep their sharding, and that other arrays are not split. `out_shardings` is the same
        for the results; the cluster chooses the sharding of results whose entry is None. An array that was passed to a
        donated argument cannot be used afterwards; a result of the same shape and type gets its sharding and memory.
        Static arguments are part of the program and must be hashable. All functions on one mesh share its devices and
        can be called with each other's results.
        """
        options = Options(mesh, in_shardings, out_shardings, static_argnums, static_argnames, donate_argnums,
                          donate_argnames)
        if function is None:
            return lambda decorated: Jitted(decorated, self._host, options)
        return Jitted(function, self._host, options)

    def device_put(self, tree: Any, shardings: Any = None, *, mesh: Any = None) -> Any:
        """Returns the tree with its arrays on the workers, as `RemoteArray`s, like jax.device_put.

        `shardings` is a PartitionSpec, a NamedSharding, a function from a leaf's name to a PartitionSpec, None (not
        split), or a tree of these, which may be a prefix of the tree of arrays. `mesh` is that of `jit`.
        """
        import jax

        def put(tree: Any) -> Any:
            return tree

        # The results get the memory of the arrays that are uploaded for this call. Remote arrays can still be used.
        donated = () if any(isinstance(leaf, RemoteArray) for leaf in jax.tree_util.tree_leaves(tree)) else (0,)
        make = lambda: self.jit(put, mesh=mesh, in_shardings=(shardings,), out_shardings=shardings,
                                donate_argnums=donated)
        key = _key_of_put(mesh, shardings, tree, donated)
        operation = make() if key is None else self._kept(key, make)
        return operation(tree)

    def submit(self, job: Job, watching: Watching = Watching([]), recovery: Recovery = Recovery()) -> Run:
        if recovery.mode != "canonical":  # A canonical job needs no particular number of devices.
            with self._lock:
                self._make_room(job.axes)
        spec = job.spec(keep_final_state=True)
        recovery.fill(spec)
        watching = watching._replace(may_wait_for_batches=job.stream is not None)
        watching.progress.phase("upload")
        self._connection.put_blobs(blob for blob in (job.program, job.state, job.data) if blob)
        answer = self._connection.repeat("SubmitJob", client_key=uuid.uuid4().hex, spec=spec, alive=self._check_alive)
        sender = None if job.stream is None else BatchSender(self._connection, answer.job_id, job.stream, spec.steps)
        watching = watching._replace(metric_names=job.metric_names)
        return Run(self._connection, answer.job_id, watching, self._check_alive, sender)

    def job(self, job_id: str, *, like: Any = None, progress: bool | None = None) -> Run:
        """Returns the run of a job that this or another program submitted before. The run can be iterated over from its
        first step, waited for, and canceled. Its states have the structure of `like`, a tree of arrays or
        ShapeDtypeStructs like the initial state; without `like`, they are dictionaries of numpy arrays by name."""
        if not isinstance(job_id, str):
            raise TypeError(f"found job {job_id!r}, expected the id of a job, such as run.job_id")
        restore = dict if like is None else restore_like(like)
        status = self._connection.call("GetJob", job_id=job_id)
        names = list(status.metric_names)
        return Run(self._connection, status.id, Watching(names, restore, progress=for_user(progress),
                                                         draws_steps=progress), self._check_alive)

    def jobs(self) -> list[Status]:
        """Returns all jobs, oldest first."""
        found: list[Status] = []
        after = ""
        while True:
            page = self._connection.call("ListJobs", after=after)
            found += [Status.of(job) for job in page.jobs]
            after = page.next
            if not after:
                return found

    def workers(self) -> list[Worker]:
        found = self._connection.call("ListWorkers").workers
        return [Worker(w.id, w.host, w.pid, w.devices, w.state) for w in found]

    def close(self) -> None:
        """Closes the connection. Jobs continue; arrays of jitted functions are freed."""
        for session in self._sessions.values():
            session.close()
        self._connection.close()
        self._closed = True
        self._release_interrupts()  # Has an effect only once.

    def __reduce__(self) -> Any:
        raise TypeError(f"a cluster cannot be pickled; call xlad.connect({self.address!r}) in the other process")

    def __repr__(self) -> str:
        if self._closed:
            return f"<cluster at {self.address}, closed>"
        try:
            workers = self.workers()
        except Error as error:
            return f"<cluster at {self.address}: {error}>"
        devices = sum(worker.devices for worker in workers if worker.state in ("alive", "suspect"))
        count = f"{len(workers)} worker{'s' * (len(workers) != 1)}, {devices} device{'s' * (devices != 1)}"
        return f"<cluster at {self.address}: {count}>"

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

    def _operate(self, key: Any, function: Callable[..., Any], operands: list[Any]) -> Any:
        """Computes an operation of remote arrays on the mesh of the first one."""
        axes = operands[0]._session.axes
        operation = self._kept((axes_text(axes), key), lambda: Jitted(function, self._host, Options(mesh=axes)))
        return operation(*operands)

    def _kept(self, key: Any, make: Callable[[], Jitted]) -> Jitted:
        """Returns the operation with this key, and makes it if it is not kept."""
        with self._lock:
            operation = self._operations.get(key)
            if operation is None:
                operation = self._operations[key] = make()
            self._operations.move_to_end(key)
            if len(self._operations) > MAX_OPERATIONS:  # For example, a loop with x.at[i].apply(lambda ...).
                self._operations.popitem(last=False)
        return operation

    def _make_room(self, axes: Axes) -> None:
        """Called before devices for a mesh are requested: closes the sessions that have neither arrays nor running
        calls. Their programs stay cached."""
        self._sessions = {text: session for text, session in self._sessions.items()
                          if session.ended is None and not session.give_up(with_arrays=False)}

    def _check_alive(self) -> None:
        """Raises an error if the coordinator has ended permanently, which only a local cluster can know."""


def connect(address: str | None = None, *, join: str | os.PathLike[str] | None = None, ca_file: str | None = None,
            token_file: str | None = None) -> Cluster:
    """Connects to the running coordinator that a join file (`xlad token`) names, or that listens at HOST:PORT.

    The variables XLAD_COORDINATOR, XLAD_JOIN, XLAD_TLS_CA and XLAD_TOKEN_FILE replace missing arguments. If there is
    no address, no join file and no argument `ca_file`, the default is the join file that the coordinator wrote for this
    user ($XDG_CONFIG_HOME/xlad/join or ~/.config/xlad/join). If that file does not exist, the default is the address of
    `xlad up`, 127.0.0.1:7411. A coordinator that is not on loopback requires a join file, or both `ca_file` and
    `token_file`. Raises an error if no coordinator answers.
    """
    address = address or os.environ.get("XLAD_COORDINATOR")
    join = join or os.environ.get("XLAD_JOIN")
    own = pathlib.Path(os.environ.get("XDG_CONFIG_HOME") or pathlib.Path.home() / ".config", "xlad", "join")
    if not join and not address and not ca_file and own.exists():
        join = own
    if join:
        address = address or _joined_address(pathlib.Path(join))
        ca_file, token_file = ca_file or str(join), token_file or str(join)
    address = address or "127.0.0.1:7411"
    ca_file = ca_file or os.environ.get("XLAD_TLS_CA")
    token_file = token_file or os.environ.get("XLAD_TOKEN_FILE")
    # A coordinator that serves other machines closes connections without TLS.
    advice = "" if ca_file else ("a program accepts connections there, and a coordinator that serves other machines "
                                 "expects join=FILE (of xlad token)")
    connection = Connection(address, ca_file, token_file, advice=advice)
    try:
        connection.call("ListWorkers", timeout=10)
    except BaseException:
        connection.close()
        raise
    return Cluster(connection)


def _key_of_put(mesh: Any, shardings: Any, tree: Any, donated: tuple[int, ...]) -> Any:
    """Returns a key of the arguments of device_put. Equal keys mean the same mesh, shardings, structure, shapes, types
    and present shardings, so that each operation that is kept has one program. Returns None if a sharding is a
    function, whose results may change, or if a part of the key has no hash."""
    import jax

    from xlad.program import is_weak
    from xlad.shardings import P, placement

    specs, of_specs = jax.tree_util.tree_flatten(shardings, is_leaf=lambda x: isinstance(x, P))
    leaves, of_leaves = jax.tree_util.tree_flatten(tree)
    shapes = tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf)), is_weak(leaf),
                    leaf._spec if isinstance(leaf, RemoteArray) else None) for leaf in leaves)
    key = ("device_put", placement(mesh, (shardings,), shardings).mesh, of_specs, tuple(specs), of_leaves, shapes,
           donated)
    try:
        hash(key)
    except TypeError:
        return None
    return None if any(map(callable, specs)) else key


def _joined_address(join: pathlib.Path) -> str:
    lines = join.read_text().splitlines()
    if len(lines) < 3 or not lines[1].startswith("address: "):
        raise ValueError(f"{join}: found no address in the second line, expected a join file (xlad token -o FILE)")
    return lines[1].removeprefix("address: ")

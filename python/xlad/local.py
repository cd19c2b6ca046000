"""A local cluster: `xlad up` as a child process."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import pathlib
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
import weakref

from xlad.cluster import Cluster
from xlad.connection import Connection
from xlad.errors import Error
from xlad.installed_command import find_program
from xlad.job import Axes, axes_text

_START_S = 60.0
_STOP_S = 10.0
_open: weakref.WeakSet[LocalCluster] = weakref.WeakSet()


class LocalCluster(Cluster):
    """A cluster that ends at close(), at the end of the with-block or of this process, or when there are no more
    references to it, its runs, its jitted functions and their results."""

    def __init__(self, devices: int, workers: int, data: str | pathlib.Path | None) -> None:
        program = find_program()
        self.devices = devices
        self._folder = pathlib.Path(data) if data else pathlib.Path(tempfile.mkdtemp(prefix="xlad-local-"))
        self._is_temporary = not data
        self._folder.mkdir(parents=True, exist_ok=True)
        self._log = self._folder / "xlad.log"
        shares = [devices // workers + (w < devices % workers) for w in range(workers)]
        command = [program, "up", "--listen", "127.0.0.1:0", "--data", str(self._folder), "--workers", str(workers),
                   "--devices", ",".join(map(str, shares)), "--parent", str(os.getpid())]
        if not data:
            command.append("--remove-data")
        with open(self._log, "ab") as log:
            # A separate process group: only this process receives Ctrl-C, and it stops the daemon cleanly.
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                             process_group=0)
        self._when_collected = weakref.finalize(self, _end, self._process, None if data else self._folder)
        self._when_collected.atexit = False
        _open.add(self)
        try:
            super().__init__(Connection(self._read_address()))
            self._wait_for_workers()
        except BaseException:
            self.close()
            raise

    @property
    def log(self) -> pathlib.Path:
        """The path of the daemon's log."""
        return self._log

    @property
    def pid(self) -> int:
        return self._process.pid

    def _make_room(self, axes: Axes) -> None:
        """If a request needs devices that are held by sessions without running calls, moves the arrays of these
        sessions to this process and closes the sessions. The arrays are moved back when they are used."""
        needed = math.prod(axes.values())
        if needed > self.devices:
            raise ValueError(f"found mesh {axes_text(axes)} of {needed} devices, expected at most {self.devices}, the "
                             "devices of this cluster")
        super()._make_room(axes)
        for session in self._sessions.values():
            held = sum(other.devices for other in self._sessions.values() if other.ended is None)
            if held + needed > self.devices:
                session.give_up(with_arrays=True)

    def close(self) -> None:
        """Ends the cluster and everything that runs on it."""
        _open.discard(self)
        self._when_collected.detach()
        if hasattr(self, "_connection"):
            super().close()
        if self._process.stdout:
            self._process.stdout.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()  # The workers end with this process.
                self._process.wait()
        if self._is_temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _read_address(self) -> str:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(_START_S):
                raise Error(f"xlad up did not start in {_START_S:.0f} s; its log:\n{self._last_lines()}", "INTERNAL")
        address = self._process.stdout.readline().decode().strip()
        if not address:
            self._process.wait()
            raise Error(self._why_ended(), "INTERNAL")
        return address

    def _wait_for_workers(self) -> None:
        """Waits until all devices have registered, so that `workers()` is complete."""
        deadline = time.monotonic() + _START_S
        while sum(worker.devices for worker in self.workers()) < self.devices:
            if time.monotonic() > deadline:
                raise Error(f"the workers did not start in {_START_S:.0f} s; the end of the log:\n"
                            f"{self._last_lines()}", "INTERNAL")
            time.sleep(0.01)

    def _why_ended(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        said = [line.partition("xlad: error: ")[2] for line in lines if line.startswith("xlad: error: ")]
        code = self._process.returncode
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        return said[-1] if said else f"xlad up (pid {self.pid}) ended: {how}; the end of its log:\n{self._last_lines()}"

    def _last_lines(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-10:]) if self._log.exists() else ""

    def _check_alive(self) -> None:
        deadline = time.monotonic() + 1
        while self._process.poll() is None:
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
        raise Error(self._why_ended(), "UNAVAILABLE")


def _end(process: subprocess.Popen[bytes], temporary: pathlib.Path | None) -> None:
    """Ends the daemon without waiting for it, because the garbage collector may interrupt any code. The daemon removes
    its temporary folder. If the daemon was killed before, the folder is removed here."""
    process.send_signal(signal.SIGTERM)
    if temporary is not None and process.returncode is not None:
        shutil.rmtree(temporary, ignore_errors=True)


@atexit.register
def _close_all() -> None:
    with contextlib.ExitStack() as stack:  # Closes all clusters, even if closing one of them fails.
        for cluster in list(_open):
            stack.callback(cluster.close)


def local(devices: int = 1, *, workers: int | None = None, data: str | pathlib.Path | None = None) -> LocalCluster:
    """Starts a coordinator and `workers` worker processes on this machine. The workers share `devices` devices.

    The processes end with the with-block, and when this process ends for any reason. `data` is a folder for the job
    log, blobs and logs, which is kept; by default a temporary folder is used. `find_program` says which xlad command is
    started.
    """
    workers = 1 if workers is None else workers
    if not isinstance(devices, int) or not isinstance(workers, int) or not 1 <= workers <= devices <= 1024:
        raise ValueError(f"found devices={devices!r} and workers={workers!r}, expected 1 to 1024 devices, and at most "
                         "as many workers")
    return LocalCluster(devices, workers, data)

"""A grid of workers that train while faults are injected: processes are killed or stopped, and network paths are
cut."""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time

from harness import PATIENCE_S, XLAD, Cluster, Process, wait_for, xlad

STEPS = 200
CHECKPOINT_EVERY = 10
PATHS = ("refused", "black", "no requests", "no answers")


def children(pid):
    """Returns the command lines of the processes that a process has started, by pid."""
    found = {}
    ended = (FileNotFoundError, ProcessLookupError)
    for file in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(*ended):
            for child in file.read_text().split():
                with contextlib.suppress(*ended):
                    found[int(child)] = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
    return found


def attempts(worker):
    """Returns the processes of the worker's attempts, and the idle process for the next attempt."""
    return [pid for pid, line in children(worker.pid).items() if b"__attempt" in line]


def cpu_seconds(pid):
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return -1
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busiest(worker):
    """Returns the process with the most CPU time among attempts(worker), or None if there is no process."""
    return max(attempts(worker), key=cpu_seconds, default=None)


def send_signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def tensors(path):
    """Returns the tensors of a safetensors file: {name: (dtype, shape, bytes)}."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    body = data[8 + size:]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


class Proxy:
    """Forwards connections of one worker to the coordinator until the path is cut.

    While a direction is cut, its bytes are held back, like unacknowledged bytes of TCP. "refused" closes all
    connections, including new ones.
    """

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.path = "open"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.links = []  # [worker, coordinator, bytes for the coordinator, bytes for the worker]
        self.ending = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def close(self):
        self.ending = True
        self.thread.join()

    def _run(self):
        while not self.ending:
            self._pass_on(self.path)
        self._drop_all()
        self.listener.close()

    def _drop_all(self):
        for link in self.links:
            for end in link[:2]:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # The connection is reset.
                end.close()
        self.links = []

    def _pass_on(self, path):
        passes = (path in ("open", "no answers"), path in ("open", "no requests"))
        if path == "refused":
            self._drop_all()
        readable = [] if path == "black" else [self.listener]
        writable = []
        for link in self.links:
            for way in (0, 1):
                if passes[way] and len(link[2 + way]) < 1 << 20:
                    readable.append(link[way])
                if passes[way] and link[2 + way]:
                    writable.append(link[1 - way])
        readable, writable, _ = select.select(readable, writable, [], 0.02)
        for link in list(self.links):
            try:
                for way in (0, 1):
                    self._move(link, way, readable, writable)
            except OSError:
                self.links.remove(link)
                for end in link[:2]:
                    end.close()
        if self.listener in readable:
            self._accept(path)

    @staticmethod
    def _move(link, way, readable, writable):
        if link[way] in readable:
            data = link[way].recv(1 << 16)
            if not data:
                raise ConnectionResetError
            link[2 + way] += data
        if link[1 - way] in writable or (link[way] in readable and link[2 + way]):
            try:
                del link[2 + way][:link[1 - way].send(link[2 + way])]
            except BlockingIOError:
                pass

    def _accept(self, path):
        worker, _ = self.listener.accept()
        if path == "refused":
            worker.close()
            return
        try:
            coordinator = socket.create_connection(self.target, timeout=5)
        except OSError:
            worker.close()
            return
        for end in (worker, coordinator):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.links.append([worker, coordinator, bytearray(), bytearray()])


class Follower:
    """`xlad submit --wait` on a terminal of its own: records the displayed steps and their times."""

    def __init__(self, log, *args):
        # [(time, step)] for each displayed step. The step decreases when an attempt restarts from a checkpoint.
        self.seen = []
        # [(time, length of `seen` at that time)] for each time that the job was displayed as not running.
        self.breaks = []
        self.text = ""
        self.job_id = None
        self.args = [XLAD, "submit", *map(str, args)]
        self.log = open(log, "ab")
        self.changed = threading.Condition()
        self._start()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _start(self):
        self.terminal, other = pty.openpty()
        self.popen = subprocess.Popen(self.args, stdout=subprocess.PIPE, stderr=other)
        os.close(other)
        self.job_id = self.popen.stdout.readline().decode().strip() or self.job_id

    def _read(self):
        rest = ""
        while True:
            try:
                data = os.read(self.terminal, 65536)
            except OSError:  # The other side of the terminal is closed.
                data = b""
            if not data:
                return
            self.log.write(data)
            self.log.flush()
            now = time.monotonic()
            text = rest + data.decode(errors="replace")
            rest = text[text.rfind("\r"):] if "\r" in text else text
            with self.changed:
                self.text = (self.text + data.decode(errors="replace"))[-4000:]
                for step, state in re.findall(r"\x1b\[K(?:step (\d+)/\d|job-\w+: (PENDING|COMPILING|STARTING))", text):
                    if state and self.seen and (not self.breaks or self.breaks[-1][1] != len(self.seen)):
                        self.breaks.append((now, len(self.seen)))
                    if step and (not self.seen or self.seen[-1][1] != int(step)):
                        self.seen.append((now, int(step)))
                self.changed.notify_all()

    def wait_for_step(self, step):
        """Returns the time at which this step or a later one was displayed, or None if the command has ended."""
        deadline = time.monotonic() + PATIENCE_S
        with self.changed:
            while time.monotonic() < deadline:
                for when, shown in self.seen:
                    if shown >= step:
                        return when
                if self.popen.poll() is not None:
                    return None
                self.changed.wait(0.02)
        raise AssertionError(f"waited {PATIENCE_S} s for step {step}; seen: {self.seen[-3:]}, {self.text[-500:]}")

    def next_new_step(self, died):
        """Returns the time of the first displayed step that is later than all steps before the death, or None if there
        is none.

        Steps before the death are displayed until the job is displayed as not running.
        """
        with self.changed:
            for when, count in self.breaks:
                if when >= died:
                    before = max(step for _, step in self.seen[:count])
                    return next((at for at, step in self.seen[count:] if step > before), None)
        return None

    def wait(self, timeout=300):
        """Waits for the job's end. Restarts the client if it ended because it could not reach the coordinator."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                code = self.popen.wait(max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"waited {timeout} s for the end of the job; seen: {self.seen[-3:]}, "
                                     f"{self.text[-500:]}") from None
            self.thread.join()
            if code != 3:  # Exit code 3 means that the coordinator cannot be reached.
                return code
            os.close(self.terminal)
            self.popen.stdout.close()
            self._start()
            self.thread = threading.Thread(target=self._read, daemon=True)
            self.thread.start()

    def close(self):
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        self.popen.stdout.close()
        self.thread.join()
        os.close(self.terminal)
        self.log.close()


class Grid(Cluster):
    """A cluster whose processes can fail. Killed processes are restarted, as by a supervisor."""

    def __init__(self, where, workers=8, devices=1, cuts=False):
        self.proxies = {} if cuts else None
        self.jobs = 0
        super().__init__(where, workers, devices)

    def start_worker(self, name, *devices):
        address = self.address
        if self.proxies is not None:
            if name not in self.proxies:
                self.proxies[name] = Proxy(self.address)
            address = self.proxies[name].address
        self.workers[name] = Process(self.where / f"{name}.log", "worker", "--coordinator", address, "--id", name,
                                     "--devices", self.devices)

    def restart_coordinator(self):
        """Starts the coordinator without waiting until it answers."""
        self.coordinator.close()
        self.coordinator = Process(self.where / "coordinator.log", "coordinator", "--listen", self.address, "--data",
                                   self.where / "data")

    def attempts_of(self, job_id):
        """Returns the number of attempts of a job. Waits for the coordinator, which may have just been started."""
        wait_for(lambda: xlad("ps", "--coordinator", self.address)[0] == 0, "the coordinator to answer")
        return self.job(job_id)["attempt"]

    def supervise(self):
        if self.coordinator.popen.poll() is not None:
            self.restart_coordinator()
        for name, worker in list(self.workers.items()):
            if worker.popen.poll() is not None:
                worker.close()
                self.start_worker(name)

    def train(self, job, mesh, *args, steps=STEPS):
        self.jobs += 1
        name = self.where / f"job{self.jobs}"
        run = Follower(f"{name}.log", job, "--mesh", mesh, "--steps", steps, "--checkpoint-every", CHECKPOINT_EVERY,
                       "--coordinator", self.address, "--key", f"grid-{self.jobs}", "--wait", "--save-state",
                       f"{name}.safetensors", "--curve", f"{name}.json", *args)
        run.state_path = f"{name}.safetensors"
        run.curve_path = f"{name}.json"
        return run

    def close(self):
        for proxy in (self.proxies or {}).values():
            proxy.close()
        super().close()


class Outcome:
    """The result of a run: its losses and its parameters."""

    def __init__(self, run):
        curve = json.loads(pathlib.Path(run.curve_path).read_text())
        self.losses = curve["loss"]
        self.step_ms = curve["step_ms"]
        self.state = tensors(run.state_path)

    def differences(self, other):
        """Describes the differences from another run."""
        found = [name for name in sorted(self.state.keys() | other.state.keys())
                 if self.state.get(name) != other.state.get(name)]
        if self.losses != other.losses:
            pairs = zip(self.losses, other.losses)
            first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.losses), len(other.losses)))
            found.append(f"losses from step {first} on ({len(self.losses)} of {len(other.losses)})")
        return found


# --- Faults. Each returns a description, and the time of death, or None if no process of a worker was killed.


def kill_worker(grid, dice, what):
    name = dice.choice(sorted(grid.workers))
    worker = grid.workers[name]
    victims = [busiest(worker)] if what != "daemon" else []
    if what != "attempt":
        victims.append(worker.pid)
    died = time.monotonic()
    for pid in victims:
        if pid is not None:
            send_signal(pid, signal.SIGKILL)
    if what != "attempt":
        worker.popen.wait()
    grid.supervise()
    return f"{what} of {name}", died


def stop_worker(grid, dice, what):
    name = dice.choice(sorted(grid.workers))
    worker = grid.workers[name]
    pids = {"daemon": [worker.pid], "attempt": attempts(worker), "both": [worker.pid, *attempts(worker)]}[what]
    held = dice.uniform(2, 20)
    for pid in pids:
        send_signal(pid, signal.SIGSTOP)
    time.sleep(held)
    for pid in pids:
        send_signal(pid, signal.SIGCONT)
    return f"{what} of {name}, {held:.1f} s", None


def stop_coordinator(grid, dice, low=2, high=60):
    held = dice.uniform(low, high)
    send_signal(grid.coordinator.pid, signal.SIGSTOP)
    time.sleep(held)
    send_signal(grid.coordinator.pid, signal.SIGCONT)
    return f"coordinator, {held:.1f} s", None


def kill_coordinator(grid, dice, low=0, high=10):
    held = dice.uniform(low, high)
    grid.coordinator.kill()
    time.sleep(held)
    grid.restart_coordinator()
    return f"coordinator, away for {held:.1f} s", None


def restart_coordinator(grid, dice):
    grid.coordinator.terminate()
    grid.restart_coordinator()
    return "coordinator, with SIGTERM", None


def cut(grid, dice, low=0.1, high=30):
    name = dice.choice(sorted(grid.proxies))
    path = dice.choice(PATHS)
    held = dice.uniform(low, min(1, high)) if dice.random() < 0.5 else dice.uniform(low, high)
    grid.proxies[name].path = path
    time.sleep(held)
    grid.proxies[name].path = "open"
    return f"{name}, {path}, {held:.1f} s", None


FAULTS = {
    "kill-daemon": lambda grid, dice: kill_worker(grid, dice, "daemon"),
    "kill-attempt": lambda grid, dice: kill_worker(grid, dice, "attempt"),
    "kill-both": lambda grid, dice: kill_worker(grid, dice, "both"),
    "stop-worker": lambda grid, dice: stop_worker(grid, dice, dice.choice(("daemon", "attempt", "both"))),
    "stop-coordinator": stop_coordinator,
    "kill-coordinator": kill_coordinator,
    "cut": cut,
    "restart-coordinator": restart_coordinator,
}


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")

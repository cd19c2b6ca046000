"""Shared parts of the end-to-end tests: running xlad, clusters that end with the test, job directories."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest
import unittest.mock

from patience import PATIENCE_S, wait_for
from ports import free_ports

XLAD = os.environ["XLAD"]
REPO = pathlib.Path(os.environ["XLAD_REPO"])
OWN_EXAMPLES = REPO / "examples"
# Whether tests try all of their similar cases, and more random cases, instead of only a part.
ALL_CASES = "XLAD_ALL_CASES" in os.environ

# The tests may run in a job of a cluster. Variables of its launcher would make each command a rank of this job, and
# CUDA_VISIBLE_DEVICES would hide GPUs of the test double of NVIDIA's driver.
LAUNCHERS = ("SLURM_", "FLUX_", "PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "JSM_NAMESPACE_", "MPI_LOCAL",
             "PALS_")
for name in list(os.environ):
    if name.startswith(LAUNCHERS) or name in (
            "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "JOB_COMPLETION_INDEX", "XLAD_RANK", "XLAD_RANKS",
            "CUDA_VISIBLE_DEVICES"):
        del os.environ[name]


def xlad(*args, timeout=600, stdin=None):
    """Runs xlad to its end; returns (exit code, stdout, stderr)."""
    done = subprocess.run([XLAD, *map(str, args)], capture_output=True, timeout=timeout, input=stdin)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def stays_open(method):
    """Whether a call is a stream that stays open although it has nothing to say. All others must end by themselves."""
    return method.path.rsplit("/", 1)[1] in {"WatchJob", "HoldSession", "Attach", "Follow"}


def job_directories():
    """Yields (directory, manifest) of the example spiral_mlp, and of digits_mlp and dropout_rng if XLAD_EXAMPLES is
    set."""
    folders = [OWN_EXAMPLES / "spiral_mlp"]
    if "XLAD_EXAMPLES" in os.environ:
        folders += [pathlib.Path(os.environ["XLAD_EXAMPLES"]) / name for name in ("digits_mlp", "dropout_rng")]
    for folder in folders:
        yield folder, json.loads((folder / "manifest.json").read_text())


def expected_losses(directory, mesh_name):
    """Returns the losses of the example on this mesh, or on one device if it has none for this mesh."""
    curve = json.loads((directory / "curve.json").read_text())["meshes"]
    return curve.get(mesh_name, curve["single"])["loss"]


def some(cases):
    """Returns the first and the last case, or all if XLAD_ALL_CASES is set."""
    return cases if ALL_CASES or len(cases) < 2 else [cases[0], cases[-1]]


def one_of(share, cases):
    """Returns every case whose number is a multiple of `share`, or all if XLAD_ALL_CASES is set. Each value of each
    variable must be in a case that is returned."""
    cases = list(cases)
    tried = cases[::1 if ALL_CASES else share]
    for number, (every, some_values) in enumerate(zip(zip(*cases), zip(*tried))):
        lost = set(every) - set(some_values)
        assert not lost, f"one_of({share}): no case has {lost} of variable {number}, expected every value; change share"
    return tried


def mesh_text(axes):
    return ",".join(f"{name}={size}" for name, size in axes.items())


@contextlib.contextmanager
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="xlad-e2e-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class CommunicationTest(unittest.TestCase):
    """Base class for tests of `xlad bench`. The ranks find each other through the folder `where`. Each test has its
    own folder."""

    def setUp(self):
        made = folder()
        self.where = made.__enter__()
        self.addCleanup(made.__exit__, None, None, None)
        # Tests of other modules, which may run in the same process, do not use this folder.
        variables = unittest.mock.patch.dict(os.environ, XLAD_COMM_DIR=str(self.where))
        variables.start()
        self.addCleanup(variables.stop)


class Process:
    """A daemon that writes its log to a file."""

    def __init__(self, log, *args, program=XLAD):
        self.log_path = log
        self.log_file = open(log, "ab")
        self.popen = subprocess.Popen([program, *map(str, args)], stdout=self.log_file, stderr=self.log_file)

    @property
    def pid(self):
        return self.popen.pid

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")

    def kill(self):
        self.popen.kill()
        self.popen.wait()
        self.log_file.close()

    def terminate(self, timeout=PATIENCE_S):
        """Ends the process with SIGTERM and returns its exit code. If it has not ended after
        `timeout` seconds, kills it and raises TimeoutExpired."""
        self.popen.send_signal(signal.SIGTERM)
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def close(self):
        if self.popen.poll() is None:
            self.kill()
        self.log_file.close()


class Cluster:
    """A coordinator, with these flags, and workers as separate processes of `program`."""

    def __init__(self, where, workers, devices, program=XLAD, flags=()):
        self.where = pathlib.Path(where)
        self.program = program
        self.devices = devices
        self.flags = flags
        self.coordinator = None
        self.address = None
        self.workers = {}
        try:
            self.start_coordinator()
            for i in range(workers):
                self.start_worker(f"w{i}")
        except BaseException:
            self.close()
            raise

    def start_coordinator(self):
        listen = self.address or f"127.0.0.1:{free_ports(1)[0]}"  # A restarted coordinator needs the same port.
        self.coordinator = Process(
            self.where / "coordinator.log", "coordinator", "--listen", listen, "--data", self.where / "data",
            *self.flags, program=self.program
        )
        if self.address is None:
            self.address = wait_for(self._listening, "the coordinator to listen")
        wait_for(lambda: xlad("ps", "--coordinator", self.address)[0] == 0, "the coordinator to answer")

    def _listening(self):
        for line in self.coordinator.log().splitlines():
            if "coordinator listens" in line:
                return json.loads(line)["address"]
        return None

    def start_worker(self, name, *devices):
        """`devices` begins with --device or --devices and its value, which replace the cluster's number of cpu devices.
        Other flags may follow."""
        self.workers[name] = Process(
            self.where / f"{name}.log", "worker", "--coordinator", self.address, "--id", name,
            *(devices or ("--devices", self.devices)), program=self.program
        )

    def wait_for_workers(self, count):
        """Waits until `count` workers have registered. A job is accepted before that, and waits for their devices."""
        wait_for(lambda: len(self.status()["workers"]) == count, f"{count} workers to register")

    def ps(self):
        code, out, err = xlad("ps", "--coordinator", self.address, "--format", "json")
        assert code == 0, err
        return json.loads(out)

    def status(self):
        code, out, err = xlad("status", "--coordinator", self.address, "--format", "json")
        assert code == 0, err
        return json.loads(out)

    def job(self, job_id):
        return next(job for job in self.ps() if job["id"] == job_id)

    def events(self, job_id):
        code, out, err = xlad("events", job_id, "--coordinator", self.address, "--format", "json")
        assert code == 0, err
        return json.loads(out)

    def wait_for_steps(self, job_id, steps=5):
        """Waits until the job runs and has finished `steps` steps."""
        wait_for(lambda: (job := self.job(job_id))["state"] == "RUNNING" and job["step"] >= steps,
                 f"the job to run {steps} steps")

    def submit(self, directory, *args):
        code, out, err = xlad("submit", directory, "--coordinator", self.address, *args)
        assert code == 0, err
        return out.split()[0]

    def close(self):
        for process in [self.coordinator, *self.workers.values()]:
            if process is not None:
                process.close()

    def show_logs(self):
        """Prints the end of each log, for the message of a failure."""
        for path in sorted(self.where.glob("*.log")):
            print(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}", flush=True)


@contextlib.contextmanager
def cluster(workers, devices, program=XLAD, flags=()):
    with folder() as where:
        made = Cluster(where, workers, devices, program, flags)
        try:
            yield made
        except BaseException:
            made.show_logs()
            raise
        finally:
            made.close()

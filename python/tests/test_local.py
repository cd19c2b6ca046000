"""Local clusters: how the command is found, how a cluster starts, and that it ends however the process ends."""

import contextlib
import gc
import os
import pathlib
import queue
import signal
import site
import socket
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from concurrent import futures
from unittest import mock

from harness import PATIENCE_S, REPO, environment, wait_for

import grpc

import xlad
from xlad import installed_command, interrupts
from xlad.connection import Connection
from xlad.installed_command import find_program

SCRIPT = """
import os, sys
import xlad
end, job = sys.argv[1], sys.argv[2:]
training = job or (lambda s: (s + 1, s), 1.0)
cluster = xlad.local(devices=4, workers=2)
print(cluster.pid, *[worker.pid for worker in cluster.workers()], flush=True)
if end == "compile":
    run = cluster.train(*training, steps=10)
    os.kill(os.getpid(), 9)
for step in cluster.train(*training, steps=1_000_000_000):
    if step.step > 3:
        print("trains", flush=True)
        if end == "raise":
            raise ZeroDivisionError
        if end == "exit":
            sys.exit(3)
        if end == "_exit":
            os._exit(4)
        if end == "daemon":
            os.kill(cluster.pid, 9)
        if end.isdigit():
            os.kill(os.getpid(), int(end))
"""


def processes_of(folder):
    """The processes that have this folder in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "environ").read_bytes():
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append(int(entry.name))
        except OSError:
            pass
    return found


class Ends(unittest.TestCase):
    def test_no_process_and_no_file_remains(self):
        ends = {"raise": 1, "exit": 3, "_exit": 4, "daemon": 1, "compile": -9, str(int(signal.SIGKILL)): -9,
                str(int(signal.SIGTERM)): -15, str(int(signal.SIGINT)): -2}
        for end, code in ends.items():
            # Importing jax is slow, so only cases in which the interpreter exits normally train a JAX function. The
            # others train a job directory.
            job = [] if end in ("raise", "exit", str(int(signal.SIGINT))) else [REPO / "examples" / "spiral_mlp"]
            with self.subTest(end), tempfile.TemporaryDirectory() as where:
                done = subprocess.run([sys.executable, "-c", SCRIPT, end, *job], env={**os.environ, "TMPDIR": where},
                                      capture_output=True, text=True, timeout=PATIENCE_S)
                self.assertEqual(done.returncode, code, done.stderr)
                wait_for(lambda: not processes_of(where), "all processes to end")
                if end == "daemon":
                    self.assertIn("ended: signal 9", done.stderr)
                self.assertEqual(list(pathlib.Path(where).glob("xlad-*")), [])

    def test_a_cluster_without_references_ends(self):
        cluster = xlad.local()
        process = cluster._process
        self.addCleanup(process.stdout.close)
        add = cluster.jit(lambda x: x + 1)
        del cluster
        gc.collect()
        self.assertIsNone(process.poll(), "the function needs the cluster")
        self.assertEqual(float(add(1)), 2)
        del add
        gc.collect()
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(interrupts._users, 0)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_a_cluster_without_references_whose_daemon_was_killed_leaves_no_folder(self):
        cluster = xlad.local()
        process, folder = cluster._process, cluster._folder
        self.addCleanup(process.stdout.close)
        workers = [pathlib.Path("/proc", str(worker.pid)) for worker in cluster.workers()]
        process.kill()
        process.wait(PATIENCE_S)
        wait_for(lambda: not any(worker.exists() for worker in workers), "the workers to end")
        self.assertTrue(folder.exists())
        del cluster
        gc.collect()
        self.assertFalse(folder.exists())

    def test_all_clusters_are_closed_at_exit_even_if_one_cannot_be_closed(self):
        class Fake:
            def __init__(self, error):
                self.error, self.closed = error, False

            def close(self):
                self.closed = True
                if self.error:
                    raise self.error

        clusters = [Fake(OSError(str(i)) if i < 2 else None) for i in range(4)]
        module = sys.modules[xlad.LocalCluster.__module__]  # `xlad.local` is the function.
        with mock.patch.object(module, "_open", clusters), self.assertRaises(OSError):
            module._close_all()
        self.assertEqual([cluster.closed for cluster in clusters], [True] * 4)

    def test_ctrl_c_of_a_terminal_goes_to_python_alone(self):
        with tempfile.TemporaryDirectory() as where:
            job = REPO / "examples" / "spiral_mlp"  # Needs no import of jax.
            process = subprocess.Popen([sys.executable, "-c", SCRIPT, "never", job],
                                       env={**os.environ, "TMPDIR": where}, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, process_group=0)
            self.addCleanup(process.kill)
            pids = process.stdout.readline()
            process.stdout.readline()
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_S)
            self.assertEqual(process.returncode, -signal.SIGINT, errors)
            self.assertRegex(errors, "KeyboardInterrupt|^xlad: interrupted in <string>:")
            wait_for(lambda: not any(pathlib.Path("/proc", pid).exists() for pid in pids.split()),
                     "the processes to end")

    def test_ctrl_c_inside_the_package_prints_the_call(self):
        script = """
import functools, signal
import xlad
cluster = xlad.local()
check = xlad.interrupts.check
xlad.interrupts.check = functools.partial(signal.raise_signal, signal.SIGINT)
try:
    cluster.jobs()
finally:
    xlad.interrupts.check = check
"""
        with tempfile.TemporaryDirectory() as where:
            path = pathlib.Path(where, "train.py")
            path.write_text(script)
            done = subprocess.run([sys.executable, path], env={**os.environ, "TMPDIR": where}, capture_output=True,
                                  text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stderr),
                         (-signal.SIGINT, f"xlad: interrupted in {path}:8: cluster.jobs()\n"))

    def test_which_call_ctrl_c_interrupts(self):
        def interrupted_call(*files):
            """Returns what is printed if a function of each file calls one of the next file, and the last is
            interrupted."""
            call = None
            for file in reversed(files):
                names = {"inner": call}
                exec(compile("def call():\n  if not inner: raise KeyboardInterrupt\n  inner()", file, "exec"), names)
                call = names["call"]
            try:
                call()
            except KeyboardInterrupt as interrupt:
                return interrupts._interrupted_call(interrupt.__traceback__.tb_next)

        package = str(pathlib.Path(xlad.__file__).with_name("cluster.py"))
        installed = str(pathlib.Path(sysconfig.get_path("purelib"), "trainer.py"))
        for files, call in [
            (("train.py", package), "train.py:3"),
            (("train.py", package, contextlib.__file__, package, queue.__file__), "train.py:3"),
            (("train.py", "<string>", package, installed, package, grpc.__file__, "<frozen importlib>"), "<string>:3"),
            (("train.py", installed, package), "train.py:3"),
            (("train.py", package, str(pathlib.Path(site.getsitepackages()[-1], "trainer.py"))), "train.py:3"),
            (("<frozen runpy>", installed, package), f"{installed}:3"),
            (("train.py", package, "train.py"), ""),
            (("train.py", package, installed, "train.py", package), ""),
            (("train.py", queue.__file__), ""),
            ((package,), ""),
        ]:
            self.assertEqual(interrupted_call(*files), call, files)

    def test_ctrl_c_inside_the_garbage_collector_is_not_lost(self):
        script = """
import gc, signal, threading
import xlad
fired = []
def callback(phase, info):
    if not fired:
        fired.append(phase)
        signal.raise_signal(signal.SIGINT)
with xlad.local():
    gc.callbacks.append(callback)
    gc.collect()
    threading.Event().wait(200)
    print("was lost")
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout), (-signal.SIGINT, ""), done.stderr)
        self.assertTrue(done.stderr.endswith("KeyboardInterrupt\n"), done.stderr)
        self.assertNotIn("interrupts.py", done.stderr)

    def test_repeated_ctrl_c_loses_nothing(self):
        script = """
import os, random, signal, threading
import numpy as np
import xlad
random.seed(5)
with xlad.local(devices=2) as cluster:
    add = cluster.jit(lambda x: x + 1, donate_argnums=0)
    state = {"x": add(np.zeros(4, np.float32))}
    for _ in range(60):
        try:
            threading.Timer(random.uniform(0.001, 0.04), os.kill, (os.getpid(), signal.SIGINT)).start()
            while True:
                state["x"] = add(state["x"])
                cluster.jobs()
        except KeyboardInterrupt:
            pass
    print(np.asarray(state["x"])[0] > 1)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout), (0, "True\n"), done.stderr)

    def test_ctrl_c_calls_the_users_handler(self):
        mine = lambda *_: None
        default = signal.getsignal(signal.SIGINT)
        with xlad.local():
            self.assertIsNot(signal.getsignal(signal.SIGINT), default)
            with xlad.local() as other:
                other.close()
            self.assertIsNot(signal.getsignal(signal.SIGINT), default)
        self.assertIs(signal.getsignal(signal.SIGINT), default)
        try:
            signal.signal(signal.SIGINT, mine)
            with xlad.local():
                self.assertIs(signal.getsignal(signal.SIGINT), mine)
            self.assertIs(signal.getsignal(signal.SIGINT), mine)
        finally:
            signal.signal(signal.SIGINT, default)

    def test_close_and_keep(self):
        # The name of the folder is like that of a temporary one.
        with tempfile.TemporaryDirectory(prefix="xlad-local-") as where:
            with xlad.local(devices=3, workers=2, data=where) as cluster:
                self.assertEqual(sorted(worker.devices for worker in cluster.workers()), [1, 2])
                with xlad.connect(cluster.address) as other:
                    self.assertEqual(len(other.workers()), 2)
            cluster.close()
            self.assertIn("worker started", (pathlib.Path(where) / "xlad.log").read_text())
            with self.assertRaises((xlad.Error, ValueError)):
                cluster.workers()

    def test_a_large_log_is_divided(self):
        with tempfile.TemporaryDirectory(prefix="xlad-local-") as where, xlad.local(devices=1, data=where) as cluster:
            old = cluster.log.with_name("xlad.1.log")
            self.assertFalse(old.exists())
            with open(cluster.log, "a") as log:
                log.write("a line\n" * 2_500_000)  # More than 16 MiB.
            wait_for(old.exists, "the log to be divided")
            self.assertIn("worker started", old.read_text())
            self.assertGreater(old.stat().st_size, 16 << 20)
            self.assertEqual(old.stat().st_mode & 0o777, 0o600)
            # The daemons continue to write to the file, from its beginning.
            cluster.close()
            self.assertIn("draining", cluster.log.read_text())
            self.assertLess(cluster.log.stat().st_size, 1 << 20)


class Finding(unittest.TestCase):
    def test_the_command_of_a_wheel(self):
        with tempfile.TemporaryDirectory() as where:
            program = pathlib.Path(where) / "xlad"
            program.write_text("#!/bin/sh\necho $0 $@\n")
            program.chmod(0o644)  # Some installers do not make the file executable.
            with mock.patch.object(installed_command, "_OF_PACKAGE", program), environment(XLAD=None):
                self.assertEqual(find_program(), str(program))
                script = ("import pathlib; from xlad import installed_command as command; "
                          f"command._OF_PACKAGE = pathlib.Path({str(program)!r}); command.run_program()")
                done = subprocess.run([sys.executable, "-c", script, "ps", "--all"], capture_output=True, check=True)
                self.assertEqual(done.stdout.decode(), f"{program} ps --all\n")
            with mock.patch.object(installed_command, "_OF_PACKAGE", program), environment(XLAD="/bin/true"):
                self.assertEqual(find_program(), "/bin/true")

    def test_program(self):
        with environment(XLAD="/no/such/xlad"), self.assertRaisesRegex(xlad.Error, "found XLAD=/no/such/xlad"):
            find_program()
        with tempfile.TemporaryDirectory() as where, environment(XLAD=None, PATH=where):
            program = pathlib.Path(where) / "xlad"
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
            self.assertEqual(find_program(), str(program))
            program.unlink()
            built = REPO / "build" / "release" / "bin" / "xlad"
            if not built.exists():
                self.skipTest(f"{built} has not been built; only the other places have been tested")
            self.assertEqual(find_program(), str(built))

    def test_program_that_does_not_start(self):
        with tempfile.TemporaryDirectory() as where:
            program = pathlib.Path(where) / "xlad"
            for text, words in (("echo 'xlad: error: no luck' >&2; exit 1", "^no luck$"),
                                ("exit 7", "ended: exit code 7")):
                program.write_text(f"#!/bin/sh\n{text}\n")
                program.chmod(0o755)
                with environment(XLAD=str(program)), self.assertRaisesRegex(xlad.Error, words):
                    xlad.local()

    def test_the_reason_of_a_coordinator_that_does_not_serve(self):
        def refuse(_, context):
            context.set_trailing_metadata((("grpc-status-details-bin", b"\x08\x0e"),))
            context.abort(grpc.StatusCode.UNAVAILABLE, "the job log cannot be written: disk full")

        class Refusing(grpc.GenericRpcHandler):
            def service(self, _):
                return grpc.unary_unary_rpc_method_handler(refuse)

        server = grpc.server(futures.ThreadPoolExecutor(1), handlers=(Refusing(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        connection = Connection(f"127.0.0.1:{port}")
        self.addCleanup(connection.close)
        words = "^coordinator 127.0.0.1:[0-9]+ cannot serve the call now: the job log cannot be written: disk full$"
        with self.assertRaisesRegex(xlad.Error, words) as caught:
            connection.call("GetStatus")
        self.assertEqual(caught.exception.code, "UNAVAILABLE")

    def test_coordinators_that_cannot_be_reached(self):
        silent = self.enterContext(socket.socket())  # Bound, but does not listen: no other program gets the port.
        silent.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{silent.getsockname()[1]}"
        with self.assertRaisesRegex(xlad.Error, f"coordinator {nobody} cannot be reached") as caught:
            xlad.connect(nobody)
        self.assertNotIn("join=", str(caught.exception))
        self.assertEqual(caught.exception.code, "UNAVAILABLE")
        with environment(XLAD_COORDINATOR=nobody), self.assertRaisesRegex(xlad.Error, nobody):
            xlad.connect()
        for address, words in (("nowhere", "expected HOST:PORT"), ("192.0.2.1:7411", "not on loopback, without TLS")):
            with self.assertRaisesRegex(ValueError, words):
                xlad.connect(address)
        for devices, workers in ((0, None), (2, 3), ("8", None), (-1, 1), (4, 0)):
            with self.assertRaisesRegex(ValueError, "expected 1 to 1024 devices"):
                xlad.local(devices, workers=workers)

    def test_a_join_file_has_everything(self):
        """Connects to a coordinator on another address by its join file, the environment and its user's join file."""
        where = self.enterContext(tempfile.TemporaryDirectory())
        config = pathlib.Path(where, "config")
        env = {**os.environ, "XDG_CONFIG_HOME": str(config)}
        coordinator = subprocess.Popen([find_program(), "coordinator", "--listen", "0.0.0.0:0", "--advertise",
                                        "localhost", "--data", f"{where}/data"], stderr=subprocess.DEVNULL, env=env)
        self.addCleanup(coordinator.wait)
        self.addCleanup(coordinator.kill)
        own = config / "xlad/join"
        wait_for(own.exists, "the coordinator to write its join file")
        port = own.read_text().splitlines()[1].rpartition(":")[2]
        with self.assertRaisesRegex(xlad.Error, "cannot be reached: .*; .*expects join=FILE") as caught:
            xlad.connect(f"127.0.0.1:{port}")  # Without TLS.
        self.assertEqual(caught.exception.code, "UNAVAILABLE")
        wrong = pathlib.Path(where, "wrong")
        wrong.write_text("a token\n")
        with self.assertRaisesRegex(ValueError, "wrong: found no address in the second line"):
            xlad.connect(join=wrong)
        for given in ({"join": own}, {}):
            for variables in ({"XLAD_JOIN": str(own)}, {"XDG_CONFIG_HOME": str(config)}):
                with environment(**variables), xlad.connect(**given) as cluster:
                    self.assertEqual(cluster.workers(), [])


if __name__ == "__main__":
    unittest.main()

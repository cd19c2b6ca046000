"""Functions on a local cluster: arrays stay there, donated arrays are consumed, and results equal those of jax.jit."""

import contextlib
import gc
import pathlib
import subprocess
import tempfile
import time
import unittest
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from harness import PATIENCE_S, ClusterTest, free_ports, wait_for
from jax.sharding import PartitionSpec as P

import xlad
from xlad import session_place
from xlad.connection import Connection
from xlad.installed_command import find_program
from xlad.session_place import Place


class Sessions(ClusterTest):
    @classmethod
    def setUpClass(cls):
        # A worker on a busy machine is reachable, even if it answers late.
        cls.enterClassContext(mock.patch.object(session_place, "REACH_S", PATIENCE_S))
        super().setUpClass()

    def test_functions_share_arrays(self):
        mesh = {"dp": 2, "tp": 2}
        make = self.cluster.jit(lambda n: {"a": jnp.arange(24.0).reshape(6, 4) * n, "k": jax.random.key(5)}, mesh=mesh)
        use = self.cluster.jit(lambda tree, b: ((tree["a"] @ b).T, jax.random.split(tree["k"])[0], tree["a"] > 5),
                               mesh=mesh, in_shardings=({"a": P("dp", "tp"), "k": None}, P("tp")))
        tree = make(2)
        b = np.arange(12, dtype=np.float32).reshape(4, 3)
        product, key, large = use(tree, b)
        a = np.arange(24, dtype=np.float32).reshape(6, 4) * 2
        np.testing.assert_allclose(product, (a @ b).T)
        np.testing.assert_array_equal(large, a > 5)
        self.assertEqual((product.shape, product.dtype, large.dtype), ((3, 6), np.float32, np.bool_))
        np.testing.assert_array_equal(jax.random.key_data(key.get()),
                                      jax.random.key_data(jax.random.split(jax.random.key(5))[0]))
        again = use({"a": tree["a"], "k": key}, b)  # The arguments are results of several functions.
        np.testing.assert_allclose(again[0], product)
        other = self.cluster.jit(lambda x: x + 1)  # The array is moved to another mesh.
        np.testing.assert_allclose(other(product), (a @ b).T + 1)

    def test_arrays_are_moved_if_another_mesh_needs_their_devices(self):
        arrays = []
        for i, mesh in enumerate([{"a": 8}, {"a": 2, "b": 3}, {}, {"a": 8}]):
            arrays.append(self.cluster.jit(lambda x: x * 2, mesh=mesh)(np.arange(i, i + 5.0)))
            self.assertEqual(self.cluster.train(lambda s: (s + 1, s), 0, steps=2, mesh={"dp": 7}).result(), 2)
        total = self.cluster.jit(lambda *arrays: sum(arrays), mesh={"a": 5})(*arrays)
        np.testing.assert_array_equal(total, 2 * (4 * np.arange(5) + 6))
        np.testing.assert_array_equal(arrays[1], 2 * np.arange(1, 6))

    def test_one_program_for_each_signature(self):
        traced = []

        def double(x):
            traced.append(x.shape)
            return x * 2

        jitted = self.cluster.jit(double)
        for x in (1.0, 2.0, np.float32(3), jnp.float32(4)):
            self.assertEqual(float(jitted(x)), 2 * float(x))
        before = len(traced)
        # Traced once for the shapes of the results and once for the program, each for weak and for strong types.
        self.assertLessEqual(before, 4)
        self.assertEqual(int(jitted(np.int32(4))), 8)
        np.testing.assert_array_equal(jitted(np.ones((3, 0), np.float32)), np.ones((3, 0)))
        self.assertGreater(len(traced), before)
        large = np.arange(1_000_003, dtype=np.float32)
        np.testing.assert_array_equal(jitted(jitted(large)), large * 4)

    def test_sessions_in_turns_compile_once(self):
        traced = []
        arrays, steps = [], []
        for axis in ("a", "b"):  # Each mesh needs all devices.
            def step(x, axis=axis):
                traced.append(axis)
                return x + 1

            steps.append(self.cluster.jit(step, mesh={axis: 8}, in_shardings=P(axis), donate_argnums=0))
            arrays.append(np.arange(8.0))
        for turn in range(3):
            arrays = [step(array) for step, array in zip(steps, arrays)]
            before = before if turn else len(traced)
        self.assertEqual(len(traced), before)
        for array in arrays:
            np.testing.assert_array_equal(array, np.arange(8.0) + 3)

    def test_a_loop_sends_only_the_batch(self):
        calls = []
        step = self.cluster.jit(lambda w, x: (w * 0.5, (w @ x).sum()), mesh={"dp": 4, "tp": 2},
                                in_shardings=(P("dp", "tp"), P("tp")), donate_argnums=0)
        w, _ = step(np.ones((8, 6), np.float32), np.ones(6, np.float32))
        call = Connection.call
        count = lambda self, method, **fields: (calls.append(method), call(self, method, **fields))[1]
        with mock.patch.object(Connection, "call", count), mock.patch.object(Connection, "upload", None):
            for i in range(4):
                w, loss = step(w, np.full(6, i, np.float32))
        self.assertEqual(calls, ["SessionWorker.CallProgram"] * 4)  # No call is sent to the coordinator.
        self.assertEqual(float(loss), 8 * 6 * 3 / 16)
        np.testing.assert_array_equal(w, np.full((8, 6), 1 / 32))

    def test_clients_that_cannot_reach_the_workers(self):
        large = np.arange(1_000_003, dtype=np.float32)
        for reach in (None, lambda *_: None):
            with self.subTest(reach), xlad.local(devices=4, workers=2) as cluster:
                with mock.patch.object(Place, "_reach", reach) if reach else contextlib.nullcontext():
                    double = cluster.jit(lambda x: x * 2, mesh={"dp": 4}, in_shardings=None)
                    split = cluster.jit(lambda x: x[:1_000_000] + 1, mesh={"dp": 4}, in_shardings=None)
                    result = split(double(large))
                    np.testing.assert_array_equal(result, large[:1_000_000] * 2 + 1)
                    self.assertEqual(result._session._place.direct, reach is None)

    def test_ways_to_pass_arguments(self):
        scale = self.cluster.jit(lambda x, by, mode="times": x * by if mode == "times" else x + by, mesh={"dp": 2},
                                 in_shardings=None, static_argnums=2)
        for arguments, named, expected in [((2.0, 3.0, "times"), {}, 6), ((2.0, 3.0, "plus"), {}, 5),
                                           ((2.0,), {"by": 4.0, "mode": "plus"}, 6)]:
            self.assertEqual(float(scale(*arguments, **named)), expected)
        power = self.cluster.jit(lambda n, x: x ** n if n is not True else x, mesh={"dp": 2}, static_argnums=(0,))
        self.assertEqual([float(power(n, 3.0)) for n in (2, 1.0, True, 3)], [9, 3, 3, 27])
        with self.assertRaisesRegex(TypeError, "static arguments {0: \\[1\\]}"):
            power([1], 2.0)
        self.assertEqual(float(self.cluster.jit(lambda x, *, only_named: x - only_named)(1.0, only_named=2)), -1)
        with self.assertRaisesRegex(ValueError, "in donate_argnums and in static_argnums"):
            self.cluster.jit(power, donate_argnums=0, static_argnums=0)
        made = self.cluster.jit(lambda: jnp.arange(4.0), mesh={"dp": 2})()  # No argument determines the mesh.
        np.testing.assert_array_equal(made, np.arange(4.0))
        self.assertEqual((made.size, made.nbytes, jax.block_until_ready(made) is made), (4, 16, True))
        self.assertEqual((f"{scale(2.0, 3.0, 'times'):.2f}", scale(2.0, 3.0, "times").item()), ("6.00", 6.0))

    def test_donated_and_dropped_arrays(self):
        add = self.cluster.jit(lambda x, y: x + y, donate_argnums=(0,))
        x = add(np.ones(3, np.float32), np.ones(3, np.float32))
        y = add(x, np.ones(3, np.float32))
        np.testing.assert_array_equal(y, [3, 3, 3])
        with self.assertRaisesRegex(xlad.Error, "was donated"):
            x.get()
        with self.assertRaisesRegex(xlad.Error, r"<lambda>: argument 0 \(RemoteArray\(f32\[3\]\)\) was donated"):
            add(x, y)
        for _ in range(100):
            y = add(y, np.float32(1))
        del x
        gc.collect()
        np.testing.assert_array_equal(y, [103, 103, 103])
        with self.assertRaisesRegex(ValueError, "donate_argnums"):
            self.cluster.jit(lambda x: x, donate_argnums=3)(1.0)

    def test_wrong_arguments_are_refused(self):
        with self.assertRaisesRegex(ValueError, "of 64 devices, expected at most 8"):
            self.cluster.jit(lambda x: x, mesh={"dp": 64})(1.0)
        with self.assertRaisesRegex(TypeError, r"argument 0: found 'a'"):
            self.cluster.jit(lambda x: x)("a")
        with self.assertRaisesRegex(TypeError, r"argument 1\.w\.1: found 'a'"):
            self.cluster.jit(lambda x, y: x)(1, {"w": [2, "a"]})
        with self.assertRaisesRegex(TypeError, "argument 0: found a value that JAX is tracing"):
            jax.grad(self.cluster.jit(lambda x: x))(1.0)
        with self.assertRaisesRegex(TypeError, "expected a function"):
            self.cluster.jit(3)
        with self.assertRaisesRegex(ValueError, "found axis 'tp'"):
            self.cluster.jit(lambda x: x, mesh={"dp": 2}, in_shardings=P("tp"))(np.ones(4))

    def test_a_cluster_that_is_closed(self):
        with xlad.local(devices=2) as cluster:
            x = cluster.jit(lambda x: x + 1, mesh={"a": 2}, in_shardings=P("a"))(np.arange(4.0))
            np.testing.assert_array_equal(x, [1, 2, 3, 4])
        with self.assertRaisesRegex(xlad.Error, "it was closed"):
            x.get()
        for use in (cluster.jobs, lambda: cluster.jit(lambda x: x)(1.0)):
            with self.assertRaisesRegex(xlad.Error, "is closed, expected a call before close"):
                use()


class Faults(unittest.TestCase):
    """A coordinator and two workers, each of which can be killed."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.processes = {}
        self.addCleanup(self.end_processes)
        self.starts = 0
        self.address = f"127.0.0.1:{free_ports(1)[0]}"  # A restarted coordinator needs the same port.
        self.start_coordinator()
        for name in ("left", "right"):
            self.processes[name] = subprocess.Popen(
                [find_program(), "worker", "--coordinator", self.address, "--id", name, "--devices", "2"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end_processes(self):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def start_coordinator(self):
        self.starts += 1
        path = pathlib.Path(self.folder) / f"log-{self.starts}"
        with open(path, "wb") as log:
            process = subprocess.Popen(
                [find_program(), "coordinator", "--listen", self.address, "--data", f"{self.folder}/data"],
                stdout=log, stderr=log)
        self.processes["coordinator"] = process
        while "coordinator listens" not in path.read_text():
            self.assertIsNone(process.poll(), path.read_text())
            time.sleep(0.02)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def count_workers(self, cluster):
        try:
            return len(cluster.workers())
        except xlad.Error:  # The coordinator cannot be reached yet.
            return 0

    def test_a_session_outlives_its_coordinator_and_names_a_lost_worker(self):
        with xlad.connect(self.address) as cluster:
            double = cluster.jit(lambda x: x * 2, mesh={"dp": 4}, in_shardings=P("dp"))
            x = double(np.arange(8.0, dtype=np.float32))
            np.testing.assert_array_equal(x, 2 * np.arange(8.0))
            self.kill("coordinator")
            x = double(x)
            np.testing.assert_array_equal(x, 4 * np.arange(8.0))
            self.start_coordinator()
            wait_for(lambda: self.count_workers(cluster) == 2, "the workers to reconnect")
            halve = cluster.jit(lambda x: x / 2, mesh={"dp": 4}, in_shardings=P("dp"))
            np.testing.assert_array_equal(halve(double(x)), 4 * np.arange(8.0))
            self.kill("right")
            with self.assertRaisesRegex(xlad.Error, "worker right"):
                deadline = time.monotonic() + PATIENCE_S
                while time.monotonic() < deadline:
                    x = double(x)


if __name__ == "__main__":
    unittest.main()

"""Shared parts of the tests of the Python package."""

import contextlib
import importlib.util
import inspect
import os
import pathlib
import subprocess
import tempfile
import unittest

import jax
import numpy as np

import xlad
from xlad.installed_command import find_program

REPO = pathlib.Path(__file__).resolve().parents[2]

# Whether tests try all their similar cases instead of some of them, and more random cases.
ALL_CASES = "XLAD_ALL_CASES" in os.environ


def load(folder, name):
    """Returns FOLDER/NAME.py of the repository as a module. An import statement could find another module of the same
    name."""
    spec = importlib.util.spec_from_file_location(name, REPO / folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


free_ports = load("tests/e2e", "ports").free_ports
patience = load("tests/e2e", "patience")
PATIENCE_S, wait_for = patience.PATIENCE_S, patience.wait_for


def example(name):
    """Returns the script examples/NAME.py as a module, without running its main part."""
    return load("examples", name)


def start_cluster(test, device):
    """Returns a Cluster of one worker with these devices, which ends with the test."""
    where = tempfile.TemporaryDirectory()
    test.addCleanup(where.cleanup)
    log = open(os.path.join(where.name, "log"), "w")
    test.addCleanup(log.close)
    process = subprocess.Popen([find_program(), "up", "--parent", str(os.getpid()), "--listen", "127.0.0.1:0",
                                "--data", os.path.join(where.name, "data"), "--device", device, "--workers", "1"],
                               stdout=subprocess.PIPE, stderr=log, text=True)
    test.addCleanup(process.stdout.close)
    test.addCleanup(process.wait, PATIENCE_S)
    test.addCleanup(process.terminate)
    address = process.stdout.readline().strip()
    # An empty address would mean the user's own cluster, so CPU devices would be compared with each other.
    test.assertTrue(address, f"xlad up for {device} ended: {pathlib.Path(log.name).read_text()}")
    cluster = xlad.connect(address)
    test.addCleanup(cluster.close)
    return cluster


def batches_of(data, batch, steps):
    leaves = jax.tree.leaves(data)
    count = len(leaves[0]) // batch if leaves else 1
    return [jax.tree.map(lambda a, i=t % count: a[i * batch : (i + 1) * batch], data) for t in range(steps)]


def by_jax(step, state, batches):
    """Returns (losses, final state) of jax.jit on one device. A step without data has None for each batch."""
    takes = len(inspect.signature(step).parameters)
    jitted = jax.jit(step)
    losses = []
    for t, batch in enumerate(batches):
        given = ([] if batch is None else [batch]) + [np.int32(t)]
        state, metrics = jitted(state, *given[: takes - 1])
        losses.append(float(metrics["loss"] if isinstance(metrics, dict) else metrics))
    return losses, state


class ClusterTest(unittest.TestCase):
    """One local cluster for all tests of a class."""

    DEVICES = 8

    @classmethod
    def setUpClass(cls):
        cls.cluster = xlad.local(devices=cls.DEVICES, workers=2)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def same_state(self, found, expected, rtol=2e-4, atol=1e-5):
        self.assertEqual(jax.tree.structure(found), jax.tree.structure(expected))
        for path, leaf in jax.tree_util.tree_flatten_with_path(found)[0]:
            other = expected
            for key in path:
                other = other[getattr(key, "key", getattr(key, "idx", None))]
            self.assertEqual(leaf.dtype, other.dtype, path)
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                leaf, other = jax.random.key_data(leaf), jax.random.key_data(other)
            np.testing.assert_allclose(np.asarray(leaf, np.float64), np.asarray(other, np.float64), rtol, atol,
                                       err_msg=str(path))


@contextlib.contextmanager
def environment(**values):
    before = {name: os.environ.get(name) for name in values}
    try:
        for name, value in values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

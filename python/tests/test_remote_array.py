"""Remote arrays behave like arrays of JAX, and compute on the cluster."""

import copy
import operator
import pickle
import sys
import types
import unittest
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from harness import ClusterTest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlad
from xlad import remote_array
from xlad.session import Session

MESH = {"dp": 2, "tp": 3}


class Arrays(ClusterTest):
    DEVICES = 6

    def setUp(self):
        rng = np.random.default_rng(3)
        self.x = rng.normal(size=(6, 12)).astype(np.float32)
        self.n = rng.integers(-20, 20, (6, 12)).astype(np.int32)
        self.remote_x = self.cluster.device_put(self.x, P("dp", "tp"), mesh=MESH)
        self.remote_n = self.cluster.device_put(self.n, P(None, "dp"), mesh=MESH)

    def check(self, found, expected, rtol=1e-6):
        self.assertIsInstance(found, xlad.RemoteArray)
        self.assertEqual((found.shape, found.dtype), (expected.shape, expected.dtype))
        np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(expected, np.float64), rtol, 1e-6)

    def test_operators(self):
        both = [("add", self.x, self.remote_x), ("sub", self.n, self.remote_n), ("truediv", self.n, self.remote_n),
                ("pow", self.n, self.remote_n), ("lt", self.n, self.remote_n), ("eq", self.n, self.remote_n),
                ("ne", self.x, self.remote_x), ("and_", self.n, self.remote_n), ("mod", self.x, self.remote_x)]
        for name, here, there in both:
            function = getattr(operator, name)
            others = [2, np.int32(3), self.n + 30] + ([1.5] if name not in ("and_",) else [])
            for other in others:
                with self.subTest(name, other=type(other)):
                    expected = lambda a, b, f=function: f(jnp.asarray(a), b)
                    self.check(function(there, other), expected(here, other))
                    if name not in ("pow", "mod"):
                        self.check(function(other, there), jnp.asarray(function(jnp.asarray(other) if
                                   isinstance(other, np.ndarray) else other, jnp.asarray(here))))
        self.check(self.remote_x @ self.remote_n.T, jnp.asarray(self.x) @ self.n.T, 1e-4)
        self.check(-self.remote_x, -self.x)
        self.check(abs(self.remote_n), abs(self.n))
        self.check(~(self.remote_x > 0), ~(self.x > 0))
        half = self.cluster.device_put(jnp.ones(6, jnp.bfloat16), mesh=MESH)
        self.check(half * 1.5, jnp.full(6, 1.5, jnp.bfloat16))  # The Python number gets the type of the array.
        self.assertIs(self.remote_x == None, False)  # noqa: E711
        self.assertIs(self.remote_x == "a", False)
        with self.assertRaises(TypeError):
            self.remote_x + "a"

    def test_results_stay_split(self):
        self.assertEqual(self.remote_x.sharding.spec, P("dp", "tp"))
        self.assertEqual(self.remote_x.sharding.mesh.axis_names, ("dp", "tp"))
        with mock.patch.object(Session, "get", side_effect=AssertionError("an array was fetched")):
            doubled = self.remote_x * 2
        self.assertEqual(doubled.sharding.spec, P("dp", "tp"))
        self.assertIn("dp", repr(doubled))
        moved = self.cluster.device_put(doubled, NamedSharding(
            AbstractMesh((2, 3), ("dp", "tp"), axis_types=(AxisType.Auto,) * 2), P("tp")))
        self.assertEqual(moved.sharding.spec, P("tp"))
        self.check(moved, self.x * 2)

    def test_indexing(self):
        for index in [0, (1, -1), slice(1, 4), (..., 2), (slice(None, None, 2), None), self.n > 0,
                      np.array([3, 0]), (np.array([1, 2]), np.array([0, 11]))]:
            with self.subTest(index):
                self.check(self.remote_n[index], self.n[index])
        self.check(self.remote_n[self.remote_n > 0], self.n[self.n > 0])
        for i in range(6):
            self.check(self.remote_x[i], self.x[i])
        with self.assertRaisesRegex(IndexError, "index 6 in dimension 0 of size 6"):
            self.remote_x[6]
        for row, expected in zip(self.remote_x, self.x, strict=True):
            np.testing.assert_array_equal(row, expected)
        self.assertEqual((len(self.remote_x), 300 in self.remote_n), (6, False))

    def test_methods(self):
        self.check(self.remote_x.sum(), self.x.sum(), 1e-4)
        self.check(self.remote_x.mean(axis=1, keepdims=True), self.x.mean(axis=1, keepdims=True), 1e-4)
        self.check(self.remote_x.T, self.x.T)
        self.check(self.remote_x.reshape(3, -1), self.x.reshape(3, -1))
        self.check(self.remote_x.astype(jnp.bfloat16), jnp.asarray(self.x, jnp.bfloat16))
        self.check(self.remote_n.argmax(axis=0), jnp.asarray(self.n).argmax(axis=0))
        self.check(self.remote_x.clip(-0.5, 0.5), self.x.clip(-0.5, 0.5))
        self.check(self.remote_x.dot(self.remote_n.T), jnp.asarray(self.x) @ self.n.T, 1e-4)
        self.check(round(self.remote_x, 1), jnp.asarray(self.x).round(1))
        for index, value in [(0, 5), ((slice(None), 2), self.n[:, 0]), (np.array([1, 3]), 7)]:
            for name in ("set", "add", "max"):
                self.check(getattr(self.remote_n.at[index], name)(value),
                           getattr(jnp.asarray(self.n).at[index], name)(value))
        self.check(self.remote_x.sum().real, self.x.sum(), 1e-4)

    def test_functions_of_jax_and_numpy(self):
        np.testing.assert_allclose(jnp.mean(self.remote_x), self.x.mean(), 1e-4, 1e-6)
        np.testing.assert_allclose(jax.jit(lambda x: x.sum() * 2)(self.remote_x), self.x.sum() * 2, 1e-4)
        np.testing.assert_allclose(jax.grad(lambda x: (x ** 2).sum())(self.remote_x), 2 * self.x, 1e-5)
        np.testing.assert_allclose(jax.vmap(jnp.sum)(self.remote_x), self.x.sum(axis=1), 1e-4, 1e-5)
        np.testing.assert_allclose(jnp.ones((6, 12)) + self.remote_x, self.x + 1, 1e-5)
        keys = self.cluster.jit(lambda: jax.random.key(3), mesh=MESH)()
        np.testing.assert_array_equal(jax.random.normal(keys.get(), (2,)), jax.random.normal(jax.random.key(3), (2,)))
        np.testing.assert_allclose(jnp.sin(self.remote_x), np.sin(self.x), 1e-5)
        np.testing.assert_allclose(np.sin(self.remote_x), np.sin(self.x), 1e-5)
        np.testing.assert_allclose(jax.jit(jnp.sum)(jnp.asarray(self.remote_x)), self.x.sum(), 1e-4)
        np.testing.assert_array_equal(jax.device_get(self.remote_x), self.x)
        np.testing.assert_array_equal(jnp.stack([self.remote_n, self.remote_n])[1], self.n)
        self.assertEqual(jax.eval_shape(lambda x: x.T, self.remote_x).shape, (12, 6))
        self.assertEqual(jax.tree.map(np.shape, {"a": self.remote_x}), {"a": (6, 12)})

    def test_numbers(self):
        number = self.remote_n[2, 3]
        self.assertEqual((int(number), float(number), number.item(), bool(number == self.n[2, 3])),
                         (self.n[2, 3], self.n[2, 3], self.n[2, 3], True))
        self.assertEqual(list(range(100))[abs(number)], abs(self.n[2, 3]))
        self.assertEqual((self.remote_x.ndim, self.remote_x.size, self.remote_x.nbytes, self.remote_x.itemsize),
                         (2, 72, 288, 4))
        self.assertEqual((str(number), f"{number}", repr(number)), (str(self.n[2, 3]),) * 2 + ("RemoteArray(s32[])",))
        self.assertEqual(str(self.remote_n), str(self.n))
        with self.assertRaises(TypeError):
            len(number)
        with self.assertRaises(TypeError):
            hash(number)
        with self.assertRaises(ValueError):
            bool(self.remote_x)

    def test_copies(self):
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(self.remote_x)), self.x)
        self.assertIs(copy.copy(self.remote_x), self.remote_x)
        twin = copy.deepcopy({"x": self.remote_x})["x"]
        self.assertIsNot(twin, self.remote_x)
        self.check(twin, self.x)
        keys = self.cluster.jit(lambda: jax.random.key(3), mesh=MESH)()
        found = pickle.loads(pickle.dumps(keys))
        np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(jax.random.key(3)))

    def test_state_dictionaries_of_flax(self):
        """Uses a fake of flax.serialization, which looks functions up by type."""
        registered = {}
        module = types.ModuleType("flax.serialization")
        module.register_serialization_state = lambda kind, to, of, override: registered.update({kind: (to, of)})
        with mock.patch.dict(sys.modules, {"flax.serialization": module}), \
                mock.patch.object(remote_array, "_flax_knows", False):
            array = self.cluster.device_put(self.n, mesh=MESH)
        to_state, from_state = registered[xlad.RemoteArray]
        np.testing.assert_array_equal(to_state(array), self.n)
        self.assertIs(type(to_state(array)), np.ndarray)
        self.assertEqual(from_state(array, 5), 5)

    def test_arrays_of_a_mesh_whose_devices_were_released(self):
        kept = self.cluster.jit(lambda: jnp.arange(5.0), mesh={"a": 6})()
        self.check(kept + 1, np.arange(5, dtype=np.float32) + 1)
        self.check(self.remote_x + 1, self.x + 1)
        self.check(kept[1:3], np.arange(1, 3, dtype=np.float32))


if __name__ == "__main__":
    unittest.main()

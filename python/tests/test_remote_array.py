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
from harness import ALL_CASES, ClusterTest
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
        for i, (name, here, there) in enumerate(both):
            function = getattr(operator, name)
            others = [2, np.int32(3), self.n + 30] + ([1.5] if name not in ("and_",) else [])
            chosen = lambda first: others if ALL_CASES else [others[first % len(others)]]
            for other in chosen(i):
                with self.subTest(name, right=type(other)):
                    self.check(function(there, other), function(jnp.asarray(here), other))
            for other in chosen(i + 1) if name not in ("pow", "mod") else ():
                with self.subTest(name, left=type(other)):
                    left = jnp.asarray(other) if isinstance(other, np.ndarray) else other
                    self.check(function(other, there), jnp.asarray(function(left, jnp.asarray(here))))
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
        self.check(doubled, self.x * 2)  # The argument of device_put can still be used.

    def test_arrays_with_equal_shardings_are_put_by_one_program(self):
        with mock.patch.object(Session, "load", side_effect=AssertionError("a program was loaded")):
            self.check(self.cluster.device_put(self.x + 1, P("dp", "tp"), mesh="dp=2,tp=3"), self.x + 1)
        for axis in ("dp", "tp"):  # The result of a function may change.
            put = self.cluster.device_put({"x": self.x}, lambda name: P(axis), mesh=MESH)  # noqa: B023
            self.assertEqual(put["x"].sharding.spec, P(axis))
        of_tree = [self.cluster.device_put({"x": self.x}, {"x": spec}, mesh=MESH)["x"] for spec in (P("dp"), P("tp"))]
        self.assertEqual([array.sharding.spec for array in of_tree], [P("dp"), P("tp")])

    def test_only_uploaded_arrays_give_their_memory_to_the_results_of_device_put(self):
        load, feeds, before = Session.load, [], set(self.cluster._operations)

        def record(session, program, given):
            feeds.append(list(given))
            return load(session, program, given)

        with mock.patch.object(Session, "load", record):
            for columns in (3, 5):
                there = self.cluster.device_put(self.x[:2, :columns], P("dp"), mesh=MESH)
                self.check(self.cluster.device_put(there, P("dp"), mesh=MESH), self.x[:2, :columns])
                self.check(there, self.x[:2, :columns])
        self.assertEqual(feeds, [[0], [-1]] * 2)
        # Programs for shapes that occur no longer are forgotten, because each operation has the program of one shape.
        new = [operation for key, operation in self.cluster._operations.items() if key not in before]
        self.assertEqual([len(operation._loaded) for operation in new], [1] * 4)

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
        names = ("set", "add", "max")
        for i, (index, value) in enumerate([(0, 5), ((slice(None), 2), self.n[:, 0]), (np.array([1, 3]), 7)]):
            for name in names if ALL_CASES else names[i : i + 1]:
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

    def test_values_that_are_read_or_changed_at_an_index(self):
        names = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "mul": np.multiply,
                 "min": np.minimum, "max": np.maximum, "power": np.power, "divide": np.true_divide,
                 "set": lambda old, new: new}
        rng = np.random.default_rng(5)
        for name, function in names.items():
            i, j, value = rng.integers(6), rng.choice(12, 3, replace=False), np.float32(rng.integers(1, 4))
            expected = np.abs(self.x) + 1
            there = self.cluster.device_put(expected, P("dp"), mesh=MESH)
            expected[i, j] = function(expected[i, j], value)
            with self.subTest(name):
                self.check(getattr(there.at[i, j], name)(value, unique_indices=True), expected, 1e-5)
        for i in rng.integers(0, 6, 3):
            self.check(self.remote_n.at[i].get(), self.n[i])
            changed = self.n.copy()
            changed[i] = changed[i] ** 2
            self.check(self.remote_n.at[i].apply(jnp.square), changed)
        self.check(self.remote_n.at[7].get(mode="fill", fill_value=-3), np.full(12, -3, np.int32))
        self.check(self.remote_n.at[7].get(mode="fill", fill_value=np.int32(4)), np.full(12, 4, np.int32))
        self.check(self.remote_n.at[7].get(mode="clip"), self.n[5])
        self.check(self.remote_n.at[np.array([0, 9])].set(1, mode="drop"), np.vstack([np.ones(12, np.int32),
                                                                                    self.n[1:]]))
        self.check(self.remote_n.at[7, 0].set(1, mode="drop"), self.n)
        for call in (lambda: self.remote_n.at[7].get(), lambda: self.remote_n.at[7].set(1)):
            with self.assertRaisesRegex(IndexError, "index 7 in dimension 0 of size 6"):
                call()

    def test_searches_and_views(self):
        rng = np.random.default_rng(7)
        ordered = np.sort(rng.integers(0, 30, 40)).astype(np.int32)
        there = self.cluster.device_put(ordered, P("dp"), mesh=MESH)
        for side in ("left", "right"):
            for _ in range(3):
                wanted = rng.integers(-3, 33, 25).astype(np.int32)
                self.check(there.searchsorted(wanted, side=side), ordered.searchsorted(wanted, side).astype(np.int32))
            self.check(there.searchsorted(int(wanted[0]), side=side),
                       np.int32(ordered.searchsorted(wanted[0], side)))
        for _ in range(3):
            values = (rng.integers(-2, 3, (6, 12)) * rng.integers(0, 2, (6, 12))).astype(np.int32)
            there = self.cluster.device_put(values, P("dp"), mesh=MESH)
            for found, expected in zip(there.nonzero(), values.nonzero(), strict=True):
                np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(there[there.nonzero()], values[values.nonzero()])
            for found, expected in zip(there.nonzero(size=80, fill_value=-1), values.nonzero(), strict=True):
                self.check(found, np.pad(expected, (0, 80 - len(expected)), constant_values=-1).astype(np.int32))
        for kind in (np.int32, np.uint8, np.float16, np.float32):
            bits = rng.integers(0, 1 << 14, (6, 12)).astype(np.int16).view(np.float16).astype(np.float32)
            there = self.cluster.device_put(bits, P("dp"), mesh=MESH)
            with self.subTest(kind):
                self.check(there.view(kind), bits.view(kind))
        self.check(self.remote_n.ptp(axis=1), np.ptp(self.n, axis=1))
        self.check(self.remote_n.byteswap(), self.n.byteswap())

    def test_members_of_a_jax_array(self):
        one = self.cluster.device_put(np.float32([1, 2]), mesh={})
        self.assertEqual((len(one.devices()), one.device, one.is_fully_replicated), (1, xlad.RemoteDevice(0), True))
        self.assertEqual(self.remote_x.devices(), {xlad.RemoteDevice(i) for i in range(6)})
        self.assertEqual((self.remote_x.device.spec, self.remote_x.is_fully_replicated), (P("dp", "tp"), False))
        self.assertEqual(self.remote_x.aval, jnp.asarray(self.x).aval)
        self.assertEqual((self.remote_x.weak_type, self.remote_x.committed), (False, False))
        np.testing.assert_array_equal(self.remote_n.to_device(jax.devices()[0]), self.n)
        np.testing.assert_array_equal(self.remote_n.compress(self.n[:, 0] > 0, axis=0), self.n[self.n[:, 0] > 0])
        with self.assertRaisesRegex(NotImplementedError, "flatten"):
            self.remote_n.flat[5]
        for found, expected in zip(divmod(100, abs(self.remote_n) + 1), divmod(100, abs(self.n) + 1), strict=True):
            self.check(found, expected)
        with self.assertRaisesRegex(TypeError, "arrays are immutable"):
            self.remote_n[0] = 1
        with self.assertRaisesRegex(NotImplementedError, "parts are on workers"):
            self.remote_n.addressable_data(0)
        for name in dir(jax.Array):  # Members that the class does not replace are abstract.
            if not name.startswith("_"):
                self.assertIsNot(getattr(type(self.remote_n), name), getattr(jax.Array, name), name)

    def test_equinox_finds_arrays(self):
        import equinox as eqx

        self.assertIsInstance(self.remote_x, jax.Array)
        self.assertEqual([eqx.is_array(self.remote_x), eqx.is_inexact_array(self.remote_x),
                          eqx.is_inexact_array(self.remote_n)], [True, True, False])
        arrays, rest = eqx.partition({"x": self.remote_x, "name": "a"}, eqx.is_array)
        self.assertIs(arrays["x"], self.remote_x)
        self.assertEqual(rest, {"x": None, "name": "a"})
        np.testing.assert_allclose(eqx.filter_jit(lambda a: a * 2)(self.remote_x), self.x * 2)
        np.testing.assert_allclose(eqx.filter_grad(lambda a: (a ** 2).sum())(self.remote_x), self.x * 2, 1e-6)
        linear = eqx.nn.Linear(12, 4, key=jax.random.key(0))
        there = self.cluster.device_put(eqx.filter(linear, eqx.is_array), mesh=MESH)
        model = eqx.combine(there, linear)
        self.assertIsInstance(model.weight, xlad.RemoteArray)
        expected = jax.vmap(linear)(self.x)
        np.testing.assert_allclose(eqx.filter_jit(lambda m, x: jax.vmap(m)(x))(model, self.remote_x), expected, 1e-5,
                                   1e-6)
        arrays, rest = eqx.partition(model, eqx.is_array)
        predict = self.cluster.jit(lambda a, x: jax.vmap(eqx.combine(a, rest))(x), mesh=MESH)
        self.check(predict(arrays, self.remote_x), expected, 1e-5)
        sums = eqx.apply_updates(arrays, arrays)
        self.check(sums.weight, linear.weight * 2)

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
        to_state, from_state = registered[type(array)]
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

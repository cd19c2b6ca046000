"""Shardings of arguments and results as users write them, without a cluster."""

import collections
import dataclasses
import functools
import itertools
import json
import pathlib
import random
import tempfile
import unittest

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import xlad
from xlad import program, shardings
from xlad.trees import first_difference

AXES = {"dp": 2, "tp": 3}
MESH = AbstractMesh((2, 3), ("dp", "tp"), axis_types=(AxisType.Auto,) * 2)


@jax.tree_util.register_pytree_with_keys_class
class Module:
    """A callable tree, like a module of equinox or a variable of nnx."""

    def __init__(self, weight, bias):
        self.weight, self.bias = weight, bias

    def __call__(self, x):
        raise AssertionError("a module was taken for a function of names")

    def tree_flatten_with_keys(self):
        key = jax.tree_util.GetAttrKey
        return [(key("weight"), self.weight), (key("bias"), self.bias)], None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class OnlyArrays:
    """A tree that checks its leaf, like the loss scale of jmp. JAX makes trees of objects of class `object`."""

    value: np.ndarray

    def __post_init__(self):
        if type(self.value) is not object and not isinstance(self.value, (np.ndarray, jax.Array)):
            raise TypeError(f"found {self.value!r}, expected an array")


class NamedArrays(collections.namedtuple("NamedArrays", ["value"])):
    """A named tuple that checks its field."""

    def __new__(cls, value):
        return super().__new__(cls, OnlyArrays(value).value)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class ArraysWithFields(OnlyArrays):
    """A tree with the attribute of a named tuple."""

    _fields = ("value",)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["value"], meta_fields=["kind"])
@dataclasses.dataclass
class Fixed:
    """A tree with a static field."""

    value: int
    kind: str


def spread(entry, tree):
    return shardings.spread(AXES, entry, tree, program.leaf_names(tree, "x"), "in_shardings[0]")


class Trees(unittest.TestCase):
    def setUp(self):
        self.tree = {"layers": [Module(np.ones((4, 6)), np.ones(6)), Module(np.ones((6, 3)), None)], "n": np.ones(())}

    def test_modules_of_shardings(self):
        named = NamedSharding(MESH, P(None, "tp"))
        split = {"layers": [Module(P("dp", "tp"), P("tp")), Module(named, None)], "n": None}
        self.assertEqual(spread(split, self.tree), [P("dp", "tp"), P("tp"), P(None, "tp"), None])

    def test_prefixes(self):
        self.assertEqual(spread({"layers": P("dp"), "n": None}, self.tree), [P("dp"), P("dp"), P("dp"), None])
        self.assertEqual(spread({"layers": [None, Module(P("dp"), None)], "n": P()}, self.tree),
                         [None, None, P("dp"), P()])

    def test_functions_of_names_and_shapes(self):
        names, shapes = [], []

        def by_name(name, axis="tp"):
            names.append(name)
            return P(axis) if name.endswith("bias") else None

        def by_shape(name, shape):
            shapes.append((name, shape.shape, shape.dtype))
            return NamedSharding(MESH, P("tp")) if shape.ndim and shape.shape[0] % 3 == 0 else P()

        expected = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "n"]
        self.assertEqual(spread(by_name, self.tree), [None, P("tp"), None, None])
        self.assertEqual(names, expected)
        self.assertEqual(spread(by_shape, self.tree), [P(), P("tp"), P("tp"), P()])
        self.assertEqual(shapes, [(name, leaf.shape, leaf.dtype)
                                  for name, leaf in zip(expected, jax.tree.leaves(self.tree))])
        self.assertEqual(spread({"layers": by_name, "n": P()}, self.tree), [None, P("tp"), None, P()])

    def test_classes_that_accept_only_arrays(self):
        for kind in (OnlyArrays, NamedArrays, ArraysWithFields):
            with self.subTest(kind.__name__):
                self.export_classes(kind)

    def export_classes(self, kind):
        state = {"scale": kind(np.ones(6, np.float32)), "w": np.ones((6, 2), np.float32)}
        batch = kind(np.ones((4, 6), np.float32))

        def step(state, batch):
            loss = jnp.sum((batch.value * state["scale"].value) @ state["w"])
            return {"scale": kind(state["scale"].value * 2), "w": state["w"]}, loss

        for split in (lambda name: P("dp") if name == "scale.value" else P(), {"scale": P("dp"), "w": None}):
            with tempfile.TemporaryDirectory() as where:
                path = xlad.export(step, state, batch, to=where, steps=1, batch=4, mesh=AXES,
                                   in_shardings=(split, P("dp")))
                manifest = json.loads((pathlib.Path(path) / "manifest.json").read_text())
                self.assertEqual([part["name"] for part in manifest["parameters"]], ["scale.value", "w", "value"])

    def test_the_first_difference_of_trees(self):
        layers = {f"layer{i}": 0 for i in range(300)}
        for found, expected, words in [
            ({"a": [1, 2]}, {"a": (1, 2)}, "state.a: found list of 2, expected tuple of 2"),
            ({"a": [1, {"b": 1, "c": 2}]}, {"a": [1, {"b": 1}]}, "state.a.1: found dict(b, c), expected dict(b)"),
            ([1, [2]], [1, 2], "state.1: found list of 1, expected a leaf"),
            ([0] * 299, [0] * 300, "state: found list of 299, expected list of 300"),
            ({**layers, "new": 0}, layers, "state: found dict of 301 keys, among them new, expected dict of 300 keys"),
            ({**layers, "new": 0}, {"w": 0}, "state: found dict of 301 keys, among them layer0, layer1, layer10, "
                                             "layer100, layer101, ..., expected dict(w)"),
            ([None], [Module(1, 2)], "state.0: found None, expected Module(weight, bias)"),
            ([Fixed(1, "x")], [Fixed(1, "y")], "state.0: found Fixed(value), expected other static fields"),
        ]:
            self.assertEqual(first_difference(found, expected, "state"), words)

    def test_a_function_where_the_argument_has_no_leaf_is_ignored(self):
        """A tree of shardings that was made from a module contains the activation functions of the module."""
        tree = {"activation": None, "w": np.ones(4)}
        self.assertEqual(spread({"activation": jnp.tanh, "w": P("dp")}, tree), [P("dp")])

    def test_the_entries_of_calls(self):
        split = lambda entries, **more: shardings.argument_specs(
            shardings.Placement(AXES, MESH, entries),
            shardings.Arguments((np.ones(4), np.ones((6, 2))), (["a"], ["b"]), **more), ()).arguments
        self.assertEqual(split(P("dp")), (P("dp"), P("dp")))
        self.assertEqual(split((P("dp"),)), (P("dp"), P()))
        self.assertEqual(split([None, P("tp")], present=[[P("tp")], [P("dp")]]), (P("tp"), P("tp")))
        self.assertEqual(split((P("dp"), P("tp")), slots=[1, None], slot_count=2), (P("tp"), P()))
        with self.assertRaisesRegex(ValueError, "for 3 arguments, expected at most 2"):
            split((None, None, None))

    def test_one_device_is_a_mesh_of_one_device(self):
        """jax.jit accepts the sharding that each array of a single device has."""
        tree = jax.tree.map(jnp.asarray, self.tree)
        split = jax.tree.map(lambda leaf: leaf.sharding, tree)
        self.assertEqual({type(sharding) for sharding in jax.tree.leaves(split)}, {SingleDeviceSharding})
        jax.jit(lambda x: x, in_shardings=(split,))(tree)
        for axes in ({}, {"dp": 1}):
            names = program.leaf_names(tree, "x")
            self.assertEqual(set(shardings.spread(axes, split, tree, names, "in_shardings[0]")), {P()})

    def test_wrong_shardings_are_refused(self):
        for words, error, entry in [
            (r"in_shardings\[0\]: found the text 'dp' for layers.0.weight, expected a PartitionSpec, such as P\('dp'\)",
             TypeError, {"layers": "dp", "n": None}),
            ("found 1 for layers.0.weight", TypeError, {"layers": 1, "n": None}),
            ("found axis 'pp'", ValueError, P("pp")),
            ("found axis 'tp' twice", ValueError, {"layers": P("tp", "tp"), "n": None}),
            ("for n of shape", ValueError, P("dp")),
            (r"in_shardings\[0\]: ", ValueError, {"layers": [P()], "n": None}),
            (r"in_shardings\[0\]: found the text 'dp', expected a PartitionSpec, such as P\('dp'\)", TypeError,
             {"layers": ("dp", None), "n": None}),
            ("expected a PartitionSpec", TypeError, lambda name: "dp"),
            ("found UNCONSTRAINED", ValueError, {"layers": P(P.UNCONSTRAINED), "n": None}),
            ("found SingleDeviceSharding.* for layers.0.weight, which is on 1 device of this process, on a mesh of 6",
             ValueError, SingleDeviceSharding(jax.devices()[0])),
        ]:
            with self.subTest(words), self.assertRaisesRegex(error, words):
                spread(entry, self.tree)
        with self.assertRaisesRegex(ValueError, "found axis 'pp' in P.* for leaf 1, expected one of dp, tp"):
            spread((P("dp"), P("pp")), (np.ones(2), np.ones(2)))
        with self.assertRaisesRegex(ValueError, "found axis 'dp' .*, expected a mesh with this axis, .* mesh=.'dp': 2"):
            shardings.spread({}, P("dp"), np.ones(4), ["x"], "in_shardings[0]")


class Meshes(unittest.TestCase):
    def test_the_source_of_the_mesh(self):
        for mesh in (AXES, {"dp": np.int64(2), "tp": jnp.int32(3)}, {"dp": np.array(2), "tp": 3}, "dp=2,tp=3",
                     MESH):
            self.assertEqual(shardings.placement(mesh, None).axes, AXES)
        self.assertEqual(shardings.placement(None, (None, {"w": NamedSharding(MESH, P())})).axes, AXES)
        self.assertEqual(shardings.placement(None, None, NamedSharding(MESH, P())).axes, AXES)
        with jax.sharding.use_abstract_mesh(MESH):
            self.assertEqual(shardings.placement(None, P("dp")).axes, AXES)
        self.assertEqual(shardings.placement(None, None), ({}, None, None))
        for wrong in ({"dp": 2.0}, {"dp": True}, {"dp": 0}, {2: 2}, {"dp": np.array(2.7)}, {"dp": jnp.float32(2.7)},
                      {"dp": np.array([2, 3])}, {"dp": np.True_}, {"dp": None}):
            with self.assertRaisesRegex(ValueError, "expected axes and their sizes"):
                shardings.placement(wrong, None)


class Boxes(unittest.TestCase):
    def test_shardings_are_found_again(self):
        random_of = random.Random(7)
        for axes in ({"a": 2}, {"a": 2, "b": 3}, {"a": 3, "b": 1, "c": 2}, {"a": 2, "b": 2, "c": 2}):
            coordinates = list(itertools.product(*(range(size) for size in axes.values())))
            for _ in range(40):
                shape = [random_of.choice([12, 24, 60]) for _ in range(random_of.randint(1, 3))]
                names = [name for name, size in axes.items() if size > 1 and random_of.random() < 0.7]
                random_of.shuffle(names)
                dims = [[] for _ in shape]
                for name in names:
                    random_of.choice(dims).append(name)
                boxes = shardings._boxes_of(axes, shape, dims, coordinates)
                found = shardings.spec_of_boxes(axes, shape, boxes)
                self.assertIsNotNone(found, (axes, shape, dims))
                again = [(entry,) if isinstance(entry, str) else entry or () for entry in found]
                again += [()] * (len(shape) - len(again))
                self.assertEqual(shardings._boxes_of(axes, shape, again, coordinates), boxes)

    def test_special_boxes(self):
        self.assertEqual(shardings.spec_of_boxes({"a": 8}, [3], [((0, 3),)]), P())
        self.assertEqual(shardings.spec_of_boxes({}, [], []), P())
        uneven = [((0, 2),), ((2, 4),), ((4, 5),), ((5, 5),)]
        self.assertEqual(shardings.spec_of_boxes({"a": 4}, [5], uneven), P("a"))
        self.assertIsNone(shardings.spec_of_boxes({"a": 2}, [4], [((0, 1),), ((1, 4),)]))
        self.assertIsNone(shardings.spec_of_boxes({"a": 2}, [4], [((0, 2),)] * 3))


if __name__ == "__main__":
    unittest.main()

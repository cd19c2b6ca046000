"""The options of Cluster.jit are those of jax.jit."""

import enum
import functools
import signal
import unittest
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from harness import ClusterTest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlad
from xlad import callbacks

MESH = {"dp": 2, "tp": 2}


class Options(ClusterTest):
    DEVICES = 4

    def test_decorators(self):
        @self.cluster.jit
        def plain(x):
            """Doubles."""
            return x * 2

        @self.cluster.jit(mesh=MESH, in_shardings=P("dp"), static_argnames="power")
        def raised(x, power=2):
            return x ** power

        class Model:
            @functools.partial(self.cluster.jit, static_argnums=0)
            def scaled(self, x):
                return x * self.scale

            scale = 3.0

        self.assertEqual((float(plain(2.0)), plain.__doc__, plain.__name__), (4.0, "Doubles.", "plain"))
        self.assertEqual(repr(raised), "<raised, jitted for a cluster, on mesh dp=2,tp=2>")
        x = np.arange(4.0, dtype=np.float32)
        np.testing.assert_array_equal(raised(x), x ** 2)
        np.testing.assert_array_equal(raised(x, power=3), x ** 3)
        np.testing.assert_array_equal(raised(x, 4), x ** 4)
        np.testing.assert_array_equal(Model().scaled(x), x * 3)

    def test_arguments_by_name(self):
        def function(x, y=2.0, *, scale=1.0, mode="add"):
            return (x + y if mode == "add" else x - y) * scale

        jitted = self.cluster.jit(function, mesh=MESH, in_shardings=(P("dp"), P()), static_argnames=["mode"])
        x = np.arange(6.0, dtype=np.float32)
        for arguments, named in [((x,), {}), ((x, 3.0), {"scale": 2.0}), ((x,), {"mode": "sub", "scale": 4.0}),
                                 ((), {"y": x, "x": 1.0 + x})]:
            np.testing.assert_allclose(jitted(*arguments, **named), function(*arguments, **named))
        with self.assertRaisesRegex(TypeError, "function: got an unexpected keyword argument 'z'"):
            jitted(x, z=1)

    def test_donated_by_name(self):
        step = self.cluster.jit(lambda x, state: (state + x, x.sum()), mesh=MESH, donate_argnames="state",
                                in_shardings=(None, P("dp")))
        state, _ = step(np.ones(4, np.float32), np.zeros(4, np.float32))
        for _ in range(3):
            before = state
            state, _ = step(np.ones(4, np.float32), state=state)
            self.assertTrue(before.is_deleted())
        self.assertEqual(state.sharding.spec, P("dp"))
        np.testing.assert_array_equal(state, np.full(4, 4.0))

    def test_out_shardings(self):
        x = np.arange(48.0, dtype=np.float32).reshape(8, 6)
        mesh = AbstractMesh((2, 2), ("dp", "tp"), axis_types=(AxisType.Auto,) * 2)
        function = lambda x: {"a": x + 1, "b": (x.T, x.sum())}
        for split, expected in [
            ({"a": P("dp", "tp"), "b": (P(None, "dp"), None)}, {"a": P("dp", "tp"), "b": (P(None, "dp"), P())}),
            ({"a": NamedSharding(mesh, P(None, "tp")), "b": P()}, {"a": P(None, "tp"), "b": (P(), P())}),
            (lambda name, shape: P("tp") if len(shape.shape) == 2 else P(), {"a": P("tp"), "b": (P("tp"), P())}),
        ]:
            found = self.cluster.jit(function, mesh=MESH, out_shardings=split)(x)
            self.assertEqual(jax.tree.map(lambda leaf: leaf.sharding.spec, found), expected)
            jax.tree.map(np.testing.assert_array_equal, xlad.fetch(found), function(x))

    def test_arrays_keep_their_sharding_by_default(self):
        x = np.arange(16.0, dtype=np.float32).reshape(8, 2)
        split = self.cluster.device_put({"x": x}, P("dp"), mesh=MESH)
        self.assertEqual(split["x"].sharding.spec, P("dp"))
        double = self.cluster.jit(lambda tree: tree["x"] * 2, mesh=MESH)
        self.assertIn("{devices=[2,1,2]", double.lower(split).as_text())
        self.assertNotIn("{devices=[", double.lower({"x": x}).as_text().replace("sharding={replicated}", ""))
        np.testing.assert_array_equal(double(split), x * 2)

    def test_numbers_of_python_have_weak_types(self):
        class Count(enum.IntEnum):
            TWO = 2

        function = lambda x, by: (x * by, by * 2, by + x.sum())
        jitted, expected = self.cluster.jit(function, mesh=MESH), jax.jit(function)
        for x in (jnp.ones(4, jnp.bfloat16), jnp.arange(4, dtype=jnp.uint8)):
            for by in (2.0, 3, 1j, Count.TWO, np.float64(2), jnp.asarray(2.0), jnp.float32(2), np.float32(2), True):
                with self.subTest(x=x.dtype, by=by):
                    for found, other in zip(jitted(x, by), expected(x, by), strict=True):
                        self.assertEqual((found.dtype, found.weak_type), (other.dtype, other.weak_type))
                        np.testing.assert_array_equal(found, other)
                    self.assertEqual(jitted(x, jitted(x, by)[1])[0].dtype, expected(x, by)[0].dtype)
            remote = self.cluster.device_put(x, mesh=MESH)
            for other in (300, -1, 1.5):
                np.testing.assert_array_equal(remote - other, x - other)
                self.assertEqual((remote - other).dtype, (x - other).dtype)

    def test_functions_in_functions(self):
        inner = self.cluster.jit(lambda x: jnp.sin(x) * 2)
        outer = self.cluster.jit(lambda x: jax.grad(lambda y: inner(y))(x) + 1, mesh=MESH)
        np.testing.assert_allclose(float(outer(0.5)), 2 * np.cos(0.5) + 1, 1e-6)

    def test_lowering(self):
        def product(x, w):
            return (x @ w).sum(axis=1)

        jitted = self.cluster.jit(product, mesh=MESH, in_shardings=(P("dp", "tp"), P("tp")))
        shapes = jax.ShapeDtypeStruct((8, 6), np.float32), jax.ShapeDtypeStruct((6, 5), np.float32)
        lowered = jitted.lower(*shapes)
        self.assertEqual((lowered.out_info.shape, lowered.out_info.dtype), ((8,), np.float32))
        self.assertEqual(jitted.eval_shape(*shapes).shape, (8,))
        self.assertIn("f32[8,6]", lowered.as_text())
        self.assertIn("tensor<8x6xf32>", lowered.as_text("stablehlo"))
        self.assertIn("all-reduce", lowered.explain())
        self.assertIn("test_jit_options.py", lowered.explain())
        self.assertIn("f32[4,3]", lowered.partitioned())
        compiled = lowered.compile()
        self.assertEqual([s.spec for s in compiled.input_shardings], [P("dp", "tp"), P("tp")])
        self.assertEqual(compiled.output_shardings[0].spec, P("dp"))
        x, w = np.ones((8, 6), np.float32), np.ones((6, 5), np.float32)
        np.testing.assert_array_equal(compiled(x, w), product(x, w))
        self.assertTrue(lowered.compile().cached)
        keys = self.cluster.jit(lambda key: jax.random.normal(key, (3,)))
        self.assertEqual(keys.lower(jax.eval_shape(lambda: jax.random.key(1))).out_info.shape, (3,))
        with self.assertRaisesRegex(ValueError, "found dialect 'mhlo'"):
            lowered.as_text("mhlo")

    def test_a_function_is_traced_once_for_each_program(self):
        calls = []
        twice = lambda x: calls.append(x.shape) or x * 2
        for options in ({}, {"mesh": {"dp": 3}, "in_shardings": P("dp")}, {"mesh": MESH, "donate_argnums": 0}):
            self.cluster.jit(twice, **options).lower(jax.ShapeDtypeStruct((8,), np.float32))
        self.assertEqual(calls, [(8,)] * 3)


class Messages(ClusterTest):
    """What users see when JAX or the package refuses a function."""

    DEVICES = 2

    def test_errors_of_tracing_name_the_function(self):
        def branches(state, batch):
            if batch.sum() > 0:
                return state, 0.0
            return state + 1, 1.0

        line = branches.__code__.co_firstlineno
        for call in (lambda: self.cluster.train(branches, 0.0, np.ones((4, 2)), steps=1),
                     lambda: self.cluster.jit(branches, mesh={"dp": 2})(0.0, np.ones(3))):
            with self.assertRaisesRegex(jax.errors.TracerBoolConversionError,
                                        rf"branches at .*test_jit_options.py:{line}"):
                call()

    def test_functions_are_traced_with_the_handler_of_interrupts(self):
        """In each cell of a notebook, the handler is that of Python at first."""
        self.addCleanup(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        x, seen = np.ones((4, 2), np.float32), []

        def step(state, batch):
            seen.append(signal.getsignal(signal.SIGINT))
            return state, batch.sum()

        for trace in (lambda: self.cluster.jit(step).lower(0.0, x), lambda: self.cluster.jit(step).eval_shape(0.0, x),
                      lambda: self.cluster.jit(step)(0.0, x), lambda: self.cluster.train(step, 0.0, x, steps=1)):
            seen.clear()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            trace()
            self.assertTrue(seen)
            self.assertNotIn(signal.default_int_handler, seen)

    def test_shard_map_needs_sizes_that_are_divisible(self):
        """The program would otherwise contain sizes of axes that are not those of the mesh."""
        def step(x, y):
            count = lambda x: x * jax.lax.psum(1, "dp")
            scale = jax.shard_map(count, in_specs=P("dp"), out_specs=P("dp"))
            return jax.lax.cond(y[0] > 0, scale, lambda x: x, x), y + 1

        jitted = self.cluster.jit(step, mesh={"dp": 2}, in_shardings=P("dp"))
        np.testing.assert_array_equal(jitted(np.ones(4), np.ones(2))[0], np.full(4, 2))
        with self.assertRaisesRegex(ValueError, r"found shard_map and argument 1 of shape \[3\] split by P\('dp',\) on "
                                                "mesh dp=2, expected sizes that are divisible by their axes .* such a "
                                                "size or smaller axes, or split this argument by P"):
            jitted(np.ones(4), np.ones(3))

    def test_callbacks_are_named_with_their_line(self):
        def show(x):
            jax.debug.print("{}", x[0])
            return x

        def host(x):
            return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

        def nested(x):
            return jax.lax.cond(x[0] > 0, lambda y: host(y), lambda y: y, x)

        for mesh in (None, {"dp": 2}):
            for function, name, place in [(show, "jax.debug.print", show), (host, "jax.pure_callback", host),
                                          (nested, "jax.pure_callback", host)]:
                first = place.__code__.co_firstlineno + 1
                with self.subTest(name, mesh=mesh), self.assertRaisesRegex(
                        TypeError, rf"test_jit_options.py:{first}: found {name}.*workers run no Python"):
                    self.cluster.jit(function, mesh=mesh)(np.ones(4, np.float32))

    def test_errors_of_equinox_are_nan(self):
        import equinox as eqx

        def root(x, n):
            x = eqx.error_if(x, x < 0, "expected a number of 0 or more")
            n = eqx.error_if(n, n < 0, "expected a count of 0 or more")
            return jnp.sqrt(x), n

        for jitted in (self.cluster.jit(root), self.cluster.jit(jax.vmap(root), mesh={"dp": 2}, in_shardings=P("dp"))):
            x, n = np.float32([4, 9, 16]), np.int32([1, 2, 3])
            if jitted.__name__ == "root" and "single" in repr(jitted):
                x, n = x[0], n[0]
            found, count = jitted(x, n)
            np.testing.assert_array_equal(found, np.sqrt(x))
            np.testing.assert_array_equal(count, n)
            found, count = jitted(-x, -n)
            self.assertTrue(np.all(np.isnan(found)))
            self.assertTrue(np.all(np.asarray(count) == np.iinfo(np.int32).max))
        with self.assertRaisesRegex(Exception, "expected a number of 0 or more"):  # jax.jit still raises the error.
            jax.block_until_ready(jax.jit(root)(np.float32(-1), np.int32(1)))

    def test_callbacks_that_lowering_adds(self):
        """A primitive of a library, such as lineax's linear_solve, shows its callbacks only when it is lowered."""
        import equinox as eqx
        from jax.extend.core import Primitive
        from jax.interpreters import mlir

        def hidden(function):
            primitive = Primitive(f"hidden_{function.__name__}")
            primitive.def_abstract_eval(lambda x: x)
            mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
            return primitive.bind

        def check(x):
            # JAX drops the empty array from the results of the callback, but not from their shardings.
            return eqx.error_if((x, x[:0]), x < 0, "expected a number of 0 or more")[0]

        def host(x):
            return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

        def show(x):
            jax.debug.print("{}", x)
            return x

        checked, refused = hidden(check), [hidden(host), hidden(show)]
        x = np.float32([4, 9])
        for mesh in (None, {"dp": 2}):
            with self.subTest(mesh=mesh):
                root = self.cluster.jit(lambda x: jnp.sqrt(checked(x)), mesh=mesh, in_shardings=mesh and P("dp"))
                np.testing.assert_array_equal(root(x), np.sqrt(x))
                self.assertTrue(np.all(np.isnan(root(-x))))
            for bind in refused:
                def step(x, bind=bind):
                    return bind(x) + 1

                line = step.__code__.co_firstlineno + 1
                with self.subTest(bind, mesh=mesh), self.assertRaisesRegex(
                        TypeError, rf"test_jit_options.py:{line}: found a callback into Python in (pure_callback|debug_"
                                   r"print), expected no calls back into Python: workers run no Python; return the "
                                   r"values that you need as metrics or results"):
                    self.cluster.jit(step, mesh=mesh)(x)

    def test_without_the_private_parts_of_jax_only_errors_of_equinox_are_refused(self):
        import equinox as eqx
        from jax._src import dispatch

        lower = jax.stages.Traced.lower

        def without_parameters(self, *, lowering_platforms=None):
            return lower(self, lowering_platforms=lowering_platforms)

        x = np.float32([4, 9])
        self.addCleanup(callbacks._private_parts.cache_clear)
        for change in (mock.patch.object(jax.stages.Traced, "lower", without_parameters),
                       mock.patch.object(dispatch, "prim_requires_devices_during_lowering", frozenset())):
            callbacks._private_parts.cache_clear()
            with change:
                np.testing.assert_array_equal(self.cluster.jit(lambda x: x + 1)(x), x + 1)
                with self.assertRaisesRegex(TypeError, "found a callback into Python in .*; return the values that"):
                    self.cluster.jit(lambda x: eqx.error_if(x, x < 0, "expected a number of 0 or more"))(x)

    def test_errors_of_jax_have_advice_for_functions_of_a_cluster(self):
        for words, function, options in [
            ("needs no pmean", lambda x: jax.lax.pmean(x, "batch"), {"mesh": {"dp": 2}}),
            ("cannot call pmap", lambda x: jax.pmap(jnp.sin)(x), {"mesh": {"dp": 2}}),
            ("the argument `mesh`", lambda x: jax.lax.with_sharding_constraint(x, P("dp")), {}),
        ]:
            with self.subTest(words), self.assertRaises((NameError, ValueError, RuntimeError)) as caught:
                self.cluster.jit(function, **options).lower(np.ones((2, 2), np.float32))
            [advice] = [note for note in caught.exception.__notes__ if note.startswith("xlad: ")]
            self.assertIn(words, advice)

    def test_lines_are_those_of_the_user(self):
        """Instructions of a library are attributed to the line that calls it."""
        import xlad.program as program

        namespace = {"jnp": jnp}
        library = next(iter(sorted(program._PACKAGES))) + "/somelib/layers.py"
        exec(compile("def dense(x, w):\n    return jnp.tanh(x @ w)\n", library, "exec"), namespace)

        def step(x, w):
            return namespace["dense"](x, w).sum()

        text = self.cluster.jit(step, mesh={"dp": 2}, in_shardings=(P("dp"), None)).lower(
            np.ones((4, 3), np.float32), np.ones((3, 2), np.float32)).as_text()
        self.assertNotIn("layers.py", text)
        self.assertIn(f"line={step.__code__.co_firstlineno + 1} ", text)


if __name__ == "__main__":
    unittest.main()

"""Training on a local cluster equals jax.jit on one device, for all kinds of state, data and metrics."""

import functools
import pickle
import tempfile
import types
import unittest
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from harness import ALL_CASES, ClusterTest, batches_of, by_jax, example
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlad
from xlad import safetensors
from xlad.batches import DataOptions, stream
from xlad.element_types import shape_text
from xlad.training import Training
from xlad.waiting import Waiting

EXAMPLES = ("gpt", "cnn", "lstm")
STEPS = 10
MESHES = [None, {"dp": 4, "tp": 2}, "dp=3,tp=2", {"dp": 8, "tp": 1}, {"dp": 1, "tp": 3}]


class Example(NamedTuple):
    script: types.ModuleType
    batches: list[Any]
    losses: list[float]  # The losses and the state are those of JAX.
    state: Any


@functools.cache
def example_by_jax(name):
    script = example(name)
    batches = batches_of(script.data, script.job["batch"], STEPS)
    return Example(script, batches, *by_jax(script.step, script.state, batches))


class Examples(ClusterTest):
    def test_functions_follow_jax_at_every_step(self):
        for name in EXAMPLES:
            script, batches, losses, expected = example_by_jax(name)
            step = self.cluster.jit(script.step, mesh=script.job["mesh"], in_shardings=script.job["in_shardings"],
                                    donate_argnums=0)
            state, found = script.state, []
            for t, batch in enumerate(batches):
                state, metrics = step(state, batch, t) if name == "gpt" else step(state, batch)
                found.append(metrics["loss"] if isinstance(metrics, dict) else metrics)
            with self.subTest(example=name):
                np.testing.assert_allclose([float(loss) for loss in found], losses, 2e-4)
                self.assertTrue(all(isinstance(leaf, xlad.RemoteArray) for leaf in jax.tree.leaves(state)))
                self.same_state(xlad.fetch(state), expected, 5e-2, 5e-3)

    def test_jobs_follow_jax_at_every_step(self):
        for name in EXAMPLES:
            script, _, losses, state = example_by_jax(name)
            wanted = script.job["mesh"]
            others = {"gpt": {"dp": 2, "tp": 4}, "cnn": {"dp": 8}, "lstm": {"dp": 4, "tp": 2}}
            for mesh in (wanted, others[name]) if ALL_CASES else (wanted,):
                with self.subTest(example=name, mesh=mesh):
                    run = self.cluster.train(script.step, script.state, script.data,
                                             **{**script.job, "steps": STEPS, "mesh": mesh})
                    found = [step.loss for step in run]
                    np.testing.assert_allclose(found, losses, 2e-4)
                    self.assertLess(found[-1], found[0])
                    self.same_state(run.result(), state, 5e-2, 5e-3)

    def test_the_gpt_example_has_at_most_40_lines(self):
        with open(example("gpt").__file__) as file:
            self.assertLessEqual(len(file.readlines()), 40)

    def test_jobs_of_exported_directories(self):
        script, _, expected, _ = example_by_jax("lstm")
        steps = 4
        with tempfile.TemporaryDirectory() as where:
            job = {**script.job, "mesh": [{}, {"dp": 3, "tp": 2}, {"dp": 2}]}
            path = xlad.export(script.step, script.state, script.data, to=where, **job)
            for mesh in ("", "dp=3,tp=2", "dp=2", {"dp": 4, "tp": 2}):
                run = self.cluster.train(path, steps=steps, mesh=mesh)
                np.testing.assert_allclose([step.loss for step in run], expected[:steps], 2e-4)
                self.assertIn("params.out", run.result())
            with self.assertRaisesRegex(ValueError, "found no program for mesh pp=2, expected one of single; dp=3"):
                self.cluster.train(path, mesh="pp=2")
            with self.assertRaisesRegex(TypeError, "found batch with a job directory"):
                self.cluster.train(path, batch=3)


def mixed_step(state, batch, t):
    def loss_of(params):
        x = batch["x"].astype(jnp.float32) @ params["layers"][0] + params["bias"]
        return jnp.mean((jnp.tanh(x) - batch["deep"]["y"][:, None]) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    params = jax.tree.map(lambda p, g: p - state["rate"] * g, state["params"], grads)
    key, use = jax.random.split(state["key"])
    seen = state["seen"] + jnp.sum(batch["mask"])
    new = {**state, "params": params, "key": key, "seen": seen, "odd": ~state["odd"], "count": state["count"] + 1,
           "half": (state["half"] * 1.5).astype(jnp.bfloat16), "noise": jax.random.normal(use, (5,))}
    return new, {"loss": loss, "t": t, "deep": {"seen": seen, "odd": state["odd"]}}


class Trees(ClusterTest):
    def setUp(self):
        rng = np.random.default_rng(3)
        self.state = {"params": {"layers": [jnp.asarray(rng.normal(size=(6, 5)), jnp.float32)], "bias": jnp.zeros(5)},
                      "key": jax.random.key(1), "rate": 0.1, "seen": np.int32(0), "odd": True, "nothing": None,
                      "count": np.uint32(7), "half": jnp.ones((3,), jnp.bfloat16), "noise": jnp.zeros(5)}
        self.data = {"x": rng.normal(size=(48, 6)), "deep": {"y": rng.normal(size=48)}, "none": None,
                     "mask": rng.integers(0, 2, 48).astype(bool)}

    def test_everything_at_once(self):
        losses, state = by_jax(mixed_step, self.state, batches_of(self.data, 12, 7))
        split = {"params": {"layers": [P(None, "tp")], "bias": P("tp")}, "key": None, "rate": None, "seen": None,
                 "odd": None, "nothing": None, "count": None, "half": P(), "noise": P("dp")}
        for mesh in MESHES:
            with self.subTest(mesh=mesh):
                run = self.cluster.train(mixed_step, self.state, self.data, steps=7, batch=12, mesh=mesh,
                                         in_shardings=None if mesh is None else (split, P("dp")))
                steps = list(run)
                np.testing.assert_allclose(run.losses, losses, 2e-4)
                self.assertEqual([step.metrics["t"] for step in steps], list(range(7)))
                self.assertEqual(steps[2].metrics["deep.odd"], 1)
                found = run.result()
                self.same_state(jax.tree.map(jnp.asarray, found), jax.tree.map(jnp.asarray, state))
                self.assertIsInstance(found["noise"], jax.Array)
                self.assertIsInstance(found["seen"], np.ndarray)

    def test_steps_without_data(self):
        def walk(state, t):
            return state + t, {"loss": jnp.sum(state)}

        for state in (np.ones(4, np.float32), jnp.ones((2, 3)), 3, 2.5):
            losses, final = by_jax(walk, jnp.asarray(state), [None] * 5)
            run = self.cluster.train(walk, state, steps=5)
            np.testing.assert_allclose(run.result(), final)
            np.testing.assert_allclose(run.losses, losses)
        self.assertEqual(self.cluster.train(lambda s: (s * 2, s), 1, steps=4).result(), 16)
        self.assertEqual(self.cluster.train(lambda s: (s * 2, s), 1, steps=0).result(), 1)

    def test_numbers_of_python_in_the_state_have_weak_types(self):
        """The types of `sum` and `mean` are weak only before the first step, and the type of `mean` changes there."""
        def step(state, batch):
            loss = jnp.sum(batch * state["w"])
            return {"w": state["w"] - state["rate"] * state["w"] + state["count"], "rate": state["rate"] * 0.5,
                    "count": state["count"] + 1, "sum": state["sum"] + loss,
                    "mean": state["mean"] * 0.5 + state["w"][0]}, {"loss": loss.astype(jnp.float32)}

        state = {"w": jnp.ones(4, jnp.bfloat16), "rate": 0.5, "count": 0, "sum": 0.0, "mean": 0}
        data = np.arange(16, dtype=np.float32).reshape(4, 4)
        losses, final = by_jax(step, state, batches_of(data, 2, 4))
        run = self.cluster.train(step, state, data, steps=4, batch=2, mesh={"dp": 2})
        np.testing.assert_array_equal([report.loss for report in run], losses)
        self.same_state(jax.tree.map(jnp.asarray, run.result()), final, 0, 0)
        again = self.cluster.job(run.job_id, like=state).result()
        self.same_state(jax.tree.map(jnp.asarray, again), final, 0, 0)

    def test_numbers_of_python_in_batches_have_weak_types(self):
        step = lambda state, batch: (state * batch["scale"], 0.0)

        def lower(scale, make):
            batches = make([{"x": np.ones(2, np.float32), "scale": scale}] * 2)
            training = Training(step, jnp.ones(3, jnp.bfloat16), batches, steps=2, options=DataOptions(), name=None,
                                stream=True)
            training.lower(None, None)
            return training.manifest()["parameters"][-1]["shape"]

        for make in (list, iter):
            self.assertEqual(lower(0.5, make), "f32[1,2]")
            self.assertEqual(lower(jnp.asarray(2.0), make), "f32[1,2]")
            with self.assertRaisesRegex(TypeError, r"the step returned f32\[3\] for state state, expected bf16"):
                lower(np.float32(0.5), make)
        refused = r"the step returned f32\[3\] for state state, expected bf16"
        for scales in ((0.5, np.float32(0.5)), (np.float32(0.5), 0.5)):  # In one of two steps, jit would return f32.
            batches = [{"scale": scale} for scale in scales]
            with self.assertRaisesRegex(TypeError, refused):
                Training(step, jnp.ones(3, jnp.bfloat16), batches, steps=2, options=DataOptions(),
                         name=None).lower(None, None)
        streamed = stream(iter([{"scale": 0.5}, {"scale": np.float32(0.5)}]), DataOptions(), 2)
        with self.assertRaisesRegex(ValueError, "for scale in batch 1, expected a weak type"):
            list(streamed.read(0))
        rows = [jnp.broadcast_to(0.5, (3,))] * 2  # A batch that is one leaf with rows.
        Training(lambda state, batch: (state * batch, 0.0), jnp.ones(3, jnp.bfloat16), rows, steps=2,
                 options=DataOptions(), name=None).lower(None, None)

    def test_numbers_of_python_keep_their_values_if_their_types_change(self):
        def shape_of(initial, change):
            step = lambda state: (change(state), 0.0)
            training = Training(step, initial, None, steps=1, options=DataOptions(None), name=None)
            training.lower(None, None)
            restored = training.restore(safetensors.parse(training.state_bytes()))
            shape = training.manifest()["parameters"][0]["shape"]
            self.assertEqual(shape_text(restored.dtype, restored.shape), shape)
            np.testing.assert_equal(restored.astype(complex).item(), complex(initial))
            return shape

        as_type = lambda dtype: lambda s: jnp.asarray(s, dtype)
        accepted = {"f16[]": (2, as_type(jnp.float16)), "u32[]": (2**31 - 1, as_type(jnp.uint32)),
                    "bf16[]": (256, as_type(jnp.bfloat16)), "f32[]": (0, lambda s: s * 0.5),
                    "s8[]": (2.0, as_type(jnp.int8)), "c64[]": (2, lambda s: s * 1j),
                    "f8e4m3fnuz[]": (0.5, as_type(jnp.float8_e4m3fnuz))}
        for shape, (initial, change) in accepted.items():
            self.assertEqual(shape_of(initial, change), shape)
        self.assertEqual(shape_of(float("nan"), as_type(jnp.bfloat16)), "bf16[]")
        refused = [(0.5, as_type(jnp.int32)), (-1, as_type(jnp.uint8)), (-1, as_type(jnp.uint32)),
                   (257, as_type(jnp.bfloat16)), (1e10, as_type(jnp.float16)), (0.1, as_type(jnp.bfloat16)),
                   (float("nan"), as_type(jnp.int32)), (2**24 + 1, lambda s: s * 0.5),
                   (0, lambda s: 1 if s.dtype == np.float32 else 0.5)]
        for initial, change in refused:
            with self.assertRaisesRegex(TypeError, r"the step returned .* for state state, expected [fs]32\[\], as in"):
                shape_of(initial, change)

    def test_equal_jobs_have_equal_programs(self):
        def step(state, batch):
            return state + batch.sum(), state.sum()

        def program():
            data = np.ones((8, 3), np.float32)
            return Training(step, np.zeros(3, np.float32), data, steps=1, options=DataOptions(4),
                            name=None).job({"dp": 2}, None).program

        programs = []
        for _ in range(2):  # A loop, because programs contain source lines: both calls must be on the same line.
            programs.append(program())
            jax.jit(lambda x: x * 3)(1.0)
        self.assertEqual(*programs)

    def test_data_of_many_forms(self):
        def total(state, batch):
            return state + 1, sum(jnp.sum(leaf) for leaf in jax.tree.leaves(batch))

        rng = np.random.default_rng(5)
        rows = [rng.normal(size=(4, 3)).astype(np.float32) for _ in range(5)]
        forms = {
            "array": (np.concatenate(rows), 4, P("dp")),
            "tuple": ((np.concatenate(rows), np.zeros(20)), 4, (P("dp"), None)),
            "list of batches": (rows, None, P("dp")),
            "iterator": (iter(rows), None, None),
            "generator of dicts": (({"x": row, "scale": 0.0} for row in rows), None,
                                   {"x": P(None, "dp"), "scale": None}),
            "all in one batch": (np.concatenate(rows)[:4], None, P("dp")),
        }
        for name, (data, batch, split) in forms.items():
            with self.subTest(name):
                run = self.cluster.train(total, 0, data, steps=3, batch=batch, mesh={"dp": 2},
                                         in_shardings=(None, split))
                expected = [rows[0 if name == "all in one batch" else t].sum() for t in range(3)]
                np.testing.assert_allclose([step.loss for step in run], expected, 1e-4)

    def test_meshes_and_shardings_of_jax(self):
        def total(state, batch):
            batch = jax.lax.with_sharding_constraint(batch, P(None, "b"))
            turn = lambda x: jax.lax.ppermute(x, "a", [(0, 1), (1, 0)])
            ring = jax.shard_map(turn, in_specs=P("a"), out_specs=P("a"))
            return state + 1, jnp.sum(ring(batch) * batch)

        data = np.arange(32.0, dtype=np.float32).reshape(8, 4)
        expected = np.sum(np.roll(data, 4, 0) * data)
        auto = AbstractMesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
        for arguments in ({"mesh": auto, "in_shardings": (None, P("a"))},
                          {"in_shardings": (None, NamedSharding(auto, P("a", "b")))},
                          {"mesh": {"a": 2, "b": 3}, "in_shardings": None},
                          {"mesh": "a=2,b=2", "in_shardings": (lambda name: P(), lambda name: P(("a", "b")))}):
            run = self.cluster.train(total, 0, data, steps=1, **arguments)
            np.testing.assert_allclose(next(run).loss, expected)

    def test_explicit_axes(self):
        mesh = AbstractMesh((4, 2), ("dp", "tp"), axis_types=(AxisType.Explicit,) * 2)
        rng = np.random.default_rng(8)
        w, x = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 8), (16, 4)))

        def fit(w, x):
            part = lambda w, x: jax.lax.pmean(jax.lax.psum(jnp.sum((x @ w) ** 2), "tp"), "dp")
            whole = jax.shard_map(part, mesh=mesh, in_specs=(P(None, "tp"), P("dp")), out_specs=P())
            loss, grad = jax.value_and_grad(whole)(w, x)
            return w - 0.01 * grad, loss

        options = {"mesh": mesh, "in_shardings": (P(None, "tp"), P("dp"))}
        run = self.cluster.train(fit, w, x, steps=2, **options)
        np.testing.assert_allclose(next(run).loss, np.sum((x @ w) ** 2) / 4, 1e-5)
        new_w, loss = self.cluster.jit(fit, donate_argnums=0, **options)(w, x)
        np.testing.assert_allclose(float(loss), np.sum((x @ w) ** 2) / 4, 1e-5)
        np.testing.assert_allclose(new_w, w - 0.005 * x.T @ (x @ w), 1e-4, 1e-5)

    def test_ragged_exchanges_of_sizes_that_are_arrays(self):
        """Device d sends d + t rows to device t, as in a mixture of experts."""
        n, room = 4, 24
        mesh = AbstractMesh((n,), ("a",), axis_types=(AxisType.Auto,))
        sent = np.add.outer(np.arange(n), np.arange(n)).astype(np.int32)
        start = np.cumsum(sent, 1, dtype=np.int32) - sent
        target = np.cumsum(sent, 0, dtype=np.int32) - sent
        x = np.random.default_rng(4).normal(size=(n, room, 3)).astype(np.float32)
        expected = np.full((n, room, 3), -1, np.float32)
        for d in range(n):
            for t in range(n):
                expected[t, target[d, t]:target[d, t] + sent[d, t]] = x[d, start[d, t]:start[d, t] + sent[d, t]]

        def move(*arguments):
            return jax.lax.ragged_all_to_all(*arguments, axis_name="a")

        whole = jax.shard_map(move, mesh=mesh, in_specs=(P("a"),) * 6, out_specs=P("a"))
        found = self.cluster.jit(whole, mesh=mesh, in_shardings=(P("a"),) * 6)(
            x.reshape(-1, 3), np.full((n * room, 3), -1, np.float32), start.ravel(), sent.ravel(), target.ravel(),
            sent.T.ravel())
        np.testing.assert_array_equal(np.asarray(found).reshape(n, room, 3), expected)

    def test_sizes_that_do_not_divide(self):
        def fit(state, batch):
            loss, grad = jax.value_and_grad(lambda w: jnp.mean((batch @ w) ** 2))(state)
            return state - 0.1 * grad, loss

        rng = np.random.default_rng(6)
        state, data = (rng.normal(size=shape).astype(np.float32) for shape in ((7, 5), (33, 7)))
        losses, final = by_jax(fit, state, batches_of(data, 11, 3))
        for mesh, split in (({"dp": 4, "tp": 2}, (P(None, "tp"), P("dp"))), ({"dp": 3}, (P("dp"), P("dp"))),
                            ({"dp": 2, "tp": 4}, (P("dp", "tp"), P(("dp", "tp"))))):
            run = self.cluster.train(fit, state, data, steps=3, batch=11, mesh=mesh, in_shardings=split)
            np.testing.assert_allclose(run.result(), final, 1e-4, 1e-5)
            np.testing.assert_allclose(run.losses, losses, 1e-4)


class Mistakes(ClusterTest):
    """Every mistake raises an error with what was found and what was expected."""

    DEVICES = 4

    def fails(self, words, step, state, data, kind=(TypeError, ValueError), **arguments):
        with self.assertRaisesRegex(kind, words):
            self.cluster.train(step, state, data, **{"steps": 2, **arguments}).wait()

    def test_arguments(self):
        def step(state, batch):
            return {"w": state["w"] - batch["x"].mean(0)}, batch["x"].sum()

        state, data = {"w": np.zeros(8, np.float32)}, {"x": np.ones((64, 8), np.float32)}
        two = {"dp": 2}
        for words, arguments in {
            "found batch=65, expected a whole number from 1 to 64": {"batch": 65}, "found batch=0": {"batch": 0},
            "found steps=-1, expected a whole number, 0 or more": {"steps": -1}, "found no steps": {"steps": None},
            "found mesh 'dp', expected AXIS=SIZE": {"mesh": "dp"}, "found mesh {'dp': 0}": {"mesh": {"dp": 0}},
            "found on_step=5, expected a function": {"on_step": 5}, "found mesh 8": {"mesh": 8},
            "found evaluate='f', expected a function": {"evaluate": "f", "evaluate_every": 1},
            "of 64 devices, expected at most 4": {"mesh": {"dp": 64}},
            "found axis 'tp' in .* for x, expected one of dp": {"mesh": two, "in_shardings": (None, P("tp"))},
            "for 4 arguments, expected at most 2": {"mesh": two, "in_shardings": (None,) * 4},
            r"for w of shape \[8\], expected at most 1": {"mesh": two, "in_shardings": (P(None, "dp"), None)},
            "found mesh {'dp': True}": {"mesh": {"dp": True}},
            r"found axis 'dp' twice in .* for x": {"mesh": two, "in_shardings": (None, P("dp", "dp"))},
            r"in_shardings\[0\]: ": {"mesh": two, "in_shardings": ({"z": P()}, None)},
            r"in_shardings\[1\]: found the text 'dp' for x": {"mesh": two, "in_shardings": (None, "dp")},
        }.items():
            with self.subTest(words):
                self.fails(words, step, state, data, **arguments)

    def test_steps_states_and_data(self):
        state, data = {"w": np.zeros(8, np.float32)}, {"x": np.ones((64, 8), np.float32)}
        keep = lambda s, b: (s, 0.0)
        for words, step, given, rows in [
            ("found a step of type int, expected", 3, state, data),
            ("found a step of 0 arguments, expected step\\(state, batch\\)", lambda: 0, state, data),
            ("found a step of 4 arguments", lambda a, b, c, d: 0, state, data),
            ("the step returned dict, expected a pair", lambda s, b: s, state, data),
            ("the step returned an array, expected a pair", lambda s, b: b["x"].sum(), state, data),
            (r"returned \(metrics, state\), expected \(state, metrics\)", lambda s, b: (0.0, s), state, data),
            (r"bf16\[8\] for state w, expected f32\[8\]", lambda s, b: ({"w": s["w"].astype(jnp.bfloat16)}, 0.0), state,
             data),
            (r"not that of the initial state: state: found dict\(\), expected dict\(w\)", lambda s, b: ({}, 0.0), state,
             data),
            ("not that of the initial state: state: found tuple of 2, expected a leaf",
             lambda w, b: ((w, b["x"][0]), b["x"].sum()), state["w"], data),
            (r"metric v of shape \[64, 32\], expected a scalar", lambda s, b: (s, {"v": jnp.tile(b["x"], 4)}), state,
             data),
            ("the step returned 'a' as metric name, expected a number", lambda s, b: (s, {"name": "a"}), state, data),
            ("state w: found 'a'", keep, {"w": "a"}, data), ("state w: found <built-in", keep, {"w": len}, data),
            ("found data of shapes x .*, y .*, expected arrays with equal", keep, state, {**data, "y": np.ones(3)}),
            (r"found data of shapes leaf 0 \[64, 8\], leaf 1 \[3\]", keep, state, (data["x"], np.ones(3))),
            (r"found f32\[3\] for batch in batch 1, expected f32\[4\]", keep, state, [np.ones(4), np.ones(3)]),
            ("state w: found a masked array, expected .* array.filled", keep, {"w": np.ma.ones(3)}, data),
            ("data x: found a masked array", keep, state, {"x": np.ma.masked_less(data["x"], 2)}),
            (r"shapes leaf 0.0 \[\], .*, leaf 0.4 \[\], ..., expected .*; np.asarray converts lists", keep, state,
             ([1.0] * 64, data["x"])),
            (r"^batch 1: found dict\(x, y\), expected dict\(x\), as batch 0 has$", keep, state,
             [data, {**data, "y": 1}]),
            ("found data of type function, .*; call the function first", keep, state, lambda: iter([data])),
            ("found no batches", keep, state, []),
            ("found random keys", keep, state, {"x": jax.random.split(jax.random.key(0), 4)}),
            ("calls back into Python", lambda s, b: (jax.debug.print("{}", b["x"][0, 0]), (s, 0.0))[1], state, data),
        ]:
            with self.subTest(words):
                self.fails(words, step, given, rows)
        with self.assertRaises(ZeroDivisionError):
            self.cluster.train(lambda s, b: 1 // 0, state, data, steps=1)
        with self.assertRaisesRegex(ValueError, "expected no batch; arrays of rows .* a tuple or a dictionary"):
            self.cluster.train(keep, state, [data["x"], data["x"]], steps=1, batch=4)
        with self.assertRaisesRegex(TypeError, "found job 1, expected the id of a job, such as run.job_id"):
            self.cluster.job(1)

    def test_clusters_and_runs_are_not_pickled(self):
        with self.assertRaisesRegex(TypeError, "a cluster cannot be pickled; .* xlad.connect"):
            pickle.dumps(self.cluster)
        run = self.cluster.train(lambda s: (s, 0.0), 1.0, steps=0)
        with self.assertRaisesRegex(TypeError, f"a run cannot be pickled; .* cluster.job\\('{run.job_id}'\\)"):
            pickle.dumps(run)

    def test_an_interrupted_loop_continues(self):
        run = self.cluster.train(lambda s: (s + 1, s), 0, steps=30_000)
        seen = [next(run).step]
        with mock.patch.object(Waiting, "update", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                while True:
                    seen.append(next(run).step)
        seen += [step.step for step in run]
        self.assertEqual(seen, list(range(30_000)))
        self.assertEqual((run.wait().state, run.result()), ("SUCCEEDED", 30_000))

    def test_errors_of_the_coordinator_are_raised(self):
        # Steps that take longer than their reports, so that the coordinator is idle when the job is canceled.
        run = self.cluster.train(lambda s: (s @ s, s[0, 0]), np.eye(300, dtype=np.float32), steps=100_000_000)
        next(run)
        run.cancel()
        with self.assertRaisesRegex(xlad.Error, f"job {run.job_id} CANCELLED"):
            run.wait()
        with self.assertRaisesRegex(xlad.Error, "CANCELLED") as caught:
            run.result()
        self.assertEqual(caught.exception.code, "ABORTED")
        self.assertIn((run.job_id, "CANCELLED"), [(job.job_id, job.state) for job in self.cluster.jobs()])
        self.assertEqual([worker.devices for worker in self.cluster.workers()], [2, 2])


if __name__ == "__main__":
    unittest.main()

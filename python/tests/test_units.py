"""Parts of the package that need no cluster: metrics, arguments, batches, indices, remote arrays, progress bars."""

import io
import itertools
import logging
import pathlib
import signal
import tempfile
import threading
import unittest
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from harness import PATIENCE_S
from jax.sharding import PartitionSpec as P

from xlad import indexing, interrupts, metrics, program, protos, safetensors, waiting
from xlad.arguments import Binder, apply, positional
from xlad.batches import DataOptions, all_batches, as_data, epoch_order, stream
from xlad.cluster import Cluster
from xlad.job import Recovery, whole_number
from xlad.progress import NotebookProgress, TerminalProgress
from xlad.remote_array import RemoteArray


class Pages:
    """A connection to a coordinator with 7 jobs. Each response lists at most 3 of them."""

    def call(self, method, *, after):
        names = [f"job-{i}" for i in range(7)]
        begin = names.index(after) + 1 if after else 0
        page = names[begin:begin + 3]
        return protos.message("ListJobsResponse")(
            jobs=[{"id": name} for name in page], next=page[-1] if begin + 3 < len(names) else "")

    def close(self):
        pass


class Jobs(unittest.TestCase):
    def test_the_list_contains_all_pages(self):
        cluster = Cluster(Pages())
        self.addCleanup(cluster.close)
        self.assertEqual([job.job_id for job in cluster.jobs()], [f"job-{i}" for i in range(7)])


class Metrics(unittest.TestCase):
    def round_trip(self, tree):
        names, values = metrics.encode(list(tree), list(tree.values()))
        for value in values:
            self.assertEqual((value.shape, value.dtype), ((), np.float32))
        return metrics.Decoder(names)([float(value) for value in values])

    def test_numbers_and_arrays(self):
        rng = np.random.default_rng(1)
        tree = {"loss": np.float32(1.5), "n": np.int32(7), "ok": np.bool_(True), "half": jnp.asarray(0.5, jnp.bfloat16),
                "vector": rng.normal(size=5).astype(np.float32), "matrix": rng.normal(size=(2, 12)).astype(np.float32),
                "one": np.ones((1,), np.float32), "a.b~c": np.float32(3), "none": np.ones((0,), np.float32)}
        found = self.round_trip(tree)
        self.assertEqual(set(found), set(tree) - {"none"})
        for name, value in found.items():
            np.testing.assert_array_equal(value, np.asarray(tree[name], np.float32), name)
            self.assertEqual(np.shape(value), np.shape(tree[name]))
        self.assertIs(type(found["loss"]), float)

    def test_numbers_of_64_bits_are_exact(self):
        rng = np.random.default_rng(2)
        numbers = rng.normal(size=40) * 10.0 ** rng.integers(-20, 20, 40)
        numbers = np.concatenate([numbers, [0, np.inf, -np.inf, np.nan]])
        with jax.enable_x64(True):
            found = self.round_trip({"loss": np.float64(1 / 3), "v": numbers, "n": np.int64(2**53 - 1)})
        self.assertEqual((found["loss"], found["n"]), (1 / 3, 2**53 - 1))
        np.testing.assert_array_equal(found["v"], numbers)
        self.assertEqual(found["v"].dtype, np.float64)

    def test_metrics_of_other_shapes_and_types_are_refused(self):
        with self.assertRaisesRegex(TypeError, r"metric big of shape \[33, 32\], expected a scalar or an array of at"):
            metrics.encode(["big"], [np.ones((33, 32))])
        with self.assertRaisesRegex(TypeError, "metric c of type complex64, expected real numbers"):
            metrics.encode(["c"], [np.complex64(1j)])


def example(x, y, mode="m", *, scale=1.0, flag=False):
    return x, y, mode, scale, flag


class Arguments(unittest.TestCase):
    def bind(self, function, arguments, named=None, **options):
        every = {"static_argnums": None, "static_argnames": None, "donate_argnums": None, "donate_argnames": None}
        return Binder(function, **{**every, **options}).bind(arguments, named or {})

    def test_calls_arrive_as_they_were_made(self):
        for arguments, named in [((1, 2), {}), ((1,), {"y": 2, "scale": 3}), ((), {"y": 1, "x": 2, "flag": True}),
                                 ((1, 2, 3), {"flag": 4}), ((), {"y": 1, "x": 0, "mode": "k"})]:
            for options in ({}, {"static_argnames": ("mode", "flag")}, {"static_argnums": (-1, 0)},
                            {"static_argnums": 0, "static_argnames": "scale", "donate_argnums": 1}):
                call = self.bind(example, arguments, named, **options)
                found = apply(example, call.keys, call.values, dict(call.static))
                self.assertEqual(found, example(*arguments, **named))
        anything = lambda *a, **k: (a, k)
        call = self.bind(anything, (1, 2), {"b": 3}, static_argnums=(-1,), donate_argnames="b")
        self.assertEqual((call.static, call.donated), (((1, 2),), (1,)))
        self.assertEqual(apply(anything, call.keys, call.values, dict(call.static)), ((1, 2), {"b": 3}))

    def test_names_and_positions_mean_the_same(self):
        for options in ({"static_argnums": 2, "donate_argnums": 1}, {"static_argnums": -1, "donate_argnums": (-2,)},
                        {"static_argnames": "mode", "donate_argnames": ["y"]},
                        {"static_argnums": np.array(2), "donate_argnums": jnp.array([1])}):
            for arguments, named in [((1, 2, 3), {}), ((1, 2), {"mode": 3}), ((), {"x": 1, "y": 2, "mode": 3})]:
                call = self.bind(example, arguments, named, **options)
                self.assertEqual((call.keys, call.values, call.static, call.donated, call.slots, call.slot_count),
                                 ((0, 1), [1, 2], ((2, 3),), (1,), [0, 1], 2))
        call = self.bind(example, (1, 2), {"scale": 5}, static_argnums=0)
        self.assertEqual((call.keys, call.slots, call.slot_count), ((1, "scale"), [0, None], 2))

    def test_wrong_options_are_refused(self):
        for words, options in [("found donate_argnums=\\(3,\\)", {"donate_argnums": 3}),
                               ("found static_argnums=\\(-4,\\)", {"static_argnums": -4}),
                               ("found 'z' in static_argnames, expected one of flag, mode", {"static_argnames": "z"}),
                               ("in donate_argnums and in static_argnums",
                                {"donate_argnums": 1, "static_argnames": "y"})]:
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                self.bind(example, (1, 2), {}, **options)
        for wrong in (1.0, np.float32(1), [1.5], "y", np.array([[1]])):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "found static_argnums=.*, expected positions"):
                self.bind(example, (1, 2), static_argnums=wrong)
        with self.assertRaisesRegex(TypeError, "example: missing a required argument: 'y'"):
            self.bind(example, (1,))
        with self.assertRaisesRegex(ValueError, "found donate_argnums=5, expected positions of its 2"):
            self.bind(lambda *a: a, (1, 2), donate_argnums=5)

    def test_the_number_of_positional_arguments(self):
        for function, expected in ((lambda a: 0, 1), (lambda a, b: 0, 2), (lambda a, b=0: 0, 2), (lambda a, b, c: 0, 3),
                                   (lambda a, *rest: 0, 2), (lambda a, b, c, *rest: 0, 3), (lambda *, a: 0, 0),
                                   (dict.fromkeys, 2)):
            self.assertEqual(positional(function, 2), expected)


class Data(unittest.TestCase):
    def read(self, data, count, first=0, **options):
        read = stream(data, DataOptions(**options), 1000).read(first)
        return [safetensors.parse(next(read))["batch"].tolist() for _ in range(count)]

    def test_shuffled_rows(self):
        data = np.arange(10)
        batches = self.read(data, 6, batch=3, shuffle=5)
        epochs = [sum(batches[:3], []), sum(batches[3:], [])]
        for number, epoch in enumerate(epochs):
            self.assertEqual(epoch, epoch_order(5, number, 10)[:9].tolist())
            self.assertEqual(len(set(epoch)), 9)
        self.assertNotEqual(epochs[0], epochs[1])
        self.assertEqual(self.read(data, 6, batch=3, shuffle=5), batches)
        self.assertNotEqual(self.read(data, 6, batch=3, shuffle=6), batches)
        self.assertEqual(self.read(data, 2, 4, batch=3, shuffle=5), batches[4:])  # As in a resumed training.
        of_lists = self.read([np.asarray([i, i]) for i in range(4)], 4, shuffle=True)
        self.assertEqual(sorted(sum(of_lists, [])), [0, 0, 1, 1, 2, 2, 3, 3])

    def test_objects_that_contain_data_or_do_not(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "data.npz")
            np.savez(path, x=np.arange(4), y=np.ones((4, 2)))
            with np.load(path) as arrays:
                found = all_batches(as_data(arrays), DataOptions(batch=2), 9)
            self.assertEqual(sorted(found.names), ["x", "y"])
            self.assertEqual(found.batches, 2)
            for given in (path, str(path)):
                with self.assertRaisesRegex(TypeError, r"found data .*data\.npz'.*read the file first"):
                    as_data(given)
        with self.assertRaisesRegex(TypeError, "found data of type DataOptions, expected a tree of arrays"):
            as_data(DataOptions())
        for given in (b"x" * 1000, bytearray(9), {1, 2}, frozenset(), {"a": 1}.keys()):
            with self.assertRaisesRegex(TypeError, f"^found data of type {type(given).__name__}, expected a tree"):
                as_data(given)
        with self.assertRaisesRegex(TypeError, r"^found data '/x{199}\.\.\.', expected a tree"):
            as_data("/" + "x" * 5000)
        frame = mock.Mock(spec=["columns", "to_numpy", "__iter__"])
        with self.assertRaisesRegex(TypeError, r"^found data of type Mock, .*dict\(df\)"):
            as_data(frame)
        for array, kind in ((np.array(["a", "b"]), "text .<U1."), (np.array([None, {}]), "objects .object.")):
            with self.assertRaisesRegex(TypeError, f"^data x: found an array of {kind}, expected numbers$"):
                all_batches({"x": array}, DataOptions(), 9)
            with self.assertRaisesRegex(TypeError, f"^f: found an array of {kind}, expected numbers .*static_argnums"):
                program.to_array(array, "f")
        for other in (np.arange(3, dtype=">f4"), np.arange(3, dtype=">i8")):  # The other byte order.
            native = program.to_array(other, "f")
            self.assertTrue(native.dtype.isnative)
            np.testing.assert_array_equal(native, np.arange(3))
        self.assertEqual(program.to_array(2**31 - 1, "f").dtype, np.int32)
        for number in (2**31, -(2**31) - 1, 2**70):
            with self.assertRaisesRegex(OverflowError, f"^f: found {number}, expected an integer from -2147483648 to"):
                program.to_array(number, "f")
        for data in (None, np.ones(3), {"x": np.ones(3)}, [np.ones(3)], (np.ones(3), np.ones(3)), iter([np.ones(3)])):
            self.assertIs(as_data(data), data)

    def test_short_batches(self):
        batches = [np.ones(4), np.ones(3), np.full(4, 2.0), np.ones(1)]
        self.assertEqual(all_batches(batches, DataOptions(drop_last=True), 9).arrays[0].tolist(), [1.0] * 4 + [2.0] * 4)
        found = stream(iter(batches), DataOptions(drop_last=True), 9)
        self.assertEqual([safetensors.parse(b)["batch"].tolist() for b in found.read(0)], [[1.0] * 4, [2.0] * 4])
        with self.assertRaisesRegex(ValueError, r"f32\[3\] for batch in batch 1, expected f32\[4\].*drop_last=True"):
            all_batches(batches, DataOptions(), 9)
        with self.assertRaisesRegex(ValueError, r"found f32\[4,2\] for batch in batch 1"):  # The batch is not shorter.
            all_batches([np.ones((4, 3)), np.ones((4, 2))], DataOptions(drop_last=True), 9)
        with self.assertRaisesRegex(TypeError, "shuffle the data where it is read"):
            stream(iter(batches), DataOptions(shuffle=True), 9)
        with self.assertRaisesRegex(TypeError, "found shuffle='yes'"):
            DataOptions(shuffle="yes")

    def test_data_that_can_be_read_once(self):
        class Loader:
            def __init__(self, *passes):
                self.passes = iter([*passes, []])

            def __iter__(self):
                yield from next(self.passes)  # Raises RuntimeError if it is iterated over again after the empty pass.

        def read(*passes, limit=20, **options):
            batches = stream(Loader(*passes), DataOptions(**options), 1000).read(0)
            return [safetensors.parse(b)["batch"].tolist() for b in itertools.islice(batches, limit)]

        one, two, short = np.ones(2), np.full(2, 2.0), np.ones(1)
        self.assertEqual(read([one, two]), [[1, 1], [2, 2]])
        self.assertEqual(read([one]), [[1, 1]])
        self.assertEqual(read([one], [two], [one, two], [], [one]), [[1, 1], [2, 2], [1, 1], [2, 2]])
        # The third pass has only a short batch, so the stream ends there.
        self.assertEqual(read([one, short], [short, two], [short], [two], drop_last=True), [[1, 1], [2, 2]])
        self.assertEqual(read([one], *[[two]] * 30, limit=20), [[1, 1]] + [[2, 2]] * 19)

    def test_numbers_of_steps(self):
        for value in (1000, 1e3, np.int64(1000), np.float32(1000), jnp.asarray(1000), np.array(1000)):
            self.assertEqual(whole_number(value, "steps"), 1000)
        for value in (-1, 1.5, "3", None, True, float("inf"), float("nan"), np.array(2.7), jnp.float32(2.7),
                      np.array([2, 3]), np.array(-1)):
            with self.assertRaisesRegex(ValueError, "found steps=.*, expected a whole number"):
                whole_number(value, "steps")

    def test_sizes_of_batches(self):
        self.assertEqual(all_batches(np.ones(6), DataOptions(batch=np.array(2)), 9).batches, 3)
        for value in (0, 7, 2.0, np.array(2.7), jnp.float32(2.7), np.array([2, 3]), True):
            with self.assertRaisesRegex(ValueError, "found batch=.*, expected a whole number from 1 to 6"):
                all_batches(np.ones(6), DataOptions(batch=value), 9)

    def test_checkpoints_of_evaluations(self):
        self.assertEqual(Recovery().with_evaluation(len, 10, 35), Recovery(10, keep=4))
        self.assertEqual(Recovery(5).with_evaluation(len, 10, 10_000), Recovery(5, keep=64))
        self.assertEqual(Recovery(7).with_evaluation(None, None, 10), Recovery(7))
        for words, recovery, evaluate, every in [("a multiple of", Recovery(4), len, 10),
                                                 ("evaluate_every=0", Recovery(), len, 0)]:
            with self.assertRaisesRegex(ValueError, words):
                recovery.with_evaluation(evaluate, every, 100)
        with self.assertRaisesRegex(TypeError, "found evaluate without evaluate_every"):
            Recovery().with_evaluation(len, None, 100)

    def test_the_compile_tier_is_part_of_the_spec(self):
        for tier, number in (("quick-first", 0), ("optimized", 1)):
            spec = protos.message("JobSpec")()
            Recovery(compile_tier=tier).fill(spec)
            self.assertEqual(spec.compile_tier, number)
        with self.assertRaisesRegex(ValueError, "found compile_tier='fast', expected one of quick-first, optimized"):
            Recovery(compile_tier="fast").fill(protos.message("JobSpec")())

    def test_the_memory_limit_is_part_of_the_spec(self):
        for limit in (0, 1, 2**40):
            spec = protos.message("JobSpec")()
            Recovery(memory_limit=limit).fill(spec)
            self.assertEqual(spec.compile.memory_limit_bytes, limit)
        for limit in (-1, 1.5, "1GB"):
            with self.assertRaisesRegex(ValueError, "found memory_limit=.*, expected a whole number"):
                Recovery(memory_limit=limit).fill(protos.message("JobSpec")())


class FakeTimer:
    """A timer that fires when the test calls `fire`, even after it was canceled, as can happen with a real timer."""

    made = []

    def __init__(self, seconds, function, arguments=()):
        self.fire = lambda: function(*arguments)
        self.runs = False
        FakeTimer.made.append(self)

    def start(self):
        self.runs = True

    def cancel(self):
        self.runs = False


class Waits(unittest.TestCase):
    def setUp(self):
        FakeTimer.made = []
        patch = mock.patch.object(waiting.threading, "Timer", FakeTimer)
        patch.start()
        self.addCleanup(patch.stop)

    def running(self):
        return [timer for timer in FakeTimer.made if timer.runs]

    def test_a_long_wait_is_reported_again_and_again(self):
        wait = waiting.Waiting("job-1", lambda: "job-1 waits for devices")
        with self.assertLogs("xlad", "WARNING") as logs:
            for _ in range(3):
                FakeTimer.made[-1].fire()
        self.assertEqual(len(logs.output), 3)
        wait.stop()
        self.assertFalse(FakeTimer.made[-1].runs)

    def test_a_timer_that_fires_after_the_end_of_its_wait_has_no_effect(self):
        wait = waiting.Waiting("job-1", lambda: "")
        late = FakeTimer.made[-1]
        wait.update("RUNNING", "")
        with self.assertNoLogs("xlad", "WARNING"):
            late.fire()
            self.assertEqual(self.running(), [])
            wait.update("PENDING", "it waits again")
            late.fire()
        self.assertEqual(self.running(), [FakeTimer.made[-1]])
        wait.stop()

    def test_no_timer_starts_after_an_end_during_a_report(self):
        for end in (lambda wait: wait.stop(), lambda wait: wait.update("RUNNING", "")):
            waits = []
            handler = logging.Handler()
            handler.emit = lambda record, end=end, waits=waits: end(waits[0])
            waits.append(waiting.Waiting("job-1", lambda: ""))
            logging.getLogger("xlad").addHandler(handler)
            self.addCleanup(logging.getLogger("xlad").removeHandler, handler)
            FakeTimer.made[-1].fire()
            logging.getLogger("xlad").removeHandler(handler)
            self.assertEqual([timer for timer in self.running() if timer is not FakeTimer.made[0]], [])
            FakeTimer.made = []

    def test_a_wait_that_ends_while_its_reason_is_asked_for_is_not_reported(self):
        waits = []

        def why():
            waits[0].update("RUNNING", "")
            return "job-1 waits"

        waits.append(waiting.Waiting("job-1", why))
        with self.assertNoLogs("xlad", "WARNING"):
            FakeTimer.made[-1].fire()
        self.assertEqual(self.running(), [])


class Silences(unittest.TestCase):
    def test_the_coordinator_is_asked_less_often_if_it_knows_no_reason(self):
        answers = iter(["", "", OSError(), "", "", "job-1 waits for batch 3"])

        def why():
            answer = next(answers)
            if isinstance(answer, OSError):
                raise answer
            return answer

        with mock.patch.object(waiting.threading, "Thread"), mock.patch.object(waiting.threading, "Event") as event, \
                mock.patch.object(waiting.time, "monotonic", side_effect=itertools.count(0, 1000)):
            event.return_value.wait.side_effect = [False] * 6 + [True]
            event.return_value.is_set.return_value = False
            silence = waiting.Silence(why)
            with self.assertLogs("xlad", "WARNING") as logs:
                silence._run()
        self.assertEqual(len(logs.output), 1)
        pauses = [call.args[0] for call in event.return_value.wait.call_args_list]
        self.assertEqual(pauses, [5, 10, 20, 40, 60, 60, 60])


class Indices(unittest.TestCase):
    def test_indices_select_the_same_elements_as_in_numpy(self):
        x = np.arange(60).reshape(3, 4, 5)
        mask = x[0] % 3 == 0
        for index in [0, -1, np.int32(2), (1, 2), (1, -1, 3), slice(1, None), (slice(None, None, -1), 2), (..., 1),
                      None, (None, 0, ..., None), np.array([2, 0]), (np.array([0, 1]), np.array([3, 2])),
                      (slice(None), np.array([[0, 1], [2, 3]])), (0, mask), x > 30, [0, 2], (1, ..., [0, 4]), (), True,
                      np.False_, (np.array(True), 1), slice(np.array(1), np.int8(3)), np.array(2), [True, False, True],
                      (..., mask[0])]:
            found = indexing.split(index, x.shape)
            with self.subTest(index):
                taken = jax.jit(found.take)(jnp.asarray(x), *found.arrays)
                expected = x[np.asarray(index) if isinstance(index, list) else index]
                np.testing.assert_array_equal(taken, expected)
        self.assertEqual(indexing.split(1, (3,)).static, indexing.split(2, (3,)).static)  # Both use the same program.

    def test_wrong_indices_are_refused(self):
        for index, words in [(3, "index 3 in dimension 0 of size 3"), ((0, -6), "index -6 in dimension 1 of size 5"),
                             ((0, 0, 0), "found 3 indices, expected at most 2"),
                             ((..., ..., 0), r"found index \(Ellipsis, Ellipsis, 0\), expected at most one"),
                             (1.5, "found index 1.5"),
                             ("a", "found index 'a'"), (np.array([1.0]), "an index of float64"),
                             (np.array(1.5), r"found index array\(1.5\)"), (jnp.float32(1), r"found index Array\(1"),
                             (slice(1.5, 3), r"found index slice\(1.5, 3, None\), expected whole numbers"),
                             (np.ones(4, bool), r"mask of shape \[4\] at dimension 0, expected \[3\]"),
                             ((..., [True]), r"mask of shape \[1\] at dimension 1, expected \[5\]"),
                             (np.ones((5, 3), bool), r"mask of shape \[5, 3\] at dimension 0, expected \[3, 5\]")]:
            with self.subTest(index), self.assertRaisesRegex(IndexError, words):
                indexing.split(index, (3, 5))


class RemoteArrays(unittest.TestCase):
    def setUp(self):
        self.x = np.arange(6, dtype=np.float32).reshape(2, 3)
        self.session = mock.Mock(ended=None)
        self.session.get.return_value = self.x.tobytes()
        self.array = RemoteArray(self.session, 1, self.x.dtype, self.x.shape)

    def end_session(self):
        self.session.get.side_effect = AssertionError("the session has ended")
        self.session.ended = "it was closed"

    def test_an_array_that_was_moved_is_printed_like_others(self):
        self.assertEqual(str(self.array), str(self.x))
        self.array.move_here()
        self.end_session()
        self.assertEqual((str(self.array), f"{self.array}"), (str(self.x),) * 2)

    def test_an_array_that_does_not_exist_is_printed_without_its_contents(self):
        self.end_session()
        self.assertEqual(str(self.array), "RemoteArray(f32[2,3])")
        self.session.ended = None
        self.array.donate()
        self.assertEqual(str(self.array), "RemoteArray(f32[2,3])")

    def test_copies_are_writable_and_do_not_change_the_array(self):
        for move in (lambda: None, self.array.move_here):
            move()
            for dtype in (np.float32, np.float64):
                copied = np.array(self.array, dtype)
                copied[0] = 7
                self.assertEqual(copied.dtype, dtype)
                np.testing.assert_array_equal(np.asarray(self.array), self.x)


    def test_an_array_that_is_split_over_axes_of_size_1_is_replicated(self):
        self.session.axes = {"dp": 1, "tp": 2, "pp": 1}
        for spec, is_replicated in ((None, True), (P(), True), (P(None, None), True), (P("dp"), True),
                                    (P(None, "tp"), False), (P(("dp", "pp")), True), (P(("dp", "tp"), "pp"), False)):
            array = RemoteArray(self.session, 1, self.x.dtype, self.x.shape, spec=spec)
            self.assertEqual(array.is_fully_replicated, is_replicated, spec)

    def test_the_operations_that_were_used_last_are_kept(self):
        cluster = Cluster(Pages())
        self.addCleanup(cluster.close)
        self.session.axes = {"dp": 1}
        with mock.patch("xlad.cluster.Jitted") as jitted, mock.patch("xlad.cluster.MAX_OPERATIONS", 3):
            def made(*keys):
                before = jitted.call_count
                for key in keys:
                    cluster._operate(key, abs, [self.array])
                return jitted.call_count - before

            self.assertEqual(made("a", "b", "c", "a", "b", "c"), 3)
            self.assertEqual(made("a", "d", "a", "c", "d"), 1)
            self.assertEqual(made("b"), 1)
            self.assertEqual(made(*range(100)), 100)
            self.assertEqual(len(cluster._operations), 3)


class Bars(unittest.TestCase):
    def setUp(self):
        self.now = 0.0

    def test_on_a_terminal(self):
        out = io.StringIO()
        bar = TerminalProgress(out, lambda: 60, lambda: self.now)
        lines = lambda: out.getvalue().split("\r\x1b[K")[1:]
        bar.phase("export")
        bar.phase("export")
        bar.update("PENDING", "all devices are in use", 0, 100, None)
        bar.update("COMPILING", "", 0, 100, None)
        bar.update("STARTING", "", 0, 100, None)
        self.assertEqual(lines(), ["export", "wait for devices: all devices are in use", "compile", "load"])
        for step in range(1, 101):
            self.now += 0.05
            bar.update("RUNNING", "", step, 100, 1 / step)
        drawn = lines()[4:]
        self.assertLessEqual(len(drawn), 52)  # The bar is drawn at most ten times per second.
        self.assertTrue(drawn[-1].startswith("[########################] step 100 of 100, loss 0.01"), drawn[-1])
        self.assertLessEqual(max(map(len, drawn)), 59)
        bar.close()
        self.assertTrue(out.getvalue().endswith("\r\x1b[K"))

    def test_in_a_notebook(self):
        shown = []
        bar = NotebookProgress(lambda content, new: shown.append((content, new)), lambda: self.now)
        bar.phase("upload <x>")
        bar.update("RUNNING", "", 5, 10, None)
        self.assertEqual([new for _, new in shown], [True, False])
        self.assertIn("upload &lt;x&gt;", shown[0][0]["text/html"])
        self.assertIn('value="0.5000"', shown[1][0]["text/html"])
        self.assertIn("step 5 of 10", shown[1][0]["text/plain"])


class Interrupts(unittest.TestCase):
    def test_the_handler_is_installed_again_in_each_cell_of_a_notebook(self):
        """Jupyter installs Python's handler before each cell, and its own one after it."""
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        interrupts.hold()
        self.addCleanup(interrupts.release)
        handler = signal.getsignal(signal.SIGINT)
        self.assertIsNot(handler, signal.default_int_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupts.check()
        self.assertIs(signal.getsignal(signal.SIGINT), handler)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interrupts.check()
        self.assertIs(signal.getsignal(signal.SIGINT), signal.SIG_IGN, "the handler of the user was replaced")

    def defer(self):
        """Sends a Ctrl-C during a call, and returns the function that would send it again."""
        with mock.patch("threading.Timer") as timer, interrupts.put_off():
            signal.raise_signal(signal.SIGINT)
        return timer.call_args.args[1]

    def test_an_interrupt_of_an_earlier_cell_is_dropped(self):
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        interrupts.hold()
        self.addCleanup(interrupts.release)
        for when in ("between the cells", "in the next cell", "later"):
            with self.subTest(when):
                send = self.defer()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                if when == "between the cells":
                    send()
                signal.signal(signal.SIGINT, signal.default_int_handler)
                if when == "in the next cell":
                    send()
                interrupts.check()
                if when == "later":
                    send()
                with self.assertRaises(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)

    def test_an_interrupt_that_is_deferred_when_the_last_cluster_is_closed_is_raised(self):
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        interrupts.hold()
        send = self.defer()
        interrupts.release()
        self.assertRaises(KeyboardInterrupt, send)
        interrupts.hold()
        self.addCleanup(interrupts.release)
        interrupts.check()

    def test_the_garbage_collector_may_release_a_cluster_while_another_one_is_held(self):
        users = interrupts._users
        with mock.patch.object(interrupts, "_install", interrupts.release):
            thread = threading.Thread(target=interrupts.hold, daemon=True)
            thread.start()
            thread.join(PATIENCE_S)
        self.assertFalse(thread.is_alive())
        self.assertEqual(interrupts._users, users)


if __name__ == "__main__":
    unittest.main()

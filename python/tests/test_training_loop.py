"""Features of a training run: evaluations, callbacks, shuffled data, resuming, attaching again."""

import contextlib
import io
import logging
import os
import signal
import threading
import time
import unittest
from concurrent import futures
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from harness import ClusterTest, by_jax
from jax.sharding import PartitionSpec as P

import xlad
from xlad import element_types
from xlad.batches import epoch_order
from xlad.connection import Connection
from xlad.progress import TerminalProgress


def fit(state, batch):
    def loss_of(w):
        return jnp.mean((batch["x"] @ w - batch["y"]) ** 2)

    loss, grad = jax.value_and_grad(loss_of)(state["w"])
    return {"w": state["w"] - 0.05 * grad, "seen": state["seen"] + 1}, loss


class Loops(ClusterTest):
    DEVICES = 4

    def setUp(self):
        rng = np.random.default_rng(4)
        self.state = {"w": jnp.zeros(3), "seen": np.int32(0)}
        x = rng.normal(size=(22, 3)).astype(np.float32)
        self.data = {"x": x, "y": (x @ [1, 2, 3]).astype(np.float32)}
        # Optimized code is cached, so that only the first of the jobs with equal programs is compiled.
        self.options = {"mesh": {"dp": 2}, "in_shardings": (None, P("dp")), "batch": 4, "compile_tier": "optimized"}

    def train(self, steps, **more):
        return self.cluster.train(fit, self.state, self.data, steps=steps, **{**self.options, **more})

    def batch(self, t):
        return jax.tree.map(lambda a: a[t % 5 * 4 : t % 5 * 4 + 4], self.data)

    def evaluated(self, every, evaluate, steps, first=0, **more):
        """Returns a run that is at most one step ahead of its evaluations, so that no evaluation is skipped."""
        permits = threading.Semaphore((first // every + 1) * every + 1 - first)

        def batches():
            for t in range(first, steps):
                permits.acquire()
                yield self.batch(t)

        def counted(state, step):
            permits.release(every)
            return evaluate(state, step)

        options = {**self.options, "batch": None}
        return self.cluster.train(fit, self.state, batches(), steps=steps, evaluate=counted, evaluate_every=every,
                                  **options, **more)

    def test_evaluations_get_the_state(self):
        steps, every = 23, 5
        after = lambda t: by_jax(fit, self.state, [self.batch(i) for i in range(t)])[1]
        expected = {t: after(t) for t in range(every, steps, every)}
        seen = []
        run = self.evaluated(every, lambda state, step: (np.asarray(state["w"]), int(state["seen"]), step), steps,
                             on_step=lambda step: seen.append(step.step))
        for step in run:
            self.assertEqual(len(run.evaluations), step.step // every)  # Before the next step.
        self.assertEqual(seen, list(range(steps)))
        self.assertEqual([e.step for e in run.evaluations], list(expected))
        for evaluation in run.evaluations:
            w, count, step = evaluation.result
            self.assertEqual((count, step), (evaluation.step, evaluation.step))
            np.testing.assert_allclose(w, expected[evaluation.step]["w"], 1e-4, 1e-5)

    def test_the_final_state_is_evaluated(self):
        # No other job has this mesh, so this one starts on quick code, and optimized code replaces it.
        self.options = {"mesh": {"dp": 4}, "in_shardings": (None, P("dp")), "compile_tier": "quick-first"}
        count = lambda state, step: int(state["seen"])
        run = self.evaluated(5, count, 10)
        self.assertEqual(int(run.result()["seen"]), 10)
        self.assertEqual(run.evaluations, [(5, 5), (10, 10)])
        self.assertEqual(run.checkpoint().step, 10)
        self.assertEqual(int(run.checkpoint().state["seen"]), 10)
        longer = self.evaluated(4, count, 17, first=10, resume=run)
        longer.wait()
        self.assertEqual(longer.evaluations, [(12, 12), (16, 16)])

    def test_a_training_that_is_faster_than_its_evaluations(self):
        """Skipped evaluations are reported once; the other evaluations have the correct state."""
        log = logging.getLogger("xlad")
        with mock.patch.object(log, "warning") as warning:
            run = self.train(300, evaluate=lambda state, step: int(state["seen"]), evaluate_every=2)
            run.wait()
        skipped = set(range(2, 302, 2)) - {e.step for e in run.evaluations}
        # The number of skipped evaluations depends on the speed at which checkpoints are written.
        texts = [call.args[0] % call.args[1:] for call in warning.call_args_list]
        self.assertEqual(len(texts), 1 if skipped else 0, texts)
        for text in texts:
            self.assertRegex(text, "the state before step [0-9]+ is not evaluated")
        self.assertEqual([(e.step, e.result) for e in run.evaluations], [(e.step, e.step) for e in run.evaluations])
        self.assertEqual(run.evaluations[-1].step, 300)

    def test_an_evaluation_that_fails_ends_the_loop_and_not_the_job(self):
        def fails(state, step):
            raise ZeroDivisionError

        run = self.train(10, evaluate=fails, evaluate_every=5)
        with self.assertRaises(ZeroDivisionError):
            run.wait()
        self.assertEqual(self.cluster.job(run.job_id).wait().state, "SUCCEEDED")

    def test_metrics_of_any_shape(self):
        def step(state, batch):
            return state + 1, {"loss": jnp.mean(batch), "rows": batch.sum(axis=1), "big": jnp.float32(1) / 3}

        data = np.arange(24, dtype=np.float32).reshape(8, 3)
        options = {"mesh": {"dp": 2}, "in_shardings": (None, P("dp"))}
        reports = list(self.cluster.train(step, 0, data, batch=4, steps=2, **options))
        np.testing.assert_allclose(reports[1].metrics["rows"], data[4:].sum(axis=1))
        self.assertEqual(reports[0].loss, data[:4].mean())
        with jax.enable_x64(True):
            third = next(self.cluster.train(lambda s: (s + 1, jnp.float64(s) / 3), np.float64(1), steps=1)).loss
        self.assertEqual(third, 1 / 3)

    def test_shuffled_epochs(self):
        rows = np.arange(22, dtype=np.float32)
        step = lambda state, batch: (state + 1, batch)
        found = self.cluster.train(step, 0, rows, batch=4, steps=12, mesh={"dp": 2}, shuffle=9)
        order = np.concatenate([epoch_order(9, epoch, 22)[:20] for epoch in range(3)]).reshape(-1, 4)
        np.testing.assert_array_equal([s.loss for s in found], order[:12])

    def test_training_is_continued(self):
        for shuffle in (False, 3):
            whole = self.train(24, shuffle=shuffle)
            expected = [s.loss for s in whole]
            first = self.train(10.0, shuffle=shuffle)
            found = [s.loss for s in first]
            state = first.result()
            second = self.cluster.train(fit, state, self.data, steps=17, start_step=10, shuffle=shuffle, **self.options)
            found += [s.loss for s in second]
            self.assertEqual([s.step for s in second.history], list(range(10, 17)))
            third = self.train(24, resume=second, shuffle=shuffle)
            found += [s.loss for s in third]
            self.assertEqual(found, expected)
            np.testing.assert_array_equal(third.result()["w"], whole.result()["w"])
        with self.assertRaisesRegex(ValueError, "found steps=5 and start_step=5, expected more steps"):
            self.train(5, start_step=5)

    def test_attaching_to_a_job(self):
        run = self.train(12)
        again = self.cluster.job(run.job_id, like=self.state)
        self.assertEqual([s.loss for s in again], [s.loss for s in run])
        self.assertIsInstance(again.result()["w"], jax.Array)
        np.testing.assert_array_equal(again.result()["w"], run.result()["w"])
        self.assertEqual(set(self.cluster.job(run.job_id).result()), {"w", "seen"})
        with self.assertRaisesRegex(ValueError, "found no v in the saved state, which has seen, w"):
            self.cluster.job(run.job_id, like={"v": 0}).result()
        with self.assertRaisesRegex(xlad.Error, "no job job-none"):
            self.cluster.job("job-none")
        endless = self.cluster.train(lambda s: (s, s), 1.0, steps=100_000_000)
        self.cluster.job(endless.job_id).cancel()
        with self.assertRaisesRegex(xlad.Error, "CANCELLED"):
            self.cluster.job(endless.job_id).wait()

    def test_a_submission_is_repeated_with_its_key(self):
        call, keys = Connection.call, []

        def loses_answers(connection, method, **fields):
            answer = call(connection, method, **fields)
            if method == "SubmitJob":
                keys.append(fields["client_key"])
                if len(keys) < 3:
                    raise xlad.Error("the answer was lost", "UNAVAILABLE")
            return answer

        before = len(self.cluster.jobs())
        with mock.patch.object(Connection, "call", loses_answers):
            run = self.train(3)
        self.assertEqual((len(keys), len(set(keys)), len(self.cluster.jobs()) - before), (3, 1, 1))
        self.assertEqual(run.wait().state, "SUCCEEDED")

    def test_what_is_drawn(self):
        out = io.StringIO()
        with mock.patch("xlad.cluster.for_user", lambda wanted: TerminalProgress(out, lambda: 80)):
            self.train(5, progress=True).wait()
        drawn = out.getvalue().split("\r\x1b[K")
        self.assertEqual([line for line in drawn if line in ("export", "upload")], ["export", "upload"])
        self.assertTrue(any("step 5 of 5, loss" in line for line in drawn), drawn)

    def test_the_texts_of_a_run_and_a_cluster_name_their_state(self):
        run = self.train(5)
        self.assertIn(run.job_id, repr(run))
        run.wait()
        self.assertIn("SUCCEEDED, step 5 of 5, loss", repr(run))
        self.assertIn(": 2 workers, 4 devices>", repr(self.cluster))
        self.assertIn(run.job_id, run.why())

    def test_explain_and_verify(self):
        options = {"mesh": {"dp": 2}, "in_shardings": (None, P("dp")), "batch": 4}
        explained = xlad.explain(fit, self.state, self.data, **options)
        self.assertIn("all-reduce", explained)
        self.assertIn("test_training_loop.py", explained)
        self.assertTrue(xlad.verify(fit, self.state, self.data, **options))
        with self.assertRaisesRegex(xlad.Error, "expected"):
            xlad.verify(lambda s: (jnp.sort(s), 0.0), self.state["w"], mesh={"dp": 10**9})

    def test_state_of_every_element_type(self):
        values = np.array([1, 0.5, 1, 1, 0.5])
        names = [row.numpy for row in element_types.TYPES
                 if row.numpy not in ("int64", "uint64", "float64", "complex128")]
        state = {name: values.astype(name) for name in names}
        job = {"mesh": {"dp": 3}, "in_shardings": P("dp")}
        step = lambda state: ({name: x[::-1] for name, x in state.items()}, state["int2"].astype(jnp.float32).sum())
        found = self.cluster.train(step, state, steps=3, **job).result()
        jitted = xlad.fetch(self.cluster.jit(step, **job)(state)[0])
        for name in names:
            for result in (found[name], jitted[name]):
                self.assertEqual(result.dtype, np.dtype(name))
                self.assertEqual(np.asarray(result).tobytes(), state[name][::-1].tobytes())
        self.assertTrue(xlad.verify(step, state, **job))


class Clusters(unittest.TestCase):
    def test_all_workers_have_registered_when_local_returns(self):
        with xlad.local(devices=5, workers=3) as cluster:
            self.assertEqual(sorted(worker.devices for worker in cluster.workers()), [1, 2, 2])
        self.assertIn("closed", repr(cluster))

    def test_a_session_that_waits_for_devices(self):
        with xlad.local(devices=2) as cluster, xlad.connect(cluster.address) as other:
            # Outside assertLogs, because the start of this session may be slow and then also logs a wait.
            held = cluster.device_put(np.ones(2), mesh={"dp": 2})
            with self.assertLogs("xlad", logging.WARNING) as logs, mock.patch("xlad.waiting.SAY_AFTER_S", 0.2), \
                    futures.ThreadPoolExecutor() as pool:
                waiting = pool.submit(lambda: float(other.jit(lambda x: x + 1, mesh={"dp": 2})(1.0)))
                while not logs.output:
                    self.assertFalse(waiting.done())
                    time.sleep(0.01)
                held._session.close()
                self.assertEqual(waiting.result(), 2)
        self.assertRegex(logs.output[0], "job-[0-9a-f]+ has been PENDING for .*waits for 2 devices, 0 are free of 2")

    def test_a_training_after_the_loss_of_a_worker(self):
        """The run logs what the job waits for, until the worker has been replaced."""
        with xlad.local(devices=2, workers=2) as cluster, self.assertLogs("xlad", logging.WARNING) as logs, \
                mock.patch("xlad.waiting.SAY_AFTER_S", 0.2):
            victim = cluster.workers()[1].pid
            os.kill(victim, signal.SIGSTOP)
            resumed = threading.Event()

            def let_go(record):
                if not resumed.is_set():
                    resumed.set()
                    os.kill(victim, signal.SIGKILL)
                return True

            handler = logging.getLogger("xlad").handlers[0]
            handler.addFilter(let_go)
            with contextlib.ExitStack() as stack:
                stack.callback(lambda: None if resumed.is_set() else os.kill(victim, signal.SIGKILL))
                self.assertEqual(cluster.train(lambda s: (s + 1, s), 0, steps=3, mesh={"dp": 2}).result(), 3)
            self.assertTrue(resumed.is_set())
            self.assertNotIn(victim, [worker.pid for worker in cluster.workers()])
        self.assertRegex(logs.output[0], "job-[0-9a-f]+ has been (STARTING|PENDING) for [0-9]+ s: .+")


if __name__ == "__main__":
    unittest.main()

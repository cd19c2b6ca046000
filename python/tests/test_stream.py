"""Training on batches that an iterator yields while the job runs."""

import itertools
import logging
import os
import queue
import signal
import threading
import unittest
from unittest import mock

import jax.numpy as jnp
import numpy as np
from harness import ClusterTest, wait_for

import xlad

AHEAD = 8 + 8 + 1  # The batches queued at the coordinator and at a worker, and the batch that is being sent.


def total(state, batch):
    state = state * 0.5 + jnp.sum(batch)
    return state, state


def batches(count=None):
    for i in itertools.count() if count is None else range(count):
        yield np.full((4, 3), 1 / (i + 3), np.float32)


class Streams(ClusterTest):
    DEVICES = 2

    def train(self, data, steps, **more):
        return self.cluster.train(total, np.float32(0), data, steps=steps, mesh={"dp": 2}, **more)

    def test_training_starts_with_the_first_batch(self):
        given = queue.SimpleQueue()
        given.put(np.ones((4, 3), np.float32))
        run = self.train((given.get() for _ in itertools.count()), 3)
        self.assertEqual(next(run).loss, 12)
        given.put(np.zeros((4, 3), np.float32))
        self.assertEqual(next(run).loss, 6)
        given.put(np.full((4, 3), 2, np.float32))
        self.assertEqual(run.result(), 27)

    def test_batches_are_read_at_the_pace_of_the_job(self):
        read = []

        def counted():
            for batch in batches():
                read.append(1)
                yield batch

        steps = 40
        losses = [step.loss for step in self.train(counted(), steps)]
        self.assertLessEqual(len(read), steps + AHEAD)
        expected = [step.loss for step in self.train(list(batches(steps)), steps)]
        self.assertEqual(losses, expected)

    def test_an_object_that_can_be_iterated_over_again(self):
        class Loader:
            def __iter__(self):
                return batches(3)

        losses = [step.loss for step in self.train(Loader(), 8)]
        self.assertEqual(losses, [step.loss for step in self.train(list(batches(3)), 8)])

    def test_iterators_that_fail_or_end_early(self):
        def fails():
            yield from batches(2)
            raise OSError("the file is gone")

        with self.assertRaisesRegex(xlad.Error, "batches could not be read or sent: OSError: the file is gone"):
            self.train(fails(), 100).wait()
        early = "found no batch for step 2, because the iterator has ended; expected one for each of the 100 steps"
        with self.assertRaisesRegex(xlad.Error, f"CANCELLED: its batches could not be read or sent: {early}"):
            self.train(batches(2), 100).wait()
        with self.assertRaisesRegex(xlad.Error, r"found f32\[2\] for batch in batch 1, expected f32\[4,3\]"):
            self.train(iter([np.ones((4, 3), np.float32), np.ones(2, np.float32)]), 100).wait()
        with self.assertRaisesRegex(ValueError, "found no batches in the data"):
            self.train(iter([]), 100)

    def test_a_job_whose_client_is_slow_says_what_it_waits_for(self):
        given = queue.SimpleQueue()
        given.put(np.ones((4, 3), np.float32))
        soon = mock.patch.multiple("xlad.waiting", SAY_AFTER_S=0.05, SAY_AGAIN_S=0.2)
        with soon, self.assertLogs("xlad", logging.WARNING) as logs:
            run = self.train((given.get() for _ in itertools.count()), 2)
            next(run)
            # The worker requests the batch soon. `run` recognizes the reason by the first words of a sentence of `why`.
            wait_for(lambda: any("waits for batch 1" in text for text in logs.output), "the warning about batch 1")
            self.assertEqual(run.status().state, "RUNNING")
        self.assertIn(f"if its client has ended, cancel the job (xlad cancel {run.job_id})", logs.output[-1])
        given.put(np.ones((4, 3), np.float32))
        self.assertEqual(run.result(), 18)
        with mock.patch("xlad.run.Silence") as silence:
            self.train(np.ones((4, 3), np.float32), 1).result()
        silence.assert_not_called()  # The job has all its batches.

    def test_recovery_replays_the_batches(self):
        steps = 60
        expected = self.train(list(batches(steps)), steps).result()
        reached = []
        killed = threading.Event()

        def held_back():  # The job cannot end before a worker is killed.
            yield from itertools.islice(batches(), 30)
            killed.wait()
            yield from itertools.islice(batches(), 30, None)

        with xlad.local(devices=2, workers=2) as cluster:
            run = cluster.train(total, np.float32(0), held_back(), steps=steps, mesh={"dp": 2}, checkpoint_every=7)
            for step in run:
                reached.append(step.step)
                if step.step == 20:
                    os.kill(cluster.workers()[0].pid, signal.SIGKILL)
                    killed.set()
            self.assertEqual(reached, list(range(steps)))
            self.assertEqual(run.result(), expected)


if __name__ == "__main__":
    unittest.main()

"""Programs that use flax, equinox, haiku and optax follow jax.jit on three devices, with split states."""

import unittest

import numpy as np
from harness import ClusterTest, batches_of, by_jax
from jax.sharding import PartitionSpec as P
from library_programs import PROGRAMS

BATCH, STEPS = 12, 6


def split_widest(name, shape):
    """Splits the largest dimension of every leaf that is larger than four."""
    widest = max(shape.shape, default=0)
    return P() if widest <= 4 else P(*(None,) * shape.shape.index(widest), "dp")


class Libraries(ClusterTest):
    DEVICES = 3

    def test_follow_jax_at_every_step(self):
        for make in PROGRAMS:
            step, state, data = make()
            expected, _ = by_jax(step, state, batches_of(data, BATCH, STEPS))
            with self.subTest(make.__name__):
                run = self.cluster.train(step, state, data, steps=STEPS, batch=BATCH, mesh={"dp": self.DEVICES},
                                         in_shardings=(split_widest, P("dp")))
                np.testing.assert_allclose([s.loss for s in run], expected, 1e-4, 1e-5)


if __name__ == "__main__":
    unittest.main()

"""Programs that use flax, equinox, haiku and optax follow jax.jit at every step, with split states.

They run on three devices; XLAD_LIBRARY_DEVICES=1,2,3,6,8 runs them on each of these numbers.
"""

import os
import unittest

import numpy as np
import xlad
from harness import batches_of, by_jax
from jax.sharding import PartitionSpec as P
from library_programs import PROGRAMS

BATCH, STEPS = 24, 6
ASKED = os.environ.get("XLAD_LIBRARY_DEVICES", "")
NUMBERS = [int(number) for number in ASKED.split(",")] if ASKED else [3]


def split_widest(name, shape):
    """Splits the largest dimension of every leaf that is larger than four."""
    widest = max(shape.shape, default=0)
    return P() if widest <= 4 else P(*(None,) * shape.shape.index(widest), "dp")


class Libraries(unittest.TestCase):
    def test_follow_jax_at_every_step(self):
        clusters = {}
        for number in NUMBERS:
            clusters[number] = xlad.local(devices=number, workers=min(2, number))
            self.addCleanup(clusters[number].close)
        for make in PROGRAMS:
            step, state, data = make()
            expected, _ = by_jax(step, state, batches_of(data, BATCH, STEPS))
            for number, cluster in clusters.items():
                with self.subTest(make.__name__, devices=number):
                    run = cluster.train(step, state, data, steps=STEPS, batch=BATCH, mesh={"dp": number},
                                        in_shardings=(split_widest, P("dp")))
                    np.testing.assert_allclose([s.loss for s in run], expected, 1e-4, 1e-5)


if __name__ == "__main__":
    unittest.main()

"""Programs of optax, flax, equinox, haiku, numpyro, diffrax and transformers have the losses of jax.jit on one device.

The programs run on three devices, with split states. With XLAD_LIBRARY_DEVICES=1,2,3,6,8 they run on each of these
numbers of devices, and so do the programs of libraries that scripts/setup.sh does not install: pip install numpyro
diffrax "transformers<5". If one of these libraries is missing, its programs are skipped with a message.
"""

import importlib.util
import os
import unittest

import numpy as np
import xlad
from harness import batches_of, by_jax
from jax.sharding import PartitionSpec as P
from library_programs import MORE_PROGRAMS, PROGRAMS

BATCH, STEPS = 24, 6
ASKED = os.environ.get("XLAD_LIBRARY_DEVICES", "")
NUMBERS = [int(number) for number in ASKED.split(",")] if ASKED else [3]


def split_widest(name, shape):
    """Splits the largest dimension of every leaf if its size is more than four."""
    widest = max(shape.shape, default=0)
    return P() if widest <= 4 else P(*(None,) * shape.shape.index(widest), "dp")


def library_of(make):
    return make.__name__.split("_")[0]


class Libraries(unittest.TestCase):
    def follow_jax(self, programs):
        clusters = {}
        for number in NUMBERS:
            clusters[number] = xlad.local(devices=number, workers=min(2, number))
            self.addCleanup(clusters[number].close)
        for make in programs:
            step, state, data = make()
            expected, _ = by_jax(step, state, batches_of(data, BATCH, STEPS))
            self.assertTrue(np.isfinite(expected).all(), make.__name__)
            for number, cluster in clusters.items():
                with self.subTest(make.__name__, devices=number):
                    run = cluster.train(step, state, data, steps=STEPS, batch=BATCH, mesh={"dp": number},
                                        in_shardings=(split_widest, P("dp")))
                    np.testing.assert_allclose([s.loss for s in run], expected, 1e-4, 1e-5)

    def test_follow_jax_at_every_step(self):
        self.follow_jax(PROGRAMS)

    @unittest.skipUnless(ASKED, "XLAD_LIBRARY_DEVICES is not set")
    def test_programs_of_more_libraries_follow_jax_at_every_step(self):
        found = [make for make in MORE_PROGRAMS if importlib.util.find_spec(library_of(make)) is not None]
        self.follow_jax(found)
        missing = sorted({library_of(make) for make in MORE_PROGRAMS if make not in found})
        if missing:
            self.skipTest(f"not run: the programs of {', '.join(missing)}, which are not installed")


if __name__ == "__main__":
    unittest.main()

"""Programs have the same results on simulated GPUs and TPUs as on CPUs.

Products are of the precision highest, because those of the default precision are rounded to bf16 on TPUs. By default,
every third program runs; with XLAD_ALL_CASES, all programs run, and also on gpu_sim_checked, which finds races.
"""

import unittest

import jax
import numpy as np
import xlad
from device_programs import PROGRAMS
from harness import ALL_CASES, start_cluster

KINDS = ["gpu_sim", "tpu_sim"] + (["gpu_sim_checked"] if ALL_CASES else [])
SOME = PROGRAMS if ALL_CASES else dict(list(PROGRAMS.items())[::3])
# The largest difference of floats, relative to the largest element. Devices add in different orders.
ERROR = 2e-5


def arrays_of(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


class DevicePrograms(unittest.TestCase):
    def same(self, found, expected):
        self.assertEqual((found.shape, found.dtype), (expected.shape, expected.dtype))
        if not np.issubdtype(expected.dtype, np.inexact):
            np.testing.assert_array_equal(found, expected)
            return
        finite = np.abs(expected[np.isfinite(expected)])
        np.testing.assert_allclose(found, expected, rtol=0, atol=ERROR * (1e-3 + finite.max(initial=0)))

    def test_have_the_results_of_cpu_devices(self):
        cpu, devices = start_cluster(self, "cpu:1"), {kind: start_cluster(self, f"{kind}:1") for kind in KINDS}
        for program, arguments in SOME.items():
            with jax.default_matmul_precision("highest"):
                expected = arrays_of(xlad.fetch(cpu.jit(program)(*arguments)))
                for kind, cluster in devices.items():
                    with self.subTest(program=program.__name__, kind=kind):
                        found = arrays_of(xlad.fetch(cluster.jit(program)(*arguments)))
                        self.assertEqual(len(found), len(expected))
                        for one, other in zip(found, expected, strict=True):
                            self.same(one, other)

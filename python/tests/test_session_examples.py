"""Sessions on opaque devices run the examples with the bits of sessions on CPU devices.

By default, one mesh of spiral_mlp runs; with XLAD_ALL_CASES, every mesh of spiral_mlp and of the examples in
XLAD_EXAMPLES runs.
"""

import contextlib
import json
import os
import pathlib
import unittest

import numpy as np
from harness import ALL_CASES, REPO, start_cluster
from xlad import safetensors
from xlad.job import axes_text, read_directory
from xlad.session import Session

STEPS = 3
DEVICES = 8


def programs():
    """Yields (folder, axes) of each mesh of each example."""
    if not ALL_CASES:
        yield REPO / "examples/spiral_mlp", {"dp": 3, "tp": 2}
        return
    folders = [REPO / "examples/spiral_mlp", *pathlib.Path(os.environ.get("XLAD_EXAMPLES", "/none")).glob("*/")]
    for folder in sorted(folder for folder in folders if (folder / "manifest.json").is_file()):
        for mesh in json.loads((folder / "manifest.json").read_text())["meshes"]:
            yield folder, mesh["axes"]


def results_of(cluster, job):
    """Runs steps in a session, as a training loop does: the state stays on the worker, and its arrays are donated.
    Returns the bytes of the results of each step that feed nothing, and of the last state."""
    given, data = safetensors.parse(job.state), safetensors.parse(job.data)
    parameters, results = job.manifest["parameters"], job.manifest["results"]
    batch = job.manifest["batches"]["batch"]
    feeds = [-1 if result.get("feeds") is None else result["feeds"] for result in results]
    with contextlib.closing(Session(cluster._connection, job.axes)) as session:
        program = session.load(job.program, feeds).number
        state = {p["index"]: session.put(given[p["name"]]) for p in parameters if p["kind"] in ("state", "rng")}
        reported = []
        for step in range(STEPS):
            rows = slice(step * batch, (step + 1) * batch)
            arguments = [
                np.int32(step) if p["kind"] == "step" else data[p["name"]][rows] if p["kind"] == "data"
                else state[p["index"]]
                for p in parameters
            ]
            made = session.call(program, arguments, [state[feed] for feed in feeds if feed >= 0])
            state |= {feed: number for feed, number in zip(feeds, made, strict=True) if feed >= 0}
            reported.append([session.get(number) for feed, number in zip(feeds, made, strict=True) if feed < 0])
        return reported, {index: session.get(number) for index, number in state.items()}


class SessionExamples(unittest.TestCase):
    def test_have_the_bits_of_cpu_devices(self):
        cpu, opaque = (start_cluster(self, f"{kind}:{DEVICES}") for kind in ("cpu", "opaque"))
        for folder, axes in programs():
            with self.subTest(example=folder.name, mesh=axes_text(axes)):
                job = read_directory(folder, axes, STEPS)
                expected = results_of(cpu, job)
                self.assertEqual(len(expected[0]), STEPS)
                self.assertTrue(all(expected[0]) and expected[1])
                self.assertEqual(results_of(opaque, job), expected)

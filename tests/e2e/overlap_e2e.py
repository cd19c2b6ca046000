"""Collectives that run beside computation: the same bits, and timelines that show both at the same time."""

import json
import os
import pathlib
import unittest

from harness import folder, xlad

JOB = pathlib.Path(os.environ.get("XLAD_EXAMPLES", "")) / "nano_gpt"


@unittest.skipUnless("XLAD_EXAMPLES" in os.environ, "XLAD_EXAMPLES is not set")
class OverlapTest(unittest.TestCase):
    def train(self, where, overlap, *flags):
        where.mkdir()
        code, _, err = xlad("run", JOB, "--mesh", "dp=4", "--workers", 2, "--steps", 3, "--overlap", overlap,
                            "--timelines", where / "trace", "--save-state", where / "state.safetensors", *flags)
        self.assertEqual(code, 0, err)
        events = []
        for path in (where / "trace").glob("steps-*.json"):
            events += json.loads(path.read_text())["traceEvents"]
        return (where / "state.safetensors").read_bytes(), [e for e in events if e["ph"] == "X"]

    def test_overlap_changes_no_bits(self):
        for flags in (("--transport", "tcp"), ("--transport", "tcp", "--device", "opaque:4")):
            with self.subTest(flags=flags), folder() as where:
                never, _ = self.train(where / "never", "never", *flags)
                overlapped, events = self.train(where / "by-cost", "by-cost", *flags)
                self.assertTrue(never == overlapped, "the final states differ")
                self.assertEqual({e["pid"] for e in events}, {0, 1, 2, 3})
                self.assertTrue({"kernel", "collective", "wait"} <= {e["cat"] for e in events})
                self.assertEqual({e["args"]["step"] for e in events}, set(range(3)))
                if flags == ("--transport", "tcp"):
                    self.assertTrue(self.beside(events), "no collective ran at the same time as a kernel of its device")

    @staticmethod
    def beside(events):
        sent = [e for e in events if e["tid"] == 2]
        computed = [e for e in events if e["tid"] == 0 and e["cat"] in ("kernel", "library", "copy")]
        return [(a, b) for a in sent for b in computed if a["pid"] == b["pid"]
                and a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"]]


if __name__ == "__main__":
    unittest.main()

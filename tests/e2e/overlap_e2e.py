"""Collectives that overlap computation: the results have the same bits, and the trace shows messages while a kernel
runs."""

import json
import os
import pathlib
import unittest

from harness import folder, xlad

JOB = pathlib.Path(os.environ.get("XLAD_EXAMPLES", "")) / "nano_gpt"
NOT_COMPUTED = {"phase", "step", "collective", "wait", "loop", "branch"}


@unittest.skipUnless("XLAD_EXAMPLES" in os.environ, "XLAD_EXAMPLES is not set")
class OverlapTest(unittest.TestCase):
    def train(self, where, overlap, *flags):
        where.mkdir()
        code, _, err = xlad("run", JOB, "--mesh", "dp=4", "--workers", 2, "--steps", 3, "--overlap", overlap,
                            "--trace", where / "trace.json", "--save-state", where / "state.safetensors", *flags)
        self.assertEqual(code, 0, err)
        events = json.loads((where / "trace.json").read_text())["traceEvents"]
        return (where / "state.safetensors").read_bytes(), events

    def test_overlap_changes_no_bits(self):
        for flags in (("--transport", "tcp"), ("--transport", "tcp", "--device", "opaque:4")):
            with self.subTest(flags=flags), folder() as where:
                never, blocking = self.train(where / "never", "never", *flags)
                overlapped, events = self.train(where / "by-cost", "by-cost", *flags)
                self.assertTrue(never == overlapped, "the final states differ")
                steps = [e for e in events if e["ph"] == "X" and e["cat"] == "step"]
                self.assertEqual({(e["tid"], e["name"]) for e in steps},
                                 {(device, f"step {step}") for device in range(4) for step in range(3)})
                self.assertTrue({"kernel", "collective", "wait"} <= {e["cat"] for e in events if e["ph"] == "X"})
                self.assertFalse([e for e in blocking if e["ph"] == "X" and e["cat"] == "wait"])
                self.assertEqual(self.overlapping(blocking), [])
                if flags == ("--transport", "tcp"):
                    self.assertTrue(self.overlapping(events), "no message was sent or received while a kernel ran")

    @staticmethod
    def overlapping(events):
        """Returns the messages that a device sends or receives while it computes."""
        messages = [e for e in events if e["ph"] in ("s", "f")]
        computed = [e for e in events if e["ph"] == "X" and e["cat"] not in NOT_COMPUTED]
        return [m for m in messages
                if any(m["pid"] == c["pid"] and m["tid"] == c["tid"] and c["ts"] < m["ts"] < c["ts"] + c["dur"]
                       for c in computed)]


if __name__ == "__main__":
    unittest.main()

"""xlad trace: instructions, collectives and messages of all ranks on one clock, also if the clocks differ."""

import json
import os
import unittest

from harness import OWN_EXAMPLES, cluster, folder, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
SKEWS = ((3000, 50), (-3000, -50), (0, 0), (3000, -50))  # Milliseconds and millionths, by worker.


def spans_of(timeline, category):
    return [event for event in timeline["traceEvents"] if event["ph"] == "X" and event["cat"] == category]


class Trace(unittest.TestCase):
    def trace(self, address, job, c.where):
        code, out, err = xlad("trace", job, "--coordinator", address, "-o", where / "trace.json")
        self.assertEqual(code, 0, out + err)
        return json.loads((where / "trace.json").read_text())

    def check_messages(self, timeline):
        """Every receive follows its send by at least -1 ms; returns the number of messages."""
        sent, received = {}, {}
        for event in timeline["traceEvents"]:
            if event["ph"] == "s":
                self.assertNotIn(event["id"], sent, "two messages have one id")
                sent[event["id"]] = event
            elif event["ph"] == "f":
                self.assertNotIn(event["id"], received, "two messages have one id")
                received[event["id"]] = event
        self.assertEqual(sent.keys(), received.keys())
        for key, event in sent.items():
            self.assertGreaterEqual(received[key]["ts"] - event["ts"], -1000, f"message {key} goes back in time")
            self.assertNotEqual((event["pid"], event["tid"]), (received[key]["pid"], received[key]["tid"]))
        return len(sent)

    def check_collectives(self, timeline, devices):
        """No device leaves an all-reduce of all devices before the last one has entered it."""
        steps = {}  # (pid, tid): [(begin, end, step)]
        for span in spans_of(timeline, "step"):
            steps.setdefault((span["pid"], span["tid"]), []).append(
                (span["ts"], span["ts"] + span["dur"], int(span["name"].split()[1])))
        self.assertEqual(len(steps), devices)
        meetings = {}
        for place, own in steps.items():
            count = {}
            for span in spans_of(timeline, "collective"):
                if (span["pid"], span["tid"]) != place or f"over {devices} ranks" not in span["args"]["collective"]:
                    continue
                step = next(s for begin, end, s in own if begin <= span["ts"] <= end)
                number = count[step, span["name"]] = count.get((step, span["name"]), 0) + 1
                meetings.setdefault((step, span["name"], number), []).append((span["ts"], span["ts"] + span["dur"]))
        self.assertGreater(len(meetings), 10)
        for key, spans in meetings.items():
            self.assertEqual(len(spans), devices, key)
            self.assertLessEqual(max(begin for begin, _ in spans) - min(end for _, end in spans), 1000, key)

    def test_clocks_that_differ_become_one(self):
        for transport in ("auto", "tcp"):
            with self.subTest(transport=transport), cluster(0, 2) as c:
                for w, (offset_ms, ppm) in enumerate(SKEWS):
                    c.start_worker(f"w{w}", "--devices", 2, "--transport", transport,
                                   f"--test-clock-offset-ms={offset_ms}", f"--test-clock-ppm={ppm}")
                wait_for(lambda: len(c.status()["workers"]) == len(SKEWS), "the workers to register")
                job = c.submit(JOB, "--mesh", "dp=8", "--steps", 60)
                wait_for(lambda: c.job(job)["state"] == "SUCCEEDED", "the job to end")
                timeline = self.trace(c, job)
                self.check_collectives(timeline, 8)
                messages = self.check_messages(timeline)
                if transport == "tcp":
                    self.assertGreater(messages, 100)
                self.assertGreater(len(spans_of(timeline, "kernel")), 100)
                traced = {span["name"] for span in spans_of(timeline, "step")}
                self.assertTrue({f"step {s}" for s in range(16)} <= traced, traced)
                self.assertLess(len(traced), 60)
                # The steps lie in the phase in which they ran, by the coordinator's own clock.
                run = next(span for span in spans_of(timeline, "phase") if span["name"] == "run, attempt 1")
                for span in spans_of(timeline, "step"):
                    self.assertGreater(span["ts"], run["ts"] - 50_000)
                    self.assertLess(span["ts"] + span["dur"], run["ts"] + run["dur"] + 50_000)

    def test_a_running_job_and_one_that_failed(self):
        with cluster(2, 1) as c:
            job = c.submit(JOB, "--mesh", "dp=2", "--steps", 1_000_000)
            wait_for(lambda: c.job(job)["step"] >= 16, "the first steps")

            def first_steps():
                timeline = self.trace(c, job)
                return {span["tid"] for span in spans_of(timeline, "step")} == {0, 1} and timeline

            timeline = wait_for(first_steps, "the steps of both devices to be in the trace")
            self.assertEqual(timeline["otherData"]["later_steps_not_kept"], False)
            processes = {e["args"]["name"] for e in timeline["traceEvents"] if e["name"] == "process_name"}
            for name, process in c.workers.items():
                self.assertTrue(any(text.startswith(f"{name} (") for text in processes), processes)
            self.assertEqual(xlad("cancel", job, "--coordinator", c.address)[0], 0)
            self.assertTrue(spans_of(self.trace(c, job), "kernel"))

    def test_errors(self):
        with cluster(1, 1) as c:
            code, _, err = xlad("trace", "job-nothing", "--coordinator", c.address)
            self.assertEqual(code, 1)
            self.assertIn("job-nothing", err)
            code, _, err = xlad("trace", "job-1", "-o", c.where / "no/such/folder/trace.json")
            self.assertEqual(code, 2)

    def test_run_writes_it(self):
        with folder() as where:
            code, _, err = xlad("run", JOB, "--mesh", "dp=2", "--workers", 2, "--steps", 4, "--trace", where / "t.json")
            self.assertEqual(code, 0, err)
            timeline = json.loads((where / "t.json").read_text())
            self.assertEqual(len(spans_of(timeline, "step")), 8)
            self.assertTrue(os.path.getsize(where / "t.json"))


if __name__ == "__main__":
    unittest.main()

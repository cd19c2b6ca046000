"""xlad trace: instructions, collectives and messages of all ranks on one clock, even if the clocks of the workers
differ."""

import copy
import json
import unittest

import perfetto
from harness import OWN_EXAMPLES, cluster, folder, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
# The offset in milliseconds and the drift in millionths of the clock, by worker.
SKEWS = ((3000, 50), (-3000, -50), (0, 0), (3000, -50))


def spans_of(timeline, category):
    return [event for event in timeline["traceEvents"] if event["ph"] == "X" and event["cat"] == category]


class Trace(unittest.TestCase):
    def trace(self, made, job):
        path = made.where / "trace.json"
        code, out, err = xlad("trace", job, "--coordinator", made.address, "-o", path)
        self.assertEqual(code, 0, out + err)
        timeline = json.loads(path.read_text())
        self.assertEqual(perfetto.problems(timeline), [])
        return timeline

    def check_messages(self, timeline):
        """Checks that no message is received more than 1 ms before it is sent. Returns the number of messages."""
        ends = {"s": {}, "f": {}}
        for event in timeline["traceEvents"]:
            if event["ph"] in ends:
                self.assertNotIn(event["id"], ends[event["ph"]], "two messages have one id")
                ends[event["ph"]][event["id"]] = event
        self.assertEqual(ends["s"].keys(), ends["f"].keys())
        for key, sent in ends["s"].items():
            received = ends["f"][key]
            self.assertGreaterEqual(received["ts"] - sent["ts"], -1000, f"message {key} is received before it is sent")
            self.assertNotEqual((sent["pid"], sent["tid"]), (received["pid"], received["tid"]))
        return len(ends["s"])

    def check_collectives(self, timeline, devices):
        """Checks that no device leaves a collective of all devices more than 1 ms before the last one enters it."""
        steps = {}  # By thread: the steps with their beginnings and ends.
        for span in spans_of(timeline, "step"):
            number = int(span["name"].split()[1])
            steps.setdefault((span["pid"], span["tid"]), []).append((span["ts"], span["ts"] + span["dur"], number))
        self.assertEqual(len(steps), devices)
        meetings = {}
        for thread, own in steps.items():
            count = {}
            for span in spans_of(timeline, "collective"):
                if (span["pid"], span["tid"]) != thread or f"over {devices} ranks" not in span["args"]["collective"]:
                    continue
                step = next(number for begin, end, number in own if begin <= span["ts"] <= end)
                count[step, span["name"]] = count.get((step, span["name"]), 0) + 1
                meeting = meetings.setdefault((step, span["name"], count[step, span["name"]]), [])
                meeting.append((span["ts"], span["ts"] + span["dur"]))
        self.assertGreater(len(meetings), 10)
        for key, spans in meetings.items():
            self.assertEqual(len(spans), devices, key)
            self.assertLessEqual(max(begin for begin, _ in spans) - min(end for _, end in spans), 1000, key)

    def check_skewed(self, transport):
        with cluster(0, 2) as made:
            for w, (offset_ms, ppm) in enumerate(SKEWS):
                made.start_worker(f"w{w}", "--devices", 2, "--transport", transport,
                                  f"--test-clock-offset-ms={offset_ms}", f"--test-clock-ppm={ppm}")
            wait_for(lambda: len(made.status()["workers"]) == len(SKEWS), "the workers to register")
            job = made.submit(JOB, "--mesh", "dp=8", "--steps", 60)
            wait_for(lambda: made.job(job)["state"] == "SUCCEEDED", "the job to end")
            timeline = self.trace(made, job)
        if transport != "tcp":  # Collectives that use messages overlap computation: an instruction only starts them.
            self.check_collectives(timeline, 8)
        self.assertGreater(len(spans_of(timeline, "kernel")), 100)
        traced = {span["name"] for span in spans_of(timeline, "step")}
        self.assertTrue({f"step {step}" for step in range(16)} <= traced, traced)
        self.assertLess(len(traced), 60)
        # The steps are inside the phase in which they ran, by the coordinator's clock.
        run = next(span for span in spans_of(timeline, "phase") if span["name"] == "run, attempt 1")
        for span in spans_of(timeline, "step"):
            self.assertGreater(span["ts"], run["ts"] - 50_000)
            self.assertLess(span["ts"] + span["dur"], run["ts"] + run["dur"] + 50_000)
        return self.check_messages(timeline)

    def test_different_clocks_are_aligned(self):
        self.check_skewed("auto")

    def test_messages_arrive_after_they_were_sent(self):
        self.assertGreater(self.check_skewed("tcp"), 100)

    def test_a_running_job_and_one_that_was_canceled(self):
        with cluster(2, 1) as made:
            job = made.submit(JOB, "--mesh", "dp=2", "--steps", 1_000_000)
            wait_for(lambda: made.job(job)["step"] >= 16, "the first steps")

            def steps_of_both():
                timeline = self.trace(made, job)
                return {span["tid"] for span in spans_of(timeline, "step")} == {0, 1} and timeline

            timeline = wait_for(steps_of_both, "the steps of both devices to be in the trace")
            self.assertEqual(timeline["otherData"]["later_steps_not_kept"], False)
            processes = {e["args"]["name"] for e in timeline["traceEvents"] if e["name"] == "process_name"}
            for name in made.workers:
                self.assertTrue(any(text.startswith(f"{name} (") for text in processes), processes)
            self.assertEqual(xlad("cancel", job, "--coordinator", made.address)[0], 0)
            self.assertTrue(spans_of(self.trace(made, job), "kernel"))

    def test_errors(self):
        with cluster(1, 1) as made:
            code, _, err = xlad("trace", "job-nothing", "--coordinator", made.address)
            self.assertEqual(code, 1)
            self.assertIn("job-nothing", err)
            code, _, err = xlad("trace", "job-1", "-o", made.where / "no/such/folder/trace.json")
            self.assertEqual(code, 2)

    def test_run_writes_the_trace(self):
        with folder() as where:
            code, _, err = xlad("run", JOB, "--mesh", "dp=2", "--workers", 2, "--steps", 4, "--trace", where / "t.json")
            self.assertEqual(code, 0, err)
            timeline = json.loads((where / "t.json").read_text())
            self.assertEqual(perfetto.problems(timeline), [])
            self.assertEqual(len(spans_of(timeline, "step")), 8)


class Rules(unittest.TestCase):
    """perfetto.problems finds each kind of event that the importer drops."""

    def timeline(self):
        events = [{"ph": "M", "name": "process_name", "pid": 2, "tid": 0, "args": {"name": "w0"}}]
        for tid in (0, 1):
            events += [
                {"ph": "M", "name": "thread_name", "pid": 2, "tid": tid, "args": {"name": f"device {tid}"}},
                {"ph": "X", "name": "step 0", "cat": "step", "pid": 2, "tid": tid, "ts": 0, "dur": 10.5},
                {"ph": "X", "name": "dot", "cat": "kernel", "pid": 2, "tid": tid, "ts": 0, "dur": 4.25},
                {"ph": "X", "name": "add", "cat": "kernel", "pid": 2, "tid": tid, "ts": 4.25, "dur": 6.25},
                {"ph": "sf"[tid], "bp": "e", "name": "message", "cat": "message", "id": "0x1", "pid": 2, "tid": tid,
                 "ts": 5}]
        return {"displayTimeUnit": "ms", "traceEvents": events}

    def test_each_rule(self):
        self.assertEqual(perfetto.problems(self.timeline()), [])
        changes = [("found no list", lambda e: None), ("names of", lambda e: e.append(copy.copy(e[0]))),
                   ("one of the phases", lambda e: e[2].update(ph="B")),
                   ("found ts '0'", lambda e: e[2].update(ts="0")),
                   ("found tid None", lambda e: e[3].pop("tid")), ("found dur -1", lambda e: e[4].update(dur=-1)),
                   ("found metadata", lambda e: e[1].update(args={})), ("no thread_name", lambda e: e.pop(1)),
                   ("no process_name", lambda e: e.pop(0)), ("found add .* ends after", lambda e: e[4].update(dur=6.5)),
                   ("found step 0 .* ends after", lambda e: e.insert(2, e.pop(3))),
                   ("which is in no span", lambda e: e[5].update(ts=11)), ("expected e", lambda e: e[10].pop("bp")),
                   ("with one end", lambda e: e[10].update(id="0x2")), ("with one end", lambda e: e.pop(5)),
                   ("2 arrows", lambda e: e.extend([e[5], e[10]]))]
        for words, change in changes:
            timeline = self.timeline()
            change(timeline["traceEvents"])
            if words == "found no list":
                del timeline["traceEvents"]
            with self.subTest(words):
                self.assertRegex("\n".join(perfetto.problems(timeline)), words)


if __name__ == "__main__":
    unittest.main()

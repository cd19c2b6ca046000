"""Each attempt runs in a process of its own. Tests kill this process or its daemon, run endless loops, and exceed
memory limits."""

import json
import math
import os
import pathlib
import shutil
import signal
import socket
import struct
import unittest

from grid import attempts, busiest, children, cpu_seconds
from harness import OWN_EXAMPLES, XLAD, Process, cluster, folder, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
LONG = ("--steps", "1000000")


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def name_of(pid):
    """Returns the name of a process in ps and top, or None if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None


def running_attempt(worker):
    """Returns the process of the worker's attempt, which must train until it is stopped. The process that waits for the
    next attempt computes only while it starts."""
    def found():
        times = {pid: cpu_seconds(pid) for pid in attempts(worker)}
        pid = max(times, key=times.get, default=None)
        others = [seconds for other, seconds in times.items() if other != pid]
        return pid is not None and times[pid] > max(others, default=0) + 0.2 and pid

    return wait_for(found, "a process that computes more than the others")


def job_directory(where, hlo, parameter):
    """Writes a job with one step program for one device. The program has one parameter of this shape, which its
    result feeds."""
    where.mkdir()
    (where / "step.single.hlo").write_text(hlo)
    numbers = bytes(4 * math.prod(parameter))
    name = {"p": {"dtype": "F32", "shape": list(parameter), "data_offsets": [0, len(numbers)]}}
    header = json.dumps(name).encode()
    (where / "state.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + numbers)
    shape = f"f32[{','.join(map(str, parameter))}]"
    manifest = {
        "name": where.name,
        "parameters": [{"index": 0, "name": "p", "shape": shape, "kind": "state"}],
        "results": [{"index": 0, "name": "p", "shape": shape, "kind": "state", "feeds": 0}],
        "steps": 3,
        "meshes": [{"name": "single", "axes": {}, "devices": 1, "files": ["step.single.hlo"]}],
    }
    (where / "manifest.json").write_text(json.dumps(manifest))
    return where


ENDLESS = """HloModule endless
condition {
  s = f32[] parameter(0)
  zero = f32[] constant(0)
  ROOT go_on = pred[] compare(s, zero), direction=GE
}
body {
  t = f32[] parameter(0)
  one = f32[] constant(1)
  ROOT next = f32[] maximum(t, one)
}
ENTRY main {
  p = f32[] parameter(0)
  ROOT w = f32[] while(p), condition=condition, body=body
}
"""

LARGE = """HloModule large
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  p = f32[16384] parameter(0)
  x = f32[16384,16384] broadcast(p), dimensions={0}
  y = f32[16384,16384] sort(x), dimensions={1}, to_apply=less
  zero = f32[] constant(0)
  ROOT r = f32[16384] reduce(y, zero), dimensions={1}, to_apply=add
}
""".replace("add {", "less {\n  u = f32[] parameter(0)\n  v = f32[] parameter(1)\n"
            "  ROOT l = pred[] compare(u, v), direction=LT\n}\nadd {", 1)


class Attempts(unittest.TestCase):
    def test_a_killed_process_ends_only_its_attempt(self):
        with cluster(workers=2, devices=1) as made:
            job_id = made.submit(JOB, "--mesh", "dp=2", "--attempts", "1", *LONG)
            made.wait_for_steps(job_id)
            workers = {name: worker.pid for name, worker in made.workers.items()}
            victim = running_attempt(made.workers["w1"])
            os.kill(victim, signal.SIGKILL)
            job = wait_for(lambda: (j := made.job(job_id))["state"] == "FAILED" and j, "the job's end")
            # The other worker may have reported the loss before this one.
            ended = f"the process of the attempt (pid {victim}) ended: signal 9 (Killed)"
            wait_for(lambda: ended in made.workers["w1"].log(), "the end of the process in the log of its worker")
            self.assertIn("w1", job["reason"])
            # Checks that the daemons still run, by running another job.
            self.assertEqual({name: worker.pid for name, worker in made.workers.items()}, workers)
            again = made.submit(JOB, "--mesh", "dp=2", "--steps", "20")
            wait_for(lambda: made.job(again)["state"] == "SUCCEEDED", "the next job")

    def test_a_crash_is_reported_with_its_signal(self):
        with cluster(workers=1, devices=1) as made:
            job_id = made.submit(JOB, "--attempts", "1", *LONG)
            made.wait_for_steps(job_id)
            os.kill(running_attempt(made.workers["w0"]), signal.SIGSEGV)
            job = wait_for(lambda: (j := made.job(job_id))["state"] == "FAILED" and j, "the job's end")
            self.assertIn("signal 11 (Segmentation fault)", job["reason"])

    def test_attempts_end_with_their_daemon(self):
        with cluster(workers=1, devices=1) as made:
            job_id = made.submit(JOB, *LONG)
            made.wait_for_steps(job_id)
            pids = wait_for(lambda: len(attempts(made.workers["w0"])) == 2 and attempts(made.workers["w0"]),
                            "a process that runs and one that is ready")
            made.workers["w0"].kill()
            wait_for(lambda: not any(is_alive(pid) for pid in pids), "the attempts to end")

    def test_attempts_and_their_daemon_are_killed_at_once(self):
        with cluster(workers=1, devices=1) as made:
            job_id = made.submit(JOB, "--attempts", "1", *LONG)
            made.wait_for_steps(job_id)
            pids = attempts(made.workers["w0"])
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            made.workers["w0"].kill()
            wait_for(lambda: not any(is_alive(pid) for pid in pids), "the attempts to end")
            made.start_worker("w0")
            again = made.submit(JOB, "--steps", "20")
            wait_for(lambda: made.job(again)["state"] == "SUCCEEDED", "the next job")

    def test_a_process_that_waits_for_its_launch_is_replaced(self):
        with cluster(workers=1, devices=1) as made:
            idle = wait_for(lambda: attempts(made.workers["w0"]), "the idle process")[0]
            os.kill(idle, signal.SIGKILL)
            job_id = made.submit(JOB, "--steps", "20")
            wait_for(lambda: made.job(job_id)["state"] == "SUCCEEDED", "the job")

    def test_a_drained_worker_says_whether_its_work_continues_elsewhere(self):
        with cluster(workers=2, devices=1) as made:
            made.wait_for_workers(2)
            job_id = made.submit(JOB, *LONG)
            made.wait_for_steps(job_id)
            busy = made.job(job_id)["workers"][0]["id"]
            idle = "w0" if busy == "w1" else "w1"
            self.assertEqual(made.workers[idle].terminate(), 0)
            self.assertEqual(made.workers[busy].terminate(), 75)

    def test_daemons_start_processes_of_their_own_build_after_an_upgrade(self):
        with folder() as where:
            program = where / "xlad"
            shutil.copy2(XLAD, program)
            with cluster(1, 1, program) as made:
                other = where / "other"
                other.write_text("#!/bin/sh\nexit 9\n")
                other.chmod(0o700)
                other.rename(program)
                for steps in (3, 4):  # The process of the first attempt was started before the upgrade.
                    code, _, err = xlad("submit", JOB, "--steps", steps, "--wait", "--coordinator", made.address)
                    self.assertEqual(code, 0, err)
                wait_for(lambda: "xlad" in map(name_of, attempts(made.workers["w0"])), "a process with the name xlad")

    def test_up_replaces_a_killed_worker(self):
        with folder() as where:
            up = Process(where / "up.log", "up", "--listen", "127.0.0.1:0", "--data", where / "data", "--workers", 1)
            try:
                first = wait_for(lambda: [p for p, line in children(up.pid).items() if b"worker" in line], "the worker")
                os.kill(first[0], signal.SIGKILL)
                wait_for(lambda: [p for p, line in children(up.pid).items() if b"worker" in line and p != first[0]],
                         "its replacement")
                self.assertIn("signal 9", up.log())
                self.assertEqual(up.terminate(), 0)
            finally:
                up.close()

    def test_an_endless_loop_can_be_canceled(self):
        with cluster(workers=1, devices=1) as made:
            endless = job_directory(made.where / "endless", ENDLESS, ())
            job_id = made.submit(endless)
            wait_for(lambda: made.job(job_id)["state"] == "RUNNING", "the job to run")
            pid = wait_for(lambda: (p := busiest(made.workers["w0"])) and cpu_seconds(p) > 0.5 and p, "the loop")
            code, _, err = xlad("cancel", job_id, "--coordinator", made.address)
            self.assertEqual(code, 0, err)
            wait_for(lambda: made.job(job_id)["state"] == "CANCELLED", "the job's end")
            wait_for(lambda: not is_alive(pid), "the loop's end")
            job_id = made.submit(JOB, "--steps", "20")
            wait_for(lambda: made.job(job_id)["state"] == "SUCCEEDED", "the next job")

    def test_sigterm_of_a_worker_with_an_endless_loop(self):
        with cluster(workers=1, devices=1) as made:
            made.start_worker("short", "--devices", "1", "--grace-ms", "500")
            made.workers["w0"].terminate()
            job_id = made.submit(job_directory(made.where / "endless", ENDLESS, ()))
            wait_for(lambda: made.job(job_id)["state"] == "RUNNING", "the job to run")
            wait_for(lambda: (p := busiest(made.workers["short"])) and cpu_seconds(p) > 0.5, "the loop")
            pids = attempts(made.workers["short"])
            self.assertEqual(made.workers["short"].terminate(), 1, "the grace period is over")
            wait_for(lambda: not any(is_alive(pid) for pid in pids), "the loop's end")

    def test_errors_of_the_memory_limit_name_the_largest_values(self):
        with cluster(workers=0, devices=1) as made:
            made.start_worker("w0", "--devices", "1", "--memory-limit", "512MB")
            large = job_directory(made.where / "large", LARGE, (16384,))
            job_id = made.submit(large, "--attempts", "1")
            job = wait_for(lambda: (j := made.job(job_id))["state"] == "FAILED" and j, "the job's end")
            self.assertRegex(job["reason"], r"the largest values: .*(x|sort)[^,]* \(\w+, 1.07 GB\)")
            self.assertRegex(job["reason"], r"the program needs \d+ bytes per device")
            job_id = made.submit(JOB, "--steps", "20")
            wait_for(lambda: made.job(job_id)["state"] == "SUCCEEDED", "the next job")

    def test_unknown_clients_on_the_data_port(self):
        with cluster(workers=2, devices=1) as made:
            first = wait_for(lambda: (log := made.workers["w1"].log()) and "\n" in log and log.splitlines()[0],
                             "the worker to start")
            port = json.loads(first)["data"].rsplit(":", 1)
            idle = [socket.create_connection((port[0], int(port[1])), timeout=30) for _ in range(1000)]
            for i, connection in enumerate(idle[:300]):
                connection.sendall(os.urandom(i))
            try:
                job_id = made.submit(JOB, "--mesh", "dp=2", "--steps", "20")
                wait_for(lambda: made.job(job_id)["state"] == "SUCCEEDED", "the job")
            finally:
                for connection in idle:
                    connection.close()


def replicated_job(where, rows):
    """Writes a job whose state is one matrix of 1024 columns that is replicated on 8 devices."""
    shape = f"f32[{rows},1024]"
    where.mkdir()
    (where / "step.hlo").write_text(f"""HloModule replicated, frontend_attributes={{xla.sdy.meshes={{mesh = \
#sdy.mesh<["dp"=8]>}}}}

ENTRY %main (p: {shape}) -> {shape} {{
  %p = {shape} parameter(0), frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, [{{}}, {{}}]>"}}
  ROOT %next = {shape} negate(%p)
}}
""")
    numbers = os.urandom(4 * 1024) * rows
    header = json.dumps({"p": {"dtype": "F32", "shape": [rows, 1024], "data_offsets": [0, len(numbers)]}}).encode()
    (where / "state.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + numbers)
    (where / "manifest.json").write_text(json.dumps({
        "name": "replicated", "steps": 3,
        "parameters": [{"index": 0, "name": "p", "shape": shape, "kind": "state"}],
        "results": [{"index": 0, "name": "p", "shape": shape, "kind": "state", "feeds": 0}],
        "meshes": [{"name": "dp8", "axes": {"dp": 8}, "files": ["step.hlo"]}]}))


class Cache(unittest.TestCase):
    """Workers of one host share the blobs that they have read."""

    @staticmethod
    def read_bytes(made, source):
        """Returns the number of ended attempts, and the bytes that they read from `source`, such as "this_host"."""
        lines = [line for worker in made.workers.values() for line in worker.log().splitlines() if "read blobs" in line]
        return len(lines), sum(int(json.loads(line)[f"from_{source}"]) for line in lines)

    def test_each_byte_is_fetched_once(self):
        with cluster(workers=0, devices=1) as made:
            for name in ("w0", "w1", "w2", "w3"):
                made.start_worker(name, "--devices", "1", "--cache", made.where / "cache")
            job_id = made.submit(JOB, "--mesh", "dp=4", "--steps", "20")
            wait_for(lambda: made.job(job_id)["state"] == "SUCCEEDED", "the job")
            wait_for(lambda: self.read_bytes(made, "this_host")[0] == 4, "the attempts to end")
            fetched = self.read_bytes(made, "the_coordinator")[1]
            blobs = made.where / "cache" / "blobs"
            names = {file.name for file in blobs.iterdir()}
            stored = {file.name: file.stat().st_size for file in (made.where / "data").rglob("*") if file.name in names}
            self.assertEqual(fetched, sum(stored.values()), "each blob once, and no blob twice")
            self.assertGreaterEqual(self.read_bytes(made, "this_host")[1], 3 * fetched)
            # A blob whose cached file is damaged is read again, so the result does not change.
            for file in blobs.iterdir():
                data = bytearray(file.read_bytes())
                data[-1] ^= 1
                file.write_bytes(data)
            again = made.submit(JOB, "--mesh", "dp=4", "--steps", "20")
            wait_for(lambda: made.job(again)["state"] == "SUCCEEDED", "the second job")
            self.assertEqual(made.job(again)["loss"], made.job(job_id)["loss"])
            wait_for(lambda: self.read_bytes(made, "this_host")[0] == 8, "the attempts to end")
            self.assertEqual(self.read_bytes(made, "the_coordinator")[1], 2 * fetched)

    def test_workers_with_separate_caches_read_from_each_other(self):
        with cluster(workers=0, devices=1) as made:
            for i in range(8):
                made.start_worker(f"w{i}", "--devices", "1", "--cache", made.where / f"cache{i}")
            job = made.where / "job"
            replicated_job(job, rows=4096)  # 16 MiB, replicated on all devices.
            job_id = made.submit(job, "--mesh", "dp=8", "--steps", "3")
            wait_for(lambda: made.job(job_id)["state"] == "SUCCEEDED", "the job")
            wait_for(lambda: self.read_bytes(made, "this_host")[0] == 8, "the attempts to end")
            stored = {file.name: file.stat().st_size for file in (made.where / "data").rglob("*")
                      if len(file.name) == 64}
            cached = {file.name for i in range(8) for file in (made.where / f"cache{i}" / "blobs").iterdir()}
            total = sum(size for name, size in stored.items() if name in cached)
            self.assertGreater(total, 16 << 20)
            sent = self.read_bytes(made, "the_coordinator")[1]
            passed_on = self.read_bytes(made, "other_workers")[1]
            self.assertLess(sent, 2 * total, "the coordinator sends most of it once, and not eight times")
            self.assertGreater(passed_on, 6 * total)


if __name__ == "__main__":
    unittest.main()

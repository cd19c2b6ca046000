"""Faults of hosts, which are network namespaces: hosts are killed and started again, and links are cut. Errors must
name the host or link, and training must continue."""

import json
import time
import unittest

import hosts_e2e
from harness import OWN_EXAMPLES, PATIENCE_S, REPO, folder, wait_for, xlad
from hosts_e2e import SUBNET, cannot_make_hosts, hosts

JOB = OWN_EXAMPLES / "spiral_mlp"
STEPS = 1000
ENDLESS = 1_000_000
PYTHON = REPO / "build/venv/bin/python"


@unittest.skipIf(cannot_make_hosts(), f"no hosts: {cannot_make_hosts()}")
class HostFaults(unittest.TestCase):
    start_cluster = hosts_e2e.SeveralHosts.start_cluster

    def ask(self, net, env, *args):
        code, out, err = net.run(1, *args, env=env)
        self.assertEqual(code, 0, out + err)
        return out

    def job(self, net, env, job):
        return next(row for row in json.loads(self.ask(net, env, "ps", "--format", "json")) if row["id"] == job)

    def submit(self, net, env, where, steps):
        """Starts a command that submits a job and writes its final state. Returns the job and the command when the job
        has finished 30 steps."""
        command = net.start(1, where / "submit.log", "submit", JOB, "--mesh", "dp=4", "--checkpoint-every", 20,
                            "--steps", steps, "--save-state", where / "state.safetensors", env=env)
        listed = lambda: json.loads(self.ask(net, env, "ps", "--format", "json"))
        job = wait_for(lambda: (jobs := listed()) and jobs[0]["id"], "the job to be accepted")
        wait_for(lambda: self.job(net, env, job)["step"] >= 30, "the job to run")
        return job, command

    def events(self, net, env, job, kind):
        """Returns the job's events of a kind, with the time as `unix_ns`."""
        events = json.loads(self.ask(net, env, "events", job, "--format", "json"))
        return [event for event in events if event["kind"] == kind]

    def ends(self, net, env, job):
        return self.events(net, env, job, "attempt_ended")

    def undisturbed(self, where):
        code, _, err = xlad("run", JOB, "--mesh", "dp=4", "--workers", 2, "--steps", STEPS, "--save-state",
                            where / "undisturbed.safetensors")
        self.assertEqual(code, 0, err)
        return (where / "undisturbed.safetensors").read_bytes()

    def wait_until_named(self, net, env, job, worker):
        """Waits until `xlad why`, or the event of the end of the attempt, names the worker, its host, its pid and the
        step."""
        def named():
            said = self.ask(net, env, "why", job)
            ends = [event["text"] for event in self.ends(net, env, job)]
            return next((text for text in (said, *ends) if f"worker {worker} (rank" in text), None)

        text = wait_for(named, "the worker to be named")
        for word in ("; host ", "pid ", "step "):
            self.assertIn(word, text)

    @staticmethod
    def print_time(what, event, since_ns):
        print(f"{what} named in the events {(event['unix_ns'] - since_ns) / 1e9:.2f} s after the fault", flush=True)

    def test_a_killed_process_and_a_host_that_comes_back(self):
        with folder() as where, hosts(4) as net:
            env = self.start_cluster(net, where, 3)
            job, _ = self.submit(net, env, where, ENDLESS)
            used = {worker["id"] for worker in self.job(net, env, job)["workers"]}
            victim = sorted(used)[-1]
            host = int(victim[1:])
            # This also kills all processes that the worker started, because its process namespace ends with it.
            net.processes[host - 1].kill()
            killed_ns = time.time_ns()
            self.wait_until_named(net, env, job, victim)
            event = wait_for(lambda: self.ends(net, env, job), "the attempt to end")[0]
            self.assertEqual(event["worker"], victim)
            self.print_time("a killed process", event, killed_ns)
            # Another host replaces the victim, which comes back later.
            wait_for(lambda: self.job(net, env, job)["state"] == "RUNNING", "the job to continue")
            net.start(host, where / f"again{host}.log", "worker", "--join", where / "worker.join", "--listen",
                      f"{SUBNET}.{host}", "--devices", 2, "--id", victim)
            nodes = lambda: json.loads(self.ask(net, env, "nodes", "--format", "json"))
            wait_for(lambda: any(w["id"] == victim and w["state"] == "alive" for n in nodes() for w in n["workers"]),
                     "the host to be back")
            self.ask(net, env, "cancel", job)

    def test_a_cut_link_changes_no_bits(self):
        with folder() as where, hosts(4) as net:
            env = self.start_cluster(net, where, 3)
            job, command = self.submit(net, env, where, STEPS)
            running = self.job(net, env, job)
            victim = sorted(worker["id"] for worker in running["workers"])[-1]
            host = int(victim[1:])
            net.ip("-n", net.bridge, "link", "set", f"{net.tag}v{host}", "down")
            cut_ns = time.time_ns()
            self.wait_until_named(net, env, job, victim)
            # The log and the events name the host as soon as `why` does, long before the attempt ends.
            silent = wait_for(lambda: self.events(net, env, job, "worker_silent"), "an event about the silence")[0]
            self.assertEqual(silent["worker"], victim)
            self.assertRegex(silent["text"],
                             rf"worker {victim} \(ranks [\d, ]+; host \S+, pid \d+\) is silent at step ")
            self.print_time("a silent host", silent, cut_ns)
            wait_for(lambda: self.ends(net, env, job) or self.job(net, env, job)["state"] == "SUCCEEDED",
                     "the attempt to end")
            ends = self.ends(net, env, job)
            self.assertTrue(ends, "the job ended before the link was cut: it needs more steps")
            self.assertEqual(ends[0]["worker"], victim)
            self.assertLess(silent["unix_ns"], ends[0]["unix_ns"])
            self.assertIn('"worker is suspect"', (where / "coordinator.log").read_text())
            self.print_time("the end of its attempt", ends[0], cut_ns)
            self.assertEqual(command.wait(PATIENCE_S), 0, (where / "submit.log").read_text())
            state = (where / "state.safetensors").read_bytes()
            self.assertTrue(state == self.undisturbed(where), "the final states differ")
            net.ip("-n", net.bridge, "link", "set", f"{net.tag}v{host}", "up")

    def isolate(self, net, switch):
        """Cuts the link between hosts 2 and 3, which run w2 and w3, if `switch` is "on", and restores it if `switch` is
        "off". Other hosts reach both."""
        for host in (2, 3):
            net.ip("-n", net.bridge, "link", "set", f"{net.tag}v{host}", "type", "bridge_slave", "isolated", switch)

    def assert_names_the_link(self, text):
        for word in ("worker w2 (rank", "worker w3 (rank", "; host ", "pid ", "at step ", "while both reach the"):
            self.assertIn(word, text)

    def test_two_workers_that_reach_the_coordinator_and_not_each_other(self):
        """Both hosts still send heartbeats, so only their connection shows the fault. The third host replaces one of
        them."""
        with folder() as where, hosts(4) as net:
            env = self.start_cluster(net, where, 3)
            job, command = self.submit(net, env, where, STEPS)
            used = lambda: {worker["id"] for worker in self.job(net, env, job)["workers"]}
            if used() != {"w2", "w3"}:  # The job must use the link that is cut.
                self.fail(f"the job runs on {used()}")
            self.isolate(net, "on")
            cut_ns = time.time_ns()
            event = wait_for(lambda: self.ends(net, env, job), "the attempt to end")[0]
            self.assert_names_the_link(event["text"])
            print(f"named {(event['unix_ns'] - cut_ns) / 1e9:.2f} s after the cut", flush=True)
            self.assertEqual(command.wait(PATIENCE_S), 0, (where / "submit.log").read_text())
            self.assertEqual(len(self.ends(net, env, job)), 1, "the next attempt ran on the same two workers")
            state = (where / "state.safetensors").read_bytes()
            self.assertTrue(state == self.undisturbed(where), "the final states differ")

    def test_a_link_that_is_cut_before_the_workers_connect(self):
        with folder() as where, hosts(3) as net:
            env = self.start_cluster(net, where, 2)
            self.isolate(net, "on")
            net.start(1, where / "submit.log", "submit", JOB, "--mesh", "dp=4", "--steps", ENDLESS, env=env)
            listed = lambda: json.loads(self.ask(net, env, "ps", "--format", "json"))
            job = wait_for(lambda: (jobs := listed()) and jobs[0]["id"], "the job to be accepted")
            events = lambda: json.loads(self.ask(net, env, "events", job, "--format", "json"))
            placed = lambda: next((e for e in events() if e["kind"] == "placed"), None)
            begin = wait_for(placed, "the job to be placed")
            event = wait_for(lambda: self.ends(net, env, job), "the attempt to end")[0]
            self.assert_names_the_link(event["text"])
            print(f"named {(event['unix_ns'] - begin['unix_ns']) / 1e9:.2f} s after the placement", flush=True)
            self.isolate(net, "off")
            wait_for(lambda: self.job(net, env, job)["state"] == "RUNNING", "the job to continue")
            self.ask(net, env, "cancel", job)


@unittest.skipIf(cannot_make_hosts(), f"no hosts: {cannot_make_hosts()}")
@unittest.skipUnless(PYTHON.exists(), "the Python package is not set up (scripts/setup.sh --python)")
class SessionsOnHosts(unittest.TestCase):
    start_cluster = hosts_e2e.SeveralHosts.start_cluster

    PROGRAM = """
import sys
import jax, numpy as np
from jax.sharding import PartitionSpec as P
import xlad
with xlad.connect(join=sys.argv[1]) as cluster:
    step = cluster.jit(lambda w, x: (w + 0.5 * (x @ w).sum() * x.mean(), (x @ w).sum()), mesh={"dp": 4},
                       in_shardings=(P(), P("dp", None)))
    w, x = np.ones((8, 8), np.float32), np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    for _ in range(5):
        w, y = step(w, x)
    print(float(y), np.asarray(w).sum())
    v, y2 = np.ones((8, 8), np.float32), None
    for _ in range(5):
        v, y2 = v + 0.5 * (x @ v).sum() * x.mean(), (x @ v).sum()
    np.testing.assert_allclose(np.asarray(w), v, rtol=1e-4)
    place = next(iter(cluster._sessions.values()))._place
    print("direct" if place.direct else "relayed", place._connection.address)
"""

    def test_a_session_on_two_hosts(self):
        with folder() as where, hosts(4) as net:
            env = self.start_cluster(net, where, 2)
            (where / "session.py").write_text(self.PROGRAM)
            code, _, err = xlad("token", "--data", where / "data", "--role", "submitter", "--user", "ann", "-o",
                                where / "ann.join")
            self.assertEqual(code, 0, err)
            for host in (4, 1):  # The script runs on a host without a worker, and on the coordinator's host.
                argv = [*net.argv(host, [])[:-1], PYTHON, where / "session.py", where / "ann.join"]
                code, out, err = net.run_argv(argv, {**env, "PYTHONPATH": str(REPO / "python"), "JAX_PLATFORMS": "cpu"})
                self.assertEqual(code, 0, out + err)
                self.assertIn(f"direct {SUBNET}.2:", out)


if __name__ == "__main__":
    unittest.main()

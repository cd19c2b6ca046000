"""A host in the same network that has no key attacks the ports of two hosts that train a job or serve a session. It
gets no data, it is refused, and the results keep their bits."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import hosts_e2e
from harness import OWN_EXAMPLES, PATIENCE_S, REPO, folder, wait_for, xlad
from hosts_e2e import cannot_make_hosts, hosts

JOB = OWN_EXAMPLES / "spiral_mlp"
STEPS = 3000  # They take longer than the attack, during which the job must train.
PYTHON = REPO / "build/venv/bin/python"
HERE = pathlib.Path(__file__).parent
# Calls a step until the file exists that is the second argument, and then as often again, undisturbed.
SESSION = """
import os, sys, time
import jax, numpy as np
from jax.sharding import PartitionSpec as P
import xlad

x = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
with xlad.connect(join=sys.argv[1]) as cluster:
    step = cluster.jit(lambda w, x: w - 0.01 * (x.T @ jax.numpy.tanh(x @ w)), mesh={"dp": 4},
                       in_shardings=(P(), P("dp", None)))
    def train(goes_on):
        w, count = np.ones((32, 32), np.float32), 0
        while goes_on(count):
            w, count = step(w, x), count + 1
        return np.asarray(w), count
    train(lambda count: count < 3)
    session = next(iter(cluster._sessions.values()))
    print(session.id, session._place._connection.address, flush=True)
    attacked, steps = train(lambda count: count < 50 or not os.path.exists(sys.argv[2]))
    alone, _ = train(lambda count: count < steps)
    assert attacked.tobytes() == alone.tobytes(), "the bits differ"
    print("the same bits after", steps, "steps")
"""


@unittest.skipIf(cannot_make_hosts(), f"no hosts: {cannot_make_hosts()}")
class Intruder(unittest.TestCase):
    start_cluster = hosts_e2e.SeveralHosts.start_cluster
    assert_bits_of_one_host = hosts_e2e.SeveralHosts.assert_bits_of_one_host

    def attack(self, net, job, *more):
        """Attacks all ports on which the processes of host 2 listen, and `more`, from host 4, which has no processes of
        the cluster. Returns the results by port."""
        code, out, err = net.run_argv(["ip", "netns", "exec", net.name(2), "ss", "-Htln"])
        self.assertEqual(code, 0, err)
        ports = {line.split()[3].rpartition(":")[2] for line in out.splitlines()} | set(more)
        self.assertTrue(ports, "found no port on host 2")
        argv = ["ip", "netns", "exec", net.name(4), sys.executable, HERE / "intruder.py", net.address(2), job, "w3"]
        code, out, err = net.run_argv([*map(str, argv), *sorted(ports)])
        self.assertEqual(code, 0, err)
        found = {port: [] for port in ports}
        for result in json.loads(out):
            found[str(result["port"])].append(result)
        return found

    def assert_refused(self, results):
        """A refusal has at most the bytes of a few TLS alerts or of an error of HTTP/2."""
        self.assertEqual(len(results), 7)
        for result in results:
            self.assertTrue(result["closed"], result)
            self.assertLess(result["bytes"], 100, result)

    def test_training(self):
        with folder() as where, hosts(4) as net:
            env = self.start_cluster(net, where, 2)
            command = net.start(1, where / "submit.log", "submit", JOB, "--mesh", "dp=2,tp=2", "--steps", STEPS,
                                "--curve", where / "curve.json", "--save-state", where / "state.safetensors", env=env)

            def running_after(step):
                """Returns the job if it runs and has done more than `step` steps."""
                for row in json.loads(net.run(1, "ps", "--format", "json", env=env)[1]):
                    self.assertNotIn(row["state"], ("SUCCEEDED", "FAILED", "CANCELLED"),
                                     "the job has ended, expected it to train during the attack; STEPS may be too low")
                    if row["state"] == "RUNNING" and row["step"] > step:
                        return row
                return None

            job = wait_for(lambda: running_after(20), "the job to run")
            for results in self.attack(net, job["id"]).values():
                self.assert_refused(results)
                self.assertEqual([result.get("answers", {}) for result in results if "TLS" in result["attack"]],
                                 [{}, {}], "a data port answered a handshake without the attempt's key")
            during = wait_for(lambda: running_after(job["step"]), "the job to train during the attack")
            after = wait_for(lambda: running_after(during["step"]), "the job to continue")
            self.assertEqual(after["attempt"], 1, "an attempt ended during the attack")
            self.assertEqual(command.wait(PATIENCE_S), 0, (where / "submit.log").read_text())
            log = (where / "worker2.log").read_text()
            for message in ("refused a connection", "found a connection that is not from a worker",
                            "found bytes that cannot be parsed as a hello"):
                self.assertIn(f"data port: {message}", log)
            loss = json.loads((where / "curve.json").read_text())["loss"]
            state = (where / "state.safetensors").read_bytes()
            self.assert_bits_of_one_host(where, "dp=2,tp=2", loss, state, JOB, "--workers", 2, "--steps", STEPS)

    @unittest.skipUnless(PYTHON.exists(), "the Python package is not set up (scripts/setup.sh --python)")
    def test_a_session(self):
        with folder() as where, hosts(4) as net:
            env = self.start_cluster(net, where, 2)
            self.assertEqual(xlad("token", "--data", where / "data", "--role", "submitter", "--user", "ann", "-o",
                                  where / "ann.join")[0], 0)
            script, attacked = where / "session.py", where / "attacked"
            script.write_text(SESSION)
            argv = [*net.argv(1, [])[:-1], PYTHON, script, where / "ann.join", attacked]
            with open(where / "session.log", "wb") as log:
                program = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True, env={
                    **os.environ, **env, "PYTHONPATH": str(REPO / "python"), "JAX_PLATFORMS": "cpu"})
            net.processes.append(program)
            line = program.stdout.readline()
            self.assertIn(f" {net.address(2)}:", line, (where / "session.log").read_text())
            session, session_port = line.split()[0], line.strip().rpartition(":")[2]
            found = self.attack(net, session, session_port)
            attacked.touch()
            for port, results in found.items():
                self.assert_refused(results)
                answers = next(result for result in results if result["attack"] == "TLS")["answers"]
                self.assertEqual(len(answers), 8 if port == session_port else 0, port)
                for method, answer in answers.items():
                    self.assertIn("found no key or a wrong key", answer, method)
            self.assertGreater(len(found), 1, "host 2 has no data port except the session's")
            out, _ = program.communicate(timeout=PATIENCE_S)
            self.assertEqual(program.returncode, 0, (where / "session.log").read_text())
            self.assertIn("the same bits", out)


if __name__ == "__main__":
    unittest.main()

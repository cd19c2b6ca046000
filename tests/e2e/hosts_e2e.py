"""Several hosts on one network. Each host is a network namespace of this machine with its own address and processes.

The tests need root, `ip` and `unshare`. Otherwise they are skipped with a message.
"""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import subprocess
import time
import unittest

from harness import ALL_CASES, OWN_EXAMPLES, PATIENCE_S, XLAD, expected_losses, folder, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
SHORT = (JOB, "--steps", 40)  # A difference of bits shows in the first steps.
NANO_GPT = pathlib.Path(os.environ.get("XLAD_EXAMPLES", "")) / "nano_gpt"
SUBNET = "10.231.77"
SUBNET6 = "fd77:231::"
RATE_MBIT = 400
# At least this much of nano_gpt's gradients is sent by a host in each step: half of them.
GRADIENT_BYTES = 1_600_000


class Hosts:
    """Hosts 1..n have the addresses SUBNET.1..n, or SUBNET6 and the number, on one bridge, which is in a namespace of
    its own."""

    def __init__(self, ipv6=False):
        self.ipv6 = ipv6
        self.tag = f"x{os.getpid() % 100000}"
        self.processes = []
        self.bridge = f"{self.tag}b"
        self.names = []

    def add(self, count):
        self.names.append(self.bridge)
        self.ip("netns", "add", self.bridge)
        self.ip("-n", self.bridge, "link", "add", "name", "hub", "type", "bridge")
        self.ip("-n", self.bridge, "link", "set", "hub", "up")
        for host in range(1, count + 1):
            name = self.name(host)
            self.names.append(name)
            self.ip("netns", "add", name)
            self.ip("link", "add", "name", f"{self.tag}v{host}", "netns", self.bridge, "type", "veth", "peer", "name",
                    "eth0", "netns", name)
            self.ip("-n", self.bridge, "link", "set", f"{self.tag}v{host}", "master", "hub", "up")
            # Without nodad, an IPv6 address cannot be used for a second.
            mask = ["64", "nodad"] if self.ipv6 else ["24"]
            self.ip("-n", name, "addr", "add", f"{self.address(host)}/{mask[0]}", "dev", "eth0", *mask[1:])
            self.ip("-n", name, "link", "set", "eth0", "up")
            self.ip("-n", name, "link", "set", "lo", "up")

    @staticmethod
    def ip(*args):
        done = subprocess.run(["ip", *args], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"ip {' '.join(args)}: {done.stderr}")

    def name(self, host):
        return f"{self.tag}h{host}"

    def address(self, host):
        return f"{SUBNET6}{host}" if self.ipv6 else f"{SUBNET}.{host}"

    def at(self, host, port):
        return f"[{self.address(host)}]:{port}" if self.ipv6 else f"{self.address(host)}:{port}"

    def limit(self, mbit):
        """Limits the rate at which each host sends and receives, with htb at both ends of its link."""
        for host in range(1, len(self.names)):
            for namespace, device in ((self.name(host), "eth0"), (self.bridge, f"{self.tag}v{host}")):
                for command in ("qdisc add dev DEVICE root handle 1: htb default 1",
                                f"class add dev DEVICE parent 1: classid 1:1 htb rate {mbit}mbit quantum 60000"):
                    self.tc(namespace, *command.replace("DEVICE", device).split())

    def sent(self, host):
        """Returns the number of bytes that a host with a limited rate has sent, and how often it had to wait."""
        htb = json.loads(self.tc(self.name(host), "-s", "-j", "qdisc", "show", "dev", "eth0", "root"))[0]
        return htb["bytes"], htb["overlimits"]

    def tc(self, namespace, *args):
        code, out, err = self.run_argv(["ip", "netns", "exec", namespace, "tc", *args])
        if code != 0:
            raise RuntimeError(f"tc {' '.join(args)}: {err}")
        return out

    # Each host has a process namespace of its own, so that processes of two hosts do not share memory.
    def argv(self, host, args):
        return ["ip", "netns", "exec", self.name(host), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                XLAD, *map(str, args)]

    def start(self, host, log, *args, env=None):
        with open(log, "ab") as out:
            popen = subprocess.Popen(self.argv(host, args), stdout=out, stderr=out, env={**os.environ, **(env or {})})
        self.processes.append(popen)
        return popen

    def run(self, host, *args, env=None, timeout=600):
        return self.run_argv(self.argv(host, args), env, timeout)

    @staticmethod
    def run_argv(argv, env=None, timeout=600):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})})
        return done.returncode, done.stdout, done.stderr

    def close(self):
        for popen in self.processes:
            popen.kill()
            popen.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@contextlib.contextmanager
def hosts(count, ipv6=False):
    made = Hosts(ipv6)
    try:
        made.add(count)
        yield made
    finally:
        made.close()


@functools.cache
def cannot_make_hosts(ipv6=False):
    """Returns why this machine cannot make hosts, or None if it can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    for tool in ("ip", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is missing"
    try:
        with hosts(1, ipv6=ipv6) as net:
            code, _, err = net.run_argv([*net.argv(1, [])[:-1], "true"])
    except RuntimeError as error:
        return f"this kernel or container lacks something that they need: {error}"
    return None if code == 0 else f"this kernel or container cannot start processes on them: {err}"


@unittest.skipIf(cannot_make_hosts(), f"no hosts: {cannot_make_hosts()}")
class SeveralHosts(unittest.TestCase):
    def start_cluster(self, net, where, workers, *flags):
        """Starts a coordinator on host 1, and a worker with 2 devices on each of the hosts 2 to workers + 1. Workers
        with and without --listen have the same address."""
        env = {"XDG_CONFIG_HOME": str(where / "config")}
        net.start(1, where / "coordinator.log", "coordinator", "--listen", net.at(1, 7411), "--data", where / "data",
                  env=env)
        wait_for((where / "config/xlad/join").exists, "the coordinator to write the join file of its user")
        code, _, err = xlad("token", "--data", where / "data", "--role", "worker", "-o", where / "worker.join")
        self.assertEqual(code, 0, err)
        self.assertEqual(os.stat(where / "worker.join").st_mode & 0o777, 0o600)
        for host in range(2, workers + 2):
            listen = ("--listen", net.address(host)) if host % 2 else ()
            net.start(host, where / f"worker{host}.log", "worker", "--join", where / "worker.join", *listen,
                      "--devices", 2, "--id", f"w{host}", *flags)

        def ready():
            code, out, _ = net.run(1, "nodes", "--format", "json", env=env)
            return code == 0 and sum(len(node["workers"]) for node in json.loads(out)) == workers

        wait_for(ready, "all workers to register")
        for host in range(2, workers + 2):
            self.assertIn(f'"data":"{net.at(host, 0)[:-1]}', (where / f"worker{host}.log").read_text())
        return env

    def train(self, net, where, env, mesh, job, *flags):
        code, out, err = net.run(1, "submit", job, "--mesh", mesh, "--curve", where / "curve.json", "--save-state",
                                 where / "state.safetensors", *flags, env=env)
        self.assertEqual(code, 0, out + err + "".join(p.read_text() for p in where.glob("*.log"))[-4000:])
        return json.loads((where / "curve.json").read_text())["loss"], (where / "state.safetensors").read_bytes()

    def test_hosts_train_with_the_bits_of_one_host(self):
        for workers, mesh in ((2, "dp=2,tp=2"), (4, "dp=4,tp=2")):
            with self.subTest(hosts=workers), folder() as where, hosts(workers + 1) as net:
                env = self.start_cluster(net, where, workers)
                loss, state = self.train(net, where, env, mesh, *SHORT)
                self.assert_bits_of_one_host(where, mesh, loss, state, *SHORT, "--workers", workers)

    @unittest.skipIf(cannot_make_hosts(ipv6=True), f"no hosts with IPv6: {cannot_make_hosts(ipv6=True)}")
    def test_hosts_with_ipv6_train_with_the_bits_of_one_host(self):
        with folder() as where, hosts(3, ipv6=True) as net:
            env = self.start_cluster(net, where, 2)
            loss, state = self.train(net, where, env, "dp=2,tp=2", *SHORT)
            self.assert_bits_of_one_host(where, "dp=2,tp=2", loss, state, *SHORT)
            nodes = json.loads(net.run(1, "nodes", "--format", "json", env=env)[1])
            self.assertEqual(sorted(w["id"] for node in nodes for w in node["workers"]), ["w2", "w3"])

    def assert_bits_of_one_host(self, where, mesh, loss, state, job, *flags):
        code, _, err = xlad("run", job, "--mesh", mesh, "--curve", where / "one.json", "--save-state",
                            where / "one.safetensors", *flags)
        self.assertEqual(code, 0, err)
        self.assertEqual(loss, json.loads((where / "one.json").read_text())["loss"])
        self.assertTrue(state == (where / "one.safetensors").read_bytes(), "the final states differ")

    @unittest.skipIf(not NANO_GPT.is_dir(), "XLAD_EXAMPLES is not set, or has no nano_gpt")
    @unittest.skipIf(shutil.which("tc") is None, "tc is missing")
    def test_nano_gpt_on_four_hosts_with_slow_links_follows_the_curve(self):
        """The losses are those of JAX, within the example's tolerance. The bits are those of one process."""
        steps = 120 if ALL_CASES else 20
        flags = (NANO_GPT, "--steps", steps)
        tolerance = json.loads((NANO_GPT / "manifest.json").read_text())["tolerance"]["loss_relative"]
        with folder() as where, hosts(5) as net:
            net.limit(RATE_MBIT)
            env = self.start_cluster(net, where, 4)
            before = net.sent(3)[0]
            begin = time.monotonic()
            loss, state = self.train(net, where, env, "dp=4,tp=2", *flags)
            seconds = time.monotonic() - begin
            sent, waits = net.sent(3)
            self.assertGreater(waits, 0, "the rate of the link was not limited")
            self.assertGreater(sent - before, steps * GRADIENT_BYTES, "the hosts did not exchange the gradients")
            self.assertLess(8 * (sent - before), seconds * RATE_MBIT * 1.1e6, "the link was faster than its limit")
            print(f"{steps} steps in {seconds:.1f} s, {(sent - before) / steps / 1e6:.1f} MB sent by host 3 in each",
                  flush=True)
            expected = expected_losses(NANO_GPT, "dp4_tp2")
            for step, (found, want) in enumerate(zip(loss, expected[:steps], strict=True)):
                self.assertLessEqual(abs(found - want), tolerance * abs(want), f"step {step}")
            self.assert_bits_of_one_host(where, "dp=4,tp=2", loss, state, *flags)

    def assert_no_tokens(self, data):
        """A run that has ended leaves no valid token in its data folder."""
        code, out, err = xlad("token", "--data", data, "--list", "--json")
        self.assertEqual((code, json.loads(out)), (0, []), err)
        self.assertEqual(list(data.glob("security/*.join")), [])

    def test_a_launcher_starts_one_run_on_two_hosts(self):
        mesh = ("--mesh", "dp=2,tp=2", "--steps", "5")
        with folder() as where, hosts(2) as net:
            config = where / "config"

            def start(rank, *flags):
                """Rank `rank` of 3, with the variables of mpirun: ranks 0 and 1 are on host 1, rank 2 is on host 2."""
                host, local = divmod(rank, 2)
                env = {"XDG_CONFIG_HOME": str(config), "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "3",
                       "OMPI_COMM_WORLD_LOCAL_RANK": str(local), "OMPI_COMM_WORLD_LOCAL_SIZE": str(2 - host)}
                argv = net.argv(host + 1, ("run", JOB, *mesh, *flags))
                return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **env})

            meet = where / "meet"
            meet.mkdir()
            flags = ("--meet", meet, "--listen", "eth0", "--curve", where / "curve.json", "--data", where / "data")
            ranks = [start(rank, *flags) for rank in range(3)]
            outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0, 0, 0], outputs)
            self.assertEqual(list(meet.iterdir()), [], "the folder in which the ranks met was not removed")
            self.assertFalse((config / "xlad/join").exists(), "the user's own join file was replaced")
            self.assert_no_tokens(where / "data")
            self.assertIn(f'"data":"{SUBNET}.2:', outputs[2][1], "the worker on host 2 does not listen for the others")
            self.assertIn("worker-2 (", (where / "data/coordinator.log").read_text())
            code, _, err = xlad("run", JOB, *mesh, "--workers", 3, "--curve", where / "one.json")
            self.assertEqual(code, 0, err)
            self.assertEqual(*(json.loads((where / name).read_text())["loss"] for name in ("curve.json", "one.json")))
            failing = [start(rank, *flags, "--resume", "job-99") for rank in range(3)]
            errors = [rank.communicate(timeout=PATIENCE_S)[1] for rank in failing]
            self.assertEqual([rank.returncode for rank in failing], [1, 1, 1], errors)
            self.assertIn("job-99", errors[0])
            self.assert_no_tokens(where / "data")
            alone = start(2, "--meet", meet, "--listen", "127.0.0.1")
            self.assertIn("--listen: found 127.0.0.1, expected an address", alone.communicate(timeout=PATIENCE_S)[1])
            self.assertEqual(alone.returncode, 2)
            code, _, err = xlad("run", JOB, "--meet", meet, "--listen", "10.0.0.1")
            self.assertEqual(code, 2, err)
            self.assertIn("--meet: found no launcher", err)

    @unittest.skipIf(cannot_make_hosts(ipv6=True), f"no hosts with IPv6: {cannot_make_hosts(ipv6=True)}")
    def test_an_interface_stands_for_its_address(self):
        with folder() as where, hosts(2) as net:
            name = net.name(1)
            for interface in ("six0", "none0"):
                net.ip("-n", name, "link", "add", "name", interface, "type", "bridge")
                net.ip("-n", name, "link", "set", interface, "up")
            net.ip("-n", name, "addr", "add", "fd00:77::1/64", "dev", "six0", "nodad")
            net.ip("-n", name, "addr", "add", "fd00:78::1/64", "dev", "eth0", "nodad")
            env = {"XDG_CONFIG_HOME": str(where / "config")}
            found = []
            for number, flags in enumerate((("--listen", "eth0:0"), ("--listen", "six0:0"),
                                            ("--listen", "0.0.0.0:0", "--advertise", "eth0"))):
                log = where / f"{number}.log"
                net.start(1, log, "coordinator", *flags, "--data", where / f"data{number}", env=env)
                lines = lambda: [json.loads(line) for line in log.read_text().splitlines() if "listens" in line]
                found.append(wait_for(lines, "the coordinator to listen")[0]["address"].rpartition(":")[0])
            self.assertEqual(found, [f"{SUBNET}.1", "[fd00:77::1]", f"{SUBNET}.1"])
            # If no name server answers, the host may exist, and another try may succeed. Otherwise it does not exist.
            for args, codes, reason in ((("worker", "--listen", "none0"), {2},
                                         "interface none0 is down or has no address"),
                                        (("coordinator", "--listen", "eth9:0", "--data", where / "data"), {1, 3},
                                         "cannot resolve host eth9")):
                code, _, err = net.run(1, *args, env=env)
                self.assertIn(code, codes, err)
                self.assertIn(reason, err)
                self.assertIn(f"eth0 ({SUBNET}.1), six0 (fd00:77::1)", err)

    def test_a_host_without_a_token_gets_nothing(self):
        with folder() as where, hosts(3) as net:
            self.start_cluster(net, where, 1)
            address = f"{SUBNET}.1:7411"
            nothing = {"XDG_CONFIG_HOME": str(where / "nothing")}
            for args in (("ps", "--coordinator", address), ("ps", "--coordinator", address, "--tls-ca",
                                                            where / "data/security/ca.pem")):
                code, out, err = net.run(3, *args, env=nothing)
                self.assertNotEqual(code, 0, out)
                self.assertIn("--join FILE", err)
            code, _, err = net.run(3, "worker", "--coordinator", address, "--tls-ca", where / "data/security/ca.pem",
                                   "--listen", f"{SUBNET}.3", "--id", "intruder", env=nothing)
            self.assertNotEqual(code, 0)
            self.assertIn("found no token", err)
            # A reader may read, but not change the cluster.
            reader = where / "reader.join"
            self.assertEqual(xlad("token", "--data", where / "data", "--role", "reader", "--user", "rita",
                                  "-o", reader)[0], 0)
            self.assertEqual(net.run(3, "ps", "--join", reader, env=nothing)[0], 0)
            code, _, err = net.run(3, "drain", "w2", "--join", reader, env=nothing)
            self.assertEqual(code, 1)
            self.assertIn("role reader, which may not call DrainWorker; expected operator", err)
            listed = json.loads(xlad("token", "--data", where / "data", "--list", "--format", "json")[1])
            token = next(token["id"] for token in listed if token["user"] == "rita")
            self.assertEqual(xlad("token", "--data", where / "data", "--revoke", token)[0], 0)
            wait_for(lambda: net.run(3, "ps", "--join", reader, env=nothing)[0] == 1, "the revoked token to be refused")

    @unittest.skipUnless((pathlib.Path(XLAD).parent / "libxlad_transport_ucx.so").exists(), "UCX is not installed")
    def test_ucx_between_hosts_needs_permission(self):
        for flags in ((), ("--insecure-network",)):
            with self.subTest(flags=flags), folder() as where, hosts(3) as net:
                env = self.start_cluster(net, where, 2, "--transport", "ucx", *flags)
                code, out, err = net.run(1, "submit", JOB, "--mesh", "dp=2,tp=2", "--steps", 5, "--attempts", 1,
                                         "--curve", where / "curve.json", env=env)
                text = out + err + "".join(p.read_text() for p in where.glob("*.log"))[-4000:]
                if flags:
                    self.assertEqual(code, 0, text)
                    self.assertEqual(len(json.loads((where / "curve.json").read_text())["loss"]), 5)
                else:
                    self.assertEqual(code, 1, text)
                    self.assertIn("without --insecure-network, UCX uses only this host", err)

    def test_a_collective_among_ranks_on_two_hosts(self):
        with folder() as where, hosts(2) as net:
            def bench(host, rank, *args):
                env = {"XLAD_RANK": str(rank), "XLAD_RANKS": "3", "XLAD_LOCAL_RANKS": str(3 - host)}
                argv = net.argv(host, ("bench", "all_reduce", "-b", 4, "-e", "4M", "-f", 32, "-n", 2, "--batches", 2,
                                       "--transport", "tcp", "--meet", where, "--listen", f"{SUBNET}.{host}", *args))
                return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **env})

            with Capture(where / "capture", net.bridge, f"{net.tag}v2") as seen:
                ranks = [bench(1, 0), bench(1, 1), bench(2, 2)]
                outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
                self.assertEqual([rank.returncode for rank in ranks], [0, 0, 0], outputs)
                self.assertIn("Out of bounds values : 0 OK", outputs[0][0])
                wait_for(lambda: len(seen.bytes()) > 4 << 20, "the data that crossed the network between the hosts")
            left = [path.name for path in where.iterdir() if path.name.startswith("meet-")]
            self.assertEqual(left, [], "the folder in which the ranks met was not removed")
            code, _, err = net.run(1, "bench", "all_reduce", "--transport", "tcp", "--listen", f"{SUBNET}.1")
            self.assertEqual(code, 2, err)
            self.assertIn("without a folder in which the ranks meet (--meet FOLDER)", err)
            self.assertEqual(err.count("--meet FOLDER"), 1, err)

    def test_a_third_host_reads_no_tensors(self):
        """Captures the traffic on the bridge while two hosts train. Neither the initial state of the job nor the final
        one may appear in it as plaintext."""
        with folder() as where, hosts(3) as net:
            env = self.start_cluster(net, where, 2)
            with Capture(where / "capture", net.bridge, f"{net.tag}v2") as seen:
                _, state = self.train(net, where, env, "dp=2,tp=2", *SHORT)
                # The two states are at most half of this. The rest is sent by the steps.
                capture = wait_for(lambda: len(found := seen.bytes()) > 4 * len(state) and found, "the traffic")
            for name, safetensors in (("initial", (JOB / "state.safetensors").read_bytes()), ("final", state)):
                tensors = safetensors[8 + int.from_bytes(safetensors[:8], "little"):]
                pieces = [tensors[at:at + 32] for at in range(0, len(tensors) - 32, 64)]
                pieces = [piece for piece in pieces if len(set(piece)) > 16]
                self.assertGreater(len(pieces), 10)
                for piece in pieces[::max(1, len(pieces) // 20)]:
                    self.assertFalse(piece in capture, f"a piece of the {name} state was sent as plaintext")


class Capture:
    """Captures the packets on an interface of a namespace, from a packet socket."""

    def __init__(self, path, namespace, interface):
        program = ("import socket,sys\n"
                   "s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.ntohs(3))\n"
                   "s.setsockopt(socket.SOL_SOCKET,33,1<<26)\n"  # SO_RCVBUFFORCE: above the limit of the system.
                   f"s.bind(({interface!r},0))\n"
                   "sys.stdout.buffer.write(b'ready');sys.stdout.buffer.flush()\n"
                   "while True:\n"
                   " sys.stdout.buffer.write(s.recv(65536));sys.stdout.buffer.flush()\n")
        self.file = open(path, "w+b")
        self.popen = subprocess.Popen(["ip", "netns", "exec", namespace, "python3", "-c", program], stdout=self.file)

    def __enter__(self):
        wait_for(lambda: os.path.getsize(self.file.name) > 0, "the capture to begin")
        return self

    def bytes(self):
        return pathlib.Path(self.file.name).read_bytes()

    def __exit__(self, *unused):
        self.popen.kill()
        self.popen.wait()
        self.file.close()


if __name__ == "__main__":
    unittest.main()

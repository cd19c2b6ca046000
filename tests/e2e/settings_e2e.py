"""Settings from flags, environment variables and files; launchers; the pages and commands that display a
cluster."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import unittest
import urllib.error
import urllib.request
from unittest import mock

from harness import OWN_EXAMPLES, PATIENCE_S, REPO, XLAD, Process, folder, wait_for, xlad

sys.path.append(str(REPO / "bench/dashboard"))
import first_paint  # noqa: E402  Controls the browser.

JOB = OWN_EXAMPLES / "spiral_mlp"


def dry_run(*args, **variables):
    """Runs `xlad worker --dry-run` with only these environment variables."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}
    done = subprocess.run([XLAD, "worker", "--dry-run", *map(str, args)], capture_output=True, text=True, env=env)
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else done.stderr


# What the dashboard says of two workers, one of which is 400 steps of some milliseconds behind.
LAGS = """Promise.resolve((drawMesh({state: "RUNNING", mesh: [{name: "dp", size: 2}], workers: [
    {id: "w0", host: "h", step: 500, devices: [0]}, {id: "w1", host: "h", step: 100, devices: [1]}]}, %d, []),
    document.querySelector("#lags").textContent))"""


def screen(rows, columns, *args):
    """Returns the lines that a command, which clears the screen when it redraws it, first shows on a terminal."""
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen([XLAD, *args], stdout=terminal, stderr=terminal, stdin=subprocess.DEVNULL)
    os.close(terminal)
    text = b""
    try:
        while text.count(b"\x1b[2J") < 2:
            text += os.read(control, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(control)
    return text.split(b"\x1b[2J")[1].removesuffix(b"\x1b[H").decode().splitlines()


class Settings(unittest.TestCase):
    def test_flags_come_before_variables_and_variables_before_files(self):
        with folder() as where:
            config = where / "xlad.toml"
            config.write_text('# a comment\n[worker]\ncoordinator = "file:1"\nid = "from-file"\ndevices = 3\n')
            self.assertEqual(dry_run()[1]["coordinator"], "127.0.0.1:7411")
            code, found = dry_run("--config", config)
            self.assertEqual((found["coordinator"], found["worker"]), ("file:1", "from-file"))
            code, found = dry_run(XLAD_CONFIG=str(config), XLAD_COORDINATOR="variable:2",
                                  XLAD_WORKER_ID="from-variable")
            self.assertEqual((found["coordinator"], found["worker"]), ("variable:2", "from-variable"))
            code, found = dry_run("--coordinator", "flag:3", f"--config={config}", "--id", "from-flag",
                                  XLAD_COORDINATOR="variable:2", XLAD_WORKER_ID="from-variable")
            self.assertEqual((found["coordinator"], found["worker"]), ("flag:3", "from-flag"))
            # A flag that excludes a setting of the file: --device excludes --devices.
            self.assertEqual(dry_run("--config", config, "--device", "cpu:2")[0], 0)
            # An empty variable is not set, and a variable of another command has no effect.
            self.assertEqual(dry_run(XLAD_WORKER_ID="", XLAD_UP_LISTEN="x")[0], 0)

    def test_unknown_names_and_bad_values_are_errors(self):
        with folder() as where:
            config = where / "xlad.toml"
            for text, words in (("[worker]\ndevises = 2\n", ["devises", "did you mean devices?"]),
                                ("[wroker]\ndevices = 2\n", ["[wroker]", "did you mean worker?"]),
                                ("[worker]\ndevices = x\n", ["devices"]), ("nonsense\n", ["nonsense"])):
                config.write_text(text)
                code, err = dry_run("--config", config)
                self.assertEqual(code, 2, err)
                for word in words:
                    self.assertIn(word, err)
            self.assertIn("none.toml", dry_run("--config", where / "none.toml")[1])
            for none in ("--config", "--config="):
                self.assertIn("--config without a file", dry_run(none)[1])
            self.assertNotEqual(dry_run(XLAD_WORKER_DEVICES="x")[0], 0)
        for name, value, expected in (("XLAD_LOG_LEVEL", "loud", "debug, info"), ("XLAD_LOG_FORMAT", "xml", "text or")):
            with mock.patch.dict(os.environ, {name: value}):
                code, _, err = xlad("run", JOB, "--steps", 0)
            self.assertEqual(code, 0, err)
            self.assertIn(f"found {name}={value}, expected {expected}", err)

    def test_every_flag_has_one_variable(self):
        settings = json.loads(xlad("config", "--format", "json")[1])
        self.assertGreater(len(settings), 100)
        commands = {}
        for setting in settings:
            commands.setdefault(setting["variable"], set()).add((setting["section"], setting["key"]))
        for variable, users in commands.items():
            self.assertRegex(variable, r"^XLAD_[A-Z0-9_]+$")
            keys = {key for _, key in users}
            self.assertEqual(len(keys), 1, f"{variable} belongs to several flags: {users}")
        for section, key, variable in (("worker", "devices", "XLAD_WORKER_DEVICES"), ("up", "listen", "XLAD_UP_LISTEN"),
                                       ("ps", "join", "XLAD_JOIN"), ("ckpt.ls", "coordinator", "XLAD_COORDINATOR")):
            self.assertIn((section, key), commands[variable])
        self.assertEqual(len({s["section"] for s in json.loads(xlad("config", "--of", "worker", "--json")[1])}), 1)


class Launchers(unittest.TestCase):
    def test_a_worker_prints_the_launcher_that_it_has_found(self):
        slurm = dict(SLURM_JOB_ID="12", SLURM_STEP_ID="0", SLURM_PROCID="2", SLURM_LOCALID="0", SLURM_NODEID="2",
                     SLURM_STEP_NUM_TASKS="4", SLURM_STEP_NODELIST="n[1-4]", SLURM_STEP_TASKS_PER_NODE="1(x4)")
        code, found = dry_run(**slurm)
        self.assertEqual(found, {"launcher": "Slurm", "rank": 2, "ranks": 4, "local_rank": 0, "local_ranks": 1,
                                 "first_host": "n1", "coordinator": "n1:7411", "worker": "slurm-12-2"})
        self.assertEqual(dry_run("--coordinator", "c:1", **slurm)[1]["coordinator"], "c:1")
        code, err = dry_run(RANK="0", WORLD_SIZE="8", **slurm)
        self.assertEqual(code, 1)
        self.assertIn("expected one launcher", err)


def why_no_other_user():
    """Returns why this process cannot run the command as user 65534, or None if it can."""
    if os.geteuid() != 0:
        return "only root can act as another user"
    try:
        done = subprocess.run([XLAD, "version"], capture_output=True, text=True, user=65534, group=65534)
    except OSError as error:
        return f"user 65534 cannot run {XLAD}: {error}"
    return f"user 65534 cannot run {XLAD}: {done.stderr}" if done.returncode != 0 else None


def get(address, path):
    try:
        # Variables of this machine may name a proxy, which cannot reach the cluster.
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"http://{address}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextlib.contextmanager
def up_with_pages(devices):
    """Starts a cluster of two workers with this many devices each. Yields the addresses of coordinator and pages."""
    with folder() as where:
        up = Process(where / "up.log", "up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data",
                     where / "data", "--workers", 2, "--devices", devices)
        try:
            yield wait_for(lambda: re.search(first_paint.PLACES, up.log()), "the cluster to start").groups()
        finally:
            up.terminate()
            up.close()


class Monitoring(unittest.TestCase):
    def test_pages_and_lists_of_a_cluster_that_trains(self):
        with up_with_pages(devices=1) as (address, http):
            code, out, err = xlad("submit", JOB, "--mesh", "dp=2", "--coordinator", address, "--wait")
            self.assertEqual(code, 0, err)
            job = out.split()[0]
            self.assertEqual(get(http, "/livez"), (200, "ok\n"))
            self.assertEqual(get(http, "/readyz"), (200, "ok\n"))
            # The metrics are those of the coordinator's last tick.
            wait_for(lambda: 'xlad_jobs{state="SUCCEEDED"} 1\n' in get(http, "/metrics")[1],
                     "the metrics to be updated")
            self.assertIn('xlad_devices{state="alive"} 2\n', get(http, "/metrics")[1])
            state = json.loads(get(http, "/api/state")[1])
            self.assertEqual([j["id"] for j in state["jobs"]], [job])
            self.assertEqual(len(state["workers"]["workers"]), 2)
            shown = json.loads(get(http, f"/api/job?id={job}")[1])
            losses = [m["values"][0] for m in shown["watch"]["metrics"]]
            self.assertEqual(len(losses), int(shown["watch"]["status"]["steps"]))
            self.assertIn("submitted", [e["kind"] for e in shown["log"]["events"]])
            rest = json.loads(get(http, f"/api/job?id={job}&from={len(losses) - 3}")[1])
            self.assertEqual(len(rest["watch"]["metrics"]), 3)
            page = get(http, "/")[1]
            self.assertIn("<title>xlad</title>", page)
            self.assertLess(len(page), 150 * 1024)
            self.assertNotRegex(page, r"https?://|@import|<script [^>]*src|url\(")  # No assets of other files.
            nodes = json.loads(xlad("nodes", "--coordinator", address, "--format", "json")[1])
            self.assertEqual((len(nodes), nodes[0]["devices"], len(nodes[0]["workers"])), (1, 2, 2))
            code, out, _ = xlad("top", "--once", "--coordinator", address)
            self.assertEqual(code, 0)
            self.assertIn("2 alive with 2 devices", out)
            self.assertIn("1 SUCCEEDED", out)
            with subprocess.Popen([XLAD, "top", "--coordinator", address], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as top:
                self.assertRegex(top.stdout.readline(), "^coordinator on ")  # A pipe gets no escape sequences.
                top.stdout.close()
                try:
                    self.assertEqual(top.communicate(timeout=60)[1], "")  # As with `xlad top | head`.
                    self.assertEqual(top.returncode, -signal.SIGPIPE)
                finally:
                    top.kill()
            reader, writer = socket.socketpair()
            reader.close()
            with writer:
                top = subprocess.run([XLAD, "top", "--coordinator", address], stdout=writer, stderr=subprocess.PIPE,
                                     text=True, timeout=60)
            self.assertEqual((top.returncode, top.stderr), (-signal.SIGPIPE, ""))
            with open("/dev/full", "w") as full:
                top = subprocess.run([XLAD, "top", "--coordinator", address], stdout=full, stderr=subprocess.PIPE,
                                     text=True, timeout=60)
            self.assertEqual((top.returncode, top.stderr), (1, "xlad: error: cannot write to standard output\n"))
            code, out, _ = xlad("top", "--once", "--coordinator", address, "--format", "json")
            self.assertEqual(code, 0)
            shown = json.loads(out)
            self.assertEqual((shown["serving"], shown["jobs"], shown["jobs_by_state"]),
                             (True, [], {"SUCCEEDED": 1}))
            self.assertEqual([worker["devices"] for worker in shown["workers"]], [1, 1])

    def test_the_mesh_of_the_dashboard_has_a_cell_for_each_device(self):
        if shutil.which("chromium") is None:
            self.skipTest("chromium (Debian's package of that name) is not installed")
        with folder() as where, up_with_pages(devices=8) as (address, http):
            browser = first_paint.Browser(where / "browser")
            try:
                code, _, err = xlad("submit", JOB, "--mesh", "dp=4,tp=2", "--steps", 1_000_000, "--coordinator",
                                    address)
                self.assertEqual(code, 0, err)
                with browser.page(f"http://{http}/") as (value, _):
                    value(first_paint.CELLS % 8)
                    cells = value("""Promise.resolve([...document.querySelectorAll("#grid span")].map(
                        cell => [cell.textContent, cell.title]))""")
                    rows = value("""Promise.resolve(new Set([...document.querySelectorAll("#grid span")].map(
                        cell => cell.offsetTop)).size)""")
                    text = value("""Promise.resolve(document.querySelector("#lags").textContent)""")
                    lags = [value(LAGS % step_ms) for step_ms in (1, 10)]
            finally:
                browser.close()
        self.assertEqual(rows, 4)
        self.assertEqual([int(cell.split()[0]) for cell, _ in cells], list(range(8)))
        self.assertIn("device 5 (dp 2, tp 1), ", cells[5][1])
        self.assertRegex(text, r"^8 devices of [12] workers?")
        self.assertEqual(lags, ["2 devices of 2 workers",
                                "2 devices of 2 workers; farthest behind: w1 on h, 400 steps behind (about 4 s)"])

    def test_top_fits_the_terminal(self):
        with up_with_pages(devices=1) as (address, _):
            for _ in range(6):
                code, _, err = xlad("submit", JOB, "--mesh", "dp=8", "--coordinator", address)
                self.assertEqual(code, 0, err)
            full = xlad("top", "--once", "--coordinator", address)[1].splitlines()
            self.assertEqual(len(full), 11)  # Four lines, the names of the columns, and six jobs.
            self.assertGreater(max(map(len, full)), 100)
            shown = screen(8, 70, "top", "--coordinator", address)
        self.assertEqual([line[:70] for line in full[4:5]], shown[4:5])
        self.assertEqual(len(shown), 7)
        self.assertRegex(shown[5], "^job-")
        self.assertEqual(shown[6], "... 5 more lines; xlad ps prints all jobs")
        self.assertEqual(max(map(len, shown)), 70)

    def test_promtool_accepts_the_metrics_of_a_running_job(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("promtool (Debian's package prometheus) is not installed")
        with up_with_pages(devices=1) as (address, http):
            code, _, err = xlad("submit", JOB, "--mesh", "dp=2", "--steps", 1_000_000, "--coordinator", address)
            self.assertEqual(code, 0, err)
            # The last metric of a job that appears: it needs steps.
            wait_for(lambda: "xlad_job_step_duration_seconds{" in get(http, "/metrics")[1], "the job's metrics")
            text = get(http, "/metrics")[1]
            self.assertIn("xlad_worker_silence_seconds{", text)
            done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
            bad = subprocess.run([promtool, "check", "metrics"], input=text.replace("# HELP", "# NO"),
                                 capture_output=True, text=True)
            self.assertNotEqual(bad.returncode, 0)

    def test_other_users_of_the_machine_see_nothing(self):
        if reason := why_no_other_user():
            self.skipTest(reason)
        with folder() as where:
            up = Process(where / "up.log", "up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data",
                         where / "data", "--workers", 1, "--devices", 1)
            try:
                found = wait_for(lambda: re.search(r"is up at (\S+) .*\n.*http://(\S+)/", up.log()),
                                 "the cluster to start")
                script = ("import os,socket,sys\nos.setgid(65534);os.setuid(65534)\n"
                          "host,port=sys.argv[1].split(':')\n"
                          "for path in ('/livez','/api/state','/'):\n"
                          " s=socket.socket()\n s.connect((host,int(port)))\n"
                          " s.sendall(f'GET {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n'"
                          ".encode())\n"
                          " print(s.recv(100).split()[1].decode())\n")
                done = subprocess.run(["python3", "-c", script, found[2]], capture_output=True, text=True)
                self.assertEqual(done.stdout.split(), ["200", "403", "403"], done.stderr)
                for args in (["ps"], ["status"], ["nodes"]):
                    done = subprocess.run([XLAD, *args, "--coordinator", found[1]], capture_output=True, text=True,
                                          user=65534, group=65534, env={"PATH": os.environ["PATH"]})
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertIn("found a connection of user 65534", done.stderr)
            finally:
                up.terminate()
                up.close()


if __name__ == "__main__":
    unittest.main()

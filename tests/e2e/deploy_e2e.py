"""The files of deploy/: units, manifests and the batch script, as far as they can be tested on one machine."""

import contextlib
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import unittest
import unittest.mock

from harness import OWN_EXAMPLES, REPO, XLAD, Process, cluster, folder, free_ports, wait_for, xlad

DEPLOY = REPO / "deploy"


def own_address():
    """Returns an address of this machine that is not on loopback, or None if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = probe.getsockname()[0]
        return None if found.startswith("127.") else found


class Systemd(unittest.TestCase):
    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is missing")
    def test_units_are_correct_and_hardened(self):
        with folder() as where:
            for unit in sorted((DEPLOY / "systemd").glob("*.service")):
                copy = where / unit.name
                copy.write_text(unit.read_text().replace("/usr/bin/xlad", shutil.which("true")))
                done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
                # Units of this machine may have warnings, too.
                own = [line for line in done.stderr.splitlines() if unit.name in line]
                self.assertEqual((done.returncode, own), (0, []), unit.name)
                done = subprocess.run(["systemd-analyze", "security", "--offline=true", copy], capture_output=True,
                                      text=True)
                rating = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
                self.assertTrue(rating, done.stdout + done.stderr)
                self.assertLessEqual(float(rating[1]), 1.5, unit.name)

    def test_commands_of_units_exist(self):
        for unit in sorted((DEPLOY / "systemd").glob("*.service")):
            command = re.search(r"^ExecStart=/usr/bin/xlad (\S+) (.*)$", unit.read_text(), re.MULTILINE)
            flags = re.findall(r"--[a-z-]+", command[2])
            known = xlad(command[1], "--help")[1]
            for flag in flags:
                self.assertTrue(flag == "--config" or flag in known, f"{unit.name}: {flag}")

    @unittest.skipIf(os.geteuid() != 0 or shutil.which("setpriv") is None or own_address() is None,
                     "it needs root, setpriv and an address that is not on loopback")
    def test_a_coordinator_with_its_own_user_accepts_the_tokens_that_root_issues(self):
        user = ["setpriv", "--reuid=61111", "--regid=61111", "--clear-groups", "--bounding-set=-all"]
        with folder() as where:
            where.chmod(0o755)
            data = where / "data"
            data.mkdir(mode=0o700)
            os.chown(data, 61111, 61111)
            shutil.copy(XLAD, where / "xlad")  # The user may not be able to reach the original.
            (where / "xlad").chmod(0o755)
            if subprocess.run([*user, "test", "-x", where / "xlad"]).returncode != 0:
                self.skipTest(f"other users cannot reach {where}")
            with open(where / "log", "wb") as log:
                coordinator = subprocess.Popen([*user, where / "xlad", "coordinator", "--listen", f"{own_address()}:0",
                                                "--data", data], stdout=log, stderr=log, cwd="/",
                                               env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
            try:
                join = where / "reader.join"
                issue = lambda: xlad("token", "--data", data, "--role", "reader", "-o", join)
                wait_for(lambda: coordinator.poll() is not None or issue()[0] == 0, "the coordinator to listen")
                code, out, err = xlad("status", "--join", join)
                self.assertEqual(code, 0, out + err + (where / "log").read_text())
            finally:
                coordinator.kill()
                coordinator.wait()


PYTHON = REPO / "build/venv/bin/python"
JOB_SET_SCHEMA = REPO / "tests/testdata/jobset-v1alpha2.json"
# Checks each resource of standard input against the schema of its kind. Kubernetes has no schema of JobSet, so a JobSet
# is checked against the schema of the first argument, and each of its jobs against that of a Job. Prints the kinds.
VALIDATE = """
import json, pathlib, sys, yaml, jsonschema, kubernetes_validate
schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
jsonschema.Draft7Validator.check_schema(schema)
for document in yaml.safe_load_all(sys.stdin):
    resources = [document]
    if document["kind"] == "JobSet":
        jsonschema.validate(document, schema, jsonschema.Draft7Validator)
        print("JobSet")
        resources = [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, **job["template"]}
                     for job in document["spec"]["replicatedJobs"]]
    for resource in resources:
        kubernetes_validate.validate(resource, "1.29", strict=True)
        print(resource["kind"])
"""


def cannot_validate():
    """Returns why manifests cannot be checked against the schemas of Kubernetes, or None if they can."""
    if shutil.which("kubectl") is None:
        return "kubectl is missing"
    if not PYTHON.exists():
        return "the Python package is not set up (scripts/setup.sh --python)"
    if subprocess.run([PYTHON, "-c", "import kubernetes_validate"], capture_output=True).returncode != 0:
        return "kubernetes-validate is not in build/venv (scripts/setup.sh --python)"
    return None


class Kubernetes(unittest.TestCase):
    def manifests(self):
        return "\n---\n".join(path.read_text() for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")))

    def test_variables_are_understood(self):
        known = {s["variable"] for s in json.loads(xlad("config", "--format", "json")[1])}
        known |= {"XLAD_RANKS", "XLAD_LOG_FORMAT", "XDG_CONFIG_HOME"}
        found = re.findall(r"- name: ((?:XLAD|XDG)_\w+)", self.manifests())
        self.assertGreater(len(found), 10)
        self.assertEqual(set(found) - known, set())

    def test_the_worker_is_found_as_a_rank(self):
        text = (DEPLOY / "kubernetes/workers.yaml").read_text()
        number = re.search(r"- name: XLAD_RANKS\n\s+value: \"(\d+)\"", text)[1]
        self.assertEqual(set(re.findall(r"(?:parallelism|completions): (\d+)", text)), {number})
        env = {"PATH": os.environ["PATH"], "XLAD_RANKS": number, "JOB_COMPLETION_INDEX": "3",
               "KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": "xlad-worker-0-3", "XLAD_COORDINATOR": "c:7411"}
        done = subprocess.run([XLAD, "worker", "--dry-run"], capture_output=True, text=True, env=env)
        found = json.loads(done.stdout)
        self.assertEqual((found["rank"], found["ranks"], found["worker"]), (3, int(number), "xlad-worker-0-3"))

    def test_containers_are_restricted(self):
        for name in ("coordinator.yaml", "workers.yaml"):
            text = (DEPLOY / "kubernetes" / name).read_text()
            for line in ("runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false",
                         "drop: [ALL]", "type: RuntimeDefault", "automountServiceAccountToken: false"):
                self.assertIn(line, text, name)

    @unittest.skipIf(shutil.which("kubectl") is None, "kubectl is missing")
    def test_manifests_render(self):
        done = subprocess.run(["kubectl", "kustomize", DEPLOY / "kubernetes"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        kinds = sorted(re.findall(r"^kind: (\w+)$", done.stdout, re.MULTILINE))
        self.assertEqual(kinds, ["JobSet", "Namespace", "NetworkPolicy", "NetworkPolicy", "PodDisruptionBudget",
                                 "Service", "StatefulSet"])
        self.assertEqual(len(re.findall(r"^  namespace: xlad$", done.stdout, re.MULTILINE)), len(kinds) - 1)


    def validate(self, text):
        return subprocess.run([PYTHON, "-c", VALIDATE, JOB_SET_SCHEMA], input=text, capture_output=True, text=True)

    @unittest.skipIf(cannot_validate(), f"not validated: {cannot_validate()}")
    def test_manifests_are_valid(self):
        text = subprocess.run(["kubectl", "kustomize", DEPLOY / "kubernetes"], capture_output=True, text=True).stdout
        done = self.validate(text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.split()), ["Job", "JobSet", "Namespace", "NetworkPolicy", "NetworkPolicy",
                                                       "PodDisruptionBudget", "Service", "StatefulSet"])
        for right, mistake in (("readOnlyRootFilesystem", "readOnlyRootFileSystem"),
                               ("completionMode: Indexed", "completionMode: 3"),
                               ("unhealthyPodEvictionPolicy", "unhealthyPodEviction"),
                               ("enableDNSHostnames: true", "enableDnsHostnames: true"),
                               ("enableDNSHostnames: true", "enableDNSHostnames: 1"),
                               ("maxRestarts: 10", "maxRestarts: ten"), ("failurePolicy:", "failurePolicies:"),
                               ("jobset.x-k8s.io/v1alpha2", "jobset.x-k8s.io/v1"), ("name: worker", "name: Worker")):
            wrong = text.replace(right, mistake, 1)
            self.assertNotEqual(wrong, text)
            self.assertNotEqual(self.validate(wrong).returncode, 0, f"{mistake} is not noticed")

    def documents(self):
        program = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))"
        done = subprocess.run([PYTHON, "-c", program], input=self.manifests(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def pods(self):
        """Yields the number of pods and the template of the coordinator's and of the workers' pods."""
        for document in self.documents():
            if document["kind"] == "StatefulSet":
                yield document["spec"]["replicas"], document["spec"]["template"]
            if document["kind"] == "JobSet":
                for job in document["spec"]["replicatedJobs"]:
                    spec = job["template"]["spec"]
                    yield job["replicas"] * spec["parallelism"], spec["template"]

    @unittest.skipIf(cannot_validate(), f"not parsed: {cannot_validate()}")
    def test_disruption_budgets_permit_one_eviction_at_a_time(self):
        budgets = [d["spec"] for d in self.documents() if d["kind"] == "PodDisruptionBudget"]
        self.assertEqual(len(budgets), 1)
        for budget in budgets:
            selected = [number for number, template in self.pods()
                        if budget["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()]
            self.assertEqual(len(selected), 1, "a budget must select the pods of one kind")
            self.assertGreater(selected[0], 1, "a budget of a single pod has no effect, or blocks every eviction")
            self.assertEqual(budget["minAvailable"], selected[0] - 1)
            self.assertNotIn("maxUnavailable", budget, "the pods of a Job cannot have it")
            # No worker is ready while the coordinator restarts.
            self.assertEqual(budget["unhealthyPodEvictionPolicy"], "IfHealthyBudget")

    @unittest.skipIf(cannot_validate(), f"not parsed: {cannot_validate()}")
    def test_probes_and_policies_name_ports_that_exist(self):
        for _, template in self.pods():
            for container in template["spec"]["containers"]:
                ports = {port["name"] for port in container["ports"]}
                for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                    if "exec" in container[kind]:
                        file = container[kind]["exec"]["command"][-1]
                        self.assertIn({"name": "XLAD_WORKER_READY_FILE", "value": file}, container["env"])
                        continue
                    probe = container[kind].get("httpGet") or container[kind]["tcpSocket"]
                    self.assertIn(probe["port"], ports, kind)
        policies = {d["metadata"]["name"]: d["spec"]["ingress"] for d in self.documents()
                    if d["kind"] == "NetworkPolicy"}
        sources = lambda rule: [peer["podSelector"]["matchLabels"] for peer in rule["from"] if "podSelector" in peer]
        worker, client = {"app.kubernetes.io/component": "worker"}, {"xlad.dev/client": "true"}
        # Sessions have ports that the system chooses, so no port may be named.
        self.assertEqual([(sources(rule), "ports" in rule) for rule in policies["xlad-worker"]],
                         [([worker, client], False)])
        self.assertIn([worker, client], [sources(rule) for rule in policies["xlad-coordinator"]])

    def test_a_worker_is_ready_while_it_is_registered(self):
        probe = re.search(r"readinessProbe:\n\s+exec: \{command: \[(.*)\]\}",
                          (DEPLOY / "kubernetes/workers.yaml").read_text())[1].split(", ")
        with cluster(0, 1) as made:
            file = made.where / "ready"
            command = [str(file) if word == "/tmp/xlad-ready" else word for word in probe]
            self.assertIn(str(file), command)
            is_ready = lambda: subprocess.run(command).returncode == 0
            file.touch()  # The file of an earlier process.
            made.coordinator.popen.send_signal(signal.SIGSTOP)
            try:
                made.workers["w0"] = worker = Process(made.where / "w0.log", "worker", "--coordinator", made.address,
                                                      "--id", "w0", "--ready-file", file)
                wait_for(lambda: "worker started" in worker.log(), "the worker to start")
                self.assertFalse(is_ready(), "the worker has not registered")
            finally:
                made.coordinator.popen.send_signal(signal.SIGCONT)
            wait_for(is_ready, "the worker to be ready")
            self.assertEqual([w["state"] for w in made.status()["workers"]], ["alive"])
            made.coordinator.terminate()
            wait_for(lambda: not is_ready(), "the worker to lose its coordinator")
            worker.terminate()
            self.assertFalse(file.exists())

    def test_an_idle_worker_that_is_drained_is_replaced(self):
        """An indexed Job replaces a pod only if its exit code is not 0."""
        text = (DEPLOY / "kubernetes/workers.yaml").read_text()
        ranks = re.search(r"- name: XLAD_RANKS\n\s+value: \"(\d+)\"", text)[1]
        pod = {"JOB_COMPLETION_INDEX": "3", "XLAD_RANKS": ranks, "KUBERNETES_SERVICE_HOST": "10.96.0.1",
               "HOSTNAME": "xlad-worker-0-3"}
        with cluster(0, 1) as made:
            for variables, name, code in ((pod, "xlad-worker-0-3", 75), ({}, "w0", 0)):
                port = free_ports(1)[0]
                with unittest.mock.patch.dict(os.environ, variables):
                    made.workers[name] = Process(
                        made.where / f"{name}.log", "worker", "--coordinator", made.address, "--listen",
                        f"127.0.0.1:{port}", *([] if variables else ["--id", name]))
                wait_for(lambda: any(w["id"] == name and w["state"] == "alive" for w in made.status()["workers"]),
                         f"{name} to register")
                for _ in range(3):  # The probes of the pod.
                    socket.create_connection(("127.0.0.1", port)).close()
                self.assertEqual(made.workers[name].terminate(), code, made.workers[name].log())
                self.assertNotIn("data port", made.workers[name].log(), "a probe is reported as an attack")


class Container(unittest.TestCase):
    def test_the_build_context_has_no_build_results(self):
        """`COPY . /src` must not copy a build folder: CMake refuses one that was made under another path."""
        ignored = (REPO / ".dockerignore").read_text().splitlines()
        self.assertIn("/.git", ignored)
        for pattern in (REPO / ".gitignore").read_text().splitlines():
            # In .dockerignore, a pattern without **/ only applies to the root.
            pattern = pattern.rstrip("/")
            self.assertIn(pattern if pattern.startswith("/") else f"**/{pattern}", ignored)
        def is_ignored(path):
            return any(path.startswith(f"{line[1:]}/") or path == line[1:] if line.startswith("/") else
                       any(fnmatch.fnmatch(part, line.removeprefix("**/")) for part in path.split("/"))
                       for line in ignored if line and not line.startswith("#"))

        if shutil.which("git") is None or not (REPO / ".git").exists():
            self.skipTest("the list of sources needs git and a clone")
        files = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=REPO, capture_output=True,
                               text=True, check=True).stdout.split("\0")[:-1]
        self.assertGreater(len(files), 1000)
        self.assertEqual([path for path in files if is_ignored(path)], [], "the image is built from all sources")


# Starts the command as two tasks, as srun does on two nodes. Like srun, it kills the tasks when it gets SIGTERM, and
# forwards SIGUSR1.
SRUN = """#!/bin/bash
while [ "${1#--}" != "$1" ]; do shift; done
if [ "$SRUN_CPUS_PER_TASK" != 16 ]; then
  echo "srun: found SRUN_CPUS_PER_TASK=$SRUN_CPUS_PER_TASK, expected the 16 of sbatch" >&2
  exit 1
fi
for rank in 0 1; do
  SLURM_PROCID=$rank SLURM_LOCALID=0 SLURM_NODEID=$rank SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 \\
    SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_TASKS_PER_NODE='1(x2)' "$@" &
  pids="$pids $!"
done
trap 'kill -KILL $pids' TERM
trap 'kill -USR1 $pids' USR1
highest=0
for pid in $pids; do
  while kill -0 $pid 2> /dev/null; do  # A signal ends the wait.
    wait $pid
  done
  wait $pid
  code=$?
  [ $code -le $highest ] || highest=$code
done
exit $highest
"""
# Shows the job as Slurm does, and stores its arguments.
SCONTROL = """#!/bin/bash
echo "$@" >> "$XLAD_DATA.scontrol"
echo "JobId=$SLURM_JOB_ID JobName=xlad JobState=${JOB_STATE:-RUNNING} Reason=None"
"""


@unittest.skipIf(own_address() is None, "this machine has only loopback addresses")
class Slurm(unittest.TestCase):
    def environment(self, where):
        """Returns the environment of the batch script. It has substitutes for srun and scontrol. Nothing else in the
        script needs Slurm."""
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            (where / name).write_text(text)
            (where / name).chmod(0o755)
        return {**os.environ, "PATH": f"{where}:{os.environ['PATH']}", "XLAD": XLAD, "XLAD_DATA": str(where / "data"),
                "XLAD_PORT": str(free_ports(1)[0]), "XLAD_DEVICES": "2", "SLURM_JOB_ID": "4711",
                "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "16",
                "SLURM_SUBMIT_DIR": str(where), "SLURMD_NODENAME": own_address()}

    def test_the_batch_script_saves_the_state_at_sigterm_and_exits_with_75(self):
        with folder() as where, open(where / "log", "wb") as log:
            with subprocess.Popen(["bash", DEPLOY / "slurm/xlad.sbatch", OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=4",
                                   "--steps", "1000000", "--checkpoint-every", "20"], stdout=log, stderr=log,
                                  env=self.environment(where), start_new_session=True) as batch:
                said = lambda text: text in (where / "log").read_text(errors="replace")
                try:
                    wait_for(lambda: said("checkpoint of step"), "a checkpoint")
                    batch.send_signal(signal.SIGTERM)
                    self.assertEqual(batch.wait(timeout=240), 75, (where / "log").read_text(errors="replace")[-4000:])
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(batch.pid, signal.SIGKILL)
            self.assertTrue(said("stopped because"), (where / "log").read_text(errors="replace")[-4000:])
            self.assertTrue(self.asked_to_be_requeued(where))

    def test_the_batch_script_is_requeued_if_its_workers_are_asked_to_stop(self):
        """Slurm does so before it preempts a job of a partition with a grace time. In the second case, no worker has a
        task. A user who cancels the job also causes the signal, but after the job's state has changed."""
        for mesh, words in (("dp=4", "checkpoint of step"), ("dp=8", "waits for 8 devices, the workers have 4")):
            for state in ("RUNNING", "CANCELLED"):
                def stop_workers(batch, said, words=words):
                    wait_for(lambda: said(words), words)
                    self.kill(batch, b"worker", signal.SIGTERM)

                with self.subTest(mesh=mesh, state=state), folder() as where:
                    code, text = self.exit_code(where, OWN_EXAMPLES / "spiral_mlp", "--mesh", mesh, "--steps",
                                                "1000000", "--checkpoint-every", "20", act=stop_workers,
                                                JOB_STATE=state)
                    self.assertEqual(code, 75, text)
                    self.assertIn("all workers were stopped", text)
                    self.assertEqual(self.asked_to_be_requeued(where), state == "RUNNING", text)

    def test_the_batch_script_without_a_job_is_requeued_if_it_has_open_jobs(self):
        """The job waits for more devices than the workers have, so no worker has a task. After SIGTERM to the script,
        the script is requeued only if the worker of a node is missing, which may have the other devices."""
        to_workers = lambda batch: self.kill(batch, b"worker", signal.SIGTERM)
        to_script = lambda batch: batch.send_signal(signal.SIGTERM)
        for stop, has_job, nodes, code in ((to_workers, True, "2", 75), (to_workers, False, "2", 0),
                                           (to_script, True, "3", 75), (to_script, True, "2", 0)):
            with self.subTest(has_job=has_job, nodes=nodes), folder() as where:
                def act(batch, said, stop=stop, has_job=has_job, where=where):
                    for rank in range(2):
                        wait_for(lambda rank=rank: said(f'worker registered","worker":"slurm-4711-{rank}"'), "workers")
                    if has_job:
                        join = ("--join", where / "data/config/xlad/join")
                        job = xlad("submit", OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=8", *join)[1].split()[0]
                        wait_for(lambda: "waits for 8 devices, the workers have 4" in xlad("why", job, *join)[1], job)
                    stop(batch)

                found, text = self.exit_code(where, act=act, SLURM_JOB_NUM_NODES=nodes)
                self.assertEqual((found, self.asked_to_be_requeued(where)), (code, code == 75), text)

    def test_the_batch_script_trains_and_a_requeued_one_finds_the_job(self):
        with folder() as where:
            env = self.environment(where)
            ids = []
            for _ in range(2):
                with subprocess.Popen(["bash", DEPLOY / "slurm/xlad.sbatch", OWN_EXAMPLES / "spiral_mlp", "--mesh",
                                       "dp=2,tp=2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                                      start_new_session=True) as batch:
                    try:
                        out, err = batch.communicate(timeout=600)
                    finally:
                        with contextlib.suppress(ProcessLookupError):  # All processes of the script end with the test.
                            os.killpg(batch.pid, signal.SIGKILL)
                self.assertEqual(batch.returncode, 0, err[-4000:])
                ids.append(re.search(r"job-[0-9a-f]+", out)[0])
            self.assertEqual(ids[0], ids[1])
            self.assertEqual(oct((where / "data/worker.join").stat().st_mode & 0o777), "0o600")

    def exit_code(self, where, *args, act=lambda batch, said: None, **variables):
        """Runs the batch script, and meanwhile `act`. Returns the exit code and the output."""
        env = {**self.environment(where), **variables}
        with (open(where / "log", "wb") as log,
              subprocess.Popen(["bash", DEPLOY / "slurm/xlad.sbatch", *args], stdout=log, stderr=log, env=env,
                               start_new_session=True) as batch):
            text = lambda: (where / "log").read_text(errors="replace")
            try:
                act(batch, lambda words: words in text())
                return batch.wait(timeout=240), text()[-4000:]
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(batch.pid, signal.SIGKILL)

    def test_workers_save_the_state_if_slurm_sends_sigterm_to_the_tasks_twice(self):
        """Slurm does so when it requeues the script."""
        def stop_tasks(batch, said):
            wait_for(lambda: said("checkpoint of step"), "a checkpoint")
            self.kill(batch, b"-c", signal.SIGTERM)
            # If a second signal arrives before a process handles the first one, the process gets only one.
            wait_for(lambda: said("worker drains"), "a worker to begin to stop")
            self.kill(batch, b"-c", signal.SIGTERM)

        with folder() as where:
            code, text = self.exit_code(where, OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=4", "--steps", "1000000",
                                        "--checkpoint-every", "20", act=stop_tasks, JOB_STATE="PENDING")
            self.assertEqual(code, 75, text)
            self.assertIn("srun has ended with 75", text)
            self.assertIn("stopped because", text)

    def test_a_preempted_job_continues_from_the_last_step_of_its_workers(self):
        """With a grace time, Slurm sends SIGCONT and SIGTERM to the tasks, but not to the script, whose state stays
        RUNNING. The only checkpoint is the one that the workers then write."""
        with folder() as where:
            ask = lambda *command: json.loads(xlad(*command, "--format", "json", "--join",
                                                   where / "data/config/xlad/join")[1] or "[]")
            steps = lambda: [job["step"] for job in ask("ps") if job["state"] == "RUNNING"]
            reached = []

            def preempt(batch, said):
                reached.append(wait_for(lambda: max(steps(), default=0), "the job to run"))
                for number in (signal.SIGCONT, signal.SIGTERM):
                    self.kill(batch, b"-c", number)

            def interrupt(batch, said):
                wait_for(lambda: max(steps(), default=0) > reached[0], "the job to continue")
                events = ask("events", ask("ps")[0]["id"])
                reached.append([event.get("step", 0) for event in events if event["kind"] == "placed"])
                batch.send_signal(signal.SIGTERM)

            for act in (preempt, interrupt):
                code, text = self.exit_code(where, OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=4", "--steps",
                                            "100000000", "--checkpoint-every", "100000000", act=act,
                                            XLAD_WORKER_GRACE_MS="240000")
                self.assertEqual(code, 75, text)
                self.assertTrue(self.asked_to_be_requeued(where), text)
                (where / "data.scontrol").unlink()
            before, starts = reached
            self.assertEqual(len(starts), 2, starts)
            self.assertGreaterEqual(starts[1], before)

    @staticmethod
    def asked_to_be_requeued(where):
        asked = where / "data.scontrol"
        return asked.exists() and "requeue 4711\n" in asked.read_text()

    @staticmethod
    def interrupt_after_a_checkpoint(batch, said):
        wait_for(lambda: said("checkpoint of step"), "a checkpoint")
        batch.send_signal(signal.SIGTERM)

    @staticmethod
    def kill(batch, command, signal_number=signal.SIGKILL):
        """Sends a signal to the processes of the batch script that run this command of xlad."""
        for folder_of in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder_of / "cmdline").read_bytes().split(b"\0")
                if os.getpgid(int(folder_of.name)) == batch.pid and words[1:2] == [command]:
                    os.kill(int(folder_of.name), signal_number)

    def test_the_batch_script_is_requeued_only_if_it_can_succeed(self):
        endless = (OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=4", "--steps", "1000000", "--checkpoint-every", "20")
        with folder() as where:
            code, text = self.exit_code(where, where / "none")
            self.assertEqual(code, 1, text)
        with folder() as where:
            code, text = self.exit_code(where, OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=x")
            self.assertEqual(code, 2, text)
        for command in ((), endless):
            with folder() as where:
                code, text = self.exit_code(where, *command, XLAD_DEVICES="some")
                self.assertEqual(code, 2, text)
        for killed in (b"worker", b"coordinator"):
            def kill(batch, said, killed=killed):
                wait_for(lambda: said("checkpoint of step"), "a checkpoint")
                self.kill(batch, killed)

            with self.subTest(killed), folder() as where:
                code, text = self.exit_code(where, *endless, act=kill)
                self.assertEqual(code, 75, text)
                words = {b"worker": "no worker is left (srun has ended with 137)",
                         b"coordinator": "the coordinator has ended with 137"}
                self.assertIn(words[killed], text)
                self.assertFalse(self.asked_to_be_requeued(where), "it would be requeued forever")

    def test_the_batch_script_is_requeued_if_its_coordinator_is_asked_to_stop(self):
        """Slurm does so if it signals all processes and not only the first one of a task."""
        for job, words in (((OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=8"), "waits for 8 devices, the workers have 4"),
                           ((), 'worker registered","worker":"slurm-4711-0"')):
            def stop(batch, said, words=words):
                wait_for(lambda: said(words), words)
                self.kill(batch, b"coordinator", signal.SIGTERM)

            with self.subTest(job=job), folder() as where:
                code, text = self.exit_code(where, *job, act=stop)
                self.assertEqual(code, 75, text)
                self.assertIn("the coordinator has ended with 0", text)
                self.assertTrue(self.asked_to_be_requeued(where), text)

    def test_the_batch_script_without_a_job_is_requeued_if_a_process_is_killed(self):
        for killed in (b"worker", b"coordinator"):
            def kill(batch, said, killed=killed):
                wait_for(lambda: said("slurm-4711-0") and said("slurm-4711-1"), "both workers to start")
                self.kill(batch, killed)

            with self.subTest(killed), folder() as where:
                code, text = self.exit_code(where, act=kill)
                self.assertEqual(code, 75, text)
                if killed == b"coordinator":
                    self.assertIn("the coordinator has ended with 137", text)

    def test_the_batch_script_is_not_requeued_if_its_nodes_have_too_few_devices(self):
        def interrupt(batch, said):
            wait_for(lambda: said("waits for 8 devices, the workers have 4"), "the job to wait")
            batch.send_signal(signal.SIGTERM)

        with folder() as where:
            code, text = self.exit_code(where, OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=8", act=interrupt)
            self.assertEqual(code, 1, text)
            self.assertIn("more devices than all nodes of this allocation have", text)
            # The job still waits in the data folder. It is not the job of the next script, which runs.
            code, text = self.exit_code(where, OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=4", "--steps", "1000000",
                                        "--checkpoint-every", "20", act=self.interrupt_after_a_checkpoint,
                                        SLURM_JOB_ID="4712")
            self.assertEqual(code, 75, text)

    def test_the_batch_script_without_a_job_ends_with_0_at_its_time_limit(self):
        def interrupt(batch, said):
            for rank in range(2):
                wait_for(lambda rank=rank: said(f'worker registered","worker":"slurm-4711-{rank}"'), "the workers")
            batch.send_signal(signal.SIGTERM)

        with folder() as where:
            code, text = self.exit_code(where, act=interrupt)
            self.assertEqual(code, 0, text)

    def test_the_batch_script_is_requeued_if_its_workers_do_not_stop_in_time(self):
        with folder() as where:
            code, text = self.exit_code(where, OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=4", "--steps", "1000000",
                                        "--checkpoint-every", "20", act=self.interrupt_after_a_checkpoint,
                                        XLAD_WORKER_GRACE_MS="1")
            self.assertEqual(code, 75, text)
            self.assertIn("did not stop within the grace period", text)


if __name__ == "__main__":
    unittest.main()

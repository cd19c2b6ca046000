"""`xlad bench` and `xlad run` over every transport: the same results, and errors that say what to do."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import unittest
import uuid

from harness import (ALL_CASES, OWN_EXAMPLES, PATIENCE_S, XLAD, Cluster, CommunicationTest, folder, mesh_text, one_of,
                     wait_for, xlad)

OK = re.compile(r"^# Out of bounds values\s+: 0 OK$", re.MULTILINE)
FOLDER = pathlib.Path(XLAD).parent
LAUNCHERS = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "-np"], "mpich": ["mpirun.mpich", "-np"]}

# The variables of two ranks on one host, and of the same launchers on two hosts. RANK stands for the rank.
SLURM = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_PROCID": "RANK", "SLURM_STEP_NUM_TASKS": "2"}
ONE_HOST = {
    "Slurm": SLURM | {"SLURM_LOCALID": "RANK", "SLURM_NODEID": "0", "SLURM_STEP_NODELIST": "n1",
                      "SLURM_STEP_TASKS_PER_NODE": "2"},
    "MVAPICH2": {"MV2_COMM_WORLD_RANK": "RANK", "MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_LOCAL_RANK": "RANK",
                 "MV2_COMM_WORLD_LOCAL_SIZE": "2"},
    "jsrun": {"LSB_JOBID": "12", "JSM_NAMESPACE_RANK": "RANK", "JSM_NAMESPACE_SIZE": "2",
              "JSM_NAMESPACE_LOCAL_RANK": "RANK", "JSM_NAMESPACE_LOCAL_SIZE": "2"},
    "Flux": {"FLUX_JOB_ID": "12", "FLUX_TASK_RANK": "RANK", "FLUX_JOB_SIZE": "2", "FLUX_TASK_LOCAL_ID": "RANK",
             "FLUX_JOB_NNODES": "1"},
}
SEVERAL_HOSTS = {
    "Slurm": SLURM | {"SLURM_LOCALID": "0", "SLURM_NODEID": "RANK", "SLURM_STEP_NODELIST": "n[1-2]",
                      "SLURM_STEP_TASKS_PER_NODE": "1(x2)"},
    "MVAPICH2": ONE_HOST["MVAPICH2"] | {"MV2_COMM_WORLD_LOCAL_RANK": "0", "MV2_COMM_WORLD_LOCAL_SIZE": "1"},
    "jsrun": {"LSB_JOBID": "12", "JSM_NAMESPACE_RANK": "RANK", "JSM_NAMESPACE_SIZE": "2",
              "JSM_NAMESPACE_LOCAL_RANK": "0"},
    "Flux": ONE_HOST["Flux"] | {"FLUX_TASK_LOCAL_ID": "0", "FLUX_JOB_NNODES": "2"},
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "RANK", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                 "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "12"},
    "MPICH": {"PMI_RANK": "RANK", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"},
}
LAUNCHER_VARIABLES = ("SLURM_", "MV2_", "LSB_", "JSM_", "FLUX_", "OMPI_", "PMIX_", "PMI_", "MPI_", "XLAD_RANK")


def starts_daemons_by_agent():
    """Whether mpirun is that of Open MPI 4, whose parameters plm_rsh_* name the program that starts its daemons."""
    if shutil.which("mpirun.openmpi") is None:
        return False
    version = subprocess.run(["mpirun.openmpi", "--version"], capture_output=True, text=True).stdout
    return re.search(r"\((OpenRTE|Open MPI)\) 4\.", version) is not None


CANNOT_RENAME_HOST = subprocess.run(["unshare", "--uts", "hostname", "far-away"], capture_output=True).returncode != 0


def has_plugin(name):
    return (FOLDER / f"libxlad_transport_{name}.so").exists()


def transports():
    return ["in-process", "shm", "tcp"] + (["ucx"] if has_plugin("ucx") else [])


def launchers():
    return [name for name in LAUNCHERS if has_plugin(name) and shutil.which(LAUNCHERS[name][0])]


def mpi_environment():
    return os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class BenchTest(CommunicationTest):
    def test_all_collectives_over_all_transports(self):
        collectives = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather",
                       "scatter", "sendrecv", "barrier")
        for transport, collective in one_of(3, itertools.product(transports(), collectives)):
            with self.subTest(transport=transport, collective=collective):
                code, out, err = xlad("bench", collective, "--transport", transport, "--ranks", 3, "-b", "12", "-e",
                                      "1M", "-f", "300", "--batches", 2, "-n", 1, "-w", 1)
                self.assertEqual((code, err), (0, ""), out)
                self.assertRegex(out, OK)

    def test_options_work_with_messages(self):
        for transport in transports():
            if transport == "shm":
                continue
            for options in (("-R", 1), ("--checksums",), ("--algorithm", "ring chunks=2 channels=2"),
                            ("--mode", "run-to-run")):
                with self.subTest(transport=transport, options=options):
                    code, out, err = xlad("bench", "all_reduce", "--transport", transport, "--ranks", 2, "-b", "64",
                                          "-e", "256K", "-f", "64", "--batches", 2, "-n", 2, *options)
                    self.assertEqual((code, err), (0, ""), out)
                    self.assertRegex(out, OK)

    def plans_of(self, collective, ranks):
        """Returns the names of all algorithms that can run the collective, and writes a plan for each: by size. Swing
        runs only all_reduce, so its error for another collective names the algorithms that can run it. One of them is
        checked. For all_reduce, each algorithm is checked."""
        check = lambda name: xlad("comm", "check", collective, "--ranks", ranks, "--algorithm", name)
        of_all_reduce = collective == "all_reduce"
        code, out, err = check("unknown" if of_all_reduce else "swing")
        self.assertNotEqual(code, 0, f"found that the algorithm can run {collective}, expected an error: {out}")
        self.assertIn("expected one of ", err)
        able = re.search(r"expected one of ([a-z0-9_, ]+)", err).group(1).split(", ")
        if of_all_reduce:
            able = [name for name in able if check(name)[0] == 0]
        else:
            code, out, err = check(able[len(collective) % len(able)])
            self.assertEqual(code, 0, out + err)
        path = self.where / f"plans-{collective}"
        path.write_text("".join(f"{collective} {48 << i} {name}\n" for i, name in enumerate(able)))
        return able, path

    def test_shared_memory_runs_a_plan_of_every_algorithm(self):
        collectives = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather",
                       "scatter", "collective_permute", "barrier")
        for number, collective in enumerate(collectives):
            for ranks in (3, 4) if ALL_CASES or number == 0 else (3 + number % 2,):
                able, plans = self.plans_of(collective, ranks)
                rows = self.where / "rows.json"
                with self.subTest(collective=collective, ranks=ranks, able=able):
                    if collective == "barrier":  # It has only one size.
                        for name in able:
                            code, out, err = xlad("bench", "barrier", "--ranks", ranks, "--algorithm", name, "-R", 1)
                            self.assertEqual((code, err), (0, ""), out)
                        continue
                    code, out, err = xlad("bench", collective, "--ranks", ranks, "-b", 48, "-e", 48 << len(able) - 1,
                                          "-f", 2, "--plans", plans, "-R", 1, "--batches", 2, "-n", 2, "--json", rows)
                    self.assertEqual((code, err), (0, ""), out)
                    self.assertRegex(out, OK)
                    ran = [row["algorithm"].split()[0] for row in json.loads(rows.read_text())["rows"]]
                    self.assertEqual(ran, able)

    def test_plans_that_cannot_run_are_refused_once(self):
        for options, words in ((("broadcast", "--algorithm", "swing"), "which it runs only for"),
                               (("all_reduce", "--algorithm", "mapped_windows"), "which must be registered"),
                               (("all_reduce", "--algorithm", "mapped_slots", "--transport", "tcp"),
                                "expected --transport auto or shm, or a plan that sends messages: direct, ")):
            code, _, err = xlad("bench", *options, "--ranks", 3, "-b", 48, "-e", 48)
            self.assertEqual((code, err.count("xlad: error")), (2, 1), err)
            self.assertIn(words, err)

    def test_launchers_of_mpi_start_all_transports_between_processes(self):
        for launcher in launchers():
            for transport, *algorithm in (("auto",), ("auto", "--algorithm", "ring"), ("tcp",), ("mpi",)):
                with self.subTest(launcher=launcher, transport=transport, algorithm=algorithm):
                    done = subprocess.run([*LAUNCHERS[launcher], "3", XLAD, "bench", "all_reduce", "-b", "12", "-e",
                                           "3M", "-f", "512", "--batches", "2", "-n", "2", "--transport", transport,
                                           *algorithm],
                                          capture_output=True, text=True, timeout=600, env=mpi_environment())
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertRegex(done.stdout, OK)

    def test_launchers_of_mpi_start_groups_of_some_of_the_ranks(self):
        for launcher in launchers():
            for transport in ("auto", "tcp", "mpi"):
                with self.subTest(launcher=launcher, transport=transport):
                    done = subprocess.run([*LAUNCHERS[launcher], "5", FOLDER / "example_groups", "2", transport],
                                          capture_output=True, text=True, timeout=600, env=mpi_environment())
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    expected = [f"rank {rank}: the sum of its row is {row}, of its column {column}"
                                for rank, row, column in ((0, 1, 2), (1, 1, 4), (2, 5, 2), (3, 5, 4))]
                    self.assertEqual(sorted(done.stdout.splitlines()), sorted([*expected, "rank 4 is in no group"]))

    def test_errors_name_missing_transports(self):
        code, _, err = xlad("bench", "all_reduce", "--transport", "carrier-pigeon")
        self.assertEqual(code, 2)
        for name in ("carrier-pigeon", "auto", "in-process", "shm", "tcp", "ucx", "mpi"):
            self.assertIn(name, err)
        code, _, err = xlad("bench", "all_reduce", "--transport", "mpi", "--ranks", 2)
        self.assertEqual(code, 1)
        self.assertIn("mpirun", err)
        if not has_plugin("ucx"):
            code, _, err = xlad("bench", "all_reduce", "--transport", "ucx", "--ranks", 2)
            self.assertEqual(code, 1)
            self.assertIn("libucx-dev", err)

    def start_ranks(self, launch, *options, before_rank_1=None):
        """Starts three ranks of an all_reduce. Rank 1 calls `before_rank_1` first."""
        ranks = []
        for rank in range(3):
            environment = os.environ | {"XLAD_RANK": str(rank), "XLAD_RANKS": "3", "XLAD_LAUNCH": launch}
            ranks.append(subprocess.Popen([XLAD, "bench", "all_reduce", *options], env=environment,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          preexec_fn=before_rank_1 if rank == 1 else None))
            self.addCleanup(ranks[-1].communicate)
            self.addCleanup(ranks[-1].kill)
        return ranks

    def test_a_rank_that_is_stopped_or_killed_is_named_and_the_others_continue(self):
        # Without --algorithm, a group that uses messages first measures its costs, and the death of a rank during the
        # measurement ends the benchmark.
        cases = [("shm", "")] + [(transport, "ring") for transport in transports() if transport != "in-process"]
        for transport, algorithm in cases:
            with self.subTest(transport=transport, algorithm=algorithm):
                launch = uuid.uuid4().hex
                ranks = self.start_ranks(launch, "-b", "64K", "-e", "64K", "-n", "1000", "--batches", "90000",
                                         "--transport", transport, "--shrink",
                                         *(("--algorithm", algorithm) if algorithm else ()))

                def why():
                    code, out, _ = xlad("comm", "why", launch, "--format", "json")
                    return json.loads(out) if code == 0 else None

                wait_for(lambda: (state := why()) and all(rank["finished"] > 20 for rank in state["ranks"]),
                         "the group to run")
                if algorithm and transport == "shm":
                    self.check_control_files(launch)
                ranks[1].send_signal(signal.SIGSTOP)
                verdict = lambda: (why() or {}).get("verdict", "")
                wait_for(lambda: "rank 1 " in (said := verdict()) and "is stopped" in said,
                         "the verdict of a stopped rank")
                self.assertEqual([rank.poll() for rank in ranks], [None] * 3, "a stopped rank is not dead")
                ranks[1].kill()
                for rank in (0, 2):
                    out, err = ranks[rank].communicate(timeout=PATIENCE_S)
                    self.assertRegex(err, rf"rank 1\b.*pid {ranks[1].pid}\b")
                    self.assertRegex(out, r"of 2: all_reduce finished [0-9.]+ ms after the error")

    def check_control_files(self, launch):
        # Ranks that run plans on mapped memory and plans with messages have one control file. A part of a split group
        # has another one, whose name ends with the same process id.
        files = list(self.where.glob(f"{launch}*"))
        self.assertEqual(len(files), 1, files)
        part = files[0].with_name(f"{launch}-part-0-{files[0].name.rsplit('-', 1)[1]}")
        shutil.copy(files[0], part)
        both = {files[0].name, part.name}
        _, text, _ = xlad("comm", "why", launch)
        _, out, _ = xlad("comm", "why", launch, "--format", "json")
        part.unlink()
        found = json.loads(out)
        self.assertEqual({os.path.basename(path) for path in [found["file"], *found["other_files"]]}, both)
        self.assertIn(f"another group with the same rank 0: {found['other_files'][0]}", text)

    def test_the_error_of_one_rank_ends_all_ranks(self):
        def limit():
            # Without the signal, the creation of a larger buffer is an error.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        # Rank 1 has too little memory for the second size. Without -w 0, the others wait in the operation, not in the
        # barrier.
        for warmup in ("0", "5"):
            with self.subTest(warmup=warmup):
                ranks = self.start_ranks(uuid.uuid4().hex, "-b", "64K", "-e", "4M", "-f", "64", "-R", "1", "-w", warmup,
                                         "--batches", "2", "--algorithm", "ring", before_rank_1=limit)
                errors = [rank.communicate(timeout=PATIENCE_S)[1] for rank in ranks]
                self.assertEqual([rank.returncode for rank in ranks], [1, 1, 1], errors)
                self.assertIn("File too large", errors[1])
                # The first of the others that ends names rank 1, the second may name the first.
                self.assertIn("rank 1", errors[0] + errors[2])

    def test_the_others_continue_if_a_rank_dies_while_a_plan_is_prepared(self):
        def limit():
            # The signal ends the rank when it creates memory for messages.
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        ranks = self.start_ranks(uuid.uuid4().hex, "-b", "64K", "-e", "64K", "--algorithm", "ring", "--shrink",
                                 before_rank_1=limit)
        outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
        self.assertEqual(ranks[1].returncode, -signal.SIGXFSZ, outputs[1])
        for rank in (0, 2):
            self.assertRegex(outputs[rank][0], r"of 2: all_reduce finished [0-9.]+ ms after the error", outputs)

    def test_an_error_without_a_death_is_followed_by_a_group_of_all_ranks(self):
        def limit():
            # Without the signal, the creation of memory for messages is an error, of which rank 1 tells the others.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        ranks = self.start_ranks(uuid.uuid4().hex, "-b", "64K", "-e", "64K", "--algorithm", "ring", "--shrink",
                                 "--transport", "shm", before_rank_1=limit)
        outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [1, 1, 1], outputs)
        for out, err in outputs:
            self.assertRegex(err, "device 1 .*cannot share memory", outputs)
            self.assertRegex(out, r"of 3: all_reduce finished [0-9.]+ ms after the error", outputs)


class TrainingTest(unittest.TestCase):
    """Losses are bitwise the same with every transport. XLAD_ALL_EXAMPLES=1 tests all examples in XLAD_EXAMPLES."""

    def losses(self, where, example, mesh, transport):
        curve = where / f"{transport}.json"
        command = [XLAD, "run", example, "--mesh", mesh, "--transport", transport, "--steps", "5", "--curve", curve]
        if transport == "mpi":
            command = [*LAUNCHERS["openmpi"], "2", *command]
        elif transport != "in-process":
            command += ["--workers", "2"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=mpi_environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(curve.read_text())["loss"]

    def test_examples(self):
        jobs = [(OWN_EXAMPLES / "spiral_mlp", "dp=2,tp=2")]
        if "XLAD_EXAMPLES" in os.environ and os.environ.get("XLAD_ALL_EXAMPLES"):
            for path in sorted(pathlib.Path(os.environ["XLAD_EXAMPLES"]).iterdir()):
                if (path / "manifest.json").exists():
                    meshes = json.loads((path / "manifest.json").read_text())["meshes"]
                    smallest = min((mesh for mesh in meshes if mesh["devices"] > 1), key=lambda mesh: mesh["devices"])
                    jobs.append((path, mesh_text(smallest["axes"])))
        for example, mesh in jobs:
            with self.subTest(example=example.name, mesh=mesh), folder() as where:
                expected = self.losses(where, example, mesh, "in-process")
                self.assertEqual(len(expected), 5)
                for transport in transports()[1:] + (["mpi"] if "openmpi" in launchers() else []):
                    self.assertEqual(self.losses(where, example, mesh, transport), expected, transport)

    def test_mpirun_starts_the_workers(self):
        if "openmpi" not in launchers():
            self.skipTest("Open MPI is not installed")
        with folder() as where:
            expected = self.losses(where, OWN_EXAMPLES / "spiral_mlp", "dp=4", "in-process")
            for transport in ("auto", "tcp"):
                with self.subTest(transport=transport):
                    curve = where / f"mpirun-{transport}.json"
                    done = subprocess.run([*LAUNCHERS["openmpi"], "3", XLAD, "run", OWN_EXAMPLES / "spiral_mlp",
                                           "--mesh", "dp=4", "--transport", transport, "--steps", "5",
                                           "--curve", curve],
                                          capture_output=True, text=True, timeout=600, env=mpi_environment())
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertEqual(json.loads(curve.read_text())["loss"], expected)

    def launched(self, launcher, rank, *flags, steps=5):
        """Starts rank `rank` of 2 of `xlad run`, with the variables that a launcher sets."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}
        environment |= {name: str(value).replace("RANK", str(rank)) for name, value in launcher.items()}
        rank = subprocess.Popen([XLAD, "run", OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=2", "--steps", str(steps),
                                 *map(str, flags)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment)
        self.addCleanup(rank.communicate)
        self.addCleanup(rank.kill)
        return rank

    def test_every_launcher_starts_the_ranks_of_one_run(self):
        with folder() as where:
            expected = self.losses(where, OWN_EXAMPLES / "spiral_mlp", "dp=2", "in-process")
            for name, launcher in ONE_HOST.items():
                with self.subTest(launcher=name):
                    curves = [where / f"{name}-{rank}.json" for rank in range(2)]
                    ranks = [self.launched(launcher, rank, "--curve", curves[rank]) for rank in range(2)]
                    outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
                    self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
                    self.assertEqual([path.exists() for path in curves], [True, False], "the ranks trained separately")
                    self.assertEqual(json.loads(curves[0].read_text())["loss"], expected)

    def test_sigterm_of_all_ranks_saves_the_state(self):
        with folder() as where:
            ranks = [self.launched(ONE_HOST["Flux"], rank, "--checkpoint-every", 20, "--checkpoint-to",
                                   f"file:{where}/saved", steps=1_000_000) for rank in range(2)]
            wait_for(lambda: any((where / "saved").rglob("*.json")), "the first checkpoint")
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)
            outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [75, 75], outputs)
            self.assertIn(f"--resume file:{where}/saved", "".join(outputs[0]))

    def test_sigusr1_of_mpirun_saves_the_state(self):
        """mpirun forwards this signal. After SIGTERM, it would soon kill the ranks. MPICH's mpirun may then forget the
        exit codes of ranks; if it forgets both, it exits with 0."""
        if not launchers():
            self.skipTest("there is no mpirun")
        for name in launchers():
            with self.subTest(launcher=name), folder() as where, open(where / "log", "wb") as log:
                mpirun = subprocess.Popen([*LAUNCHERS[name], "2", XLAD, "run", OWN_EXAMPLES / "spiral_mlp", "--mesh",
                                           "dp=2", "--steps", "1000000", "--checkpoint-every", "20",
                                           "--checkpoint-to", f"file:{where}/saved"],
                                          stdout=log, stderr=log, env=mpi_environment())
                try:
                    wait_for(lambda: any((where / "saved").rglob("*.json")), "the first checkpoint")
                    mpirun.send_signal(signal.SIGUSR1)
                    code = mpirun.wait(PATIENCE_S)
                finally:
                    mpirun.terminate()
                    mpirun.wait(PATIENCE_S)
                text = (where / "log").read_text(errors="replace")
                self.assertIn(code, (0, 75) if name == "mpich" else (75,), text[-4000:])
                self.assertRegex(text, f"the state of step \\d+ is saved; .* --resume file:{where}/saved")

    def test_ranks_of_one_run_on_several_hosts_are_refused(self):
        for name, launcher in SEVERAL_HOSTS.items():
            for rank in range(2):
                with self.subTest(launcher=name, rank=rank):
                    one = self.launched(launcher, rank)
                    _, err = one.communicate(timeout=PATIENCE_S)
                    self.assertEqual(one.returncode, 1, err)
                    self.assertRegex(err, f"found (1 of 2 processes of|rank {rank} of 2 by) {name}")
                    self.assertIn("expected all; on several hosts, let the processes meet in a folder that all hosts "
                                  "share (--meet FOLDER --listen INTERFACE)", err)
        with folder() as where:
            alone = SEVERAL_HOSTS["Slurm"] | {"XLAD_RANK": "0", "XLAD_RANKS": "1"}
            one = self.launched(alone, 1, "--curve", where / "alone.json")
            _, err = one.communicate(timeout=PATIENCE_S)
            self.assertEqual(one.returncode, 0, err)
            self.assertEqual(json.loads((where / "alone.json").read_text())["loss"],
                             self.losses(where, OWN_EXAMPLES / "spiral_mlp", "dp=2", "in-process"))

    def test_mpich_cannot_carry_the_messages_of_a_job(self):
        environment = mpi_environment() | {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0",
                                           "MPI_LOCALNRANKS": "2"}
        done = subprocess.run([XLAD, "run", OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=2", "--transport", "mpi"],
                              capture_output=True, text=True, timeout=600, env=environment)
        self.assertEqual(done.returncode, 2)
        self.assertIn("found a launch by MPICH, expected mpirun of Open MPI", done.stderr)

    def test_wrong_transports_are_refused_before_anything_starts(self):
        code, _, err = xlad("run", OWN_EXAMPLES / "spiral_mlp", "--transport", "smoke")
        self.assertEqual(code, 2)
        self.assertIn("found smoke, expected auto, in-process, shm, tcp, ucx or mpi", err)
        code, _, err = xlad("run", OWN_EXAMPLES / "spiral_mlp", "--mesh", "dp=2", "--workers", 2,
                            "--transport", "in-process")
        self.assertEqual(code, 2)
        self.assertIn("found 2 workers, expected 1", err)


class WorkersTest(unittest.TestCase):
    """`mpirun xlad worker`, with a coordinator that mpirun does not start."""

    def setUp(self):
        if "openmpi" not in launchers():
            self.skipTest("Open MPI is not installed")
        made = folder()
        self.where = made.__enter__()
        self.addCleanup(made.__exit__, None, None, None)
        self.cluster = Cluster(self.where, workers=0, devices=1)
        self.addCleanup(self.cluster.close)

    @contextlib.contextmanager
    def workers(self, ranks, *command):
        """mpirun of `ranks` ranks, which find the coordinator by a variable. The command may begin with options of
        mpirun."""
        with open(self.where / "mpirun.log", "ab") as log:
            mpirun = subprocess.Popen([*LAUNCHERS["openmpi"], str(ranks), *map(str, command)], stdout=log, stderr=log,
                                      env=mpi_environment() | {"XLAD_COORDINATOR": self.cluster.address})
        try:
            wait_for(lambda: len(self.nodes()) == ranks, "the workers to register")
            yield mpirun
        finally:
            mpirun.terminate()
            try:
                mpirun.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                mpirun.kill()
                mpirun.wait()

    def nodes(self):
        code, out, _ = xlad("nodes", "--format", "json", "--coordinator", self.cluster.address)
        workers = [worker for node in json.loads(out) for worker in node["workers"]] if code == 0 else []
        return [worker for worker in workers if worker["state"] != "LOST"]

    def submit(self, mesh):
        curve = self.where / "curve.json"
        code, out, err = xlad("submit", OWN_EXAMPLES / "spiral_mlp", "--mesh", mesh, "--steps", "5", "--attempts", "1",
                              "--curve", curve, "--coordinator", self.cluster.address)
        return code, out + err + (self.where / "mpirun.log").read_text(errors="replace")[-4000:], curve

    def expected(self, mesh):
        curve = self.where / "one.json"
        code, _, err = xlad("run", OWN_EXAMPLES / "spiral_mlp", "--mesh", mesh, "--steps", "5", "--curve", curve)
        self.assertEqual(code, 0, err)
        return json.loads(curve.read_text())["loss"]

    def test_mpirun_starts_workers(self):
        with self.workers(3, XLAD, "worker", "--devices", "1"):
            code, text, curve = self.submit("dp=3")
            self.assertEqual(code, 0, text)
            self.assertEqual(json.loads(curve.read_text())["loss"], self.expected("dp=3"))

    @unittest.skipUnless(starts_daemons_by_agent(), "this mpirun has other parameters for its daemons")
    def test_machines_that_are_clones_need_permission(self):
        """Two daemons of mpirun on this machine stand for two machines with the same boot id and host name. All
        connections use loopback, and the names of the machines need no name server."""
        agent = self.where / "agent"
        agent.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')  # Runs the command of ssh here.
        agent.chmod(0o755)
        options = ("--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1",
                   "--mca", "oob_tcp_if_include", "lo", "--mca", "btl_tcp_if_include", "lo",
                   "--host", "127.0.0.2:1,127.0.0.3:1")
        with self.workers(2, *options, XLAD, "worker", "--transport", "mpi"):
            code, text, _ = self.submit("dp=2")
            self.assertEqual(code, 1, text)
            self.assertIn("another machine with the same name", text)

    @unittest.skipIf(CANNOT_RENAME_HOST, "a process cannot be given another host name")
    def test_messages_of_mpi_between_hosts_need_permission(self):
        """Rank 1 has another host name, as on another host."""
        rank = ('[ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec "$@"; '
                'exec unshare --uts sh -c \'hostname far-away; exec "$@"\' sh "$@"')
        for flags in ((), ("--insecure-network",)):
            with self.subTest(flags=flags), self.workers(2, "sh", "-c", rank, "sh", XLAD, "worker", "--transport",
                                                         "mpi", *flags):
                code, text, curve = self.submit("dp=2")
                if flags:
                    self.assertEqual(code, 0, text)
                    self.assertEqual(json.loads(curve.read_text())["loss"], self.expected("dp=2"))
                else:
                    self.assertEqual(code, 1, text)
                    self.assertRegex(text, "on (host )?far-away")
                    self.assertIn("allow it with --insecure-network, or use --transport tcp", text)


if __name__ == "__main__":
    unittest.main()

"""`xlad bench` and `xlad run` over every transport: the same results, and errors that say what to do."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest
import uuid

from harness import OWN_EXAMPLES, PATIENCE_S, XLAD, CommunicationTest, folder, mesh_text, wait_for, xlad

OK = re.compile(r"^# Out of bounds values\s+: 0 OK$", re.MULTILINE)
FOLDER = pathlib.Path(XLAD).parent
LAUNCHERS = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "-np"], "mpich": ["mpirun.mpich", "-np"]}


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
        for transport in transports():
            for collective in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce",
                               "gather", "scatter", "sendrecv", "barrier"):
                with self.subTest(transport=transport, collective=collective):
                    code, out, err = xlad("bench", collective, "--transport", transport, "--ranks", 3, "-b", "12",
                                          "-e", "1M", "-f", "300", "--batches", 2, "-n", 1, "-w", 1)
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

    def test_launchers_of_mpi_start_all_transports_between_processes(self):
        for launcher in launchers():
            for transport in ("auto", "tcp", "mpi"):
                with self.subTest(launcher=launcher, transport=transport):
                    done = subprocess.run([*LAUNCHERS[launcher], "3", XLAD, "bench", "all_reduce", "-b", "12", "-e",
                                           "3M", "-f", "512", "--batches", "2", "-n", "2", "--transport", transport],
                                          capture_output=True, text=True, timeout=600, env=mpi_environment())
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertRegex(done.stdout, OK)

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

    def start_ranks(self, launch, transport):
        ranks = []
        for rank in range(3):
            environment = os.environ | {"XLAD_RANK": str(rank), "XLAD_RANKS": "3", "XLAD_LAUNCH": launch}
            command = [XLAD, "bench", "all_reduce", "-b", "64K", "-e", "64K", "-f", "2", "-n", "1000",
                       "--batches", "90000", "--transport", transport, "--shrink"]
            # Without --algorithm, a group that uses messages first measures its costs, and the death of a rank during
            # the measurement ends the benchmark.
            if transport != "shm":
                command += ["--algorithm", "ring"]
            ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          text=True))
            self.addCleanup(ranks[-1].communicate)
            self.addCleanup(ranks[-1].kill)
        return ranks

    def test_a_rank_that_is_stopped_or_killed_is_named_and_the_others_continue(self):
        for transport in transports():
            if transport == "in-process":
                continue
            with self.subTest(transport=transport):
                launch = uuid.uuid4().hex
                ranks = self.start_ranks(launch, transport)

                def why():
                    code, out, _ = xlad("comm", "why", launch, "--format", "json")
                    return json.loads(out) if code == 0 else None

                wait_for(lambda: (state := why()) and all(rank["finished"] > 20 for rank in state["ranks"]),
                         "the group to run")
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

    def test_mpich_cannot_carry_the_messages_of_a_job(self):
        environment = mpi_environment() | {"PMI_RANK": "0", "PMI_SIZE": "2"}
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


if __name__ == "__main__":
    unittest.main()

"""`xlad bench COLLECTIVE`: the format of nccl-tests, and the checks."""

import contextlib
import itertools
import json
import mmap
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import unittest
import unittest.mock

from harness import PATIENCE_S, REPO, XLAD, CommunicationTest, Process, one_of, wait_for, xlad

# A row in the format of nccl-tests: size, count, type, op and root; then time, algbw, busbw and #wrong, twice.
SIDE = r"\s+([0-9.]+|N/A)\s+([0-9.]+|N/A)\s+([0-9.]+|N/A)\s+(\d+|N/A)"
ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)" + SIDE + SIDE + r"\s*$")
AVERAGE = re.compile(r"^# Avg bus bandwidth\s+: ([0-9.e+-]+)\s*$", re.MULTILINE)
OUT_OF_BOUNDS = re.compile(r"^# Out of bounds values\s+: (\d+) (OK|FAILED)$", re.MULTILINE)


def rows(text):
    return [match.groups() for match in map(ROW.match, text.splitlines()) if match]


def ranks_of(where):
    """Returns the running ranks of `xlad bench` that meet in the folder `where`."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"XLAD_COMM_DIR={where}".encode() in variables and any(v.startswith(b"XLAD_RANK=") for v in variables):
            found.append(int(process.name))
    return found


class RanksTest(CommunicationTest):
    def tearDown(self):
        for rank in ranks_of(self.where):
            with contextlib.suppress(ProcessLookupError):  # The rank may have ended meanwhile.
                os.kill(rank, signal.SIGKILL)

    def test_ranks_end_with_the_command(self):
        for stop in (signal.SIGTERM, signal.SIGKILL):
            command = Process(self.where / "log", "bench", "all_reduce", "--ranks", 3, "-b", 8, "-e", 8, "-n", 1000000)
            wait_for(lambda: len(ranks_of(self.where)) == 3, "three ranks")
            command.popen.send_signal(stop)
            command.popen.wait(PATIENCE_S)
            command.close()
            wait_for(lambda: not ranks_of(self.where), "the end of the ranks")

    def test_no_rank_remains_if_one_cannot_be_started(self):
        # Each rank takes a descriptor of the command.
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        done = subprocess.run([XLAD, "bench", "all_reduce", "--ranks", "64", "-b", "8", "-e", "8"], timeout=300,
                              capture_output=True, text=True, preexec_fn=few)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("xlad: error: cannot start rank ", done.stderr)
        self.assertEqual(ranks_of(self.where), [])


class BenchTest(CommunicationTest):
    def bench(self, *args):
        code, out, err = xlad("bench", *args, "--ranks", 2, "--batches", 3, "-n", 2)
        self.assertEqual((code, err), (0, ""), out)
        self.assertEqual(OUT_OF_BOUNDS.search(out).groups(), ("0", "OK"))
        return out

    def test_rows_are_those_of_nccl_tests(self):
        path = self.where / "rows.json"
        out = self.bench("all_reduce", "-b", "8", "-e", "32K", "-f", "4", "-d", "float", "-o", "sum", "--json", path)
        found = rows(out)
        self.assertEqual([int(row[0]) for row in found], [8, 32, 128, 512, 2048, 8192, 32768])
        self.assertEqual({row[2:5] for row in found}, {("float", "sum", "-1")})
        self.assertEqual({(row[8], row[12]) for row in found}, {("0", "0")})
        self.assertTrue(AVERAGE.search(out))
        written = json.loads(path.read_text())["rows"]
        self.assertEqual([row["bytes"] for row in written], [int(row[0]) for row in found])
        for row in written:
            for side in ("out_of_place", "in_place"):
                self.assertLessEqual({"time_us", "algbw", "busbw", "wrong"}, set(row[side]))

    def test_wrong_results_are_counted_and_fail(self):
        def start(rank):
            variables = dict(os.environ, XLAD_LAUNCH="wrong", XLAD_RANKS="2", XLAD_RANK=str(rank))
            # One operation of each row and side is checked, so with many rows one of them fails almost certainly.
            command = [XLAD, "bench", "all_reduce", "-b", "1M", "-e", "4M", "-i", "256K", "-w", "0", "-n", "1",
                       "--batches", "1", "--json", path]
            started = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)
            for end in (started.stdout.close, started.wait, started.kill):  # The last one is called first.
                self.addCleanup(end)
            return started

        def scratch():
            # The largest shared memory that rank 0 has made, through which the ranks copy their data.
            found = [file for file in pathlib.Path(f"/proc/{ranks[0].pid}/fd").iterdir()
                     if os.path.realpath(file).startswith("/memfd:xlad") and os.path.getsize(file) > 0]
            return max(found, key=os.path.getsize, default=None)

        path = self.where / "rows.json"
        ranks = [start(0)]
        with open(wait_for(scratch, "rank 0 to share memory"), "r+b") as file:
            with mmap.mmap(file.fileno(), 0) as memory:
                ranks.append(start(1))
                # The first page stays as it is: it has the number by which rank 1 recognizes the memory.
                noise = b"x" * (len(memory) - 4096)
                deadline = time.monotonic() + PATIENCE_S
                while any(rank.poll() is None for rank in ranks):
                    memory[4096:] = noise
                    if time.monotonic() > deadline:
                        for rank in ranks:
                            rank.kill()
                        self.fail(f"waited {PATIENCE_S} s for the end of the ranks: {ranks[0].stdout.read()}")
        out = ranks[0].stdout.read()
        self.assertEqual([rank.returncode for rank in ranks], [1, 1], out)
        wrong, verdict = OUT_OF_BOUNDS.search(out).groups()
        self.assertEqual(verdict, "FAILED")
        sides = [row[side]["wrong"] for row in json.loads(path.read_text())["rows"]
                 for side in ("out_of_place", "in_place")]
        self.assertEqual(int(wrong), sum(sides))
        self.assertGreater(sum(sides), 0)

    def test_all_collectives_and_types_are_checked(self):
        for collective in ("reduce_scatter", "all_gather", "alltoall_perf", "broadcast", "reduce", "gather", "scatter",
                           "sendrecv", "collective_permute", "barrier"):
            for registered in (0, 1):
                with self.subTest(collective=collective, registered=registered):
                    smallest = 0 if collective == "barrier" else 64  # A barrier has no sizes.
                    self.bench(collective, "-b", smallest, "-e", "64K", "-f", "32", "-R", registered)
        for kind, op in one_of(3, itertools.product(
                ("half", "bfloat16", "double", "f8e4m3", "f8e5m2", "int8", "uint64"),
                ("sum", "prod", "min", "max", "avg"))):
            with self.subTest(type=kind, op=op):
                found = rows(self.bench("all_reduce", "-b", "512", "-e", "512", "-f", "2", "-d", kind, "-o", op))
                self.assertEqual(found[0][2:4], (kind, op))

    def test_ragged_parts(self):
        for collective, (transport, registered), ranks in one_of(5, itertools.product(
                ("all_gather_v", "all_to_all_v", "ragged_all_to_all"),
                (("auto", 0), ("auto", 1), ("in-process", 0), ("tcp", 0)), (2, 3, 8))):
            with self.subTest(collective=collective, transport=transport, registered=registered, ranks=ranks):
                code, out, err = xlad("bench", collective, "--ranks", ranks, "-b", 4, "-e", "400K", "-f", 300,
                                      "--batches", 2, "-n", 2, "--transport", transport, "-R", registered)
                self.assertEqual((code, err), (0, ""), out)

    def test_ranks_listen_on_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as listener:
                listener.bind(("::1", 0))
        except OSError:
            self.skipTest("this machine has no IPv6")
        for host in ("::1", "[::1]"):
            self.bench("all_reduce", "-b", 8, "-e", 8, "--transport", "tcp", "--listen", host)

    def test_options_that_make_no_sense_are_refused(self):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        part = memory // 200 // 4096 * 4096  # The buffers of one operation fit, those of 100 operations do not.
        for arguments, words in ((("all_reduse",), "found collective"), (("all_reduce", "-d", "flaot"), "-d: found"),
                                 (("all_reduce", "-o", "mean"), "--op: found"), (("all_reduce", "-b", "8X"), "8X"),
                                 (("all_reduce", "--algorithm", "ring 3"), "ring 3"),
                                 (("all_reduce", "--algorithm", "rink"), "rink"),
                                 (("all_reduce", "--mode", "exact"), "fast, run-to-run, canonical"),
                                 (("all_reduce", "-b", "1M", "-e", "1K"), "-b: found 1048576"),
                                 (("all_reduce", "-b", "0", "-e", "1K", "-i", "0"), "-i: found 0"),
                                 (("all_reduce", "-b", "0", "-e", "1K", "-f", "2"), "-b: found 0 bytes with -f 2"),
                                 (("all_reduce", "-b", part, "-e", part, "--rotate", 2 * memory),
                                  f"found 200 times {2 * part} bytes of buffers in all ranks together"),
                                 (("all_reduce", "-d", "c64"), "-d: found"),
                                 (("all_reduce", "-d", "float", "-o", "xor"), "integers"),
                                 (("all_reduce", "-d", "pred", "-o", "avg"), "numbers"),
                                 (("all_reduce", "--json", "/nowhere/rows.json"), "--json: cannot write /nowhere/rows"),
                                 (("all_reduce", "--json", self.where), "it is a folder"),
                                 (("all_reduce", "--meet", self.where), "--meet: found --transport auto"),
                                 (("all_reduce", "--listen", "[::1"), "--listen: found host"),
                                 (("all_reduce", "--listen", "127.0.0.1:80"), "each without a port"),
                                 (("all_reduce", "--listen", "[fd00::1]"),
                                  "found the address fd00::1 (--listen) without a folder"),
                                 (("all_reduce", "--meet", "/nowhere"), "--meet: there is no folder /nowhere"),
                                 (("all_reduce", "--json", "-"), "--json: found -, expected the name of a file"),
                                 (("all_reduce", "-b", "1024G", "-e", "1024G"),
                                  "bytes of buffers in all ranks together, expected at most"),
                                 (("broadcast", "-b", "8", "-e", "8", "-r", "2"), "root 2")):
            code, _, err = xlad("bench", *arguments, "--ranks", 2)
            self.assertIn(code, (1, 2))
            self.assertIn(words, err)
            self.assertEqual(err.count("error"), 1, f"the error is printed once, not by every rank: {err}")


class ScriptsTest(unittest.TestCase):
    def test_a_side_that_ends_is_reported_with_its_status_and_last_lines(self):
        sys.path.insert(0, str(REPO / "bench/step_vs_jax"))
        import step_vs_jax

        for script, words in (("exit 3", "jax: exit status 3: it wrote no message"),
                              ("echo no such mesh >&2; exit 1", "jax: exit status 1: no such mesh"),
                              ("kill -SEGV $$", "jax: ended by SIGSEGV: it wrote no message")):
            side = step_vs_jax.Side("jax", ["sh", "-c", script], None)
            with self.assertRaisesRegex(RuntimeError, re.escape(words)):
                side.ask("build")
            side.close()

    def test_a_side_that_closes_its_output_and_does_not_end_is_killed_and_reported(self):
        sys.path.insert(0, str(REPO / "bench/step_vs_jax"))
        import step_vs_jax

        side = step_vs_jax.Side("jax", ["sh", "-c", "echo too late >&2; exec >&-; exec sleep 1000"], None)
        self.addCleanup(side.close)
        with unittest.mock.patch.object(step_vs_jax, "END_S", 0.1):
            with self.assertRaisesRegex(RuntimeError, "jax: closed its output without ending within 0.1 s: too late"):
                side.ask("build")
        self.assertEqual(side.process.returncode, -signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()

"""`xlad bench COLLECTIVE`: the format of nccl-tests, and the checks."""

import json
import os
import re
import unittest

from harness import CommunicationTest, xlad

# A row as scripts for nccl-tests read it: size, count, type, op and root; then time, algbw, busbw and #wrong, twice.
SIDE = r"\s+([0-9.]+|N/A)\s+([0-9.]+|N/A)\s+([0-9.]+|N/A)\s+(\d+|N/A)"
ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)" + SIDE + SIDE + r"\s*$")
AVERAGE = re.compile(r"^# Avg bus bandwidth\s+: ([0-9.e+-]+)\s*$", re.MULTILINE)
OUT_OF_BOUNDS = re.compile(r"^# Out of bounds values\s+: (\d+) (OK|FAILED)$", re.MULTILINE)


def rows(text):
    return [match.groups() for match in map(ROW.match, text.splitlines()) if match]


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

    def test_all_collectives_and_types_are_checked(self):
        for collective in ("reduce_scatter", "all_gather", "alltoall_perf", "broadcast", "reduce", "gather", "scatter",
                           "sendrecv", "collective_permute", "barrier"):
            for registered in (0, 1):
                with self.subTest(collective=collective, registered=registered):
                    self.bench(collective, "-b", "64", "-e", "64K", "-f", "32", "-R", registered)
        for kind in ("half", "bfloat16", "double", "f8e4m3", "f8e5m2", "int8", "uint64"):
            for op in ("sum", "prod", "min", "max", "avg"):
                with self.subTest(type=kind, op=op):
                    self.assertEqual(rows(self.bench("all_reduce", "-b", "512", "-e", "512", "-f", "2", "-d", kind, "-o", op))[0][2:4],
                                     (kind, op))

    def test_ragged_parts(self):
        for collective in ("all_gather_v", "all_to_all_v", "ragged_all_to_all"):
            for transport, registered in (("auto", 0), ("auto", 1), ("in-process", 0), ("tcp", 0)):
                for ranks in (2, 3, 8):
                    with self.subTest(collective=collective, transport=transport, registered=registered, ranks=ranks):
                        code, out, err = xlad("bench", collective, "--ranks", ranks, "-b", 4, "-e", "400K", "-f", 300,
                                              "--batches", 2, "-n", 2, "--transport", transport, "-R", registered)
                        self.assertEqual((code, err), (0, ""), out)

    def test_options_that_make_no_sense_are_refused(self):
        for arguments, words in ((("all_reduse",), "found collective"), (("all_reduce", "-d", "flaot"), "-d: found"),
                                 (("all_reduce", "-o", "mean"), "--op: found"), (("all_reduce", "-b", "8X"), "8X"),
                                 (("all_reduce", "--algorithm", "ring 3"), "ring 3"),
                                 (("all_reduce", "--algorithm", "rink"), "rink"),
                                 (("all_reduce", "--mode", "exact"), "fast, run-to-run, canonical"),
                                 (("all_reduce", "-b", "1M", "-e", "1K"), "-b: found 1048576"),
                                 (("all_reduce", "-b", "0", "-e", "1K", "-i", "0"), "-i: found 0"),
                                 (("all_reduce", "-d", "c64"), "-d: found"),
                                 (("all_reduce", "-d", "float", "-o", "xor"), "integers"),
                                 (("all_reduce", "-d", "pred", "-o", "avg"), "numbers"),
                                 (("all_reduce", "--json", "/nowhere/rows.json"), "--json: cannot write /nowhere/rows"),
                                 (("all_reduce", "--json", self.where), "it is a folder"),
                                 (("all_reduce", "--json", "-"), "--json: found -, expected the name of a file"),
                                 (("all_reduce", "-b", "1024G", "-e", "1024G"), "bytes of memory, expected less"),
                                 (("broadcast", "-b", "8", "-e", "8", "-r", "2"), "root 2")):
            code, _, err = xlad("bench", *arguments, "--ranks", 2)
            self.assertIn(code, (1, 2))
            self.assertIn(words, err)
        self.assertEqual(err.count("xlad: error:"), 1, "said once, not by every rank")


if __name__ == "__main__":
    unittest.main()

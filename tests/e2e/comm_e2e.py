"""`xlad comm check`, `schedule`, `simulate` and `why`: their output for valid input, and their errors for invalid
input."""

import json
import os
import unittest

from harness import CommunicationTest, xlad


class CommTest(CommunicationTest):
    def comm(self, *args):
        code, out, err = xlad("comm", *args)
        self.assertEqual((code, err), (0, ""), out)
        return out

    def test_every_collective_is_checked_with_few_ranks(self):
        for collective in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather",
                           "scatter", "barrier", "collective_permute", "send_recv"):
            for ranks in (1, 2, 3, 7):
                with self.subTest(collective=collective, ranks=ranks):
                    report = json.loads(self.comm("check", collective, "--ranks", ranks, "--mutations", 20,
                                                  "--format", "json"))
                    self.assertTrue(report["accepted"], report)
            hyphens = collective.replace("_", "-")
            self.assertEqual(self.comm("schedule", hyphens, "--ranks", 2),
                             self.comm("schedule", collective, "--ranks", 2))
        for op in ("sum", "prod", "min", "max", "avg", "and", "or", "xor"):
            self.comm("check", "all_reduce", "--ranks", 3, "--op", op)

    def test_all_algorithms_are_checked_together(self):
        report = json.loads(self.comm("check", "--all", "--ranks", 5, "--slots", 3, "--mutations", 300, "--format",
                                      "json"))
        self.assertTrue(report["accepted"])
        self.assertEqual(report["checks"], 3 * report["plans"])
        self.assertEqual(report["mutations"]["mutants"], 300)
        self.assertRegex(self.comm("check", "--all", "--ranks", 3), r"plans for 2 to 3 ranks")
        self.assertRegex(self.comm("check", "--all", "--ranks", 4, "--algorithm", "direct", "--canonical"),
                         r"^9 canonical plans for 2 to 4 ranks")

    def test_sizes_above_two_to_the_31_elements(self):
        for count in (1 << 31, 1 << 33):
            found = json.loads(self.comm("check", "all_reduce", "--ranks", 4, "--algorithm", "ring",
                                         "--bytes", 4 * count, "--format", "json"))
            self.assertEqual(found["max_sent_elements"], 2 * 3 * count // 4)
            found = json.loads(self.comm("simulate", "all_reduce", "--topology", "switch-4", "--algorithm", "ring",
                                         "--bytes", 4 * count, "--format", "json"))
            self.assertGreaterEqual(found["time_us"], found["bound_us"])
            self.assertGreater(found["bound_us"], 0)

    def test_zero_bytes_mean_zero_elements(self):
        for collective in ("all_reduce", "all_gather", "all_to_all", "broadcast"):
            with self.subTest(collective=collective):
                found = json.loads(self.comm("check", collective, "--ranks", 4, "--bytes", 0, "--format", "json"))
                self.assertEqual((found["accepted"], found["max_sent_elements"]), (True, 0))
                found = json.loads(self.comm("simulate", collective, "--topology", "v5e-2x2", "--bytes", 0, "--format",
                                             "json"))
                self.assertEqual((found["bytes"], found["bound_us"]), (0, 0))

    def test_a_printed_schedule_is_accepted_and_a_changed_one_is_not(self):
        text = self.comm("schedule", "all_reduce", "--algorithm", "ring", "--ranks", 3)
        path = self.where / "ring.txt"
        path.write_text(text)
        self.comm("check", "--schedules", path)
        lines = text.splitlines(keepends=True)
        sends = [number for number, line in enumerate(lines) if "send " in line]
        path.write_text("".join(line for number, line in enumerate(lines) if number != sends[1]))
        code, out, _ = xlad("comm", "check", "--schedules", path, "--format", "json")
        self.assertEqual((code, json.loads(out)["accepted"]), (1, False))

    def test_small_networks_have_all_metrics(self):
        for topology in ("v5e-1x1", "v5e-1x2", "v4-1x1x1", "switch-1", "switch-7"):
            for collective in ("all_reduce", "all_gather", "barrier"):
                with self.subTest(topology=topology, collective=collective):
                    found = json.loads(self.comm("simulate", collective, "--topology", topology, "--bytes", "64K",
                                                 "--format", "json"))
                    for name in ("time_us", "algbw", "busbw", "bound_us", "fraction_of_bound"):
                        self.assertIsInstance(found[name], (int, float), name)

    def test_invalid_input_is_refused(self):
        fifo = self.where / "fifo"
        os.mkfifo(fifo)
        text = self.where / "text"
        text.write_text("x" * 10_000)
        for arguments, words in ((("check", "all_reduse", "--ranks", 2), "all_reduse"),
                                 (("check", "all_reduce"), "--ranks"),
                                 (("check", "--all", "--ranks", 1), "--ranks of 2 or more"),
                                 (("check", "--all", "--ranks", 257), "found 257, expected 2 to 256 with --all"),
                                 (("check", "all_reduce", "--all", "--ranks", 4), "without COLLECTIVE"),
                                 (("check", "--all", "--ranks", 4, "--op", "max"), "cannot be used together"),
                                 (("check", "--all", "--ranks", 4, "--chunks", 2), "cannot be used together"),
                                 (("check", "--all", "--ranks", 4, "--algorithm", "rink"), "rink"),
                                 (("check", "--all", "--ranks", 4, "--algorithm", "ring", "--canonical"),
                                  "no canonical plan"),
                                 (("check", "all_reduce", "--ranks", 0), "--ranks"),
                                 (("check", "all_reduce", "--ranks", 3, "--algorithm", "rink"), "rink"),
                                 (("check", "all_reduce", "--ranks", 3, "--algorithm", "ring_2d grid=2x2"),
                                  "a grid of 2 dimensions"),
                                 (("check", "all_reduce", "--ranks", 3, "--op", "mean"), "mean"),
                                 (("check", "all_gather", "--ranks", 3, "--op", "mean"), "mean"),
                                 (("check", "broadcast", "--ranks", 3, "--root", 3), "root 3"),
                                 (("check", "all_reduce", "--ranks", 65536, "--algorithm", "ring"),
                                  "of the memory of this machine"),
                                 (("check", "all_reduce", "--ranks", 2, "--bytes", "9999999G"), "9999999G"),
                                 (("check", "--schedules", self.where / "none"), "none"),
                                 (("check", "--schedules", text), "text"),
                                 (("schedule", "all_reduce", "--ranks", 4, "--rank", 4),
                                  "--rank: found 4, expected 0 to 3"),
                                 (("schedule", "all_reduce", "--ranks", 4, "--rank=-1"), "--rank: found -1, expected"),
                                 (("schedule", "all_reduce", "--ranks", 4, "--rank", -2), "--rank"),
                                 (("schedule", "all_reduce", "--ranks", 4, "--draw", "--rank=-2"), "--rank: found -2"),
                                 (("schedule", "all_reduce", "--ranks", 4, "--chunks", 0), "--chunks"),
                                 (("simulate", "all_reduce", "--topology", "v9-4x4"), "v9-4x4"),
                                 (("simulate", "all_reduce", "--topology", "v5e-4x4", "--ranks", 17), "17"),
                                 (("simulate", "all_reduce", "--topology", "v5e-4x4", "--broken-link", "0-5"), "0"),
                                 (("simulate", "all_reduce", "--topology", "v5e-4x4", "--broken-link", "north"),
                                  "north"),
                                 (("simulate", "all_reduce", "--topology", "v5e-4x4", "--broken-chip", 16),
                                  "found broken chip 16, expected a number from 0 to 15"),
                                 (("simulate", "all_reduce", "--topology", "v5e-4x4", "--ranks", 16,
                                   "--broken-chip", 3), "16"),
                                 (("simulate", "all_reduce", "--topology", "v5e-4x4", "--algorithm", "mapped_windows"),
                                  "no windows"),
                                 (("why", "no-such-group"), "no-such-group"),
                                 (("why", text), "expected the control file"),
                                 (("why", fifo), "too short")):
            with self.subTest(arguments=arguments):
                code, out, err = xlad("comm", *arguments)
                self.assertIn(code, (1, 2), out)
                self.assertIn(words, err)


if __name__ == "__main__":
    unittest.main()

"""Checks that each mutant of mutants.py can be made from the sources as they are, and tests that check."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import mutants


class Mutants(unittest.TestCase):
    def test_each_replaces_a_text_that_occurs_once(self):
        self.assertEqual(mutants.stale_mutants(mutants.MUTANTS), [])
        self.assertGreater(len(mutants.MUTANTS), 40)

    def test_names_are_unique_because_each_is_a_folder(self):
        names = [name for name, *_ in mutants.MUTANTS]
        self.assertEqual(sorted(set(names)), sorted(names))

    def test_all_stale_mutants_are_listed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "a.cc").write_text("once\ntwice\ntwice\n")
            rows = [("good", "a.cc", "once", ""), ("gone", "a.cc", "thrice", ""), ("double", "a.cc", "twice", ""),
                    ("no file", "b.cc", "once", ""), ("same", "a.cc", "once", "once")]
            found = dict(mutants.stale_mutants(rows, root))
        self.assertEqual(list(found), ["gone", "double", "no file", "same"])
        self.assertIn("found the text 0 times in a.cc", found["gone"])
        self.assertIn("found the text 2 times in a.cc", found["double"])
        self.assertIn("found no file b.cc", found["no file"])

    def test_a_stale_mutant_ends_the_script_before_a_build(self):
        program = ("import sys, mutants\n"
                   "mutants.MUTANTS[3:5] = [('first', 'README.md', 'no such text', ''),"
                   " ('second', 'no_such_file.cc', 'x', '')]\n"
                   "mutants.Builder = None\n"  # A build would raise an exception.
                   "sys.exit(mutants.main())\n")
        result = subprocess.run([sys.executable, "-c", program], cwd=pathlib.Path(__file__).parent,
                                capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertEqual([line.split(" | ")[0] for line in result.stdout.splitlines()], ["| first", "| second"])

    def test_a_failed_run_counts_whatever_it_prints(self):
        cases = [("seed 7 (mesh): lost", 1, (7, "lost")), ("[  FAILED  ] LogOnDisk.A (3 ms)", 1, (0, "LogOnDisk.A")),
                 ("[  FAILED  ] StormTest.Ends (3 ms)", 1, (300, "StormTest.Ends")), ("[  PASSED  ]", 0, (300, None))]
        with tempfile.TemporaryDirectory() as folder:
            binary = pathlib.Path(folder) / "test"
            for line, code, expected in cases:
                binary.write_text(f"#!/bin/sh\necho '{line}'\nexit {code}\n")
                binary.chmod(0o755)
                self.assertEqual(mutants.run_tests(binary, 300, "*"), expected, line)
            binary.write_text("#!/bin/sh\necho no library >&2\nexit 127\n")
            with self.assertRaisesRegex(RuntimeError, "exit code 127 and no failed test.*no library"):
                mutants.run_tests(binary, 300, "*")
            binary.write_text("#!/bin/sh\necho '[==========] Running 0 tests from 0 test suites.'\n")
            with self.assertRaisesRegex(RuntimeError, "found no test for the filter Storms"):
                mutants.run_tests(binary, 300, "Storms.*")

    def test_an_error_says_which_step_of_the_build_failed(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            path, *_ = mutants.MUTANTS[0][1:]
            builder = mutants.Builder.__new__(mutants.Builder)
            builder.folder = folder
            for compiler, error in (("false", "does not compile: "), ("true", "does not link, which also happens if")):
                builder.commands = {str(mutants.ROOT / path): {"file": str(mutants.ROOT / path),
                                                               "command": f"{compiler} {mutants.ROOT / path} -o x.o"}}
                with unittest.mock.patch.object(mutants, "output_of", lambda *_, **__: ": && false x.o -o y && :"):
                    self.assertTrue(builder.build(path, "", "simulation_test", folder).startswith(error), error)

    def test_each_filter_has_a_test(self):
        self.assertEqual(mutants.filters_without_test(mutants.tests_of(row)[1] for row in mutants.MUTANTS), [])
        self.assertEqual(mutants.filters_without_test(["StormTest.*:NoSuchTest.*", "StormTest.NoSuchTest"]),
                         ["NoSuchTest.*", "StormTest.NoSuchTest"])


if __name__ == "__main__":
    unittest.main()

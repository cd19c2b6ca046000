"""jaxlib reads the text and the proto that xlad writes for a program. Both must be the same module."""

import json
import os
import pathlib
import subprocess
import unittest

from harness import ALL_CASES, REPO, folder, xlad

PYTHON = REPO / "build" / "venv" / "bin" / "python"
TESTS = pathlib.Path(os.environ.get("XLAD", "")).parent / "hlo_test"

# The accepted errors of jaxlib for a snippet that xlad reads: the snippet is newer than jaxlib, or has a start without
# its done.
REFUSED = ("Unknown opcode", "unexpected attribute", "must take the context operand", "composite call op", "s1[2]",
           "u1[2]", "Async update requires", "Async done requires", "AsyncUpdate and AsyncDone", "alias_config",
           "expects attribute name", "unexpected token", "expects a list starting", "MeshAxesReplicaGroupList",
           "attribute mode is expected")
# jaxlib would fill this omitted constant with 4 GB of random numbers, which takes a minute.
LARGE = "f32[1000000,1000]{1,0} constant({...})"
# Differences to ignore: fields that XLA's proto does not have, numbers that XLA's text parser rounds, omitted
# constants.
LOST = ("domain={", "cross_program_prefetch_index=0", "channel_id=0", "origin={", "(nan, inf)", "constant({...})",
        "debug_attributes=")


@unittest.skipUnless(PYTHON.exists(), "no build/venv; scripts/setup.sh --python makes it")
class JaxlibReadsHlo(unittest.TestCase):
    def check(self, pairs):
        lines = "".join(f"{text} {proto}\n" for text, proto in pairs)
        done = subprocess.run([PYTHON, REPO / "tests" / "e2e" / "jaxlib_reads.py"], input=lines, capture_output=True,
                              text=True, timeout=800, env={**os.environ, "JAX_PLATFORMS": "cpu"})
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(answers), len(pairs), done.stderr)
        for (text, _), answer in zip(pairs, answers):
            program = pathlib.Path(text).read_text(errors="replace")
            with self.subTest(program=program[:300]):
                for error in (answer["text"], answer["proto"]):
                    self.assertTrue(error is None or any(reason in error for reason in REFUSED), error)
                self.assertTrue(answer["same"] or any(lost in program for lost in LOST), "text and proto differ")

    def test_every_opcode_and_form(self):
        with folder() as where:
            subprocess.run([TESTS, "--gtest_filter=Mutants.AreMadeOfSeeds"], check=True, capture_output=True, cwd=REPO,
                           env={**os.environ, "XLAD_FUZZ_SEEDS": str(where)})
            paths = sorted((where / "printed").iterdir())
            names = [path.name for path in paths if LARGE not in path.read_text("utf-8", "replace")]
            self.assertGreater(len(names), 200)
            self.assertEqual(len(names), len(paths) - 1, f"one snippet has {LARGE}")
            self.check([(where / "printed" / name, where / "proto" / name) for name in names])

    def test_programs_of_the_environment_variables(self):
        programs = []
        for variable, pattern in (("XLAD_EXAMPLES", "*/*.hlo"), ("XLAD_CORPUS", "*.hlo.zst"),
                                  ("XLAD_CONFORMANCE", "**/*.hlo")):
            if variable in os.environ:
                found = sorted(pathlib.Path(os.environ[variable]).glob(pattern))
                programs += found[:: max(1, len(found) // (40 if ALL_CASES else 10))]
        if not programs:
            self.skipTest("XLAD_EXAMPLES, XLAD_CORPUS and XLAD_CONFORMANCE name no programs")
        with folder() as where:
            pairs = []
            for number, path in enumerate(programs):
                source = path
                if path.suffix == ".zst":
                    source = where / f"{number}.source"
                    subprocess.run(["zstd", "-qdfo", source, path], check=True)
                pairs.append((where / f"{number}.hlo", where / f"{number}.pb"))
                for form, out in zip(("text", "proto"), pairs[-1]):
                    code, _, err = xlad("opt", source, "--emit", form, "-o", out)
                    self.assertEqual(code, 0, err)
            self.check(pairs)


if __name__ == "__main__":
    unittest.main()

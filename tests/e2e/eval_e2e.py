"""`xlad eval`: inputs, results and comparisons in files, invalid usage, corpora."""

import json
import struct
import unittest

from harness import folder, xlad

PROGRAM = """HloModule m

ENTRY e {
  a = f32[2] parameter(0)
  b = s4[2] parameter(1)
  c = f32[2] convert(b)
  s = f32[2] add(a, c)
  d = f64[2] convert(a)
  z = c128[2] complex(d, d)
  t = (s4[2], c128[2]) tuple(b, z)
  ROOT r = (f32[2], (s4[2], c128[2])) tuple(s, t)
}
"""


def save(path, tensors):
    """Writes a safetensors file. `tensors` has (dtype, shape, bytes) by name."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def load(path):
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    return {name: (entry["dtype"], entry["shape"], content[8 + size:][slice(*entry["data_offsets"])])
            for name, entry in header.items()}


INPUTS = {"in.0": ("F32", [2], struct.pack("<2f", 1.5, -2)), "in.1": ("U8", [2], bytes([0x0F, 0x07]))}
RESULTS = {"out.0": ("F32", [2], struct.pack("<2f", 0.5, 5)), "out.1": ("U8", [2], bytes([0x0F, 0x07])),
           "out.2": ("U8", [2, 16], struct.pack("<4d", 1.5, 1.5, -2, -2))}


class Eval(unittest.TestCase):
    def run_program(self, where, *flags, program=PROGRAM, inputs=INPUTS, expected=RESULTS):
        (where / "m.hlo").write_text(program)
        save(where / "in.st", inputs)
        save(where / "expected.st", expected)
        return xlad("eval", where / "m.hlo", *flags)

    def test_files_in_and_out(self):
        with folder() as where:
            code, out, err = self.run_program(where, "--inputs", where / "in.st", "-o", where / "out.st",
                                              "--expected", where / "expected.st")
            self.assertEqual((code, out), (0, "3 results agree (atol 1e-06, rtol 1e-05)\n"), err)
            self.assertEqual(load(where / "out.st"), RESULTS)
            self.assertEqual(xlad("opt", where / "m.hlo", "--emit", "proto", "-o", where / "m.pb")[0], 0)
            code, out, err = xlad("eval", where / "m.pb", "--inputs", where / "in.st",
                                  "--expected", where / "expected.st")
            self.assertEqual(code, 0, err)

    def test_differences_and_missing_results_fail(self):
        near = {**RESULTS, "out.0": ("F32", [2], struct.pack("<2f", 0.5, 5.5))}
        missing = {name: RESULTS[name] for name in ("out.0", "out.2")}
        more = {**RESULTS, "out.3": RESULTS["out.0"]}
        shape = {**RESULTS, "out.0": ("F32", [1, 2], RESULTS["out.0"][2])}
        for expected, message in ((near, "out.0: element 1: found 5, expected 5.5"), (missing, "has no out.1"),
                                  (more, "expected also out.3"), (shape, "found f32[2], expected f32[1,2]")):
            with folder() as where:
                flags = ("--inputs", where / "in.st", "--expected", where / "expected.st")
                code, _, err = self.run_program(where, *flags, expected=expected)
                self.assertEqual(code, 1)
                self.assertIn(message, err)
        with folder() as where:
            flags = ("--inputs", where / "in.st", "--expected", where / "expected.st", "--atol", "0.6")
            self.assertEqual(self.run_program(where, *flags, expected=near)[0], 0)

    def test_wrong_inputs(self):
        for inputs, message in (({"in.0": INPUTS["in.0"]}, "has neither in.1 nor b for parameter 1 of shape s4[2]"),
                                ({**INPUTS, "in.0": ("F32", [1], b"abcd")},
                                 "tensor in.0: found f32[1], expected f32[2]"),
                                ({**INPUTS, "in.1": ("I32", [2], b"abcdefgh")}, "found s32[2], expected s4[2]")):
            with folder() as where:
                code, _, err = self.run_program(where, "--inputs", where / "in.st", inputs=inputs)
                self.assertEqual(code, 1)
                self.assertIn(message, err)

    def test_random_inputs_repeat(self):
        with folder() as where:
            first = self.run_program(where, "--random", "3")
            self.assertEqual(first[0], 0, first[2])
            self.assertEqual(first, self.run_program(where, "--random", "3"))
            self.assertNotEqual(first, self.run_program(where, "--random", "4"))

    def test_wrong_use(self):
        with folder() as where:
            for flags in ((), ("--corpus", where, where / "m.hlo"), (where / "m.hlo", "--random", "x"),
                          (where / "m.hlo", "--random", "1", "--inputs", where / "in.st"),
                          (where / "m.hlo", "--atol", "-1"),
                          ("--expected-failures", where / "list", where / "m.hlo"), (where / "m.hlo", "--form", "xml"),
                          (where / "absent.hlo",), ("--corpus", where / "absent")):
                code, out, err = xlad("eval", *flags)
                self.assertIn(code, (1, 2), flags)
                self.assertTrue(err.strip(), flags)
                self.assertEqual(out, "", flags)

    def test_omitted_constants_are_reported(self):
        with folder() as where:
            (where / "m.hlo").write_text("HloModule m\n\nENTRY e {\n  ROOT c = f32[3] constant({...})\n}\n")
            code, out, err = xlad("eval", where / "m.hlo")
            self.assertEqual((code, out), (0, "out.0 f32[3] 0 0 0\n"))
            self.assertIn("omits the values of 1 constant (", err)
            code, out, err = xlad("compile", where / "m.hlo", "--emit", "steps")
            self.assertEqual(code, 0, err)
            self.assertIn("omits the values of 1 constant (", err)

    def test_a_parameter_that_is_a_tuple_is_refused(self):
        with folder() as where:
            (where / "m.hlo").write_text("HloModule m\n\nENTRY e {\n  ROOT p = (f32[1], f32[2]) parameter(0)\n}\n")
            code, _, err = xlad("eval", where / "m.hlo", "--random", "1")
            self.assertEqual(code, 1, err)
            self.assertIn("parameter 0 (p): found shape (f32[1], f32[2]), expected an array; make each element a "
                          "parameter", err)

    def test_devices(self):
        text = ("HloModule m, num_partitions=2\n\nadd { x = f32[] parameter(0)\n y = f32[] parameter(1)\n"
                " ROOT r = f32[] add(x, y) }\n\nENTRY e {\n  p = f32[1] parameter(0)\n  ROOT r = f32[1] all-reduce(p),"
                " channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=add\n}\n")
        inputs = {f"p{d}.in.0": ("F32", [1], struct.pack("<f", d + 1)) for d in range(2)}
        with folder() as where:
            flags = ("--inputs", where / "in.st", "--devices", "2")
            code, out, err = self.run_program(where, *flags, program=text, inputs=inputs)
            self.assertEqual((code, out), (0, "p0.out.0 f32[1] 3\np1.out.0 f32[1] 3\n"), err)

    def test_an_array_that_no_memory_can_hold_is_refused(self):
        sizes = ",".join(["1000000"] * 3)
        program = f"HloModule m\nENTRY e {{\n  p = f32[{sizes}] parameter(0)\n  ROOT n = f32[{sizes}] negate(p)\n}}\n"
        with folder() as where:
            (where / "large.hlo").write_text(program)
            code, out, err = xlad("eval", where / "large.hlo")
            self.assertEqual((code, out), (1, ""))
            self.assertEqual(err, "xlad: error: out of memory: the arrays of the program may be too large for this "
                             "machine\n")

    def test_corpus_and_expected_failures(self):
        with folder() as where:
            manifest = ""
            for name, result in (("good", -2.0), ("bad", 2.0)):
                (where / f"{name}.hlo").write_text(
                    "HloModule m\nENTRY e { p = f32[1] parameter(0)\n ROOT n = f32[1] negate(p) }")
                save(where / f"{name}.safetensors", {"in.0": ("F32", [1], struct.pack("<f", 2)),
                                                     "out.0": ("F32", [1], struct.pack("<f", result))})
                manifest += json.dumps({"name": name, "params": ["f32[1]"], "results": ["f32[1]"],
                                        "compare": [{"kind": "eq"}]}) + "\n"
            (where / "manifest.jsonl").write_text(manifest)
            (where / "bad.list").write_text("# comment\nbad  # by intention\n")
            (where / "good.list").write_text("good  # wrongly\nbad  # by intention\n")
            for form in ("text", "proto"):
                code, out, err = xlad("eval", "--corpus", where, "--form", form, "--format", "json")
                report = json.loads(out)
                self.assertEqual((code, report["passed"], report["failed"]), (1, 1, 1), err)
                self.assertEqual([c["name"] for c in report["cases"] if not c["passed"]], ["bad"])
            run = ("eval", "--corpus", where, "--format", "json", "--expected-failures")
            self.assertEqual(xlad(*run, where / "bad.list")[0], 0)
            code, out, _ = xlad(*run, where / "good.list")
            self.assertEqual(code, 1)
            failed = [c for c in json.loads(out)["cases"] if not c["passed"]]
            self.assertEqual([c["name"] for c in failed], ["good"])
            self.assertIn("remove it from the list", failed[0]["message"])
            self.assertEqual(xlad(*run, where / "absent.list")[0], 1)


if __name__ == "__main__":
    unittest.main()

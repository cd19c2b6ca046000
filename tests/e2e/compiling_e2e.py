"""Compilation: op by op, checks of floats, kernel schedules, the memory limit, the profile, tuning, cached kernels."""

import concurrent.futures
import json
import math
import re
import shutil
import struct
import unittest

from harness import OWN_EXAMPLES, cluster, folder, wait_for, xlad

JOB = OWN_EXAMPLES / "spiral_mlp"
OPTIMIZED = ("--compile-tier", "optimized")  # Only optimized code is cached.

# The program computes the sum of 2 log(w - t). One element is NaN from step 3 on.
FADING = """HloModule fading
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY e {
  w = f32[8] parameter(0), sharding={devices=[2]<=[2]}
  t = s32[] parameter(1)
  f = f32[] convert(t)
  ff = f32[8] broadcast(f), dimensions={}
  d = f32[8] subtract(w, ff)
  l = f32[8] log(d), metadata={op_name="log" source_file="fading.py" source_line=7}
  twice = f32[8] add(l, l)
  zero = f32[] constant(0)
  loss = f32[] reduce(twice, zero), dimensions={0}, to_apply=add
  ROOT r = (f32[8], f32[]) tuple(w, loss)
}
"""

# Sums of squares, which are divided into 256 sums of 256 squares. The two fusions that compute these have the same
# kernel, although the arrays have other dimensions.
SQUARES = """HloModule squares
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY e {
  x = f32[128,512] parameter(0)
  y = f32[512,128] parameter(1)
  zero = f32[] constant(0)
  xx = f32[128,512] multiply(x, x)
  yy = f32[512,128] multiply(y, y)
  s = f32[] reduce(xx, zero), dimensions={0,1}, to_apply=add
  t = f32[] reduce(yy, zero), dimensions={0,1}, to_apply=add
  ROOT r = (f32[], f32[]) tuple(s, t)
}
"""


def write_fading(where):
    """Writes the job directory of FADING: the element on the second device is the first to become NaN."""
    values = struct.pack("<8f", 100, 100, 100, 100, 100, 2.5, 100, 100)
    header = json.dumps({"w": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}).encode()
    (where / "state.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + values)
    (where / "step.hlo").write_text(FADING)
    state = {"index": 0, "name": "w", "shape": "f32[8]", "kind": "state"}
    manifest = {
        "name": "fading", "steps": 6,
        "parameters": [state, {"index": 1, "name": "t", "shape": "s32[]", "kind": "step"}],
        "results": [{**state, "feeds": 0}, {"index": 1, "name": "loss", "shape": "f32[]", "kind": "loss"}],
        "meshes": [{"name": "two", "axes": {"axis_0": 2}, "files": ["step.hlo"]}],
    }
    (where / "manifest.json").write_text(json.dumps(manifest))


def changed_job(where):
    """Writes a copy of JOB in which one op is replaced by another op."""
    shutil.copytree(JOB, where)
    for proto in where.glob("*.pb"):
        proto.unlink()
    path = where / "step.single.hlo"
    text, count = re.subn(r" negate\(", " abs(", path.read_text(), count=1)
    assert count == 1
    path.write_text(text)
    return where


def kernels_in(cache):
    return {path: path.read_bytes() for path in (cache / "kernels/own").glob("??/*")}


def forget_executables(cache):
    for path in cache.iterdir():
        if path.is_file():
            path.unlink()


class Compiling(unittest.TestCase):
    def run_ok(self, *args):
        code, out, err = xlad(*args)
        self.assertEqual(code, 0, err)
        return out

    def curve(self, where, *flags, job=JOB, name="curve.json"):
        self.run_ok("run", job, "--steps", 12, "--curve", where / name, *flags)
        return json.loads((where / name).read_text())["loss"]

    def test_op_by_op_has_the_same_losses(self):
        with folder() as where:
            for mesh in ([], ["--mesh", "dp=2,tp=2"]):
                compiled = self.curve(where, *mesh)
                for loss, other in zip(compiled, self.curve(where, *mesh, "--executor", "op-by-op"), strict=True):
                    self.assertAlmostEqual(loss, other, delta=2e-6)  # Sums may be computed in another order.
        optimized = self.run_ok("compile", JOB, "--emit", "optimized", "--executor", "op-by-op")
        self.assertNotIn("fusion(", optimized)

    def test_the_first_nan_is_named(self):
        with folder() as where:
            write_fading(where)
            flags = ["--mesh", "axis_0=2", "--workers", 2]
            self.assertEqual(xlad("run", where, *flags, "--executor", "op-by-op")[0], 0)
            code, _, err = xlad("run", where, *flags, "--executor", "op-by-op", "--check-numerics")
            self.assertEqual(code, 1, err)
            self.assertRegex(err, r"step 3: l \(fading.py:7\): device 1: found NaN in floating-point result 0, "
                                  r"element 1, expected a number; the operands are finite")
            code, _, err = xlad("run", where, *flags, "--check-numerics")
            self.assertEqual(code, 2)
            self.assertIn("found --executor compiled, expected op-by-op", err)

    def test_intended_nans_are_accepted(self):
        check = ["--executor", "op-by-op", "--check-numerics"]
        # The program's gather fills missing values with NaN.
        self.run_ok("run", JOB, "--steps", 2, "--mesh", "dp=2,tp=2", *check)
        with folder() as where:
            write_fading(where)
            path, flags = where / "step.hlo", [where, "--mesh", "axis_0=2", *check]
            fading = path.read_text()
            finite = "m = pred[8] compare(w, w), direction=EQ\n  z = f32[] constant(1)\n  " \
                     "ones = f32[8] broadcast(z), dimensions={}\n  " \
                     "l = f32[8] select(m, d, ones), metadata={source_file=\"fill.py\" source_line=3}"
            path.write_text(re.sub(r"l = f32.*", finite, fading))
            state = where / "state.safetensors"
            values = bytearray(state.read_bytes())
            values[-4:] = struct.pack("<f", math.nan)  # The missing value is replaced.
            state.write_bytes(values)
            self.run_ok("run", *flags)
            # The constant that is selected in place of the missing value reaches the loss.
            path.write_text(path.read_text().replace("constant(1)", "constant(nan)"))
            code, _, err = xlad("run", *flags)
            self.assertEqual(code, 1, err)
            self.assertIn("step 0: found loss = nan, expected a finite number", err)
            values[-4:] = struct.pack("<f", 1)
            state.write_bytes(values)
            path.write_text(path.read_text().replace("direction=EQ", "direction=NE"))
            code, _, err = xlad("run", *flags)
            self.assertEqual(code, 1, err)
            self.assertRegex(err, r"step 0: l[.\w]* \(fill.py:3\): device \d: found NaN in floating-point result 0")

    def test_only_changed_kernels_are_compiled(self):
        with folder() as where:
            cache = where / "cache"
            changed = changed_job(where / "changed")
            usual = self.curve(where, "--cache", "off"), self.curve(where, "--cache", "off", job=changed)
            self.assertNotEqual(*usual)
            self.assertEqual(self.curve(where, *OPTIMIZED, "--cache", cache), usual[0])
            before = kernels_in(cache)
            self.assertEqual(self.curve(where, *OPTIMIZED, "--cache", cache, job=changed), usual[1])
            after = kernels_in(cache)
            self.assertLessEqual(before.items(), after.items())
            self.assertGreaterEqual(len(after) - len(before), 1)
            self.assertLess(len(after) - len(before), len(before))
            forget_executables(cache)
            self.assertEqual(self.curve(where, *OPTIMIZED, "--cache", cache), usual[0])
            self.assertEqual(kernels_in(cache), after)

    def test_damaged_kernels_are_compiled_again(self):
        with folder() as where:
            cache = where / "cache"
            usual = self.curve(where, *OPTIMIZED, "--cache", cache)
            kernels = kernels_in(cache)
            self.assertTrue(kernels)
            others = list(kernels.values())
            for damage in (lambda old: old[:-1], lambda old: b"",
                           lambda old: old[:-9] + bytes([old[-9] ^ 4]) + old[-8:],
                           lambda old: others[others.index(old) - 1]):
                for path, old in kernels.items():
                    path.write_bytes(damage(old))
                forget_executables(cache)
                self.assertEqual(self.curve(where, *OPTIMIZED, "--cache", cache), usual)
                self.assertEqual(kernels_in(cache), kernels)

    def test_two_processes_share_kernels(self):
        with folder() as where, concurrent.futures.ThreadPoolExecutor(4) as pool:
            usual = self.curve(where, "--cache", "off")
            curves = [pool.submit(self.curve, where, *OPTIMIZED, "--cache", where / "cache", name=f"curve{i}.json")
                      for i in range(4)]
            self.assertEqual([curve.result() for curve in curves], [usual] * 4)
            self.assertFalse([path for path in kernels_in(where / "cache") if path.suffix == ".tmp"])

    def test_schedules_are_printed_changed_and_run(self):
        with folder() as where:
            path = where / "schedules.txt"
            own = self.run_ok("compile", JOB, "--emit", "schedules")
            self.assertIn("kernel ", own)
            usual = self.curve(where)
            path.write_text(re.sub(r"bind (.*) \d+", r"bind \1 5", own))
            self.assertEqual(self.curve(where, "--schedules", path), usual)
            changed = self.run_ok("compile", JOB, "--emit", "schedules", "--schedules", path)
            self.assertRegex(changed, r"bind .* 5\n")
            path.write_text(own + "spilt c 3\n")
            code, _, err = xlad("run", JOB, "--schedules", path)
            self.assertEqual(code, 1)
            self.assertRegex(err, rf"{re.escape(str(path))}: schedules: line \d+: found \"spilt c 3\", expected split")
            path.write_text("kernel 0123456789abcdef x\norder r\n")
            code, _, err = xlad("run", JOB, "--schedules", path)
            self.assertEqual(code, 1)
            self.assertIn("schedules: line 1: found kernel 0123456789abcdef, expected one of the program's", err)

    def test_fusions_with_the_same_kernel_share_a_schedule(self):
        with folder() as where:
            program, path = where / "squares.hlo", where / "schedules.txt"
            program.write_text(SQUARES)
            own = self.run_ok("compile", program, "--emit", "schedules")
            self.assertRegex(own, r"# xk\d+_\w+: \S+ has the kernel of xk\d+_\w+\n")
            path.write_text(own)
            self.assertEqual(self.run_ok("compile", program, "--emit", "schedules", "--schedules", path), own)
            tuned = json.loads(self.run_ok("tune", program, "--budget", "100ms", "--json", "-o", where / "mine.txt"))
            hashes = [kernel["kernel"] for kernel in tuned["kernels"]]
            self.assertTrue(hashes)
            self.assertEqual(len(hashes), len(set(hashes)))

    def test_tuned_schedules_are_found_and_keep_the_bits(self):
        with folder() as where:
            cache = ["--cache", where / "cache"]
            usual = self.curve(where, "--cache", "off")
            tuned = json.loads(self.run_ok("tune", JOB, "--budget", "1s", "--json", *cache))
            self.assertTrue(tuned["kernels"])
            for kernel in tuned["kernels"]:
                self.assertGreater(kernel["candidates"], 1)
                self.assertLessEqual(kernel["tuned_ns"], kernel["usual_ns"])
            self.assertEqual(self.curve(where, *cache), usual)
            self.run_ok("tune", JOB, "--budget", "1s", "-o", where / "mine.txt")
            self.assertEqual(self.curve(where, "--cache", "off", "--schedules", where / "mine.txt"), usual)
            code, _, err = xlad("tune", JOB, "--budget", "1")
            self.assertEqual(code, 2, err)

    def test_the_memory_limit_names_the_largest_values(self):
        code, _, err = xlad("run", JOB, "--memory-limit", "100KB")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"memory limit: found a step that needs \d+ bytes on a device \(parameters \d+, results "
                              r"\d+, constants \d+, temporaries \d+\), expected at most 102400; the most temporaries "
                              r"are needed at \S+ \(train\.py:\d+.*\), operation \d+ of \d+: \d+ bytes; the largest "
                              r"values: ")
        self.run_ok("run", JOB, "--steps", 2, "--memory-limit", "1GB")
        self.assertEqual(xlad("compile", JOB, "--memory-limit", "100KB")[0], 1)

    def test_what_a_memory_limit_changes_is_reported(self):
        code, _, err = xlad("run", JOB, "--memory-limit", "100KB")
        self.assertEqual(code, 1)
        least = int(re.search(r"It needs at least (\d+) bytes if values are computed again", err)[1])
        note = (rf"because of the memory limit, the step needs {least} bytes on a device instead of \d+; "
                r"\d+ operations are")
        code, _, err = xlad("run", JOB, "--steps", 2, "--memory-limit", least)
        self.assertEqual(code, 0, err)
        self.assertRegex(err, "xlad: note: " + note)
        self.assertEqual(err.count("because of the memory limit"), 1)
        with cluster(1, 1) as made:
            job = made.submit(JOB, "--steps", 2, "--memory-limit", least)
            wait_for(lambda: made.job(job)["state"] == "SUCCEEDED", "the job to end")
            self.assertRegex(made.job(job)["warnings"][0], note)
            for command in ("why", "logs"):
                code, out, err = xlad(command, job, "--coordinator", made.address)
                self.assertEqual(code, 0, err)
                self.assertRegex(out, note)

    def test_the_memory_limit_counts_all_shards_of_a_device(self):
        code, _, err = xlad("run", JOB, "--mesh", "dp=8", "--memory-limit", 1)
        self.assertEqual(code, 1)
        shard = int(re.search(r"needs (\d+) bytes on a device", err)[1])
        flags = [JOB, "--mesh", "dp=8", "--steps", 2, "--mode", "canonical", "--memory-limit", 2 * shard]
        self.run_ok("run", *flags, "--devices", 4)
        code, _, err = xlad("run", *flags, "--devices", 2)
        self.assertEqual(code, 1)
        self.assertIn(f"memory limit: found 4 logical shards on a device that need {shard} bytes each, "
                      f"expected at most {2 * shard} together", err)

    def test_the_profile_has_calls_work_and_lines(self):
        profile = json.loads(self.run_ok("run", JOB, "--steps", 7, "--mesh", "dp=2,tp=2", "--profile", "--json"))
        self.assertEqual((profile["steps"], profile["devices"]), (7, 4))
        self.assertGreater(profile["copy_bytes_per_s"], 0)
        rows = profile["kernels"]
        self.assertTrue({"kernel", "dot", "collective"} <= {row["kind"] for row in rows})
        for row in rows:
            self.assertEqual(row["calls"] % (7 * 4), 0, row)
            self.assertGreater(row["ms"], 0, row)
            if row["kind"] == "dot":
                # Times, bytes and operations are sums over the devices, but the machine's rates are shared by them.
                least_s = max(row["bytes"] / profile["copy_bytes_per_s"], row["flops"] / profile["dot_flops_per_s"])
                self.assertAlmostEqual(row["roofline_share"] / (4 * least_s / row["ms"] * 1e3), 1, 6, row)
        self.assertEqual(rows, sorted(rows, key=lambda row: -row["ms"]))
        self.assertTrue(any(row["source"] for row in rows))
        text = self.run_ok("run", JOB, "--steps", 3, "--profile")
        self.assertIn("this machine: ", text)
        # The first product of the network: 192 x 8 times 8 x 192.
        single = json.loads(self.run_ok("run", JOB, "--steps", 3, "--profile", "--json"))
        self.assertIn(2.0 * 192 * 8 * 192 * 3, [row["flops"] for row in single["kernels"] if row["kind"] == "dot"])
        code, _, err = xlad("run", JOB, "--profile", "--workers", 2)
        self.assertEqual(code, 2, err)


# Names and sources are any bytes in HLO, but the string fields of protocol buffers are UTF-8.
class BytesThatAreNotUtf8(unittest.TestCase):
    def changed(self, where, pattern, replacement):
        """Writes a copy of JOB in which `pattern` is replaced in the program for eight devices."""
        shutil.copytree(JOB, where / "job")
        for proto in (where / "job").glob("*.pb"):
            proto.unlink()
        path = where / "job/step.dp8.hlo"
        program, count = re.subn(pattern, replacement, path.read_bytes())
        self.assertGreater(count, 0)
        path.write_bytes(program)
        return where / "job"

    def test_a_program_with_such_names_and_sources_trains(self):
        for bytes_of_name in (b"\\\\377", b"\xff", b"\xc3"):
            with self.subTest(bytes_of_name), folder() as where:
                metadata = b'metadata={source_file="' + bytes_of_name + b'.py" source_line=3 op_name="' + bytes_of_name
                job = self.changed(where, rb'metadata=\{op_name="', metadata)
                code, _, err = xlad("run", job, "--mesh", "dp=8", "--device", "cpu:8", "--workers", 2, "--steps", 5,
                                    "--trace", where / "trace.json")
                self.assertEqual(code, 0, err)
                self.assertIn("SUCCEEDED after 5 of 5 steps", err)
                self.assertIn("\ufffd.py:3", (where / "trace.json").read_text())

    def test_the_error_of_a_build_names_them(self):
        with folder() as where:
            job = self.changed(where, rb"negate\((%[^)]*)\)", rb'custom-call(\1), custom_call_target="a\\377b"')
            code, _, err = xlad("run", job, "--mesh", "dp=8", "--device", "cpu:8", "--steps", 5)
            self.assertEqual(code, 1)
            self.assertIn("custom-call", err)
            self.assertIn("a\ufffdb", err)
            self.assertIn("expected", err)


if __name__ == "__main__":
    unittest.main()

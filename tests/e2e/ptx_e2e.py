"""PTX of the examples: ptxas assembles every kernel for every GPU model, and kernels have no undefined symbols. The
PTX of important kernels is that of golden files.

ptxas is from PyPI's nvidia-cuda-nvcc in build/venv, from XLAD_PTXAS, or from the PATH. The tests do not need a GPU.
"""

import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from harness import ALL_CASES, OWN_EXAMPLES, REPO, XLAD, folder, mesh_text, xlad

sys.path.insert(0, str(REPO / "bench" / "gpu"))

from ptxas_corpus import find_ptxas  # noqa: E402

GPUS = ("sm_80", "sm_90")
PTXAS = find_ptxas()


def examples():
    """Yields (example, mesh, GPU model) for every example: all meshes for all models if XLAD_ALL_CASES is set.
    Otherwise, the first example has its first mesh for one model and its last mesh for the other, and each of the other
    examples has its last mesh for one of the models, in turn."""
    folders = [OWN_EXAMPLES / "spiral_mlp"]
    if "XLAD_EXAMPLES" in os.environ:
        folders += sorted(path.parent for path in pathlib.Path(os.environ["XLAD_EXAMPLES"]).glob("*/manifest.json"))
    for number, path in enumerate(folders):
        meshes = [mesh["axes"] for mesh in json.loads((path / "manifest.json").read_text())["meshes"]]
        if ALL_CASES:
            cases = itertools.product(meshes, GPUS)
        else:
            cases = zip((meshes[0], meshes[-1]), GPUS) if number == 0 else [(meshes[-1], GPUS[number % 2])]
        for axes, gpu in cases:
            yield path, axes, gpu


class PtxTest(unittest.TestCase):
    def assemble(self, program, gpu, where, *flags, level="-O0"):
        """Compiles a program, assembles its PTX and returns it. With -O0, ptxas checks syntax and types in part of
        the time, but failures of its optimizer and the resources that optimized code needs do not show."""
        ptx, cubin = where / f"{gpu}.ptx", where / f"{gpu}.cubin"
        code, _, err = xlad("compile", program, "--target", f"nvptx-{gpu}", "--emit", "ptx", "-o", ptx, *flags)
        self.assertEqual(code, 0, err)
        done = subprocess.run([PTXAS, level, f"-arch={gpu}", ptx, "-o", cubin], capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace")[:2000])
        text = ptx.read_text()
        self.assertNotRegex(text, r"(?m)^\s*\.extern \.func")
        return text

    @unittest.skipIf(PTXAS is None, "no ptxas: pip install nvidia-cuda-nvcc-cu12 in build/venv, or set XLAD_PTXAS")
    def test_ptxas_assembles_every_kernel_of_every_example(self):
        for path, axes, gpu in examples():
            with self.subTest(example=path.name, mesh=axes, gpu=gpu), folder() as where:
                mesh = ["--mesh", mesh_text(axes)] if axes else []
                is_small = path.name == "spiral_mlp"  # Optimizing the others takes too long by default.
                text = self.assemble(path, gpu, where, *mesh, level="-O3" if ALL_CASES or is_small else "-O0")
                self.assertRegex(text, r"\.entry xk\d+_")

    @unittest.skipIf(PTXAS is None, "no ptxas: pip install nvidia-cuda-nvcc-cu12 in build/venv, or set XLAD_PTXAS")
    def test_ptxas_assembles_the_math_functions(self):
        unary = ("exponential exponential-minus-one log log-plus-one tanh erf logistic sqrt rsqrt cbrt sine cosine tan "
                 "sinh cosh asin acos atan asinh acosh atanh floor ceil round-nearest-afz round-nearest-even").split()
        for number, kind in enumerate(("f64", "f32", "bf16", "f16")):
            shape = f"{kind}[100]"
            lines = [f"  p0 = {shape} parameter(0)", f"  p1 = {shape} parameter(1)"]
            names = []
            for i, opcode in enumerate(unary):
                lines.append(f"  u{i} = {shape} {opcode}(p0)")
                names.append(f"u{i}")
            for i, opcode in enumerate(("power", "atan2", "remainder", "maximum", "minimum", "divide")):
                lines.append(f"  b{i} = {shape} {opcode}(p0, p1)")
                names.append(f"b{i}")
            shapes = ", ".join([shape] * len(names))
            lines.append(f"  ROOT all = ({shapes}) tuple({', '.join(names)})")
            with self.subTest(type=kind), folder() as where:
                program = where / "math.hlo"
                program.write_text("HloModule math\nENTRY main {\n" + "\n".join(lines) + "\n}\n")
                # By default, bf16 is assembled for sm_90, which has more instructions for it.
                for gpu in GPUS if ALL_CASES else [GPUS[(number + 1) % 2]]:
                    self.assemble(program, gpu, where)

    @unittest.skipIf(PTXAS is None, "no ptxas: pip install nvidia-cuda-nvcc-cu12 in build/venv, or set XLAD_PTXAS")
    def test_ptxas_assembles_floats_of_8_bits(self):
        lines, results = ["  x = f32[64,64] parameter(0)"], []
        for kind in "f8e5m2 f8e4m3 f8e3m4 f8e4m3fn f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz f8e8m0fnu".split():
            shape = f"{kind}[64,64]"
            lines += [f"  {kind}.a = {shape} convert(x)",
                      f"  {kind}.b = {shape} multiply({kind}.a, {kind}.a)",
                      f"  {kind}.c = f32[64,64] convert({kind}.b)",
                      f"  {kind}.d = f32[64,64] dot({kind}.a, {kind}.b), lhs_contracting_dims={{1}}, "
                      "rhs_contracting_dims={0}"]
            results += [f"{kind}.c", f"{kind}.d"]
        lines.append(f"  ROOT all = ({', '.join(['f32[64,64]'] * len(results))}) tuple({', '.join(results)})")
        with folder() as where:
            program = where / "f8.hlo"
            program.write_text("HloModule f8\nENTRY main {\n" + "\n".join(lines) + "\n}\n")
            self.assertRegex(self.assemble(program, GPUS[0], where), r"\.entry xk\d+_")


ADD = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }"
SOFTMAX = (REPO / "tests/compiled/testdata/softmax.hlo").read_text()


def binary(opcode):
    shape = "f32[64,100]"
    return f"ENTRY main {{ x = {shape} parameter(0) y = {shape} parameter(1) ROOT r = {shape} {opcode}(x, y) }}"


class StructureTest(unittest.TestCase):
    """Instructions that the code of important kernels must or must not contain."""

    def ptx(self, body):
        with folder() as where:
            program = where / "program.hlo"
            program.write_text(body if "HloModule" in body else f"HloModule program\n{ADD}\n{body}\n")
            code, text, err = xlad("compile", program, "--target", "nvptx-sm_90", "--emit", "ptx")
            self.assertEqual(code, 0, err)
        self.assertIn(".target sm_90", text)
        self.assertEqual(len(re.findall(r"\.entry", text)), 1, text)
        self.assertNotIn("atom.", text)  # The order of atomic additions is not fixed.
        return text

    def expect(self, body, present=(), absent=(), counts=()):
        text = self.ptx(body)
        for pattern in present:
            self.assertRegex(text, pattern)
        for pattern in absent:
            self.assertNotRegex(text, pattern)
        for pattern, count in counts:
            self.assertEqual(len(re.findall(pattern, text)), count, pattern)

    def test_loops_of_sorts_are_not_unrolled(self):
        """ptxas takes up to 30 s for sm_80 if it unrolls the loops of all passes."""
        text = self.ptx("less { x = f32[] parameter(0) y = f32[] parameter(1) ROOT l = pred[] compare(x, y), "
                        "direction=LT }\nENTRY main { x = f32[1000] parameter(0) ROOT s = f32[1000] sort(x), "
                        "dimensions={0}, to_apply=less }")
        blocks = re.split(r"(?m)^(?=\$L\w+:)", text)[1:]
        loops = [block for block in blocks if re.search(rf"bra\s+{re.escape(block.partition(':')[0])};", block)]
        self.assertGreater(len(loops), 10)
        for block in loops:
            self.assertIn('.pragma "nounroll";', block)

    def test_elementwise_kernels_read_and_write_once_in_registers(self):
        self.expect(binary("add"), [r"\.reqntid 256, 1, 1", r"add\.\w*\.?f32"], [r"\.local", r"\.shared", "bar.sync"],
                    [(r"ld\.global", 2), (r"st\.global", 1)])
        self.expect(binary("divide"), [r"div\.rn\.f32"], [r"\.local"])

    def test_row_reductions_are_trees_in_shared_memory(self):
        body = """ENTRY main {
          x = f32[64,1024] parameter(0)
          zero = f32[] constant(0)
          ROOT s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
        }"""
        self.expect(body, [r"\.reqntid 64, 1, 1", r"ld\.shared\.f32", r"st\.shared\.f32"], [r"\.local"],
                    [("bar.sync", 6)])

    def test_softmax_reads_its_row_from_memory_and_holds_exponentials_in_shared_memory(self):
        self.expect(SOFTMAX, [r"\.reqntid 64, 1, 1", "bar.sync", r"ld\.shared\.f32", r"st\.global\.f32"], [r"\.local"])

    def test_column_reductions_have_a_thread_for_each_column(self):
        body = """ENTRY main {
          x = f32[64,1024] parameter(0)
          zero = f32[] constant(0)
          ROOT s = f32[1024] reduce(x, zero), dimensions={0}, to_apply=add
        }"""
        self.expect(body, [r"\.reqntid 256, 1, 1"], [r"\.local", "bar.sync"], [(r"st\.global", 1)])

    def test_transposes_move_padded_tiles_through_shared_memory(self):
        body = "ENTRY main { x = f32[96,160] parameter(0) ROOT t = f32[160,96] transpose(x), dimensions={1,0} }"
        self.expect(body, [r"\.shared .*\[4224\]"], [r"\.local"], [("bar.sync", 1)])

    def test_scatters_have_a_thread_for_each_column(self):
        body = """ENTRY main {
          x = f32[20,64] parameter(0)
          i = s32[50,1] parameter(1)
          u = f32[50,64] parameter(2)
          ROOT s = f32[20,64] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
              scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
        }"""
        self.expect(body, [r"\.reqntid 64, 1, 1", r"ld\.global"], ["bar.sync"])

    def test_dots_that_are_not_library_ops_have_a_thread_for_each_element(self):
        for kind in ("s32", "s64", "c64"):
            body = f"""ENTRY main {{
              x = {kind}[64,48] parameter(0)
              y = {kind}[48,64] parameter(1)
              ROOT d = {kind}[64,64] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
            }}"""
            with self.subTest(type=kind):
                threads = int(re.search(r"\.reqntid (\d+), 1, 1", self.ptx(body))[1])
                self.assertGreaterEqual(threads, 64)
                self.expect(body, absent=[r"\.local"])


class GoldenTest(unittest.TestCase):
    """The complete PTX of important kernels, one per form of kernel. With XLAD_UPDATE_GOLDEN=1, the test writes the
    current PTX into the files. Review the difference before committing."""

    maxDiff = 4000

    def test_ptx_of_important_kernels(self):
        programs = sorted((REPO / "tests/testdata/ptx").glob("*.hlo"))
        self.assertEqual(len(programs), 13)
        for program in programs:
            with self.subTest(kernel=program.stem):
                code, text, err = xlad("compile", program, "--target", "nvptx-sm_90", "--emit", "ptx")
                self.assertEqual(code, 0, err)
                golden = program.with_suffix(".ptx")
                if "XLAD_UPDATE_GOLDEN" in os.environ:
                    golden.write_text(text)
                self.assertEqual(text, golden.read_text())


class LibraryKernelsTest(unittest.TestCase):
    """The kernels of library ops, which the build compiles from C (runtime/devices/cuda)."""

    # The numbers of instructions: products of tensor cores, barriers, loads of 16 bytes, and stores of 16 bytes.
    DOT_KERNELS = {
        "xlad_dot_mma_bf16_small": (8, 1, 2, 2),
        "xlad_dot_mma_bf16_large": (32, 1, 4, 4),
        "xlad_dot_mma_f16_small": (8, 1, 2, 2),
        "xlad_dot_mma_f16_large": (32, 1, 4, 4),
    }

    def ptx(self, name):
        return pathlib.Path(XLAD).parent.parent / "runtime/devices/cuda" / f"{name}.ptx"

    def kernels(self, name):
        """Yields the name and the code of every kernel."""
        for text in self.ptx(name).read_text().split(".entry ")[1:]:
            yield text[:text.index("(")], text

    @unittest.skipIf(PTXAS is None, "no ptxas: pip install nvidia-cuda-nvcc-cu12 in build/venv, or set XLAD_PTXAS")
    def test_ptxas_assembles_the_kernels_without_spills(self):
        for name in ("library_kernels", "gpu_attention_kernels"):
            for gpu in GPUS:
                with self.subTest(kernels=name, gpu=gpu), folder() as where:
                    done = subprocess.run([PTXAS, f"-arch={gpu}", "-v", self.ptx(name), "-o", where / "out.cubin"],
                                          capture_output=True, text=True, timeout=300)
                    self.assertEqual(done.returncode, 0, done.stderr[:2000])
                    count = len(list(self.kernels(name)))
                    frames = re.findall(r"0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", done.stderr)
                    self.assertEqual(len(frames), count, done.stderr)
                    registers = [int(number) for number in re.findall(r"Used (\d+) registers", done.stderr)]
                    self.assertEqual(len(registers), count, done.stderr)
                    # The registers of 256 threads, of the 65,536 of a multiprocessor. ptxas 12.9 uses 170 or fewer.
                    self.assertLessEqual(max(registers), 200, done.stderr)

    def test_products_of_bf16_and_f16_use_tensor_cores(self):
        found = {}
        for name, code in self.kernels("library_kernels"):
            kind = "bf16" if "bf16" in name else "f16"
            counts = (len(re.findall(rf"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.{kind}\.{kind}\.f32", code)),
                      code.count("bar.sync"), len(re.findall(r"ld\.global\.v4\.u32", code)),
                      len(re.findall(r"st\.shared\.v4\.u32", code)))
            self.assertEqual("mma.sync" in code, "mma" in name)
            if "mma" in name:
                found[name] = counts
                self.assertNotIn(".local", code)
        self.assertEqual(found, self.DOT_KERNELS)

    def test_attention_uses_tensor_cores(self):
        code = dict(self.kernels("gpu_attention_kernels"))["xlad_attention"]
        for kind in ("bf16", "f16"):
            # Four tiles of scores, which are computed at two places, and a tile of each of the other two products.
            self.assertEqual(code.count(f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"), 10)
        self.assertNotIn(".local", code)


class TargetTest(unittest.TestCase):
    def refused(self, *args, words):
        code, out, err = xlad("compile", OWN_EXAMPLES / "spiral_mlp", *args)
        self.assertIn(code, (1, 2))
        self.assertEqual(out, "")
        for word in words:
            self.assertIn(word, err)

    def test_targets_that_make_no_sense_are_refused(self):
        self.refused("--target", "nvptx-sm_9", words=["found \"nvptx-sm_9\"", "nvptx-sm_90", "did you mean"])
        self.refused("--emit", "ptx", words=["--emit ptx", "found no --target", "nvptx-sm_80"])
        self.refused("--target", "nvptx-sm_90", "--cpu", "znver3", words=["--target and --cpu"])

    def test_kernels_and_schedules_of_a_gpu_have_a_tile_for_each_row(self):
        code, schedules, err = xlad("compile", OWN_EXAMPLES / "spiral_mlp", "--target", "nvptx-sm_90", "--emit",
                                    "schedules")
        self.assertEqual(code, 0, err)
        for line in schedules.splitlines():
            if line.startswith("bind "):
                self.assertTrue(line.endswith(" 1"), line)


if __name__ == "__main__":
    unittest.main()

// Compile end to end: executables of small programs and of the example steps, and errors.
#include "compiler/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file_system.h"
#include "base/kernel_abi.h"
#include "compiler/passes/passes.h"
#include "compiler/report.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"

namespace xlad::compiler {
namespace {

CompileRequest RequestFor(const std::string& text) {
  auto module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  CompileRequest request;
  auto bytes = hlo::SerializeProto(**module);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  request.set_partitioned_module(*bytes);
  return request;
}

CompileRequest RequestFor(const std::string& text, const char* device_kind, const char* triple) {
  CompileRequest request = RequestFor(text);
  request.mutable_target()->set_device_kind(device_kind);
  request.mutable_target()->set_triple(triple);
  return request;
}

CompileRequest RequestForGpuWithDots(const std::string& text) {
  CompileRequest request = RequestFor(text, "cuda", "nvptx64-nvidia-cuda");
  request.mutable_target()->set_has_dots_of_f64_and_s8(true);
  return request;
}

constexpr char kSmall[] = R"(HloModule small, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  p = f32[8,8] parameter(0)
  x = f32[4,8] parameter(1)
  d = f32[4,8] dot(x, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[4,8] tanh(d)
  g = f32[8,8] dot(x, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  q = f32[8,8] subtract(p, g)
  ROOT r = (f32[8,8], f32[4,8]) tuple(q, t)
})";

// cuBLASLt computes dots of f64 and s8 on GPUs. Other devices have no library for them.
TEST(Compile, DotsOfF64AndS8AreLibraryOpsOnlyOnGpusThatHaveThem) {
  const std::string text = R"(HloModule m
ENTRY e {
  a = f64[8,16] parameter(0)
  b = f64[16,4] parameter(1)
  c = s8[8,16] parameter(2)
  d = s8[4,16] parameter(3)
  f = f64[8,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = s32[8,4] dot(c, d), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  n = s8[8,4] dot(c, d), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT r = (f64[8,4], s32[8,4], s8[8,4]) tuple(f, s, n)
})";
  struct Case {
    const char *kind, *triple;
    bool has_dots;  // False for the GPU of an older worker.
    size_t library_ops;
  };
  for (const auto& [kind, triple, has_dots, library_ops] :
       {Case{"cpu", "", true, 0}, Case{"gpu_sim", "", true, 0}, Case{"cuda", "nvptx64-nvidia-cuda", true, 2},
        Case{"cuda", "nvptx64-nvidia-cuda", false, 0}}) {
    CompileRequest request = RequestFor(text, kind, triple);
    request.mutable_target()->set_has_dots_of_f64_and_s8(has_dots);
    const auto compilation = CompileToSteps(request);
    ASSERT_TRUE(compilation.ok()) << compilation.status();
    EXPECT_EQ(compilation->steps.library_ops.size(), library_ops) << kind;
    EXPECT_EQ(compilation->steps.steps.size(), 3u) << kind;
  }
}

// The usual form of a product, [m, k] x [k, n], becomes a transpose and a product that cuBLASLt supports for s8.
TEST(Compile, S8DotsForGpusAreContiguousAlongTheSum) {
  const auto compilation = CompileToSteps(RequestForGpuWithDots(R"(HloModule m
ENTRY e {
  a = s8[8,16] parameter(0)
  b = s8[16,12] parameter(1)
  ROOT d = s32[8,12] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})"));
  ASSERT_TRUE(compilation.ok()) << compilation.status();
  ASSERT_EQ(compilation->steps.steps.size(), 2u);
  ASSERT_EQ(compilation->steps.library_ops.size(), 1u);
  const DotOp& dot = compilation->steps.library_ops[0].dot();
  EXPECT_EQ(dot.rhs().dims(0), 12);
  EXPECT_EQ(dot.rhs().dims(1), 16);
  EXPECT_EQ(dot.rhs_contracting(0), 1);
}

// cuBLASLt may refuse any dot, and then the runtime needs a kernel, which has three loops for each kind of dimension.
TEST(Compile, DotsOfF64WithManyDimensionsAreNotLibraryOps) {
  const auto library_ops = [](const std::string& lhs, const std::string& rhs, const std::string& out,
                              const std::string& dims) {
    const auto compilation = CompileToSteps(
        RequestForGpuWithDots(absl::StrCat("HloModule m\nENTRY e {\n  a = f64[", lhs, "] parameter(0)\n  b = f64[", rhs,
                                           "] parameter(1)\n  ROOT d = f64[", out, "] dot(a, b), ", dims, "\n}")));
    EXPECT_TRUE(compilation.ok()) << compilation.status();
    return compilation.ok() ? std::ssize(compilation->steps.library_ops) : -1;
  };
  const std::string sum = "lhs_contracting_dims={1,2,3}, rhs_contracting_dims={2,0,3}";
  EXPECT_EQ(library_ops("2,3,4,5", "4,7,3,5", "2,7", sum), 1);
  EXPECT_EQ(library_ops("2,3,4,5,6", "5,4,6,3", "2", "lhs_contracting_dims={1,2,3,4}, rhs_contracting_dims={3,1,0,2}"),
            0);
  const std::string batch = "lhs_batch_dims={0,1,2,3}, rhs_batch_dims={3,2,1,0}, lhs_contracting_dims={4}, "
                            "rhs_contracting_dims={4}";
  EXPECT_EQ(library_ops("2,3,4,5,6", "5,4,3,2,6", "2,3,4,5", batch), 0);
}

// The kernel of both reductions of x is measured and tested only on CPUs.
TEST(Compile, ReductionsOfTheSameArrayAreOneKernelOnlyOnCpus) {
  const std::string text = R"(HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY e {
  x = f32[64,32] parameter(0)
  y = f32[64,32] parameter(1)
  zero = f32[] constant(0)
  p = f32[64,32] multiply(x, y)
  s = f32[32] reduce(x, zero), dimensions={0}, to_apply=add
  t = f32[32] reduce(p, zero), dimensions={0}, to_apply=add
  ROOT r = (f32[32], f32[32]) tuple(s, t)
})";
  struct Case {
    const char *kind, *triple, *chip;
    size_t steps;
  };
  for (const auto& [kind, triple, chip, steps] :
       {Case{"cpu", "", "", 1}, Case{"cpu", "", "v5e", 2}, Case{"gpu_sim", "", "", 2},
        Case{"cuda", "nvptx64-nvidia-cuda", "", 2}}) {
    CompileRequest request = RequestFor(text, kind, triple);
    request.mutable_target()->set_chip(chip);
    const auto compilation = CompileToSteps(request);
    ASSERT_TRUE(compilation.ok()) << compilation.status();
    EXPECT_EQ(compilation->steps.steps.size(), steps) << kind << " " << chip;
  }
}

TEST(Compile, FillsTheExecutable) {
  auto executable = Compile(RequestFor(kSmall));
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ(executable->name(), "small");
  EXPECT_EQ(executable->kernel_abi_version(), XLAD_KERNEL_ABI_VERSION);
  ASSERT_EQ(executable->parameters_size(), 2);
  EXPECT_TRUE(executable->parameters(0).donated());
  EXPECT_FALSE(executable->parameters(1).donated());
  ASSERT_EQ(executable->results_size(), 2);
  EXPECT_EQ(executable->results(0).buffer().allocation(), executable->parameters(0).buffer().allocation());
  EXPECT_EQ(executable->library_ops_size(), 2);
  EXPECT_EQ(executable->object_code().substr(0, 8), "!<arch>\n");  // Two kernels, each in an object of its own.
  EXPECT_EQ(executable->program_hash().size(), 64u);
  EXPECT_FALSE(executable->target().cpu().empty());
  EXPECT_NE(StepsText(*executable).find("dot 4x8 * 8x8"), std::string::npos) << StepsText(*executable);
  EXPECT_NE(BuffersText(*executable).find("donated"), std::string::npos);
}

bool IsQuick(const std::string& text) {
  CompileOptions options;
  options.quick = true;
  const auto result = CompileWithListings(RequestFor(text), options, false);
  EXPECT_TRUE(result.ok()) << result.status() << text;
  return result.ok() && result->executable.quick();
}

// A loop that computes sin(x) n times, where n is `count`: a computation `run` and what it calls.
std::string Loop(const std::string& count) {
  return absl::StrReplaceAll(hlo::TestText("compiler/testdata/quick_loop.template"), {{"COUNT", count}});
}

// A step may use quickly compiled code only if its running time is bounded.
TEST(Compile, LoopsOfUnknownLengthAreNotCompiledQuickly) {
  const std::string called = R"(ENTRY e {
  n = s32[] parameter(0)
  x = f32[64] parameter(1)
  a = (s32[], f32[64]) tuple(n, x)
  ROOT r = (s32[], f32[64]) call(a), to_apply=run
})";
  const std::string in_branch = R"(skip {
  ROOT a = (s32[], f32[64]) parameter(0)
}
ENTRY e {
  n = s32[] parameter(0)
  x = f32[64] parameter(1)
  p = pred[] parameter(2)
  a = (s32[], f32[64]) tuple(n, x)
  ROOT r = (s32[], f32[64]) conditional(p, a, a), true_computation=skip, false_computation=run
})";
  const std::string in_loop = hlo::TestText("compiler/testdata/quick_loop_in_loop.template");
  for (const std::string& entry : {called, in_branch, in_loop}) {
    EXPECT_TRUE(IsQuick(Loop("constant(5)") + entry)) << entry;
    EXPECT_FALSE(IsQuick(Loop("copy(given)") + entry)) << entry;
  }
}

// The signs and payloads of NaNs are not the same in quick and optimized code.
TEST(Compile, ProgramsThatObserveNansAreNotCompiledQuickly) {
  const auto program = [](const std::string& result) {
    return absl::StrCat("HloModule m\nENTRY e {\n  x = f32[64] parameter(0)\n  y = f32[64] parameter(1)\n",
                        "  i = s32[64] parameter(2)\n  z = f32[64] multiply(x, y)\n  ROOT r = ", result, "\n}");
  };
  EXPECT_TRUE(IsQuick(program("pred[64] compare(z, y), direction=LT")));
  EXPECT_TRUE(IsQuick(program("f32[64] bitcast-convert(i)")));
  EXPECT_TRUE(IsQuick(program("s32[64] convert(z)")));
  EXPECT_FALSE(IsQuick(program("pred[64] compare(z, y), direction=LT, type=TOTALORDER")));
  EXPECT_FALSE(IsQuick(program("s32[64] bitcast-convert(z)")));
  EXPECT_FALSE(IsQuick(program("u16[64,2] bitcast-convert(z)")));
  EXPECT_FALSE(IsQuick(program("bf16[64,2] bitcast-convert(z)")));
  // The partitioner sends floats as integers.
  EXPECT_TRUE(IsQuick(program("s32[64] bitcast-convert(z), frontend_attributes={xlad.moves_bits=\"1\"}")));
}

// x + 1 as TensorFlow writes it has eight instructions. The compiled program has one fused addition.
constexpr char kXPlusOne[] = R"(HloModule cluster_0.9, alias_passthrough_params=true

ENTRY cluster_0.9 {
  arg0.1 = f32[10,10]{1,0} parameter(0), parameter_replication={false}, metadata={op_name="XLA_Args"}
  reshape.2 = f32[10,10]{1,0} reshape(f32[10,10]{1,0} arg0.1)
  constant.3 = f32[] constant(1), metadata={op_type="AddV2" op_name="add"}
  broadcast.4 = f32[10,10]{1,0} broadcast(f32[] constant.3), metadata={op_type="AddV2" op_name="add"}
  add.5 = f32[10,10]{1,0} add(f32[10,10]{1,0} reshape.2, f32[10,10]{1,0} broadcast.4),
    metadata={op_type="AddV2" op_name="add"}
  reshape.6 = f32[10,10]{1,0} reshape(f32[10,10]{1,0} add.5), metadata={op_name="XLA_Retvals"}
  tuple.7 = (f32[10,10]{1,0}) tuple(f32[10,10]{1,0} reshape.6), metadata={op_name="XLA_Retvals"}
  ROOT get-tuple-element.8 = f32[10,10]{1,0} get-tuple-element((f32[10,10]{1,0}) tuple.7), index=0
})";

TEST(Compile, MakesOneKernelOfXPlusOne) {
  auto compilation = CompileToSteps(RequestFor(kXPlusOne));
  ASSERT_TRUE(compilation.ok()) << compilation.status();
  const Computation& entry = *compilation->module->entry();
  ASSERT_EQ(entry.instructions().size(), 2u);
  EXPECT_EQ(entry.root()->opcode(), Opcode::kFusion);
  EXPECT_EQ(entry.root()->metadata().op_name, "add") << "the metadata of the addition is kept";
  EXPECT_EQ(entry.root()->called()[0]->instructions().size(), 4u);
  auto executable = Compile(RequestFor(kXPlusOne));
  ASSERT_TRUE(executable.ok()) << executable.status();
  ASSERT_EQ(executable->steps_size(), 1);
  EXPECT_EQ(executable->steps(0).kernel().buffers_size(), 2);
  EXPECT_THAT(BuffersText(*executable),
              testing::HasSubstr("total 800; 400 bytes of parameters read, 400 of results written"));
}

// To save memory, jax.checkpoint computes values again after an opt-barrier. Equal values before and after the barrier
// must not be merged.
TEST(Compile, KeepsRecomputationAfterBarriers) {
  const auto count = [](const std::string& text) {
    auto compilation = CompileToSteps(RequestFor(text));
    EXPECT_TRUE(compilation.ok()) << compilation.status();
    int64_t dots = 0;
    for (const auto& instruction : compilation->module->entry()->instructions()) {
      dots += instruction->opcode() == Opcode::kDot ? 1 : 0;
    }
    return dots;
  };
  const std::string dot = " = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n";
  const std::string head = "HloModule m\nENTRY e {\n  x = f32[64,64] parameter(0)\n  w = f32[64,64] parameter(1)\n  a";
  const std::string tail = "  ROOT r = (f32[64,64], f32[64,64]) tuple(a, b)\n}\n";
  EXPECT_EQ(count(head + dot + "  b" + dot + tail), 1);
  EXPECT_EQ(count(head + dot +
                  "  t = (f32[64,64], f32[64,64]) tuple(x, w)\n"
                  "  o = (f32[64,64], f32[64,64]) opt-barrier(t)\n"
                  "  y = f32[64,64] get-tuple-element(o), index=0\n  z = f32[64,64] get-tuple-element(o), index=1\n"
                  "  b = f32[64,64] dot(y, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n" +
                  tail),
            2);
}

// Each kernel of a program has an object of its own, and several threads compile them. Equal programs must still have
// equal code.
TEST(Compile, MakesSeveralObjectsOfLargePrograms) {
  std::string text = "HloModule many\nENTRY e {\n";
  std::string results, shapes;
  for (int i = 0; i < 120; ++i) {
    const std::string shape = absl::StrCat("f32[", 100 + i, "]");
    absl::StrAppend(&text, "  x", i, " = ", shape, " parameter(", i, ")\n");
    absl::StrAppend(&text, "  t", i, " = ", shape, " tanh(x", i, ")\n");
    absl::StrAppend(&text, "  y", i, " = ", shape, " multiply(t", i, ", x", i, ")\n");
    absl::StrAppend(&shapes, i == 0 ? "" : ", ", shape);
    absl::StrAppend(&results, i == 0 ? "y" : ", y", i);
  }
  absl::StrAppend(&text, "  ROOT r = (", shapes, ") tuple(", results, ")\n}\n");
  auto a = Compile(RequestFor(text)), b = Compile(RequestFor(text));
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(a->object_code().substr(0, 8), "!<arch>\n");
  EXPECT_EQ(a->SerializeAsString(), b->SerializeAsString());
}

// Unrolling all six short loops around the product would take 170 kB of code and seconds of compilation.
TEST(Compile, NestsOfShortLoopsStaySmall) {
  const auto executable = Compile(RequestFor(R"(HloModule m
ENTRY e {
  x = f32[12,4,4,4,5] parameter(0)
  y = f32[12,4,4,4,5] parameter(1)
  ROOT c = f32[3,3,3,1,5] convolution(x, y), window={size=4x4x4 pad=1_1x1_1x1_1}, dim_labels=f012b_i012o->012bf,
    batch_group_count=5
})"));
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_LT(executable->object_code().size(), 50'000u);
}

// The kernel moves tiles of 16 by 16 elements in four short loops; unrolling these loops would triple the code.
TEST(Compile, TransposesStaySmall) {
  const auto executable = Compile(RequestFor(R"(HloModule m
ENTRY e {
  x = f32[2,2,32,2,64] parameter(0)
  ROOT t = f32[2,2,2,64,32] transpose(x), dimensions={0,1,3,4,2}
})"));
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_LT(executable->object_code().size(), 6'000u);
}

TEST(Compile, IsDeterministic) {
  auto a = Compile(RequestFor(kSmall));
  auto b = Compile(RequestFor(kSmall));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->SerializeAsString(), b->SerializeAsString());
}

TEST(Compile, RejectsInvalidRequests) {
  CompileRequest request;
  request.set_partitioned_module("no module at all");
  EXPECT_FALSE(Compile(request).ok());
  request = RequestFor(kSmall);
  request.add_parameters();
  EXPECT_EQ(
      Compile(request).status().message(),
      "compile request: found `parameters` of length 1, expected length 2 (one entry per leaf of the entry "
      "computation) or 0");
  auto custom = Compile(RequestFor(R"(HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  ROOT c = f32[4] custom-call(x), custom_call_target="unknown.target"
})"));
  EXPECT_EQ(custom.status().code(), absl::StatusCode::kUnimplemented) << custom.status();
  EXPECT_THAT(std::string(custom.status().message()),
              testing::AllOf(testing::HasSubstr("%c (custom-call)"),
                             testing::HasSubstr("found custom-call target \"unknown.target\", expected")));
}

TEST(Compile, ALoopOfUnknownTripCountInAReducerIsRefused) {
  const auto loop = Compile(RequestFor(R"(HloModule m
cond { x = f32[] parameter(0) one = f32[] constant(1) ROOT c = pred[] compare(x, one), direction=GT }
body { x = f32[] parameter(0) half = f32[] constant(0.5) ROOT y = f32[] multiply(x, half) }
sum { a = f32[] parameter(0) b = f32[] parameter(1) s = f32[] add(a, b)
  ROOT w = f32[] while(s), condition=cond, body=body }
ENTRY e {
  x = f32[4,3] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[4] reduce(x, zero), dimensions={1}, to_apply=sum
})"));
  EXPECT_EQ(loop.status().code(), absl::StatusCode::kUnimplemented) << loop.status();
  EXPECT_THAT(std::string(loop.status().message()),
              testing::HasSubstr("found a loop in a computation that is applied to each element, expected no loop, or "
                                 "one with a constant trip count whose unrolled computation has at most 4096 "
                                 "instructions; unroll it or move it out"));
}

// A reducer with conditionals. All of them have the same branches: one of about 20,000 instructions, and the identity.
std::unique_ptr<Module> ProgramWithLargeBranches(int conditionals) {
  std::string text = "HloModule m\nlarge { x0 = f32[] parameter(0)\n";
  for (int i = 1; i < 20'000; ++i) absl::StrAppend(&text, "x", i, " = f32[] cosine(x", i - 1, ")\n");
  absl::StrAppend(&text, "ROOT x = f32[] copy(x19999) }\nsame { ROOT x = f32[] parameter(0) }\n",
                  "sum { a = f32[] parameter(0) b = f32[] parameter(1) c0 = f32[] add(a, b)\n",
                  "p = pred[] compare(a, b), direction=LT\n");
  for (int i = 1; i <= conditionals; ++i) {
    absl::StrAppend(&text, "c", i, " = f32[] conditional(p, c", i - 1, ", c", i - 1,
                    "), true_computation=large, false_computation=same\n");
  }
  absl::StrAppend(&text, "ROOT s = f32[] copy(c", conditionals, ") }\nENTRY e { x = f32[4,3] parameter(0)\n",
                  "zero = f32[] constant(0)\nROOT r = f32[4] reduce(x, zero), dimensions={1}, to_apply=sum }\n");
  auto module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return *std::move(module);
}

int64_t SizeOfReducer(const Module& module) { return std::ssize(module.entry()->root()->called()[0]->instructions()); }

// The limit is checked before the branches of each conditional are inlined, so a refused computation stays small.
TEST(Compile, ManyConditionalsThatCallALargeBranchInAReducerAreRefused) {
  PassContext context;
  const std::unique_ptr<Module> three = ProgramWithLargeBranches(3), many = ProgramWithLargeBranches(50);
  EXPECT_TRUE(FlattenControlFlow(*three, context).ok());
  EXPECT_EQ(SizeOfReducer(*three), 60'008);
  const absl::Status refused = FlattenControlFlow(*many, context);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::HasSubstr("computation sum: found conditionals that expand to 80"),
                             testing::HasSubstr(" instructions or more, expected at most 65536")));
  EXPECT_LE(SizeOfReducer(*many), 65'536);
}

// A reduction after FlattenControlFlow. The instructions of its reducer follow x0 = a + b. They may have loops that
// count from their operand to `limit`: while(i), condition=below, body=next.
std::unique_ptr<Module> FlattenedReduction(int limit, const std::string& instructions) {
  auto module = hlo::ParseText(
      absl::StrCat("HloModule m\nbelow { i = s32[] parameter(0) n = s32[] constant(", limit,
                   ") ROOT c = pred[] compare(i, n), direction=LT }\n",
                   "next { i = s32[] parameter(0) one = s32[] constant(1) ROOT j = s32[] add(i, one) }\n",
                   "sum { a = s32[] parameter(0) b = s32[] parameter(1) x0 = s32[] add(a, b)\n", instructions, "}\n",
                   "ENTRY e { x = s32[3] parameter(0) z = s32[] constant(0)\n",
                   "ROOT r = s32[] reduce(x, z), dimensions={0}, to_apply=sum }\n"));
  EXPECT_TRUE(module.ok()) << module.status();
  PassContext context;
  EXPECT_TRUE(FlattenControlFlow(**module, context).ok());
  return *std::move(module);
}

// Each loop becomes 120 to 198 instructions when it is unrolled, and the limit holds for all of them together.
TEST(Compile, LoopsInAReducerAreUnrolledUpToALimit) {
  std::string loops;
  for (int i = 1; i <= 40; ++i) {
    absl::StrAppend(&loops, "z", i, " = s32[] constant(", i, ") l", i, " = s32[] while(z", i,
                    "), condition=below, body=next x", i, " = s32[] add(x", i - 1, ", l", i, ")\n");
  }
  const std::unique_ptr<Module> module = FlattenedReduction(100, loops + "ROOT r = s32[] copy(x40)");
  const auto& reducer = module->entry()->root()->called()[0]->instructions();
  const auto is_loop = [](const auto& instruction) { return instruction->opcode() == Opcode::kWhile; };
  EXPECT_THAT(std::count_if(reducer.begin(), reducer.end(), is_loop), testing::AllOf(testing::Gt(0), testing::Lt(40)));
  EXPECT_THAT(std::ssize(reducer), testing::AllOf(testing::Gt(2000), testing::Le(4096)));
}

// A loop of 0 iterations adds no instructions, so the limit does not apply to it.
TEST(Compile, ALoopOfNoIterationsInALargeReducerIsRemoved) {
  std::string instructions;
  for (int i = 1; i <= 5000; ++i) absl::StrAppend(&instructions, "x", i, " = s32[] multiply(x", i - 1, ", b)\n");
  absl::StrAppend(&instructions, "zero = s32[] constant(0) l = s32[] while(zero), condition=below, body=next\n",
                  "ROOT r = s32[] add(x5000, l)");
  const std::unique_ptr<Module> module = FlattenedReduction(0, instructions);
  const Computation& reducer = *module->entry()->root()->called()[0];
  EXPECT_EQ(std::ssize(reducer.instructions()), 5005);
  EXPECT_EQ(reducer.root()->operand(1)->opcode(), Opcode::kConstant);
}

// The lists of a request have an entry for each array. The error of a program with a token names the token, not a list.
TEST(Compile, ATokenAmongTheResultsIsRefused) {
  CompileRequest request = RequestFor(R"(HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  t = token[] after-all()
  ROOT r = (f32[4], token[]) tuple(x, t)
})");
  request.add_parameters();
  request.add_results();
  const auto compiled = Compile(request);
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kUnimplemented) << compiled.status();
  EXPECT_THAT(std::string(compiled.status().message()),
              testing::HasSubstr("%r (tuple): found token[] in a result of the program, expected arrays"));
}

TEST(Compile, TokensAreRefusedOnlyInAListOfTheRequest) {
  const std::string text = R"(HloModule m
ENTRY e {
  t = token[] parameter(0)
  x = f32[4] parameter(1)
  y = f32[4] negate(x)
  ROOT r = RESULT
})";
  const std::string among_parameters = absl::StrReplaceAll(text, {{"RESULT", "(f32[4]) tuple(y)"}});
  const std::string among_results = absl::StrReplaceAll(text, {{"t = token[] parameter(0)", "t = token[] after-all()"},
                                                               {"parameter(1)", "parameter(0)"},
                                                               {"RESULT", "(f32[4], token[]) tuple(y, t)"}});
  CompileRequest results_listed = RequestFor(among_parameters), parameters_listed = RequestFor(among_results);
  results_listed.add_results();
  parameters_listed.add_parameters();
  EXPECT_TRUE(Compile(results_listed).ok()) << Compile(results_listed).status();
  EXPECT_TRUE(Compile(parameters_listed).ok()) << Compile(parameters_listed).status();
  for (CompileRequest* request : {&results_listed, &parameters_listed}) {
    request->clear_parameters();
    request->clear_results();
  }
  results_listed.add_parameters();
  parameters_listed.add_results();
  EXPECT_THAT(std::string(Compile(results_listed).status().message()),
              testing::HasSubstr("%t (parameter): found token[] in a parameter of the program, expected arrays"));
  EXPECT_THAT(std::string(Compile(parameters_listed).status().message()),
              testing::HasSubstr("%r (tuple): found token[] in a result of the program, expected arrays"));
}

// The number of iterations is a parameter. Only if all devices hold the same value do all of them take part in the
// collective of the loop. Two boxes for four devices do not say that.
TEST(Compile, BoxesOfSomeDevicesDoNotProveThatConditionsAreEqual) {
  const std::string text = R"(HloModule m, num_partitions=4
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
cond { p = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(p), index=0 z = s32[] constant(0)
  ROOT c = pred[] compare(i, z), direction=GT }
body { p = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(p), index=0 one = s32[] constant(1)
  j = s32[] subtract(i, one) x = f32[4] get-tuple-element(p), index=1
  y = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
  ROOT t = (s32[], f32[4]) tuple(j, y) }
ENTRY e {
  n = s32[] parameter(0)
  x = f32[4] parameter(1)
  t = (s32[], f32[4]) tuple(n, x)
  w = (s32[], f32[4]) while(t), condition=cond, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
})";
  const auto status_with = [&](const std::vector<int>& boxes) {
    auto module = hlo::ParseText(text);
    EXPECT_TRUE(module.ok()) << module.status();
    CompileRequest request;
    EntryValue* n = request.add_parameters();
    for (const int lo : boxes) n->add_boxes()->add_lo(lo);
    request.add_parameters();
    return CompileToSteps(*std::move(module), request, {}).status();
  };
  EXPECT_TRUE(status_with({}).ok()) << status_with({});
  EXPECT_TRUE(status_with({0}).ok());
  EXPECT_TRUE(status_with({0, 0, 0, 0}).ok());
  for (const std::vector<int>& boxes : {std::vector<int>{0, 0, 0, 1}, {0, 1}, {0, 0, 0}, {0, 0, 0, 0, 0}}) {
    const absl::Status status = status_with(boxes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << boxes.size() << " boxes";
    EXPECT_NE(status.message().find("its condition may differ between devices 0 and "), std::string::npos) << status;
  }
}

// The mesh of the request has two devices, although the module is for eight.
TEST(Compile, PermutesInLoopsNameDevicesOfTheMesh) {
  const std::string text = R"(HloModule m, num_partitions=8
cond { p = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(300)
  ROOT c = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(p), index=0 one = s32[] constant(1)
  j = s32[] add(i, one) x = f32[4] get-tuple-element(p), index=1
  y = f32[4] collective-permute(x), channel_id=1, source_target_pairs={{0,1},PAIR}
  ROOT t = (s32[], f32[4]) tuple(j, y) }
ENTRY e {
  x = f32[4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4]) tuple(z, x)
  w = (s32[], f32[4]) while(t), condition=cond, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
})";
  for (const char* const pair : {"{1,7}", "{7,0}"}) {
    auto module = hlo::ParseText(absl::StrReplaceAll(text, {{"PAIR", pair}}));
    ASSERT_TRUE(module.ok()) << module.status();
    CompileRequest request;
    request.add_mesh()->set_size(2);
    const absl::Status status = CompileToSteps(*std::move(module), request, {}).status();
    EXPECT_EQ(status, absl::InvalidArgumentError(
                          absl::StrCat("check-uniform-conditions: %y (collective-permute): found pair ", pair,
                                       ", expected devices from 0 to 1")));
  }
}

class ExampleCompiles : public testing::TestWithParam<const char*> {};

TEST_P(ExampleCompiles, ToCode) {
  const char* folder = std::getenv("XLAD_EXAMPLES");
  if (folder == nullptr) GTEST_SKIP() << "XLAD_EXAMPLES is not set";
  auto bytes = RealFileSystem().Read(JoinPath(folder, absl::StrCat(GetParam(), "/step.single.hlo.pb")));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  CompileRequest request;
  request.set_partitioned_module(*bytes);
  auto result = CompileWithListings(request, {}, false);
  ASSERT_TRUE(result.ok()) << result.status();
}

INSTANTIATE_TEST_SUITE_P(All, ExampleCompiles,
                         testing::Values("digits_mlp", "dropout_rng", "nano_gpt", "nano_gpt_bf16", "cnn", "lstm", "moe",
                                         "ring_shard_map"));

}  // namespace
}  // namespace xlad::compiler

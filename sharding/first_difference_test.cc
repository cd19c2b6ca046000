// A fault put into a partitioned program is found at the instruction that it was put into.
#include "sharding/first_difference.h"

#include <gtest/gtest.h>

#include "hlo/builder.h"
#include "hlo/text.h"
#include "sharding/equivalence.h"
#include "sharding/pipeline.h"

namespace xlad::sharding {
namespace {

constexpr const char* kProgram = R"(HloModule m,
  frontend_attributes={xla.sdy.meshes="{mesh = #sdy.mesh<[\"dp\"=2, \"tp\"=2]>}"}
body {
  p = (s32[], f32[4,6], f32[8,4], f32[8,6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  g = f32[4,6] get-tuple-element(p), index=1
  x = f32[8,4] get-tuple-element(p), index=2
  y = f32[8,6] get-tuple-element(p), index=3
  one = s32[] constant(1)
  i2 = s32[] add(i, one)
  x2 = f32[8,4] sine(x)
  d = f32[4,6] dot(x2, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  g2 = f32[4,6] add(g, d)
  ROOT t = (s32[], f32[4,6], f32[8,4], f32[8,6]) tuple(i2, g2, x2, y)
}
condition {
  p = (s32[], f32[4,6], f32[8,4], f32[8,6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  five = s32[] constant(5)
  ROOT c = pred[] compare(i, five), direction=LT
}
yes { a = f32[4,6] parameter(0) ROOT b = f32[4,6] cosine(a) }
no { a = f32[4,6] parameter(0) ROOT u = f32[4,6] tanh(a) }
ENTRY main {
  x = f32[8,4] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"dp\"}, {}]>"}
  y = f32[8,6] parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"dp\"}, {\"tp\"}]>"}
  z = f32[] constant(0)
  e = f32[8,4] exponential(x)
  g = f32[4,6] broadcast(z), dimensions={}
  i = s32[] constant(0)
  t = (s32[], f32[4,6], f32[8,4], f32[8,6]) tuple(i, g, e, y)
  l = (s32[], f32[4,6], f32[8,4], f32[8,6]) while(t), condition=condition, body=body
  o = f32[4,6] get-tuple-element(l), index=1
  q = pred[] constant(false)
  s = f32[4,6] conditional(q, o, o), true_computation=yes, false_computation=no
  ROOT r = f32[4,6] negate(s)
})";

struct Made {
  ShardedModule whole;
  PartitionedProgram program;
  Trace trace;
  std::vector<hlo::Literal> inputs;
};

Made Make() {
  std::unique_ptr<hlo::Module> module = *hlo::ParseText(kProgram);
  Made made;
  for (const hlo::Instruction* parameter : module->entry()->parameters()) {
    made.inputs.push_back(SampleInput(parameter->shape(), static_cast<uint64_t>(parameter->number())));
  }
  absl::StatusOr<PipelineResult> result = RunPipeline(std::move(module), {});
  EXPECT_TRUE(result.ok()) << result.status();
  made.whole = std::move(result->propagated);
  absl::StatusOr<PartitionedProgram> program = Partition(made.whole, &made.trace);
  EXPECT_TRUE(program.ok()) << program.status();
  made.program = *std::move(program);
  return made;
}

// Negates what the instruction of the whole program with this name became, for everything that uses it.
void Corrupt(Made& made, absl::string_view name) {
  for (const auto& [source, place] : made.trace.arrays) {
    if (source->name() != name) continue;
    auto* local = const_cast<hlo::Instruction*>(place.local);
    hlo::Computation* computation = local->parent();
    hlo::Instruction* wrong = hlo::Builder(computation).Unary(hlo::Opcode::kNegate, local);
    local->ReplaceAllUsesWith(wrong);
    wrong->ReplaceOperand(0, local);
    if (computation->root() == local) computation->set_root(wrong);
    computation->SortTopologically();
    made.trace.arrays[source].local = wrong;
    return;
  }
  FAIL() << "no instruction " << name;
}

TEST(FirstDifference, NoneInASoundProgram) {
  Made made = Make();
  auto found = FirstDifference(made.whole, made.program, made.trace, made.inputs, 1e-5);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->has_value()) << (*found)->ToString();
}

struct Fault {
  const char* at;
  const char* instruction;
  std::vector<std::string> inside;
};

TEST(FirstDifference, NamesTheInstructionThatWasCorrupted) {
  const std::string loop = "iteration 0 of l";
  for (const Fault& fault : std::vector<Fault>{{"e", "e (exponential)", {}},
                                               {"d", "d (dot)", {loop}},
                                               {"x2", "x2 (sine)", {loop}},
                                               {"u", "u (tanh)", {"branch 1 of s"}},
                                               {"r", "r (negate)", {}}}) {
    SCOPED_TRACE(fault.at);
    Made made = Make();
    Corrupt(made, fault.at);
    auto found = FirstDifference(made.whole, made.program, made.trace, made.inputs, 1e-5);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_TRUE(found->has_value());
    EXPECT_EQ((*found)->instruction, fault.instruction);
    EXPECT_EQ((*found)->inside, fault.inside);
    EXPECT_EQ((*found)->index, (Dims{0, 0}));
    EXPECT_EQ((*found)->device, 0);
    EXPECT_NE((*found)->whole, (*found)->partitioned);
  }
}

}  // namespace
}  // namespace xlad::sharding

// Check and its parts accept correct partitioned programs, and reject wrong ones, most of which the tests make by a
// single change. Small instances of ops are proven once.
#include "sharding/proof/check.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "absl/strings/str_replace.h"
#include "base/random.h"
#include "base/testing/case_count.h"
#include "hlo/attribute_keys.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "sharding/partition/ops/families.h"
#include "sharding/pipeline.h"
#include "sharding/proof/check_instances.h"
#include "sharding/proof/check_structure.h"
#include "sharding/testing/random_sharding.h"
#include "sharding/testing/sum_that_starts_again.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

constexpr const char* kDot = R"(HloModule m
ENTRY main {
  x = f32[8,16] parameter(0)
  w = f32[16,4] parameter(1)
  ROOT d = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})";

// The contracting dimension of x is split, which needs one all-reduce.
ShardedModule SplitContraction() {
  ShardedModule sharded;
  sharded.mesh = *ParseMesh("tp=4");
  sharded.module = *hlo::ParseText(kDot);
  for (const auto& instruction : sharded.module->entry()->instructions()) {
    sharded.shardings[instruction.get()] = {TensorSharding::Replicated(2)};
  }
  TensorSharding& x = sharded.shardings[sharded.module->entry()->parameter(0)][0];
  x.dims[1].axes = {sharded.mesh.Whole(0)};
  auto origin = std::make_shared<Origin>();
  origin->op = "x";
  origin->what = "annotated {\"tp\"} on dimension 1";
  origin->source = "model.py:3";
  x.dims[1].origins = {origin};
  sharded.results = {TensorSharding::Replicated(2)};
  return sharded;
}

Instruction* Find(PartitionedProgram& program, Opcode opcode) {
  for (const auto& instruction : program.variants[0].module->entry()->instructions()) {
    if (instruction->opcode() == opcode) return instruction.get();
  }
  return nullptr;
}

TEST(Check, AcceptsAndExplains) {
  const ShardedModule sharded = SplitContraction();
  absl::StatusOr<PartitionedProgram> program = Partition(sharded, FamilyOf);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(Check(sharded, *program).ok()) << Check(sharded, *program);
  ASSERT_EQ(program->collectives.size(), 1u);
  const CollectiveInfo& info = program->collectives[0];
  EXPECT_EQ(info.kind, "all-reduce");
  EXPECT_EQ(info.op, "d");
  EXPECT_EQ(info.because, (std::vector<std::string>{
                              "d: contracting dimension 1 of operand 0 is split over tp, so every device has a partial "
                              "result",
                              "x: annotated {\"tp\"} on dimension 1 (model.py:3)"}));
}

TEST(Check, RejectsPartialSumThatIsNotReduced) {
  const ShardedModule sharded = SplitContraction();
  absl::StatusOr<PartitionedProgram> program = Partition(sharded, FamilyOf);
  ASSERT_TRUE(program.ok()) << program.status();
  Instruction* reduce = Find(*program, Opcode::kAllReduce);
  ASSERT_NE(reduce, nullptr);
  reduce->ReplaceAllUsesWith(reduce->operand(0));
  const absl::Status status = Check(sharded, *program);
  EXPECT_NE(std::string(status.message()).find("[partial-reduced-once]"), std::string::npos) << status;
  const absl::Status replicas = CheckReplicasAgree(*program, *program->variants[0].module);
  EXPECT_NE(std::string(replicas.message()).find("[replicas-agree]"), std::string::npos) << replicas;
}

// Without its mark, the operand counts as a complete result, which the all-reduce would reduce a second time.
TEST(Check, RejectsReducingTwice) {
  const ShardedModule sharded = SplitContraction();
  absl::StatusOr<PartitionedProgram> program = Partition(sharded, FamilyOf);
  ASSERT_TRUE(program.ok()) << program.status();
  Instruction* reduce = Find(*program, Opcode::kAllReduce);
  reduce->operand(0)->mutable_frontend_attributes().erase(hlo::kPartialAxesKey);
  const absl::Status status = Check(sharded, *program);
  EXPECT_NE(std::string(status.message()).find("[partial-reduced-once]"), std::string::npos) << status;
}

TEST(Check, RejectsGroupsThatMissADevice) {
  const ShardedModule sharded = SplitContraction();
  absl::StatusOr<PartitionedProgram> program = Partition(sharded, FamilyOf);
  ASSERT_TRUE(program.ok()) << program.status();
  Find(*program, Opcode::kAllReduce)->mutable_attributes().replica_groups = {.groups = {{0, 1}, {2, 2}}};
  EXPECT_FALSE(Check(sharded, *program).ok());
  Find(*program, Opcode::kAllReduce)->mutable_attributes().replica_groups = {.groups = {{0, 1}, {2, 3}}};
  const absl::Status halves = Check(sharded, *program);
  EXPECT_NE(std::string(halves.message()).find("[replicas-agree]"), std::string::npos) << halves;
}

TEST(Check, RejectsCollectiveWithoutCause) {
  const ShardedModule sharded = SplitContraction();
  absl::StatusOr<PartitionedProgram> program = Partition(sharded, FamilyOf);
  ASSERT_TRUE(program.ok()) << program.status();
  program->collectives[0].because.clear();
  const absl::Status status = Check(sharded, *program);
  EXPECT_NE(std::string(status.message()).find("[collective-cause]"), std::string::npos) << status;
}

TEST(Check, RejectsLoopThatDevicesLeaveAtDifferentTimes) {
  PartitionedProgram program;
  program.mesh = *ParseMesh("dp=2");
  program.parameters = program.results = {TensorSharding::Replicated(0)};
  const std::string text = hlo::TestText("sharding/proof/testdata/loop_left_at_different_times.hlo");
  program.variants.push_back({*hlo::ParseText(text), {0, 1}});
  const absl::Status status = CheckReplicasAgree(program, *program.variants[0].module);
  EXPECT_NE(std::string(status.message()).find("[uniform-predicate]"), std::string::npos) << status;
}

// `depth` nested loops that carry (i, x, y), where x starts as the device's number and y takes the value of x. The root
// is the carried value `result` plus 0 times the device's number. Only arithmetic on the number shows that the added
// product is 0.
PartitionedProgram NestedLoops(int depth, int result) {
  std::string text = R"(HloModule m, num_partitions=2
condition { t = (s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT }
)";
  for (int level = 0; level < depth; ++level) {
    const std::string inner = absl::StrCat("while(r), condition=condition, body=body", level - 1);
    absl::StrAppend(&text, "body", level, R"( { t = (s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = s32[] get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  r = (s32[], s32[], s32[]) tuple(next, x, x)
  ROOT w = (s32[], s32[], s32[]) )",
                    level == 0 ? "opt-barrier(r)" : inner, " }\n");
  }
  absl::StrAppend(&text, R"(ENTRY main {
  p = u32[] partition-id()
  x = s32[] convert(p)
  zero = s32[] constant(0)
  t = (s32[], s32[], s32[]) tuple(zero, x, zero)
  w = (s32[], s32[], s32[]) while(t), condition=condition, body=body)",
                  depth - 1, "\n  v = s32[] get-tuple-element(w), index=", result, R"(
  nothing = s32[] multiply(x, zero)
  ROOT r = s32[] add(v, nothing)
})");
  PartitionedProgram program;
  program.mesh = *ParseMesh("dp=2");
  program.results = {TensorSharding::Replicated(0)};
  program.variants.push_back({*hlo::ParseText(text), {0, 1}});
  return program;
}

// If the analysis of every inner loop started from the initial state, the innermost body would be visited 2^40 times.
TEST(Check, DeeplyNestedLoopsTakeLinearTime) {
  const PartitionedProgram counters = NestedLoops(40, 0);
  const absl::Status equal = CheckReplicasAgree(counters, *counters.variants[0].module);
  EXPECT_TRUE(equal.ok()) << equal;
  const PartitionedProgram copies = NestedLoops(40, 2);
  const absl::Status different = CheckReplicasAgree(copies, *copies.variants[0].module);
  EXPECT_NE(std::string(different.message()).find("[replicas-agree]"), std::string::npos) << different;
}

// 0 and 200 become 0 and -56 as s8. Their remainders by 200 differ, although those of 0 and 200 are equal.
TEST(Check, ArithmeticThatWrapsAroundIsNotEvaluated) {
  PartitionedProgram program;
  program.mesh = *ParseMesh("dp=2");
  program.results = {TensorSharding::Replicated(0)};
  program.variants.push_back({*hlo::ParseText(R"(HloModule m, num_partitions=2
ENTRY main {
  p = u32[] partition-id()
  x = s32[] convert(p)
  c = s32[] constant(200)
  m = s32[] multiply(x, c)
  narrow = s8[] convert(m)
  wide = s32[] convert(narrow)
  ROOT r = s32[] remainder(wide, c)
})"), {0, 1}});
  const absl::Status status = CheckReplicasAgree(program, *program.variants[0].module);
  EXPECT_NE(std::string(status.message()).find("[replicas-agree]"), std::string::npos) << status;
}

// Devices 255 and 256 have the same position on axis a. Their numbers as u8 are 255 and 0, and the quotients 3 and 0.
TEST(Check, DeviceNumbersThatWrapAroundAreNotDivided) {
  for (const auto& [type, agrees] : {std::pair("u8", false), std::pair("s8", false), std::pair("u16", true)}) {
    PartitionedProgram program;
    program.mesh = *ParseMesh("a=4,b=75");
    program.results = {TensorSharding::Replicated(1)};
    program.results[0].dims[0].axes = {program.mesh.Whole(0)};
    std::vector<int64_t> devices(300);
    std::iota(devices.begin(), devices.end(), 0);
    program.variants.push_back({*hlo::ParseText(absl::StrReplaceAll(R"(HloModule m, num_partitions=300
ENTRY main {
  p = u32[] partition-id()
  c = TYPE[] convert(p)
  n = TYPE[] constant(75)
  d = TYPE[] divide(c, n)
  ROOT r = TYPE[1] reshape(d)
})", {{"TYPE", type}})), devices});
    const absl::Status status = CheckReplicasAgree(program, *program.variants[0].module);
    EXPECT_EQ(status.ok(), agrees) << type << ": " << status;
  }
}

TEST(Check, InstancesAreProvenOnce) {
  ShardedModule sharded = SplitContraction();
  sharded.mesh = *ParseMesh("once=4");
  absl::StatusOr<InstanceCounts> first = CheckInstances(sharded);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->proven, 1);
  absl::StatusOr<InstanceCounts> second = CheckInstances(sharded);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->proven, 0);
  EXPECT_EQ(second->known, 1);
}

// A reduce with a custom reducer and an initial value, over the rows of an array that are split over all devices.
ShardedModule SplitReduction(const std::string& mesh, const std::string& reducer, const std::string& init) {
  ShardedModule sharded;
  sharded.mesh = *ParseMesh(mesh);
  sharded.module =
      *hlo::ParseText(absl::StrCat("HloModule m\nreducer {\n  a = s32[] parameter(0)\n"
                                   "  b = s32[] parameter(1)\n  ",
                                   reducer, R"(
}
ENTRY main {
  x = s32[64,3] parameter(0)
  )",
                                   init, R"(
  ROOT r = s32[3] reduce(x, init), dimensions={0}, to_apply=reducer
})"));
  for (const auto& instruction : sharded.module->entry()->instructions()) {
    sharded.shardings[instruction.get()] = {TensorSharding::Replicated(instruction->shape().ndim())};
  }
  sharded.shardings[sharded.module->entry()->parameter(0)][0].dims[0].axes = {sharded.mesh.Whole(0)};
  sharded.results = {TensorSharding::Replicated(1)};
  return sharded;
}

constexpr const char* kSum = "ROOT c = s32[] add(a, b)";
constexpr const char* kZero = "init = s32[] constant(0)";

// Instances that differ in one thing are proven separately.
TEST(Check, InstancesDifferByEverythingThatTheirProofDependsOn) {
  const char* const reducers[] = {kSum,
                                  "ROOT c = s32[] subtract(a, b)",
                                  "ROOT c = s32[] subtract(b, a)",
                                  "one = s32[] constant(1)\n  ab = s32[] add(a, b)\n  ROOT c = s32[] add(ab, one)",
                                  "one = s32[] constant(2)\n  ab = s32[] add(a, b)\n  ROOT c = s32[] add(ab, one)",
                                  "t = pred[] compare(a, b), direction=LT\n  ROOT c = s32[] select(t, a, b)",
                                  "t = pred[] compare(a, b), direction=GT\n  ROOT c = s32[] select(t, a, b)"};
  for (const char* reducer : reducers) {
    const absl::StatusOr<InstanceCounts> counts = CheckInstances(SplitReduction("differs=4", reducer, kZero));
    ASSERT_TRUE(counts.ok()) << counts.status() << reducer;
    EXPECT_EQ(counts->proven, 1) << reducer;
  }
  for (const char* init : {"init = s32[] constant(1)", "init = s32[] constant(-7)", "init = s32[] parameter(1)"}) {
    const absl::StatusOr<InstanceCounts> counts = CheckInstances(SplitReduction("differs=4", kSum, init));
    ASSERT_TRUE(counts.ok()) << counts.status() << init;
    EXPECT_EQ(counts->proven, 1) << init;
  }
}

// Names and metadata do not matter.
TEST(Check, InstancesOfOneRewriteAreProvenOnce) {
  const char* const reducers[] = {kSum, "ROOT sum.7 = s32[] add(a, b)",
                                  "ROOT c = s32[] add(a, b), metadata={op_name=\"sum\" source_line=3}"};
  for (const char* reducer : reducers) {
    ShardedModule sharded = SplitReduction("same=4", reducer, kZero);
    sharded.module->entry()->root()->mutable_metadata().op_name = reducer;
    const absl::StatusOr<InstanceCounts> counts = CheckInstances(sharded);
    ASSERT_TRUE(counts.ok()) << counts.status() << reducer;
    EXPECT_EQ(counts->proven, reducer == kSum ? 1 : 0) << reducer;
    EXPECT_EQ(counts->known, reducer == kSum ? 0 : 1) << reducer;
  }
}

TEST(Check, WrongInstancesAreCheckedAgain) {
  const ShardedModule sharded = SplitReduction("wrong=8", kSumThatStartsAgain, kZero);
  for (int compile = 0; compile < 2; ++compile) {
    const absl::Status status = CheckInstances(sharded).status();
    EXPECT_NE(std::string(status.message()).find("is wrong on a small instance"), std::string::npos) << status;
  }
}

// The partitioner combines the partial results of the shards because it knows the initial value, even through a copy.
// The instance is partitioned in the same way.
TEST(Check, RepeatedConstantsStayConstant) {
  const ShardedModule sharded =
      SplitReduction("copied=8", kSumThatStartsAgain, "zero = s32[] constant(0)\n  init = s32[] copy(zero)");
  const absl::Status status = CheckInstances(sharded).status();
  EXPECT_NE(std::string(status.message()).find("is wrong on a small instance"), std::string::npos) << status;
}

// If the array from which a scatter starts repeats the identity of the reducer, the partitioner uses the array
// unchanged on all devices. The array of the small instance then repeats the identity as well.
TEST(Check, StartsOfScattersStayConstant) {
  struct Case {
    const char* start;
    bool proven;  // False if an earlier case has the same instance.
  };
  const Case cases[] = {
      {"start = s32[3] parameter(2)", true},
      {"zero = s32[] constant(0)\n  start = s32[3] broadcast(zero), dimensions={}", true},
      {"one = s32[] constant(1)\n  start = s32[3] broadcast(one), dimensions={}", true},
      {"zero = s32[] constant(0)\n  row = s32[1,3] broadcast(zero), dimensions={}\n  start = s32[3] reshape(row)",
       false},
      {"start = s32[3] constant({0, 0, 0})", false},
  };
  for (const Case& test : cases) {
    ShardedModule sharded;
    sharded.mesh = *ParseMesh("scattered=4");
    sharded.module = *hlo::ParseText(
        absl::StrReplaceAll(hlo::TestText("sharding/proof/testdata/scatter.hlo"), {{"$start", test.start}}));
    for (const auto& instruction : sharded.module->entry()->instructions()) {
      sharded.shardings[instruction.get()] = {TensorSharding::Replicated(instruction->shape().ndim())};
    }
    for (const int64_t split : {0, 1}) {
      sharded.shardings[sharded.module->entry()->parameter(split)][0].dims[0].axes = {sharded.mesh.Whole(0)};
    }
    sharded.results = {TensorSharding::Replicated(1)};
    const absl::StatusOr<InstanceCounts> counts = CheckInstances(sharded);
    ASSERT_TRUE(counts.ok()) << counts.status() << test.start;
    EXPECT_EQ(counts->proven, test.proven ? 1 : 0) << test.start;
    EXPECT_EQ(counts->known, test.proven ? 0 : 1) << test.start;
  }
}

// The check fails if a reduction is removed from a randomly sharded program.
TEST(Check, RejectsRemovedReductions) {
  int removed = 0, noticed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    ShardedModule sharded = WithRandomShardings(*hlo::ParseText(kDot), *ParseMesh("a=2,b=3"), seed);
    absl::StatusOr<PartitionedProgram> program = Partition(sharded, FamilyOf);
    ASSERT_TRUE(program.ok()) << program.status();
    Instruction* reduce = Find(*program, Opcode::kAllReduce);
    if (reduce == nullptr) continue;
    reduce->ReplaceAllUsesWith(reduce->operand(0));
    ++removed;
    noticed += !CheckPartials(*program, *program->variants[0].module).ok();
  }
  EXPECT_GT(removed, 5);
  EXPECT_EQ(noticed, removed);
}

// Partitions a program with Shardy annotations on the mesh "a=N", where N is `devices`.
std::string PartitionedText(const std::string& entry, int64_t devices) {
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(absl::StrReplaceAll(
      absl::StrCat("HloModule m, frontend_attributes={xla.sdy.meshes=\"{mesh = #sdy.mesh<[\\\"a\\\"=", devices,
                   "]>}\"}\nENTRY e {\n", entry, "}\n"),
      {{"$split", R"(, frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"a\"}]>"})"},
       {"$whole", R"(, frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}]>"})"}}));
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) return "";
  absl::StatusOr<PipelineResult> result = RunPipeline(*std::move(module), {});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? hlo::PrintText(*result->partitioned.variants[0].module) : "";
}

// A shape of up to four dimensions whose sizes multiply to the product of `primes`.
tensor::Dims ShapeOf(const std::vector<int64_t>& primes, Random& random) {
  tensor::Dims dims(1 + random.Below(4), 1);
  for (const int64_t prime : primes) dims[random.Below(dims.size())] *= prime;
  return dims;
}

// The small instance of a reshape has equal numbers of elements on both sides, regardless of common factors of the
// sizes.
TEST(Check, ReshapesBetweenAnySizes) {
  const auto random = SeededRandom(1);
  for (uint64_t seed = 1; seed <= CaseCount(60, 200); ++seed) {
    std::vector<int64_t> primes;
    for (uint64_t i = 0; i < 1 + seed % 6; ++i) primes.push_back(std::array{2, 2, 2, 3, 3, 5, 7}[random->Below(7)]);
    const hlo::Shape from(tensor::ElementType::kF32, ShapeOf(primes, *random));
    const hlo::Shape to(tensor::ElementType::kF32, ShapeOf(primes, *random));
    const std::string text = absl::StrCat("HloModule m\nENTRY e {\n  x = ", from.ToString(false),
                                          " parameter(0)\n  ROOT r = ", to.ToString(false), " reshape(x)\n}\n");
    const ShardedModule sharded = WithRandomShardings(*hlo::ParseText(text), *ParseMesh("a=2,b=3"), seed);
    const absl::StatusOr<PartitionedProgram> program = Partition(sharded, FamilyOf);
    ASSERT_TRUE(program.ok()) << program.status() << text;
    EXPECT_TRUE(Check(sharded, *program).ok()) << Check(sharded, *program) << text;
  }
}

// Positions of 2^31 and more are counted in s64.
TEST(Check, LongDimensions) {
  for (const char* entry : {
           "x = s8[4294967296] parameter(0)$whole\n  ROOT r = s8[4294967296] negate(x)$split\n",
           "i = s64[] parameter(0)\n  x = s8[4294967296] parameter(1)$split\n"
           "  ROOT r = s8[1] dynamic-slice(x, i), dynamic_slice_sizes={1}\n",
           "ROOT r = s64[4294967296] iota(), iota_dimension=0$split\n",
       }) {
    EXPECT_NE(PartitionedText(entry, 2).find("s64[] constant(2147483648)"), std::string::npos)
        << PartitionedText(entry, 2);
  }
}

// The size of the partitioned program hardly depends on the number of devices.
TEST(Check, ManyDevices) {
  const std::string entry = "x = f32[1048576] parameter(0)$split\n  y = f32[1048576] cosine(x)\n"
                            "  ROOT r = f32[1048576] add(x, y)$whole\n";
  EXPECT_LT(PartitionedText(entry, 65536).size(), PartitionedText(entry, 2).size() + 200);
}

}  // namespace
}  // namespace xlad::sharding

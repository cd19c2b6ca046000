// Properties that propagation has for every program: legality, independence of instruction order, origins.
#include "sharding/import/import.h"
#include "sharding/propagate/propagate.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/text/text.h"
#include "sharding/import/inline_calls.h"
#include "sharding/model/axes.h"
#include "sharding/propagate/flow_graph.h"
#include "sharding/rules/op_rule.h"
#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

std::string Contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The programs of the examples if XLAD_EXAMPLES is set, otherwise those of sharding/testdata/propagate.
std::vector<std::filesystem::path> Programs() {
  const char* examples = std::getenv("XLAD_EXAMPLES");
  std::vector<std::filesystem::path> programs;
  const std::filesystem::path root = examples != nullptr ? examples : "sharding/testdata/propagate";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() == ".hlo") programs.push_back(entry.path());
  }
  std::sort(programs.begin(), programs.end());
  return programs;
}

std::unique_ptr<hlo::Module> Parsed(const std::filesystem::path& path) {
  auto module = hlo::ParseText(Contents(path));
  XLAD_CHECK(module.ok()) << path << ": " << module.status();
  return *std::move(module);
}

absl::StatusOr<ShardedModule> Propagated(std::unique_ptr<hlo::Module> module) {
  XLAD_ASSIGN_OR_RETURN(ShardedModule sharded, Import(std::move(module), {}));
  XLAD_RETURN_IF_ERROR(Propagate(&sharded));
  return sharded;
}

// Checks that all dimensions are closed, that the axes of dimensions have origins that end at annotations, that the
// parts of axes are larger than 1 and divide the axes' sizes, and that no two of them overlap.
void ExpectLegal(const Mesh& mesh, const TensorSharding& sharding, const hlo::Shape& shape, const std::string& where) {
  ASSERT_EQ(std::ssize(sharding.dims), shape.ndim()) << where;
  AxisList all = sharding.replicated;
  all.insert(all.end(), sharding.unreduced.begin(), sharding.unreduced.end());
  for (const DimensionSharding& dim : sharding.dims) {
    EXPECT_TRUE(dim.closed) << where;
    EXPECT_EQ(dim.origins.size(), dim.axes.size()) << where;
    for (const OriginPtr& origin : dim.origins) {
      ASSERT_NE(origin, nullptr) << where;
      const Origin* first = origin.get();
      while (first->because != nullptr) first = first->because.get();
      EXPECT_EQ(first->kind, Origin::Kind::kAnnotation) << where;
    }
    all.insert(all.end(), dim.axes.begin(), dim.axes.end());
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t size = mesh.axes().at(all[i].axis).size;
    EXPECT_GT(all[i].size, 1) << where;
    EXPECT_EQ(size % (all[i].pre * all[i].size), 0) << where;
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(Overlap(all[i], all[j])) << where << " " << ToString(mesh, sharding);
    }
  }
}

TEST(Propagate, IsLegalAndCompleteOnEveryProgram) {
  for (const auto& path : Programs()) {
    SCOPED_TRACE(path);
    const auto sharded = Propagated(Parsed(path));
    ASSERT_TRUE(sharded.ok()) << sharded.status();
    for (const hlo::Computation* computation : FlowComputations(*sharded->module)) {
      for (const auto& instruction : computation->instructions()) {
        const auto shardings = sharded->shardings.find(instruction.get());
        ASSERT_NE(shardings, sharded->shardings.end()) << instruction->name();
        const auto leaves = ArrayLeaves(instruction->shape());
        ASSERT_EQ(shardings->second.size(), leaves.size()) << instruction->name();
        for (size_t i = 0; i < leaves.size(); ++i) {
          ExpectLegal(sharded->mesh, shardings->second[i], *leaves[i], instruction->name());
        }
        EXPECT_NE(instruction->opcode(), hlo::Opcode::kCall);
      }
    }
    EXPECT_EQ(sharded->results.size(), ArrayLeaves(sharded->module->entry()->root()->shape()).size());
  }
}

// Puts the instructions in a random order in which operands precede their users.
void Shuffle(hlo::Computation* computation, std::mt19937* random) {
  std::vector<hlo::Instruction*> pending, order;
  for (const auto& instruction : computation->instructions()) pending.push_back(instruction.get());
  std::shuffle(pending.begin(), pending.end(), *random);
  absl::flat_hash_map<const hlo::Instruction*, bool> placed;
  std::vector<std::pair<hlo::Instruction*, int64_t>> stack;
  for (hlo::Instruction* start : pending) {
    if (!placed.emplace(start, true).second) continue;
    stack.emplace_back(start, 0);
    while (!stack.empty()) {
      auto& [instruction, next] = stack.back();
      if (next < instruction->operand_count()) {
        hlo::Instruction* operand = instruction->operand(next++);
        if (placed.emplace(operand, true).second) stack.emplace_back(operand, 0);
      } else {
        order.push_back(instruction);
        stack.pop_back();
      }
    }
  }
  computation->SetOrder(order);
}

// The opcodes, shapes and shardings of all instructions, sorted, without their names. The shardings of the results
// follow.
std::vector<std::string> Summary(const ShardedModule& sharded) {
  std::vector<std::string> lines;
  for (const hlo::Computation* computation : FlowComputations(*sharded.module)) {
    for (const auto& instruction : computation->instructions()) {
      std::string line = absl::StrCat(hlo::ToString(instruction->opcode()), " ", instruction->shape().ToString(false));
      for (const TensorSharding& sharding : sharded.shardings.at(instruction.get())) {
        absl::StrAppend(&line, " ", ToString(sharded.mesh, sharding));
      }
      lines.push_back(std::move(line));
    }
  }
  std::sort(lines.begin(), lines.end());
  for (const TensorSharding& sharding : sharded.results) lines.push_back(ToString(sharded.mesh, sharding));
  return lines;
}

TEST(Propagate, DoesNotDependOnInstructionOrder) {
  std::mt19937 random(7);
  for (const auto& path : Programs()) {
    SCOPED_TRACE(path);
    const auto expected = Propagated(Parsed(path));
    ASSERT_TRUE(expected.ok()) << expected.status();
    std::unique_ptr<hlo::Module> shuffled = Parsed(path);
    for (const auto& computation : shuffled->computations()) Shuffle(computation.get(), &random);
    const auto found = Propagated(std::move(shuffled));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(Summary(*found), Summary(*expected));
  }
}

TEST(Propagate, PrintedResultCanBeImported) {
  for (const auto& path : Programs()) {
    SCOPED_TRACE(path);
    const auto first = Propagated(Parsed(path));
    ASSERT_TRUE(first.ok()) << first.status();
    auto again = hlo::ParseText(PrintPropagated(*first));
    ASSERT_TRUE(again.ok()) << again.status();
    const auto second = Propagated(*std::move(again));
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(second->mesh.axes(), first->mesh.axes());
    EXPECT_EQ(second->results, first->results);
  }
}

TEST(Propagate, FedResultsGetTheShardingOfTheirParameter) {
  const char* text = R"(HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["a"=2, "b"=2]>}}
ENTRY main {
  w = f32[8,8] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"a\"}, {}]>"}
  x = f32[8,8] parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {\"b\"}]>"}
  n = f32[8,8] add(w, x)
  ROOT all = (f32[8,8]) tuple(n)
})";
  auto module = hlo::ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status();
  ImportOptions options;
  options.feeds = {{0, 0}};
  auto sharded = Import(*std::move(module), options);
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  ASSERT_TRUE(Propagate(&*sharded).ok());
  EXPECT_EQ(sharded->results[0], sharded->shardings.at(sharded->module->entry()->parameter(0))[0]);
}

// A program of `count` computations and an entry. Each computation except the first calls the previous one twice; the
// entry calls the last one.
std::string Doubling(int count) {
  std::string text = "HloModule m\n\nf0 {\n  p = f32[] parameter(0)\n  ROOT n = f32[] negate(p)\n}\n\n";
  for (int i = 1; i < count; ++i) {
    absl::StrAppend(&text, "f", i, " {\n  p = f32[] parameter(0)\n  a = f32[] call(p), to_apply=f", i - 1,
                    "\n  ROOT b = f32[] call(a), to_apply=f", i - 1, "\n}\n\n");
  }
  return absl::StrCat(text, "ENTRY main {\n  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=f", count - 1,
                      "\n}\n");
}

TEST(Import, RefusesProgramsThatInliningMakesTooLarge) {
  auto small = hlo::ParseText(Doubling(8));
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_TRUE(Propagated(*std::move(small)).ok());
  auto large = hlo::ParseText(Doubling(60));
  ASSERT_TRUE(large.ok()) << large.status();
  const auto status = Propagated(*std::move(large)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("once calls are inlined"));
}

// The border calls of a manual computation count as side effects until Import has read them. Import then removes a loop
// that only a dead border call used, and its annotations.
TEST(Import, DropsAnnotationsOfDeadLoops) {
  std::unique_ptr<hlo::Module> module = Parsed("sharding/testdata/import/dead_loop.hlo");
  const auto sharded = Propagated(std::move(module));
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  EXPECT_EQ(sharded->module->computations().size(), 1u);
}

// A program of `depth` loops, each in the body of the next one. An entry parameter is split.
std::string NestedLoops(int depth) {
  const std::string state = "(s32[], f32[8])";
  std::string text =
      "HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<[\"x\"=2]>}}\n"
      "condition { s = " + state + " parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(3)\n"
      "  ROOT c = pred[] compare(i, n), direction=LT }\n";
  for (int level = 0; level < depth; ++level) {
    absl::StrAppend(&text, "body", level, " { s = ", state, " parameter(0) i = s32[] get-tuple-element(s), index=0\n",
                    "  x = f32[8] get-tuple-element(s), index=1 one = s32[] constant(1) j = s32[] add(i, one)\n");
    if (level == 0) {
      absl::StrAppend(&text, "  y = f32[8] cosine(x)\n");
    } else {
      absl::StrAppend(&text, "  zero = s32[] constant(0) t = ", state, " tuple(zero, x)\n  w = ", state,
                      " while(t), condition=condition, body=body", level - 1,
                      "\n  y = f32[8] get-tuple-element(w), index=1\n");
    }
    absl::StrAppend(&text, "  ROOT r = ", state, " tuple(j, y) }\n");
  }
  absl::StrAppend(&text, "ENTRY e { x = f32[8] parameter(0), frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<",
                  "@mesh, [{\\\"x\\\"}]>\"}\n  zero = s32[] constant(0) t = ", state, " tuple(zero, x)\n  ROOT w = ",
                  state, " while(t), condition=condition, body=body", depth - 1, " }\n");
  return text;
}

// Propagation visits the body of a loop once per pass over the program, at any depth.
TEST(Propagate, DeeplyNestedLoops) {
  auto module = hlo::ParseText(NestedLoops(40));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto sharded = Propagated(*std::move(module));
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  EXPECT_FALSE(sharded->results[1].IsReplicated());
}

TEST(Import, InlinedInstructionsHaveASourceLine) {
  const char* examples = std::getenv("XLAD_EXAMPLES");
  if (examples == nullptr) GTEST_SKIP() << "XLAD_EXAMPLES is not set";
  const auto sharded = Propagated(Parsed(std::filesystem::path(examples) / "digits_mlp" / "step.dp4_tp2.hlo"));
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  int with_source = 0;
  for (const auto& instruction : sharded->module->entry()->instructions()) {
    if (instruction->opcode() != hlo::Opcode::kExponential) continue;
    EXPECT_THAT(sharded->module->SourceOf(*instruction), testing::HasSubstr(".py:")) << instruction->name();
    ++with_source;
  }
  EXPECT_GT(with_source, 0);
}

TEST(OpRule, EveryOpcodeHasARuleOrAReason) {
  for (int i = 0; i < hlo::OpcodeCount(); ++i) {
    const auto opcode = static_cast<hlo::Opcode>(i);
    EXPECT_TRUE(HasRule(opcode)) << hlo::ToString(opcode);
  }
}

}  // namespace
}  // namespace xlad::sharding

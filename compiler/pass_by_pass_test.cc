// Evaluates random programs after each pass of the pipeline, and names the pass that changes the results.
#include <gtest/gtest.h>

#include <set>

#include "base/testing/case_count.h"
#include "compiler/pipeline.h"
#include "compiler/testing/compare.h"
#include "compiler/testing/for_seeds.h"
#include "compiler/testing/random_program.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

using hlo::Module;
using tensor::Array;

using Results = std::vector<std::vector<Array>>;

absl::StatusOr<Results> Evaluated(const Module& module, const std::vector<std::vector<hlo::Literal>>& inputs) {
  XLAD_ASSIGN_OR_RETURN(const auto values,
                        hlo::Evaluate(std::vector<const Module*>(inputs.size(), &module), inputs));
  Results results;
  for (const auto& value : values) results.push_back(ArraysOf(value));
  return results;
}

std::vector<std::vector<hlo::Literal>> InputsFor(const RandomModule& made, uint64_t seed) {
  const auto random = SeededRandom(seed);
  std::vector<std::vector<hlo::Literal>> inputs(made.module->num_partitions);
  for (auto& device : inputs) {
    for (const Array& input : RandomInputs(*made.module, random.get(), made.special)) device.emplace_back(input);
  }
  return inputs;
}

// Adds the passes that changed the program to `changing`.
absl::Status Try(const RandomModule& made, uint64_t seed, std::set<std::string>* changing) {
  const auto inputs = InputsFor(made, seed);
  XLAD_ASSIGN_OR_RETURN(const Results expected, Evaluated(*made.module, inputs));
  const std::unique_ptr<Module> module = made.module->Clone();
  PassContext context;
  context.devices = module->num_partitions;
  std::string before = hlo::PrintText(*module);
  for (const PassEntry& entry : PassTable()) {
    XLAD_RETURN_IF_ERROR(Annotate(entry.pass(*module, context), entry.name));
    const std::string after = hlo::PrintText(*module);
    if (after == before) continue;
    changing->insert(entry.name);
    const std::string place = absl::StrCat("after ", entry.name, "\n", before, "became\n", after);
    XLAD_RETURN_IF_ERROR(Annotate(hlo::Verify(*module), place));
    const auto found = Evaluated(*module, inputs);
    XLAD_RETURN_IF_ERROR(Annotate(found.status(), place));
    for (size_t d = 0; d < expected.size(); ++d) {
      XLAD_RETURN_IF_ERROR(Annotate(CompareResults((*found)[d], expected[d], made.exactness), place));
    }
    before = after;
  }
  return absl::OkStatus();
}

TEST(PassByPass, KeepsTheResults) {
  std::set<std::string> changing;
  const bool all_tried = ForSeeds(5000, CaseCount(150, 600), [&](uint64_t seed) {
    const int devices = seed % 3 == 0 ? 2 + static_cast<int>(seed % 4) : 1;
    const RandomModule made = RandomLocalProgram(seed, 3 + static_cast<int>(seed % 23), devices);
    const absl::Status status = Try(made, seed + 1, &changing);
    EXPECT_TRUE(status.ok()) << status;
  });
  if (!all_tried) return;
  // The programs must exercise most passes.
  for (const char* pass : {"inline-calls", "canonicalize-collectives", "simplify", "fold-constants", "cse",
                           "lower-convolutions", "canonicalize-dots", "eliminate-dead-code", "fuse",
                           "order-instructions"}) {
    EXPECT_TRUE(changing.contains(pass)) << pass;
  }
}

// Adds random control edges to `module`. Returns their number.
int64_t AddControlEdges(uint64_t seed, Module* module) {
  const auto random = SeededRandom(seed);
  int64_t edges = 0;
  for (const auto& computation : module->computations()) {
    const auto& all = computation->instructions();
    for (size_t i = 1; i < all.size(); ++i) {
      if (all[i]->opcode() == hlo::Opcode::kParameter || random->Below(3) != 0) continue;
      all[i]->AddControlPredecessor(all[random->Below(i)].get());
      ++edges;
    }
  }
  return edges;
}

// A pass that left an edge at an instruction that it replaced by others would keep the instruction.
TEST(PassByPass, ControlEdgesChangeNothing) {
  int64_t edges = 0;
  const bool all_tried = ForSeeds(7000, CaseCount(60, 300), [&](uint64_t seed) {
    const int devices = seed % 3 == 0 ? 2 + static_cast<int>(seed % 4) : 1;
    const std::unique_ptr<Module> plain = RandomProgram(seed, 3 + static_cast<int>(seed % 23), devices);
    const std::unique_ptr<Module> ordered = plain->Clone();
    edges += AddControlEdges(seed, ordered.get());
    ASSERT_TRUE(hlo::Verify(*ordered).ok());
    for (Module* module : {plain.get(), ordered.get()}) {
      PassContext context;
      context.devices = devices;
      ASSERT_TRUE(RunPipeline(*module, context, {}, nullptr).ok());
    }
    EXPECT_EQ(hlo::PrintText(*ordered), hlo::PrintText(*plain));
  });
  if (all_tried) EXPECT_GT(edges, 100);
}

}  // namespace
}  // namespace xlad::compiler

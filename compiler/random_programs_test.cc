// Compares random programs, compiled to steps and run on their buffers, with the evaluator on the original program.
#include <gtest/gtest.h>

#include <set>

#include "base/testing/case_count.h"
#include "compiler/testing/compare.h"
#include "compiler/testing/for_seeds.h"
#include "compiler/testing/random_inputs.h"
#include "compiler/testing/random_program.h"
#include "compiler/testing/run_steps.h"
#include "compiler/testing/shrink.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "tensor/sub_byte.h"

namespace xlad::compiler {
namespace {

using tensor::Array;

TEST(RandomInputs, BytesOfNarrowIntegersAreExtended) {
  using tensor::ElementType;
  const auto random = SeededRandom(1);
  for (const ElementType type : {ElementType::kS2, ElementType::kU2, ElementType::kS4, ElementType::kU4}) {
    const tensor::Shape shape{type, {200}};
    for (const Array& array : {RandomArray(shape, random.get()), RandomSpecialArray(shape, random.get())}) {
      std::set<int> values;
      for (const std::byte byte : array.bytes()) {
        const auto value = static_cast<int8_t>(byte);
        ASSERT_EQ(value, tensor::WrapSubByte(type, value)) << tensor::ToString(type);
        values.insert(value);
      }
      EXPECT_GE(values.size(), 4u) << tensor::ToString(type);
    }
  }
}

absl::Status Try(const Module& module, uint64_t seed, const RandomModule& made) {
  XLAD_RETURN_IF_ERROR(hlo::Verify(module));
  auto random = SeededRandom(seed + 1);
  std::vector<std::vector<Array>> inputs;
  std::vector<std::vector<hlo::Literal>> literals;
  for (int64_t d = 0; d < module.num_partitions; ++d) {
    inputs.push_back(RandomInputs(module, random.get(), made.special));
    literals.emplace_back();
    for (const Array& input : inputs.back()) literals.back().emplace_back(input);
  }
  XLAD_ASSIGN_OR_RETURN(const auto expected,
                        hlo::Evaluate(std::vector<const Module*>(inputs.size(), &module), literals));
  CompileOptions options;
  options.verify = true;
  CompileRequest request;  // In half of the programs, collectives overlap with as many operations as possible.
  if (seed % 2 == 1) request.mutable_policy()->set_overlap(CompilePolicy::ALWAYS);
  XLAD_ASSIGN_OR_RETURN(const Compilation compiled, CompileToSteps(module.Clone(), request, options));
  XLAD_ASSIGN_OR_RETURN(const auto results, RunSteps(compiled, inputs));
  for (size_t d = 0; d < inputs.size(); ++d) {
    XLAD_RETURN_IF_ERROR(CompareResults(results[d], ArraysOf(expected[d]), made.exactness));
  }
  return absl::OkStatus();
}

void RunBoth(uint64_t seed, int instructions, int devices) {
  const RandomModule made = RandomLocalProgram(seed, instructions, devices);
  const absl::Status status = Try(*made.module, seed, made);
  if (status.ok()) return;
  const auto fails = [&](const Module& candidate) {
    return Try(candidate, seed, made).code() == status.code();
  };
  const auto tries = static_cast<int>(NumberFrom("XLAD_SHRINK", 1000));
  const std::unique_ptr<Module> small = Shrink(*made.module, fails, tries);
  ADD_FAILURE() << instructions << " instructions, " << devices << " devices: " << status << "\nShrunk ("
                << Try(*small, seed, made) << "):\n"
                << hlo::PrintText(*small);
}

TEST(RandomPrograms, OneDevice) {
  ForSeeds(0, CaseCount(100, 300), [](uint64_t seed) { RunBoth(seed, 3 + static_cast<int>(seed % 25), 1); });
}

TEST(RandomPrograms, ManyDevices) {
  ForSeeds(1000, CaseCount(50, 150), [](uint64_t seed) {
    RunBoth(seed, 3 + static_cast<int>(seed % 17), 2 + static_cast<int>(seed % 3));
  });
}

}  // namespace
}  // namespace xlad::compiler

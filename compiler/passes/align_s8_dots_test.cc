// Dots of s8 keep their results when their operands are transposed for cuBLASLt.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/random.h"
#include "compiler/analysis/hlo_names.h"
#include "compiler/passes/passes.h"
#include "compiler/testing/compare.h"
#include "compiler/testing/random_inputs.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"
#include "hlo/infer/infer.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

// A dot of s8 with a result of s32, whose operands have up to two batch, free and contracting dimensions each, in
// random order.
class RandomS8Dot {
 public:
  explicit RandomS8Dot(uint64_t seed) : random_(SeededRandom(seed)) {}

  std::unique_ptr<Module> Make() {
    auto module = std::make_unique<Module>("dot");
    Computation* entry = module->Add(std::make_unique<Computation>("main"));
    module->set_entry(entry);
    hlo::Builder builder(entry);
    const Dims batch = Sizes(), contracting = Sizes();
    hlo::DotDimensions dims;
    Instruction* const lhs =
        Operand(&builder, 0, {batch, Sizes(), contracting}, &dims.lhs_batch, &dims.lhs_contracting);
    Instruction* const rhs =
        Operand(&builder, 1, {batch, Sizes(), contracting}, &dims.rhs_batch, &dims.rhs_contracting);
    entry->set_root(builder.Dot(lhs, rhs, dims, ElementType::kS32));
    return module;
  }

 private:
  Dims Sizes() {
    Dims sizes(random_->Below(3));
    for (int64_t& size : sizes) size = std::array<int64_t, 6>{1, 2, 3, 4, 4, 8}[random_->Below(6)];
    return sizes;
  }
  // An operand with these groups of dimensions: batch, free, contracting.
  Instruction* Operand(hlo::Builder* builder, int64_t number, const std::array<Dims, 3>& groups, Dims* batch,
                       Dims* contracting) {
    std::vector<std::pair<int, size_t>> places;  // The group and the position in the group of each dimension.
    for (int g = 0; g < 3; ++g) {
      for (size_t i = 0; i < groups[g].size(); ++i) {
        places.insert(places.begin() + static_cast<int64_t>(random_->Below(places.size() + 1)), {g, i});
      }
    }
    Dims sizes;
    batch->resize(groups[0].size());
    contracting->resize(groups[2].size());
    for (const auto& [g, i] : places) {
      if (g == 0) (*batch)[i] = std::ssize(sizes);
      if (g == 2) (*contracting)[i] = std::ssize(sizes);
      sizes.push_back(groups[g][i]);
    }
    return builder->Parameter(number, Shape(ElementType::kS8, sizes));
  }

  std::unique_ptr<Random> random_;
};

TEST(AlignS8Dots, KeepsTheResults) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const std::unique_ptr<Module> module = RandomS8Dot(seed).Make();
    ASSERT_TRUE(hlo::Verify(*module).ok()) << hlo::Verify(*module);
    const std::string before = hlo::PrintText(*module);
    const auto random = SeededRandom(seed);
    std::vector<hlo::Literal> inputs;
    for (const tensor::Array& input : RandomInputs(*module, random.get())) inputs.emplace_back(input);
    const auto wanted = hlo::Evaluate(*module, inputs);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    PassContext context;
    ASSERT_TRUE(AlignS8Dots(*module, context).ok());
    ASSERT_EQ(hlo::PrintText(*module), before) << "only programs for GPUs change";
    context.uses_cublaslt = true;
    ASSERT_TRUE(AlignS8Dots(*module, context).ok());
    const std::string after = hlo::PrintText(*module);
    ASSERT_TRUE(hlo::Verify(*module).ok()) << hlo::Verify(*module) << "\n" << before << after;
    const auto found = hlo::Evaluate(*module, inputs);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_TRUE(found->array == wanted->array) << before << after;
    if (after == before) continue;
    ++changed;
    const Instruction* const dot = module->entry()->root();
    for (const int64_t side : {0, 1}) {
      const Dims& contracting =
          side == 0 ? dot->attributes().dot->lhs_contracting : dot->attributes().dot->rhs_contracting;
      const int64_t ndim = dot->operand(side)->shape().ndim();
      for (int64_t i = 0; i < std::ssize(contracting); ++i) {
        ASSERT_EQ(contracting[i], ndim - std::ssize(contracting) + i) << after;
      }
    }
    ASSERT_TRUE(AlignS8Dots(*module, context).ok());
    ASSERT_EQ(hlo::PrintText(*module), after) << "the pass has nothing left to change";
  }
  EXPECT_GT(changed, 50);
}

// `x` and `w` are transposed before the loop, `w` only once for both of its dots.
TEST(AlignS8Dots, TransposesOperandsOfLoopsBeforeTheLoop) {
  const auto module = hlo::ParseText(hlo::TestText("compiler/passes/testdata/loop_of_s8_dots.hlo"));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto random = SeededRandom(1);
  const std::vector<tensor::Array> inputs = RandomInputs(**module, random.get());
  const auto wanted = hlo::Evaluate({module->get()}, {{inputs.begin(), inputs.end()}});
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  PassContext context;
  context.uses_cublaslt = true;
  ASSERT_TRUE(AlignS8Dots(**module, context).ok());
  const std::string after = hlo::PrintText(**module);
  ASSERT_TRUE(hlo::Verify(**module).ok()) << hlo::Verify(**module) << "\n" << after;
  const auto transposes = [](const Computation& computation) {
    return std::count_if(computation.instructions().begin(), computation.instructions().end(),
                         [](const auto& i) { return i->opcode() == Opcode::kTranspose; });
  };
  EXPECT_EQ(transposes(*(*module)->entry()), 2) << after;
  for (const auto& computation : (*module)->computations()) {
    if (computation->name() == "body") EXPECT_EQ(transposes(*computation), 1) << "the operand that changes\n" << after;
    for (const auto& dot : computation->instructions()) {
      if (dot->opcode() != Opcode::kDot) continue;
      EXPECT_EQ(dot->attributes().dot->lhs_contracting, Dims{1}) << after;
      EXPECT_EQ(dot->attributes().dot->rhs_contracting, Dims{1}) << after;
    }
  }
  const auto found = hlo::Evaluate({module->get()}, {{inputs.begin(), inputs.end()}});
  ASSERT_TRUE(found.ok()) << found.status();
  const Exactness bits{Agreement::kBits};
  const absl::Status same = CompareResults(ArraysOf((*found)[0]), ArraysOf((*wanted)[0]), {bits, bits});
  EXPECT_TRUE(same.ok()) << same << after;
}

}  // namespace
}  // namespace xlad::compiler

// Random convolutions with all dimension orders, windows and groups: the lowered program is compared with the original
// one on the evaluator.
#include "compiler/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/testing/case_count.h"
#include "compiler/analysis/hlo_names.h"
#include "compiler/analysis/kernel_cost.h"
#include "compiler/analysis/library_op.h"
#include "compiler/testing/random_program.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"
#include "hlo/infer/infer.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(SeededRandom(seed)) {}
  int Below(int n) { return static_cast<int>(random_->Below(static_cast<uint64_t>(n))); }

  // The sizes of a convolution. One of the two numbers of groups is 1.
  struct Sizes {
    int64_t feature_groups, batch_groups, batch, features, outputs;
  };
  Sizes Usual() {
    const int64_t groups = 1 + Below(2), batch = 1 + Below(3);
    return {groups, 1, batch, groups * (1 + Below(3)), groups * (1 + Below(3))};
  }
  Sizes Depthwise() {
    const int64_t groups = 4 + Below(3), other = 1 + Below(3);
    return Below(2) == 0 ? Sizes{groups, 1, other, groups, groups} : Sizes{1, groups, groups, other, groups};
  }

  // Returns a module with one convolution of 1 or 2 spatial dimensions, or null if its shape is invalid or empty.
  std::unique_ptr<Module> Run(const Sizes& sizes) {
    const int spatial = 1 + Below(2);
    hlo::ConvolutionDimensions dims;
    hlo::Window window;
    const std::vector<int64_t> input = Shuffled(spatial + 2), kernel = Shuffled(spatial + 2),
                               output = Shuffled(spatial + 2);
    Dims input_sizes(input.size()), kernel_sizes(kernel.size());
    dims.input_batch = input[0], dims.input_feature = input[1];
    dims.kernel_input_feature = kernel[0], dims.kernel_output_feature = kernel[1];
    dims.output_batch = output[0], dims.output_feature = output[1];
    input_sizes[input[0]] = sizes.batch;
    input_sizes[input[1]] = sizes.features;
    kernel_sizes[kernel[0]] = sizes.features / sizes.feature_groups;
    kernel_sizes[kernel[1]] = sizes.outputs;
    for (int s = 0; s < spatial; ++s) {
      dims.input_spatial.push_back(input[static_cast<size_t>(s) + 2]);
      dims.kernel_spatial.push_back(kernel[static_cast<size_t>(s) + 2]);
      dims.output_spatial.push_back(output[static_cast<size_t>(s) + 2]);
      hlo::WindowDimension w;
      w.size = 1 + Below(5);
      w.stride = 1 + Below(2);
      w.padding_low = Below(4) - 1;
      w.padding_high = Below(4) - 1;
      w.window_dilation = 1 + Below(2);
      w.base_dilation = 1 + Below(2);
      w.window_reversal = Below(3) == 0;
      window.push_back(w);
      input_sizes[dims.input_spatial.back()] = 2 + Below(6);
      kernel_sizes[dims.kernel_spatial.back()] = w.size;
    }
    auto module = std::make_unique<Module>("convolution");
    Computation* entry = module->Add(std::make_unique<Computation>("main"));
    module->set_entry(entry);
    hlo::Builder builder(entry);
    Instruction* x = builder.Parameter(0, Shape(ElementType::kF32, input_sizes));
    Instruction* k = builder.Parameter(1, Shape(ElementType::kF32, kernel_sizes));
    auto convolution = std::make_unique<Instruction>(Opcode::kConvolution, Shape(ElementType::kF32, {}));
    convolution->mutable_attributes().convolution = dims;
    convolution->mutable_attributes().window = window;
    convolution->mutable_attributes().feature_group_count = sizes.feature_groups;
    convolution->mutable_attributes().batch_group_count = sizes.batch_groups;
    Instruction* made = entry->Add(std::move(convolution), {x, k});
    auto shape = hlo::InferShape(*made);
    if (!shape.ok() || shape->elements() == 0) return nullptr;
    made->mutable_shape() = *shape;
    entry->set_root(made);
    return module;
  }

 private:
  std::vector<int64_t> Shuffled(int n) {
    std::vector<int64_t> order;
    for (int i = 0; i < n; ++i) order.insert(order.begin() + Below(i + 1), i);
    return order;
  }
  std::unique_ptr<Random> random_;
};

struct Counts {
  int checked = 0;
  int convolutions = 0;  // Programs that have a convolution after the pass.
  int with_vectors = 0;  // Programs whose convolution has vectors of groups.
};

// Lowers a convolution that is not a library op, and compares the results before and after.
void Check(std::unique_ptr<Module> module, uint64_t seed, Counts* counts) {
  if (module == nullptr || !hlo::Verify(*module).ok() || IsLibraryOp(*module->entry()->root())) return;
  const std::string before = hlo::PrintText(*module);
  auto random = SeededRandom(seed);
  std::vector<hlo::Literal> inputs;
  for (const tensor::Array& input : RandomInputs(*module, random.get())) inputs.emplace_back(input);
  auto wanted = hlo::Evaluate(*module, inputs);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  PassContext context;
  ASSERT_TRUE(LowerConvolutions(*module, context).ok());
  const std::string after = hlo::PrintText(*module);
  ASSERT_TRUE(hlo::Verify(*module).ok()) << hlo::Verify(*module) << "\n" << before << after;
  auto found = hlo::Evaluate(*module, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->array.shape(), wanted->array.shape());
  for (size_t i = 0; i < wanted->array.values<float>().size(); ++i) {
    ASSERT_NEAR(found->array.values<float>()[i], wanted->array.values<float>()[i], 1e-4) << before << after;
  }
  ++counts->checked;
  for (const auto& instruction : module->entry()->instructions()) {
    if (instruction->opcode() != Opcode::kConvolution) continue;
    ++counts->convolutions;
    counts->with_vectors += HasVectorsOfGroups(*instruction) ? 1 : 0;
  }
}

TEST(LowerConvolutions, KeepsTheResults) {
  Counts counts;
  for (uint64_t seed = 0; seed < CaseCount(500, 1500); ++seed) {
    Maker maker(seed);
    Check(maker.Run(maker.Usual()), seed, &counts);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(counts.checked, 100);
  EXPECT_EQ(counts.convolutions, 0);
}

TEST(LowerConvolutions, DepthwiseConvolutionsGetVectorsOfGroups) {
  Counts counts;
  for (uint64_t seed = 0; seed < CaseCount(200, 1500); ++seed) {
    Maker maker(seed);
    Check(maker.Run(maker.Depthwise()), seed, &counts);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(counts.checked, 30);
  EXPECT_EQ(counts.convolutions, counts.checked);
  EXPECT_EQ(counts.with_vectors, counts.checked);
}

}  // namespace
}  // namespace xlad::compiler

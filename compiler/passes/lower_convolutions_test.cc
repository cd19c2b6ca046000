// Random convolutions with all dimension orders, windows, groups and numbers of spatial dimensions, and of several
// types: the lowered program is compared with the original one on the evaluator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/testing/case_count.h"
#include "compiler/analysis/hlo_names.h"
#include "compiler/analysis/kernel_cost.h"
#include "compiler/analysis/library_op.h"
#include "compiler/passes/passes.h"
#include "compiler/testing/random_inputs.h"
#include "hlo/build/builder.h"
#include "hlo/eval/conformance.h"
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

  // The sizes of a convolution. At least one of the two numbers of groups is 1.
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

  // Returns a module with one convolution of 0 to 3 spatial dimensions, or null if its shape is invalid or empty.
  std::unique_ptr<Module> Run(const Sizes& sizes) {
    struct Types {
      ElementType operand, result;
    };
    const Types types = std::vector<Types>{{ElementType::kF32, ElementType::kF32},
                                           {ElementType::kF64, ElementType::kF64},
                                           {ElementType::kS8, ElementType::kS32},
                                           {ElementType::kC64, ElementType::kC64}}[static_cast<size_t>(Below(4))];
    const int spatial = Below(4);
    const bool is_small = spatial == 3;  // The evaluator is slow.
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
      w.size = 1 + Below(is_small ? 2 : 5);
      w.stride = 1 + Below(2);
      w.padding_low = Below(4) - 1;
      w.padding_high = Below(4) - 1;
      w.window_dilation = 1 + Below(2);
      w.base_dilation = 1 + Below(2);
      w.window_reversal = Below(3) == 0;
      window.push_back(w);
      input_sizes[dims.input_spatial.back()] = 2 + Below(is_small ? 2 : 6);
      kernel_sizes[dims.kernel_spatial.back()] = w.size;
    }
    auto module = std::make_unique<Module>("convolution");
    Computation* entry = module->Add(std::make_unique<Computation>("main"));
    module->set_entry(entry);
    hlo::Builder builder(entry);
    Instruction* x = builder.Parameter(0, Shape(types.operand, input_sizes));
    Instruction* k = builder.Parameter(1, Shape(types.operand, kernel_sizes));
    auto convolution = std::make_unique<Instruction>(Opcode::kConvolution, Shape(types.result, {}));
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

// An array whose elements have few digits, so that sums of products are exact.
tensor::Array Input(const tensor::Shape& shape, Random* random) {
  if (!tensor::IsComplex(shape.type)) return RandomArray(shape, random);
  tensor::Shape parts{tensor::RealPartOf(shape.type), shape.dims};
  parts.dims.push_back(2);
  const tensor::Array values = RandomArray(parts, random);
  tensor::Array array(shape);
  std::memcpy(array.bytes().data(), values.bytes().data(), values.bytes().size());
  return array;
}

struct Counts {
  int checked = 0;
  int without_dots = 0;  // Programs whose convolution im2col does not support.
  int convolutions = 0;  // Programs that have a convolution after the pass.
  int with_vectors = 0;  // Programs whose convolution has vectors of groups.
};

// Runs the pass, and compares the results before and after.
void Lower(Module& module, uint64_t seed, bool is_cpu) {
  const std::string before = hlo::PrintText(module);
  auto random = SeededRandom(seed);
  std::vector<hlo::Literal> inputs;
  for (const Instruction* parameter : module.entry()->parameters()) {
    inputs.emplace_back(Input(parameter->shape().array(), random.get()));
  }
  auto wanted = hlo::Evaluate(module, inputs);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  PassContext context;
  context.is_cpu = is_cpu;
  ASSERT_TRUE(LowerConvolutions(module, context).ok());
  const std::string after = hlo::PrintText(module);
  ASSERT_TRUE(hlo::Verify(module).ok()) << hlo::Verify(module) << "\n" << before << after;
  auto found = hlo::Evaluate(module, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->array.shape(), wanted->array.shape());
  const hlo::Difference difference = hlo::Compare(found->array, wanted->array, {});
  ASSERT_EQ(difference.mismatches, 0) << difference.actual << " instead of " << difference.expected << "\n"
                                      << before << after;
}

// Lowers a convolution that is not a library op.
void Check(std::unique_ptr<Module> module, uint64_t seed, bool is_cpu, Counts* counts) {
  if (module == nullptr || !hlo::Verify(*module).ok() || IsLibraryOp(*module->entry()->root())) return;
  const hlo::Attributes& attributes = module->entry()->root()->attributes();
  const bool has_dot = attributes.batch_group_count == 1 && !attributes.window->empty() &&
                       tensor::IsFloating(module->entry()->root()->shape().type());
  ASSERT_NO_FATAL_FAILURE(Lower(*module, seed, is_cpu));
  ++counts->checked;
  counts->without_dots += has_dot ? 0 : 1;
  for (const auto& instruction : module->entry()->instructions()) {
    const Dims& order = instruction->dimensions();
    ASSERT_FALSE(instruction->opcode() == Opcode::kTranspose && is_cpu && std::is_sorted(order.begin(), order.end()) &&
                 HasVectorsOfGroups(*instruction->operand(0)))
        << "a transpose without effect\n"
        << hlo::PrintText(*module);
    if (instruction->opcode() != Opcode::kConvolution) continue;
    ++counts->convolutions;
    counts->with_vectors += HasVectorsOfGroups(*instruction) ? 1 : 0;
  }
}

TEST(LowerConvolutions, KeepsTheResults) {
  Counts counts;
  for (uint64_t seed = 0; seed < CaseCount(500, 1500); ++seed) {
    Maker maker(seed);
    Check(maker.Run(maker.Usual()), seed, /*is_cpu=*/true, &counts);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(counts.checked - counts.without_dots, 50);
  EXPECT_GT(counts.without_dots, 50);
  EXPECT_EQ(counts.convolutions, counts.without_dots);
  EXPECT_EQ(counts.with_vectors, 0);
}

TEST(LowerConvolutions, DepthwiseConvolutionsGetVectorsOfGroups) {
  Counts counts;
  for (uint64_t seed = 0; seed < CaseCount(200, 1500); ++seed) {
    Maker maker(seed);
    Check(maker.Run(maker.Depthwise()), seed, /*is_cpu=*/true, &counts);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(counts.checked, 30);
  EXPECT_EQ(counts.convolutions, counts.checked);
  EXPECT_EQ(counts.with_vectors, counts.checked);
}

// Kernels of other devices do not compute vectors of groups.
TEST(LowerConvolutions, DepthwiseConvolutionsBecomeDotsOnDevicesOtherThanCpus) {
  Counts counts;
  for (uint64_t seed = 0; seed < CaseCount(200, 1500); ++seed) {
    Maker maker(seed);
    Check(maker.Run(maker.Depthwise()), seed, /*is_cpu=*/false, &counts);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(counts.checked - counts.without_dots, 5);
  EXPECT_EQ(counts.convolutions, counts.without_dots);
  EXPECT_LT(counts.with_vectors, counts.convolutions / 2);
}

// Whether the pass exchanges the operands of the convolution, which must be a library op before and after.
bool IsExchanged(const std::string& result, const std::string& x, const std::string& k, const std::string& how,
                 bool is_cpu = true) {
  auto module = hlo::ParseText(absl::StrCat(
      "HloModule m\nENTRY e {\n x = f32[", x, "] parameter(0)\n k = f32[", k, "] parameter(1)\n ROOT c = f32[", result,
      "] convolution(x, k), ", how, ", metadata={op_name=\"gradient\"}\n}\n"));
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(IsLibraryOp(*(*module)->entry()->root()));
  Lower(**module, /*seed=*/1, is_cpu);
  const Instruction* root = (*module)->entry()->root();
  EXPECT_EQ(root->metadata().op_name, "gradient");
  if (root->opcode() == Opcode::kConvolution) return false;
  EXPECT_EQ(root->opcode(), Opcode::kReverse);
  EXPECT_TRUE(IsLibraryOp(*root->operand(0)));
  for (const hlo::WindowDimension& w : *root->operand(0)->attributes().window) EXPECT_EQ(w.base_dilation, 1);
  return true;
}

TEST(LowerConvolutions, OperandsOfKernelGradientsOfTransposedConvolutionsAreExchanged) {
  // NHWC, as JAX writes them.
  EXPECT_TRUE(IsExchanged("4,3,2,5", "3,5,6,2", "3,10,12,5",
                          "window={size=10x12 pad=2_2x1_2 lhs_dilate=2x2}, dim_labels=f01b_i01o->01bf"));
  // NCHW with one dilated dimension.
  EXPECT_TRUE(IsExchanged("2,5,3,3", "3,2,5,6", "3,5,13,4",
                          "window={size=13x4 pad=1_1x0_0 lhs_dilate=3x1}, dim_labels=fb01_io01->bf01"));
  EXPECT_FALSE(IsExchanged("2,5,3,3", "3,2,5,6", "3,5,13,4",
                           "window={size=13x4 pad=1_1x0_0 lhs_dilate=3x1}, dim_labels=fb01_io01->bf01",
                           /*is_cpu=*/false));
  // The last elements of the window are over the high padding alone.
  EXPECT_TRUE(
      IsExchanged("3,2,5", "3,7,2", "3,23,5", "window={size=23 pad=1_5 lhs_dilate=3}, dim_labels=f0b_i0o->0bf"));
  // The window reaches beyond the low padding, so the exchanged convolution would have negative padding.
  EXPECT_FALSE(IsExchanged("3,2,5", "3,4,2", "3,9,5", "window={size=9 pad=4_0 lhs_dilate=2}, dim_labels=f0b_i0o->0bf"));
  // The gradient of an input: the output has more positions than the window.
  EXPECT_FALSE(IsExchanged("2,7,5", "2,4,3", "3,2,5", "window={size=2 pad=1_0 lhs_dilate=2}, dim_labels=b0f_i0o->b0f"));
}

}  // namespace
}  // namespace xlad::compiler

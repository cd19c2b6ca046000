// Programs for simulated TPUs, run by the interpreter, have the same results as the evaluator.
#include "compiler/codegen/tpu/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/testing/case_count.h"
#include "compiler/codegen/tpu/interpret_lowered.h"
#include "compiler/compile.h"
#include "compiler/testing/for_seeds.h"
#include "compiler/testing/random_inputs.h"
#include "compiler/testing/random_program.h"
#include "hlo/build/builder.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

using tensor::Array;

bool HasControlFlow(const Module& module) {
  for (const auto& instruction : module.entry()->instructions()) {
    const Opcode opcode = instruction->opcode();
    if (opcode == Opcode::kWhile || opcode == Opcode::kConditional || opcode == Opcode::kCall ||
        hlo::IsCollective(opcode)) {
      return true;
    }
  }
  return false;
}

// Sets products of f32 to six passes, which are as exact as f32. Returns whether there is such a product.
bool RaisePrecision(Module* module) {
  bool has_products = false;
  for (const auto& computation : module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->opcode() != Opcode::kDot && instruction->opcode() != Opcode::kConvolution) continue;
      instruction->mutable_attributes().operand_precision = {"highest", "highest"};
      has_products = true;
    }
  }
  return has_products;
}

TEST(LowerToLloTest, RandomProgramsHaveTheResultsOfTheEvaluator) {
  // The loop counts programs, not seeds as ForSeeds does, because some seeds are skipped.
  const auto wanted = static_cast<int>(NumberFrom("XLAD_RANDOM_PROGRAMS", CaseCount(700, 2000)));
  int programs = 0, kernels = 0, macros = 0, fused = 0;
  for (uint64_t seed = NumberFrom("XLAD_SEED", 1); programs < wanted; ++seed) {
    RandomModule random = RandomLocalProgram(seed, 3 + static_cast<int>(seed % 8), 1);
    if (HasControlFlow(*random.module)) continue;
    // An infinity cannot be split into bf16 parts: some parts are NaNs.
    const bool has_specials = std::find(random.special.begin(), random.special.end(), true) != random.special.end();
    if (RaisePrecision(random.module.get()) && has_specials) continue;
    const auto source = SeededRandom(seed);
    const std::vector<Array> inputs = RandomInputs(*random.module, source.get(), random.special);
    const std::vector<Array> expected = Evaluated(*random.module, inputs);
    for (Exactness& exactness : random.exactness) {
      // The order of f32 sums differs, and bf16 parts cannot represent subnormal numbers.
      exactness.error = std::max(2 * exactness.error, 1e-6);
    }
    std::unique_ptr<Module> module = random.module->Clone();
    if (seed % 2 == 0) {  // The module is in the form that the compiler's passes produce.
      auto compiled = CompileToSteps(random.module->Clone(), CompileRequest());
      ASSERT_TRUE(compiled.ok()) << seed << ": " << compiled.status();
      module = std::move(compiled->module);
      if (HasControlFlow(*module)) continue;
      ++fused;
    }
    const auto run = Interpret(*module->entry(), inputs, ChipWithVmem(seed % 3 == 0 ? 1 << 20 : 128 << 20));
    ASSERT_TRUE(run.ok()) << "seed " << seed << ": " << run.status() << "\n" << hlo::PrintText(*module);
    const absl::Status same = CompareResults(run->results, expected, random.exactness);
    ASSERT_TRUE(same.ok()) << "seed " << seed << ": " << same << "\n" << hlo::PrintText(*module);
    ++programs;
    kernels += run->kernels;
    macros += run->macros;
  }
  std::printf("%d programs, %d of them fused: %d kernels, %d macro-operations\n", programs, fused, kernels, macros);
  if (wanted < 700) return;  // Few programs may all be of one kind.
  EXPECT_GE(fused, wanted / 4);
  EXPECT_GE(kernels, wanted / 2);
  EXPECT_GE(macros, wanted / 2);
}

// Random programs of the instructions that are lowered: no macro-operation may occur.
class LoweredPrograms {
 public:
  explicit LoweredPrograms(uint64_t seed) : random_(SeededRandom(seed)) {
    module_ = Read("HloModule random\nENTRY main {\n  ROOT unused = f32[] parameter(0)\n}\n");
  }

  std::unique_ptr<Module> Make(int instructions) {
    Computation* const entry = module_->entry();
    hlo::Builder builder(entry);
    for (int p = 1; p <= 3; ++p) {
      static constexpr ElementType kFloats[] = {ElementType::kF32, ElementType::kF32, ElementType::kBF16,
                                                ElementType::kF16};
      static constexpr ElementType kIntegers[] = {ElementType::kS32, ElementType::kS16, ElementType::kU16,
                                                  ElementType::kS8, ElementType::kU8};
      const ElementType type = p == 3 ? kIntegers[Below(5)] : kFloats[Below(4)];
      pool_.push_back(builder.Parameter(p, Shape(type, RandomDims()), absl::StrCat("p", p)));
    }
    while (instructions > 0) {
      Instruction* const x = pool_[Below(static_cast<int>(pool_.size()))];
      Instruction* const made = Value(builder, x);
      if (made == nullptr || made->shape().elements() > kMaxElements) continue;
      pool_.push_back(made);
      --instructions;
    }
    std::vector<Instruction*> results = {pool_.back(), pool_[pool_.size() - 2], pool_[Below(4)]};
    entry->set_root(builder.Tuple(results));
    entry->RemoveDead();
    return std::move(module_);
  }

 private:
  static constexpr int64_t kMaxElements = 4000;
  int Below(int n) { return static_cast<int>(random_->Below(static_cast<uint64_t>(n))); }
  Dims RandomDims() {
    static constexpr int64_t kSizes[] = {1, 2, 3, 7, 8, 9, 16, 130};
    Dims dims;
    int64_t elements = 1;
    for (int d = 1 + Below(3); d > 0; --d) {
      const int64_t size = kSizes[Below(8)];
      if (elements * size > kMaxElements) break;
      elements *= size;
      dims.push_back(size);
    }
    return dims;
  }
  Dims Permutation(int64_t ndim) {
    Dims dims;
    for (int64_t d = 0; d < ndim; ++d) dims.insert(dims.begin() + Below(static_cast<int>(d) + 1), d);
    return dims;
  }

  // Makes a random instruction on x, or returns null if the instruction does not fit the shape of x. Values stay
  // bounded, so that rounding errors stay small.
  Instruction* Value(hlo::Builder& builder, Instruction* x) {
    const Dims& dims = x->shape().dims();
    const auto ndim = std::ssize(dims);
    const bool is_float = tensor::IsFloating(x->shape().type());
    switch (Below(10)) {
      case 9:
        return Converted(builder, x);
      case 0:
        return Elementwise(builder, x);
      case 1: {
        Instruction* const other = Elementwise(builder, x);
        static constexpr Opcode kOpcodes[] = {Opcode::kMaximum, Opcode::kMinimum, Opcode::kSubtract, Opcode::kAdd};
        Instruction* const sum = builder.Binary(kOpcodes[Below(4)], x, other);
        return is_float ? builder.Unary(Opcode::kTanh, sum) : sum;
      }
      case 2:
        return builder.Transpose(x, Permutation(ndim));
      case 3: {
        if (ndim == 0) return nullptr;
        // The evaluator rounds sums of narrow floats after each addition.
        const bool is_narrow = x->shape().type() == ElementType::kBF16 || x->shape().type() == ElementType::kF16;
        const bool is_max = Below(2) == 0 || is_narrow;
        Dims along = {Below(static_cast<int>(ndim))};
        if (Below(3) == 0 && along[0] + 1 < ndim) along.push_back(along[0] + 1);
        Computation* const reducer = hlo::ScalarReducer(builder.computation()->parent(),
                                                        is_max ? Opcode::kMaximum : Opcode::kAdd, x->shape().type());
        Instruction* const sum = builder.Reduce(x, builder.Scalar(x->shape().type(), 0), along, reducer);
        return is_float && !is_max ? builder.Unary(Opcode::kTanh, sum) : sum;
      }
      case 4: {
        Dims sizes = dims, positions;
        const int at = Below(static_cast<int>(ndim) + 1);
        sizes.insert(sizes.begin() + at, 1 + Below(9));
        for (int64_t d = 0; d < ndim; ++d) positions.push_back(d < at ? d : d + 1);
        return builder.Broadcast(x, sizes, positions);
      }
      case 5: {
        Dims start, limit, stride;
        for (int64_t d = 0; d < ndim; ++d) {
          start.push_back(Below(static_cast<int>(dims[d])));
          limit.push_back(start[d] + 1 + Below(static_cast<int>(dims[d] - start[d])));
          stride.push_back(d + 1 < ndim ? 1 + Below(2) : 1);
        }
        return ndim == 0 ? nullptr : builder.Slice(x, start, limit, stride);
      }
      case 6: {
        std::vector<hlo::PaddingDimension> padding;
        for (int64_t d = 0; d < ndim; ++d) padding.push_back({Below(3), Below(3), 0});
        return ndim == 0 ? nullptr : builder.Pad(x, builder.Scalar(x->shape().type(), 1), padding);
      }
      case 7: {
        const std::vector<Instruction*> parts = {x, x};
        return ndim == 0 ? nullptr : builder.Concatenate(parts, Below(static_cast<int>(ndim)));
      }
      default: {
        const bool has_product =
            is_float || x->shape().type() == ElementType::kS8 || x->shape().type() == ElementType::kU8;
        return has_product && ndim >= 2 ? Dot(builder, x) : builder.Reshape(x, {x->shape().elements()});
      }
    }
  }

  // Floats are not converted to integers, because a rounding error could then become a whole number.
  Instruction* Converted(hlo::Builder& builder, Instruction* x) {
    static constexpr ElementType kTypes[] = {ElementType::kF32, ElementType::kF16, ElementType::kBF16,
                                             ElementType::kS8,  ElementType::kU8,  ElementType::kS16,
                                             ElementType::kU16, ElementType::kS32, ElementType::kU32};
    return builder.Convert(kTypes[Below(tensor::IsFloating(x->shape().type()) ? 3 : 9)], x);
  }

  Instruction* Elementwise(hlo::Builder& builder, Instruction* x) {
    const ElementType type = x->shape().type();
    if (!tensor::IsFloating(type)) {
      const bool is_unsigned = type == ElementType::kU8 || type == ElementType::kU16 || type == ElementType::kU32;
      static constexpr Opcode kOpcodes[] = {Opcode::kNegate, Opcode::kNot, Opcode::kAbs};
      return builder.Unary(kOpcodes[Below(is_unsigned ? 2 : 3)], x);
    }
    static constexpr Opcode kOpcodes[] = {Opcode::kTanh,   Opcode::kLogistic, Opcode::kSine,
                                          Opcode::kCosine, Opcode::kNegate,   Opcode::kErf};
    return builder.Unary(kOpcodes[Below(6)], x);
  }

  // x times itself, contracted over a random dimension. A product of f32 takes six passes.
  Instruction* Dot(hlo::Builder& builder, Instruction* x) {
    const int64_t along = Below(static_cast<int>(x->shape().ndim()));
    hlo::DotDimensions dimensions;
    dimensions.lhs_contracting = dimensions.rhs_contracting = {along};
    if (x->shape().elements() / x->shape().dim(along) > 140) return nullptr;
    const bool is_float = tensor::IsFloating(x->shape().type());
    Instruction* const dot = builder.Dot(x, x, dimensions, is_float ? x->shape().type() : ElementType::kS32);
    if (!is_float) return dot;
    dot->mutable_attributes().operand_precision = {"highest", "highest"};
    return builder.Unary(Opcode::kTanh, dot);
  }

  std::unique_ptr<Random> random_;
  std::unique_ptr<Module> module_;
  std::vector<Instruction*> pool_;
};

// The blocks are smaller if VMEM is smaller, and the results are the same.
TEST(LowerToLloTest, BlocksFitIntoASmallVmem) {
  const std::string sum = "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n";
  const std::vector<std::string> bodies = {
      "x = f32[520,300] parameter(0)\n y = f32[300,520] parameter(1)\n"
      "ROOT r = f32[520,520] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
      "operand_precision={highest,highest}",
      "x = f32[700,300] parameter(0)\n y = f32[700,300] parameter(1)\n z = f32[700,300] parameter(2)\n"
      "u = f32[700,300] parameter(3)\n v = f32[700,300] parameter(4)\n a = f32[700,300] add(x, y)\n"
      "b = f32[700,300] multiply(z, u)\n c = f32[700,300] subtract(a, b)\n d = f32[700,300] maximum(c, v)\n"
      "ROOT r = f32[700,300] add(d, x)",
      "x = f32[700,300] parameter(0)\n ROOT r = f32[300,700] transpose(x), dimensions={1,0}",
      "x = f32[700,300] parameter(0)\n ROOT r = f32[300,300] slice(x), slice={[100:700:2], [0:300]}",
      "x = f32[300] parameter(0)\n ROOT r = f32[300,2000] broadcast(x), dimensions={0}",
      "x = f32[700,300] parameter(0)\n y = f32[700,300] parameter(1)\n m = f32[700,300] multiply(x, y)\n"
      "zero = f32[] constant(0)\n ROOT r = f32[700] reduce(m, zero), dimensions={1}, to_apply=sum",
      "x = f32[700,300] parameter(0)\n y = f32[700,300] parameter(1)\n m = f32[700,300] multiply(x, y)\n"
      "zero = f32[] constant(0)\n ROOT r = f32[300] reduce(m, zero), dimensions={0}, to_apply=sum",
  };
  for (const std::string& body : bodies) {
    const std::unique_ptr<Module> module = Read(absl::StrCat("HloModule m\n", sum, "ENTRY e {\n", body, "\n}"));
    const std::vector<Array> inputs = RandomInputs(*module, SeededRandom(1).get());
    const std::vector<Array> expected = Evaluated(*module, inputs);
    for (const int64_t vmem_bytes : {384 << 10, 512 << 10, 1 << 20, 3 << 20, 16 << 20}) {
      const machine::Chip chip = ChipWithVmem(vmem_bytes);
      const auto run = Interpret(*module->entry(), inputs, chip);
      ASSERT_TRUE(run.ok()) << vmem_bytes << ": " << run.status() << "\n" << body;
      EXPECT_EQ(run->macros, 0) << body;
      const std::vector<Exactness> exactness(1, {Agreement::kNumbers, 1e-4});
      const absl::Status same = CompareResults(run->results, expected, exactness);
      EXPECT_TRUE(same.ok()) << vmem_bytes << ": " << same << "\n" << body;
    }
  }
}

TEST(LowerToLloTest, ListingsCountKernelsAndSkipTokens) {
  const auto listing = [](absl::string_view text) {
    const std::unique_ptr<Module> module = Read(std::string(text));
    const absl::StatusOr<std::string> listed = LloListing(*module, TestChip());
    EXPECT_TRUE(listed.ok()) << listed.status();
    return listed.value_or("");
  };
  EXPECT_THAT(listing("HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n ROOT n = f32[8] negate(x)\n}"),
              testing::HasSubstr(" us in 1 kernel\n"));
  EXPECT_THAT(listing(R"(HloModule m
branch {
  p = (f32[8], token[]) parameter(0)
  x = f32[8] get-tuple-element(p), index=0
  ROOT s = f32[8] sine(x)
}
ENTRY e {
  x = f32[8] parameter(0)
  c = s32[] parameter(1)
  t = token[] after-all()
  p = (f32[8], token[]) tuple(x, t)
  ROOT r = f32[8] conditional(c, p, p), branch_computations={branch, branch}
})"),
              testing::HasSubstr(" kernels, one after the other\n"));
}

TEST(LowerToLloTest, RefusesParametersThatAreNeitherArraysNorTokens) {
  const std::unique_ptr<Module> module = Read(
      "HloModule m\nENTRY e {\n x = (f32[8], opaque[]) parameter(0)\n ROOT y = f32[8] iota(), iota_dimension=0\n}");
  EXPECT_EQ(LowerToLlo(*module->entry(), TestChip()).status(),
            absl::UnimplementedError("%x: found opaque[], expected arrays and tokens"));
}

bool HasNarrowFloats(const Module& module) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (!instruction->shape().is_array()) continue;
      const ElementType type = instruction->shape().type();
      if (type == ElementType::kBF16 || type == ElementType::kF16) return true;
    }
  }
  return false;
}

TEST(LowerToLloTest, RandomProgramsOfLoweredInstructionsHaveNoMacroOperations) {
  int programs = 0, kernels = 0;
  const bool has_tried_all = ForSeeds(1, CaseCount(700, 2000), [&](uint64_t seed) {
    std::unique_ptr<Module> module = LoweredPrograms(seed).Make(2 + static_cast<int>(seed % 5));
    const auto source = SeededRandom(seed);
    const std::vector<Array> inputs = RandomInputs(*module, source.get());
    const std::vector<Array> expected = Evaluated(*module, inputs);
    if (seed % 2 == 0) {  // The module is in the form that the compiler's passes produce.
      auto compiled = CompileToSteps(std::move(module), CompileRequest());
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      module = std::move(compiled->module);
    }
    const bool has_narrow_floats = HasNarrowFloats(*module);
    const auto run = Interpret(*module->entry(), inputs, ChipWithVmem(seed % 3 == 0 ? 1 << 20 : 128 << 20));
    ASSERT_TRUE(run.ok()) << run.status() << "\n" << hlo::PrintText(*module);
    ASSERT_EQ(run->macros, 0) << hlo::PrintText(*module);
    std::vector<Exactness> exactness;
    // A bf16 may be rounded the other way if the f32 from which it is rounded differs in its last bit. All values that
    // are computed from it then differ.
    for (const Array& array : expected) {
      const bool is_float = tensor::IsFloating(array.shape().type);
      exactness.push_back({Agreement::kNumbers, is_float ? has_narrow_floats ? 0.05 : 2e-3 : 0});
    }
    const absl::Status same = CompareResults(run->results, expected, exactness);
    ASSERT_TRUE(same.ok()) << same << "\n" << hlo::PrintText(*module);
    ++programs;
    kernels += run->kernels;
  });
  std::printf("%d programs: %d kernels\n", programs, kernels);
  if (has_tried_all) EXPECT_GT(kernels, programs);
}

Array RandomFloats(const Dims& dims, Random* random) {
  Array array(tensor::Shape{ElementType::kF32, dims});
  for (float& value : array.values<float>()) value = static_cast<float>(random->Unit() * 2 - 1);
  return array;
}

// The largest difference divided by the largest value.
double DifferenceOf(const Array& found, const Array& expected) {
  double difference = 0, largest = 0;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double want = static_cast<double>(expected.values<float>()[i]);
    difference = std::max(difference, std::abs(static_cast<double>(found.values<float>()[i]) - want));
    largest = std::max(largest, std::abs(want));
  }
  return difference / largest;
}

// Runs a program of two f32 parameters for each precision. For precision default, the reference rounds the operands to
// bf16.
void ExpectPasses(const std::string& parameters, const std::string& product, const std::vector<Array>& inputs) {
  const auto text = [&](const std::string& rounding, const std::string& precision) {
    return absl::StrCat(
        "HloModule m\nENTRY main {\n", parameters, rounding, "  ROOT p = ",
        absl::StrReplaceAll(product, {{"LHS", rounding.empty() ? "x" : "rx"}, {"RHS", rounding.empty() ? "w" : "rw"}}),
        ", operand_precision={", precision, ",", precision, "}\n}\n");
  };
  const auto shape = [](const Array& a) { return absl::StrCat("f32[", absl::StrJoin(a.shape().dims, ","), "]"); };
  const std::string rounding = absl::StrCat(
      "  rx = ", shape(inputs[0]), " reduce-precision(x), exponent_bits=8, mantissa_bits=7\n  rw = ", shape(inputs[1]),
      " reduce-precision(w), exponent_bits=8, mantissa_bits=7\n");
  const std::vector<Array> exact = Evaluated(*Read(text("", "highest")), inputs);
  const std::vector<Array> rounded = Evaluated(*Read(text(rounding, "highest")), inputs);
  const auto found = [&](const std::string& precision) {
    const auto module = Read(text("", precision));
    const auto run = Interpret(*module->entry(), inputs);
    EXPECT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run.ok() ? run->macros : -1, 0);
    return run.ok() ? run->results[0] : exact[0];
  };
  EXPECT_LT(DifferenceOf(found("default"), rounded[0]), 2e-6);
  EXPECT_LT(DifferenceOf(found("high"), exact[0]), 2e-5);
  EXPECT_LT(DifferenceOf(found("highest"), exact[0]), 2e-6);
}

TEST(LowerToLloTest, DotsTakeOneThreeOrSixPasses) {
  const auto random = SeededRandom(7);
  const std::vector<Dims> sizes = {{1, 1, 1}, {7, 13, 5}, {130, 257, 140}, {8, 128, 128}, {33, 600, 3}, {600, 20, 530}};
  for (const Dims& size : sizes) {
    const int64_t m = size[0], k = size[1], n = size[2];
    ExpectPasses(absl::StrFormat("  x = f32[%d,%d] parameter(0)\n  w = f32[%d,%d] parameter(1)\n", m, k, k, n),
                 absl::StrFormat("f32[%d,%d] dot(LHS, RHS), lhs_contracting_dims={1}, rhs_contracting_dims={0}", m, n),
                 {RandomFloats({m, k}, random.get()), RandomFloats({k, n}, random.get())});
  }
  ExpectPasses("  x = f32[3,11,4,9] parameter(0)\n  w = f32[6,4,3,9] parameter(1)\n",
               "f32[3,4,11,6] dot(LHS, RHS), lhs_batch_dims={0,2}, rhs_batch_dims={2,1}, lhs_contracting_dims={3}, "
               "rhs_contracting_dims={3}",
               {RandomFloats({3, 11, 4, 9}, random.get()), RandomFloats({6, 4, 3, 9}, random.get())});
}

TEST(LowerToLloTest, ConvolutionsAreProductsOverWindows) {
  const auto random = SeededRandom(8);
  ExpectPasses("  x = f32[2,9,11,5] parameter(0)\n  w = f32[3,3,5,7] parameter(1)\n",
               "f32[2,5,6,7] convolution(LHS, RHS), window={size=3x3 stride=2x2 pad=1_1x1_1}, "
               "dim_labels=b01f_01io->b01f",
               {RandomFloats({2, 9, 11, 5}, random.get()), RandomFloats({3, 3, 5, 7}, random.get())});
  ExpectPasses("  x = f32[2,4,17] parameter(0)\n  w = f32[6,4,3] parameter(1)\n",
               "f32[2,6,13] convolution(LHS, RHS), window={size=3 rhs_dilate=2}, dim_labels=bf0_oi0->bf0",
               {RandomFloats({2, 4, 17}, random.get()), RandomFloats({6, 4, 3}, random.get())});
}

TEST(LowerToLloTest, ConvolutionsOfLargePaddedInputsAreMacroOperations) {
  const auto random = SeededRandom(10);
  const std::vector<Array> inputs = {RandomFloats({1, 2, 3, 4}, random.get()),
                                     RandomFloats({1, 1, 4, 5}, random.get())};
  struct Case {
    std::string window;
    int64_t rows, columns;  // The number of positions of the window.
    int macros;
  };
  const std::vector<Case> cases = {
      {"stride=2x2 pad=1_1x1_1", 2, 3, 0},
      {"stride=34359738368x1 pad=0_34359738368x0_0", 2, 3, 1},  // 2^35
      {"stride=4294967296x4294967296 pad=0_4294967296x0_4294967296", 2, 2, 1},  // More than 2^64 elements.
      {"stride=4294967296x4294967296", 1, 1, 0},
      {"stride=68719476736x1", 1, 3, 0},
      {"stride=68719476736x1 pad=0_68719476736x0_0", 2, 3, 1},
  };
  for (const Case& c : cases) {
    const auto module = Read(absl::StrCat(
        "HloModule m\nENTRY main {\n  x = f32[1,2,3,4] parameter(0)\n  w = f32[1,1,4,5] parameter(1)\n  ROOT p = f32[",
        absl::StrJoin({int64_t{1}, c.rows, c.columns, int64_t{5}}, ","), "] convolution(x, w), window={size=1x1 ",
        c.window, "}, dim_labels=b01f_01io->b01f, operand_precision={highest,highest}\n}\n"));
    const auto run = Interpret(*module->entry(), inputs);
    ASSERT_TRUE(run.ok()) << c.window << ": " << run.status();
    EXPECT_EQ(run->macros, c.macros) << c.window;
    EXPECT_LT(DifferenceOf(run->results[0], Evaluated(*module, inputs)[0]), 2e-6) << c.window;
  }
}

TEST(LowerToLloTest, TransposesReductionsAndMovesHaveNoMacroOperations) {
  const auto random = SeededRandom(9);
  const std::vector<std::string> programs = {
      "ROOT y = f32[70,3,200] transpose(x), dimensions={1,0,2}",
      "ROOT y = f32[200,70,3] transpose(x), dimensions={2,1,0}",
      "ROOT y = f32[3,200,70] transpose(x), dimensions={0,2,1}",
      "ROOT y = f32[200,3,70] transpose(x), dimensions={2,0,1}",
      "zero = f32[] constant(0)\n  ROOT y = f32[3,70] reduce(x, zero), dimensions={2}, to_apply=add",
      "one = f32[] constant(1)\n  ROOT y = f32[3,200] reduce(x, one), dimensions={1}, to_apply=add",
      "zero = f32[] constant(0)\n  ROOT y = f32[70,200] reduce(x, zero), dimensions={0}, to_apply=add",
      "zero = f32[] constant(0)\n  ROOT y = f32[] reduce(x, zero), dimensions={0,1,2}, to_apply=add",
      "zero = f32[] constant(0)\n  n = f32[3,70,200] exponential(x)\n  ROOT y = f32[3] reduce(n, zero), "
      "dimensions={1,2}, to_apply=add",
      "ROOT y = f32[2,35,190] slice(x), slice={[1:3], [0:70:2], [7:197]}",
      "two = f32[] constant(2)\n  ROOT y = f32[5,70,209] pad(x, two), padding=1_1x0_0x4_5",
      "ROOT y = f32[3,140,200] concatenate(x, x), dimensions={1}",
      "ROOT y = f32[3,4,70,200] broadcast(x), dimensions={0,2,3}",
      "ROOT y = f32[3,70,200,5] broadcast(x), dimensions={0,1,2}",
      "i = s32[3,70,200] iota(), iota_dimension=1\n  f = f32[3,70,200] convert(i)\n  ROOT y = f32[3,70,200] add(x, f)",
  };
  for (const std::string& program : programs) {
    const auto module = Read(absl::StrCat("HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n",
                                          "  ROOT s = f32[] add(a, b)\n}\nENTRY main {\n",
                                          "  x = f32[3,70,200] parameter(0)\n  ", program, "\n}\n"));
    const std::vector<Array> inputs = {RandomFloats({3, 70, 200}, random.get())};
    const auto run = Interpret(*module->entry(), inputs);
    ASSERT_TRUE(run.ok()) << program << ": " << run.status();
    EXPECT_EQ(run->macros, 0) << program;
    EXPECT_LT(DifferenceOf(run->results[0], Evaluated(*module, inputs)[0]), 3e-6) << program;
  }
}

// Interpret parses the text, where names are words, and `inputs` and `outputs` begin the lists of a kernel's buffers.
TEST(LowerToLloTest, BuffersOfAnyNameHaveText) {
  const auto random = SeededRandom(3);
  const std::vector<Array> inputs = {RandomFloats({8, 128}, random.get()), RandomFloats({8, 128}, random.get())};
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"inputs", "outputs"}, {"a_b", "a b"}, {"a,b", "a;b"}, {"{", "}"}}) {
    const auto module = Read(
        "HloModule m\nENTRY main {\n  x = f32[8,128] parameter(0)\n  y = f32[8,128] parameter(1)\n"
        "  ROOT z = f32[8,128] subtract(x, y)\n}\n");
    module->entry()->parameter(0)->set_name(first);
    module->entry()->parameter(1)->set_name(second);
    const auto run = Interpret(*module->entry(), inputs);
    ASSERT_TRUE(run.ok()) << first << ", " << second << ": " << run.status();
    EXPECT_EQ(DifferenceOf(run->results[0], Evaluated(*module, inputs)[0]), 0) << first;
  }
}

TEST(LloListingTest, ListsKernelsWithTheirTimes) {
  const auto module = Read(R"(HloModule m
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT
}
ENTRY main {
  x = f32[256,256] parameter(0)
  t = f32[256,256] tanh(x)
  ROOT s = f32[256,256] sort(t), dimensions={1}, to_apply=less
})");
  const auto text = LloListing(*module, TestChip());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, ::testing::AllOf(::testing::HasSubstr("vtanh.f32"), ::testing::HasSubstr("dma.in"),
                                      ::testing::HasSubstr("macro-operation sort"), ::testing::HasSubstr("on v5e: ")));
}

}  // namespace
}  // namespace xlad::compiler

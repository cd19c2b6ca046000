// Programs for simulated TPUs with elements of 8 and 16 bits, which are packed in VMEM, have exactly the results of the
// evaluator.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/random.h"
#include "compiler/codegen/tpu/interpret_lowered.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

using tensor::Array;

// Runs a program whose instructions are on x and y, and compares all results with the evaluator's. They must be equal.
class ExactResults {
 public:
  // `parameters` are the types of x and y, which have these dimensions.
  ExactResults(const std::vector<std::string>& parameters, const std::string& dims) : dims_(dims) {
    const char* const names[] = {"x", "y"};
    for (size_t p = 0; p < parameters.size(); ++p) {
      absl::StrAppend(&body_, "  ", names[p], " = ", parameters[p], dims_, " parameter(", p, ")\n");
    }
  }
  void Add(const std::string& type, const std::string& expression) {
    names_.push_back(absl::StrCat("r", names_.size()));
    absl::StrAppend(&body_, "  ", names_.back(), " = ", type, dims_, " ", expression, "\n");
    types_.push_back(type + dims_);
    expressions_.push_back(absl::StrCat(type, " ", expression));
  }
  void Expect(const std::vector<Array>& inputs) const {
    const auto module =
        Read(absl::StrCat("HloModule m\nENTRY main {\n", body_, "  ROOT all = (", absl::StrJoin(types_, ", "),
                          ") tuple(", absl::StrJoin(names_, ", "), ")\n}\n"));
    const auto run = Interpret(*module->entry(), inputs);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->macros, 0) << body_;
    const std::vector<Array> expected = Evaluated(*module, inputs);
    for (size_t r = 0; r < names_.size(); ++r) {
      const absl::Status same = CompareArrays(run->results[r], expected[r], {Agreement::kNumbers, 0});
      EXPECT_TRUE(same.ok()) << expressions_[r] << ": " << same;
    }
  }

 private:
  const std::string dims_;
  std::string body_;
  std::vector<std::string> names_, types_, expressions_;
};

// All pairs of values of s8 and u8, and random pairs of s16 and u16, for every instruction on integers: results wrap,
// and shifts may be longer than the type.
TEST(LowerNarrowTest, InstructionsOnNarrowIntegersAreExact) {
  const auto random = SeededRandom(4);
  for (const std::string type : {"s8", "u8", "s16", "u16"}) {
    ExactResults results({type, type}, "[256,256]");
    for (const char* opcode : {"add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or",
                               "xor", "shift-left", "shift-right-arithmetic", "shift-right-logical"}) {
      results.Add(type, absl::StrCat(opcode, "(x, y)"));
    }
    results.Add(type, "negate(x)");
    results.Add(type, "not(x)");
    if (type[0] == 's') results.Add(type, "abs(x)");
    for (const char* direction : {"EQ", "NE", "LT", "LE", "GT", "GE"}) {
      results.Add("pred", absl::StrCat("compare(x, y), direction=", direction));
    }
    for (const std::string to : {"s8", "u8", "s16", "u16", "s32", "u32", "f32", "f16", "bf16", "pred"}) {
      if (to != type) results.Add(to, "convert(x)");
    }
    std::vector<Array> inputs;
    for (const bool is_first : {true, false}) {
      Array& array = inputs.emplace_back(tensor::Shape{*tensor::ParseElementType(type), {256, 256}});
      const size_t width = array.bytes().size() / (256 * 256);
      for (size_t i = 0; i < 256 * 256; ++i) {
        // Half of the values of 16 bits are small, so that many shifts are short.
        const uint64_t value = width == 1              ? (is_first ? i / 256 : i % 256)
                               : random->Below(2) == 0 ? random->Below(20)
                                                       : random->Below(1 << 16);
        std::memcpy(array.bytes().data() + i * width, &value, width);
      }
    }
    results.Expect(inputs);
  }
}

TEST(LowerNarrowTest, ConversionsToNarrowTypesSaturateAndRound) {
  ExactResults results({"f32"}, "[64]");
  for (const char* to : {"s8", "u8", "s16", "u16", "s32", "u32", "f16", "bf16", "f8e4m3fn", "f8e5m2"})
    results.Add(to, "convert(x)");
  Array x(tensor::Shape{ElementType::kF32, {64}});
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0, -0.0f, 0.5f, 0.99f, 1e10f, 3e38f, infinity, 1e-8f, 6e-8f, 1e-40f, 65519, 65520};
  for (const float limit : {127.0f, 128.0f, 255.0f, 256.0f, 32767.0f, 32768.0f, 65535.0f}) {
    values.insert(values.end(), {limit - 0.5f, limit, limit + 0.5f});
  }
  const auto floats = x.values<float>();
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = values[i / 2 % values.size()] * (i % 2 == 0 ? 1.0f : -1.0f);
  results.Expect({x});
}

// All pairs of values, which include NaN and, in f8e5m2, infinities.
TEST(LowerNarrowTest, InstructionsOnFloatsOf8BitsAreExact) {
  for (const std::string type : {"f8e4m3fn", "f8e5m2"}) {
    ExactResults results({type, type}, "[256,256]");
    for (const char* opcode : {"add", "subtract", "multiply", "divide", "maximum", "minimum"}) {
      results.Add(type, absl::StrCat(opcode, "(x, y)"));
    }
    for (const char* opcode : {"negate", "abs", "floor", "sqrt"}) results.Add(type, absl::StrCat(opcode, "(x)"));
    for (const char* direction : {"EQ", "NE", "LT", "GE"}) {
      results.Add("pred", absl::StrCat("compare(x, y), direction=", direction));
    }
    for (const std::string to : {"f8e4m3fn", "f8e5m2", "f16", "bf16", "f32", "s8", "u8", "s32", "pred"}) {
      if (to != type) results.Add(to, "convert(x)");
    }
    std::vector<Array> inputs;
    for (const bool is_first : {true, false}) {
      Array& array = inputs.emplace_back(tensor::Shape{*tensor::ParseElementType(type), {256, 256}});
      for (size_t i = 0; i < 256 * 256; ++i) {
        array.values<uint8_t>()[i] = static_cast<uint8_t>(is_first ? i / 256 : i % 256);
      }
    }
    results.Expect(inputs);
  }
}

std::string DotText(const std::string& operands, const std::string& result, int64_t m, int64_t k, int64_t n) {
  return absl::StrFormat(
      "HloModule m\nENTRY main {\n  x = %s[%d,%d] parameter(0)\n  w = %s[%d,%d] parameter(1)\n  ROOT p = "
      "%s[%d,%d] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n",
      operands, m, k, operands, k, n, result, m, n);
}

// An array of elements of at most 16 bits. The values of integers are not negative.
Array NarrowArray(ElementType type, const Dims& dims, const std::vector<double>& values) {
  Array array(tensor::Shape{type, dims});
  const size_t width = array.bytes().size() / values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits =
        tensor::IsFloating(type) ? tensor::EncodeSmallFloat(type, values[i]) : static_cast<uint16_t>(values[i]);
    std::memcpy(array.bytes().data() + i * width, &bits, width);
  }
  return array;
}

// Computes the product of lhs[m, k] and rhs[k, n], whose sizes are `sizes`.
void ExpectExactDot(const std::string& operands, const std::string& result, const std::array<int64_t, 3>& sizes,
                    const std::vector<double>& lhs, const std::vector<double>& rhs) {
  const auto& [m, k, n] = sizes;
  const ElementType type = *tensor::ParseElementType(operands);
  const std::vector<Array> inputs = {NarrowArray(type, {m, k}, lhs), NarrowArray(type, {k, n}, rhs)};
  const auto module = Read(DotText(operands, result, m, k, n));
  const auto run = Interpret(*module->entry(), inputs);
  ASSERT_TRUE(run.ok()) << operands << ": " << run.status();
  EXPECT_EQ(run->macros, 0) << operands;
  EXPECT_TRUE(run->results[0] == Evaluated(*module, inputs)[0])
      << operands << " to " << result << ", " << m << " x " << k << " x " << n;
}

// Products of s8 and u8 are exact, and so are those of f16 if their sums are: these are sums of small integers.
TEST(LowerNarrowTest, DotsOfNarrowTypesAreExact) {
  const auto random = SeededRandom(6);
  struct Case {
    const char *operands, *result;
    uint64_t below;
  };
  for (const auto& [operands, result, below] :
       {Case{"s8", "s32", 256}, Case{"u8", "s32", 256}, Case{"u8", "u32", 256}, Case{"s8", "s8", 256},
        Case{"f16", "f32", 50}, Case{"f16", "f16", 4}, Case{"bf16", "f32", 50}, Case{"f8e4m3fn", "f32", 9},
        Case{"f8e5m2", "f32", 5}}) {
    for (const auto& sizes : {std::array<int64_t, 3>{1, 1, 1}, {7, 13, 5}, {130, 300, 140}, {33, 1100, 3}}) {
      const auto& [m, k, n] = sizes;
      std::vector<double> lhs(static_cast<size_t>(m * k)), rhs(static_cast<size_t>(k * n));
      for (std::vector<double>* const values : {&lhs, &rhs}) {
        for (double& value : *values) value = static_cast<double>(random->Below(below));
      }
      ExpectExactDot(operands, result, sizes, lhs, rhs);
    }
  }
}

// One row of lhs and one column of rhs have an infinity. An f16 is computed as two parts: here the second part of most
// numbers is 0, and that of 259 is -1.
TEST(LowerNarrowTest, DotsWithInfinitiesAreExact) {
  for (const auto& [operands, result] : std::vector<std::pair<std::string, std::string>>{
           {"f16", "f32"}, {"f16", "f16"}, {"bf16", "f32"}, {"f8e5m2", "f32"}}) {
    for (const auto& sizes : {std::array<int64_t, 3>{1, 1, 1}, {7, 13, 5}, {33, 300, 3}}) {
      const auto& [m, k, n] = sizes;
      std::vector<double> lhs(static_cast<size_t>(m * k)), rhs(static_cast<size_t>(k * n), 259);
      for (size_t i = 0; i < lhs.size(); ++i) lhs[i] = static_cast<double>(1 + i % 3);
      for (size_t i = static_cast<size_t>(n); i < rhs.size(); ++i) rhs[i] = static_cast<double>(1 + i % 3);
      lhs[static_cast<size_t>(m / 2 * k)] = std::numeric_limits<double>::infinity();
      rhs[static_cast<size_t>((k - 1) * n)] = std::numeric_limits<double>::infinity();
      ExpectExactDot(operands, result, sizes, lhs, rhs);
    }
  }
}

// Moves and transposes of packed tiles.
TEST(LowerNarrowTest, MovesOfNarrowTypesAreExact) {
  const auto random = SeededRandom(5);
  for (const std::string type : {"s8", "u16", "bf16", "f16"}) {
    for (const std::string program :
         {"ROOT y = T[70,3,200] transpose(x), dimensions={1,0,2}",
          "ROOT y = T[200,70,3] transpose(x), dimensions={2,1,0}",
          "ROOT y = T[3,200,70] transpose(x), dimensions={0,2,1}",
          "ROOT y = T[200,3,70] transpose(x), dimensions={2,0,1}",
          "ROOT y = T[2,35,190] slice(x), slice={[1:3], [0:70:2], [7:197]}",
          "two = T[] constant(2)\n  ROOT y = T[5,70,209] pad(x, two), padding=1_1x0_0x4_5",
          "ROOT y = T[3,140,200] concatenate(x, x), dimensions={1}",
          "ROOT y = T[3,4,70,200] broadcast(x), dimensions={0,2,3}",
          "ROOT y = T[3,70,200,5] broadcast(x), dimensions={0,1,2}",
          "least = T[] constant(-0)\n  ROOT y = T[3,200] reduce(x, least), dimensions={1}, to_apply=max",
          "least = T[] constant(1)\n  ROOT y = T[3,70] reduce(x, least), dimensions={2}, to_apply=max",
          "least = T[] constant(1)\n  ROOT y = T[70,200] reduce(x, least), dimensions={0}, to_apply=max"}) {
      const auto module = Read(absl::StrReplaceAll(
          absl::StrCat("HloModule m\nmax {\n  a = T[] parameter(0)\n  b = T[] parameter(1)\n"
                       "  ROOT s = T[] maximum(a, b)\n}\nENTRY main {\n  x = T[3,70,200] parameter(0)\n  ",
                       program, "\n}\n"),
          {{"T[", type + "["}, {"constant(-0)", type[0] == 'u' || type[0] == 's' ? "constant(0)" : "constant(-0)"}}));
      Array x(tensor::Shape{*tensor::ParseElementType(type), {3, 70, 200}});
      const size_t width = x.bytes().size() / static_cast<size_t>(x.elements());
      for (size_t i = 0; i < static_cast<size_t>(x.elements()); ++i) {
        const uint64_t bits = random->Below(width == 1 ? 256 : 0x7000);  // No NaN and no infinity.
        std::memcpy(x.bytes().data() + i * width, &bits, width);
      }
      const auto run = Interpret(*module->entry(), {x});
      ASSERT_TRUE(run.ok()) << program << ": " << run.status();
      EXPECT_EQ(run->macros, 0) << type << " " << program;
      EXPECT_TRUE(run->results[0] == Evaluated(*module, {x})[0]) << type << " " << program;
    }
  }
}

}  // namespace
}  // namespace xlad::compiler

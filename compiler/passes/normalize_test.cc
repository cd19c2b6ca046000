// Bitcasts between all layouts and element types: the normalized program, which has none, is compared with the
// evaluator, which reinterprets memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "compiler/passes/passes.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

using tensor::ElementType;

std::unique_ptr<Module> BitcastProgram(const std::string& from, const std::string& to) {
  auto module = hlo::ParseText(absl::StrCat("HloModule m\nENTRY e {\n  x = ", from, " parameter(0)\n  ROOT r = ", to,
                                            " bitcast(x)\n}\n"));
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(hlo::Verify(**module).ok()) << hlo::Verify(**module);
  return *std::move(module);
}

// Bytes that are finite numbers in every floating-point type, and positive numbers in types of 4 bits.
tensor::Array Numbers(const tensor::Shape& shape) {
  tensor::Array array(shape);
  const int below = tensor::BitWidth(shape.type) < 8 ? 8 : 60;
  int next = 1;
  for (std::byte& byte : array.bytes()) byte = static_cast<std::byte>(next++ * 37 % below);
  return array;
}

void ExpectSameMemory(const std::string& from, const std::string& to) {
  SCOPED_TRACE(absl::StrCat(from, " to ", to));
  const std::unique_ptr<Module> module = BitcastProgram(from, to);
  const std::vector<hlo::Literal> inputs = {hlo::Literal(Numbers(module->entry()->parameter(0)->shape().array()))};
  const auto expected = hlo::Evaluate(*module, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  PassContext context;
  ASSERT_TRUE(Normalize(*module, context).ok());
  ASSERT_TRUE(hlo::Verify(*module).ok()) << hlo::Verify(*module);
  for (const auto& instruction : module->entry()->instructions()) {
    EXPECT_NE(instruction->opcode(), Opcode::kBitcast) << hlo::PrintText(*module);
  }
  const auto found = hlo::Evaluate(*module, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->array.shape(), expected->array.shape());
  EXPECT_TRUE(std::equal(found->array.bytes().begin(), found->array.bytes().end(), expected->array.bytes().begin(),
                         expected->array.bytes().end()))
      << hlo::PrintText(*module);
}

TEST(Normalize, BitcastsOfAllTypesAndLayoutsReinterpretMemory) {
  constexpr ElementType kTypes[] = {ElementType::kU8,  ElementType::kBF16, ElementType::kF32, ElementType::kS64,
                                    ElementType::kF64, ElementType::kC64,  ElementType::kC128};
  for (const ElementType from : kTypes) {
    for (const ElementType to : kTypes) {
      // Arrays of 192 bytes.
      const int64_t from_columns = 192 / 3 / tensor::ByteWidth(from), to_rows = 192 / 6 / tensor::ByteWidth(to);
      for (const char* from_layout : {"", "{1,0}", "{0,1}"}) {
        for (const char* to_layout : {"", "{2,1,0}", "{0,1,2}", "{1,2,0}"}) {
          ExpectSameMemory(absl::StrCat(tensor::ToString(from), "[3,", from_columns, "]", from_layout),
                           absl::StrCat(tensor::ToString(to), "[", to_rows, ",3,2]", to_layout));
        }
      }
    }
  }
  ExpectSameMemory("f32[0]", "s64[0,3]");
  ExpectSameMemory("f64[]", "u8[8]");
  ExpectSameMemory("f32[2]", "c64[]");
  ExpectSameMemory("s4[6]", "u4[3,2]");
}

TEST(Normalize, TiledBitcastsAreRefusedUnlessTheTiledDimensionsAreTheSame) {
  const std::string tiled = "{2,1,0:T(8,128)}", matrix = "{1,0:T(8,128)}";
  ExpectSameMemory("f32[2,3,5]" + tiled, "f32[1,2,3,5]{3,2,1,0:T(8,128)}");
  ExpectSameMemory("f32[2,4,3,5]{3,2,1,0:T(8,128)(2,1)S(1)}", "s32[8,3,5]{2,1,0:T(8,128)(2,1)}");
  ExpectSameMemory("f32[2,3,5]{0,2,1:T(8,128)}", "f32[3,5,2]" + tiled);
  ExpectSameMemory("f32[1]{0:T(128)}", "f32[]");
  const std::pair<std::string, std::string> refused[] = {
      {"f32[2,3,5]" + tiled, "f32[6,5]" + matrix},       {"f32[2,3,5]" + tiled, "f32[30]{0:T(1024)}"},
      {"f32[2,3,5]" + tiled, "f32[2,3,5]{2,1,0}"},       {"f32[2,3,5]" + tiled, "f32[2,5,3]{2,1,0:T(8,128)}"},
      {"bf16[2,3,4]" + tiled, "f32[2,3,2]" + tiled},     {"f32[2,4]" + matrix, "f32[2,5]" + matrix},
      {"f32[2,4]" + matrix, "f32[2,4]{1,0:T(2,128)}"},   {"f32[8]{0:T(8,128)}", "f32[4,2]" + matrix},
      {"u8[2]", "s4[4]"},                                {"s4[4]", "u2[8]"},
      {"(f32[2,3]{1,0})", "(f32[2,3]{0,1})"},
  };
  for (const auto& [from, to] : refused) {
    SCOPED_TRACE(absl::StrCat(from, " to ", to));
    const std::unique_ptr<Module> module = BitcastProgram(from, to);
    std::vector<hlo::Literal> inputs;
    const hlo::Shape& shape = module->entry()->parameter(0)->shape();
    inputs.push_back(shape.is_tuple() ? hlo::Literal::Tuple({hlo::Literal(Numbers(shape.tuple()[0].array()))})
                                      : hlo::Literal(Numbers(shape.array())));
    const absl::Status evaluated = hlo::Evaluate(*module, inputs).status();
    PassContext context;
    const absl::Status normalized = Normalize(*module, context);
    for (const absl::Status& status : {evaluated, normalized}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("found a bitcast of ", from, " to ", to))) << status;
    }
  }
}

}  // namespace
}  // namespace xlad::compiler

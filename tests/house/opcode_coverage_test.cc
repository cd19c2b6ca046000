// Checks that each table of opcodes has a row for every opcode in hlo/opcode.def, or states why an opcode is missing.
#include <fstream>

#include "compiler/kernel/cpu_lowering.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluate.h"
#include "hlo/infer/infer.h"
#include "hlo/opcode.h"
#include "sharding/rules/op_rule.h"

namespace xlad::house {
namespace {

struct Table {
  const char* file;  // The place for a missing row.
  bool (*covers)(hlo::Opcode opcode);
};

constexpr Table kTables[] = {
    {"hlo/infer/infer.cc", hlo::HasInference},
    {"hlo/eval/", [](hlo::Opcode opcode) { return hlo::HasEvaluator(opcode) || !hlo::WhyNoEvaluator(opcode).empty(); }},
    {"sharding/rules/op_rule.cc", sharding::HasRule},
    {"compiler/kernel/cpu_lowering.cc",
     [](hlo::Opcode opcode) { return compiler::HasCpuLowering(opcode) == compiler::WhyNoCpuLowering(opcode).empty(); }},
};

TEST(OpcodeCoverageTest, EveryTableHasEveryOpcode) {
  for (const Table& table : kTables) {
    for (int i = 0; i < hlo::OpcodeCount(); ++i) {
      const auto opcode = static_cast<hlo::Opcode>(i);
      EXPECT_TRUE(table.covers(opcode)) << hlo::ToString(opcode) << " has no row in " << table.file;
    }
  }
}

}  // namespace
}  // namespace xlad::house

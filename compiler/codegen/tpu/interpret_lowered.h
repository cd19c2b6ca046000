// Runs lowered programs by the interpreter, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compiler/codegen/tpu/lower.h"
#include "compiler/testing/compare.h"
#include "hlo/analysis/leaves.h"
#include "hlo/eval/evaluate.h"
#include "hlo/read/read.h"
#include "machine/llo/scoreboard.h"

namespace xlad::compiler {

// The built-in chip with another size of VMEM.
inline machine::Chip ChipWithVmem(int64_t bytes) {
  machine::Chip chip = *machine::BuiltInChip("v5e");
  chip.vmem_bytes = static_cast<double>(bytes);
  return chip;
}

inline const machine::Chip& TestChip() {
  static const auto* const chip = new machine::Chip(*machine::BuiltInChip("v5e"));
  return *chip;
}

// Reads the literal of a shape from the next buffers.
inline hlo::Literal ReadLiteral(const Shape& shape, const machine::LloMemory& memory, const std::vector<int>& buffers,
                                size_t* next) {
  if (shape.is_tuple()) {
    std::vector<hlo::Literal> elements;
    for (const Shape& element : shape.tuple()) elements.push_back(ReadLiteral(element, memory, buffers, next));
    return hlo::Literal::Tuple(std::move(elements));
  }
  tensor::Array array(shape.array());
  const std::string& bytes = memory[buffers[(*next)++]];
  std::memcpy(array.bytes().data(), bytes.data(), std::min(bytes.size(), array.bytes().size()));
  return hlo::Literal(std::move(array));
}

inline void WriteArrays(const std::vector<const tensor::Array*>& arrays, const std::vector<int>& buffers,
                        machine::LloMemory* memory) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    const absl::Span<const std::byte> bytes = arrays[i]->bytes();
    (*memory)[buffers[i]].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
}

struct LloRun {
  std::vector<tensor::Array> results;
  int kernels = 0, macros = 0;
};

// Lowers and interprets a computation. Macro-operations are computed by the evaluator.
inline absl::StatusOr<LloRun> Interpret(const Computation& computation, const std::vector<tensor::Array>& inputs,
                                        const machine::Chip& chip = TestChip()) {
  XLAD_ASSIGN_OR_RETURN(const LoweredLlo lowered, LowerToLlo(computation, chip));
  // The program that runs is parsed from its text.
  XLAD_ASSIGN_OR_RETURN(const machine::LloProgram parsed, machine::ParseLlo(machine::PrintLlo(lowered.program)));
  if (!(parsed == lowered.program)) return absl::InternalError("printing and parsing changed the program");
  std::vector<const tensor::Array*> arrays;
  for (const tensor::Array& input : inputs) arrays.push_back(&input);
  machine::LloMemory hbm = InitialMemory(lowered);
  WriteArrays(arrays, lowered.parameters, &hbm);
  LloRun run;
  const auto macro = [&](const machine::LloKernel& kernel, machine::LloMemory* memory) -> absl::Status {
    const Instruction& instruction = *lowered.instructions[&kernel - lowered.program.kernels.data()];
    std::vector<hlo::Literal> literals;
    std::vector<const hlo::Literal*> operands;
    size_t next = 0;
    for (const Instruction* operand : instruction.operands()) {
      literals.push_back(ReadLiteral(operand->shape(), *memory, kernel.inputs, &next));
    }
    for (const hlo::Literal& literal : literals) operands.push_back(&literal);
    XLAD_ASSIGN_OR_RETURN(const hlo::Literal result, hlo::EvaluateInstruction(instruction, operands));
    WriteArrays(hlo::ArrayLeaves(result), kernel.outputs, memory);
    return absl::OkStatus();
  };
  XLAD_RETURN_IF_ERROR(machine::RunLlo(lowered.program, macro, &hbm));
  size_t next = 0;
  run.results = ArraysOf(ReadLiteral(computation.root()->shape(), hbm, lowered.results, &next));
  for (const machine::LloKernel& kernel : lowered.program.kernels) {
    (kernel.macro.empty() ? run.kernels : run.macros) += 1;
    const machine::LloTime time = machine::TimeLlo(lowered.program, kernel, chip);
    EXPECT_TRUE(std::isfinite(time.us) && time.us > 0) << kernel.name;
  }
  return run;
}

inline std::vector<tensor::Array> Evaluated(const Module& module, const std::vector<tensor::Array>& inputs) {
  std::vector<hlo::Literal> literals;
  size_t next = 0;
  for (const Instruction* parameter : module.entry()->parameters()) {
    (void)parameter;
    literals.emplace_back(inputs[next++]);
  }
  const auto result = hlo::Evaluate(module, literals);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? ArraysOf(*result) : std::vector<tensor::Array>();
}

inline std::unique_ptr<Module> Read(const std::string& text) {
  auto module = hlo::ReadModule(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  return *std::move(module);
}

}  // namespace xlad::compiler

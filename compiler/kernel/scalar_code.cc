#include "compiler/kernel/scalar_code.h"

#include <cstring>

#include "base/status.h"

namespace xlad::compiler {

std::unique_ptr<Instruction> BareCopy(const Instruction& instruction) {
  std::unique_ptr<Instruction> copy = instruction.CloneWithoutOperands();
  copy->set_name("v");
  copy->set_metadata(nullptr);
  copy->mutable_frontend_attributes().clear();
  copy->set_sharding(nullptr);
  return copy;
}

ScalarCode::ScalarCode(const Dims& loops, Places places)
    : loops_(loops), places_(std::move(places)), module_(std::make_shared<Module>("code")) {
  entry_ = module_->Add(std::make_unique<Computation>("code"));
  module_->set_entry(entry_);
}

Instruction* ScalarCode::Value(const Instruction& value, const Affine& at, bool itself) {
  std::vector<int64_t> key = at.factors;
  key.push_back(at.constant);
  Instruction*& known = known_[{&value, key}];
  if (known != nullptr && !itself) return known;
  const std::optional<int> array = itself ? std::nullopt : places_(value, at);
  Instruction* made = array.has_value() ? Read(*array, at, value.shape().type()) : Compute(value, at);
  return known_[{&value, std::move(key)}] = made;
}

Instruction* ScalarCode::Read(int array, const Affine& at, ElementType type) {
  auto parameter = std::make_unique<Instruction>(Opcode::kParameter, Shape(type, {}));
  parameter->set_number(std::ssize(reads_));
  parameter->set_name("x");
  reads_.push_back({array, at});
  return entry_->Add(std::move(parameter));
}

Instruction* ScalarCode::Convert(Instruction* element, ElementType type) {
  if (element->shape().type() == type) return element;
  auto convert = std::make_unique<Instruction>(Opcode::kConvert, Shape(type, {}));
  convert->set_name("v");
  return entry_->Add(std::move(convert), {element});
}

Instruction* ScalarCode::Compute(const Instruction& value, const Affine& at) {
  switch (value.opcode()) {
    case Opcode::kConstant: {
      std::unique_ptr<Instruction> constant = BareCopy(value);
      tensor::Array scalar(tensor::Shape{value.shape().type(), {}});
      const tensor::Array& array = value.literal()->array;
      if (!array.bytes().empty()) std::memcpy(scalar.bytes().data(), array.bytes().data(), scalar.bytes().size());
      constant->mutable_shape() = Shape(value.shape().type(), {});
      constant->set_literal(std::make_shared<hlo::Literal>(std::move(scalar)));
      return entry_->Add(std::move(constant));
    }
    case Opcode::kIota: {
      const auto indices = IndicesAt(at, loops_, value.shape().dims());
      XLAD_CHECK(indices.has_value()) << value.ToString();
      const Affine& index = (*indices)[value.dimensions()[0]];
      return Convert(Read(KernelRead::kPosition, index, ElementType::kS64), value.shape().type());
    }
    case Opcode::kBroadcast:
    case Opcode::kReshape:
    case Opcode::kTranspose:
    case Opcode::kSlice:
    case Opcode::kReverse: {
      const auto moved = OperandPosition(value, 0, at, loops_);
      XLAD_CHECK(moved.has_value()) << value.ToString();
      return Value(*value.operand(0), *moved);
    }
    default:
      break;
  }
  std::vector<Instruction*> operands;
  for (int64_t k = 0; k < value.operand_count(); ++k) {
    const auto position = OperandPosition(value, k, at, loops_);
    XLAD_CHECK(position.has_value()) << value.ToString();
    operands.push_back(Value(*value.operand(k), *position));
  }
  std::unique_ptr<Instruction> scalar = BareCopy(value);
  scalar->mutable_shape() = Shape(value.shape().type(), {});
  return entry_->Add(std::move(scalar), operands);
}

KernelCode ScalarCode::Finish(Instruction* root) {
  entry_->set_root(root);
  return {std::move(module_), std::move(reads_)};
}

std::shared_ptr<const Module> CopyOfReducer(const Computation& computation, ElementType from, ElementType to) {
  auto module = std::make_shared<Module>("combine");
  Computation* copy = module->CloneComputation(computation, "combine");
  module->set_entry(copy);
  for (const auto& instruction : copy->instructions()) {
    instruction->set_metadata(nullptr);
    if (instruction->shape().is_scalar() && instruction->shape().type() == from) {
      instruction->mutable_shape() = Shape(to, {});
    }
  }
  return module;
}

}  // namespace xlad::compiler

// Edits of an instruction that keep operands and users consistent, and copies of instructions.
#include <algorithm>

#include "base/containers.h"
#include "hlo/module.h"

namespace xlad::hlo {

void Instruction::operator delete(Instruction* instruction, std::destroying_delete_t) {
  const bool in_module_memory = instruction->in_module_memory_;
  instruction->~Instruction();
  if (!in_module_memory) ::operator delete(instruction);
}

void Instruction::AppendOperand(Instruction* operand) {
  // If this instruction already uses `operand`, it is in `users_` of `operand`. Searches the shorter of the two lists,
  // because a tuple may have thousands of operands and a constant thousands of users.
  const bool known =
      operands_.size() < operand->users_.size() ? Contains(operands_, operand) : Contains(operand->users_, this);
  operands_.push_back(operand);
  if (!known) operand->users_.push_back(this);
}

void Instruction::ReplaceOperand(int64_t i, Instruction* with) {
  Instruction* const old = operands_[i];
  if (old == with) return;
  const bool known = Contains(operands_, with);
  operands_[i] = with;
  if (!Contains(operands_, old)) old->RemoveUser(this);
  if (!known) with->users_.push_back(this);
}

void Instruction::DropOperands() {
  for (Instruction* const operand : operands_) operand->RemoveUser(this);
  operands_.clear();
}

void Instruction::RemoveUser(Instruction* user) {
  // Searches from the back, because edits often undo the last change.
  const auto found = std::find(users_.rbegin(), users_.rend(), user);
  if (found != users_.rend()) users_.erase(std::next(found).base());
}

void Instruction::ReplaceAllUsesWith(Instruction* with) {
  if (with == this) return;
  const auto users = std::move(users_);
  users_.clear();
  for (Instruction* const user : users) {
    if (user == with) {  // `with` may itself use this instruction.
      users_.push_back(user);
      continue;
    }
    const bool known = Contains(user->operands_, with);
    std::replace(user->operands_.begin(), user->operands_.end(), this, with);
    if (!known) with->users_.push_back(user);
  }
  if (parent_ != nullptr && parent_->root() == this) parent_->set_root(with);
}

const Attributes& Instruction::attributes() const {
  static const Attributes* const empty = new Attributes();
  return attributes_ == nullptr ? *empty : *attributes_;
}

Attributes& Instruction::mutable_attributes() {
  if (attributes_ == nullptr) attributes_ = std::make_unique<Attributes>();
  return *attributes_;
}

const Metadata& Instruction::metadata() const {
  static const Metadata* const empty = new Metadata();
  return metadata_ == nullptr ? *empty : *metadata_;
}

Metadata& Instruction::mutable_metadata() {
  auto own = std::make_shared<Metadata>(metadata());
  Metadata& metadata = *own;
  metadata_ = std::move(own);
  return metadata;
}

std::unique_ptr<Instruction> Instruction::CloneWithoutOperands() const {
  auto clone = std::make_unique<Instruction>(opcode_, shape_);
  clone->called_ = called_;
  clone->dimensions_ = dimensions_;
  clone->number_ = number_;
  clone->literal_ = literal_;
  if (attributes_ != nullptr) clone->attributes_ = std::make_unique<Attributes>(*attributes_);
  clone->metadata_ = metadata_;
  clone->frontend_attributes_ = frontend_attributes_;
  if (sharding_ != nullptr) clone->sharding_ = std::make_unique<OpSharding>(*sharding_);
  clone->line_ = line_;
  clone->column_ = column_;
  return clone;
}

}  // namespace xlad::hlo

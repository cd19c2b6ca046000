#include "simulate/residency.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "hlo/analysis/transparent.h"

namespace xlad::simulate {
namespace {

using hlo::Instruction;
using hlo::Opcode;

bool IsKernel(const Instruction& instruction) {
  return !TakesNoTime(instruction) && !hlo::IsCollective(instruction.opcode()) &&
         instruction.opcode() != Opcode::kWhile && instruction.opcode() != Opcode::kConditional;
}

}  // namespace

bool TakesNoTime(const Instruction& instruction) {
  if (hlo::IsTransparent(instruction)) return true;
  switch (instruction.opcode()) {
    case Opcode::kBitcast:
    case Opcode::kAfterAll:
    case Opcode::kAddDependency:
    case Opcode::kOptBarrier:
    case Opcode::kPartitionId:
    case Opcode::kReplicaId:
      return true;
    default:
      return false;
  }
}

const Instruction* ValueOf(const Instruction* operand) {
  while (operand->opcode() == Opcode::kReshape || operand->opcode() == Opcode::kBitcast) operand = operand->operand(0);
  return operand;
}

namespace {

// The readers of a value, looking through reshapes.
void AddReaders(const Instruction& value, std::vector<const Instruction*>* readers) {
  for (const Instruction* user : value.users()) {
    if (user->opcode() == Opcode::kReshape || user->opcode() == Opcode::kBitcast) {
      // The root of a computation is read by the caller.
      if (user == user->parent()->root()) readers->push_back(user);
      AddReaders(*user, readers);
    } else {
      readers->push_back(user);
    }
  }
}

// Whether a kernel computes the value, as its result or as an element of its results.
bool IsMadeByKernel(const Instruction& value) {
  return value.opcode() == Opcode::kGetTupleElement ? IsKernel(*value.operand(0)) : IsKernel(value);
}

}  // namespace

absl::flat_hash_set<const Instruction*> ResidentValues(const hlo::Computation& computation, double vmem_bytes) {
  absl::flat_hash_map<const Instruction*, int> position;
  for (const auto& instruction : computation.instructions()) {
    position.emplace(instruction.get(), std::ssize(position));
  }
  absl::flat_hash_set<const Instruction*> resident;
  std::multimap<int, double> ends;  // Maps the position of the last reader of each value in VMEM to the value's bytes.
  double used = 0;
  for (const auto& value : computation.instructions()) {
    const int now = position.at(value.get());
    while (!ends.empty() && ends.begin()->first < now) {
      used -= ends.begin()->second;
      ends.erase(ends.begin());
    }
    const double bytes = static_cast<double>(value->shape().bytes());
    if (!value->shape().is_array() || !IsMadeByKernel(*value) || value.get() == computation.root() ||
        used + bytes > vmem_bytes / 2) {
      continue;
    }
    std::vector<const Instruction*> readers;
    AddReaders(*value, &readers);
    int last = now;
    bool stays = !readers.empty();
    for (const Instruction* reader : readers) {
      stays = stays && IsKernel(*reader);
      last = std::max(last, position.at(reader));
    }
    if (!stays) continue;
    resident.insert(value.get());
    ends.emplace(last, bytes);
    used += bytes;
  }
  return resident;
}

}  // namespace xlad::simulate

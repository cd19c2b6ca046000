// Common subexpression elimination by value numbering: within each step computation, equal pure instructions on equal
// operands become one.
//
// Needs: nothing. Leaves: no two equal pure instructions in a step computation. Opt-barriers are never merged, so that
// instructions that depend on different barriers are not merged. Collectives, instructions with side effects, control
// flow, custom calls and fusions are not merged either.
#include "compiler/passes/passes.h"

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/step_computations.h"
#include "hlo/attribute_keys.h"
#include "hlo/side_effect.h"

namespace xlad::compiler {
namespace {

bool MayMerge(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kParameter:
    case Opcode::kOptBarrier:
    case Opcode::kWhile:
    case Opcode::kConditional:
    case Opcode::kCustomCall:
    case Opcode::kFusion:
      return false;
    default:
      return !hlo::IsCollective(instruction.opcode()) && !hlo::HasSideEffect(instruction);
  }
}

// An instruction as the key of a hash table. Two keys are equal if the instructions compute the same value. Comparing
// operands by pointer is enough, because instructions are visited after their operands have been merged.
struct Key {
  const Instruction* instruction;
  template <typename H>
  friend H AbslHashValue(H h, const Key& key) {
    const Instruction& i = *key.instruction;
    h = H::combine(std::move(h), i.opcode(), i.dimensions(), i.number(), i.operand_count());
    for (const Instruction* operand : i.operands()) h = H::combine(std::move(h), operand);
    if (i.shape().is_array()) h = H::combine(std::move(h), i.shape().type(), i.shape().dims());
    if (i.opcode() == Opcode::kConstant && !i.literal()->is_tuple) {
      auto bytes = i.literal()->array.bytes();
      h = H::combine(std::move(h), absl::string_view(reinterpret_cast<const char*>(bytes.data()),
                                                     std::min<size_t>(bytes.size(), 4096)));
    }
    return h;
  }
  friend bool operator==(const Key& x, const Key& y) {
    const Instruction& a = *x.instruction;
    const Instruction& b = *y.instruction;
    if (a.opcode() != b.opcode() || a.dimensions() != b.dimensions() || a.number() != b.number()) return false;
    if (a.operands() != b.operands() || a.called() != b.called()) return false;
    if (!a.shape().SameIgnoringLayout(b.shape()) || !(a.attributes() == b.attributes())) return false;
    // The instruction that remains must not hide that the program observes the bits of NaNs.
    if (!hlo::FindAttribute(a, hlo::kMovesBitsKey) != !hlo::FindAttribute(b, hlo::kMovesBitsKey)) return false;
    if (a.opcode() == Opcode::kConstant) return *a.literal() == *b.literal();
    return true;
  }
};

}  // namespace

absl::Status EliminateCommonSubexpressions(hlo::Module& module, PassContext&) {
  for (Computation* computation : StepComputations(module)) {
    absl::flat_hash_map<Key, Instruction*> first;
    for (Instruction* instruction : Snapshot(*computation)) {
      if (!MayMerge(*instruction)) continue;
      auto [entry, fresh] = first.emplace(Key{instruction}, instruction);
      if (!fresh) instruction->ReplaceAllUsesWith(entry->second);
    }
    computation->RemoveDead();
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler

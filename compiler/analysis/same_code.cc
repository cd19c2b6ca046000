#include "compiler/analysis/same_code.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "base/work.h"

namespace xlad::compiler {
namespace {

using hlo::Computation;
using hlo::Instruction;

// Whether everything but the operands and called computations is equal.
bool SameHead(const Instruction& a, const Instruction& b) {
  if (a.opcode() != b.opcode() || a.number() != b.number() || a.dimensions() != b.dimensions()) return false;
  if (!a.shape().SameIgnoringLayout(b.shape()) || a.operand_count() != b.operand_count()) return false;
  if (a.called().size() != b.called().size() || !(a.attributes() == b.attributes())) return false;
  if ((a.literal() == nullptr) != (b.literal() == nullptr)) return false;
  return a.literal() == nullptr || *a.literal() == *b.literal();
}

bool SameComputation(const Computation& a, const Computation& b) {
  if (&a == &b) return true;
  if (a.instructions().size() != b.instructions().size()) return false;
  absl::flat_hash_map<const Instruction*, const Instruction*> matched;
  for (size_t i = 0; i < a.instructions().size(); ++i) {
    const Instruction& x = *a.instructions()[i];
    const Instruction& y = *b.instructions()[i];
    if (!SameHead(x, y)) return false;
    for (int64_t k = 0; k < x.operand_count(); ++k) {
      if (matched.at(x.operand(k)) != y.operand(k)) return false;
    }
    for (size_t c = 0; c < x.called().size(); ++c) {
      if (!SameComputation(*x.called()[c], *y.called()[c])) return false;
    }
    matched[&x] = &y;
  }
  return matched.at(a.root()) == b.root();
}

// The number of the first operand that is the same instruction as operand number `operand`.
int64_t FirstUse(const Instruction& instruction, int64_t operand) {
  int64_t first = 0;
  while (instruction.operand(first) != instruction.operand(operand)) ++first;
  return first;
}

// Constants that differ only after this many bytes have equal hashes.
constexpr size_t kHashedBytes = 64;

// A hash of the properties in which instructions differ most often, including those of called computations.
// Instructions with the same code have equal hashes.
size_t Hash(const Instruction& instruction) {
  CountWork();
  size_t hash =
      absl::HashOf(instruction.opcode(), instruction.dimensions(), instruction.number(), instruction.operand_count());
  if (instruction.shape().is_array()) hash = absl::HashOf(hash, instruction.shape().type(), instruction.shape().dims());
  if (instruction.literal() != nullptr) {
    const absl::Span<const std::byte> bytes = instruction.literal()->array.bytes();
    hash = absl::HashOf(hash, absl::string_view(reinterpret_cast<const char*>(bytes.data()),
                                                std::min(bytes.size(), kHashedBytes)));
  }
  for (const Computation* called : instruction.called()) {
    absl::flat_hash_map<const Instruction*, size_t> positions;
    for (const auto& inner : called->instructions()) {
      hash = absl::HashOf(hash, Hash(*inner));
      for (const Instruction* operand : inner->operands()) hash = absl::HashOf(hash, positions[operand]);
      positions.emplace(inner.get(), positions.size());
    }
  }
  return hash;
}

}  // namespace

bool SameCode(const Instruction& a, const Instruction& b) {
  CountWork();
  if (!SameHead(a, b)) return false;
  for (int64_t k = 0; k < a.operand_count(); ++k) {
    const Instruction& x = *a.operand(k);
    const Instruction& y = *b.operand(k);
    if (!x.shape().SameIgnoringLayout(y.shape())) return false;
    // If an operand is repeated, the code reads only the first of the equal arguments.
    if (FirstUse(a, k) != FirstUse(b, k)) return false;
    // Code may contain the value of a constant operand.
    const bool is_constant = x.opcode() == hlo::Opcode::kConstant;
    if (is_constant != (y.opcode() == hlo::Opcode::kConstant)) return false;
    if (is_constant && !(*x.literal() == *y.literal())) return false;
  }
  for (size_t c = 0; c < a.called().size(); ++c) {
    if (!SameComputation(*a.called()[c], *b.called()[c])) return false;
  }
  return true;
}

size_t CodeHash(const Instruction& instruction) {
  size_t hash = Hash(instruction);
  for (int64_t k = 0; k < instruction.operand_count(); ++k) {
    const Instruction& operand = *instruction.operand(k);
    if (operand.opcode() == hlo::Opcode::kConstant) hash = absl::HashOf(hash, k, Hash(operand));
  }
  return hash;
}

}  // namespace xlad::compiler

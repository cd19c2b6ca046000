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

size_t HashOfShape(const hlo::Shape& shape) {
  if (shape.is_array()) return absl::HashOf(shape.type(), shape.dims());
  size_t hash = absl::HashOf(shape.kind());
  for (const hlo::Shape& element : shape.tuple()) hash = absl::HashOf(hash, HashOfShape(element));
  return hash;
}

// A hash of the attributes that often differ between instructions of one opcode. For example, a program may have
// thousands of slices, and few of them have the same bounds.
size_t HashOfAttributes(const hlo::Attributes& a) {
  size_t hash = absl::HashOf(a.slice_sizes, a.comparison, a.comparison_type, a.feature_group_count, a.batch_group_count,
                             a.exponent_bits, a.mantissa_bits, a.k, a.largest, a.is_reverse, a.fft_length, a.lower);
  for (const hlo::SliceDimension& d : a.slice) hash = absl::HashOf(hash, d.start, d.limit, d.stride);
  for (const hlo::PaddingDimension& d : a.padding) hash = absl::HashOf(hash, d.low, d.high, d.interior);
  if (a.window.has_value()) {
    for (const hlo::WindowDimension& d : *a.window) {
      hash = absl::HashOf(hash, d.size, d.stride, d.padding_low, d.padding_high, d.window_dilation, d.base_dilation,
                          d.window_reversal);
    }
  }
  if (a.dot.has_value()) {
    const hlo::DotDimensions& d = *a.dot;
    hash = absl::HashOf(hash, d.lhs_batch, d.rhs_batch, d.lhs_contracting, d.rhs_contracting);
  }
  if (a.gather.has_value()) {
    const hlo::GatherDimensions& d = *a.gather;
    hash = absl::HashOf(hash, d.offset_dims, d.collapsed_slice_dims, d.start_index_map, d.index_vector_dim);
  }
  if (a.scatter.has_value()) {
    const hlo::ScatterDimensions& d = *a.scatter;
    hash = absl::HashOf(hash, d.update_window_dims, d.inserted_window_dims, d.scatter_dims_to_operand_dims,
                        d.index_vector_dim);
  }
  return hash;
}

// A hash of the properties in which instructions differ most often, including those of called computations.
// Instructions with the same code have equal hashes.
size_t Hash(const Instruction& instruction) {
  CountWork();
  size_t hash =
      absl::HashOf(instruction.opcode(), instruction.dimensions(), instruction.number(), instruction.operand_count());
  hash = absl::HashOf(hash, HashOfShape(instruction.shape()), HashOfAttributes(instruction.attributes()));
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
    hash = absl::HashOf(hash, HashOfShape(operand.shape()), FirstUse(instruction, k));
    if (operand.opcode() == hlo::Opcode::kConstant) hash = absl::HashOf(hash, k, Hash(operand));
  }
  return hash;
}

}  // namespace xlad::compiler

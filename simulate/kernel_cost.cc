#include "simulate/kernel_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/analysis/op_cost.h"
#include "hlo/analysis/counts.h"
#include "hlo/analysis/leaves.h"
#include "simulate/systolic.h"

namespace xlad::simulate {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// The vector operations per element of an instruction that compiler::CostOf calls cheap or expensive. Divisions and
// transcendental functions, for example, are expensive: they refine a reciprocal or a table entry in several steps.
constexpr double kCheapOps = 1, kExpensiveOps = 8;
// The vector operations per random word. Threefry computes two words in 20 rounds of five operations each.
constexpr double kRandomOps = 50;

double Bytes(const hlo::Shape& shape) { return static_cast<double>(shape.bytes()); }

// The registers of the vector unit have words of 32 bits. Returns the number of words of an element, at least one.
double WordsOf(tensor::ElementType type) { return std::max(1.0, tensor::BitWidth(type) / 32.0); }

// The number of words of one element of each of the operands [begin, end), all together.
double WordsOfOperands(const Instruction& instruction, int64_t begin, int64_t end) {
  double words = 0;
  for (int64_t i = begin; i < end; ++i) words += WordsOf(instruction.operand(i)->shape().type());
  return words;
}

// The number of words of one element of the result or of the first operand, whichever has more. The operands of a
// comparison, for example, may have more words than its result.
double WordsOfElementwise(const Instruction& instruction) {
  const double words = WordsOf(instruction.shape().type());
  if (instruction.operand_count() == 0 || !instruction.operand(0)->shape().is_array()) return words;
  return std::max(words, WordsOf(instruction.operand(0)->shape().type()));
}

double WordsOfArrays(const hlo::Shape& shape) {
  double words = 0;
  for (const hlo::Shape* leaf : hlo::ArrayLeaves(shape)) {
    words += static_cast<double>(leaf->elements()) * WordsOf(leaf->type());
  }
  return words;
}

// The number of vector operations of one instruction. Each of them is for words of 32 bits.
double VectorOps(const Instruction& instruction) {
  const hlo::Shape& shape = instruction.shape();
  const int64_t operands = instruction.operand_count();
  const auto log2_of = [](double n) { return std::max(1.0, std::log2(std::max(n, 2.0))); };
  switch (instruction.opcode()) {
    case Opcode::kReduce:
      return PaddedElements(instruction.operand(0)->shape()) * WordsOfOperands(instruction, 0, operands / 2);
    case Opcode::kReduceWindow:
      return PaddedElements(shape) * hlo::WindowElements(instruction) * WordsOfOperands(instruction, 0, operands / 2);
    case Opcode::kSort:
    case Opcode::kTopk: {
      // A bitonic sort of n elements has at most n log2(n)^2 / 2 compare-exchanges, of two operations for each word.
      const hlo::Shape& keys = instruction.operand(0)->shape();
      const int64_t along = instruction.dimensions().empty() ? keys.ndim() - 1 : instruction.dimensions()[0];
      const double rounds = keys.ndim() == 0 ? 1 : log2_of(static_cast<double>(keys.dim(along)));
      return PaddedElements(keys) * rounds * rounds * WordsOfOperands(instruction, 0, operands);
    }
    case Opcode::kScan: {
      const hlo::Shape& input = instruction.operand(0)->shape();
      return PaddedElements(input) * 2 * log2_of(static_cast<double>(input.elements())) *
             WordsOfOperands(instruction, 0, operands - instruction.attributes().num_carries);
    }
    case Opcode::kFft: {
      double length = 1;
      for (const int64_t size : instruction.attributes().fft_length) length *= static_cast<double>(size);
      // The formula is for complex elements, so the two parts of an element are not counted separately.
      return 5 * hlo::ElementsOfArrays(shape) * log2_of(length) * WordsOf(tensor::RealPartOf(shape.type()));
    }
    case Opcode::kCholesky:
    case Opcode::kTriangularSolve: {
      const hlo::Shape& matrix = instruction.operand(0)->shape();
      return WordsOfArrays(shape) * static_cast<double>(matrix.dim(matrix.ndim() - 1)) / 3;
    }
    case Opcode::kRngBitGenerator:
    case Opcode::kRng:
      return kRandomOps * WordsOfArrays(shape);
    case Opcode::kSelectAndScatter:
      return PaddedElements(instruction.operand(1)->shape()) * hlo::WindowElements(instruction) *
             WordsOfOperands(instruction, 1, 2);
    case Opcode::kScatter:  // n operands, the indices, and n updates.
      return 2 * PaddedElements(instruction.operand(operands - 1)->shape()) *
             WordsOfOperands(instruction, operands / 2 + 1, operands);
    default:
      break;
  }
  if (!shape.is_array()) return 0;
  switch (compiler::CostOf(instruction)) {
    case compiler::OpCost::kCheap:
      return kCheapOps * PaddedElements(shape) * WordsOfElementwise(instruction);
    case compiler::OpCost::kExpensive:
      return kExpensiveOps * PaddedElements(shape) * WordsOfElementwise(instruction);
    default:
      return 0;
  }
}

bool ReadsAPart(const Instruction& user, const Instruction* whole) {
  const Opcode opcode = user.opcode();
  const bool reads = opcode == Opcode::kSlice || opcode == Opcode::kDynamicSlice || opcode == Opcode::kGather;
  return reads && user.operand(0) == whole && std::count(user.operands().begin(), user.operands().end(), whole) == 1;
}

bool UpdatesInPlace(const Instruction& user, const Instruction* whole) {
  const bool updates = user.opcode() == Opcode::kDynamicUpdateSlice || user.opcode() == Opcode::kScatter;
  return updates && user.operand(0) == whole && std::count(user.operands().begin(), user.operands().end(), whole) == 1;
}

// The bytes that an update writes to its operand.
double UpdateBytes(const Instruction& update) {
  return Bytes(update.operand(update.opcode() == Opcode::kScatter ? update.operand_count() - 1 : 1)->shape());
}

// The bytes that are read from a parameter of a fused computation.
double ReadBytesOf(const Instruction& parameter) {
  double bytes = 0;
  for (const Instruction* user : parameter.users()) {
    if (ReadsAPart(*user, &parameter)) {
      bytes += Bytes(user->shape());
    } else if (UpdatesInPlace(*user, &parameter)) {
      if (user->opcode() == Opcode::kScatter) bytes += UpdateBytes(*user);
    } else {
      return Bytes(parameter.shape());
    }
  }
  return std::min(bytes, Bytes(parameter.shape()));
}

double WrittenBytesOf(const Instruction& root) {
  if (root.opcode() == Opcode::kTuple) {
    double bytes = 0;
    for (const Instruction* element : root.operands()) bytes += WrittenBytesOf(*element);
    return bytes;
  }
  const bool updates = (root.opcode() == Opcode::kDynamicUpdateSlice || root.opcode() == Opcode::kScatter) &&
                       root.operand(0)->opcode() == Opcode::kParameter;
  return updates ? UpdateBytes(root) : Bytes(root.shape());
}

KernelCost CostOfFusion(const Instruction& fusion, const machine::Chip& chip) {
  KernelCost cost;
  const hlo::Computation& fused = *fusion.called()[0];
  double ops = 0;
  for (const auto& instruction : fused.instructions()) {
    if (IsProduct(*instruction)) {
      cost.mxu_us += MxuUs(ProductOf(*instruction), chip);
    } else {
      ops += VectorOps(*instruction);
    }
  }
  cost.vpu_us = ops / chip.vector_ops() * 1e6;
  for (const Instruction* parameter : fused.parameters()) cost.read_bytes.push_back(ReadBytesOf(*parameter));
  cost.written_bytes = WrittenBytesOf(*fused.root());
  return cost;
}

// The bytes that an instruction outside of fusions reads and writes.
void SetBytes(const Instruction& instruction, KernelCost* cost) {
  for (const Instruction* operand : instruction.operands()) cost->read_bytes.push_back(Bytes(operand->shape()));
  cost->written_bytes = Bytes(instruction.shape());
  switch (instruction.opcode()) {
    case Opcode::kSlice:
    case Opcode::kDynamicSlice:
    case Opcode::kGather:
      cost->read_bytes[0] = std::min(cost->read_bytes[0], Bytes(instruction.shape()));
      break;
    case Opcode::kDynamicUpdateSlice:
    case Opcode::kScatter:
      cost->written_bytes = UpdateBytes(instruction);
      cost->read_bytes[0] = instruction.opcode() == Opcode::kScatter ? cost->written_bytes : 0;
      break;
    default:
      break;
  }
}

}  // namespace

double KernelCost::bytes() const { return std::accumulate(read_bytes.begin(), read_bytes.end(), written_bytes); }

double PaddedElements(const hlo::Shape& shape) {
  double best = 0;
  for (const hlo::Shape* leaf : hlo::ArrayLeaves(shape)) {
    const double elements = static_cast<double>(leaf->elements());
    if (leaf->ndim() < 2) {
      best = std::max(best, std::ceil(elements / 1024) * 1024);
      continue;
    }
    double least = -1;
    for (int64_t lanes = 0; lanes < leaf->ndim(); ++lanes) {
      for (int64_t sublanes = 0; sublanes < leaf->ndim(); ++sublanes) {
        if (lanes == sublanes || elements == 0) continue;
        const double x = static_cast<double>(leaf->dim(lanes)), y = static_cast<double>(leaf->dim(sublanes));
        const double padded = elements / x / y * std::ceil(x / 128) * 128 * std::ceil(y / 8) * 8;
        if (least < 0 || padded < least) least = padded;
      }
    }
    best = std::max(best, least);
  }
  return best;
}

KernelCost CostOf(const Instruction& instruction, const machine::Chip& chip) {
  if (instruction.opcode() == Opcode::kFusion) return CostOfFusion(instruction, chip);
  KernelCost cost;
  if (IsProduct(instruction)) {
    const MatrixProduct product = ProductOf(instruction);
    cost.mxu_us = MxuUs(product, chip);
    SetBytes(instruction, &cost);
    const OperandBytes read = ReadBytes(product, {cost.read_bytes[0], cost.read_bytes[1]}, chip);
    cost.read_bytes[0] = read.lhs;
    cost.read_bytes[1] = read.rhs;
    return cost;
  }
  cost.vpu_us = VectorOps(instruction) / chip.vector_ops() * 1e6;
  SetBytes(instruction, &cost);
  return cost;
}

}  // namespace xlad::simulate

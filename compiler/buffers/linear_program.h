// A LinearProgram is one list of operations on values, made from the step computations. No memory is assigned to the
// values yet.
//
// Linearize removes tuples, get-tuple-elements, reshapes and optimization barriers. Bodies and branches become nested
// lists, and every array leaf of an instruction's result becomes a value. For example
//
//   t = (f32[4], f32[]) fusion(x, y)       // fusion %t(v0, v1) -> v2, v3
//   a = f32[4] get-tuple-element(t), index=0
//   r = f32[2,2] reshape(a)                // also v2
//   w = f32[2,2] while(r), ...             // copy v2 -> v4, then a while whose carried value is v4
//
// Most values are written once, with three exceptions. A loop-carried value is written before the loop and again at the
// end of the body. If its initial value is not read (hlo::NotedUnreadInits), an operation of kind kReserve stands for
// the first write. The result of a conditional is written once in every branch. A donated parameter is written again
// when the result that is aliased with it is stored.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/analysis/donation.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// The contents of one buffer. Values are numbered by their position in LinearProgram::values.
struct BufferValue {
  enum class Kind { kTemporary, kParameter, kResult, kConstant };
  Kind kind = Kind::kTemporary;
  int64_t bytes = 0;
  int64_t index = 0;        // The parameter leaf, result leaf or constant number. Unused for temporaries.
  bool is_writable = true;  // False for constants and for parameters that are not donated.
  std::string name;         // The name of the instruction that computes the value, for display.
};

// One operation of the program.
struct LinearOp {
  // kReserve does nothing, but its outputs have memory from there on, with undefined content.
  enum class Kind { kKernel, kLibrary, kCollective, kCollectiveDone, kCopy, kReserve, kWhile, kIf };
  Kind kind = Kind::kKernel;
  const Instruction* instruction = nullptr;    // For kCopy and kReserve: the one that needs it.
  int request = 0;                             // See overlap_collectives.h. 0 if not split.
  bool is_repeated = false;                    // Whether the operation computes values again; see rematerialize.h.
  std::vector<int> inputs;                     // Values that are read. For kIf: the selector.
  std::vector<int> outputs;                    // Values that are written.
  // Pairs (position in outputs, position in inputs) that may share a buffer.
  std::vector<std::pair<int, int>> may_share;
  std::vector<LinearOp> condition;  // For kWhile: the operations that compute `predicate`.
  int predicate = -1;               // For kWhile: the value that decides whether the body runs. Otherwise -1.
  std::vector<std::vector<LinearOp>> bodies;  // For kWhile: the body. For kIf: the branches.
};

// Whether two inputs of an operation are the same operand of its instruction. If so, the code of the instruction reads
// them through one pointer. Different operands may have the same value, as in a branch that is called with tuple(y, y).
bool IsSameOperand(const LinearOp& op, int input, int other_input);

struct LinearProgram {
  std::vector<BufferValue> values;
  std::vector<LinearOp> ops;
  std::vector<int> parameters;                 // The value of each entry parameter leaf.
  std::vector<int> results;                    // The value of each result leaf.
  std::vector<const hlo::Literal*> constants;  // By constant number. Owned by the module.
};

// Operations are in the order of the instructions. Kernels without side effects whose results are not read are left
// out, except in conditions of loops. Unimplemented, naming the instruction, if an instruction that Linearize does not
// remove has no operation. The error of LapackCallOf if a call to LAPACK is malformed. ResourceExhausted if an array
// has more than 2^46 bytes, or all values together have more than 2^60 bytes. If `for_gpu`, instructions for which
// IsGpuLibraryOp is true are library ops. The result refers to instructions and literals of `module`, which must
// outlive it.
absl::StatusOr<LinearProgram> Linearize(const Module& module, const Donation& donation, bool for_gpu = false);

// The text for display, with one operation per line.
std::string ToString(const LinearProgram& program);

}  // namespace xlad::compiler

// From kernels to object code: the one door between the compiler's passes and LLVM.
//
// The passes leave a computation whose every instruction is one step. A step that is neither a library op, a
// collective, a copy nor control flow is a *kernel*: one HLO instruction (a fusion, or a single op) with its buffers.
// Control flow without collectives is a *native program*: a step list (proto Step) that becomes one function.
//
// An ObjectEmitter is used by one thread. Its memory is its own; the modules it is shown must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "hlo/module.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// A kernel's arguments are the array leaves of its operands, in order (a tuple operand gives its leaves in tuple
// order), then the array leaves of its result. An operand that is a `constant` is an argument like any other.
struct KernelRequest {
  const hlo::Instruction* root = nullptr;
  std::string symbol;  // Unique in the object.
  // (result leaf, operand leaf) that are the same memory; every other pair of a result and any other argument is
  // disjoint. Given only where MayShareMemory of compiler/analysis/in_place.h holds:
  //   - fusion and elementwise: element i of every result depends, of that operand, on element i only; the
  //     kernel therefore reads everything that it needs for an element before it writes that element
  //   - dynamic-update-slice (alone or as the root of a fusion), scatter: operand 0; only what changes is written
  //   - copy, reshape, bitcast: nothing is left to do
  std::vector<std::pair<int, int>> in_place;
  // Several shared-memory pairs may name one operand never, one result never.
};

// A step list as one function. In its slices, allocation k >= 0 is argument k (`buffers[k]`, offset added) and
// allocation kScratch is the function's scratch. KernelStep.symbol names a kernel or native program emitted before
// by the same emitter (to be inlined where small); LibraryStep.op goes to api->run_library_op. Contains kernel,
// library, copy, while and if steps, nested as they come; no collectives.
struct NativeProgramRequest {
  static constexpr int32_t kScratch = -1;
  std::string symbol;
  std::vector<Step> steps;
  int32_t arguments = 0;
  int64_t arena_bytes = 0;  // Of scratch that the slices use; the scratch of called kernels comes behind it.
};

class ObjectEmitter {
 public:
  // `target` may have empty fields: the machine it runs on. InvalidArgument for a triple, CPU or feature that LLVM
  // does not know.
  static absl::StatusOr<std::unique_ptr<ObjectEmitter>> Create(const Target& target);
  virtual ~ObjectEmitter() = default;

  // The target with all fields filled in.
  virtual const Target& target() const = 0;
  // Both return the bytes of scratch that a call needs (a multiple of XLAD_BUFFER_ALIGNMENT). Unimplemented where
  // CanEmit is false, with its reason.
  virtual absl::StatusOr<int64_t> EmitKernel(const KernelRequest& request) = 0;
  virtual absl::StatusOr<int64_t> EmitProgram(const NativeProgramRequest& request) = 0;
  // Optimises and returns the ELF relocatable object. Once.
  virtual absl::StatusOr<std::string> Finish() = 0;

  // For people. Before Finish: unoptimised; after: what the object was made from. Assembly only after.
  virtual std::string IrText() const = 0;
  virtual absl::StatusOr<std::string> AssemblyText() = 0;
};

// What an executable's object code is made of: one ELF object is itself, several are the members of an `ar` archive.
absl::StatusOr<std::string> BundleObjects(std::vector<std::string> objects);

// Fills empty fields with those of this machine.
Target CompleteTarget(const Target& target);

// Whether EmitKernel takes this instruction as a whole kernel (a fusion with everything in it, or a single op).
// `why_not` may be null.
bool CanEmit(const hlo::Instruction& instruction, std::string* why_not);

// Whether there is code for this opcode, on some element type.
bool HasCode(hlo::Opcode opcode);

// Whether this instruction may stand inside a fused computation. What the fusion pass promises in return:
//   - every path from a fusion's root to a value with an inner loop (reduce, reduce-window) keeps the
//     index (elementwise, or reshape of the same elements in the same order), so that no reduction is computed
//     twice; reductions may be roots (several roots: a `tuple`)
//   - an expensive value (exp, log, divide, power, ...) is used under one index map only
//   - roots of one fusion have the same element count, or all are reductions of same-shaped operands over the same
//     dimensions, or are elementwise values of the reductions' operand shape
//   - the fused computation has no control flow, dot, convolution, collective, scatter, sort or nested fusion;
//     dynamic-update-slice stands only at the root
bool CanEmitInFusion(const hlo::Instruction& instruction);

}  // namespace xlad::compiler

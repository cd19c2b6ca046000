// ObjectEmitter compiles kernels to object code. It is the only interface between the compiler's passes and LLVM.
//
// The passes leave a computation in which every instruction is one step. A step that is not a library op, a collective,
// a copy or control flow is a *kernel*: one HLO instruction (a fusion, or a single op) with its buffers. Control flow
// without collectives is a *native program*: a list of steps (proto Step) that becomes one function.
//
// Threads: an ObjectEmitter is used by one thread at a time; different emitters may be used by different threads.
// Ownership: an emitter owns what it makes; the HLO modules of its requests must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compiler/kernel/kernel_schedule.h"
#include "hlo/module.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// One kernel. Its arguments are the array leaves of its operands, in order (a tuple operand contributes its leaves in
// tuple order), then the array leaves of its result. A `constant` operand is an argument like any other.
struct KernelRequest {
  const hlo::Instruction* root = nullptr;
  std::string symbol;  // Unique in the object.
  // (result leaf, operand leaf) pairs that are the same memory. Every other pair of a result and another argument is
  // disjoint, and each result and operand occurs once, unless one operand of the instruction is repeated. A pair is
  // allowed only if MayShareMemory (compiler/analysis/in_place.h) returns it; the code must then
  //   - fusion and elementwise: compute element i of every result from element i of that operand only, and read
  //     everything that an element needs before writing the element
  //   - fusion in row form (compiler/analysis/row_form.h): read a row of that operand only in the loops over the row
  //     before the one that writes the result, and in that loop only the element that it overwrites next
  //   - dynamic-update-slice (alone or as the root of a fusion), scatter: write only the elements that change, if the
  //     pair is with operand 0
  //   - copy, reshape, bitcast: do nothing
  std::vector<std::pair<int, int>> in_place;
  int64_t wanted_tiles = 1;  // About how many tiles the kernel is divided into, if its opcodes allow it.
  // If it is not null, it computes what `root` computes (ScheduleFusion in compiler/kernel/build_kernel.h), and is
  // emitted instead of it. Its inputs and outputs are the operands and results of `root`.
  std::shared_ptr<const ScheduledKernel> kernel;
};

// What a step needs to know of its kernel: KernelStep.scratch_bytes, a multiple of XLAD_BUFFER_ALIGNMENT, and
// KernelStep.tiles.
struct EmittedKernel {
  int64_t scratch_bytes = 0;
  int64_t tiles = 1;
};

// A list of steps that becomes one function. In its buffer slices, allocation k >= 0 is argument k (the address is
// buffers[k] + offset), and allocation kScratch is the function's scratch. KernelStep.symbol names a kernel or native
// program that the same emitter has emitted before (inlined if small); LibraryStep.op is passed to api->run_library_op.
// The steps are kernel, library, copy, while and if steps, nested in any way, and no collectives.
struct NativeProgramRequest {
  static constexpr int32_t kScratch = -1;
  std::string symbol;
  std::vector<Step> steps;
  int32_t arguments = 0;
  int64_t arena_bytes = 0;  // The scratch that the slices use. Scratch of called kernels is placed after it.
};

class ObjectEmitter {
 public:
  // Empty fields of `target` mean this machine; compiler/kernel/gpu_target.h says which targets are GPUs.
  // InvalidArgument for a triple, CPU or feature that LLVM does not know.
  static absl::StatusOr<std::unique_ptr<ObjectEmitter>> Create(const Target& target);
  virtual ~ObjectEmitter() = default;

  // The target with all fields filled in.
  virtual const Target& target() const = 0;
  // Unimplemented, with the reason, if CanEmit is false.
  virtual absl::StatusOr<EmittedKernel> EmitKernel(const KernelRequest& request) = 0;
  // The result always has one tile.
  virtual absl::StatusOr<EmittedKernel> EmitProgram(const NativeProgramRequest& request) = 0;
  // Optimizes, and returns the object code: an ELF relocatable object, or PTX for the triple nvptx64-nvidia-cuda. Must
  // be called once, after all Emit calls.
  virtual absl::StatusOr<std::string> Finish() = 0;

  // Listings for display. The IR is unoptimized before Finish and optimized after it. Assembly is available after
  // Finish only.
  virtual std::string IrText() const = 0;
  virtual absl::StatusOr<std::string> AssemblyText() = 0;
};

// The object code of an executable: one object is returned as it is, several become the members of an `ar` archive.
absl::StatusOr<std::string> BundleObjects(std::vector<std::string> objects);

// Replaces empty fields by those of this machine.
Target CompleteTarget(const Target& target);

// Whether EmitKernel accepts this instruction as a kernel (a fusion with everything in it, or a single op). If not, and
// `why_not` is not null, it is set to the reason. The passes promise of all fusions but those in row form, which are
// emitted from their kernels:
//   - every path from a fusion's root to a value with an inner loop (reduce, reduce-window) keeps the index (it has
//     elementwise ops and reshapes only), so that no reduction is computed twice; reductions may be roots (a `tuple` of
//     several roots)
//   - an expensive value (exp, log, divide, power, ...) is used under one index map only
//   - the roots of one fusion have the same number of elements, or are all reductions of operands of one shape over the
//     same dimensions, or are elementwise values of the shape of the reductions' operands
//   - the fused computation has no control flow, dot, convolution, collective, scatter, sort or nested fusion;
//     dynamic-update-slice is at the root only
bool CanEmit(const hlo::Instruction& instruction, std::string* why_not);

// Whether there is code for this opcode with at least one element type.
bool HasCode(hlo::Opcode opcode);

}  // namespace xlad::compiler

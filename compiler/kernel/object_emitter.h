// ObjectEmitter compiles kernels to object code. It is the only interface between the compiler's passes and LLVM.
//
// After the passes, every instruction of a step computation is one step, except for those that only name values
// (parameters, constants, tuples, reshapes, ...). A step that is not a library op, a collective, a copy or control flow
// is a *kernel*: one HLO instruction (a fusion, or a single op) with its buffers. Control flow without collectives is a
// *native program*: a list of steps (proto Step) that becomes one function.
//
// Threads: only one thread at a time may use an ObjectEmitter. Different threads may use different emitters. Ownership:
// an emitter owns the code that it generates. The HLO modules of its requests must outlive it.
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

// One kernel. Its arguments are the array leaves of its operands, in order, and then the array leaves of its result.
// The leaves of a tuple are in tuple order. A `constant` operand is an argument like any other.
struct KernelRequest {
  const hlo::Instruction* root = nullptr;
  std::string symbol;  // Must be unique in the object.
  // Pairs (result leaf, operand leaf) that share memory. The memory of a result is disjoint from that of all other
  // arguments. Each result and operand occurs at most once, unless an operand of the instruction is repeated. A pair is
  // allowed only if MayShareMemory (compiler/analysis/in_place.h) returns it. For such a pair, the code must obey these
  // rules:
  //   - fusion and elementwise: to compute element i of a result, read no element of that operand other than element i,
  //     and read all inputs of an element before writing it
  //   - fusion in row form (compiler/analysis/row_form.h): read a row of that operand only before the loop that writes
  //     the row of the result; in that loop, read only the element that is overwritten next
  //   - dynamic-update-slice (alone or as the root of a fusion), scatter: write only the elements that change, if the
  //     pair is with operand 0
  std::vector<std::pair<int, int>> in_place;
  // The approximate number of tiles into which the kernel is divided, if its opcodes allow this.
  int64_t wanted_tiles = 1;
  // If not null, this kernel computes the same results as `root` (see ScheduleFusion in
  // compiler/kernel/build_kernel.h), and its code is emitted instead of code for `root`. Its inputs and outputs are the
  // operands and results of `root`. If it is the kernel of a product, its schedule only determines the blocks in which
  // `root` is computed; code for GPUs ignores it.
  std::shared_ptr<const ScheduledKernel> kernel;
};

// Properties of a kernel that its step must have: KernelStep.scratch_bytes, a multiple of XLAD_BUFFER_ALIGNMENT, and
// KernelStep.tiles.
struct EmittedKernel {
  int64_t scratch_bytes = 0;
  int64_t tiles = 1;
};

// A list of steps that becomes one function. In its buffer slices, allocation k >= 0 is argument k (the address is
// buffers[k] + offset), and allocation kScratch is the function's scratch. KernelStep.symbol names a kernel or native
// program that the same emitter has emitted before (it may be inlined); LibraryStep.op is passed to
// api->run_library_op. The steps may be kernel, library, copy, while and if steps, nested in any way, but not
// collectives.
struct NativeProgramRequest {
  static constexpr int32_t kScratch = -1;
  std::string symbol;
  std::vector<Step> steps;
  int32_t arguments = 0;  // The number of buffers.
  // The bytes of scratch that the slices use. The scratch of called kernels is placed after these.
  int64_t arena_bytes = 0;
};

class ObjectEmitter {
 public:
  // Empty fields of `target` are set by CompleteTarget, or by MakeGpuEmitter if the target is a GPU (IsGpu in
  // gpu_target.h). InvalidArgument if LLVM does not know the triple, the CPU or a feature.
  static absl::StatusOr<std::unique_ptr<ObjectEmitter>> Create(const Target& target);
  virtual ~ObjectEmitter() = default;

  // The target, with all fields set.
  virtual const Target& target() const = 0;
  // Unimplemented, with the reason, if CanEmit is false. InvalidArgument if the symbol is empty or is taken, or if a
  // pair of `in_place` names a leaf that does not exist. FailedPrecondition after Finish.
  virtual absl::StatusOr<EmittedKernel> EmitKernel(const KernelRequest& request) = 0;
  // The result always has one tile.
  virtual absl::StatusOr<EmittedKernel> EmitProgram(const NativeProgramRequest& request) = 0;
  // Optimizes the code and returns the object code: an ELF relocatable object, or PTX for the triple
  // nvptx64-nvidia-cuda. Must be called once, after all Emit calls.
  virtual absl::StatusOr<std::string> Finish() = 0;

  // Listings for display. The IR is unoptimized before Finish and optimized after it. Assembly is available only after
  // Finish.
  virtual std::string IrText() const = 0;
  virtual absl::StatusOr<std::string> AssemblyText() = 0;
};

// The object code of an executable: a single object is returned unchanged, and several objects become the members of an
// `ar` archive.
absl::StatusOr<std::string> BundleObjects(std::vector<std::string> objects);

// Sets an empty triple to that of this machine. If the triple is that of this machine, an empty CPU becomes the CPU of
// this machine, and in this case empty features become its features. Otherwise an empty CPU becomes a generic one.
Target CompleteTarget(const Target& target);

// Whether EmitKernel accepts this instruction (a fusion or a single op) as a kernel. If not, and `why_not` is not null,
// `why_not` is set to the reason. All fusions have the following properties, except for fusions in row form, whose code
// is emitted from their kernels:
//   - every path from a root of the fusion to a value with an inner loop (reduce, reduce-window) consists of
//     elementwise ops and reshapes, so that no reduction is computed twice; reductions may be roots (several roots are
//     operands of a `tuple`)
//   - an expensive value (exp, log, divide, power, ...) is used under only one index map
//     (compiler/passes/fusion_groups.h)
//   - all roots of a fusion have the same number of elements, or are reductions of operands of one shape over the same
//     dimensions, or are elementwise values of the shape of the reductions' operands
//   - the fused computation has no control flow, dot, convolution, collective, scatter, sort or nested fusion;
//     dynamic-update-slice is at the root only
bool CanEmit(const hlo::Instruction& instruction, std::string* why_not);

// Whether there is code for this opcode with at least one element type.
bool HasCode(hlo::Opcode opcode);

}  // namespace xlad::compiler

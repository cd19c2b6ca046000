// Fuses reductions of the same array: the gradients of a normalization's scale and offset, and its other sums over all
// rows, become one kernel, which reads the array once. Programs for other devices are not changed.
//
// Needs: fused step computations. Leaves: no two kernels that IsSibling accepts if, when the pass reached the later
// one, one of them could have been computed at the place of the other. Such kernels may remain if more than kMaxTried
// kernels read the same array, because the pass tries only the last kMaxTried of them. It does not try two kernels
// again after a later merge has moved a user.
//
// Only reductions whose innermost dimension is kept are fused, because one loop computes them in strips
// (compiler/codegen/llvm/reductions.cc). fuse-rows fuses other reductions with the kernels that make their rows.
#include <algorithm>

#include "base/containers.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/row_form.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/fusion_limits.h"
#include "compiler/passes/passes.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

// The sums of a strip of all reductions must stay in the first-level cache.
constexpr int64_t kMaxSiblings = 4;
// With fewer reduced elements, the results are not small compared with the arrays.
constexpr int64_t kMinReduced = 32;
// Only this many earlier kernels that read the same array are tried.
constexpr size_t kMaxTried = 4;

// The instruction that computes a value, looking through get-tuple-element.
const Instruction* MakerOf(const Instruction* value) {
  return value->opcode() == Opcode::kGetTupleElement ? value->operand(0) : value;
}

// A kernel that consists of reductions over the same dimensions of arrays of the same sizes, and of elementwise
// operations on their results.
struct ReductionKernel {
  Instruction* instruction = nullptr;
  Dims sizes, reduced;
  int64_t reductions = 0, members = 0;
  std::vector<const Instruction*> arrays;  // The operands that are as large as the reduced arrays.
};

bool HasArrayUses(const Instruction& kernel) {
  if (!kernel.shape().is_tuple()) return true;
  if (kernel.parent()->root() == &kernel) return false;
  return std::all_of(kernel.users().begin(), kernel.users().end(),
                     [](const Instruction* user) { return user->opcode() == Opcode::kGetTupleElement; });
}

// Adds a reduction to the kernel. Returns false if it differs from the others or is not in columns.
bool AddReduction(const Instruction& reduce, ReductionKernel* kernel) {
  const Shape& shape = reduce.operand(0)->shape();
  if (reduce.operand_count() != 2 || shape.elements() == 0) return false;
  if (kernel->reductions++ > 0) return kernel->sizes == shape.dims() && kernel->reduced == reduce.dimensions();
  kernel->sizes = shape.dims();
  kernel->reduced = reduce.dimensions();
  int64_t last = shape.ndim() - 1;
  while (last >= 0 && shape.dim(last) == 1) --last;
  return last >= 0 && !Contains(reduce.dimensions(), last);
}

std::optional<ReductionKernel> ReductionKernelOf(Instruction* instruction) {
  const bool is_fusion = instruction->opcode() == Opcode::kFusion;
  if (!is_fusion && instruction->opcode() != Opcode::kReduce) return std::nullopt;
  if (is_fusion && instruction->attributes().fusion_kind == "kCustom") return std::nullopt;
  if (!HasArrayUses(*instruction)) return std::nullopt;
  ReductionKernel kernel{.instruction = instruction};
  if (!is_fusion && !AddReduction(*instruction, &kernel)) return std::nullopt;
  if (is_fusion) {
    for (const auto& member : instruction->called()[0]->instructions()) {
      ++kernel.members;
      if (member->opcode() == Opcode::kReduce && !AddReduction(*member, &kernel)) return std::nullopt;
    }
  }
  if (kernel.reductions == 0) return std::nullopt;
  const int64_t reduced = tensor::Product(tensor::Select(kernel.sizes, kernel.reduced));
  if (reduced < kMinReduced) return std::nullopt;
  const int64_t results = tensor::Product(kernel.sizes) / reduced;
  for (const Instruction* result : ResultsOf(*instruction)) {
    const bool is_plain = result->opcode() == Opcode::kReduce || result->opcode() == Opcode::kBroadcast ||
                          result->opcode() == Opcode::kReshape || hlo::IsElementwise(result->opcode());
    if (!is_plain || result->shape().elements() != results) return std::nullopt;
  }
  for (const Instruction* operand : instruction->operands()) {
    if (!operand->shape().is_array()) return std::nullopt;
    if (operand->shape().elements() >= tensor::Product(kernel.sizes)) kernel.arrays.push_back(operand);
  }
  return kernel;
}

bool HasAllArrays(const ReductionKernel& kernel, const ReductionKernel& of) {
  return std::all_of(of.arrays.begin(), of.arrays.end(),
                     [&](const Instruction* array) { return Contains(kernel.arrays, array); });
}

// Whether one kernel should compute both. This requires that one of them reads all large arrays that the other one
// reads. The merged kernel then reads no additional array.
bool IsSibling(const ReductionKernel& a, const ReductionKernel& b) {
  if (a.sizes != b.sizes || a.reduced != b.reduced || a.reductions + b.reductions > kMaxSiblings) return false;
  if (a.members + b.members > kMaxFusedInstructions) return false;
  if (std::ssize(ResultsOf(*a.instruction)) + std::ssize(ResultsOf(*b.instruction)) > kMaxFusionResults) return false;
  const auto& [fewer, more] = a.arrays.size() <= b.arrays.size() ? std::tie(a, b) : std::tie(b, a);
  return !fewer.arrays.empty() && HasAllArrays(more, fewer);
}

class SiblingFuser {
 public:
  explicit SiblingFuser(Computation* computation) : computation_(computation) {}

  void Run() {
    const std::vector<Instruction*> all = Snapshot(*computation_);
    for (int64_t i = 0; i < std::ssize(all); ++i) places_[all[i]] = i;
    for (Instruction* instruction : all) {
      std::optional<ReductionKernel> kernel = ReductionKernelOf(instruction);
      if (!kernel.has_value()) continue;
      while (const ReductionKernel* sibling = FindSibling(*kernel)) kernel = Merge(*sibling, *kernel);
      for (const Instruction* array : kernel->arrays) readers_[array].push_back(kernel->instruction);
      kernels_[kernel->instruction] = *std::move(kernel);
    }
    if (removed_.empty()) return;
    computation_->RemoveAll(removed_);
    FinishEdits(computation_);
  }

 private:
  // An earlier kernel that can be merged with this one, or null.
  const ReductionKernel* FindSibling(const ReductionKernel& kernel) const {
    for (const Instruction* array : kernel.arrays) {
      const auto found = readers_.find(array);
      if (found == readers_.end()) continue;
      size_t tried = 0;
      for (auto it = found->second.rbegin(); it != found->second.rend() && tried < kMaxTried; ++it) {
        if (removed_.contains(*it)) continue;
        ++tried;
        const ReductionKernel& earlier = kernels_.at(*it);
        if (IsSibling(earlier, kernel) && PlaceOfBoth(earlier, kernel).has_value()) return &earlier;
      }
    }
    return nullptr;
  }

  // The place of one of the instructions at which both can be computed, or nullopt. Places are in an order in which
  // operands come before users. The place is the later one only if the later kernel reads all arrays of the earlier
  // one, so that no array must be kept longer than without the merge.
  std::optional<int64_t> PlaceOfBoth(const ReductionKernel& a, const ReductionKernel& b) const {
    const bool a_is_first = places_.at(a.instruction) < places_.at(b.instruction);
    const ReductionKernel &first = a_is_first ? a : b, &second = a_is_first ? b : a;
    const int64_t begin = places_.at(first.instruction), end = places_.at(second.instruction);
    const auto is_known_before = [&](const Instruction* value) {
      return places_.at(MakerOf(value)) < begin || MakerOf(value)->operand_count() == 0;
    };
    const auto& operands = second.instruction->operands();
    if (std::all_of(operands.begin(), operands.end(), is_known_before)) return begin;
    if (HasAllArrays(second, first) && IsUsedAfter(*first.instruction, end)) return end;
    return std::nullopt;
  }

  // Whether all users of the instruction are after this place.
  bool IsUsedAfter(const Instruction& instruction, int64_t place) const {
    return std::all_of(instruction.users().begin(), instruction.users().end(), [&](const Instruction* user) {
      if (user->opcode() == Opcode::kGetTupleElement) return IsUsedAfter(*user, place);
      return places_.at(user) > place;
    });
  }

  ReductionKernel Merge(const ReductionKernel& a, const ReductionKernel& b) {
    const int64_t place = *PlaceOfBoth(a, b);
    Computation* fused = computation_->parent()->Add(std::make_unique<Computation>("fused_computation"));
    fused->set_is_fusion(true);
    std::vector<Instruction*> operands, results;
    for (const ReductionKernel* kernel : {&a, &b}) {
      const std::vector<Instruction*> made = Copy(*kernel->instruction, fused, &operands);
      results.insert(results.end(), made.begin(), made.end());
    }
    Instruction* merged = computation_->Add(MakeFusion(fused, results, "fusion", "kInput", *a.instruction), operands);
    places_[merged] = place;
    int64_t result = 0;
    for (const ReductionKernel* kernel : {&a, &b}) Replace(kernel->instruction, merged, &result);
    return *ReductionKernelOf(merged);
  }

  // Appends copies of the kernel's instructions to `fused`. Returns the copies of its results.
  static std::vector<Instruction*> Copy(const Instruction& kernel, Computation* fused,
                                        std::vector<Instruction*>* operands) {
    std::vector<Instruction*> arguments;
    for (Instruction* outside : kernel.operands()) {
      const auto found = std::find(operands->begin(), operands->end(), outside);
      const bool is_scalar_constant = outside->opcode() == Opcode::kConstant && outside->shape().is_scalar();
      arguments.push_back(is_scalar_constant         ? CloneWithOperands(*outside, {}, fused)
                          : found != operands->end() ? fused->parameter(found - operands->begin())
                                                     : AddFusedParameter(outside, fused, operands));
    }
    if (kernel.opcode() != Opcode::kFusion) return {CloneWithOperands(kernel, arguments, fused)};
    Instruction* root = InlineInto(*kernel.called()[0], arguments, fused);
    if (root->opcode() != Opcode::kTuple) return {root};
    const std::vector<Instruction*> results(root->operands().begin(), root->operands().end());
    return results;
  }

  // Replaces the results of `old` by the next results of `merged`.
  void Replace(Instruction* old, Instruction* merged, int64_t* result) {
    hlo::Builder builder(computation_);
    const int64_t first = *result;
    *result += std::ssize(ResultsOf(*old));
    const auto element = [&](int64_t number) {
      Instruction* value = builder.GetTupleElement(merged, number);
      places_[value] = places_.at(merged);
      return value;
    };
    if (!old->shape().is_tuple()) {
      ReplaceValue(old, element(first));
    } else {
      const std::vector<Instruction*> users(old->users().begin(), old->users().end());
      for (Instruction* user : users) {
        ReplaceValue(user, element(first + user->number()));
        user->DropOperands();
        removed_.insert(user);
      }
    }
    old->DropOperands();
    removed_.insert(old);
  }

  // Replaces a value, which may be an array of kernels that were visited before.
  void ReplaceValue(Instruction* old, Instruction* with) {
    old->ReplaceAllUsesWith(with);
    const auto found = readers_.find(old);
    if (found == readers_.end()) return;
    std::vector<const Instruction*> readers = std::move(found->second);
    readers_.erase(found);
    for (const Instruction* reader : readers) {
      std::vector<const Instruction*>& arrays = kernels_.at(reader).arrays;
      std::replace<decltype(arrays.begin()), const Instruction*>(arrays.begin(), arrays.end(), old, with);
    }
    readers_[with] = std::move(readers);
  }

  Computation* const computation_;
  absl::flat_hash_map<const Instruction*, int64_t> places_;
  absl::flat_hash_map<const Instruction*, ReductionKernel> kernels_;  // Those visited, which may be removed_.
  absl::flat_hash_map<const Instruction*, std::vector<const Instruction*>> readers_;  // The kernels that read an array.
  absl::flat_hash_set<const Instruction*> removed_;
};

}  // namespace

absl::Status FuseSiblingReductions(hlo::Module& module, PassContext& context) {
  // The limits are those of a CPU's caches. Fewer and larger kernels have not been measured on other devices.
  if (!context.is_cpu) return absl::OkStatus();
  for (Computation* computation : StepComputations(module)) SiblingFuser(computation).Run();
  FinishEdits(&module);
  return absl::OkStatus();
}

}  // namespace xlad::compiler

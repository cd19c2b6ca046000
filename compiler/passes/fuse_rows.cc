// Fuses fusions that work on the same rows: softmax, norms and their gradients become one kernel each, which reads and
// writes memory once.
//
// Needs: fused step computations. Leaves: fusions in row form (compiler/analysis/row_form.h). Only such a fusion may
// have reductions that depend on other reductions, or values that are used both before and after a reduction of the
// same row.
//
// A producer is merged into a consumer if both have row form for the same rows and have a full value in common. The
// consumer must read the producer's results only at its own row, and no path between them may contain another
// instruction.
#include <algorithm>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/row_form.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/fusion_limits.h"
#include "compiler/passes/passes.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

// The minimum number of columns. Fusions of shorter rows should be vectorized across rows instead.
constexpr int64_t kMinRowColumns = 32;
// Fewer rows than this cannot be divided among many threads, so they are fused only if the array is small.
constexpr int64_t kManyRows = 32;
constexpr int64_t kMaxElementsOfFewRows = 1 << 15;
// The full values of a row must stay in the second-level cache.
constexpr int64_t kMaxRowBytes = 512 << 10;

bool IsCandidate(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kFusion:
      return instruction.attributes().fusion_kind != "kCustom";
    case Opcode::kBroadcast:
    case Opcode::kReduce:
      return true;
    default:
      return hlo::IsElementwise(instruction.opcode());
  }
}

// The instruction that computes an operand, looking through get-tuple-element.
Instruction* ProducerOf(Instruction* value) {
  return value->opcode() == Opcode::kGetTupleElement ? value->operand(0) : value;
}

int64_t MembersOf(const Instruction& fusion) {
  return fusion.opcode() == Opcode::kFusion ? std::ssize(fusion.called()[0]->instructions()) : 1;
}

const Instruction& InputOf(const Instruction& fusion, int64_t k) {
  return fusion.opcode() == Opcode::kFusion ? *fusion.called()[0]->parameter(k) : *fusion.operand(k);
}

// Whether there is a path from `from` to `to` through another instruction. Also true if the search takes more than
// kMaxPathVisits steps.
bool HasDetour(const Instruction* from, const Instruction* to) {
  absl::flat_hash_set<const Instruction*> seen;
  std::vector<const Instruction*> pending;
  const auto push_users = [&](const Instruction* value) {
    for (const Instruction* user : value->users()) {
      if (seen.insert(user).second) pending.push_back(user);
    }
  };
  for (const Instruction* user : from->users()) {
    if (user->opcode() == Opcode::kGetTupleElement) {
      push_users(user);
    } else if (seen.insert(user).second) {
      pending.push_back(user);
    }
  }
  std::erase(pending, to);
  seen.erase(to);
  for (int visits = 0; !pending.empty(); ++visits) {
    const Instruction* at = pending.back();
    pending.pop_back();
    if (at == to || visits > kMaxPathVisits) return true;
    push_users(at);
  }
  return false;
}

// Whether the consumer reads the producer's results only at its own row, and both have a full value in common.
bool ReadsOwnRows(const Instruction& producer, const RowForm& of_producer, const Instruction& consumer,
                  const RowForm& of_consumer) {
  bool shares = false;
  for (int64_t k = 0; k < consumer.operand_count(); ++k) {
    Instruction* operand = consumer.operand(k);
    const Instruction& input = InputOf(consumer, k);
    if (ProducerOf(operand) == &producer) {
      const int64_t elements = operand->shape().elements();
      const bool fits = elements == of_producer.rows || of_producer.IsFull(*operand);
      if (!fits || !of_consumer.IsOwn(input)) return false;
      shares = shares || of_consumer.IsFull(input);
      continue;
    }
    if (!operand->shape().is_array() || !of_consumer.IsFull(*operand)) continue;
    for (const Instruction* other : producer.operands()) shares = shares || other == operand;
  }
  return shares;
}

// Copies the bodies of a producer and a consumer into one computation.
class BodyMerger {
 public:
  BodyMerger(Instruction* producer, Instruction* consumer)
      : producer_(producer),
        consumer_(consumer),
        computation_(consumer->parent()),
        fused_(computation_->parent()->Add(std::make_unique<Computation>("fused_computation"))) {
    fused_->set_is_fusion(true);
  }

  // Returns null if the merged fusion has no row form or too many results. In this case, the program is unchanged,
  // except for the instructions of removed().
  Instruction* Merge(int64_t rows, int64_t columns) {
    const std::vector<Instruction*> made = Copy(*producer_, {});
    const std::vector<Instruction*> results = Copy(*consumer_, made);
    for (size_t i = 0; i < results.size(); ++i) Keep(results[i], UsesOf(consumer_, i));
    for (size_t i = 0; i < made.size(); ++i) {
      std::vector<Instruction*> uses = UsesOf(producer_, i);
      const bool elsewhere = std::any_of(uses.begin(), uses.end(), [&](const Instruction* use) {
        return use == computation_->root() ||
               std::any_of(use->users().begin(), use->users().end(), [&](Instruction* u) { return u != consumer_; });
      });
      if (elsewhere) Keep(made[i], std::move(uses));
    }
    if (std::ssize(results_) > kMaxFusionResults) return nullptr;
    std::unique_ptr<Instruction> fusion = MakeFusion(fused_, results_, "fusion", "kInput", *consumer_);
    fused_->RemoveDead();
    Instruction* merged = computation_->Add(std::move(fusion), operands_);
    if (!RowFormOf(*merged, rows, columns).has_value()) {
      Remove(merged);
      return nullptr;
    }
    Replace(merged);
    return merged;
  }
  // The instructions that Merge has detached: they have neither operands nor users, and the caller removes them.
  const std::vector<const Instruction*>& removed() const { return removed_; }

 private:
  // The instructions that have result `i` of a fusion as their value: the fusion itself, or its get-tuple-elements.
  static std::vector<Instruction*> UsesOf(Instruction* fusion, int64_t i) {
    if (!fusion->shape().is_tuple()) return {fusion};
    std::vector<Instruction*> uses;
    for (Instruction* user : fusion->users()) {
      if (user->opcode() == Opcode::kGetTupleElement && user->number() == i) uses.push_back(user);
    }
    return uses;
  }

  void Keep(Instruction* result, std::vector<Instruction*> uses) {
    results_.push_back(result);
    uses_.push_back(std::move(uses));
  }

  // Returns copies of the results of a fusion. `made` are the copies of the producer's results.
  std::vector<Instruction*> Copy(const Instruction& fusion, const std::vector<Instruction*>& made) {
    std::vector<Instruction*> arguments;
    for (Instruction* operand : fusion.operands()) {
      const bool inside = !made.empty() && ProducerOf(operand) == producer_;
      const int64_t leaf = operand == producer_ ? 0 : operand->number();
      arguments.push_back(inside ? made[leaf] : Parameter(operand));
    }
    if (fusion.opcode() != Opcode::kFusion) return {CloneWithOperands(fusion, arguments, fused_)};
    Instruction* root = InlineInto(*fusion.called()[0], arguments, fused_);
    if (root->opcode() != Opcode::kTuple) return {root};
    return {root->operands().begin(), root->operands().end()};
  }

  Instruction* Parameter(Instruction* outside) {
    if (outside->opcode() == Opcode::kConstant && outside->shape().is_scalar()) {
      return CloneWithOperands(*outside, {}, fused_);
    }
    const auto found = std::find(operands_.begin(), operands_.end(), outside);
    if (found != operands_.end()) return fused_->parameter(found - operands_.begin());
    return AddFusedParameter(outside, fused_, &operands_);
  }

  void Replace(Instruction* merged) {
    hlo::Builder builder(computation_);
    for (int64_t i = 0; i < std::ssize(uses_); ++i) {
      Instruction* with = results_.size() == 1 ? merged : builder.GetTupleElement(merged, i);
      for (Instruction* use : uses_[i]) use->ReplaceAllUsesWith(with);
    }
    for (Instruction* old : {consumer_, producer_}) {
      const std::vector<Instruction*> users(old->users().begin(), old->users().end());
      for (Instruction* user : users) Remove(user);
      Remove(old);
    }
  }

  void Remove(Instruction* old) {
    removed_.push_back(old);
    old->DropOperands();
  }

  Instruction* const producer_;
  Instruction* const consumer_;
  Computation* const computation_;
  Computation* const fused_;
  std::vector<Instruction*> operands_, results_;
  std::vector<std::vector<Instruction*>> uses_;  // For each result, the instructions with its value.
  std::vector<const Instruction*> removed_;
};

bool IsUsedByElements(const Instruction& fusion) {
  return !fusion.shape().is_tuple() || std::all_of(fusion.users().begin(), fusion.users().end(), [](const auto* user) {
    return user->opcode() == Opcode::kGetTupleElement;
  });
}

bool IsWorthwhile(const Instruction& producer, const Instruction& consumer, const RowForm& form) {
  if (form.columns < kMinRowColumns) return false;
  if (form.rows < kManyRows && form.rows * form.columns > kMaxElementsOfFewRows) return false;
  // Also keeps operands below kMaxKernelOperands: members include the operands and the instructions that combine them,
  // and an instruction in row form has at most three operands.
  if (MembersOf(producer) + MembersOf(consumer) > kMaxFusedInstructions) return false;
  int64_t row_bytes = 0;
  absl::flat_hash_set<const Instruction*> counted;
  for (const Instruction* fusion : {&producer, &consumer}) {
    for (const Instruction* operand : fusion->operands()) {
      if (!operand->shape().is_array() || !form.IsFull(*operand) || !counted.insert(operand).second) continue;
      row_bytes += operand->shape().bytes() / form.rows;
    }
    for (const Instruction* result : ResultsOf(*fusion)) {
      if (form.IsFull(*result)) row_bytes += result->shape().bytes() / form.rows;
    }
  }
  return row_bytes <= kMaxRowBytes;
}

// Merges a producer into the consumer. Returns the merged fusion, or null if no producer can be merged. Appends the
// instructions that the caller must remove to `removed`.
Instruction* MergeOne(Instruction* consumer, std::vector<const Instruction*>* removed) {
  if (!IsCandidate(*consumer) || !IsUsedByElements(*consumer)) return nullptr;
  const std::optional<RowForm> own = RowFormOf(*consumer);
  absl::flat_hash_set<const Instruction*> tried;
  for (Instruction* operand : consumer->operands()) {
    Instruction* producer = ProducerOf(operand);
    if (!IsCandidate(*producer) || !IsUsedByElements(*producer) || !tried.insert(producer).second) continue;
    const std::optional<RowForm> any = own.has_value() ? own : RowFormOf(*producer);
    if (!any.has_value() || !IsWorthwhile(*producer, *consumer, *any)) continue;
    const auto of_consumer = own.has_value() ? own : RowFormOf(*consumer, any->rows, any->columns);
    const auto of_producer = RowFormOf(*producer, any->rows, any->columns);
    if (!of_consumer.has_value() || !of_producer.has_value()) continue;
    if (!ReadsOwnRows(*producer, *of_producer, *consumer, *of_consumer) || HasDetour(producer, consumer)) continue;
    BodyMerger merger(producer, consumer);
    Instruction* merged = merger.Merge(any->rows, any->columns);
    removed->insert(removed->end(), merger.removed().begin(), merger.removed().end());
    if (merged != nullptr) return merged;
  }
  return nullptr;
}

}  // namespace

absl::Status FuseRows(hlo::Module& module, PassContext&) {
  for (Computation* computation : StepComputations(module)) {
    std::vector<Instruction*> pending = Snapshot(*computation);
    absl::flat_hash_map<const Instruction*, size_t> places;
    for (size_t i = 0; i < pending.size(); ++i) places[pending[i]] = i;
    absl::flat_hash_set<const Instruction*> all_removed;
    while (!pending.empty()) {
      Instruction* consumer = pending.back();
      pending.pop_back();
      if (consumer == nullptr) continue;
      places.erase(consumer);
      std::vector<const Instruction*> removed;
      while ((consumer = MergeOne(consumer, &removed)) != nullptr) {
      }
      for (const Instruction* instruction : removed) {
        all_removed.insert(instruction);
        const auto found = places.find(instruction);
        if (found == places.end()) continue;
        pending[found->second] = nullptr;
        places.erase(found);
      }
    }
    computation->RemoveAll(all_removed);
    FinishEdits(computation);
  }
  FinishEdits(&module);
  return absl::OkStatus();
}

}  // namespace xlad::compiler

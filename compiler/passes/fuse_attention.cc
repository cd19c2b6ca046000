// Fuses attention: the products that compute scores, softmax or other operations on rows of scores, and the products
// that use the scores become one library op. The op has the scores of only some rows in memory at a time.
//
// Needs: step computations after canonicalize-dots. Leaves: fusions of kind kCustom (compiler/analysis/attention_op.h),
// and no other instruction with one element for each of their scores.
//
// The products that use scores are grouped by the length of the longest chain of such products that ends with them. The
// product of the forward pass therefore comes before those of the backward pass. Each group becomes a fusion that
// computes the scores again. Values with one element for each row are read instead if an earlier fusion has computed
// them. An attention is not fused if other instructions use its scores, because then the scores must be stored, or if
// separate steps are estimated to be faster (compiler/analysis/attention_cost.h). Either all groups of an attention are
// fused, or none.
#include <algorithm>
#include <map>

#include "base/containers.h"
#include "compiler/analysis/attention_cost.h"
#include "compiler/analysis/attention_op.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/split_batches.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

// The range of sizes for which costs were measured. For a smaller attention, separate steps are equally fast. With more
// features, products take most of the time, and oneDNN's matrix products are faster.
constexpr int64_t kMinColumns = 32, kMinRows = 8, kMinScores = 1 << 14, kMaxFeatures = 256;

using InstructionSet = absl::flat_hash_set<const Instruction*>;

// The instructions of a future fusion.
struct Region {
  std::vector<Instruction*> products;  // The products that use scores, in program order.
  std::vector<Instruction*> inside;    // All other members, operands before users.
  std::vector<Instruction*> results;   // The products, and row values that other instructions use.
  InstructionSet members;
};

class Finder {
 public:
  Finder(Computation* computation, const ScoreSpace& space) : computation_(*computation), space_(space) {}

  // Returns the regions of the space, earlier regions first. Empty if they cannot be formed.
  std::vector<Region> Find() {
    std::map<int, Region> by_level;
    absl::flat_hash_map<const Instruction*, int> levels;
    for (const auto& at : computation_.instructions()) {
      int level = 0;
      for (const Instruction* operand : at->operands()) level = std::max(level, levels[operand]);
      if (IsUse(*at)) by_level[++level].products.push_back(at.get());
      levels[at.get()] = level;
    }
    std::vector<Region> regions;
    for (auto& [level, region] : by_level) {
      for (Instruction* product : region.products) Collect(ScoresOf(*product), &region);
      for (const Instruction* member : region.inside) made_.insert(member);
      regions.push_back(std::move(region));
    }
    for (Region& region : regions) {
      if (!IsComplete(region, regions)) return {};
      FindResults(regions, &region);
    }
    return regions;
  }

 private:
  // Whether the instruction is a product of scores and a matrix.
  bool IsUse(const Instruction& dot) const {
    if (dot.opcode() != Opcode::kDot || dot.operand_count() != 2 || space_.DimsOf(dot) != nullptr) return false;
    return IsScores(*dot.operand(0)) != IsScores(*dot.operand(1));
  }
  bool IsScores(const Instruction& value) const { return space_.IsFull(value) && space_.DependsOnScores(value); }
  Instruction* ScoresOf(const Instruction& dot) const { return dot.operand(IsScores(*dot.operand(0)) ? 0 : 1); }

  bool HasRowsOnly(const Instruction& value) const {
    const ScoreDims* dims = space_.DimsOf(value);
    return dims != nullptr && !Contains(*dims, space_.column());
  }

  // Whether the value depends only on positions and constants.
  bool IsOfPositions(const Instruction& value) {
    const auto known = of_positions_.find(&value);
    if (known != of_positions_.end()) return known->second;
    bool of_positions =
        value.operand_count() > 0 || value.opcode() == Opcode::kIota || value.opcode() == Opcode::kConstant;
    of_positions = of_positions && value.opcode() != Opcode::kReduce && IsScoreOperation(value, space_);
    for (int64_t k = 0; of_positions && k < value.operand_count(); ++k) {
      of_positions = IsOfPositions(*value.operand(k));
    }
    return of_positions_[&value] = of_positions;
  }

  bool IsInside(const Instruction& value) {
    if (value.opcode() == Opcode::kDot) return space_.IsScoreProduct(value);
    if (!IsScoreOperation(value, space_)) return false;
    if (space_.DependsOnScores(value)) return !(HasRowsOnly(value) && made_.contains(&value));
    switch (value.opcode()) {
      case Opcode::kReduce:
        return false;
      case Opcode::kConstant:
      case Opcode::kBroadcast:
      case Opcode::kReshape:
      case Opcode::kTranspose:
        return true;
      default:
        // A mask that is computed from smaller arrays is computed again. A mask that is computed from an array of its
        // own size, such as random bits, is read, because it is smaller than that array.
        return IsOfPositions(value) || (space_.IsFull(value) && !ReadsFull(value));
    }
  }

  // Whether a value that does not depend on scores is computed from an array that has one element for each score.
  bool ReadsFull(const Instruction& value) {
    const auto known = reads_full_.find(&value);
    if (known != reads_full_.end()) return known->second;
    bool reads = false;
    for (const Instruction* operand : value.operands()) {
      if (!space_.IsFull(*operand)) continue;
      const bool stored = operand->opcode() != Opcode::kBroadcast && operand->opcode() != Opcode::kIota &&
                          (operand->operand_count() == 0 || !IsScoreOperation(*operand, space_));
      reads = reads || stored || ReadsFull(*operand);
    }
    return reads_full_[&value] = reads;
  }

  // Adds a value and, recursively, its operands to the region, operands first.
  void Collect(Instruction* start, Region* region) {
    std::vector<Instruction*> pending = {start};
    while (!pending.empty()) {
      Instruction* at = pending.back();
      if (region->members.contains(at) || !IsInside(*at)) {
        pending.pop_back();
        continue;
      }
      bool ready = true;
      if (at->opcode() != Opcode::kDot) {
        for (Instruction* operand : at->operands()) {
          if (region->members.contains(operand) || !IsInside(*operand)) continue;
          pending.push_back(operand);
          ready = false;
        }
      }
      if (!ready) continue;
      pending.pop_back();
      region->members.insert(at);
      region->inside.push_back(at);
    }
  }

  // Whether only regions use the scores.
  bool IsComplete(const Region& region, const std::vector<Region>& regions) const {
    for (const Instruction* at : region.inside) {
      if (!IsScores(*at)) continue;
      if (at == computation_.root()) return false;
      for (const Instruction* user : at->users()) {
        const bool taken = std::any_of(regions.begin(), regions.end(), [&](const Region& other) {
          return other.members.contains(user) || Contains(other.products, user);
        });
        if (!taken) return false;
      }
    }
    return true;
  }

  void FindResults(const std::vector<Region>& regions, Region* region) const {
    region->results = region->products;
    for (Instruction* at : region->inside) {
      if (!HasRowsOnly(*at) || !space_.DependsOnScores(*at)) continue;
      // A user may be in this region and also, as a copy, in other regions that do not contain the value.
      const bool used = std::any_of(at->users().begin(), at->users().end(), [&](const Instruction* user) {
        return !region->members.contains(user) || std::any_of(regions.begin(), regions.end(), [&](const Region& other) {
          return other.members.contains(user) && !other.members.contains(at);
        });
      });
      if (used || at == computation_.root()) region->results.push_back(at);
    }
  }

  const Computation& computation_;
  const ScoreSpace& space_;
  InstructionSet made_;  // The members of the regions that have been collected.
  absl::flat_hash_map<const Instruction*, bool> of_positions_, reads_full_;
};

// Makes the fusion of a region. The operands of the fusion are not instructions of the region.
class Fuser {
 public:
  explicit Fuser(Computation* computation) : computation_(computation) {}

  // Returns null and does not change the computation if the region is not an attention or depends on its own results.
  Instruction* Fuse(const Region& region) {
    fused_ = computation_->parent()->Add(std::make_unique<Computation>("attention"));
    fused_->set_is_fusion(true);
    for (Instruction* at : region.inside) Copy(*at);
    for (Instruction* at : region.products) Copy(*at);
    std::vector<Instruction*> roots;
    for (const Instruction* result : region.results) roots.push_back(copies_.at(result));
    Instruction* made =
        computation_->Add(MakeFusion(fused_, roots, "attention", "kCustom", *region.products[0]), operands_);
    if (!DependsOnItself(region) && MakeAttentionOp(*made).has_value()) return made;
    computation_->Remove(made);
    return nullptr;
  }

 private:
  void Copy(Instruction& at) {
    std::vector<Instruction*> operands;
    for (Instruction* operand : at.operands()) operands.push_back(CopyOf(operand));
    copies_[&at] = CloneWithOperands(at, operands, fused_);
  }
  Instruction* CopyOf(Instruction* operand) {
    Instruction*& copy = copies_[operand];
    if (copy != nullptr) return copy;
    if (operand->opcode() == Opcode::kConstant && operand->shape().is_scalar()) {
      return copy = CloneWithOperands(*operand, {}, fused_);
    }
    return copy = AddFusedParameter(operand, fused_, &operands_);
  }

  // Whether an operand of the fusion is computed from a result of the region.
  bool DependsOnItself(const Region& region) const {
    const InstructionSet operands(operands_.begin(), operands_.end());
    InstructionSet seen;
    std::vector<const Instruction*> pending(region.results.begin(), region.results.end());
    while (!pending.empty()) {
      const Instruction* at = pending.back();
      pending.pop_back();
      for (const Instruction* user : at->users()) {
        if (region.members.contains(user)) continue;
        if (operands.contains(user)) return true;
        if (seen.insert(user).second) pending.push_back(user);
      }
    }
    return false;
  }

  Computation* computation_;
  Computation* fused_ = nullptr;
  absl::flat_hash_map<const Instruction*, Instruction*> copies_;
  std::vector<Instruction*> operands_;
};

bool IsLarge(const ScoreSpace& space, const Instruction& seed) {
  int64_t rows = 1;
  for (const int d : space.rows()) rows *= space.SizeOf(d);
  return space.has_reduction() && space.SizeOf(space.column()) >= kMinColumns && rows >= kMinRows &&
         seed.shape().elements() >= kMinScores;
}

bool HasFewFeatures(const AttentionOp& op) {
  return std::all_of(op.values().begin(), op.values().end(), [](const auto& v) { return v.depth() <= kMaxFeatures; }) &&
         std::all_of(op.results().begin(), op.results().end(), [](const auto& r) { return r.width() <= kMaxFeatures; });
}

CostTerms SeparateTermsOf(const std::vector<Region>& regions, const ScoreSpace& space) {
  std::vector<const Instruction*> all;
  InstructionSet seen;
  const auto add = [&](const std::vector<Instruction*>& some) {
    std::copy_if(some.begin(), some.end(), std::back_inserter(all), [&](auto* at) { return seen.insert(at).second; });
  };
  for (const Region& region : regions) {
    add(region.inside);
    add(region.products);
  }
  return SeparateTerms(all, space);
}

bool IsChosen(const Instruction& seed, const std::vector<Region>& regions, const ScoreSpace& space, CostTerms fused,
              PassContext* context) {
  AttentionCost cost = {std::move(fused), SeparateTermsOf(regions, space)};
  cost.is_fused = context->attention == AttentionChoice::kAlways || seed.shape().bytes() > kMaxScoreBytes ||
                  TotalNs(cost.fused) < TotalNs(cost.separate);
  if (context->attention_costs != nullptr) context->attention_costs->push_back(cost);
  return cost.is_fused;
}

// Fuses all regions around `seed`, or none.
void FuseAround(const Instruction& seed, Computation* computation, PassContext* context) {
  const std::optional<ScoreSpace> space = ScoreSpace::Around(seed);
  if (!space.has_value() || !IsLarge(*space, seed)) return;
  const std::vector<Region> regions = Finder(computation, *space).Find();
  std::vector<Instruction*> fusions;
  CostTerms costs;
  bool fits = !regions.empty();
  for (const Region& region : regions) {
    Instruction* fusion = Fuser(computation).Fuse(region);
    fits = fits && fusion != nullptr;
    if (!fits) break;
    fusions.push_back(fusion);
    const AttentionOp op = *MakeAttentionOp(*fusion);
    fits = HasFewFeatures(op);
    AddFusedTerms(op, &costs);
  }
  if (!fits || !IsChosen(seed, regions, *space, std::move(costs), context)) {
    for (Instruction* fusion : fusions) computation->Remove(fusion);
    return;
  }
  for (size_t r = 0; r < regions.size(); ++r) {
    hlo::Builder builder(computation);
    for (int64_t i = 0; i < std::ssize(regions[r].results); ++i) {
      const bool single = regions[r].results.size() == 1;
      Instruction* value = single ? fusions[r] : builder.GetTupleElement(fusions[r], i);
      regions[r].results[i]->ReplaceAllUsesWith(value);
    }
  }
}

}  // namespace

absl::Status FuseAttention(hlo::Module& module, PassContext& context) {
  if (context.attention == AttentionChoice::kNever) return absl::OkStatus();
  for (Computation* computation : StepComputations(module)) {
    SplitBatches(computation);
    bool changed = true;
    // A fusion makes other instructions with scores dead, so the search for the next seed begins again.
    InstructionSet tried;
    while (changed) {
      changed = false;
      for (Instruction* at : Snapshot(*computation)) {
        if (at->opcode() != Opcode::kExponential || at->shape().ndim() < 2 || !tried.insert(at).second) continue;
        const size_t before = computation->instructions().size();
        FuseAround(*at, computation, &context);
        if (computation->instructions().size() == before) continue;
        FinishEdits(computation);
        changed = true;
        break;
      }
    }
  }
  FinishEdits(&module);
  return absl::OkStatus();
}

}  // namespace xlad::compiler

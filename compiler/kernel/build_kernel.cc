#include "compiler/kernel/build_kernel.h"

#include <algorithm>

#include "base/powers_of_two.h"
#include "compiler/analysis/op_cost.h"
#include "compiler/analysis/plain_reducer.h"
#include "compiler/analysis/row_form.h"
#include "compiler/kernel/gpu_target.h"
#include "compiler/kernel/object_emitter.h"
#include "compiler/kernel/product_schedule.h"
#include "compiler/kernel/scalar_code.h"
#include "compiler/kernel/schedule_tables.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

// The cost of an expensive instruction, in units of a cheap instruction. Values of at least this cost that several
// statements read are stored in an array instead of recomputed.
constexpr int64_t kExpensive = 12;
// Larger costs are not distinguished.
constexpr int64_t kMaxCost = 1000;
// The maximum number of bytes of a row's temporaries. They must fit in the second-level cache and on a thread's stack.
constexpr int64_t kMaxHeldBytes = 256 << 10;

bool IsReduction(const Instruction& value) { return value.opcode() == Opcode::kReduce; }

// Sums, products, maxima and minima of small floats are computed in f32.
ElementType AccumulatorOf(const Instruction& reduce) {
  const ElementType type = reduce.shape().type();
  const std::optional<Opcode> plain = PlainReducer(*reduce.called()[0]);
  const bool widens =
      plain == Opcode::kAdd || plain == Opcode::kMultiply || plain == Opcode::kMaximum || plain == Opcode::kMinimum;
  return tensor::IsSmallFloat(type) && widens ? ElementType::kF32 : type;
}

class KernelBuilder {
 public:
  KernelBuilder(const Instruction& fusion, RowForm form)
      : fusion_(fusion), form_(std::move(form)), levels_(LevelsOf(fusion, form_)) {
    if (fusion.opcode() == Opcode::kFusion) {
      for (const auto& value : fusion.called()[0]->instructions()) values_.push_back(value.get());
    } else {
      values_ = {&fusion};
    }
  }

  Kernel Run() {
    kernel_.name = fusion_.name();
    for (int l = 0; l < std::ssize(form_.loops); ++l) {
      const bool is_row = l < form_.row_loops;
      const size_t count = is_row ? form_.row_loops : form_.loops.size() - form_.row_loops;
      const size_t number = is_row ? l : l - form_.row_loops;
      kernel_.dims.push_back(
          {absl::StrCat(is_row ? "r" : "c", count == 1 ? "" : absl::StrCat(number)), form_.loops[l]});
      (is_row ? rows_ : columns_).push_back(l);
    }
    AddInputsAndOutputs();
    ChooseStatements();
    std::vector<const Instruction*> order;
    for (const Instruction* value : values_) {
      if (places_.contains(value) && !IsInput(fusion_, *value)) order.push_back(value);
    }
    for (const Instruction* result : passed_through_) order.push_back(result);
    std::stable_sort(order.begin(), order.end(), [&](const Instruction* a, const Instruction* b) {
      return std::pair(PhaseOf(*a), UsesColumns(*a)) < std::pair(PhaseOf(*b), UsesColumns(*b));
    });
    int phase = 0;
    for (const Instruction* value : order) {
      if (PhaseOf(*value) != phase) AddRoundings();
      phase = PhaseOf(*value);
      AddStatement(*value);
    }
    AddRoundings();
    return std::move(kernel_);
  }

 private:
  void AddInputsAndOutputs() {
    for (int64_t k = 0; k < fusion_.operand_count(); ++k) {
      const Shape& shape = fusion_.operand(k)->shape();
      const int array = AddArray(absl::StrCat("x", k), KernelArray::Role::kInput, shape.type(), shape.elements());
      const Instruction* input =
          fusion_.opcode() == Opcode::kFusion ? fusion_.called()[0]->parameter(k) : fusion_.operand(k);
      places_.emplace(input, array);
    }
    const std::vector<const Instruction*> results = ResultsOf(fusion_);
    for (size_t i = 0; i < results.size(); ++i) {
      const Shape& shape = results[i]->shape();
      const int array = AddArray(absl::StrCat("y", i), KernelArray::Role::kOutput, shape.type(), shape.elements());
      outputs_.emplace(results[i], array);
      if (!IsInput(fusion_, *results[i])) {
        places_.emplace(results[i], array);
      } else {
        passed_through_.push_back(results[i]);
      }
    }
  }

  int AddArray(std::string name, KernelArray::Role role, ElementType type, int64_t elements) {
    kernel_.arrays.push_back({std::move(name), role, type, elements});
    return std::ssize(kernel_.arrays) - 1;
  }
  int AddTemporary(const Instruction& value, ElementType type) {
    return AddArray(absl::StrCat("t", temporaries_++), KernelArray::Role::kTemporary, type, value.shape().elements());
  }

  bool IsNeeded(const Instruction& value) const {
    const auto found = form_.positions.find(&value);
    return found != form_.positions.end() && !found->second.empty();
  }

  // The cost of computing an element from arrays, reductions and row values.
  int64_t CostOfElement(const Instruction& value) {
    if (IsInput(fusion_, value) || IsReduction(value) || !value.shape().is_array()) return 0;
    if (!form_.IsFull(value) && levels_.at(&value) > 0) return 0;
    const OpCost cost = CostOf(value);
    int64_t total = cost == OpCost::kFree ? 0 : cost == OpCost::kCheap ? 1 : kExpensive;
    for (const Instruction* operand : value.operands()) total += costs_[operand];
    return std::min(total, kMaxCost);
  }

  // Decides which values are stored in arrays.
  void ChooseStatements() {
    for (const Instruction* value : values_) costs_[value] = CostOfElement(*value);
    // For each value, the statements that read it.
    absl::flat_hash_map<const Instruction*, absl::flat_hash_set<const Instruction*>> readers;
    int64_t held_bytes = 0;
    for (auto it = values_.rbegin(); it != values_.rend(); ++it) {
      const Instruction& value = **it;
      if (IsInput(fusion_, value) || !IsNeeded(value)) continue;
      const bool is_result = outputs_.contains(&value);
      if (!is_result && IsHeld(value, readers[&value].size(), &held_bytes)) {
        places_.emplace(&value, AddTemporary(value, value.shape().type()));
      }
      const absl::flat_hash_set<const Instruction*> own = readers[&value];
      for (const Instruction* operand : value.operands()) {
        absl::flat_hash_set<const Instruction*>& of_operand = readers[operand];
        if (places_.contains(&value)) {
          of_operand.insert(&value);
        } else {
          of_operand.insert(own.begin(), own.end());
        }
      }
    }
  }

  // Whether a value is held in a temporary. If so, adds the bytes of a row of it to `held_bytes`.
  bool IsHeld(const Instruction& value, size_t readers, int64_t* held_bytes) const {
    if (IsReduction(value)) return true;
    if (!form_.IsOwn(value) || CostOf(value) == OpCost::kFree) return false;
    if (!form_.IsFull(value)) {
      return levels_.at(&value) > 0 && std::any_of(value.users().begin(), value.users().end(), [&](const auto* user) {
               return user->shape().is_array() && form_.IsFull(*user);
             });
    }
    if (readers < 2 || costs_.at(&value) < kExpensive) return false;
    const int64_t bytes = form_.columns * tensor::ByteWidth(value.shape().type());
    if (*held_bytes + bytes > kMaxHeldBytes) return false;
    *held_bytes += bytes;
    return true;
  }

  // Statements of one phase may share a loop over the columns. Statements that compute values of the row come before
  // this loop.
  int PhaseOf(const Instruction& value) const {
    if (IsInput(fusion_, value)) return 0;
    return levels_.at(&value) - (IsReduction(value) ? 1 : 0);
  }
  bool UsesColumns(const Instruction& value) const { return form_.IsFull(value) || IsReduction(value); }

  ScalarCode NewCode() const {
    return ScalarCode(form_.loops, [this](const Instruction& value, const Affine& at) -> std::optional<int> {
      const auto found = places_.find(&value);
      if (found == places_.end()) return std::nullopt;
      if (IsInput(fusion_, value) || at == (form_.IsFull(value) ? form_.full : form_.row)) return found->second;
      return std::nullopt;
    });
  }

  void AddStatement(const Instruction& value) {
    if (IsReduction(value)) return AddReduction(value);
    const bool passed = IsInput(fusion_, value);
    const int array = passed ? outputs_.at(&value) : places_.at(&value);
    const Affine& at = form_.IsFull(value) ? form_.full : form_.row;
    ScalarCode code = NewCode();
    AddMap(array, at, code.Finish(code.Value(value, at, !passed)));
  }

  void AddMap(int array, const Affine& at, KernelCode code) {
    Statement map;
    map.name = absl::StrCat("s", kernel_.statements.size());
    map.over = rows_;
    if (at == form_.full) map.over.insert(map.over.end(), columns_.begin(), columns_.end());
    map.results = {array};
    map.at = at;
    map.value = std::move(code);
    kernel_.statements.push_back(std::move(map));
  }

  void AddReduction(const Instruction& reduce) {
    const ElementType type = reduce.shape().type(), accumulator = AccumulatorOf(reduce);
    const int result = places_.at(&reduce);
    Statement sum;
    sum.name = absl::StrCat("s", kernel_.statements.size());
    sum.over = rows_;
    sum.along = columns_;
    sum.at = form_.row;
    sum.results = {accumulator == type ? result : AddTemporary(reduce, accumulator)};
    ScalarCode value = NewCode(), initial = NewCode();
    sum.value = value.Finish(value.Convert(value.Value(*reduce.operand(0), form_.full), accumulator));
    const Affine zero{0, std::vector<int64_t>(form_.loops.size(), 0)};
    sum.initial = initial.Finish(initial.Convert(initial.Value(*reduce.operand(1), zero), accumulator));
    sum.combine = CopyOfReducer(*reduce.called()[0], type, accumulator);
    if (IsReorderableFloat(*sum.combine->entry())) {
      sum.lanes = std::min(kMaxReductionLanes, PowerOfTwoAtMost(kernel_.dims[columns_.back()].size));
    }
    if (accumulator != type) roundings_.emplace_back(sum.results[0], result);
    kernel_.statements.push_back(std::move(sum));
  }

  // Rounds the reductions of small floats, after the loop over the columns in which they are computed.
  void AddRoundings() {
    for (const auto& [wide, result] : roundings_) {
      ScalarCode code = NewCode();
      Instruction* sum = code.Read(wide, form_.row, kernel_.arrays[wide].type);
      AddMap(result, form_.row, code.Finish(code.Convert(sum, kernel_.arrays[result].type)));
    }
    roundings_.clear();
  }

  const Instruction& fusion_;
  const RowForm form_;
  const absl::flat_hash_map<const Instruction*, int> levels_;
  std::vector<const Instruction*> values_;  // Operands come before users.
  absl::flat_hash_map<const Instruction*, int64_t> costs_;
  absl::flat_hash_map<const Instruction*, int> places_, outputs_;
  std::vector<const Instruction*> passed_through_;  // Results that are also inputs. They are copied.
  std::vector<int> rows_, columns_;
  std::vector<std::pair<int, int>> roundings_;  // Arrays of f32 reductions, and of rounded ones.
  int temporaries_ = 0;
  Kernel kernel_;
};

}  // namespace

std::optional<Kernel> BuildKernel(const Instruction& fusion) {
  if (std::optional<Kernel> product = BuildProductKernel(fusion)) return product;
  std::optional<RowForm> form = RowFormOf(fusion);
  if (!form.has_value()) return std::nullopt;
  return KernelBuilder(fusion, *std::move(form)).Run();
}

std::shared_ptr<const ScheduledKernel> ScheduleFusion(const Instruction& fusion, int64_t wanted_tiles) {
  std::optional<Kernel> kernel = BuildKernel(fusion);
  if (!kernel.has_value()) return nullptr;
  // GPUs do not compute products in these blocks.
  if (wanted_tiles == kOneRowTiles && IsProductKernel(*kernel)) return nullptr;
  const absl::Status verified = VerifyKernel(*kernel);
  XLAD_CHECK(verified.ok()) << verified << "\n" << KernelText(*kernel);
  KernelSchedule schedule = DefaultSchedule(*kernel, wanted_tiles);
  auto scheduled = ApplySchedule(*std::move(kernel), std::move(schedule));
  XLAD_CHECK(scheduled.ok()) << scheduled.status();
  return std::make_shared<ScheduledKernel>(*std::move(scheduled));
}

absl::StatusOr<std::shared_ptr<const ScheduledKernel>> ScheduleRequest(const KernelRequest& request,
                                                                       const ScheduleTables* tables) {
  auto usual = ScheduleFusion(*request.root, request.wanted_tiles);
  if (usual == nullptr || tables == nullptr) return usual;
  XLAD_ASSIGN_OR_RETURN(auto found, tables->Find(*usual, /*in_place=*/!request.in_place.empty()));
  return found == nullptr ? usual : found;
}

}  // namespace xlad::compiler

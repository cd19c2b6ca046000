// Combines small all-reduces into one message.
//
// Needs: canonical collectives and reducers. Leaves: one all-reduce with several operands instead of several small ones
// of the same groups, reducer and type that do not depend on each other (directly or through other combined ones). The
// combined all-reduce carries the origins of all of them.
#include "compiler/passes/passes.h"

#include <algorithm>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/collective_spec.h"
#include "compiler/analysis/step_computations.h"
#include "hlo/attribute_keys.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kMaxOperandBytes = 1 << 20;    // Above, the latency that combining saves does not matter.
constexpr int64_t kMaxCombinedBytes = 16 << 20;  // All operands of one combined all-reduce together.
constexpr size_t kMaxOperands = 256;
constexpr int64_t kMaxOrigins = 16;  // Origin lines that are kept for each key.

// All-reduces that become one.
struct Bundle {
  std::vector<Instruction*> members;
  std::vector<std::vector<int64_t>> groups;
  std::set<int> needs;  // Bundles that its operands depend on, not through further bundles.
  int64_t bytes = 0;
};

class Combiner {
 public:
  Combiner(Computation* computation, int64_t devices) : computation_(computation), devices_(devices) {}

  absl::Status Run() {
    for (Instruction* at : Snapshot(*computation_)) {
      std::set<int> needs;
      for (const Instruction* operand : at->operands()) {
        AddAll(bundles_of_[operand], &needs);
      }
      for (const Instruction* before : at->control_predecessors()) {
        AddAll(bundles_of_[before], &needs);
      }
      if (!IsSmallAllReduce(*at)) {
        bundles_of_[at] = std::move(needs);
        continue;
      }
      XLAD_ASSIGN_OR_RETURN(auto groups, DeviceGroups(*at, devices_));
      bundles_of_[at] = {AddToBundle(at, std::move(groups), needs)};
    }
    bool changed = false;
    for (const Bundle& bundle : bundles_) {
      if (bundle.members.size() < 2) continue;
      Join(bundle);
      changed = true;
    }
    if (changed) {
      computation_->SortTopologically();
      computation_->RemoveDead();
    }
    return absl::OkStatus();
  }

 private:
  static void AddAll(const std::set<int>& from, std::set<int>* to) { to->insert(from.begin(), from.end()); }

  static bool IsSmallAllReduce(const Instruction& at) {
    return at.opcode() == Opcode::kAllReduce && at.operand_count() == 1 && at.shape().is_array() &&
           at.shape().bytes() <= kMaxOperandBytes;
  }

  // Adds the all-reduce to the latest bundle that may take it, or to a new one. Returns the bundle's number.
  int AddToBundle(Instruction* at, std::vector<std::vector<int64_t>> groups, const std::set<int>& needs) {
    for (int b = std::ssize(bundles_) - 1; b >= 0; --b) {
      Bundle& bundle = bundles_[b];
      const Instruction& first = *bundle.members[0];
      if (first.shape().type() != at->shape().type() || first.called() != at->called() || bundle.groups != groups)
        continue;
      if (bundle.members.size() >= kMaxOperands || bundle.bytes + at->shape().bytes() > kMaxCombinedBytes) continue;
      if (std::any_of(needs.begin(), needs.end(), [&](int other) { return DependsOn(other, b); })) continue;
      bundle.members.push_back(at);
      bundle.needs.insert(needs.begin(), needs.end());
      bundle.bytes += at->shape().bytes();
      return b;
    }
    bundles_.push_back({{at}, std::move(groups), needs, at->shape().bytes()});
    return std::ssize(bundles_) - 1;
  }

  // Whether bundle `later` is `earlier` or depends on it, directly or through other bundles.
  bool DependsOn(int later, int earlier) const {
    std::vector<int> pending = {later};
    absl::flat_hash_set<int> seen;
    while (!pending.empty()) {
      const int at = pending.back();
      pending.pop_back();
      if (at == earlier) return true;
      if (!seen.insert(at).second) continue;
      const std::set<int>& needs = bundles_[at].needs;
      pending.insert(pending.end(), needs.begin(), needs.end());
    }
    return false;
  }

  void Join(const Bundle& bundle) {
    std::vector<Instruction*> operands;
    std::vector<Shape> shapes;
    for (Instruction* member : bundle.members) {
      operands.push_back(member->operand(0));
      shapes.push_back(member->shape());
    }
    Instruction* joined = CloneWithOperands(*bundle.members[0], operands, computation_);
    joined->mutable_shape() = Shape::Tuple(shapes);
    CombineOrigins(bundle, joined);
    hlo::Builder builder(computation_);
    for (size_t i = 0; i < bundle.members.size(); ++i) {
      builder.set_template(bundle.members[i]);
      bundle.members[i]->ReplaceAllUsesWith(builder.GetTupleElement(joined, i));
    }
  }

  // The attributes of the first member, and the ops and causes of all members.
  static void CombineOrigins(const Bundle& bundle, Instruction* joined) {
    joined->mutable_frontend_attributes() = bundle.members[0]->frontend_attributes();
    hlo::CollectiveOrigin all = hlo::ReadOrigin(*bundle.members[0]);
    const auto add_new = [](std::vector<std::string> from, std::vector<std::string>* to) {
      for (std::string& line : from) {
        if (std::ssize(*to) >= kMaxOrigins) return;
        if (!absl::c_linear_search(*to, line)) to->push_back(std::move(line));
      }
    };
    for (const Instruction* member : bundle.members) {
      hlo::CollectiveOrigin origin = hlo::ReadOrigin(*member);
      add_new(std::move(origin.ops), &all.ops);
      add_new(std::move(origin.because), &all.because);
    }
    hlo::WriteOrigin(all, joined);
  }

  Computation* computation_;
  const int64_t devices_;
  std::vector<Bundle> bundles_;
  // The bundles that an instruction depends on, not through further bundles.
  absl::flat_hash_map<const Instruction*, std::set<int>> bundles_of_;
};

}  // namespace

absl::Status CombineCollectives(hlo::Module& module, PassContext& context) {
  for (Computation* computation : StepComputations(module)) {
    XLAD_RETURN_IF_ERROR(Combiner(computation, context.devices).Run());
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler

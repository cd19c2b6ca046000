// Combines small all-reduces into buckets.
//
// Needs: canonical collectives and reducers. Leaves: small all-reduces with the same groups, reducer and type are
// combined into one all-reduce with several operands, if they do not depend on each other (directly or through other
// combined all-reduces). The combined all-reduce has the origins of all of its members. Buckets are filled in the order
// of the earliest time at which the operands can be computed, and have the best size of the cost model (BucketBytes).
// In this way, the gradients of the last layers are sent while those of the first layers are computed. The program
// order cannot be used for this: an all-reduce is often placed at the use of its result, in the order of the
// parameters, which is that of the forward pass. The products that compute the operands may have this order too.
#include "compiler/passes/passes.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/collective_spec.h"
#include "compiler/analysis/overlap_cost.h"
#include "compiler/analysis/step_computations.h"
#include "hlo/attribute_keys.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kMaxOperandBytes = 1 << 20;  // For larger operands, the saved latency does not matter.
constexpr size_t kMaxOperands = 256;
constexpr int64_t kMaxOrigins = 16;  // The maximum number of origin lines that are kept for each key.

using DeviceLists = std::vector<std::vector<int64_t>>;
// What the members of a bucket have in common: element type, reducer and groups.
using CombineKey = std::tuple<ElementType, const Computation*, DeviceLists>;

// All-reduces that are combined.
struct Bucket {
  CombineKey key;
  std::vector<Instruction*> members;
  std::set<int> needs;  // The buckets on which the operands depend directly, not through other buckets.
  int64_t bytes = 0;
  bool is_full = false;  // If true, no more members are added: later ones would delay the bucket.
};

class Combiner {
 public:
  Combiner(Computation* computation, int64_t devices) : computation_(computation), devices_(devices) {}

  absl::Status Run() {
    XLAD_RETURN_IF_ERROR(CollectAllReduces());
    for (Instruction* at : ByReadiness()) {
      std::set<int> needs;
      for (const Instruction* operand : at->operands()) {
        AddAll(buckets_of_[operand], &needs);
      }
      for (const Instruction* before : at->control_predecessors()) {
        AddAll(buckets_of_[before], &needs);
      }
      const auto found = keys_.find(at);
      if (found == keys_.end()) {
        buckets_of_[at] = std::move(needs);
      } else {
        buckets_of_[at] = {AddToBucket(at, found->second, needs)};
      }
    }
    bool changed = false;
    for (const Bucket& bucket : buckets_) {
      if (bucket.members.size() < 2) continue;
      Join(bucket);
      changed = true;
    }
    if (changed) FinishEdits(computation_);
    return absl::OkStatus();
  }

 private:
  static void AddAll(const std::set<int>& from, std::set<int>* to) { to->insert(from.begin(), from.end()); }

  static bool IsSmallAllReduce(const Instruction& at) {
    return at.opcode() == Opcode::kAllReduce && at.operand_count() == 1 && at.shape().is_array() &&
           at.shape().bytes() <= kMaxOperandBytes;
  }

  // All instructions, inputs before users, sorted by the length of the longest path of computation that leads to each.
  std::vector<Instruction*> ByReadiness() const {
    std::vector<Instruction*> order = Snapshot(*computation_);
    absl::flat_hash_map<const Instruction*, double> ready_ns;
    for (const Instruction* at : order) {
      double ns = 0;
      for (const Instruction* operand : at->operands()) ns = std::max(ns, ready_ns[operand]);
      for (const Instruction* before : at->control_predecessors()) ns = std::max(ns, ready_ns[before]);
      ready_ns[at] = ns + ComputeNs(*at);
    }
    std::stable_sort(order.begin(), order.end(), [&](const Instruction* a, const Instruction* b) {
      return ready_ns.find(a)->second < ready_ns.find(b)->second;
    });
    return order;
  }

  // Finds the all-reduces to combine, and the size of the buckets for each key.
  absl::Status CollectAllReduces() {
    std::map<CombineKey, int64_t> total;
    for (const auto& at : computation_->instructions()) {
      if (!IsSmallAllReduce(*at)) continue;
      XLAD_ASSIGN_OR_RETURN(DeviceLists groups, DeviceGroups(*at, devices_));
      const CombineKey key{at->shape().type(), at->called()[0], std::move(groups)};
      total[key] += at->shape().bytes();
      keys_[at.get()] = key;
    }
    for (const auto& [key, bytes] : total) {
      const DeviceLists& groups = std::get<DeviceLists>(key);
      bucket_bytes_[key] = BucketBytes(bytes, groups.empty() ? 1 : std::ssize(groups[0]));
    }
    return absl::OkStatus();
  }

  // Adds the all-reduce to the latest bucket that can accept it, or to a new bucket. Returns the number of the bucket.
  int AddToBucket(Instruction* at, const CombineKey& key, const std::set<int>& needs) {
    const int64_t limit = bucket_bytes_[key];
    for (int b = std::ssize(buckets_) - 1; b >= 0; --b) {
      Bucket& bucket = buckets_[b];
      if (bucket.is_full || bucket.key != key) continue;
      if (std::any_of(needs.begin(), needs.end(), [&](int other) { return DependsOn(other, b); })) continue;
      if (bucket.members.size() >= kMaxOperands || bucket.bytes + at->shape().bytes() > limit) {
        bucket.is_full = true;
        continue;
      }
      bucket.members.push_back(at);
      bucket.needs.insert(needs.begin(), needs.end());
      bucket.bytes += at->shape().bytes();
      return b;
    }
    buckets_.push_back({key, {at}, needs, at->shape().bytes()});
    return std::ssize(buckets_) - 1;
  }

  // Whether bucket `later` is `earlier`, or depends on `earlier` directly or through other buckets.
  bool DependsOn(int later, int earlier) const {
    std::vector<int> pending = {later};
    absl::flat_hash_set<int> seen;
    while (!pending.empty()) {
      const int at = pending.back();
      pending.pop_back();
      if (at == earlier) return true;
      if (!seen.insert(at).second) continue;
      const std::set<int>& needs = buckets_[at].needs;
      pending.insert(pending.end(), needs.begin(), needs.end());
    }
    return false;
  }

  void Join(const Bucket& bucket) {
    std::vector<Instruction*> operands;
    std::vector<Shape> shapes;
    for (Instruction* member : bucket.members) {
      operands.push_back(member->operand(0));
      shapes.push_back(member->shape());
    }
    Instruction* joined = CloneWithOperands(*bucket.members[0], operands, computation_);
    joined->mutable_shape() = Shape::Tuple(shapes);
    CombineOrigins(bucket, joined);
    hlo::Builder builder(computation_);
    for (size_t i = 0; i < bucket.members.size(); ++i) {
      builder.set_template(bucket.members[i]);
      bucket.members[i]->ReplaceAllUsesWith(builder.GetTupleElement(joined, i));
    }
  }

  // Sets the attributes of `joined` to those of the first member, and its ops and causes to those of all members.
  static void CombineOrigins(const Bucket& bucket, Instruction* joined) {
    joined->mutable_frontend_attributes() = bucket.members[0]->frontend_attributes();
    hlo::CollectiveOrigin all = hlo::ReadOrigin(*bucket.members[0]);
    const auto add_new = [](std::vector<std::string> from, std::vector<std::string>* to) {
      for (std::string& line : from) {
        if (std::ssize(*to) >= kMaxOrigins) return;
        if (!absl::c_linear_search(*to, line)) to->push_back(std::move(line));
      }
    };
    for (const Instruction* member : bucket.members) {
      hlo::CollectiveOrigin origin = hlo::ReadOrigin(*member);
      add_new(std::move(origin.ops), &all.ops);
      add_new(std::move(origin.because), &all.because);
    }
    hlo::WriteOrigin(all, joined);
  }

  Computation* computation_;
  const int64_t devices_;
  absl::flat_hash_map<const Instruction*, CombineKey> keys_;  // The keys of the all-reduces to combine.
  std::map<CombineKey, int64_t> bucket_bytes_;
  std::vector<Bucket> buckets_;
  // The buckets on which an instruction depends directly, not through other buckets.
  absl::flat_hash_map<const Instruction*, std::set<int>> buckets_of_;
};

}  // namespace

absl::Status CombineCollectives(hlo::Module& module, PassContext& context) {
  for (Computation* computation : StepComputations(module)) {
    XLAD_RETURN_IF_ERROR(Combiner(computation, context.devices).Run());
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler

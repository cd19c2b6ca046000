// Combines small all-reduces into buckets.
//
// Needs: canonical collectives and reducers; no control edges. Leaves: small all-reduces with the same groups, reducer
// and type are combined into all-reduces with several operands. All-reduces that depend on each other, directly or
// through other combined all-reduces, are not combined. The combined all-reduce has the origins of all of its members.
//
// Buckets are filled in the order of the earliest time at which the operands can be computed, up to the best size
// according to the cost model (BucketBytes). In this way, the gradients of the last layers are sent while those of the
// first layers are computed. The program order cannot be used for this. An all-reduce is often placed at the use of its
// result, and the uses are in the order of the forward pass. The products that compute the operands may have this order
// too.
#include "compiler/passes/passes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/sort_distinct.h"
#include "base/work.h"
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
constexpr int64_t kMaxOrigins = 16;  // The maximum number of ops, and of causes, in a combined origin.

using DeviceLists = std::vector<std::vector<int64_t>>;
// What the members of a bucket have in common: element type, reducer and groups.
using CombineKey = std::tuple<ElementType, const Computation*, DeviceLists>;
using Numbers = std::vector<int>;  // Numbers of buckets, ascending, without repetitions.

// All-reduces that are combined.
struct Bucket {
  std::vector<Instruction*> members;
  // The operands depend on exactly these buckets and on the buckets that these need, directly or indirectly.
  Numbers needs;
  int64_t bytes = 0;
};

// All buckets with one key.
struct KeyBuckets {
  int64_t limit = 0;  // The best size of a bucket, in bytes.
  int64_t bytes = 0;  // The size of all all-reduces with this key.
  Numbers open;       // The buckets that accept members, in the order in which they were made.
};

class Combiner {
 public:
  Combiner(Computation* computation, int64_t devices) : computation_(computation), devices_(devices) {}

  absl::Status Run() {
    XLAD_RETURN_IF_ERROR(CollectAllReduces());
    if (keys_.empty()) return absl::OkStatus();
    for (Instruction* at : ByReadiness()) {
      Numbers needs = NeedsOf(*at);
      const auto found = keys_.find(at);
      if (found != keys_.end()) needs = {AddToBucket(at, found->second, needs)};
      if (!needs.empty()) buckets_of_[at] = std::move(needs);
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
  // Returns a list of buckets. All buckets on which an instruction depends can be reached from them along
  // Bucket::needs.
  Numbers NeedsOf(const Instruction& at) const {
    Numbers needs;
    const auto add = [&](const Instruction* input) {
      const auto found = buckets_of_.find(input);
      if (found == buckets_of_.end() || found->second == needs) return;
      needs.insert(needs.end(), found->second.begin(), found->second.end());
      SortDistinct(&needs);
      CountWork(std::ssize(needs));
    };
    for (const Instruction* operand : at.operands()) add(operand);
    if (needs.size() < 2) return needs;
    // A bucket that another bucket of the list needs is removed. In a chain of layers, only the last bucket remains.
    absl::flat_hash_set<int> reached;
    for (const int bucket : needs) {
      reached.insert(buckets_[bucket].needs.begin(), buckets_[bucket].needs.end());
      CountWork(std::ssize(buckets_[bucket].needs));
    }
    std::erase_if(needs, [&](int bucket) { return reached.contains(bucket); });
    return needs;
  }

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
      ready_ns[at] = ns + ComputeNs(*at);
    }
    std::stable_sort(order.begin(), order.end(), [&](const Instruction* a, const Instruction* b) {
      return ready_ns.find(a)->second < ready_ns.find(b)->second;
    });
    return order;
  }

  // Finds the all-reduces to combine, and the size of the buckets for each key.
  absl::Status CollectAllReduces() {
    std::map<CombineKey, int> numbers;
    for (const auto& at : computation_->instructions()) {
      if (!IsSmallAllReduce(*at)) continue;
      XLAD_ASSIGN_OR_RETURN(DeviceLists groups, DeviceGroups(*at, devices_));
      const int64_t ranks = groups.empty() ? 1 : std::ssize(groups[0]);
      const auto [number, fresh] = numbers.try_emplace(
          CombineKey{at->shape().type(), at->called()[0], std::move(groups)}, std::ssize(of_key_));
      if (fresh) {
        of_key_.emplace_back();
        ranks_.push_back(ranks);
      }
      of_key_[number->second].bytes += at->shape().bytes();
      keys_[at.get()] = number->second;
    }
    for (size_t key = 0; key < of_key_.size(); ++key) {
      of_key_[key].limit = BucketBytes(of_key_[key].bytes, ranks_[key]);
    }
    return absl::OkStatus();
  }

  // Adds the all-reduce to the latest bucket that can accept it, or to a new bucket. Returns the number of the bucket.
  // A bucket without room for the all-reduce is closed, because later members would delay the bucket.
  int AddToBucket(Instruction* at, int key, const Numbers& needs) {
    KeyBuckets& buckets = of_key_[key];
    if (!buckets.open.empty()) MarkDependences(needs);
    for (size_t place = buckets.open.size(); place-- > 0;) {
      const int b = buckets.open[place];
      CountWork();
      if (marks_[b] == mark_) continue;
      Bucket& bucket = buckets_[b];
      if (bucket.members.size() >= kMaxOperands || bucket.bytes + at->shape().bytes() > buckets.limit) {
        buckets.open.erase(buckets.open.begin() + place);
        continue;
      }
      bucket.members.push_back(at);
      bucket.bytes += at->shape().bytes();
      Numbers all;
      std::set_union(bucket.needs.begin(), bucket.needs.end(), needs.begin(), needs.end(), std::back_inserter(all));
      bucket.needs = std::move(all);
      return b;
    }
    buckets_.push_back({{at}, needs, at->shape().bytes()});
    marks_.push_back(0);
    buckets.open.push_back(std::ssize(buckets_) - 1);
    return buckets.open.back();
  }

  // Marks the buckets `from`, and all buckets on which they depend, with a new value of mark_.
  void MarkDependences(const Numbers& from) {
    ++mark_;
    Numbers pending = from;
    while (!pending.empty()) {
      const int at = pending.back();
      pending.pop_back();
      CountWork();
      if (std::exchange(marks_[at], mark_) == mark_) continue;
      const Numbers& needs = buckets_[at].needs;
      pending.insert(pending.end(), needs.begin(), needs.end());
    }
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
  absl::flat_hash_map<const Instruction*, int> keys_;  // The number of the key of each all-reduce to combine.
  std::vector<KeyBuckets> of_key_;                     // For each key.
  std::vector<int64_t> ranks_;                         // For each key, the size of its groups.
  std::vector<Bucket> buckets_;
  std::vector<int64_t> marks_;  // For each bucket.
  int64_t mark_ = 0;
  // For each all-reduce to combine, its bucket. For other instructions, what NeedsOf returned, unless it was empty.
  absl::flat_hash_map<const Instruction*, Numbers> buckets_of_;
};

}  // namespace

absl::Status CombineCollectives(hlo::Module& module, PassContext& context) {
  for (Computation* computation : StepComputations(module)) {
    XLAD_RETURN_IF_ERROR(Combiner(computation, context.devices).Run());
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler

#include "service/state_assembly.h"

#include <algorithm>
#include <utility>

#include "tensor/wire.h"

namespace xlad::service {
namespace {

using tensor::Array;
using tensor::Shape;

constexpr int kMaxSteps = 2;  // Shards of this many steps of an attempt are kept.

bool Overlap(const tensor::Box& a, const tensor::Box& b) {
  for (size_t d = 0; d < a.lo.size(); ++d) {
    if (std::max(a.lo[d], b.lo[d]) >= std::min(a.hi[d], b.hi[d])) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<int64_t> StateAssembly::Check(const PutStateShardRequest& header, const JobSpec& spec) {
  if (header.step() > spec.steps()) {
    return absl::InvalidArgumentError(absl::StrCat("found a shard of step ", header.step(), " of job ", header.job_id(),
                                                   ", expected at most ", spec.steps()));
  }
  for (const JobSpec::Parameter& parameter : spec.parameters()) {
    if (parameter.kind() != JobSpec::Parameter::STATE || parameter.name() != header.tensor()) continue;
    const tensor::Box box = tensor::BoxFromWire(header.box());
    const Shape shape = tensor::ShapeFromWire(parameter.shape());
    if (tensor::IsInside(box, shape)) return Shape{shape.type, box.sizes()}.bytes();
    return absl::InvalidArgumentError(absl::StrCat("found shard ", box.ToString(), " of ", header.tensor(),
                                                   ", expected a box in ", shape.ToString()));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found a shard of ", header.tensor(), ", which job ", header.job_id(), " has no state of"));
}

void StateAssembly::MakeRoom(const Key& key) {
  const auto& [job, attempt, step] = key;
  const auto first = shards_.lower_bound({job, 0, 0}), current = shards_.lower_bound({job, attempt, 0});
  shards_.erase(first, current);  // Those of earlier attempts.
  if (shards_.contains(key)) return;
  const auto end = shards_.upper_bound({job, attempt, INT64_MAX});
  if (std::distance(current, end) >= kMaxSteps) shards_.erase(current);
}

absl::Status StateAssembly::Add(const PutStateShardRequest& header, const JobSpec& spec, std::string bytes) {
  XLAD_ASSIGN_OR_RETURN(const int64_t expected, Check(header, spec));
  if (std::ssize(bytes) != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", bytes.size(), " bytes of a shard of ", header.tensor(), ", expected ", expected));
  }
  const tensor::Box box = tensor::BoxFromWire(header.box());
  const Key key{header.job_id(), header.attempt(), header.step()};
  const std::lock_guard lock(mutex_);
  MakeRoom(key);
  std::vector<Shard>& shards = shards_[key][header.tensor()];
  for (Shard& shard : shards) {
    if (shard.box == box) {
      shard.bytes = std::move(bytes);
      return absl::OkStatus();
    }
    if (Overlap(shard.box, box)) {
      return absl::InvalidArgumentError(absl::StrCat("found shard ", box.ToString(), " of ", header.tensor(),
                                                     ", expected none that overlaps ", shard.box.ToString()));
    }
  }
  shards.push_back({box, std::move(bytes)});
  return absl::OkStatus();
}

absl::StatusOr<std::string> StateAssembly::Assemble(const std::string& job_id, int64_t attempt, int64_t step,
                                                    const JobSpec& spec) {
  const std::lock_guard lock(mutex_);
  const auto found = shards_.find({job_id, attempt, step});
  static const std::map<std::string, std::vector<Shard>> kNone;
  const auto& tensors = found == shards_.end() ? kNone : found->second;
  tensor::NamedArrays state;
  for (const JobSpec::Parameter& parameter : spec.parameters()) {
    if (parameter.kind() != JobSpec::Parameter::STATE) continue;
    Array array(tensor::ShapeFromWire(parameter.shape()));
    const auto shards = tensors.find(parameter.name());
    int64_t elements = 0;
    if (shards != tensors.end()) {
      for (const Shard& shard : shards->second) {
        const Shape part{array.shape().type, shard.box.sizes()};
        if (!tensor::IsInside(shard.box, array.shape()) || std::ssize(shard.bytes) != part.bytes()) {
          return absl::InvalidArgumentError(absl::StrCat("shard ", shard.box.ToString(), " of ", parameter.name(),
                                                         " has ", shard.bytes.size(), " bytes and does not fit ",
                                                         array.shape().ToString()));
        }
        Array values(part);
        std::memcpy(values.bytes().data(), shard.bytes.data(), shard.bytes.size());
        tensor::InsertBox(values, shard.box, &array);
        elements += part.elements();
      }
    }
    if (elements != array.elements()) {
      return absl::DataLossError(
          absl::StrCat("found ", elements, " elements of ", parameter.name(), ", expected ", array.elements()));
    }
    state.emplace(parameter.name(), std::move(array));
  }
  return tensor::SerializeSafetensors(state);
}

void StateAssembly::Drop(const std::string& job_id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(shards_, [&](const auto& entry) { return std::get<0>(entry.first) == job_id; });
}

}  // namespace xlad::service

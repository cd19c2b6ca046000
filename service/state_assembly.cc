#include "service/state_assembly.h"

#include <algorithm>
#include <utility>

#include "tensor/wire.h"

namespace xlad::service {
namespace {

using tensor::Array;
using tensor::Shape;

}  // namespace

absl::Status StateAssembly::Add(const PutStateShardRequest& header, std::string bytes) {
  const tensor::Box box = tensor::BoxFromWire(header.box());
  const std::lock_guard lock(mutex_);
  std::vector<Shard>& shards = shards_[{header.job_id(), header.attempt(), header.step()}][header.tensor()];
  for (Shard& shard : shards) {
    if (shard.box == box) {
      shard.bytes = std::move(bytes);
      return absl::OkStatus();
    }
  }
  shards.push_back({box, std::move(bytes)});
  return absl::OkStatus();
}

absl::StatusOr<std::string> StateAssembly::Assemble(const std::string& job_id, int64_t attempt, int64_t step,
                                                    const JobSpec& spec) {
  const std::lock_guard lock(mutex_);
  const auto& tensors = shards_[{job_id, attempt, step}];
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
      return absl::DataLossError(absl::StrCat("found ", elements, " elements of ", parameter.name(), ", expected ",
                                              array.elements()));
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

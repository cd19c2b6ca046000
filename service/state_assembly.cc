#include "service/state_assembly.h"

#include <algorithm>
#include <utility>

namespace xlad::service {
namespace {

using tensor::Array;
using tensor::ElementType;
using tensor::Shape;

Shape ShapeOf(const ArrayShape& proto) {
  return Shape{static_cast<ElementType>(proto.element_type()), {proto.dims().begin(), proto.dims().end()}};
}

bool Fits(const tensor::Box& box, const Shape& shape) {
  if (box.lo.size() != shape.dims.size() || box.hi.size() != shape.dims.size()) return false;
  for (size_t d = 0; d < shape.dims.size(); ++d) {
    if (box.lo[d] < 0 || box.hi[d] < box.lo[d] || box.hi[d] > shape.dims[d]) return false;
  }
  return true;
}

}  // namespace

absl::Status StateAssembly::Add(const PutStateShardRequest& header, std::string bytes) {
  const tensor::Box box{{header.box().lo().begin(), header.box().lo().end()},
                        {header.box().hi().begin(), header.box().hi().end()}};
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
    Array array(ShapeOf(parameter.shape()));
    const auto shards = tensors.find(parameter.name());
    int64_t elements = 0;
    if (shards != tensors.end()) {
      for (const Shard& shard : shards->second) {
        const Shape part{array.shape().type, shard.box.sizes()};
        if (!Fits(shard.box, array.shape()) || static_cast<int64_t>(shard.bytes.size()) != part.bytes()) {
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

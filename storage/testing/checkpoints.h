// For tests: states, and checkpoints of these states that several workers have written.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rounding.h"
#include "storage/checkpoint_folder.h"
#include "storage/checkpoint_shard.h"
#include "storage/store.h"
#include "tensor/wire.h"

namespace xlad::storage {

using tensor::Array;
using tensor::Box;
using tensor::ElementType;
using tensor::Shape;
using Random = std::mt19937_64;

inline constexpr ElementType kTypes[] = {ElementType::kF32,  ElementType::kBF16, ElementType::kS4,
                                         ElementType::kC128, ElementType::kPred, ElementType::kS64};

// A tensor, and the boxes in which a mesh of devices holds it. Several devices may have the same box.
struct Sharded {
  Array array;
  std::vector<Box> boxes;  // Indexed by device.
};
using State = std::map<std::string, Sharded>;

// Returns random boxes of `devices` devices. As in the partitioner, each dimension is divided into parts of equal size,
// except that the last parts may be smaller or empty.
inline std::vector<Box> RandomBoxes(Random& random, const Shape& shape, int64_t devices) {
  std::vector<int64_t> parts(shape.dims.size(), 1);
  int64_t rest = devices;
  for (int64_t& part : parts) {
    const int64_t factor = random() % 3 == 0 ? rest : (rest % 2 == 0 ? 2 : 1);
    part = factor;
    rest /= factor;
  }
  std::vector<Box> boxes;
  for (int64_t device = 0; device < devices; ++device) {
    Box box = FullBox(shape);
    int64_t index = device;
    for (const int64_t d : tensor::Indices(parts)) {
      const int64_t rows = CeilDiv(shape.dims[d], parts[d]);
      box.lo[d] = std::min(shape.dims[d], rows * (index % parts[d]));
      box.hi[d] = std::min(shape.dims[d], box.lo[d] + rows);
      index /= parts[d];
    }
    boxes.push_back(std::move(box));
  }
  return boxes;
}

inline Array RandomArray(Random& random, const Shape& shape) {
  Array array(shape);
  for (std::byte& byte : array.bytes()) byte = static_cast<std::byte>(random());
  tensor::ToStored(shape.type, array.bytes());
  tensor::FromStored(shape.type, array.bytes());
  return array;
}

inline State RandomState(Random& random, int64_t devices) {
  State state;
  const int64_t tensors = 1 + random() % 6;
  for (int64_t t = 0; t < tensors; ++t) {
    Shape shape{kTypes[random() % std::size(kTypes)], {}};
    const int64_t ndim = random() % 4;
    for (int64_t d = 0; d < ndim; ++d) shape.dims.push_back(random() % 5 == 0 ? 0 : random() % 40);
    Sharded& sharded = state[absl::StrCat("t\"", t)];
    sharded.array = RandomArray(random, shape);
    sharded.boxes = RandomBoxes(random, shape, devices);
  }
  return state;
}

struct Writers {
  int64_t workers = 0;
  int64_t devices_each = 0;  // The number of devices of each worker.
};
// Writes a checkpoint of `state` in a folder below `root`, and returns the folder. Each box is written by the first
// device that has it.
inline absl::StatusOr<std::string> WriteCheckpointIn(const std::string& root, FileSystem& files, const State& state,
                                                     const Writers& writers, const ShardOrigin& origin) {
  const int64_t workers = writers.workers, devices_each = writers.devices_each;
  const std::string folder = CheckpointFolder(root, origin);
  v1::CheckpointIndex index;
  index.set_job_id(origin.job_id);
  index.set_step(origin.step);
  index.set_attempt(origin.attempt);
  for (const auto& [name, sharded] : state) {
    v1::CheckpointTensor* tensor = index.add_tensors();
    tensor->set_name(name);
    tensor::ShapeToWire(sharded.array.shape(), tensor->mutable_shape());
  }
  for (int64_t worker = 0; worker < workers; ++worker) {
    std::vector<Array> arrays;
    std::vector<PieceBytes> pieces;
    arrays.reserve(state.size() * devices_each);
    for (int64_t device = worker * devices_each; device < (worker + 1) * devices_each; ++device) {
      for (const auto& [name, sharded] : state) {
        const Box& box = sharded.boxes[device];
        const auto first = std::find(sharded.boxes.begin(), sharded.boxes.end(), box);
        if (box.elements() == 0 || first - sharded.boxes.begin() != device) continue;
        arrays.push_back(tensor::ExtractBox(sharded.array, box, box.sizes()));
        tensor::ToStored(sharded.array.shape().type, arrays.back().bytes());
        pieces.push_back({name, sharded.array.shape(), box, arrays.back().bytes()});
      }
    }
    const std::string name = absl::StrCat("shard-", worker, ".safetensors");
    XLAD_ASSIGN_OR_RETURN(*index.add_shards(),
                          WriteShardFile(files, folder, name, SerializedShard(std::move(pieces), origin)));
  }
  XLAD_RETURN_IF_ERROR(WriteIndexFile(files, folder, index));
  return folder;
}

inline absl::StatusOr<std::string> WriteCheckpoint(FileSystem& files, const State& state, int64_t workers,
                                                   int64_t devices_each, const ShardOrigin& origin) {
  return WriteCheckpointIn("/c", files, state, {workers, devices_each}, origin);
}

// Reads every box of the state and compares it with the state. All boxes are read by one call, as a worker does.
inline absl::Status ReadBoxes(const TensorSource& source, const State& state) {
  std::vector<Array> arrays;
  std::vector<BoxRead> reads;
  std::vector<Array> expected;
  for (const auto& [name, sharded] : state) {
    XLAD_RETURN_IF_ERROR(source.CheckShape(name, sharded.array.shape()));
    for (const Box& box : sharded.boxes) {
      expected.push_back(tensor::ExtractBox(sharded.array, box, box.sizes()));
      arrays.emplace_back(expected.back().shape());
    }
  }
  size_t next = 0;
  for (const auto& [name, sharded] : state) {
    for (const Box& box : sharded.boxes) {
      reads.push_back({name, sharded.array.shape().type, box, arrays[next++].bytes()});
    }
  }
  XLAD_RETURN_IF_ERROR(source.Read(reads));
  return arrays == expected ? absl::OkStatus() : absl::InternalError("the arrays differ");
}

inline absl::Status ReadCheckpoint(FileSystem& files, const std::string& folder, const State& state) {
  const Store store(files);
  XLAD_ASSIGN_OR_RETURN(const auto source, store.OpenTensors(FileUri(folder)));
  return ReadBoxes(*source, state);
}

inline State SmallState(Random& random) {
  State state;
  state["w"].array = RandomArray(random, {ElementType::kF32, {40, 100}});
  state["m"].array = RandomArray(random, {ElementType::kBF16, {77}});
  for (auto& [name, sharded] : state) sharded.boxes = RandomBoxes(random, sharded.array.shape(), 4);
  return state;
}

}  // namespace xlad::storage

// Assembles the shards of a job's state that its workers upload into one safetensors file.
//
// Thread-safe. Shards stay in memory until Drop is called for their job: at most two states of each job.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "proto/job.pb.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "tensor/box.h"
#include "tensor/safetensors.h"

namespace xlad::service {

class StateAssembly {
 public:
  // Adds one box of a tensor: `bytes` is row-major without padding, `header` names the tensor and the box (its chunk is
  // ignored). A box that was added before is replaced: workers upload again after they reconnect. Shards of earlier
  // attempts, and of the earliest step if there are two others, are dropped. Errors: as Check, and InvalidArgument if
  // the size is another or the box overlaps others.
  absl::Status Add(const PutStateShardRequest& header, const JobSpec& spec, std::string bytes);
  // InvalidArgument if a job with this spec has no such step or state, or the box is outside of it. Returns the number
  // of bytes in the box.
  static absl::StatusOr<int64_t> Check(const PutStateShardRequest& header, const JobSpec& spec);
  // Returns the safetensors file of the state after `step`: every STATE parameter of the spec. DataLoss if elements are
  // missing, InvalidArgument if a box does not match its parameter.
  absl::StatusOr<std::string> Assemble(const std::string& job_id, int64_t attempt, int64_t step, const JobSpec& spec);
  void Drop(const std::string& job_id);

 private:
  struct Shard {
    tensor::Box box;
    std::string bytes;
  };
  using Key = std::tuple<std::string, int64_t, int64_t>;
  // Drops shards that are not needed when shards of this attempt and step arrive.
  void MakeRoom(const Key& key);

  std::mutex mutex_;
  std::map<Key, std::map<std::string, std::vector<Shard>>> shards_;
};

}  // namespace xlad::service

// Shards of a job's state, uploaded by its workers, put together into one safetensors file.
//
// Thread-safe. What belongs to an attempt that has ended is dropped by Drop.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "proto/job.pb.h"
#include "proto/worker.pb.h"
#include "tensor/box.h"
#include "tensor/safetensors.h"

namespace xlad::service {

class StateAssembly {
 public:
  // A box of a tensor, row-major without padding; `header` says which, its chunk is not looked at. The same box may
  // come again (a worker that reconnected).
  absl::Status Add(const PutStateShardRequest& header, std::string bytes);
  // The whole state after `step`: every STATE parameter of the spec, each element exactly from its box.
  absl::StatusOr<std::string> Assemble(const std::string& job_id, int64_t attempt, int64_t step,
                                       const JobSpec& spec);
  void Drop(const std::string& job_id);

 private:
  struct Shard {
    tensor::Box box;
    std::string bytes;
  };
  using Key = std::tuple<std::string, int64_t, int64_t>;
  std::mutex mutex_;
  std::map<Key, std::map<std::string, std::vector<Shard>>> shards_;
};

}  // namespace xlad::service

// The proof of a partitioned program, in a thread that runs during the compilation.
#pragma once

#include <thread>

#include "base/status.h"
#include "compiler/codegen/object_cache.h"
#include "sharding/pipeline.h"
#include "sharding/proof/proven_instances.h"

namespace xlad::service {

// Runs sharding::Check in a thread, because parts of the compilation use only one core. Instances that earlier builds
// have proven are found in a cache: all builds share one entry of it. If two builds write the entry at the same time,
// the instances of one of them are proven again later.
class BackgroundProof {
 public:
  // `program` and `cache` must outlive this object. If `cache` is null, every instance is proven.
  BackgroundProof(const sharding::PipelineResult& program, compiler::ObjectCache* cache);
  ~BackgroundProof();
  BackgroundProof(const BackgroundProof&) = delete;
  BackgroundProof& operator=(const BackgroundProof&) = delete;

  // Waits for the end of the proof and returns its result. Adds the instances that were proven to the cache. Must be
  // called at most once.
  absl::Status Join();

  // The time of the proof in nanoseconds, after Join.
  int64_t nanoseconds() const { return nanoseconds_; }

 private:
  compiler::ObjectCache* const cache_;
  sharding::ProvenInstances proven_;
  absl::Status status_;
  int64_t nanoseconds_ = 0;
  std::thread thread_;
};

}  // namespace xlad::service

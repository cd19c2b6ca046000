// A cache of builds on disk. The name of an entry is a hash of everything that the build depends on.
//
// Thread-safe; several processes may share a folder. An entry starts with the hash of its contents. A damaged entry is
// removed with a warning, and the program is built again. When the folder exceeds its limit, the least recently used
// entries are removed.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "proto/compile.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::service {

struct ExecutableCacheOptions {
  std::string folder;  // If empty, nothing is stored; concurrent equal builds are still shared.
  int64_t max_bytes = int64_t{2} << 30;
  std::string compiler;  // The version of the code that builds, part of every key.
};

struct CachedBuild {
  BuildResponse response;
  bool cached = false;  // Whether the response comes from the cache or from a concurrent call.
};

class ExecutableCache {
 public:
  explicit ExecutableCache(ExecutableCacheOptions options) : options_(std::move(options)) {}

  using BuildFunction = std::function<absl::StatusOr<BuildResponse>(const BuildRequest&)>;
  // Returns the response from the folder, from a concurrent call with an equal request, or from `build`. Errors are not
  // stored, but concurrent calls share them. If the build of a concurrent call was canceled, this call builds. A
  // response with quickly compiled code is not stored, and is shared only with requests that set BuildRequest.quick.
  //
  // `owner` is the user of the job, or empty if users are not distinguished. Users share no entries, because a build
  // may contain kernels that an earlier build of the same user made.
  //
  // Calls share builds only if their `is_urgent` is the same: a build for which no job waits is slow, and a call that
  // waits for the build of another call cannot be canceled.
  absl::StatusOr<CachedBuild> Get(const BuildRequest& request, const std::string& owner, const BuildFunction& build,
                                  bool is_urgent = true);

  // Returns the hash of everything that the response depends on: the program, the parts of the spec that describe it,
  // the headers of state and data, all targets and the compiler. The hash does not depend on the job's name, the number
  // of steps, the contents of state and data, BuildRequest.quick, or options that only decide when and where the job
  // runs.
  std::string KeyOf(const BuildRequest& request) const;

 private:
  using Outcome = absl::StatusOr<std::shared_ptr<const BuildResponse>>;

  absl::StatusOr<BuildResponse> Read(const std::string& key) const;
  void Write(const std::string& key, const BuildResponse& response) const;
  std::string PathOf(const std::string& key) const;

  const ExecutableCacheOptions options_;
  std::mutex mutex_;
  std::map<std::string, std::shared_future<Outcome>> under_way_;
};

}  // namespace xlad::service

// Builds that were done before, on disk, named by a hash of all that goes into them.
//
// Thread-safe; several processes may share a folder. An entry carries the hash of its contents: a damaged one is
// removed, with a warning, and built again. The oldest go when the folder grows beyond its limit; use makes young.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "proto/compile.pb.h"

namespace xlad::service {

struct ExecutableCacheOptions {
  std::string folder;            // Empty: nothing is kept; builds under way are shared all the same.
  int64_t max_bytes = int64_t{2} << 30;
  std::string compiler;          // Names the version of the code that builds.
};

struct CachedBuild {
  BuildResponse response;
  bool cached = false;  // Nothing was built for this call.
};

class ExecutableCache {
 public:
  explicit ExecutableCache(ExecutableCacheOptions options) : options_(std::move(options)) {}

  using BuildFunction = std::function<absl::StatusOr<BuildResponse>(const BuildRequest&)>;
  // The response for the request: from the folder, from a call that builds the same at this time, or from `build`.
  // Errors are not kept.
  absl::StatusOr<CachedBuild> Get(const BuildRequest& request, const BuildFunction& build);

  // What the response depends on: the program, what the spec says about it, the state's and the data's headers, the
  // target and the compiler. Names of jobs, numbers of steps and contents of state and data do not count.
  std::string KeyOf(const BuildRequest& request) const;

 private:
  using Outcome = absl::StatusOr<std::shared_ptr<const BuildResponse>>;

  absl::StatusOr<BuildResponse> Read(const std::string& key) const;
  void Write(const std::string& key, const BuildResponse& response) const;
  void Trim() const;
  std::string PathOf(const std::string& key) const;

  const ExecutableCacheOptions options_;
  std::mutex mutex_;
  std::map<std::string, std::shared_future<Outcome>> under_way_;
};

// The build id of the running program; where it has none, its file's size and time.
std::string CompilerVersion(const std::string& program_path);

// Where builds are kept for a user: xlad in $XDG_CACHE_HOME or ~/.cache; empty where neither is known.
std::string UserCacheFolder();
// The folder that was chosen by flag or else by $XLAD_CACHE ("off": empty, none), or else `usual`.
std::string CacheFolder(const std::string& flag, const std::string& usual);

}  // namespace xlad::service

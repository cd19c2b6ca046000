#include "service/blobs/executable_cache.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/log.h"
#include "storage/entry_folder.h"
#include "storage/job_uris.h"

namespace xlad::service {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHashBytes = 64;  // An entry starts with the hexadecimal SHA-256 of the rest.

}  // namespace

std::string ExecutableCache::KeyOf(const BuildRequest& request) const {
  JobSpec spec = request.spec();
  for (auto clear :
       {&JobSpec::clear_name, &JobSpec::clear_program_blob, &JobSpec::clear_state_blob, &JobSpec::clear_data_blob,
        &JobSpec::clear_state_uri, &JobSpec::clear_steps, &JobSpec::clear_start_step, &JobSpec::clear_max_attempts,
        &JobSpec::clear_keep_final_state, &JobSpec::clear_checkpoint, &JobSpec::clear_resume, &JobSpec::clear_on_loss,
        &JobSpec::clear_shrink_axes, &JobSpec::clear_stop_when_not_finite, &JobSpec::clear_device_name,
        &JobSpec::clear_devices, &JobSpec::clear_compile_tier}) {
    (spec.*clear)();
  }
  // All URIs except the stream affect a build only through the data's header. A stream has no header.
  if (spec.data_uri() != storage::kStreamUri) spec.clear_data_uri();
  std::string key;
  for (const std::string& part : {Sha256Hex(request.program()), spec.SerializeAsString(), request.state_header(),
                                  request.data_header(), request.target().SerializeAsString(), options_.compiler}) {
    absl::StrAppend(&key, part.size(), ":", part);
  }
  for (const Target& other : request.other_targets()) {
    const std::string part = other.SerializeAsString();
    absl::StrAppend(&key, part.size(), ":", part);
  }
  return Sha256Hex(key);
}

std::string ExecutableCache::PathOf(const std::string& key) const { return JoinPath(options_.folder, key); }

absl::StatusOr<CachedBuild> ExecutableCache::Get(const BuildRequest& request, const std::string& owner,
                                                 const BuildFunction& build, bool is_urgent) {
  const std::string key = owner.empty() ? KeyOf(request) : Sha256Hex(absl::StrCat(KeyOf(request), owner));
  const std::string shared_key = absl::StrCat(key, request.quick() ? " quick" : "", is_urgent ? "" : " not urgent");
  std::promise<Outcome> promise;
  while (true) {
    std::unique_lock lock(mutex_);
    const auto other = under_way_.find(shared_key);
    if (other == under_way_.end()) {
      under_way_[shared_key] = promise.get_future().share();
      break;
    }
    const std::shared_future<Outcome> future = other->second;
    lock.unlock();
    const Outcome& outcome = future.get();
    if (outcome.ok()) return CachedBuild{**outcome, true};
    // If the build was canceled together with its job, this call builds.
    if (!absl::IsCancelled(outcome.status())) return outcome.status();
  }
  absl::StatusOr<BuildResponse> response = Read(key);
  const bool cached = response.ok();
  if (!cached) response = build(request);
  if (!cached && response.ok() && !response->quick()) Write(key, *response);
  {
    const std::lock_guard lock(mutex_);
    under_way_.erase(shared_key);
  }
  promise.set_value(response.ok() ? Outcome(std::make_shared<const BuildResponse>(*response)) : response.status());
  if (!response.ok()) return response.status();
  return CachedBuild{*std::move(response), cached};
}

absl::StatusOr<BuildResponse> ExecutableCache::Read(const std::string& key) const {
  if (options_.folder.empty()) return absl::NotFoundError("no cache");
  const std::string path = PathOf(key);
  std::error_code error;
  if (!fs::exists(path, error)) return absl::NotFoundError(path);
  const absl::StatusOr<std::string> bytes = RealFileSystem().Read(path);
  BuildResponse response;
  bool valid = bytes.ok() && bytes->size() >= kHashBytes;
  if (valid) {
    const std::string contents = bytes->substr(kHashBytes);
    valid = Sha256Hex(contents) == bytes->substr(0, kHashBytes) && response.ParseFromString(contents);
  }
  if (!valid) {
    LogWarn("found a damaged entry in the executable cache; it is removed, and the program is built again",
            {{"path", path}});
    fs::remove(path, error);
    return absl::DataLossError(path);
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return response;
}

// A failure to store the response does not fail the build.
void ExecutableCache::Write(const std::string& key, const BuildResponse& response) const {
  if (options_.folder.empty()) return;
  BuildResponse kept = response;
  kept.clear_timings();
  kept.clear_reused_objects();
  const std::string bytes = kept.SerializeAsString();
  absl::Status status = RealFileSystem().MakeDirectories(options_.folder);
  if (status.ok()) status = RealFileSystem().WriteAtomically(PathOf(key), Sha256Hex(bytes) + bytes);
  if (!status.ok()) {
    LogWarn("an executable could not be stored in the cache", {{"error", std::string(status.message())}});
  }
  storage::RemoveLeastRecentlyUsed(options_.folder, options_.max_bytes);
}

}  // namespace xlad::service

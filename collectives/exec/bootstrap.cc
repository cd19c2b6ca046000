#include "collectives/exec/bootstrap.h"

#include <mutex>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace xlad::collectives {
namespace {

constexpr absl::string_view kClaimSuffix = ".claim";

absl::Status AlreadySet(const std::string& key) {
  return absl::AlreadyExistsError(absl::StrCat("bootstrap key ", key, " is already set"));
}

class InMemory final : public Bootstrap {
 public:
  explicit InMemory(std::map<std::string, std::string> values) : values_(std::move(values)) {}

  absl::Status Put(const std::string& key, const std::string& value) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return values_.emplace(key, value).second ? absl::OkStatus() : AlreadySet(key);
  }

  absl::StatusOr<std::string> Get(const std::string& key) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) return absl::NotFoundError(absl::StrCat("bootstrap key ", key, " is not set"));
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

class InFiles final : public Bootstrap {
 public:
  InFiles(FileSystem& files, std::string folder) : files_(files), folder_(std::move(folder)) {}

  absl::Status Put(const std::string& key, const std::string& value) override {
    const std::string path = PathOf(key), claim = absl::StrCat(path, kClaimSuffix);
    XLAD_RETURN_IF_ERROR(files_.MakeDirectories(folder_));
    // Only one process can create the claim. It alone writes the value, which the others see as a whole.
    const absl::Status claimed = files_.Open(claim, OpenMode::kCreate).status();
    if (absl::IsAlreadyExists(claimed)) return AlreadySet(key);
    XLAD_RETURN_IF_ERROR(claimed);
    const absl::Status written = files_.WriteAtomically(path, value);
    if (!written.ok()) files_.Remove(claim).IgnoreError();
    return written;
  }

  absl::StatusOr<std::string> Get(const std::string& key) override {
    const std::string path = PathOf(key);
    if (!files_.Exists(path)) return absl::NotFoundError(absl::StrCat("bootstrap key ", key, " is not set"));
    return files_.Read(path);
  }

 private:
  std::string PathOf(const std::string& key) const { return JoinPath(folder_, absl::StrReplaceAll(key, {{"/", "."}})); }

  FileSystem& files_;
  const std::string folder_;
};

}  // namespace

std::string PeerInfo::ToString() const { return absl::StrCat("worker ", worker_id, ", host ", host, ", pid ", pid); }

std::string PeerKey(int device) { return absl::StrCat("device/", device); }

std::string EncodePeer(const PeerInfo& peer) {
  return absl::StrCat(peer.worker_id, "\n", peer.incarnation, "\n", peer.host, "\n", peer.pid, "\n", peer.data_address);
}

absl::StatusOr<PeerInfo> DecodePeer(absl::string_view text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  PeerInfo peer;
  if (lines.size() != 5 || !absl::SimpleAtoi(lines[1], &peer.incarnation) || !absl::SimpleAtoi(lines[3], &peer.pid)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found the peer \"", absl::CEscape(text),
                     "\", expected 5 lines: worker, incarnation (a number), host, pid (a number) and address"));
  }
  peer.worker_id = lines[0];
  peer.host = lines[2];
  peer.data_address = lines[4];
  return peer;
}

std::unique_ptr<Bootstrap> MapBootstrap(std::map<std::string, std::string> values) {
  return std::make_unique<InMemory>(std::move(values));
}

std::unique_ptr<Bootstrap> FileBootstrap(FileSystem& files, const std::string& folder) {
  return std::make_unique<InFiles>(files, folder);
}

}  // namespace xlad::collectives

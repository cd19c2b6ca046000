// Join files of the coordinator's own machine, whose tokens are replaced before they expire.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "security/roles.h"
#include "service/credentials/renewal.h"

namespace xlad::service {

// Used by one thread at a time.
class KeptJoinFile {
 public:
  struct Options {
    std::string path;
    std::string data_folder;  // The coordinator's, which contains its tokens.
    std::string address;      // HOST:PORT of the coordinator.
    security::Caller caller;
    int64_t valid_s = int64_t{365} * 86'400;
    const Clock* clock = &RealClock();
  };
  // Keeps an existing join file that has this address and a valid token of this coordinator. If this is a token of
  // `caller`, RenewIfDue will replace it. Write calls RenewIfDue once, and logs its error. If there is no such file,
  // Write makes one with a new token, and revokes the token of a file that it replaces.
  static absl::StatusOr<KeptJoinFile> Write(Options options);

  // Writes a new token to the file if at most a third of the validity of the present token is left, and the file still
  // has the present token, which stays valid until it expires, because open streams use it. Returns whether a token was
  // written.
  absl::StatusOr<bool> RenewIfDue();
  // Revokes all tokens that were written, and removes the file if it has one of them.
  absl::Status Revoke();
  const std::string& path() const { return options_.path; }

 private:
  explicit KeptJoinFile(Options options) : options_(std::move(options)) {}
  absl::Status WriteNew();
  // The id of the token in the file, or "" if the file has none.
  std::string IdInFile() const;

  Options options_;
  std::vector<std::string> ids_;  // The ids of the written tokens. Empty if the file has a token of another caller.
  int64_t expires_unix_s_ = 0;    // When the last of these tokens expires.
};

// Keeps a join file valid, on a thread of its own.
class JoinFileKeeper {
 public:
  enum class AtEnd { kKeepFile, kRevokeTokens };
  // Errors as in KeptJoinFile::Write.
  static absl::StatusOr<std::unique_ptr<JoinFileKeeper>> Start(KeptJoinFile::Options options, AtEnd at_end);
  ~JoinFileKeeper();

 private:
  JoinFileKeeper(KeptJoinFile file, AtEnd at_end);

  KeptJoinFile file_;
  const AtEnd at_end_;
  std::unique_ptr<Renewal> renewal_;
};

}  // namespace xlad::service

// The security of a coordinator that other machines reach: its authority, its certificate and its tokens, in the folder
// "security" of its data folder, which is private to its user. Everything is made when it is missing.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "security/join_file.h"
#include "security/roles.h"

namespace xlad::service {

// The certificate of a server, with its key in the same file, so that both are replaced at once. Used by one thread at
// a time.
class ManagedCertificate {
 public:
  // The names in the certificate are `advertise`, if it is not empty, the host of `listen`, and the names and addresses
  // of this machine at that time.
  struct Options {
    std::string data_folder, listen, advertise;
    const Clock* clock = &RealClock();  // It says when certificates begin and end.
  };
  // Issues a certificate. Errors: those of writing the files, and InvalidArgument for hosts that are not names or
  // addresses.
  static absl::StatusOr<ManagedCertificate> Issue(Options options);

  // Issues another one if less than a third of the time of the present one is left. Returns whether it did.
  absl::StatusOr<bool> RenewIfDue();
  const std::string& file() const { return file_; }

 private:
  explicit ManagedCertificate(Options options) : options_(std::move(options)) {}
  absl::Status Write();

  Options options_;
  std::string file_;
  int64_t issued_unix_s_ = 0;
};

// Remembers the address for join files that are made later.
absl::Status StoreAddress(const std::string& data_folder, const std::string& address);

// The folder of the tokens.
std::string TokenFolder(const std::string& data_folder);

// Issues a token and returns its join file. FailedPrecondition if no coordinator with this data folder has listened off
// loopback.
absl::StatusOr<security::JoinFile> MakeJoinFile(const std::string& data_folder, const security::Caller& caller,
                                                int64_t valid_s);

}  // namespace xlad::service

// The security of a coordinator that other machines reach: its authority, its certificate and its tokens. They are in
// the folder "security" of its data folder, which only the coordinator's user can read. Missing files are created.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "security/join_file.h"
#include "security/roles.h"

namespace xlad::service {

// The certificate of a server. Its key is in the same file, so that both are replaced at once. Used by one thread at a
// time.
class ManagedCertificate {
 public:
  // The certificate is for the host `advertise` (unless it is empty), the host of `listen` (unless it is a wildcard
  // such as 0.0.0.0), localhost, and the names and addresses that this machine has when the certificate is issued.
  struct Options {
    std::string data_folder, listen, advertise;
    const Clock* clock = &RealClock();  // Determines the period in which certificates are valid.
  };
  // Issues a certificate. Errors: those of writing the files, and InvalidArgument for hosts that are not names or
  // addresses.
  static absl::StatusOr<ManagedCertificate> Issue(Options options);

  // Issues a new certificate if less than a third of the validity of the current one is left. Returns whether it did.
  absl::StatusOr<bool> RenewIfDue();
  const std::string& file() const { return file_; }

 private:
  explicit ManagedCertificate(Options options) : options_(std::move(options)) {}
  absl::Status Write();

  Options options_;
  std::string file_;
  int64_t issued_unix_s_ = 0;
};

// Stores the address for later join files.
absl::Status StoreAddress(const std::string& data_folder, const std::string& address);

// The folder of the tokens.
std::string TokenFolder(const std::string& data_folder);

// Issues a token and returns its join file. FailedPrecondition if no address is stored. A coordinator stores its
// address if it listens on an address other than loopback, without --tls-cert.
absl::StatusOr<security::JoinFile> MakeJoinFile(const std::string& data_folder, const security::Caller& caller,
                                                int64_t valid_s, const Clock* clock = &RealClock());

}  // namespace xlad::service

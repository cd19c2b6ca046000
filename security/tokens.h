// Bearer tokens. A token allows one user to call the coordinator in one role until a given time.
//
// Each token is a file in one folder, so that `xlad token` works while the coordinator runs: it issues a token by
// writing a file, and revokes it by removing the file. A token is "xlad_ID_SECRET". The file has only the SHA-256 of
// the secret; the secret has 256 random bits, so it cannot be found from this hash.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"
#include "security/roles.h"

namespace xlad::security {

struct TokenRecord {
  std::string id;
  Role role = Role::kReader;
  std::string user;
  int64_t created_unix_s = 0;
  int64_t expires_unix_s = 0;
  std::string secret_sha256;  // Lower-case hexadecimal digits.
};

struct TokenList {
  std::vector<TokenRecord> records;      // Ordered by id.
  std::vector<absl::Status> unreadable;  // One error for each file that cannot be read or is damaged.
};

// Thread-safe.
class TokenStore {
 public:
  // `folder` need not exist, and the constructor does not read it. `clock` must outlive the store.
  TokenStore(std::string folder, const Clock* clock) : folder_(std::move(folder)), clock_(clock) {}

  // Makes a token that is valid for `valid_s` seconds from now, and stores its record. InvalidArgument for the role
  // kOwner, for a malformed user name, and if `valid_s` is not positive.
  absl::StatusOr<std::string> Issue(Role role, const std::string& user, int64_t valid_s, Random* random);
  // Returns the caller who has the token. Unauthenticated, with the reason, if the token is malformed, unknown, revoked
  // or expired. If its file is damaged, it is reported as unknown. Unavailable if its file cannot be read now. A token
  // is refused at most one second after it was revoked.
  absl::StatusOr<Caller> Find(const std::string& token);
  // Like Find, but returns the token's record.
  absl::StatusOr<TokenRecord> FindRecord(const std::string& token);
  // Returns OK if the token with this id, which a caller has shown, is still valid. The errors are those of Find.
  absl::Status Check(const std::string& id);
  // All tokens, including expired ones. An error if the folder cannot be read.
  absl::StatusOr<TokenList> List() const;
  // Removes the token. NotFound if there is no such token.
  absl::Status Revoke(const std::string& id);

 private:
  absl::StatusOr<TokenRecord> Load(const std::string& id) const;
  // Like Load, but reads the file at most once per second. Unavailable if the file cannot be read now.
  absl::StatusOr<TokenRecord> Get(const std::string& id);
  absl::Status CheckTime(const TokenRecord& record) const;
  std::string PathOf(const std::string& id) const;

  const std::string folder_;
  const Clock* const clock_;
  struct Cached {
    absl::StatusOr<TokenRecord> record;
    int64_t read_ns = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Cached> cache_;  // By id.
};

// The id of a token, for display; "" if it is malformed.
std::string TokenId(const std::string& token);

}  // namespace xlad::security

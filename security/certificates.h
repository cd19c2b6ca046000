// A private certificate authority and the certificate of a coordinator, as PEM (ECDSA on P-256, SHA-256).
//
// The authority signs only the coordinator's certificate. A client that trusts the authority therefore trusts only this
// coordinator. Keys are written to files that only their owner can read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace xlad::security {

struct KeyPair {
  std::string certificate;  // PEM
  std::string key;          // PEM, PKCS #8, not encrypted.
};

inline constexpr int64_t kServerDays = 365;

// A new authority, valid for ten years from `now_unix_s`.
absl::StatusOr<KeyPair> MakeAuthority(int64_t now_unix_s);

// A certificate for a server that clients reach by `names`: DNS names and IP addresses. Valid for kServerDays.
// InvalidArgument if there are no names, if a name is malformed, or if the authority cannot be parsed.
absl::StatusOr<KeyPair> IssueServer(const KeyPair& authority, const std::vector<std::string>& names,
                                    int64_t now_unix_s);

// Reads the authority from the files ca.pem and ca-key.pem in `folder`. If one of the files is missing, makes a new
// authority in both files (mode 0600). The folder is created if it does not exist, and its mode is set to 0700.
absl::StatusOr<KeyPair> AuthorityIn(const std::string& folder, const Clock& clock);

}  // namespace xlad::security

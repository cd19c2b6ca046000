// A private certificate authority and the certificate of a coordinator, as PEM (ECDSA on P-256, SHA-256).
//
// The authority signs nothing but the coordinator's certificate, so that a client that trusts it trusts this
// coordinator alone. Keys are written to files that only their owner can read.
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

// A certificate for a server that clients reach by `names`: DNS names and numeric addresses. Valid for kServerDays.
// InvalidArgument if there are no names, or if the authority cannot be parsed.
absl::StatusOr<KeyPair> IssueServer(const KeyPair& authority, const std::vector<std::string>& names,
                                    int64_t now_unix_s);

// The authority in a folder, made at the first call: files ca.pem and ca-key.pem, of which the second one is readable
// by its owner alone. The folder is made if it is missing.
absl::StatusOr<KeyPair> AuthorityIn(const std::string& folder, const Clock& clock);

// SHA-256 of the DER form of a certificate, as hexadecimal digits, for display and comparison.
absl::StatusOr<std::string> Fingerprint(const std::string& certificate);

}  // namespace xlad::security

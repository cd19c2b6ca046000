// TLS 1.3 over a Connection between two processes that have the same key, such as those of one attempt.
//
// The key is a pre-shared key of TLS (RFC 8446, section 2.2) with an ephemeral Diffie-Hellman exchange. An attacker who
// gets the key later cannot decrypt recorded traffic. There are no certificates. `context` is data about the connection
// that both sides have, such as the hello that was sent before. If the contexts of the two sides differ, the handshake
// fails. Each direction gets new keys after every kRekeyRecords records, because AES-GCM must not encrypt more than
// about 2^24 records with one key (RFC 8446, section 5.5). A record has at most 16 KiB of data, and each write begins a
// new one.
//
// Threads: as for Connection, one thread may read while another one writes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/net/network.h"

namespace xlad::security {

inline constexpr int64_t kRekeyRecords = int64_t{1} << 22;

// A secured connection uses an inner Connection, from which it was made and which must outlive it.
class SecuredConnection : public Connection {
 public:
  // Takes ownership of the inner connection, which is then destroyed with this one.
  virtual void Own(std::unique_ptr<Connection> inner) = 0;
};

// Both functions return when the handshake is done, which takes one round trip. Unauthenticated if the other side has
// another key or context, or does not speak TLS 1.3. Unavailable or Cancelled if the connection ends. InvalidArgument
// for a key of fewer than 16 bytes. inner->Shutdown() wakes a thread that is blocked in one of these functions.
// Tests set other numbers of records between new keys.
absl::StatusOr<std::unique_ptr<SecuredConnection>> SecureClient(Connection* inner, absl::string_view key,
                                                                absl::string_view context,
                                                                int64_t rekey_records = kRekeyRecords);
absl::StatusOr<std::unique_ptr<SecuredConnection>> SecureServer(Connection* inner, absl::string_view key,
                                                                absl::string_view context,
                                                                int64_t rekey_records = kRekeyRecords);

}  // namespace xlad::security

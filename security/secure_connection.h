// TLS 1.3 over a Connection between two processes that know the same key, as those of one attempt do.
//
// The key is a pre-shared key of TLS (RFC 8446, section 2.2) with an ephemeral Diffie-Hellman exchange: who learns the
// key later cannot decrypt what was recorded. There are no certificates. `context` is what both sides know about the
// connection, such as the hello that was sent before; if the two differ, the handshake fails.
//
// Threads: as for Connection, one may read while another one writes.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/network.h"

namespace xlad::security {

// A secured connection uses the one that it was made from, which must outlive it unless it owns it.
class SecuredConnection : public Connection {
 public:
  virtual void Own(std::unique_ptr<Connection> inner) = 0;
};

// Both return when the handshake is done, which takes one round trip. Errors: Unauthenticated if the other side has
// another key or context, or does not speak TLS 1.3; Unavailable or Cancelled if the connection ends. InvalidArgument
// for a key of fewer than 16 bytes. A thread that waits in them is released by Shutdown of `inner`.
absl::StatusOr<std::unique_ptr<SecuredConnection>> SecureClient(Connection* inner, absl::string_view key,
                                                                absl::string_view context);
absl::StatusOr<std::unique_ptr<SecuredConnection>> SecureServer(Connection* inner, absl::string_view key,
                                                                absl::string_view context);

}  // namespace xlad::security

#include "security/secure_connection.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/rounding.h"
#include "security/openssl_deleter.h"
#include "security/openssl_error.h"

namespace xlad::security {
namespace {

constexpr size_t kMinKeyBytes = 16;
constexpr size_t kChunkBytes = 64 << 10;
// TLS_AES_128_GCM_SHA256, the cipher suite that every implementation of TLS 1.3 has. It also determines the hash to
// which a pre-shared key is bound.
constexpr unsigned char kCipher[2] = {0x13, 0x01};

using Tls = std::unique_ptr<SSL, OpensslDeleter<SSL_free>>;

// The key and the name by which the client offers it.
struct SharedKey {
  std::string bytes;  // 32 bytes.
  std::string name;
};

// The index under which OpenSSL stores the key of an SSL object.
int KeyIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

SSL_SESSION* MakeSession(SSL* tls, const SharedKey& key) {
  SSL_SESSION* const session = SSL_SESSION_new();
  if (session == nullptr) return nullptr;
  if (SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.bytes.data()),
                                  key.bytes.size()) == 1 &&
      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(tls, kCipher)) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int OfferKey(SSL* tls, const EVP_MD* /*hash*/, const unsigned char** name, size_t* size, SSL_SESSION** session) {
  const auto* key = static_cast<const SharedKey*>(SSL_get_ex_data(tls, KeyIndex()));
  *name = reinterpret_cast<const unsigned char*>(key->name.data());
  *size = key->name.size();
  *session = MakeSession(tls, *key);
  return *session != nullptr ? 1 : 0;
}

// If the name differs, finds no key; the handshake then fails later, because the server has no certificate.
int FindKey(SSL* tls, const unsigned char* name, size_t size, SSL_SESSION** session) {
  const auto* key = static_cast<const SharedKey*>(SSL_get_ex_data(tls, KeyIndex()));
  const bool found = key->name == std::string(reinterpret_cast<const char*>(name), size);
  *session = found ? MakeSession(tls, *key) : nullptr;
  return !found || *session != nullptr ? 1 : 0;
}

// The encrypted bytes between OpenSSL and the inner connection. Compared with OpenSSL's memory BIO, this saves a copy
// in each direction.
struct Wire {
  absl::Span<const std::byte> received;  // Bytes from the peer that OpenSSL has not read.
  std::string unsent;                    // Bytes that OpenSSL has written.
};

int WriteToWire(BIO* bio, const char* bytes, int size) {
  static_cast<Wire*>(BIO_get_data(bio))->unsent.append(bytes, size);
  return size;
}

int ReadFromWire(BIO* bio, char* bytes, int size) {
  absl::Span<const std::byte>& received = static_cast<Wire*>(BIO_get_data(bio))->received;
  BIO_clear_retry_flags(bio);
  if (received.empty()) {
    BIO_set_retry_read(bio);
    return -1;
  }
  const size_t n = std::min(received.size(), static_cast<size_t>(size));
  std::memcpy(bytes, received.data(), n);
  received.remove_prefix(n);
  return static_cast<int>(n);
}

long ControlWire(BIO* /*bio*/, int command, long /*number*/, void* /*argument*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// Returns a BIO that reads from and writes to `wire`, or null if there is no memory.
BIO* MakeWireBio(Wire* wire) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "wire");
    BIO_meth_set_write(made, WriteToWire);
    BIO_meth_set_read(made, ReadFromWire);
    BIO_meth_set_ctrl(made, ControlWire);
    return made;
  }();
  BIO* const bio = BIO_new(method);
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, wire);
  BIO_set_init(bio, 1);
  return bio;
}

SSL_CTX* Context() {
  static SSL_CTX* const context = [] {
    SSL_CTX* const made = SSL_CTX_new(TLS_method());
    SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(made, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_psk_use_session_callback(made, OfferKey);
    SSL_CTX_set_psk_find_session_callback(made, FindKey);
    SSL_CTX_set_num_tickets(made, 0);
    SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(made, SSL_MODE_RELEASE_BUFFERS);
    return made;
  }();
  return context;
}

std::string LibraryText() { return TakeOpensslError(ERR_peek_last_error()); }

class SecureConnection final : public SecuredConnection {
 public:
  SecureConnection(Connection* inner, SharedKey key, int64_t rekey_records)
      : inner_(inner), rekey_records_(rekey_records), key_(std::move(key)) {}
  void Own(std::unique_ptr<Connection> inner) override { owned_ = std::move(inner); }

  absl::Status Handshake(bool is_client) {
    tls_.reset(SSL_new(Context()));
    BIO* const wire = tls_ == nullptr ? nullptr : MakeWireBio(&wire_);
    if (wire == nullptr) return absl::InternalError(absl::StrCat("cannot begin TLS: ", LibraryText()));
    SSL_set_ex_data(tls_.get(), KeyIndex(), &key_);
    SSL_set_bio(tls_.get(), wire, wire);
    is_client ? SSL_set_connect_state(tls_.get()) : SSL_set_accept_state(tls_.get());
    while (true) {
      ERR_clear_error();
      const int done = SSL_do_handshake(tls_.get());
      const int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(tls_.get(), done);
      const std::string why = done == 1 ? "" : LibraryText();
      // After a failed handshake, the unsent bytes are the alert that tells the other side why.
      const absl::Status sent = Send(std::exchange(wire_.unsent, ""));
      if (done == 1) return sent;
      if (error != SSL_ERROR_WANT_READ) {
        return absl::UnauthenticatedError(absl::StrCat("the connection with ", inner_->Peer(),
                                                       " cannot be secured: the other side has another key, or "
                                                       "does not speak TLS 1.3 (",
                                                       why, ")"));
      }
      XLAD_RETURN_IF_ERROR(sent);
      XLAD_RETURN_IF_ERROR(ReceiveEncrypted());
    }
  }

  absl::StatusOr<size_t> Read(absl::Span<std::byte> bytes) override {
    if (bytes.empty()) return absl::InvalidArgumentError("found a read of 0 bytes, expected at least 1");
    while (true) {
      {
        const std::lock_guard<std::mutex> lock(tls_mutex_);
        ERR_clear_error();
        size_t n = 0;
        const int read = SSL_read_ex(tls_.get(), bytes.data(), bytes.size(), &n);
        if (read == 1) return n;
        const int error = SSL_get_error(tls_.get(), read);
        if (error == SSL_ERROR_ZERO_RETURN) return absl::UnavailableError("the peer has closed the connection");
        if (error != SSL_ERROR_WANT_READ) {
          return absl::DataLossError(
              absl::StrCat("found bytes from ", inner_->Peer(), " that the peer has not sent: ", LibraryText()));
        }
      }
      XLAD_RETURN_IF_ERROR(ReceiveEncrypted());
    }
  }

  absl::Status Write(absl::Span<const std::byte> bytes) override {
    const std::lock_guard<std::mutex> writing(write_mutex_);
    if (!unwritten_.empty()) return absl::UnavailableError("the connection is broken: a record was written in part");
    while (!bytes.empty()) {
      const auto piece = bytes.subspan(0, kChunkBytes);
      XLAD_RETURN_IF_ERROR(Encrypt(piece, &encrypted_));
      XLAD_RETURN_IF_ERROR(Send(encrypted_));
      bytes.remove_prefix(piece.size());
    }
    return absl::OkStatus();
  }

  // Returns the number of all bytes if they were written, otherwise 0. If a record was written in part, its rest is
  // kept, and a later call with the same bytes continues the record. Until then, nothing else can be written.
  absl::StatusOr<size_t> TryWrite(absl::Span<const std::byte> bytes) override {
    const std::unique_lock<std::mutex> writing(write_mutex_, std::try_to_lock);
    if (!writing.owns_lock()) return 0;
    if (unwritten_.empty()) {
      XLAD_RETURN_IF_ERROR(Encrypt(bytes, &unwritten_));
    }
    XLAD_ASSIGN_OR_RETURN(
        const size_t written,
        inner_->TryWrite({reinterpret_cast<const std::byte*>(unwritten_.data()), unwritten_.size()}));
    unwritten_.erase(0, written);
    return unwritten_.empty() ? bytes.size() : 0;
  }

  void Shutdown() override { inner_->Shutdown(); }
  std::string Peer() const override { return inner_->Peer(); }
  Answers GetAnswers() const override { return inner_->GetAnswers(); }

 private:
  absl::Status Send(const std::string& encrypted) {
    if (encrypted.empty()) return absl::OkStatus();
    return inner_->Write({reinterpret_cast<const std::byte*>(encrypted.data()), encrypted.size()});
  }

  // Replaces `encrypted` by the encrypted bytes. The memory of its old value is reused for the next bytes.
  absl::Status Encrypt(absl::Span<const std::byte> bytes, std::string* encrypted) {
    encrypted->clear();
    const std::lock_guard<std::mutex> lock(tls_mutex_);
    ERR_clear_error();
    if (encrypted_records_ >= rekey_records_) {
      // The next write begins with a message after which both sides use a new key for this direction.
      if (SSL_key_update(tls_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
        return absl::InternalError(absl::StrCat("cannot change the key: ", LibraryText()));
      }
      encrypted_records_ = 0;
    }
    encrypted_records_ += std::max<int64_t>(1, CeilDiv(std::ssize(bytes), SSL3_RT_MAX_PLAIN_LENGTH));
    size_t n = 0;
    if (SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &n) != 1 || n != bytes.size()) {
      return absl::InternalError(absl::StrCat("cannot encrypt: ", LibraryText()));
    }
    encrypted->swap(wire_.unsent);
    return absl::OkStatus();
  }

  // Blocks until bytes have arrived. Called only by the reading thread, when OpenSSL has read all earlier bytes.
  absl::Status ReceiveEncrypted() {
    XLAD_ASSIGN_OR_RETURN(const size_t n, inner_->Read(absl::MakeSpan(received_)));
    const std::lock_guard<std::mutex> lock(tls_mutex_);
    wire_.received = absl::MakeConstSpan(received_).first(n);
    return absl::OkStatus();
  }

  Connection* const inner_;
  const int64_t rekey_records_;
  std::unique_ptr<Connection> owned_;  // May be null.
  SharedKey key_;
  std::mutex write_mutex_;  // Held while a record is written, so that records stay in order. Taken before tls_mutex_.
  std::string unwritten_;   // Guarded by write_mutex_: the rest of a record that TryWrite wrote in part.
  std::string encrypted_;   // Guarded by write_mutex_.
  std::mutex tls_mutex_;    // Guards tls_, wire_ and encrypted_records_.
  int64_t encrypted_records_ = 0;  // The number of records that were encrypted with the current key.
  Wire wire_;                      // Declared before tls_, which uses it.
  Tls tls_;
  std::vector<std::byte> received_ = std::vector<std::byte>(kChunkBytes);  // Used only by the reading thread.
};

absl::StatusOr<std::unique_ptr<SecuredConnection>> Secure(Connection* inner, absl::string_view key,
                                                          absl::string_view context, int64_t rekey_records,
                                                          bool is_client) {
  if (key.size() < kMinKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("found a key of ", key.size(), " bytes, expected at least ", kMinKeyBytes));
  }
  // The TLS key is derived from `key` and a label. It is used only for this purpose, and has the length of the hash.
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const std::string labeled = absl::StrCat("xlad data plane\n", key);
  if (EVP_Digest(labeled.data(), labeled.size(), digest, &size, EVP_sha256(), nullptr) != 1) {
    return absl::InternalError("cannot hash a key");
  }
  SharedKey shared{std::string(reinterpret_cast<const char*>(digest), size), Sha256Hex(context)};
  auto connection = std::make_unique<SecureConnection>(inner, std::move(shared), rekey_records);
  XLAD_RETURN_IF_ERROR(connection->Handshake(is_client));
  return connection;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SecuredConnection>> SecureClient(Connection* inner, absl::string_view key,
                                                                absl::string_view context, int64_t rekey_records) {
  return Secure(inner, key, context, rekey_records, /*is_client=*/true);
}

absl::StatusOr<std::unique_ptr<SecuredConnection>> SecureServer(Connection* inner, absl::string_view key,
                                                                absl::string_view context, int64_t rekey_records) {
  return Secure(inner, key, context, rekey_records, /*is_client=*/false);
}

}  // namespace xlad::security

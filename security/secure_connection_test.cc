// TLS over real sockets between two threads: transferred bytes, wrong keys, plaintext, and changed bytes.
#include "security/secure_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"

namespace xlad::security {
namespace {

constexpr char kKey[] = "0123456789abcdef0123456789abcdef";

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Reads exactly `size` bytes, or fewer if the connection ends before.
std::string ReadAll(Connection* connection, size_t size) {
  std::string text(size, '\0');
  size_t at = 0;
  while (at < size) {
    const auto n = connection->Read({reinterpret_cast<std::byte*>(text.data()) + at, size - at});
    if (!n.ok()) break;
    at += *n;
  }
  return text.substr(0, at);
}

struct Pair {
  std::unique_ptr<Connection> client, server;
};

Pair Connect() {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  Pair pair;
  pair.client = *TcpNetwork().Dial(listener->Address(), 600'000);
  pair.server = *listener->Accept();
  return pair;
}

struct Secured {
  Pair plain;  // Declared first, because the secured connections use it.
  absl::StatusOr<std::unique_ptr<SecuredConnection>> client, server;
};

Secured SecureBoth(Pair pair, const std::string& client_key, const std::string& server_key,
                   const std::pair<std::string, std::string>& contexts = {"c", "c"},
                   int64_t rekey_records = kRekeyRecords) {
  Secured secured;
  secured.plain = std::move(pair);
  std::thread server([&] {
    secured.server = SecureServer(secured.plain.server.get(), server_key, contexts.second, rekey_records);
    if (!secured.server.ok()) secured.plain.server->Shutdown();
  });
  secured.client = SecureClient(secured.plain.client.get(), client_key, contexts.first, rekey_records);
  if (!secured.client.ok()) secured.plain.client->Shutdown();
  server.join();
  return secured;
}

// Sends the same bytes in both directions at the same time. Returns their number in each direction.
size_t ExchangeBothWays(Connection* a, Connection* b) {
  // The data is larger than the buffers of the sockets, so each side must read while the other side writes.
  const auto random = SeededRandom(7);
  std::string data(9'000'001, '\0');
  for (char& c : data) c = static_cast<char>(random->Next());
  std::string from_a, from_b;
  std::vector<std::thread> threads;
  for (Connection* side : {a, b}) {
    threads.emplace_back([&data, side] {
      size_t at = 0;
      for (size_t size : {size_t{1}, size_t{13}, size_t{65536}, size_t{65537}, size_t{1} << 22}) {
        EXPECT_TRUE(side->Write(Bytes(data.substr(at, size))).ok());
        at += size;
      }
      EXPECT_TRUE(side->Write(Bytes(data.substr(at))).ok());
    });
  }
  threads.emplace_back([&] { from_b = ReadAll(a, data.size()); });
  from_a = ReadAll(b, data.size());
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(from_a == data);
  EXPECT_TRUE(from_b == data);
  return data.size();
}

TEST(SecureConnection, CarriesBytesInBothDirectionsAtOnce) {
  Secured secured = SecureBoth(Connect(), kKey, kKey);
  ASSERT_TRUE(secured.client.ok()) << secured.client.status();
  ASSERT_TRUE(secured.server.ok()) << secured.server.status();
  ExchangeBothWays(secured.client->get(), secured.server->get());
}

TEST(SecureConnection, OtherKeysAndContextsAreRefusedByBothSides) {
  const std::string other(32, 'x');
  for (const auto& [client_key, server_key, client_context, server_context] :
       std::vector<std::tuple<std::string, std::string, std::string, std::string>>{
           {kKey, other, "c", "c"}, {other, kKey, "c", "c"}, {kKey, kKey, "c", "d"}, {kKey, kKey, "", "c"}}) {
    Secured secured = SecureBoth(Connect(), client_key, server_key, {client_context, server_context});
    EXPECT_TRUE(absl::IsUnauthenticated(secured.server.status())) << secured.server.status();
    EXPECT_FALSE(secured.client.ok());
  }
  EXPECT_TRUE(absl::IsInvalidArgument(SecureClient(Connect().client.get(), "short", "c").status()));
}

TEST(SecureConnection, PlaintextIsRefused) {
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(10'000, '\0')}) {
    Pair pair = Connect();
    ASSERT_TRUE(pair.client->Write(Bytes(text)).ok());
    EXPECT_TRUE(absl::IsUnauthenticated(SecureServer(pair.server.get(), kKey, "c").status()));
  }
  // A client that closes the connection causes a different error.
  Pair pair = Connect();
  pair.client.reset();
  EXPECT_TRUE(absl::IsUnavailable(SecureServer(pair.server.get(), kKey, "c").status()));
}

// A man in the middle. Forwards all bytes in both directions. In the direction from `from`, it flips one bit of byte
// `change` (none if -1) and records the result.
class Relay {
 public:
  Relay(std::unique_ptr<Connection> from, std::unique_ptr<Connection> to, int64_t change)
      : from_(std::move(from)),
        to_(std::move(to)),
        back_([this] { Pass(to_.get(), from_.get(), -1, nullptr); }),
        forth_([this, change] { Pass(from_.get(), to_.get(), change, &seen_); }) {}
  ~Relay() {
    from_->Shutdown();
    to_->Shutdown();
    back_.join();
    forth_.join();
  }
  const std::string& Seen() {
    from_->Shutdown();
    to_->Shutdown();
    back_.join();
    forth_.join();
    back_ = std::thread([] {});
    forth_ = std::thread([] {});
    return seen_;
  }

 private:
  static void Pass(Connection* from, Connection* to, int64_t change, std::string* seen) {
    int64_t at = 0;
    std::byte buffer[4096];
    while (true) {
      const auto n = from->Read(absl::MakeSpan(buffer));
      if (!n.ok()) {
        to->Shutdown();
        return;
      }
      if (change >= at && change < at + static_cast<int64_t>(*n)) buffer[change - at] ^= std::byte{1};
      if (seen != nullptr) seen->append(reinterpret_cast<const char*>(buffer), *n);
      at += static_cast<int64_t>(*n);
      if (!to->Write({buffer, *n}).ok()) return;
    }
  }
  std::unique_ptr<Connection> from_, to_;
  std::string seen_;
  std::thread back_, forth_;
};

TEST(SecureConnection, KeysChangeWhileBothSidesWrite) {
  Pair left = Connect(), right = Connect();
  Relay relay(std::move(left.server), std::move(right.client), -1);
  Secured secured = SecureBoth({std::move(left.client), std::move(right.server)}, kKey, kKey, {"c", "c"}, 64);
  ASSERT_TRUE(secured.client.ok() && secured.server.ok());
  const size_t sent = ExchangeBothWays(secured.client->get(), secured.server->get());
  // A record adds 22 bytes to at most 16 KiB of data, so 64 full records have 1 MiB of data. The message that announces
  // a new key has 27 bytes.
  Pair plain_left = Connect(), plain_right = Connect();
  Relay plain_relay(std::move(plain_left.server), std::move(plain_right.client), -1);
  Secured plain = SecureBoth({std::move(plain_left.client), std::move(plain_right.server)}, kKey, kKey);
  ASSERT_TRUE(plain.client.ok() && plain.server.ok());
  ASSERT_EQ(ExchangeBothWays(plain.client->get(), plain.server->get()), sent);
  EXPECT_EQ(relay.Seen().size(), plain_relay.Seen().size() + 27 * (sent >> 20));
}

TEST(SecureConnection, KeysChangeAfterManyShortWrites) {
  const std::string text = "0123456789";
  const auto encrypted_bytes = [&](int64_t rekey_records) {
    Pair left = Connect(), right = Connect();
    Relay relay(std::move(left.server), std::move(right.client), -1);
    const Secured secured =
        SecureBoth({std::move(left.client), std::move(right.server)}, kKey, kKey, {"c", "c"}, rekey_records);
    if (!secured.client.ok() || !secured.server.ok()) return size_t{0};
    for (const char c : text) EXPECT_TRUE((*secured.client)->Write(Bytes(std::string(1, c))).ok());
    EXPECT_EQ(ReadAll(secured.server->get(), text.size()), text);
    return relay.Seen().size();
  };
  const size_t with_one_key = encrypted_bytes(kRekeyRecords);
  EXPECT_EQ(encrypted_bytes(10), with_one_key);
  EXPECT_EQ(encrypted_bytes(4), with_one_key + 2 * 27);
}

TEST(SecureConnection, AManInTheMiddleCanReadAndChangeNothing) {
  const std::string secret(5000, 'S');
  int64_t hello = 0, handshake = 0;  // Bytes of the client's first record, and of all its records before data.
  {
    Pair left = Connect(), right = Connect();
    Relay relay(std::move(left.server), std::move(right.client), -1);
    Secured secured = SecureBoth({std::move(left.client), std::move(right.server)}, kKey, kKey);
    ASSERT_TRUE(secured.client.ok() && secured.server.ok());
    ASSERT_TRUE((*secured.client)->Write(Bytes(secret)).ok());
    EXPECT_EQ(ReadAll(secured.server->get(), secret.size()), secret);
    const std::string& seen = relay.Seen();
    EXPECT_EQ(seen.find("SSSSSSSS"), std::string::npos);
    EXPECT_EQ(seen.find("01234567"), std::string::npos);  // The key.
    hello = 5 + (static_cast<unsigned char>(seen[3]) << 8) + static_cast<unsigned char>(seen[4]);
    handshake = static_cast<int64_t>(seen.size() - secret.size() - 22);  // A record adds 22 bytes.
  }
  // Changes one bit of a record.
  for (const int64_t at : {handshake + 1, handshake + 100, handshake + 5000}) {
    Pair left = Connect(), right = Connect();
    Relay relay(std::move(left.server), std::move(right.client), at);
    Secured secured = SecureBoth({std::move(left.client), std::move(right.server)}, kKey, kKey);
    ASSERT_TRUE(secured.client.ok() && secured.server.ok()) << at;
    (*secured.client)->Write(Bytes(secret)).IgnoreError();
    (*secured.client)->Shutdown();
    EXPECT_EQ(ReadAll(secured.server->get(), secret.size()), "") << at;
  }
  // Changes one bit of the client's hello (after the lengths of the record and of the message) or of its last message.
  std::vector<int64_t> places = {handshake - 1};
  for (int64_t at = 9; at < hello; at += 7) places.push_back(at);
  for (const int64_t at : places) {
    Pair left = Connect(), right = Connect();
    Relay relay(std::move(left.server), std::move(right.client), at);
    const Secured secured = SecureBoth({std::move(left.client), std::move(right.server)}, kKey, kKey);
    EXPECT_FALSE(secured.server.ok()) << at;
  }
}

TEST(SecureConnection, ShutdownReleasesAThreadThatWaits) {
  Secured secured = SecureBoth(Connect(), kKey, kKey);
  ASSERT_TRUE(secured.client.ok() && secured.server.ok());
  std::thread reader([&] {
    std::byte byte;
    EXPECT_FALSE((*secured.client)->Read({&byte, 1}).ok());
  });
  (*secured.client)->Shutdown();
  reader.join();
}

TEST(SecureConnection, TryWriteSendsAllOrNothing) {
  Secured secured = SecureBoth(Connect(), kKey, kKey);
  ASSERT_TRUE(secured.client.ok() && secured.server.ok());
  const std::string text = "abort";
  const size_t written = (*secured.client)->TryWrite(Bytes(text)).value();
  ASSERT_TRUE(written == 0 || written == text.size());
  if (written > 0) EXPECT_EQ(ReadAll(secured.server->get(), text.size()), text);
}

TEST(SecureConnection, TryWriteContinuesAPartlyWrittenRecord) {
  Secured secured = SecureBoth(Connect(), kKey, kKey);
  ASSERT_TRUE(secured.client.ok() && secured.server.ok());
  std::string text(16 << 20, '\0');  // Larger than the buffers of the system.
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  ASSERT_EQ((*secured.client)->TryWrite(Bytes(text)).value(), 0);
  EXPECT_FALSE((*secured.client)->Write(Bytes("other")).ok());
  std::thread reader([&] { EXPECT_EQ(ReadAll(secured.server->get(), text.size()), text); });
  while ((*secured.client)->TryWrite(Bytes(text)).value() == 0) std::this_thread::yield();
  reader.join();
}

}  // namespace
}  // namespace xlad::security

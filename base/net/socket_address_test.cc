// Names of hosts while the name servers fail. This file replaces getaddrinfo for the names that end with ".test", which
// no name server knows (RFC 6761).
#include "base/net/socket_address.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/net/advertised.h"
#include "base/net/network.h"

namespace {

std::atomic<int> failures_left = 0;
std::atomic<int> failure = 0;
std::atomic<int> lookups = 0;

}  // namespace

// Fails `failures_left` times with the error `failure`, and then resolves to loopback.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (node == nullptr || !absl::EndsWith(node, ".test")) return real(node, service, hints, result);
  ++lookups;
  if (failures_left-- <= 0) return real("127.0.0.1", service, hints, result);
  errno = EMFILE;
  return failure;
}

namespace xlad {
namespace {

constexpr int kAlways = 1 << 30;
constexpr int64_t kPatienceMs = 600'000;

void Fail(int error, int times) {
  failure = error;
  failures_left = times;
  lookups = 0;
}

TEST(Resolve, AFailureIsTemporaryUnlessTheHostDoesNotExist) {
  for (const auto& [error, code, reason] :
       {std::tuple(EAI_AGAIN, absl::StatusCode::kUnavailable, gai_strerror(EAI_AGAIN)),
        std::tuple(EAI_MEMORY, absl::StatusCode::kUnavailable, gai_strerror(EAI_MEMORY)),
        std::tuple(EAI_SYSTEM, absl::StatusCode::kUnavailable, static_cast<const char*>("Too many open files")),
        std::tuple(EAI_NONAME, absl::StatusCode::kInvalidArgument, gai_strerror(EAI_NONAME)),
        std::tuple(EAI_FAIL, absl::StatusCode::kInvalidArgument, gai_strerror(EAI_FAIL))}) {
    Fail(error, kAlways);
    const absl::Status status = Resolve("host.test", 7, 0).status();
    EXPECT_EQ(status.code(), code) << reason;
    EXPECT_EQ(status.message(), absl::StrCat("cannot resolve host host.test: ", reason));
    const absl::Status listen = ListenFd("host.test:0").status();
    EXPECT_EQ(listen.code(), code) << reason;
    EXPECT_TRUE(absl::StrContains(listen.message(), "the interfaces of this machine are")) << listen;
  }
}

TEST(Resolve, ATemporaryFailureIsTriedAgain) {
  const std::atomic<int> stop = 0;
  Fail(EAI_AGAIN, 2);
  const auto addresses = ResolvePatiently("host.test", 7, kPatienceMs, &stop);
  EXPECT_TRUE(addresses.ok()) << addresses.status();
  EXPECT_EQ(lookups, 3);
  Fail(EAI_NONAME, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(ResolvePatiently("host.test", 7, kPatienceMs, &stop).status()));
  EXPECT_EQ(lookups, 1);
}

TEST(OwnHostTowards, LoopbackNeedsNoNameServer) {
  const std::atomic<int> stop = 0;
  for (const char* host : {"127.0.0.1", "127.0.0.5", "::1", "localhost"}) {
    EXPECT_EQ(*OwnHostTowards(host, 7, kPatienceMs, &stop), "127.0.0.1") << host;
  }
}

TEST(OwnHostTowards, AnAddressOfThisMachineIsNotReachedFromLoopback) {
  const std::atomic<int> stop = 0;
  for (const std::string& host : OwnAddresses()) {
    const auto own = OwnHostTowards(host, 7, /*patience_ms=*/0, &stop);
    if (!own.ok()) continue;  // An IPv6 address may not be usable yet.
    if (!IsLoopback(host)) EXPECT_FALSE(IsLoopback(*own)) << host;
  }
}

// Some systems resolve the name of a machine to 127.0.1.1 on the machine itself. Other machines do not reach a server
// that listens on loopback.
TEST(OwnHostTowards, ANameOfThisMachineStandsForAnAddressOtherThanLoopback) {
  const std::atomic<int> stop = 0;
  Fail(0, 0);
  std::string expected = "127.0.0.1";
  for (const std::string& own : OwnAddresses()) {
    if (IsLoopback(expected) && !IsLoopback(own)) expected = own;
  }
  EXPECT_EQ(*OwnHostTowards("host.test", 7, kPatienceMs, &stop), expected);
}

TEST(OwnHostTowards, EveryErrorIsTriedAgain) {
  std::atomic<int> stop = 0;
  for (const int error : {EAI_AGAIN, EAI_NONAME}) {
    Fail(error, 1);
    EXPECT_TRUE(OwnHostTowards("host.test", 7, kPatienceMs, &stop).ok());
    EXPECT_EQ(lookups, 2);
    Fail(error, kAlways);
    const absl::Status status = OwnHostTowards("host.test", 7, /*patience_ms=*/0, &stop).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "cannot resolve host host.test")) << status;
  }
  // Sockets may not send to all machines of a network unless they ask for it.
  const absl::Status no_route = OwnHostTowards("255.255.255.255", 7, /*patience_ms=*/0, &stop).status();
  EXPECT_TRUE(absl::IsUnavailable(no_route)) << no_route;
  EXPECT_TRUE(absl::StrContains(no_route.message(), "no route to 255.255.255.255")) << no_route;
  stop = 15;
  Fail(EAI_AGAIN, kAlways);
  EXPECT_TRUE(absl::IsUnavailable(OwnHostTowards("host.test", 7, kPatienceMs, &stop).status()));
  EXPECT_EQ(lookups, 1);
}

TEST(Resolve, TheTriesEnd) {
  std::atomic<int> stop = 0;
  Fail(EAI_AGAIN, kAlways);
  EXPECT_TRUE(absl::IsUnavailable(ResolvePatiently("host.test", 7, /*patience_ms=*/1, &stop).status()));
  stop = 15;
  EXPECT_TRUE(absl::IsUnavailable(ResolvePatiently("host.test", 7, kPatienceMs, &stop).status()));
}

TEST(Resolve, DialTriesAgain) {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  const int port = ParseHostPort(listener->Address())->port;
  Fail(EAI_AGAIN, 1);
  const auto connection = TcpNetwork().Dial(absl::StrCat("host.test:", port), kPatienceMs);
  EXPECT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ(lookups, 2);
}

}  // namespace
}  // namespace xlad

// Finds the users at the other end of real connections over loopback.
#include "base/net/peer_user.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/net/network.h"

namespace xlad {
namespace {

constexpr uid_t kOther = 65534;

TEST(PeerUser, OwnConnectionsAreOfThisUser) {
  for (const char* host : {"127.0.0.1:0", "[::1]:0"}) {
    const auto listener = TcpNetwork().Listen(host);
    if (!listener.ok()) continue;  // This machine has no IPv6.
    const std::string server = (*listener)->Address();
    const auto dialed = TcpNetwork().Dial(server, 600'000);
    ASSERT_TRUE(dialed.ok()) << dialed.status();
    const auto accepted = (*listener)->Accept();
    ASSERT_TRUE(accepted.ok());
    const std::string client = (*accepted)->Peer();
    EXPECT_EQ(UserOfClient(client, server).value_or(kOther), getuid()) << client;
    EXPECT_TRUE(CheckSameUser(client, server).ok());
    // The client's socket is not connected to itself.
    EXPECT_TRUE(absl::IsNotFound(UserOfClient(client, client).status()));
  }
}

TEST(PeerUser, UnknownAndMalformedAddressesAreRefused) {
  EXPECT_TRUE(absl::IsNotFound(UserOfClient("127.0.0.1:1", "127.0.0.1:2").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(CheckSameUser("127.0.0.1:1", "127.0.0.1:2")));
  EXPECT_TRUE(absl::IsInvalidArgument(UserOfClient("localhost:1", "127.0.0.1:2").status()));
  EXPECT_FALSE(UserOfClient("", "").ok());
}

// Another user connects, and keeps the connection until this process has checked it.
TEST(PeerUser, ConnectionsOfOtherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const auto listener = TcpNetwork().Listen("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const HostPort at = *ParseHostPort((*listener)->Address());
  int until[2], changed[2];
  ASSERT_EQ(pipe(until), 0);
  ASSERT_EQ(pipe(changed), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(until[1]);
    if (setgid(kOther) != 0 || setuid(kOther) != 0) _exit(1);
    if (write(changed[1], "x", 1) != 1) _exit(1);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(at.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    char byte = 0;
    const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    (void)!read(until[0], &byte, 1);
    _exit(connected ? 0 : 1);
  }
  close(until[0]);
  close(changed[1]);
  char byte = 0;
  if (read(changed[0], &byte, 1) != 1) {
    waitpid(child, nullptr, 0);
    GTEST_SKIP() << "root has no right to change its user here";
  }
  close(changed[0]);
  const auto accepted = (*listener)->Accept();
  ASSERT_TRUE(accepted.ok());
  const std::string client = (*accepted)->Peer();
  EXPECT_EQ(UserOfClient(client, (*listener)->Address()).value_or(0), kOther);
  // Servers of root accept only connections of root.
  const absl::Status refused = CheckSameUser(client, (*listener)->Address());
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_EQ(refused.message(),
            "found a connection of user 65534 of this machine, expected one of user 0, who runs "
            "the server, or of root");
  close(until[1]);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace xlad

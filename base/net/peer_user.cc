#include "base/net/peer_user.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_descriptor.h"
#include "base/file_system.h"
#include "base/net/network.h"

namespace xlad {
namespace {

// An address in the format of the kernel's tables: an IPv4 address is the first word.
struct Address {
  int family = AF_INET;
  uint32_t words[4] = {};
  uint16_t port = 0;
};

absl::StatusOr<Address> Parse(const std::string& text) {
  XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(text));
  Address address;
  address.port = static_cast<uint16_t>(host_port.port);
  if (inet_pton(AF_INET, host_port.host.c_str(), address.words) == 1) return address;
  address.family = AF_INET6;
  if (inet_pton(AF_INET6, host_port.host.c_str(), address.words) == 1) return address;
  return absl::InvalidArgumentError(absl::StrCat("found address ", text, ", expected a numeric one"));
}

// Asks the kernel which user owns the client's socket. NotFound if the kernel has no such socket. Unimplemented if the
// kernel does not answer such requests.
absl::StatusOr<uid_t> AskKernel(const Address& client, const Address& server) {
  const FileDescriptor netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink.is_open()) return absl::UnimplementedError("no netlink sockets");
  struct {
    nlmsghdr head;
    inet_diag_req_v2 body;
  } request{};
  request.head.nlmsg_len = sizeof request;
  request.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.head.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = static_cast<uint8_t>(client.family);
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0u;
  request.body.id.idiag_sport = htons(client.port);
  request.body.id.idiag_dport = htons(server.port);
  std::memcpy(request.body.id.idiag_src, client.words, sizeof client.words);
  std::memcpy(request.body.id.idiag_dst, server.words, sizeof server.words);
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  alignas(nlmsghdr) char answer[4096];
  const ssize_t sent = send(netlink.get(), &request, sizeof request, 0);
  const ssize_t n = sent < 0 ? -1 : recv(netlink.get(), answer, sizeof answer, 0);
  if (n < static_cast<ssize_t>(sizeof(nlmsghdr))) return absl::UnimplementedError("netlink does not answer");
  const auto* head = reinterpret_cast<const nlmsghdr*>(answer);
  if (head->nlmsg_type == NLMSG_ERROR && n >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof(nlmsgerr)))) {
    const int error = -static_cast<const nlmsgerr*>(NLMSG_DATA(head))->error;
    if (error == ENOENT) return absl::NotFoundError("no such connection");
    return absl::UnimplementedError(std::strerror(error));
  }
  if (n < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)))) {
    return absl::UnimplementedError("netlink answers with too few bytes");
  }
  return static_cast<const inet_diag_msg*>(NLMSG_DATA(head))->idiag_uid;
}

std::string TableText(const Address& address) {
  std::string text;
  for (int i = 0; i < (address.family == AF_INET ? 1 : 4); ++i) {
    absl::StrAppend(&text, absl::Hex(address.words[i], absl::kZeroPad8));
  }
  return absl::AsciiStrToUpper(absl::StrCat(text, ":", absl::Hex(address.port, absl::kZeroPad4)));
}

// Finds the owner of the client's socket in the kernel's text table of all TCP connections.
absl::StatusOr<uid_t> ReadTable(const Address& client, const Address& server) {
  XLAD_ASSIGN_OR_RETURN(const std::string table,
                        RealFileSystem().Read(client.family == AF_INET ? "/proc/self/net/tcp" : "/proc/self/net/tcp6"));
  const std::string local = TableText(client), remote = TableText(server);
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uid_t user = 0;
    if (fields.size() > 7 && fields[1] == local && fields[2] == remote && absl::SimpleAtoi(fields[7], &user)) {
      return user;
    }
  }
  return absl::NotFoundError("no such connection");
}

}  // namespace

absl::StatusOr<uid_t> UserOfClient(const std::string& client, const std::string& server) {
  XLAD_ASSIGN_OR_RETURN(const Address from, Parse(client));
  XLAD_ASSIGN_OR_RETURN(const Address to, Parse(server));
  absl::StatusOr<uid_t> user = AskKernel(from, to);
  if (absl::IsUnimplemented(user.status())) user = ReadTable(from, to);
  if (user.ok()) return user;
  return absl::Status(user.status().code(), absl::StrCat("cannot find the user of the connection from ", client, " to ",
                                                         server, ": ", user.status().message()));
}

absl::StatusOr<uid_t> FindSameUser(const std::string& client, const std::string& server) {
  const absl::StatusOr<uid_t> user = UserOfClient(client, server);
  if (!user.ok()) return absl::PermissionDeniedError(user.status().message());
  if (*user == geteuid() || *user == 0) return *user;
  return absl::PermissionDeniedError(absl::StrCat("found a connection of user ", *user,
                                                  " of this machine, expected one of user ", geteuid(),
                                                  ", who runs the server, or of root"));
}

absl::Status CheckSameUser(const std::string& client, const std::string& server) {
  return FindSameUser(client, server).status();
}

}  // namespace xlad

// Text of socket addresses, for logs and for peers.
#pragma once

#include <sys/socket.h>

#include <string>

namespace xlad {

// "127.0.0.1:4711" or "[::1]:4711"; an IPv4 address in IPv6 form is written as IPv4. "?" if it is not an address.
std::string SocketAddressText(const sockaddr_storage& address, socklen_t size);

}  // namespace xlad

// An HTTP client for tests of pages.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "base/net/network.h"

namespace xlad::observe {

// Sends `request` and returns the bytes that the server sends until it closes the connection. If the connection fails,
// returns the error message.
inline std::string Exchange(const std::string& address, const std::string& request) {
  const auto connection = TcpNetwork().Dial(address, 600'000);
  if (!connection.ok()) return std::string(connection.status().message());
  (*connection)->Write({reinterpret_cast<const std::byte*>(request.data()), request.size()}).IgnoreError();
  std::string answer;
  std::byte buffer[4096];
  while (true) {
    const auto n = (*connection)->Read(absl::MakeSpan(buffer));
    if (!n.ok()) return answer;
    answer.append(reinterpret_cast<const char*>(buffer), *n);
  }
}

// Returns the complete response, including the headers.
inline std::string Get(const std::string& address, const std::string& path) {
  return Exchange(address, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
}

}  // namespace xlad::observe

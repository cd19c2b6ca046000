// Makes the HTTP/2 frames (RFC 9113) of a gRPC call that never ends.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace xlad {

inline constexpr char kHttp2Preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

inline std::string Http2Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame + payload;
}

// A literal header field that is never indexed and has no Huffman code (RFC 7541). Each string must be shorter than
// 127 bytes.
inline std::string Http2Header(const std::string& name, const std::string& value) {
  return absl::StrCat(std::string(1, '\x10'), std::string(1, static_cast<char>(name.size())), name,
                      std::string(1, static_cast<char>(value.size())), value);
}

// A message of a call, with its header.
inline std::string GrpcMessage(const std::string& bytes) {
  std::string message(1, '\0');  // Not compressed.
  for (const int shift : {24, 16, 8, 0}) message += static_cast<char>(bytes.size() >> shift);
  return message + bytes;
}

// The start of a message of 60 MB.
inline std::string StartOfGrpcMessage() {
  return std::string("\0\x03\x93\x87\0", 5) + std::string(10'000, 'x');
}

// A call without a token: its data are the start of a message, or several messages. The client takes responses of at
// most `window` bytes.
inline std::string Http2Call(const std::string& path, const std::string& data, uint32_t window = 65'535) {
  const std::string headers = absl::StrCat(
      Http2Header(":method", "POST"), Http2Header(":scheme", "http"), Http2Header(":path", path),
      Http2Header(":authority", "x"), Http2Header("te", "trailers"), Http2Header("content-type", "application/grpc"));
  std::string settings("\0\4", 2);  // The size of the first window of a call.
  for (const int shift : {24, 16, 8, 0}) settings += static_cast<char>(window >> shift);
  return absl::StrCat(kHttp2Preface, Http2Frame(/*SETTINGS*/ 4, 0, 0, settings),
                      Http2Frame(/*HEADERS*/ 1, /*END_HEADERS*/ 4, 1, headers), Http2Frame(/*DATA*/ 0, 0, 1, data));
}

// The start of a call without a token. It announces a message of 60 MB, but contains only the first 10,000 bytes of the
// message.
inline std::string StalledCall(const std::string& path) { return Http2Call(path, StartOfGrpcMessage()); }

}  // namespace xlad

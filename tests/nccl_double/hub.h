// The connections between the ranks of a communicator of the test double of NCCL.
//
// The process that makes the unique id listens on a local socket whose name is the id. Every rank connects to it, and a
// thread of that process, the hub, forwards the frames. If a rank's connection ends without a farewell, the hub closes
// all connections, so that the other ranks notice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace xlad::nccl_double {

// The first bytes of a connection, from the rank to the hub. The hub answers with one byte: kReady when all ranks are
// connected, or kRefused if a rank is out of range, or two of them have the same rank or different numbers of ranks.
struct Hello {
  uint32_t rank = 0, ranks = 0;
};
inline constexpr char kReady = 1, kRefused = 2;

// The header of a frame. `peer` is the receiver in a frame to the hub, and the sender in a frame from the hub.
struct FrameHeader {
  uint32_t peer = 0;
  uint32_t unused = 0;
  uint64_t bytes = 0;
};
// The receiver in the last frame of a rank that ends its connection without an error.
inline constexpr uint32_t kFarewell = 0xffffffff;

// Starts a hub and returns the name of its socket, or "" if it cannot be started.
std::string StartHub();
// Returns a connected socket, or -1.
int ConnectToHub(const std::string& name, const Hello& hello);

// Write and read exactly `bytes` bytes. Return false if the connection has ended.
bool WriteAll(int file, const void* data, size_t bytes);
bool ReadAll(int file, void* data, size_t bytes);

}  // namespace xlad::nccl_double

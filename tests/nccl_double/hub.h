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

// The first bytes of a connection, from the rank to the hub. When all ranks are connected, the hub answers each with
// one byte: kReady, or kRefused if the ranks do not fit each other.
struct Hello {
  uint32_t rank = 0, ranks = 0;
};
inline constexpr char kReady = 1, kRefused = 2;

// The header of a frame. `peer` is the receiver on the way to the hub and the sender on the way from it.
struct FrameHeader {
  uint32_t peer = 0;
  uint32_t unused = 0;
  uint64_t bytes = 0;
};
inline constexpr uint32_t kFarewell = 0xffffffff;

// Starts a hub and returns the name of its socket.
std::string StartHub();
// Returns a connected socket, or -1.
int ConnectToHub(const std::string& name, const Hello& hello);

// Return false if the connection has ended.
bool WriteAll(int file, const void* data, size_t bytes);
bool ReadAll(int file, void* data, size_t bytes);

}  // namespace xlad::nccl_double

// A TCP proxy between one worker and the coordinator. It can interrupt the connection in the ways in which networks do.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"

namespace xlad::cli {

enum class Path {
  kOpen,
  kRefused,     // Connections are closed, and new ones are closed at once.
  kBlack,       // Nothing is passed in either direction; connections stay open.
  kNoRequests,  // Nothing is passed from the worker to the coordinator.
  kNoAnswers    // Nothing is passed from the coordinator to the worker.
};

// Thread-safe. While a direction of an open connection is interrupted, its bytes are buffered, as TCP does, and passed
// when the path opens again.
class FaultProxy {
 public:
  // Listens on a free port of loopback and passes connections on to `target`, a HOST:PORT of which only the port is
  // used: the connections go to that port of 127.0.0.1.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(const std::string& target);
  ~FaultProxy();

  std::string Address() const { return address_; }
  void Set(Path path) { path_ = path; }

 private:
  struct Link;
  FaultProxy(int listener, std::string address, std::string target);
  void Run();

  const int listener_;
  const std::string address_, target_;
  std::atomic<Path> path_ = Path::kOpen;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace xlad::cli

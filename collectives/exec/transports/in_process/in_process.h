// The transport between devices of one process: the receiver reads the sender's memory; small messages are copied.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "collectives/exec/transport.h"
#include "collectives/exec/waiter.h"

namespace xlad::collectives {

struct InProcessOptions {
  int slots = 4;
  int64_t copy_below_bytes = 4096;  // Smaller messages are copied, so that the sender need not wait.
};

// All links among a set of devices of this process. Thread-safe, except that a device's transport may be used only by
// the thread of that device.
class InProcessFabric {
 public:
  // `waiters` has the waiter of each device. Waiters and `abort` must outlive the fabric.
  InProcessFabric(const std::map<int, Waiter*>& waiters, AbortSignal* abort, InProcessOptions options = {});
  ~InProcessFabric();

  Transport& transport(int device);

 private:
  friend class InProcessTransport;
  class Link;
  class Window;
  Link* FindOrAdd(int from, int to, int channel);

  std::map<int, Waiter*> waiters_;
  AbortSignal* const abort_;
  const InProcessOptions options_;
  std::mutex mutex_;
  std::map<std::tuple<int, int, int>, std::unique_ptr<Link>> links_;
  int64_t last_window_ = 0;
  std::map<std::pair<int, int64_t>, absl::Span<std::byte>> windows_;  // Registered memory by device and number.
  std::map<int, std::unique_ptr<Transport>> transports_;
};

}  // namespace xlad::collectives

// The transport between devices of one process. The receiver reads large messages from the sender's memory; small
// messages are copied.
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
  int slots = 4;  // The slots of each link.
  // Messages below this size are copied, so the sender does not need to wait for the receiver.
  int64_t copy_below_bytes = 4096;
};

// All links among a set of devices of this process. Thread-safe, except that only the thread of a device may use the
// device's transport.
class InProcessFabric {
 public:
  // `waiters` contains the waiter of each device. The waiters and `abort` must outlive the fabric.
  InProcessFabric(const std::map<int, Waiter*>& waiters, AbortSignal* abort, InProcessOptions options = {});
  ~InProcessFabric();

  // The device must be one of the devices in `waiters`.
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
  std::map<std::pair<int, int64_t>, absl::Span<std::byte>> windows_;  // The registered memory, by device and number.
  std::map<int, std::unique_ptr<Transport>> transports_;
};

}  // namespace xlad::collectives

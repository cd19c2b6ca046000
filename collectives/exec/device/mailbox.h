// What the devices of one process tell each other while they run schedules in device memory.
//
// A message is not copied when it is sent: it names the sender's memory and an event of the sender's stream. The
// receiver's stream waits for the event and reads the memory. Then the receiver releases the message with an event of
// its own stream, for which the sender's stream waits before it overwrites the memory. While a collective runs, the
// threads of the devices wait for each other's messages and releases, but not for the streams. They wait for streams
// after an error, before memory is replaced by larger memory, at the end, and before each message or release that they
// send to another process (DeviceRun).
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collectives/exec/abort.h"
#include "collectives/exec/device_ops.h"
#include "collectives/exec/ranges.h"
#include "collectives/exec/transport.h"
#include "collectives/exec/waiter.h"

namespace xlad::collectives {

struct DeviceMessage {
  MessageHeader header;
  Pieces pieces;
  std::shared_ptr<const Event> written;  // Recorded after the pieces were written. Null if the receiver need not wait.
};

// The messages for one device, and the releases of the messages that it has sent. The thread of any device may call the
// functions that are not marked as those of the device's own thread.
class DeviceMailbox {
 public:
  // `memory` is the name of the device's memory (DeviceOps::memory_name). `abort` must outlive the mailbox.
  DeviceMailbox(std::string memory, AbortSignal* abort);
  ~DeviceMailbox();

  const std::string& memory() const { return memory_; }
  void Post(int peer, int channel, DeviceMessage message);
  // Releases the oldest message to `peer` that has not been released.
  void Release(int peer, int channel, std::shared_ptr<const Event> read);
  // Whether the device is between Enter and Leave. A caller that has raised the abort signal before sees every run that
  // Enter has allowed.
  bool is_busy() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // Pairs with that of Enter.
    return busy_.load(std::memory_order_seq_cst);
  }

  // --- Functions of the device's own thread.
  //
  // Enter and Leave enclose a run. Enter returns false if the abort signal was raised; the run must then not begin.
  bool Enter();
  void Leave() { busy_.store(false, std::memory_order_seq_cst); }
  // Waits for the next message from `peer`. Returns the error of the abort signal if it is raised.
  absl::StatusOr<DeviceMessage> Take(int peer, int channel);
  // Waits until `peer` has released the first `messages` messages. Returns the event of the last of them, or the error
  // of the abort signal.
  absl::StatusOr<std::shared_ptr<const Event>> WaitReleased(int peer, int channel, int64_t messages);
  // Waits until no peer's stream reads a message that has been released.
  void WaitUntilRead() const;

 private:
  using Link = std::pair<int, int>;  // The peer and the channel.
  struct Releases {
    int64_t dropped = 0;  // The number of releases that are no longer in `events`.
    std::deque<std::shared_ptr<const Event>> events;
  };

  const std::string memory_;
  AbortSignal& abort_;
  int64_t listener_ = 0;
  std::atomic<bool> busy_ = false;
  Waiter waiter_;  // Tests once before it sleeps. 2,000 tests would take cores from the threads of the streams.
  mutable std::mutex mutex_;
  std::map<Link, std::deque<DeviceMessage>> messages_;
  std::map<Link, Releases> releases_;
};

// The mailboxes of the devices of one process. Thread-safe.
class DeviceMailboxes {
 public:
  // Makes the mailbox of a device for the program whose first channel this is, and replaces an earlier one.
  std::shared_ptr<DeviceMailbox> Make(int first_channel, int device, std::string memory, AbortSignal* abort);
  // Returns null if the device has none: it is in another process, or has not called Make.
  std::shared_ptr<DeviceMailbox> Find(int first_channel, int device) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, std::shared_ptr<DeviceMailbox>> mailboxes_;
};

}  // namespace xlad::collectives

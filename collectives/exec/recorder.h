// Records the most recent collectives of a device, for error messages and for the watchdog.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/exec/collective_set.h"
#include "collectives/plan/schedule.h"

namespace xlad::collectives {

// The times at which the messages of collectives were sent and received. Several recorders of a device, whose
// collectives run on different threads, may add messages. `messages` and `dropped` may be used while none does.
struct MessageLog {
  // The number of messages that are kept. Later messages are only counted.
  static constexpr size_t kMaxMessages = 8192;
  struct Message {
    uint64_t key = 0;  // A hash of the message's identity, which is equal at the sender and the receiver.
    int64_t ns = 0;    // The clock's time before the message was sent, or after it had arrived.
    bool sent = false;
  };
  void Add(const Message& message) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (messages.size() < kMaxMessages) {
      messages.push_back(message);
    } else {
      ++dropped;
    }
  }

  std::mutex mutex;
  std::vector<Message> messages;
  int64_t dropped = 0;
};

// Written by the device's thread, readable by any thread.
class Recorder {
 public:
  static constexpr int kRecords = 16;

  Recorder(int device, const CollectiveSet* collectives, const Clock* clock)
      : device_(device), collectives_(collectives), clock_(clock) {}

  // The position of a collective in the program.
  struct Place {
    int spec = -1;
    int rank = 0;
    int64_t step = 0;
    uint64_t iteration = 0;
  };
  // Records the start of a collective that runs `schedule`, which must stay valid until End. `schedule` is null if a
  // library runs the collective.
  void Begin(const Place& place, const Schedule* schedule);
  // Records the start of an operation of the schedule. Lock-free.
  void AtOp(int op) {
    op_.store(op, std::memory_order_relaxed);
    progress_ns_.store(clock_->NowNs(), std::memory_order_relaxed);
  }
  void End();

  // Adds all later messages to `log`, or records none if `log` is null. Only the device's thread may call this and
  // NoteMessage.
  void KeepMessages(MessageLog* log) { messages_ = log; }
  // A message that this device is about to send to `peer` or has received from it. `number` distinguishes the messages
  // between two devices of a collective in one step. The sender and the receiver use the same number.
  struct MessageId {
    int peer = 0;
    bool sent = false;
    uint64_t number = 0;
  };
  void NoteMessage(const MessageId& id) {
    if (messages_ != nullptr) AddMessage(id);
  }

  struct Waiting {
    bool running = false;
    int64_t since_ns = 0;  // The clock's time at which the current operation of the schedule started.
    std::string text;      // "device 1: all-reduce.7, step 12, rank 1 of 4, at \"recv <-2 ...\""
  };
  Waiting Now() const;

  // Returns the records, newest first, one per line.
  std::string ToString() const;

 private:
  struct Record {
    Place place;
    int64_t begin_ns = 0;
    int64_t end_ns = -1;  // Negative while the collective runs.
  };

  std::string Text(const Record& record) const;
  void AddMessage(const MessageId& id);

  const int device_;
  const CollectiveSet* const collectives_;
  const Clock* const clock_;
  mutable std::mutex mutex_;
  std::array<Record, kRecords> records_;
  int64_t count_ = 0;
  const Schedule* schedule_ = nullptr;  // Null unless a collective runs by a schedule.
  std::atomic<int> op_ = 0;
  std::atomic<int64_t> progress_ns_ = 0;
  MessageLog* messages_ = nullptr;
};

}  // namespace xlad::collectives

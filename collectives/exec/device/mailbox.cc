#include "collectives/exec/device/mailbox.h"

namespace xlad::collectives {

DeviceMailbox::DeviceMailbox(std::string memory, AbortSignal* abort) : memory_(std::move(memory)), abort_(*abort) {
  listener_ = abort_.AddListener([this](const Failure&) { waiter_.Notify(); });
}

DeviceMailbox::~DeviceMailbox() { abort_.RemoveListener(listener_); }

void DeviceMailbox::Post(int peer, int channel, DeviceMessage message) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    messages_[{peer, channel}].push_back(std::move(message));
  }
  waiter_.Notify();
}

void DeviceMailbox::Release(int peer, int channel, std::shared_ptr<const Event> read) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    releases_[{peer, channel}].events.push_back(std::move(read));
  }
  waiter_.Notify();
}

// A device that fails raises the signal and then waits until no peer is busy, so `busy_` is set before the signal is
// read.
bool DeviceMailbox::Enter() {
  busy_.store(true, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!abort_.raised()) return true;
  Leave();
  return false;
}

absl::StatusOr<DeviceMessage> DeviceMailbox::Take(int peer, int channel) {
  // Only this thread removes messages. The waiter may test the condition again after it was true.
  std::deque<DeviceMessage>* waiting = nullptr;
  const bool has_arrived = waiter_.Wait(abort_, [&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting = &messages_[{peer, channel}];
    return !waiting->empty();
  });
  if (!has_arrived) return abort_.status();
  const std::lock_guard<std::mutex> lock(mutex_);
  DeviceMessage message = std::move(waiting->front());
  waiting->pop_front();
  return message;
}

absl::StatusOr<std::shared_ptr<const Event>> DeviceMailbox::WaitReleased(int peer, int channel, int64_t messages) {
  std::shared_ptr<const Event> last;
  const bool are_released = waiter_.Wait(abort_, [&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    Releases& releases = releases_[{peer, channel}];
    if (releases.dropped + std::ssize(releases.events) < messages) return false;
    // A later event of the peer's stream is reached after the earlier ones. The last event is kept for WaitUntilRead.
    for (; releases.dropped < messages - 1; ++releases.dropped) releases.events.pop_front();
    last = releases.events.front();
    return true;
  });
  if (!are_released) return abort_.status();
  return last;
}

void DeviceMailbox::WaitUntilRead() const {
  std::vector<std::shared_ptr<const Event>> events;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [link, releases] : releases_)
      events.insert(events.end(), releases.events.begin(), releases.events.end());
  }
  for (const std::shared_ptr<const Event>& event : events) {
    event->Wait().IgnoreError();  // After an error, the stream reads nothing more.
  }
}

std::shared_ptr<DeviceMailbox> DeviceMailboxes::Make(int first_channel, int device, std::string memory,
                                                     AbortSignal* abort) {
  auto mailbox = std::make_shared<DeviceMailbox>(std::move(memory), abort);
  const std::lock_guard<std::mutex> lock(mutex_);
  mailboxes_[{first_channel, device}] = mailbox;
  return mailbox;
}

std::shared_ptr<DeviceMailbox> DeviceMailboxes::Find(int first_channel, int device) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = mailboxes_.find({first_channel, device});
  return found == mailboxes_.end() ? nullptr : found->second;
}

}  // namespace xlad::collectives

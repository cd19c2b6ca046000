#include "collectives/exec/transports/in_process/in_process.h"

#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace xlad::collectives {

// A ring of slots. posted_ and released_ count messages. Message i is in slot i % slots. The slot belongs to the
// receiver from the time when the message is posted until it is released, and otherwise to the sender.
class InProcessFabric::Link final : public SendLink, public ReceiveLink {
 public:
  Link(Waiter* sender, Waiter* receiver, AbortSignal* abort, const InProcessOptions& options)
      : sender_(sender), receiver_(receiver), abort_(abort), options_(options), slots_(options.slots) {}

  absl::Status Post(const MessageHeader& header, absl::Span<const ConstPiece> pieces) override {
    const int64_t number = posted_.load(std::memory_order_relaxed);
    const bool free = sender_->Wait(*abort_, [&] { return number - released_.load() < options_.slots; });
    if (!free) return abort_->status();
    Slot& slot = slots_[number % options_.slots];
    slot.header = header;
    slot.bytes = 0;
    for (const ConstPiece& piece : pieces) slot.bytes += std::ssize(piece);
    slot.pieces.clear();
    slot.copied = slot.bytes < options_.copy_below_bytes;
    if (slot.copied) {
      slot.storage.resize(slot.bytes);
      size_t at = 0;
      for (const ConstPiece& piece : pieces) {
        std::memcpy(slot.storage.data() + at, piece.data(), piece.size());
        at += piece.size();
      }
      slot.pieces.push_back(ConstPiece(slot.storage.data(), slot.storage.size()));
    } else {
      slot.pieces.assign(pieces.begin(), pieces.end());
    }
    posted_.store(number + 1);
    receiver_->Notify();
    return absl::OkStatus();
  }

  absl::Status WaitReleased(int64_t messages) override {
    int64_t last = 0;
    for (int64_t number = std::max(released_.load(), messages - options_.slots); number < messages; ++number) {
      if (number >= 0 && !slots_[number % options_.slots].copied) last = number + 1;
    }
    return sender_->Wait(*abort_, [&] { return released_.load() >= last; }) ? absl::OkStatus() : abort_->status();
  }

  absl::StatusOr<Incoming> Next() override {
    if (!receiver_->Wait(*abort_, [&] { return posted_.load() > received_; })) return abort_->status();
    // The message is marked as being read before revocation is tested. Revoke sets `revoked_` before it tests for
    // messages that are being read. Therefore, either the message is not read or Revoke waits for its release.
    held_.fetch_add(1);
    if (revoked_.load()) {
      Drop();
      return abort_->status();
    }
    const Slot& slot = slots_[received_++ % options_.slots];
    return Incoming{slot.header, slot.pieces, slot.bytes};
  }

  absl::Status Release() override {
    released_.fetch_add(1);
    Drop();
    return absl::OkStatus();
  }

  void Revoke() override {
    revoked_.store(true);
    sender_->WaitRegardless([&] { return held_.load() == 0; });
  }

 private:
  struct Slot {
    MessageHeader header;
    absl::InlinedVector<ConstPiece, 4> pieces;
    int64_t bytes = 0;
    bool copied = false;
    std::vector<std::byte> storage;
  };

  void Drop() {
    held_.fetch_sub(1);
    sender_->Notify();
  }

  Waiter* const sender_;
  Waiter* const receiver_;
  AbortSignal* const abort_;
  const InProcessOptions options_;
  std::vector<Slot> slots_;
  std::atomic<int> held_ = 0;  // The number of messages that Next returned and that are not released.
  std::atomic<bool> revoked_ = false;
  int64_t received_ = 0;  // The number of messages that Next returned. Used by the receiver's thread only.
  alignas(64) std::atomic<int64_t> posted_ = 0;
  alignas(64) std::atomic<int64_t> released_ = 0;
};

// Registered memory of a device, which the other devices of the process access directly at its address.
class InProcessFabric::Window final : public RegisteredMemory {
 public:
  Window(InProcessFabric* fabric, int device, absl::Span<std::byte> memory)
      : RegisteredMemory(memory, MemoryKind::kHost), fabric_(fabric), device_(device) {
    const std::lock_guard<std::mutex> lock(fabric_->mutex_);
    number_ = ++fabric_->last_window_;
    fabric_->windows_[{device_, number_}] = memory;
  }
  ~Window() override {
    const std::lock_guard<std::mutex> lock(fabric_->mutex_);
    fabric_->windows_.erase({device_, number_});
  }
  std::string key() const override { return absl::StrCat(number_); }

 private:
  InProcessFabric* const fabric_;
  const int device_;
  int64_t number_ = 0;
};

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(InProcessFabric* fabric, int device) : fabric_(fabric), device_(device) {}

  absl::StatusOr<SendLink*> OpenSend(int peer, int channel) override {
    XLAD_RETURN_IF_ERROR(Check(peer, channel));
    return fabric_->FindOrAdd(device_, peer, channel);
  }
  absl::StatusOr<ReceiveLink*> OpenReceive(int peer, int channel) override {
    XLAD_RETURN_IF_ERROR(Check(peer, channel));
    return fabric_->FindOrAdd(peer, device_, channel);
  }
  std::string Describe(int peer) const override { return absl::StrCat("device ", peer, " of this process"); }

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(absl::Span<std::byte> memory, MemoryKind kind) override {
    if (kind != MemoryKind::kHost) return Transport::Register(memory, kind);
    return std::make_unique<InProcessFabric::Window>(fabric_, device_, memory);
  }

  absl::StatusOr<absl::Span<std::byte>> OpenWindow(int peer, const std::string& key) override {
    int64_t number = 0;
    const std::lock_guard<std::mutex> lock(fabric_->mutex_);
    const auto found =
        absl::SimpleAtoi(key, &number) ? fabric_->windows_.find({peer, number}) : fabric_->windows_.end();
    if (found != fabric_->windows_.end()) return found->second;
    return absl::NotFoundError(
        absl::StrCat("found \"", key, "\", expected the key of registered memory of ", Describe(peer)));
  }

 private:
  absl::Status Check(int peer, int channel) const {
    if (peer != device_ && fabric_->waiters_.count(peer) > 0 && channel >= 0 && channel < kMaxChannels) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device_, " has no link to device ", peer, ", channel ", channel, " in this process"));
  }

  InProcessFabric* const fabric_;
  const int device_;
};

InProcessFabric::InProcessFabric(const std::map<int, Waiter*>& waiters, AbortSignal* abort, InProcessOptions options)
    : waiters_(waiters), abort_(abort), options_(options) {
  for (const auto& [device, waiter] : waiters_) {
    transports_.emplace(device, std::make_unique<InProcessTransport>(this, device));
  }
}

InProcessFabric::~InProcessFabric() = default;

Transport& InProcessFabric::transport(int device) {
  const auto found = transports_.find(device);
  XLAD_CHECK(found != transports_.end()) << "device " << device << " is not in this process";
  return *found->second;
}

InProcessFabric::Link* InProcessFabric::FindOrAdd(int from, int to, int channel) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Link>& link = links_[{from, to, channel}];
  if (link == nullptr) link = std::make_unique<Link>(waiters_.at(from), waiters_.at(to), abort_, options_);
  return link.get();
}

}  // namespace xlad::collectives

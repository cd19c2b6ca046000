#include "collectives/exec/transports/shared_memory/shared_path.h"

namespace xlad::collectives {

SharedPath::SharedPath(std::unique_ptr<SharedPipe> pipe, Waiter* waiter, const AbortSignal* abort,
                       const std::atomic<bool>* peer_finished)
    : pipe_(std::move(pipe)), waiter_(waiter), abort_(*abort), peer_finished_(*peer_finished) {}

absl::StatusOr<uint64_t> SharedPath::Send(const FrameHead& head, absl::Span<const ConstPiece> pieces) {
  sending_ = true;
  absl::Status status = Write(ConstPiece(reinterpret_cast<const std::byte*>(&head), sizeof head));
  for (const ConstPiece& piece : pieces) {
    if (status.ok()) status = Write(piece);
  }
  sending_ = false;
  pipe_->NotifyPeer();
  XLAD_RETURN_IF_ERROR(status);
  return 0;
}

absl::Status SharedPath::Write(ConstPiece bytes) {
  while (true) {
    XLAD_ASSIGN_OR_RETURN(const size_t written, pipe_->Write(bytes));
    bytes.remove_prefix(written);
    if (bytes.empty()) return absl::OkStatus();
    pipe_->NotifyPeer();
    pipe_->WantRoom(true);
    const bool go_on = waiter_->Wait(abort_, [&] {
      const absl::StatusOr<size_t> room = pipe_->Room();
      return !room.ok() || *room > 0 || peer_finished_.load();
    });
    pipe_->WantRoom(false);
    if (!go_on) return abort_.status();
    if (peer_finished_) return absl::UnavailableError("the peer has finished");
  }
}

// Returns false if the ring has an error, because Receive reports it.
bool SharedPath::CanSend() {
  const absl::StatusOr<size_t> room = pipe_->Room();
  return !sending_ && room.ok() && *room >= sizeof(FrameHead);
}

absl::Status SharedPath::ReadHead(FrameSink* sink) {
  std::byte* const head = reinterpret_cast<std::byte*>(&head_);
  XLAD_ASSIGN_OR_RETURN(const size_t n, pipe_->Read({head + head_bytes_, sizeof head_ - head_bytes_}));
  head_bytes_ += n;
  if (head_bytes_ < sizeof head_) return absl::OkStatus();
  XLAD_RETURN_IF_ERROR(CheckPathFrame(head_));
  if (head_.kind != FrameKind::kMessage) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(payload_, sink->OnHead(head_));
  return absl::OkStatus();
}

absl::StatusOr<Progress> SharedPath::Receive(FrameSink* sink) {
  Progress received = Progress::kNone;
  while (!abort_.raised()) {
    XLAD_ASSIGN_OR_RETURN(const size_t there, pipe_->Readable());
    if (there == 0) return received;
    received = Progress::kMade;
    if (head_bytes_ < sizeof head_) {
      XLAD_RETURN_IF_ERROR(ReadHead(sink));
      if (head_bytes_ < sizeof head_) continue;
    } else {
      XLAD_ASSIGN_OR_RETURN(const size_t n,
                            pipe_->Read({payload_.data + payload_bytes_, head_.bytes - payload_bytes_}));
      payload_bytes_ += n;
    }
    if (head_.kind == FrameKind::kMessage && payload_bytes_ < head_.bytes) continue;
    sink->OnFrame(head_, std::move(payload_));
    head_bytes_ = payload_bytes_ = 0;
    payload_ = FrameBuffer();
  }
  return received;
}

}  // namespace xlad::collectives

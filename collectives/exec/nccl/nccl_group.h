// A group of ranks that runs collectives with a communicator of NCCL.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collectives/exec/abort.h"
#include "collectives/exec/device_ops.h"
#include "collectives/exec/nccl/nccl_library.h"
#include "collectives/exec/transport.h"
#include "collectives/exec/waiter.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives::nccl {

// The communicator is nonblocking: its calls return at once, and the thread of the device polls it. While the thread
// waits, it also polls the abort signal, so an abort ends every wait.
//
// Threads: only the thread of the device may use a group. Errors: after an error, the group runs no more collectives.
class Group {
 public:
  struct Options {
    const Library* library = nullptr;
    SideStream* stream = nullptr;
    AbortSignal* abort = nullptr;
    // Polled only while the group forms, because a peer may still wait for a message of this rank. Later, the thread of
    // another communicator may use the transport. May be null.
    Transport* transport = nullptr;
    int rank = 0, ranks = 1;
    // After an error of a peer or of the network, how long to wait for the abort signal, which names the peer.
    int64_t reason_ms = 1000;
  };
  // Blocks until all ranks call Form with the same id. Everything in `options` must outlive the group.
  static absl::StatusOr<std::unique_ptr<Group>> Form(const Options& options, const UniqueId& id);
  // Waits up to 10 s until the ranks have received what this rank has sent. After an error or an abort, ends the
  // group's work instead.
  ~Group();

  // Enqueues a collective on the stream. The inputs and outputs of the operands must not overlap, except that they may
  // be in place as NCCL defines it.
  absl::Status Enqueue(const CollectiveSpec& spec, absl::Span<const std::byte* const> inputs,
                       absl::Span<std::byte* const> outputs);
  // Waits until the mark is reached. Returns the first error of the work, of the group or of the abort signal. If the
  // group has failed before, returns the status of the abort signal, or FailedPrecondition if it is not raised.
  absl::Status Wait(const SideStream::Mark& mark);
  // Ends the group's work, including its work on the GPU.
  void Abort();

 private:
  explicit Group(const Options& options);
  absl::Status WaitUntil(const std::function<absl::StatusOr<bool>()>& done);
  absl::StatusOr<bool> IsReady(const std::string& what) const;
  absl::Status WithReason(const absl::Status& status);
  // Calls `calls` between ncclGroupStart and ncclGroupEnd and waits until NCCL has enqueued the operations.
  absl::Status Together(const std::string& what, const std::function<Result()>& calls);

  const Options options_;
  const Library& library_;
  Waiter waiter_;
  Transport* forming_over_ = nullptr;  // Null when the group has formed.
  CommHandle handle_ = nullptr;
  bool failed_ = false;
};

}  // namespace xlad::collectives::nccl

// Remote calls of an attempt's process. Calls are repeated while the server cannot be reached.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/net/grpc_channel.h"
#include "base/random.h"
#include "collectives/exec/abort.h"
#include "proto/session.pb.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::worker {

// Converts the status of a call. The codes of gRPC and Abseil have the same numbers.
inline absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// Whether the call may succeed later, because the server could not be reached, did not answer, or could not serve the
// call.
inline bool IsRetryable(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::UNKNOWN:
      return true;
    default:
      return false;
  }
}

// Whether the server itself has answered that it cannot serve the call, for example because of an error of its disk.
// The status that a gRPC client makes for a server that it cannot reach has no details.
inline bool IsAnswered(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE && !status.error_details().empty();
}

// Calls of one process to one server. Thread-safe. When the AbortSignal of a call is raised, the call is canceled and
// returns the signal's status.
class GrpcCaller {
 public:
  static constexpr size_t kChunkBytes = 1 << 20;
  static constexpr int64_t kMinPauseMs = 50;
  static constexpr int64_t kMaxPauseMs = 500;
  static constexpr int64_t kMaxAnsweredMs = 20'000;

  // The token is sent with each call. A call whose token is refused is repeated if the token has been replaced. A call
  // ends with an error if the server can be reached but answers for `max_answered_ms` that it cannot serve the call:
  // unlike the loss of a connection, an error of a disk might never end. `clock` must outlive this object.
  explicit GrpcCaller(std::shared_ptr<TokenFile> token, int64_t max_answered_ms = kMaxAnsweredMs,
                      const Clock& clock = RealClock())
      : token_(std::move(token)), max_answered_ms_(max_answered_ms), clock_(clock), random_(SystemRandom()) {}

  // Reads a stream of chunks, which must fill `out` exactly. `open` starts the call. If `info` is not null, the stream
  // may instead be one chunk without data, which describes the object or names a peer that has it. Then `info` is set
  // to this chunk.
  template <typename Open>
  absl::Status ReadInto(absl::Span<std::byte> out, const std::string& what, collectives::AbortSignal* abort,
                        const Open& open, Chunk* info = nullptr) {
    size_t received = 0;
    XLAD_RETURN_IF_ERROR(Retry(abort, [&](grpc::ClientContext* context) {
      received = 0;
      if (info != nullptr) info->Clear();  // A try that failed may have named a peer.
      const auto reader = open(context);
      Chunk chunk;
      while (reader->Read(&chunk)) {
        const size_t n = chunk.data().size();
        if (received + n <= out.size() && n > 0) std::memcpy(out.data() + received, chunk.data().data(), n);
        received += n;
        if (info != nullptr && n == 0) *info = chunk;
      }
      return reader->Finish();
    }));
    const bool is_elsewhere = info != nullptr && !info->peer().empty();
    if (received == out.size() || is_elsewhere) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("found ", received, " bytes of ", what, ", expected ", out.size()));
  }

  // Writes `header` with the first chunk, then the other chunks. `produce(append)` must pass the bytes to `append` in
  // order. It is called once for each try of the call, and must pass the same bytes each time.
  template <typename Request, typename Produce, typename Open>
  absl::Status Stream(const Request& header, const Produce& produce, collectives::AbortSignal* abort,
                      const Open& open) {
    return Retry(abort, [&](grpc::ClientContext* context) {
      const auto writer = open(context);
      Request request = header;
      const auto append = [&](absl::string_view bytes) -> absl::Status {
        do {
          request.set_chunk(std::string(bytes.substr(0, kChunkBytes)));
          // The status of Finish has the reason.
          if (!writer->Write(request)) return absl::UnavailableError("the call has ended");
          request.Clear();
          bytes.remove_prefix(std::min(kChunkBytes, bytes.size()));
        } while (!bytes.empty());
        return absl::OkStatus();
      };
      produce(append).IgnoreError();
      writer->WritesDone();
      return writer->Finish();
    });
  }
  template <typename Request, typename Open>
  absl::Status Write(const Request& header, absl::Span<const std::byte> bytes, collectives::AbortSignal* abort,
                     const Open& open) {
    const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Stream(header, [&](const auto& append) { return append(text); }, abort, open);
  }

  // Repeats `call`, with pauses, until it succeeds or fails with an error that is not retryable, or `abort` is raised.
  // Unavailable if the server has answered for too long that it cannot serve the call.
  template <typename Call>
  absl::Status Retry(collectives::AbortSignal* abort, const Call& call) {
    int64_t pause_ms = kMinPauseMs;
    std::optional<int64_t> answered_ns;  // The time of the first of the last answers in a row.
    std::unique_ptr<WaitingCall> waiting;
    while (!abort->raised()) {
      grpc::ClientContext context;
      const std::string token = token_->Token();
      PrepareCall(&context, token, /*timeout_ms=*/0);
      const int64_t listener = abort->AddListener([&](const collectives::Failure&) { context.TryCancel(); });
      const grpc::Status status = call(&context);
      abort->RemoveListener(listener);
      if (status.ok()) return absl::OkStatus();
      const bool is_replaced =
          status.error_code() == grpc::StatusCode::UNAUTHENTICATED && token_->HasOther(token);
      if (!IsRetryable(status) && !is_replaced && !abort->raised()) return FromGrpc(status);
      const int64_t now_ns = clock_.NowNs();
      answered_ns = IsAnswered(status) ? std::optional(answered_ns.value_or(now_ns)) : std::nullopt;
      const bool is_too_long = now_ns - answered_ns.value_or(now_ns) > max_answered_ms_ * kNsPerMs;
      if (is_too_long && !abort->raised()) return absl::UnavailableError(status.error_message());
      if (waiting == nullptr) waiting = std::make_unique<WaitingCall>(&waiting_calls_);
      Pause(pause_ms, abort);
      pause_ms = std::min(pause_ms * 2, kMaxPauseMs);
    }
    return abort->status();
  }

  // Whether some call has failed at least once and is being repeated.
  bool IsCutOff() const { return waiting_calls_ > 0; }

 private:
  // Counts a call from its first failure to its end.
  class WaitingCall {
   public:
    explicit WaitingCall(std::atomic<int>* count) : count_(*count) { ++count_; }
    ~WaitingCall() { --count_; }

   private:
    std::atomic<int>& count_;
  };

  // Waits up to the given time, shortened at random so that workers do not all try again at once.
  void Pause(int64_t pause_ms, collectives::AbortSignal* abort) {
    std::mutex mutex;
    std::condition_variable woken;
    bool raised = false;
    const int64_t listener = abort->AddListener([&](const collectives::Failure&) {
      std::lock_guard<std::mutex> lock(mutex);
      raised = true;
      woken.notify_all();
    });
    {
      std::unique_lock<std::mutex> lock(mutex);
      const int64_t jitter_ms = random_->Below(static_cast<uint64_t>(pause_ms) / 2 + 1);
      woken.wait_for(lock, std::chrono::milliseconds(pause_ms - jitter_ms), [&] { return raised; });
    }
    abort->RemoveListener(listener);
  }

  const std::shared_ptr<TokenFile> token_;
  const int64_t max_answered_ms_;
  const Clock& clock_;
  const std::unique_ptr<Random> random_;
  std::atomic<int> waiting_calls_ = 0;
};

}  // namespace xlad::worker

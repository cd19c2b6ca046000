// Blobs, state and data of a task from and to the coordinator.
#include "worker/grpc_task_store.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "base/random.h"
#include "base/grpc_channel.h"
#include "proto/worker.grpc.pb.h"

namespace xlad::worker {
namespace {

using collectives::AbortSignal;
using collectives::Failure;

constexpr size_t kChunkBytes = 1 << 20;
constexpr int64_t kFirstPauseMs = 50;
constexpr int64_t kLongestPauseMs = 2000;

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// Whether the call may succeed another time: the coordinator is away, not against it.
bool MayComeBack(const grpc::Status& status) {
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

void FillBox(const tensor::Box& box, Box* out) {
  out->mutable_lo()->Assign(box.lo.begin(), box.lo.end());
  out->mutable_hi()->Assign(box.hi.begin(), box.hi.end());
}

class GrpcTaskStore final : public runtime::TaskStore {
 public:
  GrpcTaskStore(std::shared_ptr<grpc::Channel> channel, std::string token, const LaunchTask& launch)
      : stub_(Coordinator::NewStub(channel)),
        token_(std::move(token)),
        job_id_(launch.job_id()),
        attempt_(launch.attempt()),
        random_(SystemRandom()) {}

  absl::StatusOr<std::string> ReadBlob(const std::string& digest, AbortSignal* abort) override {
    std::string bytes;
    XLAD_RETURN_IF_ERROR(Retry(abort, [&](grpc::ClientContext* context) {
      GetBlobRequest request;
      request.set_digest(digest);
      bytes.clear();
      const auto reader = stub_->GetBlob(context, request);
      Chunk chunk;
      while (reader->Read(&chunk)) bytes += chunk.data();
      return reader->Finish();
    }));
    return bytes;
  }

  absl::Status ReadShard(const std::string& digest, const std::string& tensor, const tensor::Box& box,
                         absl::Span<std::byte> out, AbortSignal* abort) override {
    size_t received = 0;
    XLAD_RETURN_IF_ERROR(Retry(abort, [&](grpc::ClientContext* context) {
      GetShardRequest request;
      request.set_digest(digest);
      request.set_tensor(tensor);
      FillBox(box, request.mutable_box());
      received = 0;
      const auto reader = stub_->GetShard(context, request);
      Chunk chunk;
      while (reader->Read(&chunk)) {
        const size_t n = chunk.data().size();
        if (received + n <= out.size() && n > 0) std::memcpy(out.data() + received, chunk.data().data(), n);
        received += n;
      }
      return reader->Finish();
    }));
    if (received == out.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("found ", received, " bytes of tensor \"", tensor, "\", box ",
                                                   box.ToString(), ", expected ", out.size()));
  }

  absl::Status WriteStateShard(int64_t step, const std::string& tensor, const tensor::Box& box,
                               absl::Span<const std::byte> bytes, AbortSignal* abort) override {
    return Retry(abort, [&](grpc::ClientContext* context) {
      PutStateShardResponse response;
      const auto writer = stub_->PutStateShard(context, &response);
      PutStateShardRequest request;
      request.set_job_id(job_id_);
      request.set_attempt(attempt_);
      request.set_step(step);
      request.set_tensor(tensor);
      FillBox(box, request.mutable_box());
      size_t at = 0;
      do {
        const size_t n = std::min(kChunkBytes, bytes.size() - at);
        request.set_chunk(bytes.data() + at, n);
        if (!writer->Write(request)) break;
        request.Clear();
        at += n;
      } while (at < bytes.size());
      writer->WritesDone();
      return writer->Finish();
    });
  }

 private:
  // Calls until it succeeds, is refused, or the signal is raised, which also cuts off a running call.
  template <typename Call>
  absl::Status Retry(AbortSignal* abort, const Call& call) {
    int64_t pause_ms = kFirstPauseMs;
    while (!abort->raised()) {
      grpc::ClientContext context;
      PrepareCall(&context, token_, /*timeout_ms=*/0);
      const int64_t listener = abort->AddListener([&](const Failure&) { context.TryCancel(); });
      const grpc::Status status = call(&context);
      abort->RemoveListener(listener);
      if (status.ok()) return absl::OkStatus();
      if (!MayComeBack(status) && !abort->raised()) return FromGrpc(status);
      Pause(pause_ms, abort);
      pause_ms = std::min(pause_ms * 2, kLongestPauseMs);
    }
    return abort->status();
  }

  // Up to the given time; shorter by chance, so that workers do not come back all at once.
  void Pause(int64_t pause_ms, AbortSignal* abort) {
    std::mutex mutex;
    std::condition_variable woken;
    bool raised = false;
    const int64_t listener = abort->AddListener([&](const Failure&) {
      std::lock_guard<std::mutex> lock(mutex);
      raised = true;
      woken.notify_all();
    });
    {
      std::unique_lock<std::mutex> lock(mutex);
      const int64_t jitter_ms = static_cast<int64_t>(random_->Below(static_cast<uint64_t>(pause_ms) / 2 + 1));
      woken.wait_for(lock, std::chrono::milliseconds(pause_ms - jitter_ms), [&] { return raised; });
    }
    abort->RemoveListener(listener);
  }

  const std::unique_ptr<Coordinator::Stub> stub_;
  const std::string token_;
  const std::string job_id_;
  const int64_t attempt_;
  const std::unique_ptr<Random> random_;
};

}  // namespace

std::unique_ptr<runtime::TaskStore> MakeGrpcTaskStore(std::shared_ptr<grpc::Channel> channel, std::string token,
                                                      const LaunchTask& launch) {
  return std::make_unique<GrpcTaskStore>(std::move(channel), std::move(token), launch);
}

}  // namespace xlad::worker

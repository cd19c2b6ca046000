#include "worker/grpc_task_store.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "base/file_system.h"
#include "base/grpc_channel.h"
#include "base/random.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "storage/block_sums.h"
#include "storage/checkpoint_shard.h"
#include "storage/store.h"
#include "tensor/wire.h"

namespace xlad::worker {
namespace {

using collectives::AbortSignal;
using collectives::Failure;

constexpr size_t kChunkBytes = 1 << 20;
constexpr int64_t kMinPauseMs = 50;
constexpr int64_t kMaxPauseMs = 500;

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// Whether the call may succeed later: the coordinator could not be reached, or it did not answer.
bool IsRetryable(const grpc::Status& status) {
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

// Calls to the coordinator that retry while it cannot be reached.
class GrpcStore {
 public:
  GrpcStore(std::shared_ptr<grpc::Channel> channel, std::string token)
      : stub_(Coordinator::NewStub(channel)), token_(std::move(token)), random_(SystemRandom()) {}

  absl::StatusOr<std::string> ReadBlob(const std::string& digest, AbortSignal* abort) {
    GetBlobRequest request;
    request.set_digest(digest);
    std::string bytes;
    XLAD_RETURN_IF_ERROR(Retry(abort, [&](grpc::ClientContext* context) {
      bytes.clear();
      const auto reader = stub_->GetBlob(context, request);
      Chunk chunk;
      while (reader->Read(&chunk)) bytes += chunk.data();
      return reader->Finish();
    }));
    return bytes;
  }

  // Reads a stream of chunks, which must fill `out` exactly. `open` starts the call. If `out` is empty, `total_bytes`
  // (if not null) is set to that of the chunk.
  template <typename Open>
  absl::Status ReadInto(absl::Span<std::byte> out, const std::string& what, AbortSignal* abort, const Open& open,
                        int64_t* total_bytes = nullptr) {
    size_t received = 0;
    XLAD_RETURN_IF_ERROR(Retry(abort, [&](grpc::ClientContext* context) {
      received = 0;
      const auto reader = open(context);
      Chunk chunk;
      while (reader->Read(&chunk)) {
        const size_t n = chunk.data().size();
        if (received + n <= out.size() && n > 0) std::memcpy(out.data() + received, chunk.data().data(), n);
        received += n;
        if (total_bytes != nullptr && out.empty()) *total_bytes = chunk.total_bytes();
      }
      return reader->Finish();
    }));
    if (received == out.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("found ", received, " bytes of ", what, ", expected ", out.size()));
  }

  // Writes `header` with the first chunk, then the other chunks. `produce(append)` calls `append` with the bytes in
  // order, again for each time that the call is tried.
  template <typename Request, typename Produce, typename Open>
  absl::Status Stream(const Request& header, const Produce& produce, AbortSignal* abort, const Open& open) {
    return Retry(abort, [&](grpc::ClientContext* context) {
      const auto writer = open(context);
      Request request = header;
      const auto append = [&](absl::string_view bytes) -> absl::Status {
        do {
          request.set_chunk(std::string(bytes.substr(0, kChunkBytes)));
          if (!writer->Write(request)) return absl::UnavailableError("the call has ended");  // Finish says why.
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
  absl::Status Write(const Request& header, absl::Span<const std::byte> bytes, AbortSignal* abort, const Open& open) {
    const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Stream(header, [&](const auto& append) { return append(text); }, abort, open);
  }

  Coordinator::Stub* stub() const { return stub_.get(); }
  // Whether a call waits until the coordinator can be reached.
  bool IsCutOff() const { return waiting_calls_ > 0; }

 private:
  // Calls until it succeeds, fails with an error that is not retryable, or the signal is raised, which cancels a
  // running call.
  template <typename Call>
  absl::Status Retry(AbortSignal* abort, const Call& call) {
    int64_t pause_ms = kMinPauseMs;
    std::unique_ptr<WaitingCall> waiting;
    while (!abort->raised()) {
      grpc::ClientContext context;
      PrepareCall(&context, token_, /*timeout_ms=*/0);
      const int64_t listener = abort->AddListener([&](const Failure&) { context.TryCancel(); });
      const grpc::Status status = call(&context);
      abort->RemoveListener(listener);
      if (status.ok()) return absl::OkStatus();
      if (!IsRetryable(status) && !abort->raised()) return FromGrpc(status);
      if (waiting == nullptr) waiting = std::make_unique<WaitingCall>(&waiting_calls_);
      Pause(pause_ms, abort);
      pause_ms = std::min(pause_ms * 2, kMaxPauseMs);
    }
    return abort->status();
  }

  // Counts a call from its first failure to its end.
  class WaitingCall {
   public:
    explicit WaitingCall(std::atomic<int>* count) : count_(*count) { ++count_; }
    ~WaitingCall() { --count_; }

   private:
    std::atomic<int>& count_;
  };

  // Waits up to the given time, shortened at random so that workers do not all return at once.
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
      const int64_t jitter_ms = random_->Below(static_cast<uint64_t>(pause_ms) / 2 + 1);
      woken.wait_for(lock, std::chrono::milliseconds(pause_ms - jitter_ms), [&] { return raised; });
    }
    abort->RemoveListener(listener);
  }

  const std::unique_ptr<Coordinator::Stub> stub_;
  const std::string token_;
  const std::unique_ptr<Random> random_;
  std::atomic<int> waiting_calls_ = 0;
};

// A blob of the coordinator, which verifies what it sends.
class BlobReader final : public storage::RangeReader {
 public:
  BlobReader(std::shared_ptr<GrpcStore> store, std::string digest, AbortSignal* abort)
      : store_(std::move(store)), digest_(std::move(digest)), abort_(abort) {}

  // Asks for the size.
  absl::Status Open() { return ReadRange(0, {}); }
  int64_t size() const override { return size_; }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    return out.empty() ? absl::OkStatus() : ReadRange(offset, out);
  }

 private:
  absl::Status ReadRange(int64_t offset, absl::Span<std::byte> out) {
    GetBlobRangeRequest request;
    request.set_digest(digest_);
    request.set_offset(offset);
    request.set_size(std::ssize(out));
    return store_->ReadInto(
        out, absl::StrCat("blob ", digest_), abort_,
        [&](grpc::ClientContext* context) { return store_->stub()->GetBlobRange(context, request); }, &size_);
  }

  const std::shared_ptr<GrpcStore> store_;
  const std::string digest_;
  AbortSignal* const abort_;
  int64_t size_ = 0;  // Written by Open alone.
};

class GrpcTaskStore final : public runtime::TaskStore {
 public:
  GrpcTaskStore(std::shared_ptr<grpc::Channel> channel, std::string token, const LaunchTask& launch)
      : store_(std::make_shared<GrpcStore>(std::move(channel), std::move(token))),
        checkpoints_(launch.checkpoints()),
        root_(launch.spec().checkpoint().uri().empty() ? "xlad:" : launch.spec().checkpoint().uri()),
        start_uri_(launch.checkpoint_uri()),
        start_digest_(launch.checkpoint_digest()),
        job_id_(launch.job_id()),
        attempt_(launch.attempt()) {}

  absl::StatusOr<std::string> ReadBlob(const std::string& digest, AbortSignal* abort) override {
    return store_->ReadBlob(digest, abort);
  }

  absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenTensors(const std::string& uri,
                                                                     AbortSignal* abort) override {
    const storage::Store store(RealFileSystem(), [&](const std::string& digest) { return OpenBlob(digest, abort); });
    if (uri == start_uri_ && !start_digest_.empty()) {
      XLAD_RETURN_IF_ERROR(store.CheckIndex(uri, start_digest_));
    }
    return store.OpenTensors(uri);
  }

  absl::StatusOr<CheckpointShard> WriteShard(int64_t step, const std::string& name,
                                             const storage::SerializedShard& shard, AbortSignal* abort) override {
    if (!checkpoints_) return PutState(step, shard, abort);
    XLAD_ASSIGN_OR_RETURN(const storage::Uri root, storage::ParseUri(root_));
    if (root.scheme == storage::Uri::Scheme::kFile) {
      const std::string folder = storage::CheckpointFolder(root.rest, {job_id_, attempt_, step});
      return storage::WriteShardFile(RealFileSystem(), folder, name, shard);
    }
    storage::ObjectHasher hasher;
    XLAD_RETURN_IF_ERROR(shard.WriteTo([&](absl::string_view bytes) {
      hasher.Add(bytes);
      return absl::OkStatus();
    }));
    const storage::ObjectInfo info = hasher.Finish();
    PutBlobRequest header;
    header.set_digest(info.sha256);
    PutBlobResponse response;
    XLAD_RETURN_IF_ERROR(store_->Stream(
        header, [&](const auto& append) { return shard.WriteTo(append); }, abort,
        [&](grpc::ClientContext* context) { return store_->stub()->PutBlob(context, &response); }));
    return shard.Describe(storage::BlobUri(info.sha256), info);
  }

  bool IsCutOff() const override { return store_->IsCutOff(); }

 private:
  // Sends the pieces of the state to a coordinator that assembles them.
  absl::StatusOr<CheckpointShard> PutState(int64_t step, const storage::SerializedShard& shard, AbortSignal* abort) {
    for (const storage::PieceBytes& piece : shard.pieces()) {
      PutStateShardRequest header;
      header.set_job_id(job_id_);
      header.set_attempt(attempt_);
      header.set_step(step);
      header.set_tensor(piece.tensor);
      tensor::BoxToWire(piece.box, header.mutable_box());
      PutStateShardResponse response;
      XLAD_RETURN_IF_ERROR(store_->Write(header, piece.bytes, abort, [&](grpc::ClientContext* context) {
        return store_->stub()->PutStateShard(context, &response);
      }));
    }
    return CheckpointShard();
  }

  absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenBlob(const std::string& digest, AbortSignal* abort) {
    auto reader = std::make_shared<BlobReader>(store_, digest, abort);
    XLAD_RETURN_IF_ERROR(reader->Open());
    return reader;
  }

  const std::shared_ptr<GrpcStore> store_;  // Shared with the readers of blobs.
  const bool checkpoints_;                  // The coordinator commits checkpoints.
  const std::string root_;                  // Where checkpoints are stored: a URI.
  const std::string start_uri_;             // The checkpoint that the attempt starts from; empty if it has none.
  const std::string start_digest_;          // The digest of that checkpoint's index.
  const std::string job_id_;
  const int64_t attempt_;
};

class GrpcSessionStore final : public runtime::SessionStore {
 public:
  GrpcSessionStore(std::shared_ptr<grpc::Channel> channel, std::string token, const LaunchTask& launch)
      : store_(std::move(channel), std::move(token)), session_id_(launch.job_id()) {}

  absl::StatusOr<std::string> ReadBlob(const std::string& digest, AbortSignal* abort) override {
    return store_.ReadBlob(digest, abort);
  }

  absl::Status ReadArray(int64_t array, const tensor::Box& box, absl::Span<std::byte> out,
                         AbortSignal* abort) override {
    GetArrayShardRequest request;
    request.set_session_id(session_id_);
    request.set_array(array);
    tensor::BoxToWire(box, request.mutable_box());
    const auto open = [&](grpc::ClientContext* context) { return store_.stub()->GetArrayShard(context, request); };
    return store_.ReadInto(out, absl::StrCat("array ", array, ", box ", box.ToString()), abort, open);
  }

  absl::Status WriteArray(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes,
                          AbortSignal* abort) override {
    PutArrayShardRequest header;
    header.set_session_id(session_id_);
    header.set_array(array);
    tensor::BoxToWire(box, header.mutable_box());
    PutArrayShardResponse response;
    return store_.Write(header, bytes, abort,
                        [&](grpc::ClientContext* context) { return store_.stub()->PutArrayShard(context, &response); });
  }

 private:
  GrpcStore store_;
  const std::string session_id_;
};

}  // namespace

std::unique_ptr<runtime::TaskStore> MakeGrpcTaskStore(std::shared_ptr<grpc::Channel> channel, std::string token,
                                                      const LaunchTask& launch) {
  return std::make_unique<GrpcTaskStore>(std::move(channel), std::move(token), launch);
}

std::unique_ptr<runtime::SessionStore> MakeGrpcSessionStore(std::shared_ptr<grpc::Channel> channel, std::string token,
                                                            const LaunchTask& launch) {
  return std::make_unique<GrpcSessionStore>(std::move(channel), std::move(token), launch);
}

}  // namespace xlad::worker

#include "worker/grpc_task_store.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "storage/block_sums.h"
#include "storage/checkpoint_shard.h"
#include "storage/job_uris.h"
#include "storage/store.h"
#include "worker/grpc_caller.h"

namespace xlad::worker {
namespace {

using collectives::AbortSignal;

// Calls to the coordinator.
class GrpcStore : public GrpcCaller {
 public:
  GrpcStore(std::shared_ptr<grpc::Channel> channel, std::string token)
      : GrpcCaller(std::move(token)), stub_(Coordinator::NewStub(channel)) {}

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

  Coordinator::Stub* stub() const { return stub_.get(); }

 private:
  const std::unique_ptr<Coordinator::Stub> stub_;
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

// A batch that the job's client has sent to the coordinator, or will send.
class BatchRangeReader final : public storage::RangeReader {
 public:
  BatchRangeReader(std::shared_ptr<GrpcStore> store, std::string job_id, int64_t batch, AbortSignal* abort)
      : store_(std::move(store)), job_id_(std::move(job_id)), batch_(batch), abort_(abort) {}

  // Waits for the batch, and asks for its size.
  absl::Status Open() { return ReadRange(0, {}); }
  int64_t size() const override { return size_; }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    return out.empty() ? absl::OkStatus() : ReadRange(offset, out);
  }

 private:
  absl::Status ReadRange(int64_t offset, absl::Span<std::byte> out) {
    GetBatchRangeRequest request;
    request.set_job_id(job_id_);
    request.set_batch(batch_);
    request.set_offset(offset);
    request.set_size(std::ssize(out));
    return store_->ReadInto(
        out, absl::StrCat("batch ", batch_), abort_,
        [&](grpc::ClientContext* context) { return store_->stub()->GetBatchRange(context, request); }, &size_);
  }

  const std::shared_ptr<GrpcStore> store_;
  const std::string job_id_;
  const int64_t batch_;
  AbortSignal* const abort_;
  int64_t size_ = 0;  // Written by Open alone.
};

class GrpcTaskStore final : public runtime::TaskStore {
 public:
  GrpcTaskStore(std::shared_ptr<grpc::Channel> channel, std::string token, const LaunchTask& launch)
      : store_(std::make_shared<GrpcStore>(channel, token)),
        batches_(std::make_shared<GrpcStore>(std::move(channel), std::move(token))),
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
    if (absl::StartsWith(uri, storage::kStreamUri)) return OpenBatch(uri, abort);
    const storage::Store store(RealFileSystem(), [&](const std::string& digest) { return OpenBlob(digest, abort); });
    if (uri == start_uri_ && !start_digest_.empty()) {
      XLAD_RETURN_IF_ERROR(store.CheckIndex(uri, start_digest_));
    }
    return store.OpenTensors(uri);
  }

  absl::StatusOr<CheckpointShard> WriteShard(int64_t step, const std::string& name,
                                             const storage::SerializedShard& shard, AbortSignal* abort) override {
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
  absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenBatch(const std::string& uri, AbortSignal* abort) {
    int64_t batch = 0;
    if (!absl::SimpleAtoi(absl::StripPrefix(uri, storage::kStreamUri), &batch)) {
      return absl::InvalidArgumentError(absl::StrCat("found ", uri, ", expected ", storage::kStreamUri, "BATCH"));
    }
    const auto reader = std::make_shared<BatchRangeReader>(batches_, job_id_, batch, abort);
    XLAD_RETURN_IF_ERROR(reader->Open());
    return storage::OpenSafetensors({reader}, {uri});
  }

  absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenBlob(const std::string& digest, AbortSignal* abort) {
    auto reader = std::make_shared<BlobReader>(store_, digest, abort);
    XLAD_RETURN_IF_ERROR(reader->Open());
    return reader;
  }

  const std::shared_ptr<GrpcStore> store_;    // Shared with the readers of blobs.
  const std::shared_ptr<GrpcStore> batches_;  // Its calls may wait for a client, and not for the coordinator.
  const std::string root_;                    // Where checkpoints are stored: a URI.
  const std::string start_uri_;               // The checkpoint that the attempt starts from; empty if it has none.
  const std::string start_digest_;            // The digest of that checkpoint's index.
  const std::string job_id_;
  const int64_t attempt_;
};

}  // namespace

std::unique_ptr<runtime::TaskStore> MakeGrpcTaskStore(std::shared_ptr<grpc::Channel> channel, std::string token,
                                                      const LaunchTask& launch) {
  return std::make_unique<GrpcTaskStore>(std::move(channel), std::move(token), launch);
}

absl::StatusOr<std::string> ReadBlob(std::shared_ptr<grpc::Channel> channel, const std::string& token,
                                     const std::string& digest, collectives::AbortSignal* abort) {
  return GrpcStore(std::move(channel), token).ReadBlob(digest, abort);
}

}  // namespace xlad::worker

#include "worker/grpc_task_store.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"
#include "base/log.h"
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

// Bytes of the coordinator, which are read by ranges. `Request` names them, with fields for offset and size; `name` is
// for errors; `rpc` is the method of the coordinator.
template <typename Request>
class CoordinatorReader final : public storage::RangeReader {
 public:
  using Rpc = std::unique_ptr<grpc::ClientReader<Chunk>> (Coordinator::Stub::*)(grpc::ClientContext*, const Request&);
  CoordinatorReader(std::shared_ptr<GrpcStore> store, Request what, std::string name, Rpc rpc, AbortSignal* abort)
      : store_(std::move(store)), what_(std::move(what)), name_(std::move(name)), rpc_(rpc), abort_(abort) {}

  // Asks for the size. Waits until the coordinator has the bytes.
  absl::Status Open() { return ReadRange(0, {}); }
  int64_t size() const override { return size_; }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    return out.empty() ? absl::OkStatus() : ReadRange(offset, out);
  }

 private:
  absl::Status ReadRange(int64_t offset, absl::Span<std::byte> out) {
    Request request = what_;
    request.set_offset(offset);
    request.set_size(std::ssize(out));
    return store_->ReadInto(
        out, name_, abort_, [&](grpc::ClientContext* context) { return (store_->stub()->*rpc_)(context, request); },
        &size_);
  }

  const std::shared_ptr<GrpcStore> store_;
  const Request what_;
  const std::string name_;
  const Rpc rpc_;
  AbortSignal* const abort_;
  int64_t size_ = 0;  // Written by Open alone.
};

absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenRemote(const std::shared_ptr<GrpcStore>& store,
                                                                 const std::string& digest, AbortSignal* abort) {
  GetBlobRangeRequest what;
  what.set_digest(digest);
  auto reader = std::make_shared<CoordinatorReader<GetBlobRangeRequest>>(
      store, what, absl::StrCat("blob ", digest), &Coordinator::Stub::GetBlobRange, abort);
  XLAD_RETURN_IF_ERROR(reader->Open());
  return reader;
}

absl::StatusOr<std::string> ReadBlobFrom(const std::shared_ptr<GrpcStore>& store, storage::HostCache* cache,
                                         const std::string& digest, AbortSignal* abort) {
  if (cache == nullptr) return store->ReadBlob(digest, abort);
  return cache->ReadBlob(digest, [&] { return OpenRemote(store, digest, abort); });
}

class GrpcTaskStore final : public runtime::TaskStore {
 public:
  GrpcTaskStore(BlobSource source, const LaunchTask& launch)
      : store_(std::make_shared<GrpcStore>(source.channel, source.token)),
        batches_(std::make_shared<GrpcStore>(source.channel, source.token)),
        cache_(std::move(source.cache)),
        root_(launch.spec().checkpoint().uri().empty() ? "xlad:" : launch.spec().checkpoint().uri()),
        start_uri_(launch.checkpoint_uri()),
        start_digest_(launch.checkpoint_digest()),
        job_id_(launch.job_id()),
        attempt_(launch.attempt()) {}

  ~GrpcTaskStore() override {
    if (cache_ == nullptr) return;
    LogInfo("read blobs", {{"from_this_host", absl::StrCat(cache_->found_bytes())},
                           {"from_the_coordinator", absl::StrCat(cache_->fetched_bytes())}});
  }

  absl::StatusOr<std::string> ReadBlob(const std::string& digest, AbortSignal* abort) override {
    return ReadBlobFrom(store_, cache_.get(), digest, abort);
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
    GetBatchRangeRequest what;
    what.set_job_id(job_id_);
    what.set_batch(batch);
    const auto reader = std::make_shared<CoordinatorReader<GetBatchRangeRequest>>(
        batches_, what, absl::StrCat("batch ", batch), &Coordinator::Stub::GetBatchRange, abort);
    XLAD_RETURN_IF_ERROR(reader->Open());
    return storage::OpenSafetensors({reader}, {uri});
  }

  absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenBlob(const std::string& digest, AbortSignal* abort) {
    const auto open = [store = store_, digest, abort] { return OpenRemote(store, digest, abort); };
    return cache_ == nullptr ? open() : cache_->OpenBlob(digest, open);
  }

  const std::shared_ptr<GrpcStore> store_;    // Shared with the readers of blobs.
  const std::shared_ptr<GrpcStore> batches_;  // Its calls may wait for a client, and not for the coordinator.
  const std::shared_ptr<storage::HostCache> cache_;  // Null: none.
  const std::string root_;                    // Where checkpoints are stored: a URI.
  const std::string start_uri_;               // The checkpoint that the attempt starts from; empty if it has none.
  const std::string start_digest_;            // The digest of that checkpoint's index.
  const std::string job_id_;
  const int64_t attempt_;
};

}  // namespace

std::unique_ptr<runtime::TaskStore> MakeGrpcTaskStore(BlobSource source, const LaunchTask& launch) {
  return std::make_unique<GrpcTaskStore>(std::move(source), launch);
}

absl::StatusOr<std::string> ReadBlob(const BlobSource& source, const std::string& digest, AbortSignal* abort) {
  return ReadBlobFrom(std::make_shared<GrpcStore>(source.channel, source.token), source.cache.get(), digest, abort);
}

}  // namespace xlad::worker

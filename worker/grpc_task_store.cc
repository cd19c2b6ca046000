#include "worker/grpc_task_store.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <optional>

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
  GrpcStore(std::shared_ptr<grpc::Channel> channel, std::shared_ptr<TokenFile> token,
            int64_t max_answered_ms = kMaxAnsweredMs)
      : GrpcCaller(std::move(token), max_answered_ms), stub_(Coordinator::NewStub(channel)) {}

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

// A batch that is stored on the coordinator and read by ranges.
class SpooledBatchReader final : public storage::RangeReader {
 public:
  SpooledBatchReader(std::shared_ptr<GrpcStore> store, GetBatchRangeRequest what, AbortSignal* abort)
      : store_(std::move(store)), what_(std::move(what)), abort_(abort) {}

  // Asks for the size. Waits until the coordinator has the batch.
  absl::Status Open() {
    Chunk info;
    XLAD_RETURN_IF_ERROR(ReadRange(0, {}, &info));
    size_ = info.total_bytes();
    return absl::OkStatus();
  }
  int64_t size() const override { return size_; }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    return out.empty() ? absl::OkStatus() : ReadRange(offset, out, nullptr);
  }

 private:
  absl::Status ReadRange(int64_t offset, absl::Span<std::byte> out, Chunk* info) {
    GetBatchRangeRequest request = what_;
    request.set_offset(offset);
    request.set_size(std::ssize(out));
    return store_->ReadInto(
        out, absl::StrCat("batch ", what_.batch()), abort_,
        [&](grpc::ClientContext* context) { return store_->stub()->GetBatchRange(context, request); }, info);
  }

  const std::shared_ptr<GrpcStore> store_;
  const GetBatchRangeRequest what_;
  AbortSignal* const abort_;
  int64_t size_ = 0;  // Written only by Open.
};

// A blob of the coordinator. The coordinator may name another worker of the attempt that has a range of the blob. If
// that worker does not send the range, it is read from the coordinator.
class BlobReaderWithPeers final : public storage::RangeReader {
 public:
  BlobReaderWithPeers(std::shared_ptr<GrpcStore> store, std::shared_ptr<PeerBlobs> peers, std::string digest,
                      AbortSignal* abort)
      : store_(std::move(store)), peers_(std::move(peers)), digest_(std::move(digest)), abort_(abort) {}

  absl::Status Open() {
    Chunk info;
    XLAD_RETURN_IF_ERROR(Ask(0, {}, std::nullopt, &info));
    size_ = info.total_bytes();
    return absl::OkStatus();
  }
  int64_t size() const override { return size_; }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    if (out.empty()) return absl::OkStatus();
    if (peers_ == nullptr || misses_ >= kMaxMisses) return Ask(offset, out, std::nullopt, nullptr);
    BlobReader reader;
    reader.set_job_id(peers_->hello().job_id());
    reader.set_attempt(peers_->hello().attempt());
    reader.set_worker_id(peers_->self());
    Chunk info;
    XLAD_RETURN_IF_ERROR(Ask(offset, out, reader, &info));
    if (info.peer().empty()) return absl::OkStatus();
    PeerBlobRequest request;
    request.set_digest(digest_);
    request.set_offset(offset);
    request.set_bytes(std::ssize(out));
    const absl::Status read = peers_->Read(info.peer(), request, {info.sums().begin(), info.sums().end()}, out, abort_);
    if (read.ok()) misses_ = 0;
    if (read.ok() || abort_->raised()) return read;
    LogWarn("a part of a blob is read from the coordinator, and not from another worker",
            {{"blob", digest_}, {"worker", info.peer()}, {"error", std::string(read.message())}});
    // A peer that is late or has too many readers has not failed: other workers may still read from it.
    if (absl::IsNotFound(read) || absl::IsResourceExhausted(read)) {
      misses_ += absl::IsNotFound(read);
      return Ask(offset, out, std::nullopt, nullptr);
    }
    reader.add_failed(info.peer());
    return Ask(offset, out, reader, nullptr);
  }

 private:
  // Each miss may take 3 s, the time that a peer waits. After the last one, the blob is read without peers.
  static constexpr int kMaxMisses = 3;

  // `reader` identifies this worker if the coordinator may name a peer.
  absl::Status Ask(int64_t offset, absl::Span<std::byte> out, const std::optional<BlobReader>& reader, Chunk* info) {
    GetBlobRangeRequest request;
    request.set_digest(digest_);
    request.set_offset(offset);
    request.set_size(std::ssize(out));
    if (reader.has_value()) *request.mutable_reader() = *reader;
    return store_->ReadInto(
        out, absl::StrCat("blob ", digest_), abort_,
        [&](grpc::ClientContext* context) { return store_->stub()->GetBlobRange(context, request); }, info);
  }

  const std::shared_ptr<GrpcStore> store_;
  const std::shared_ptr<PeerBlobs> peers_;  // May be null.
  const std::string digest_;
  AbortSignal* const abort_;
  int64_t size_ = 0;             // Written only by Open.
  std::atomic<int> misses_ = 0;  // The number of successive ranges that the named peers did not have in time.
};

// The sources of an attempt's blobs.
struct Blobs {
  std::shared_ptr<GrpcStore> store;
  std::shared_ptr<storage::HostCache> cache;  // Null if there is none.
  std::shared_ptr<PeerBlobs> peers;           // Null if there are none.

  // Peers serve only workers that store what they read (`is_stored`), because only these can serve others.
  absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenRemote(const std::string& digest, bool is_stored,
                                                                   AbortSignal* abort) const {
    auto reader = std::make_shared<BlobReaderWithPeers>(store, is_stored ? peers : nullptr, digest, abort);
    XLAD_RETURN_IF_ERROR(reader->Open());
    return reader;
  }
  absl::StatusOr<std::shared_ptr<storage::RangeReader>> Open(const std::string& digest, AbortSignal* abort) const {
    if (cache == nullptr) return OpenRemote(digest, /*is_stored=*/false, abort);
    return cache->OpenBlob(digest, [blobs = *this, digest, abort](bool is_stored) {
      return blobs.OpenRemote(digest, is_stored, abort);
    });
  }
  absl::StatusOr<std::string> Read(const std::string& digest, AbortSignal* abort) const {
    if (cache == nullptr) return store->ReadBlob(digest, abort);
    return cache->ReadBlob(digest, [&](bool is_stored) { return OpenRemote(digest, is_stored, abort); });
  }
};

Blobs BlobsOf(const BlobSource& source) {
  return {std::make_shared<GrpcStore>(source.channel, source.token), source.cache, source.peers};
}

class GrpcTaskStore final : public runtime::TaskStore {
 public:
  GrpcTaskStore(const BlobSource& source, const LaunchTask& launch)
      : blobs_(BlobsOf(source)),
        store_(blobs_.store),
        batches_(std::make_shared<GrpcStore>(source.channel, source.token, INT64_MAX)),
        root_(launch.spec().checkpoint().uri().empty() ? "xlad:" : launch.spec().checkpoint().uri()),
        start_uri_(launch.checkpoint_uri()),
        start_digest_(launch.checkpoint_digest()),
        job_id_(launch.job_id()),
        attempt_(launch.attempt()) {}

  ~GrpcTaskStore() override {
    if (blobs_.cache == nullptr) return;
    const int64_t from_peers = blobs_.peers == nullptr ? 0 : blobs_.peers->received_bytes();
    LogInfo("read blobs", {{"from_this_host", absl::StrCat(blobs_.cache->found_bytes())},
                           {"from_other_workers", absl::StrCat(from_peers)},
                           {"from_the_coordinator", absl::StrCat(blobs_.cache->fetched_bytes() - from_peers)}});
  }

  absl::StatusOr<std::string> ReadBlob(const std::string& digest, AbortSignal* abort) override {
    return blobs_.Read(digest, abort);
  }

  absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenTensors(const std::string& uri,
                                                                     AbortSignal* abort) override {
    if (absl::StartsWith(uri, storage::kStreamUri)) return OpenBatch(uri, abort);
    const storage::Store store(RealFileSystem(), [&](const std::string& digest) { return blobs_.Open(digest, abort); });
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
    const auto reader = std::make_shared<SpooledBatchReader>(batches_, what, abort);
    XLAD_RETURN_IF_ERROR(reader->Open());
    return storage::OpenSafetensors({reader}, {uri});
  }

  const Blobs blobs_;
  const std::shared_ptr<GrpcStore> store_;  // Shared with the readers of blobs.
  // Reads batches. It is separate because its calls may wait until a client sends a batch: until then, the coordinator
  // answers that it cannot serve them.
  const std::shared_ptr<GrpcStore> batches_;
  const std::string root_;       // The URI of the place where checkpoints are stored.
  const std::string start_uri_;  // The URI of the checkpoint from which the attempt starts, or empty if there is none.
  const std::string start_digest_;            // The digest of that checkpoint's index.
  const std::string job_id_;
  const int64_t attempt_;
};

}  // namespace

std::unique_ptr<runtime::TaskStore> MakeGrpcTaskStore(const BlobSource& source, const LaunchTask& launch) {
  return std::make_unique<GrpcTaskStore>(source, launch);
}

absl::StatusOr<std::string> ReadBlob(const BlobSource& source, const std::string& digest, AbortSignal* abort) {
  return BlobsOf(source).Read(digest, abort);
}

}  // namespace xlad::worker

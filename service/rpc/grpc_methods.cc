#include "service/rpc/grpc_methods.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/clock.h"
#include "service/rpc/grpc_session_relay.h"
#include "service/rpc/grpc_standard_calls.h"
#include "service/rpc/validate.h"
#include "storage/block_sums.h"

namespace xlad::service {
namespace {

constexpr int64_t kMaxRequestBytes = 16 << 20;  // Enough for a job of 100,000 parameters.
constexpr int64_t kMaxCallBytes = 64 << 20;     // A call of a session carries small arrays.
constexpr int64_t kMaxChunkBytes = 4 << 20;
// The smallest and the largest part of a blob that a reader is told to read from another worker. Sending a smaller part
// costs no more than naming the worker.
constexpr int64_t kMinPeerBytes = 64 << 10;
constexpr int64_t kMaxPeerBytes = 64 << 20;
constexpr int64_t kWaitForBatchMs = 5'000;  // Afterwards the caller repeats the request.
constexpr int64_t kRepeatNs = 900 * kNsPerMs;

// One request, one response: `work` returns StatusOr<Response>.
template <typename Request, typename Work>
Handler Unary(Work work) {
  return [work = std::move(work)](CallStream* stream) -> absl::Status {
    XLAD_ASSIGN_OR_RETURN(const Request request, ReadRequest<Request>(stream));
    XLAD_ASSIGN_OR_RETURN(const auto response, work(request));
    return stream->Write(response);
  };
}

// Like Unary, for work without a result. `work` also gets the name of the caller for the log.
template <typename Request, typename Response, typename Work>
Handler Command(Work work) {
  return [work = std::move(work)](CallStream* stream) -> absl::Status {
    XLAD_ASSIGN_OR_RETURN(const Request request, ReadRequest<Request>(stream));
    XLAD_RETURN_IF_ERROR(work(request, stream->access().caller.actor));
    return stream->Write(Response());
  };
}

absl::Status PutBlob(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(PutBlobRequest request, ReadRequest<PutBlobRequest>(stream));
  stream->ReadAhead();
  XLAD_ASSIGN_OR_RETURN(const auto upload, engine->blobs().BeginUpload(request.digest()));
  bool found = true;
  while (found) {
    XLAD_RETURN_IF_ERROR(upload->Append(request.chunk()));
    XLAD_ASSIGN_OR_RETURN(found, stream->Read(&request));
  }
  XLAD_RETURN_IF_ERROR(upload->Finish());
  return stream->Write(PutBlobResponse());
}

// Sends a part of a blob, with one chunk in memory at a time. The first message has the size of the blob.
absl::Status WriteRange(storage::RangeReader& blob, int64_t offset, int64_t size, CallStream* stream) {
  Chunk chunk;
  chunk.set_total_bytes(blob.size());
  const int64_t end = offset + size;
  do {
    // Chunks end at the ends of blocks, so that each block is read and verified once.
    const int64_t next = std::min(end, (offset / storage::kBlockBytes + 1) * storage::kBlockBytes);
    XLAD_ASSIGN_OR_RETURN(*chunk.mutable_data(), storage::ReadString(blob, offset, next - offset));
    XLAD_RETURN_IF_ERROR(stream->Write(chunk));
    chunk.clear_total_bytes();
    offset = next;
  } while (offset < end);
  return absl::OkStatus();
}

// Sends the range of `blob` that `request` names. In an error, `what` names the blob.
template <typename Request>
absl::Status WriteCheckedRange(storage::RangeReader& blob, const Request& request, const std::string& what,
                               CallStream* stream) {
  const int64_t offset = request.offset(), size = request.size();
  if (offset < 0 || size < 0 || offset > blob.size() || size > blob.size() - offset) {
    return absl::OutOfRangeError(absl::StrCat("found the range of ", size, " bytes from ", offset,
                                              ", expected one inside the ", blob.size(), " bytes of ", what));
  }
  return WriteRange(blob, offset, size, stream);
}

absl::Status GetBlob(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(const auto request, ReadRequest<GetBlobRequest>(stream));
  XLAD_ASSIGN_OR_RETURN(const auto blob, engine->blobs().OpenBlob(request.digest(), ClientCheck(stream)));
  return WriteRange(*blob, 0, blob->size(), stream);
}

// Returns the worker from which the caller must read the range, and the checksums of the range. If no worker is named,
// the coordinator sends the bytes.
Chunk PeerFor(const GetBlobRangeRequest& request, int64_t blob_bytes, CallStream* stream, Engine* engine) {
  Chunk chunk;
  chunk.set_total_bytes(blob_bytes);
  const security::Role role = stream->access().caller.role;
  const bool is_worker = role == security::Role::kWorker || role == security::Role::kOwner;
  const int64_t end = request.offset() + request.size();
  const bool are_blocks = request.offset() % storage::kBlockBytes == 0 && end <= blob_bytes &&
                          (end % storage::kBlockBytes == 0 || end == blob_bytes);
  const bool is_worth_it = request.size() >= kMinPeerBytes && request.size() <= kMaxPeerBytes;
  if (!request.has_reader() || !is_worker || !are_blocks || !is_worth_it) return chunk;
  const BlobReader& reader = request.reader();
  const int64_t first = request.offset() / storage::kBlockBytes;
  const int64_t last = (end + storage::kBlockBytes - 1) / storage::kBlockBytes;
  const std::string peer = engine->blob_peers().Choose(
      {reader.job_id(), reader.attempt(), reader.worker_id(), {reader.failed().begin(), reader.failed().end()}},
      request.digest(), first, last);
  if (peer.empty()) return chunk;
  const absl::StatusOr<storage::BlockSums> sums = engine->blobs().SumsOf(request.digest(), ClientCheck(stream));
  if (!sums.ok() || sums->block_bytes != storage::kBlockBytes || std::ssize(sums->sums) < last) return chunk;
  chunk.set_peer(peer);
  for (int64_t block = first; block < last; ++block) chunk.add_sums(sums->sums[block]);
  return chunk;
}

absl::Status GetBlobRange(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(const auto request, ReadRequest<GetBlobRangeRequest>(stream));
  XLAD_ASSIGN_OR_RETURN(const auto blob, engine->blobs().OpenBlob(request.digest(), ClientCheck(stream)));
  const Chunk peer = PeerFor(request, blob->size(), stream, engine);
  if (!peer.peer().empty()) return stream->Write(peer);
  return WriteCheckedRange(*blob, request, absl::StrCat("blob ", request.digest()), stream);
}

absl::Status GetTrace(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(const auto request, ReadRequest<GetTraceRequest>(stream));
  XLAD_ASSIGN_OR_RETURN(const std::string file, engine->Trace(request.job_id()));
  const auto reader = storage::MakeMemoryReader(file);
  return WriteRange(*reader, 0, reader->size(), stream);
}

absl::Status PutBatch(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(PutBatchRequest request, ReadRequest<PutBatchRequest>(stream));
  const std::string job_id = request.job_id();
  const int64_t batch = request.batch();
  const bool last = request.last(), has_contents = !request.chunk().empty();
  XLAD_ASSIGN_OR_RETURN(PutBatchResponse response, engine->NextBatch(job_id));
  if (response.ended() || (!has_contents && !last) || batch != response.next()) return stream->Write(response);
  if (has_contents) {
    XLAD_ASSIGN_OR_RETURN(const bool room, engine->spool().WaitForRoom(job_id, kWaitForBatchMs));
    if (!room) return stream->Write(response);
    XLAD_ASSIGN_OR_RETURN(const auto arrival, engine->spool().Begin(job_id, batch));
    stream->ReadAhead();
    for (bool found = true; found;) {
      XLAD_RETURN_IF_ERROR(arrival->Append(request.chunk()));
      XLAD_ASSIGN_OR_RETURN(found, stream->Read(&request));
    }
    XLAD_RETURN_IF_ERROR(arrival->Finish());
    response.set_next(batch + 1);
  }
  if (last) XLAD_RETURN_IF_ERROR(engine->spool().End(job_id, response.next()));
  response.set_accepted(true);
  return stream->Write(response);
}

absl::Status GetBatchRange(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(const auto request, ReadRequest<GetBatchRangeRequest>(stream));
  // A worker may ask before the client has sent any batch.
  if (!engine->spool().Has(request.job_id())) XLAD_RETURN_IF_ERROR(engine->NextBatch(request.job_id()).status());
  XLAD_ASSIGN_OR_RETURN(const auto batch, engine->spool().Read(request.job_id(), request.batch(), kWaitForBatchMs));
  const std::string what = absl::StrCat("batch ", request.batch(), " of job ", request.job_id());
  return WriteCheckedRange(*batch, request, what, stream);
}

// Follows a job: sends its status when it changes and about once per second, and each step's metrics once.
class JobFollower final : public Follower {
 public:
  JobFollower(Engine* engine, WatchJobRequest request) : engine_(engine), request_(std::move(request)) {}

  absl::StatusOr<Update> Next() override {
    XLAD_ASSIGN_OR_RETURN(const WatchJobResponse response, engine_->Watch(request_));
    const int count = response.metrics_size();
    if (count > 0) request_.set_from_step(response.metrics(count - 1).step() + 1);
    Update update;
    std::string status = response.status().SerializeAsString();
    const int64_t now_ns = RealClock().NowNs();
    if (count > 0 || status != last_ || now_ns - sent_ns_ > kRepeatNs) {
      update.message = ToByteBuffer(response);
      sent_ns_ = now_ns;
    }
    last_ = std::move(status);
    update.last = HasEnded(response.status().state()) && count < Engine::kMetricsPerUpdate;
    return update;
  }

 private:
  Engine* const engine_;
  WatchJobRequest request_;
  std::string last_;  // The latest status, serialized.
  int64_t sent_ns_ = 0;
};

// Holds a session and follows its status.
class SessionHolder final : public Follower {
 public:
  SessionHolder(Engine* engine, std::string id) : engine_(engine), id_(std::move(id)) {}
  ~SessionHolder() override { engine_->ReleaseSession(id_, held_); }

  absl::StatusOr<Update> Next() override {
    XLAD_ASSIGN_OR_RETURN(const JobStatus job, engine_->HoldSession(id_, &held_));
    Update update;
    JobStatus shown = job;
    shown.clear_step();  // A change of only the number of commands is not reported.
    std::string text = shown.SerializeAsString();
    if (text != last_) update.message = ToByteBuffer(job);
    last_ = std::move(text);
    update.last = HasEnded(job.state());
    return update;
  }

 private:
  Engine* const engine_;
  const std::string id_;
  int64_t held_ = 0;  // The term in which the session is held.
  std::string last_;
};

// Waits until a session runs, and sends one message: the place of the session.
class SessionLocator final : public Follower {
 public:
  SessionLocator(Engine* engine, std::string id) : engine_(engine), id_(std::move(id)) {}

  absl::StatusOr<Update> Next() override {
    XLAD_ASSIGN_OR_RETURN(const std::optional<LocateSessionResponse> place, engine_->LocateSession(id_));
    if (!place.has_value()) return Update();
    return Update{ToByteBuffer(*place), /*last=*/true};
  }

 private:
  Engine* const engine_;
  const std::string id_;
};

using FollowerOr = absl::StatusOr<std::unique_ptr<Follower>>;

KeyOfJob KeysOf(Engine* engine) {
  return [engine](const std::string& job_id) -> absl::StatusOr<std::string> {
    XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> keys, engine->ClientKeys({job_id}));
    if (keys.front().empty()) return absl::NotFoundError(absl::StrCat("found no job ", job_id));
    return keys.front();
  };
}

FollowerOr FollowJob(Engine* engine, const CallerAccess& access, const grpc::ByteBuffer& buffer) {
  WatchJobRequest request;
  XLAD_RETURN_IF_ERROR(FromByteBuffer(buffer, kMaxRequestBytes, &request));
  XLAD_RETURN_IF_ERROR(Validate(request));
  XLAD_RETURN_IF_ERROR(CheckJobOf(access, KeysOf(engine), request.job_id()));
  return std::make_unique<JobFollower>(engine, std::move(request));
}

// Returns the id of a session that the caller may see.
template <typename Request>
absl::StatusOr<std::string> SessionOf(Engine* engine, const CallerAccess& access, const grpc::ByteBuffer& buffer) {
  Request request;
  XLAD_RETURN_IF_ERROR(FromByteBuffer(buffer, kMaxRequestBytes, &request));
  XLAD_RETURN_IF_ERROR(Validate(request));
  XLAD_RETURN_IF_ERROR(CheckJobOf(access, KeysOf(engine), request.session_id()));
  return request.session_id();
}

FollowerOr HoldSession(Engine* engine, const CallerAccess& access, const grpc::ByteBuffer& buffer) {
  XLAD_ASSIGN_OR_RETURN(std::string id, SessionOf<HoldSessionRequest>(engine, access, buffer));
  return std::make_unique<SessionHolder>(engine, std::move(id));
}

FollowerOr LocateSession(Engine* engine, const CallerAccess& access, const grpc::ByteBuffer& buffer) {
  XLAD_ASSIGN_OR_RETURN(std::string id, SessionOf<LocateSessionRequest>(engine, access, buffer));
  return std::make_unique<SessionLocator>(engine, std::move(id));
}

// Existing blobs are read, so that the client uploads damaged ones again. Reading a blob takes less time than an
// upload. Each blob is read once, because a small request can name a large blob thousands of times.
absl::Status HasBlobs(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(const HasBlobsRequest request, ReadRequest<HasBlobsRequest>(stream));
  HasBlobsResponse response;
  std::set<absl::string_view> seen;
  for (const std::string& digest : request.digests()) {
    if (!seen.insert(digest).second) continue;
    XLAD_RETURN_IF_ERROR(stream->CheckClient());
    XLAD_ASSIGN_OR_RETURN(const bool is_whole, engine->blobs().Verify(digest, ClientCheck(stream)));
    if (!is_whole) response.add_missing(digest);
  }
  return stream->Write(response);
}

// Refuses a spec that the caller may not submit, and makes the caller the owner of the job.
absl::Status SubmitJob(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(SubmitJobRequest request, ReadRequest<SubmitJobRequest>(stream));
  const security::Caller& caller = stream->access().caller;
  XLAD_RETURN_IF_ERROR(CheckSpecOf(caller, request.spec()));
  const std::string& resume = request.spec().resume();
  if (!resume.empty() && resume.find(':') == std::string::npos) XLAD_RETURN_IF_ERROR(stream->CheckJob(resume));
  request.set_client_key(OwnedKey(caller, request.client_key()));
  XLAD_ASSIGN_OR_RETURN(const SubmitJobResponse response, engine->Submit(request, caller.actor));
  return stream->Write(response);
}

absl::Status OpenSession(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(OpenSessionRequest request, ReadRequest<OpenSessionRequest>(stream));
  const security::Caller& caller = stream->access().caller;
  request.set_client_key(OwnedKey(caller, request.client_key()));
  XLAD_ASSIGN_OR_RETURN(const OpenSessionResponse response, engine->OpenSession(request, caller.actor));
  return stream->Write(response);
}

absl::Status LoadProgram(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(const auto request, ReadRequest<LoadProgramRequest>(stream));
  XLAD_ASSIGN_OR_RETURN(const LoadProgramResponse response, engine->LoadProgram(request, ClientCheck(stream)));
  return stream->Write(response);
}

// Returns a function that says whether the caller may see a job. `access` must outlive it.
std::function<bool(const Job&)> ShowsTo(const CallerAccess& access) {
  return [&access](const Job& job) { return MaySee(access, job.client_key); };
}

// Lists the jobs that the caller may see.
absl::Status ListJobs(Engine* engine, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(const ListJobsRequest request, ReadRequest<ListJobsRequest>(stream));
  XLAD_ASSIGN_OR_RETURN(const ListJobsResponse response, engine->ListJobs(request, ShowsTo(stream->access())));
  return stream->Write(response);
}

// Lists the workers. The ids of jobs that the caller may not see are left out.
absl::Status ListWorkers(Engine* engine, CallStream* stream) {
  XLAD_RETURN_IF_ERROR(ReadRequest<ListWorkersRequest>(stream).status());
  XLAD_ASSIGN_OR_RETURN(const ListWorkersResponse response, engine->ListWorkers(ShowsTo(stream->access())));
  return stream->Write(response);
}

void AddJobs(Engine* e, HandlerPools* pools, CallTable* table) {
  const auto add = [&](const char* name, Handler handler) {
    table->methods[name] = {&pools->requests, kMaxRequestBytes, std::move(handler)};
  };
  add("SubmitJob", [e](CallStream* stream) { return SubmitJob(e, stream); });
  add("ListJobs", [e](CallStream* stream) { return ListJobs(e, stream); });
  add("GetJob", Unary<GetJobRequest>([e](const auto& request) { return e->GetJob(request.job_id()); }));
  add("CancelJob", Command<CancelJobRequest, CancelJobResponse>([e](const auto& request, const std::string& actor) {
        return e->Cancel(request.job_id(), actor);
      }));
  add("JobLog", Unary<JobLogRequest>([e](const auto& request) { return e->Log(request); }));
  add("WhyJob", Unary<WhyJobRequest>([e](const auto& request) { return e->Why(request.job_id()); }));
  add("ResizeJob", Command<ResizeJobRequest, ResizeJobResponse>(
                       [e](const auto& request, const std::string& actor) { return e->Resize(request, actor); }));
}

void AddAdministration(Engine* e, HandlerPools* pools, CallTable* table) {
  const auto add = [&](const char* name, Handler handler) {
    table->methods[name] = {&pools->requests, kMaxRequestBytes, std::move(handler)};
  };
  add("ListWorkers", [e](CallStream* stream) { return ListWorkers(e, stream); });
  add("DrainWorker",
      Command<DrainWorkerRequest, DrainWorkerResponse>(
          [e](const auto& request, const std::string& actor) { return e->Drain(request.worker_id(), actor); }));
  add("UndrainWorker",
      Command<UndrainWorkerRequest, UndrainWorkerResponse>(
          [e](const auto& request, const std::string& actor) { return e->Undrain(request.worker_id(), actor); }));
  add("GetStatus",
      Unary<GetStatusRequest>([e](const auto&) -> absl::StatusOr<CoordinatorStatus> { return e->Status(); }));
  table->methods["Backup"] = {&pools->disk, kMaxRequestBytes,
                              Unary<BackupRequest>([e](const auto& request) { return e->Backup(request.folder()); })};
}

void AddSessions(Engine* e, HandlerPools* pools, CallTable* table) {
  const auto add = [&](const std::string& name, HandlerPool* pool, Handler handler) {
    table->methods[name] = {pool, kMaxCallBytes, std::move(handler)};
  };
  add("OpenSession", &pools->requests, [e](CallStream* stream) { return OpenSession(e, stream); });
  add("LoadProgram", &pools->sessions, [e](CallStream* stream) { return LoadProgram(e, stream); });
  add("CloseSession", &pools->requests,
      Command<CloseSessionRequest, CloseSessionResponse>(
          [e](const auto& request, const std::string& actor) { return e->CloseSession(request.session_id(), actor); }));
  // The other calls of a session are forwarded to its first worker.
  for (const auto& [name, relay] : SessionRelays(e)) add(name, &pools->sessions, relay);
}

void AddTransfers(Engine* e, HandlerPools* pools, CallTable* table) {
  const auto add = [&](const char* name, HandlerPool* pool, Handler handler) {
    table->methods[name] = {pool, kMaxChunkBytes, std::move(handler)};
  };
  add("HasBlobs", &pools->disk, [e](CallStream* stream) { return HasBlobs(e, stream); });
  add("GetBlob", &pools->reads, [e](CallStream* stream) { return GetBlob(e, stream); });
  add("GetBlobRange", &pools->reads, [e](CallStream* stream) { return GetBlobRange(e, stream); });
  add("GetTrace", &pools->reads, [e](CallStream* stream) { return GetTrace(e, stream); });
  add("PutBatch", &pools->feeds, [e](CallStream* stream) { return PutBatch(e, stream); });
  add("GetBatchRange", &pools->batches, [e](CallStream* stream) { return GetBatchRange(e, stream); });
  add("PutBlob", &pools->uploads, [e](CallStream* stream) { return PutBlob(e, stream); });
}

}  // namespace

void HandlerPools::Stop() {
  for (HandlerPool* pool : {&requests, &sessions, &batches, &feeds, &disk, &reads, &uploads}) pool->Stop();
}

CallTable MakeCallTable(const Serving& serving) {
  CallTable table;
  table.key_of_job = KeysOf(serving.engine);
  table.message_limits = serving.message_limits;
  AddJobs(serving.engine, serving.pools, &table);
  AddAdministration(serving.engine, serving.pools, &table);
  AddSessions(serving.engine, serving.pools, &table);
  AddTransfers(serving.engine, serving.pools, &table);
  AddStandardCalls(serving, &table);
  table.reactors["Attach"] = [serving](grpc::GenericCallbackServerContext* context, const CallerAccess& access) {
    return MakeWorkerStream(serving.engine, serving.worker_messages, serving.message_limits, context, access);
  };
  const auto add_follower = [&](const char* name,
                                FollowerOr (*open)(Engine*, const CallerAccess&, const grpc::ByteBuffer&)) {
    table.reactors[name] = [serving, open](grpc::GenericCallbackServerContext* context, const CallerAccess& access) {
      const auto follow = [engine = serving.engine, open, access](const grpc::ByteBuffer& request) {
        return open(engine, access, request);
      };
      return serving.followers->MakeStream(context, access, follow);
    };
  };
  add_follower("WatchJob", FollowJob);
  add_follower("HoldSession", HoldSession);
  add_follower("LocateSession", LocateSession);
  return table;
}

}  // namespace xlad::service

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/hash.h"
#include "client/coordinator_client.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::client {
namespace {

constexpr int64_t kCallTimeoutMs = 30'000;
constexpr int64_t kTransferTimeoutMs = 600'000;
constexpr int64_t kRepeatMs = 30'000;  // No attempt of a repeated call begins later than this after the first.
constexpr std::chrono::milliseconds kPause{200};
constexpr int64_t kChunkBytes = 1 << 20;

// This class has more than 25 methods: one for each call of the interface, and those that several calls share.
class GrpcCoordinatorClient final : public CoordinatorClient {
 public:
  GrpcCoordinatorClient(const Endpoint& endpoint, std::shared_ptr<TokenFile> token,
                        const std::shared_ptr<grpc::Channel>& channel)
      : endpoint_(endpoint), token_(std::move(token)), stub_(Coordinator::NewStub(channel)) {}

  absl::StatusOr<std::string> Submit(const Job& job, const std::string& client_key) override {
    HasBlobsRequest has;
    for (const std::string& digest : {job.spec.program_blob(), job.spec.state_blob(), job.spec.data_blob()}) {
      if (!digest.empty()) has.add_digests(digest);
    }
    // The first call is not repeated, so that a wrong address is an error at once.
    XLAD_ASSIGN_OR_RETURN(const HasBlobsResponse blobs, Call(&Coordinator::Stub::HasBlobs, has));
    for (const std::string& missing : blobs.missing()) {
      XLAD_RETURN_IF_ERROR(Repeat([&] {
        if (missing == job.spec.program_blob()) return PutBlob(missing, std::ssize(job.program), PartsOf(job.program));
        return PutFile(missing, missing == job.spec.state_blob() ? job.state_path : job.data_path);
      }));
    }
    SubmitJobRequest request;
    request.set_client_key(client_key);
    *request.mutable_spec() = job.spec;
    absl::StatusOr<SubmitJobResponse> response;
    XLAD_RETURN_IF_ERROR(Repeat([&] {
      response = Call(&Coordinator::Stub::SubmitJob, request);
      return response.status();
    }));
    return response->job_id();
  }

  absl::Status Watch(const std::string& job_id, int64_t patience_ms,
                     const std::function<bool(const WatchJobResponse&)>& on_update) override {
    Watching at;
    at.request.set_job_id(job_id);
    while (true) {
      const absl::Status status = WithToken(/*timeout_ms=*/0, [&](grpc::ClientContext* context) {
        return WatchUntilDisconnected(context, on_update, &at);
      });
      if (at.done) return absl::OkStatus();
      if (!status.ok() && !absl::IsUnavailable(status)) return status;
      const int64_t now_ns = RealClock().NowNs();
      if (at.lost_ns == 0) at.lost_ns = now_ns;
      if (now_ns - at.lost_ns > patience_ms * kNsPerMs) return status;
      std::this_thread::sleep_for(kPause);
    }
  }

  absl::StatusOr<std::vector<JobStatus>> ListJobs(const ListJobsRequest& first) override {
    std::vector<JobStatus> jobs;
    ListJobsRequest request = first;
    do {
      XLAD_ASSIGN_OR_RETURN(const ListJobsResponse page, Call(&Coordinator::Stub::ListJobs, request));
      jobs.insert(jobs.end(), page.jobs().begin(), page.jobs().end());
      request.set_after(page.next());
    } while (!request.after().empty());
    return jobs;
  }

  absl::StatusOr<JobStatus> GetJob(const std::string& job_id) override {
    GetJobRequest request;
    request.set_job_id(job_id);
    return Call(&Coordinator::Stub::GetJob, request);
  }

  absl::Status Cancel(const std::string& job_id) override {
    CancelJobRequest request;
    request.set_job_id(job_id);
    return Call(&Coordinator::Stub::CancelJob, request).status();
  }

  absl::Status Resize(const std::string& job_id, const std::vector<MeshAxis>& mesh, int64_t devices) override {
    ResizeJobRequest request;
    request.set_job_id(job_id);
    request.set_devices(devices);
    for (const MeshAxis& axis : mesh) *request.add_mesh() = axis;
    return Call(&Coordinator::Stub::ResizeJob, request).status();
  }

  absl::StatusOr<WhyJobResponse> Why(const std::string& job_id) override {
    WhyJobRequest request;
    request.set_job_id(job_id);
    return Call(&Coordinator::Stub::WhyJob, request);
  }

  absl::StatusOr<JobLogResponse> Log(const std::string& job_id) override {
    JobLogRequest request;
    request.set_job_id(job_id);
    JobLogResponse all;
    while (true) {
      XLAD_ASSIGN_OR_RETURN(const JobLogResponse page, Call(&Coordinator::Stub::JobLog, request));
      for (const JobLogResponse::Event& event : page.events()) *all.add_events() = event;
      if (!page.more() || page.events().empty()) return all;
      request.set_after_sequence(page.events(page.events_size() - 1).sequence());
    }
  }

  absl::StatusOr<std::string> Trace(const std::string& job_id) override {
    GetTraceRequest request;
    request.set_job_id(job_id);
    return ReadChunks([&](grpc::ClientContext* context) { return stub_->GetTrace(context, request); });
  }

  absl::StatusOr<ListWorkersResponse> ListWorkers() override {
    return Call(&Coordinator::Stub::ListWorkers, ListWorkersRequest());
  }

  absl::Status DrainWorker(const std::string& worker_id) override {
    DrainWorkerRequest request;
    request.set_worker_id(worker_id);
    return Call(&Coordinator::Stub::DrainWorker, request).status();
  }

  absl::Status UndrainWorker(const std::string& worker_id) override {
    UndrainWorkerRequest request;
    request.set_worker_id(worker_id);
    return Call(&Coordinator::Stub::UndrainWorker, request).status();
  }

  absl::StatusOr<CoordinatorStatus> Status() override {
    return Call(&Coordinator::Stub::GetStatus, GetStatusRequest());
  }

  absl::StatusOr<BackupResponse> Backup(const std::string& folder) override {
    BackupRequest request;
    request.set_folder(folder);
    return Call(&Coordinator::Stub::Backup, request, kTransferTimeoutMs);
  }

  absl::StatusOr<std::string> GetBlob(const std::string& digest) override {
    GetBlobRequest request;
    request.set_digest(digest);
    XLAD_ASSIGN_OR_RETURN(std::string bytes, ReadChunks([&](grpc::ClientContext* context) {
                            return stub_->GetBlob(context, request);
                          }));
    if (Sha256Hex(bytes) != digest) {
      return absl::DataLossError(
          absl::StrCat("found contents that do not match blob ", digest, " in the coordinator's reply"));
    }
    return bytes;
  }

  absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenBlob(const std::string& digest) override {
    int64_t size = 0;
    XLAD_RETURN_IF_ERROR(Repeat([&] { return GetBlobRange(digest, 0, {}, &size); }));
    return std::make_shared<BlobReader>(this, digest, size);
  }

 private:
  // Repeats the call while the coordinator cannot be reached, but begins no attempt later than kRepeatMs after the
  // first. An attempt may itself take longer, because it may transfer a large blob: its limit is its own deadline. If
  // the connection breaks, keepalive ends the attempt within seconds. Returns the last status.
  template <typename Attempt>
  static absl::Status Repeat(const Attempt& attempt) {
    const int64_t give_up_ns = RealClock().NowNs() + kRepeatMs * kNsPerMs;
    while (true) {
      const absl::Status status = attempt();
      const bool may_succeed_later = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
      if (!may_succeed_later || RealClock().NowNs() > give_up_ns) return status;
      std::this_thread::sleep_for(kPause);
    }
  }

  // Reads ranges of a blob without checking its hash, because the coordinator verifies the bytes that it sends.
  class BlobReader final : public storage::RangeReader {
   public:
    BlobReader(GrpcCoordinatorClient* client, std::string digest, int64_t size)
        : client_(client), digest_(std::move(digest)), size_(size) {}
    int64_t size() const override { return size_; }
    absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
      return Repeat([&] { return client_->GetBlobRange(digest_, offset, out, nullptr); });
    }

   private:
    GrpcCoordinatorClient* const client_;
    const std::string digest_;
    const int64_t size_;
  };

  // Makes a call: `attempt` receives a context with the present token and the deadline. If the token is refused and its
  // file has another one by then, makes the call again. Returns the status of the last attempt.
  template <typename Attempt>
  absl::Status WithToken(int64_t timeout_ms, const Attempt& attempt) const {
    while (true) {
      grpc::ClientContext context;
      const std::string token = token_->Token();
      PrepareCall(&context, token, timeout_ms);
      const absl::Status status = attempt(&context);
      if (!absl::IsUnauthenticated(status) || !token_->HasOther(token)) return status;
    }
  }

  // Returns the data of all chunks of the call that `open` starts.
  template <typename Open>
  absl::StatusOr<std::string> ReadChunks(const Open& open) const {
    std::string bytes;
    XLAD_RETURN_IF_ERROR(WithToken(kTransferTimeoutMs, [&](grpc::ClientContext* context) {
      bytes.clear();
      const auto reader = open(context);
      Chunk chunk;
      while (reader->Read(&chunk)) bytes += chunk.data();
      return ToStatus(reader->Finish());
    }));
    return bytes;
  }

  // Fills `out` with the bytes from `offset` on. If `size` is not null, sets *size to the size of the blob.
  absl::Status GetBlobRange(const std::string& digest, int64_t offset, absl::Span<std::byte> out, int64_t* size) {
    GetBlobRangeRequest request;
    request.set_digest(digest);
    request.set_offset(offset);
    request.set_size(std::ssize(out));
    size_t received = 0;
    XLAD_RETURN_IF_ERROR(WithToken(kTransferTimeoutMs, [&](grpc::ClientContext* context) {
      const auto reader = stub_->GetBlobRange(context, request);
      received = 0;
      Chunk chunk;
      for (bool first = true; reader->Read(&chunk); first = false) {
        if (first && size != nullptr) *size = chunk.total_bytes();
        const size_t n = chunk.data().size();
        if (received + n <= out.size() && n > 0) std::memcpy(out.data() + received, chunk.data().data(), n);
        received += n;
      }
      return ToStatus(reader->Finish());
    }));
    if (received == out.size()) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("found ", received, " bytes of blob ", digest, " in the reply, expected ", out.size()));
  }

  absl::Status ToStatus(const grpc::Status& status) const {
    if (status.ok()) return absl::OkStatus();
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      if (!status.error_details().empty()) {
        return absl::UnavailableError(
            absl::StrCat("coordinator ", endpoint_.address, " cannot serve the call now: ", status.error_message()));
      }
      const std::string advice = AdviceToJoin(endpoint_);
      return absl::UnavailableError(absl::StrCat(
          "coordinator ", endpoint_.address, " cannot be reached: ", status.error_message(),
          advice.empty() ? "; xlad up starts one on this machine, and --coordinator HOST:PORT names another one"
                         : advice));
    }
    // This client ignores the status of calls that it cancels itself, so the coordinator, which is stopping, has
    // canceled this call.
    if (status.error_code() == grpc::StatusCode::CANCELLED) {
      return absl::UnavailableError(absl::StrCat("coordinator ", endpoint_.address, " ended the call"));
    }
    return absl::Status(code, status.error_message());
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Coordinator::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                          Response*),
                                const Request& request, int64_t timeout_ms = kCallTimeoutMs) {
    Response response;
    XLAD_RETURN_IF_ERROR(WithToken(timeout_ms, [&](grpc::ClientContext* context) {
      return ToStatus((stub_.get()->*method)(context, request, &response));
    }));
    return response;
  }

  // Returns the bytes [offset, offset + size) of a blob.
  using ReadPart = std::function<absl::StatusOr<std::string>(int64_t offset, int64_t size)>;

  static ReadPart PartsOf(const std::string& bytes) {
    return [&bytes](int64_t offset, int64_t size) { return bytes.substr(offset, size); };
  }

  absl::Status PutFile(const std::string& digest, const std::string& path) {
    XLAD_ASSIGN_OR_RETURN(const int64_t size, RealFileSystem().Size(path));
    return PutBlob(digest, size, [&](int64_t offset, int64_t part) {
      return RealFileSystem().ReadRange(path, offset, part);
    });
  }

  // The coordinator compares the bytes with the digest.
  absl::Status PutBlob(const std::string& digest, int64_t size, const ReadPart& read) {
    return WithToken(kTransferTimeoutMs,
                     [&](grpc::ClientContext* context) { return TryPutBlob(context, digest, size, read); });
  }

  absl::Status TryPutBlob(grpc::ClientContext* context, const std::string& digest, int64_t size, const ReadPart& read) {
    PutBlobResponse response;
    const auto writer = stub_->PutBlob(context, &response);
    PutBlobRequest request;
    request.set_digest(digest);
    for (int64_t offset = 0; offset == 0 || offset < size; offset += kChunkBytes) {
      absl::StatusOr<std::string> part = read(offset, std::min(kChunkBytes, size - offset));
      if (!part.ok()) {
        context->TryCancel();
        (void)writer->Finish();
        return part.status();
      }
      request.set_chunk(*std::move(part));
      if (!writer->Write(request)) break;
      request.clear_digest();
    }
    writer->WritesDone();
    return ToStatus(writer->Finish());
  }

  // The position of a Watch.
  struct Watching {
    WatchJobRequest request;  // Its from_step is the step after the last one that was passed on.
    int64_t lost_ns = 0;      // When the connection was lost, or 0 while it works.
    bool done = false;        // Whether the job has ended or on_update has returned false.
  };

  // Watches over one connection.
  absl::Status WatchUntilDisconnected(grpc::ClientContext* context,
                                      const std::function<bool(const WatchJobResponse&)>& on_update, Watching* at) {
    const auto reader = stub_->WatchJob(context, at->request);
    WatchJobResponse response;
    bool ended = false;
    while (!at->done && reader->Read(&response)) {
      at->lost_ns = 0;
      for (const StepMetrics& metrics : response.metrics()) {
        at->request.set_from_step(std::max(at->request.from_step(), metrics.step() + 1));
      }
      at->done = !on_update(response);
      ended = HasEnded(response.status().state());
    }
    if (at->done) context->TryCancel();
    const grpc::Status status = reader->Finish();
    // The stream of an ended job continues until all metrics are sent.
    at->done = at->done || (ended && status.ok());
    if (at->done) return absl::OkStatus();
    // The job has not ended, so the coordinator is shutting down.
    return status.ok() ? absl::UnavailableError("the coordinator ended the stream") : ToStatus(status);
  }

  const Endpoint endpoint_;
  const std::shared_ptr<TokenFile> token_;
  const std::unique_ptr<Coordinator::Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorClient>> CoordinatorClient::Connect(const Endpoint& endpoint) {
  XLAD_ASSIGN_OR_RETURN(std::shared_ptr<TokenFile> token, TokenFile::Open(endpoint.token_file));
  XLAD_ASSIGN_OR_RETURN(const auto channel, MakeChannel(endpoint));
  return std::make_unique<GrpcCoordinatorClient>(endpoint, std::move(token), channel);
}

}  // namespace xlad::client

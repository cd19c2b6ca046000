#include "service/rpc/validate.h"

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "base/net/network.h"
#include "base/quoted.h"
#include "service/placement/device_mix.h"
#include "service/state/worker.h"
#include "storage/uri.h"
#include "tensor/safetensors.h"
#include "tensor/wire.h"

namespace xlad::service {
namespace {

constexpr int kMaxDimensions = 64;
constexpr int kMaxEntries = 1 << 20;  // The maximum number of entries in a repeated field.
// The maximum number of kinds of device in a report, of places of its collectives, and of kinds of memory in an offer.
constexpr int kMaxKinds = 64;
constexpr int kMaxOffers = 1024;
constexpr int64_t kMaxTimeNs = (int64_t{1} << 62) - 1;  // The sum and the difference of two times do not overflow.
constexpr int64_t kMaxSpanNs = int64_t{1} << 53;        // The longest span of a trace: 104 days.
constexpr int kMaxFailedPeers = 16;
constexpr int kMaxSilentPeers = 1 << 16;
constexpr int64_t kMaxSilentMs = int64_t{10} * 365 * 86400 * 1000;
constexpr int kMaxFeatureBytes = 64 << 10;
constexpr int kMaxChipBytes = 1 << 20;

absl::Status Bad(absl::string_view field, const std::string& found, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": found ", found, ", expected ", expected));
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

absl::Status CheckText(absl::string_view field, absl::string_view text, int max_bytes = kMaxNameBytes) {
  if (std::ssize(text) > max_bytes) return Bad(field, Quoted(text), absl::StrCat("at most ", max_bytes, " bytes"));
  if (std::any_of(text.begin(), text.end(), IsControl)) return Bad(field, Quoted(text), "no control characters");
  return absl::OkStatus();
}

absl::Status CheckId(absl::string_view field, absl::string_view id) {
  if (id.empty()) return Bad(field, "no id", "one");
  return CheckText(field, id);
}

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    return Bad(field, absl::StrCat(value), absl::StrCat("a number of ", low, " to ", high));
  }
  return absl::OkStatus();
}

absl::Status CheckCheckpointUri(absl::string_view field, const std::string& uri) {
  XLAD_RETURN_IF_ERROR(CheckText(field, uri, kMaxPathBytes));
  if (uri.empty() || storage::IsCheckpointUri(uri)) return absl::OkStatus();
  return Bad(field, Quoted(uri), "\"xlad:\", or \"file:\" and the absolute path of a folder");
}

// Checks a step, an attempt, an offset, a size or a count that has no limits of its own.
absl::Status CheckNumber(absl::string_view field, int64_t number) { return CheckRange(field, number, 0, kMaxSteps); }

absl::Status CheckCount(absl::string_view field, int count) {
  if (count > kMaxEntries) return Bad(field, absl::StrCat(count, " entries"), absl::StrCat("at most ", kMaxEntries));
  return absl::OkStatus();
}

absl::Status CheckDigest(absl::string_view field, absl::string_view digest) {
  return IsSha256Hex(digest) ? absl::OkStatus() : Bad(field, Quoted(digest), "64 lower-case hex digits");
}

absl::Status CheckBox(absl::string_view field, const Box& box) {
  if (box.lo_size() != box.hi_size() || box.lo_size() > kMaxDimensions) {
    return Bad(field, absl::StrCat(box.lo_size(), " starts and ", box.hi_size(), " ends"),
               absl::StrCat("as many ends as starts, at most ", kMaxDimensions));
  }
  for (int d = 0; d < box.lo_size(); ++d) {
    if (box.lo(d) < 0 || box.hi(d) < box.lo(d)) {
      return Bad(field, absl::StrCat("[", box.lo(d), ", ", box.hi(d), ") in dimension ", d), "0 <= start <= end");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckShape(absl::string_view field, const ArrayShape& shape) {
  if (shape.dims_size() > kMaxDimensions) {
    return Bad(field, absl::StrCat(shape.dims_size(), " dimensions"), absl::StrCat("at most ", kMaxDimensions));
  }
  const absl::Status status = tensor::CheckedShapeFromWire(shape).status();
  return status.ok() ? status : Annotate(status, field);
}

absl::Status CheckMesh(const google::protobuf::RepeatedPtrField<MeshAxis>& mesh) {
  if (mesh.size() > kMaxMeshAxes) {
    return Bad("mesh", absl::StrCat(mesh.size(), " axes"), absl::StrCat("at most ", kMaxMeshAxes));
  }
  std::set<std::string> names;
  int64_t devices = 1;
  for (const MeshAxis& axis : mesh) {
    XLAD_RETURN_IF_ERROR(CheckText("mesh axis", axis.name()));
    XLAD_RETURN_IF_ERROR(
        CheckRange(absl::StrCat("size of mesh axis ", Quoted(axis.name())), axis.size(), 1, kMaxMeshDevices));
    devices *= axis.size();  // The product is at most 2^40, so it does not overflow.
    if (devices > kMaxMeshDevices) {
      return Bad("mesh", absl::StrCat("at least ", devices, " devices"), absl::StrCat("at most ", kMaxMeshDevices));
    }
    if (!names.insert(axis.name()).second) return Bad("mesh", absl::StrCat("two axes ", Quoted(axis.name())), "one");
  }
  return absl::OkStatus();
}

// Checks the number of devices of a job. In the canonical mode it may be any divisor of the number of shards.
absl::Status CheckDevices(const JobSpec& spec) {
  const int mode = static_cast<int>(spec.compile().reduction_mode());
  if (!ReductionMode_IsValid(mode)) return Bad("compile.reduction_mode", absl::StrCat(mode), "0 to 2");
  int64_t shards = 1;
  for (const MeshAxis& axis : spec.mesh()) shards *= axis.size();
  XLAD_RETURN_IF_ERROR(CheckRange("devices", spec.devices(), 0, shards));
  if (spec.devices() == 0) return absl::OkStatus();
  if (spec.compile().reduction_mode() != CANONICAL) {
    return Bad("devices", absl::StrCat(spec.devices(), " in a mode other than canonical"),
               "0, because every logical shard has a device of its own in this mode");
  }
  if (shards % spec.devices() == 0) return absl::OkStatus();
  return Bad("devices", absl::StrCat(spec.devices()), absl::StrCat("a number that divides the ", shards, " shards"));
}

template <typename Entry>  // Entry is JobSpec::Parameter or JobSpec::Result.
absl::Status CheckEntries(absl::string_view field, const google::protobuf::RepeatedPtrField<Entry>& entries) {
  XLAD_RETURN_IF_ERROR(CheckCount(field, entries.size()));
  for (int i = 0; i < entries.size(); ++i) {
    const std::string place = absl::StrCat(field, " ", i);
    XLAD_RETURN_IF_ERROR(CheckText(place, entries[i].name(), kMaxTensorNameBytes));
    // Checkpoints have the state under these names.
    const absl::Status storable = tensor::CheckSafetensorsName(entries[i].name());
    if (!storable.ok()) return Annotate(storable, place);
    XLAD_RETURN_IF_ERROR(CheckShape(place, entries[i].shape()));
  }
  return absl::OkStatus();
}

// Checks the fields that name an attempt.
template <typename Message>
absl::Status CheckAttempt(absl::string_view field, const Message& message) {
  XLAD_RETURN_IF_ERROR(CheckId(absl::StrCat(field, ".job_id"), message.job_id()));
  XLAD_RETURN_IF_ERROR(CheckNumber(absl::StrCat(field, ".generation"), message.generation()));
  return CheckNumber(absl::StrCat(field, ".attempt"), message.attempt());
}

absl::Status CheckTasks(const google::protobuf::RepeatedPtrField<RunningTask>& tasks) {
  XLAD_RETURN_IF_ERROR(CheckCount("running", tasks.size()));
  for (const RunningTask& task : tasks) {
    XLAD_RETURN_IF_ERROR(CheckAttempt("running", task));
    XLAD_RETURN_IF_ERROR(CheckNumber("running.step", task.step()));
    XLAD_RETURN_IF_ERROR(CheckRange("number of running.silent", task.silent_size(), 0, kMaxSilentPeers));
    for (const SilentPeer& silent : task.silent()) {
      XLAD_RETURN_IF_ERROR(CheckId("running.silent.worker_id", silent.worker_id()));
      XLAD_RETURN_IF_ERROR(CheckRange("running.silent.silent_ms", silent.silent_ms(), 0, kMaxSilentMs));
    }
  }
  return absl::OkStatus();
}

// The lengths are limited because the reasons of jobs that wait for devices contain these texts.
absl::Status CheckTarget(const Target& target) {
  XLAD_RETURN_IF_ERROR(CheckText("target.triple", target.triple()));
  XLAD_RETURN_IF_ERROR(CheckText("target.cpu", target.cpu()));
  XLAD_RETURN_IF_ERROR(CheckText("target.features", target.features(), kMaxFeatureBytes));
  XLAD_RETURN_IF_ERROR(CheckText("target.device_kind", target.device_kind()));
  XLAD_RETURN_IF_ERROR(CheckText("target.device_model", target.device_model(), kMaxPathBytes));
  if (target.chip().size() <= kMaxChipBytes) return absl::OkStatus();
  return Bad("target.chip", absl::StrCat(target.chip().size(), " bytes"), absl::StrCat("at most ", kMaxChipBytes));
}

// Peers connect to this address. It is empty if a worker has no peers, as in tests.
absl::Status CheckDataAddress(const std::string& address) {
  XLAD_RETURN_IF_ERROR(CheckText("data_address", address));
  if (address.empty()) return absl::OkStatus();
  const absl::StatusOr<HostPort> at = ParseHostPort(address);
  return Annotate(at.ok() ? ParseHost(at->host).status() : at.status(), "data_address");
}

absl::Status CheckRegister(const RegisterWorker& message) {
  XLAD_RETURN_IF_ERROR(CheckId("worker_id", message.worker_id()));
  XLAD_RETURN_IF_ERROR(CheckText("host", message.host()));
  XLAD_RETURN_IF_ERROR(CheckDataAddress(message.data_address()));
  XLAD_RETURN_IF_ERROR(CheckText("version", message.version()));
  XLAD_RETURN_IF_ERROR(CheckRange("devices", message.devices(), 0, kMaxWorkerDevices));
  XLAD_RETURN_IF_ERROR(CheckTarget(message.target()));
  XLAD_RETURN_IF_ERROR(CheckRange("number of offers", message.offers_size(), 0, kMaxOffers));
  int64_t offered = 0;
  for (const DeviceOffer& offer : message.offers()) {
    XLAD_RETURN_IF_ERROR(CheckTarget(offer.target()));
    XLAD_RETURN_IF_ERROR(CheckRange("number of offers.memory", offer.memory_size(), 0, kMaxKinds));
    XLAD_RETURN_IF_ERROR(CheckRange("devices of an offer", offer.count(), 0, kMaxWorkerDevices));
    offered += offer.count();
  }
  if (message.offers_size() > 0 && offered != message.devices()) {
    return Bad("offers", absl::StrCat(offered, " devices"), absl::StrCat(message.devices(), ", as `devices` says"));
  }
  return CheckTasks(message.running());
}

absl::Status CheckSteps(const TaskSteps& message) {
  XLAD_RETURN_IF_ERROR(CheckAttempt("steps", message));
  XLAD_RETURN_IF_ERROR(CheckCount("steps.metrics", message.metrics_size()));
  for (const StepMetrics& metrics : message.metrics()) {
    XLAD_RETURN_IF_ERROR(CheckNumber("steps.metrics.step", metrics.step()));
    XLAD_RETURN_IF_ERROR(CheckNumber("steps.metrics.attempt", metrics.attempt()));
    XLAD_RETURN_IF_ERROR(CheckCount("steps.metrics.simulated.warnings", metrics.simulated().warnings_size()));
  }
  return absl::OkStatus();
}

absl::Status CheckFailed(const TaskFailed& message) {
  XLAD_RETURN_IF_ERROR(CheckAttempt("failed", message));
  XLAD_RETURN_IF_ERROR(CheckNumber("failed.step", message.step()));
  return CheckText("failed.suspect_worker", message.suspect_worker());
}

absl::Status CheckShard(const ShardWritten& message) {
  XLAD_RETURN_IF_ERROR(CheckAttempt("shard_written", message));
  XLAD_RETURN_IF_ERROR(CheckNumber("shard_written.step", message.step()));
  const CheckpointShard& shard = message.shard();
  XLAD_RETURN_IF_ERROR(CheckText("shard_written.shard.uri", shard.uri(), kMaxPathBytes));
  XLAD_RETURN_IF_ERROR(CheckNumber("shard_written.shard.bytes", shard.bytes()));
  XLAD_RETURN_IF_ERROR(CheckNumber("shard_written.shard.block_bytes", shard.block_bytes()));
  XLAD_RETURN_IF_ERROR(CheckDigest("shard_written.shard.sha256", shard.sha256()));
  XLAD_RETURN_IF_ERROR(CheckCount("shard_written.shard.pieces", shard.pieces_size()));
  for (const CheckpointPiece& piece : shard.pieces()) {
    XLAD_RETURN_IF_ERROR(CheckText("shard_written piece's tensor", piece.tensor(), kMaxTensorNameBytes));
    XLAD_RETURN_IF_ERROR(CheckBox("shard_written piece's box", piece.box()));
    XLAD_RETURN_IF_ERROR(CheckNumber("shard_written piece's begin", piece.begin()));
  }
  return absl::OkStatus();
}

absl::Status CheckShardFailed(const ShardFailed& message) {
  XLAD_RETURN_IF_ERROR(CheckAttempt("shard_failed", message));
  return CheckNumber("shard_failed.step", message.step());
}

absl::Status CheckCounts(const std::string& field, const google::protobuf::Map<std::string, int64_t>& counts) {
  if (std::ssize(counts) > kMaxKinds) {
    return Bad(field, absl::StrCat(counts.size(), " kinds"), absl::StrCat("at most ", kMaxKinds));
  }
  for (const auto& [kind, count] : counts) {
    XLAD_RETURN_IF_ERROR(CheckText(field, kind));
    XLAD_RETURN_IF_ERROR(CheckNumber(field, count));
  }
  return absl::OkStatus();
}

absl::Status CheckReport(const RunReport& report) {
  XLAD_RETURN_IF_ERROR(CheckCounts("finished.report.launches", report.launches()));
  return CheckCounts("finished.report.collectives", report.collectives());
}

absl::Status CheckAllowedDevices(const std::string& names) {
  XLAD_RETURN_IF_ERROR(CheckText("device_name", names, kMaxPathBytes));
  const auto allowed = ParseAllowedDevices(names);
  return allowed.ok() ? absl::OkStatus() : Annotate(allowed.status(), "device_name");
}

absl::Status CheckExited(const AttemptExited& message) {
  XLAD_RETURN_IF_ERROR(CheckAttempt("exited", message));
  return CheckNumber("exited.step", message.step());
}

absl::Status CheckTime(absl::string_view field, int64_t ns) { return CheckRange(field, ns, -kMaxTimeNs, kMaxTimeNs); }

absl::Status CheckTracedStep(const TracedStep& step) {
  XLAD_RETURN_IF_ERROR(CheckNumber("trace.steps.step", step.step()));
  XLAD_RETURN_IF_ERROR(CheckNumber("trace.steps.dropped", step.dropped()));
  XLAD_RETURN_IF_ERROR(CheckTime("trace.steps.begin_ns", step.begin_ns()));
  XLAD_RETURN_IF_ERROR(CheckTime("trace.steps.end_ns", step.end_ns()));
  XLAD_RETURN_IF_ERROR(CheckCount("trace.steps.instruction", step.instruction_size()));
  const std::pair<absl::string_view, const google::protobuf::RepeatedField<int64_t>&> columns[] = {
      {"trace.steps.span_begin_ns", step.span_begin_ns()},
      {"trace.steps.span_ns", step.span_ns()},
      {"trace.steps.message_ns", step.message_ns()}};
  for (const auto& [field, column] : columns) {
    XLAD_RETURN_IF_ERROR(CheckCount(field, column.size()));
    for (const int64_t ns : column) XLAD_RETURN_IF_ERROR(CheckRange(field, ns, -kMaxSpanNs, kMaxSpanNs));
  }
  return absl::OkStatus();
}

absl::Status CheckTrace(const TaskTrace& message) {
  XLAD_RETURN_IF_ERROR(CheckAttempt("trace", message));
  XLAD_RETURN_IF_ERROR(CheckCount("trace.program.instructions", message.program().instructions_size()));
  XLAD_RETURN_IF_ERROR(CheckCount("trace.program.collectives", message.program().collectives_size()));
  for (const TracedCollective& collective : message.program().collectives()) {
    XLAD_RETURN_IF_ERROR(CheckCount("trace.program.collectives.groups", collective.groups_size()));
    for (const TracedGroup& group : collective.groups()) {
      XLAD_RETURN_IF_ERROR(CheckCount("trace.program.collectives.groups.devices", group.devices_size()));
    }
  }
  XLAD_RETURN_IF_ERROR(CheckCount("trace.clock", message.clock_size()));
  for (const ClockSample& sample : message.clock()) {
    XLAD_RETURN_IF_ERROR(CheckTime("trace.clock.local_ns", sample.local_ns()));
    XLAD_RETURN_IF_ERROR(CheckTime("trace.clock.offset_ns", sample.offset_ns()));
    XLAD_RETURN_IF_ERROR(CheckTime("trace.clock.round_trip_ns", sample.round_trip_ns()));
  }
  XLAD_RETURN_IF_ERROR(CheckCount("trace.steps", message.steps_size()));
  for (const TracedStep& step : message.steps()) XLAD_RETURN_IF_ERROR(CheckTracedStep(step));
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const JobSpec& spec) {
  XLAD_RETURN_IF_ERROR(CheckText("name", spec.name()));
  XLAD_RETURN_IF_ERROR(CheckAllowedDevices(spec.device_name()));
  XLAD_RETURN_IF_ERROR(CheckMesh(spec.mesh()));
  XLAD_RETURN_IF_ERROR(CheckDevices(spec));
  XLAD_RETURN_IF_ERROR(CheckNumber("steps", spec.steps()));
  XLAD_RETURN_IF_ERROR(CheckNumber("compile.memory_limit_bytes", spec.compile().memory_limit_bytes()));
  XLAD_RETURN_IF_ERROR(CheckNumber("batch_size", spec.batch_size()));
  XLAD_RETURN_IF_ERROR(CheckNumber("batch_count", spec.batch_count()));
  XLAD_RETURN_IF_ERROR(CheckRange("max_attempts", spec.max_attempts(), 0, kMaxEntries));
  XLAD_RETURN_IF_ERROR(CheckNumber("start_step", spec.start_step()));
  XLAD_RETURN_IF_ERROR(CheckNumber("checkpoint.every_steps", spec.checkpoint().every_steps()));
  XLAD_RETURN_IF_ERROR(CheckNumber("checkpoint.every_ms", spec.checkpoint().every_ms()));
  XLAD_RETURN_IF_ERROR(CheckRange("checkpoint.keep", spec.checkpoint().keep(), 0, kMaxEntries));
  XLAD_RETURN_IF_ERROR(CheckCheckpointUri("checkpoint.uri", spec.checkpoint().uri()));
  XLAD_RETURN_IF_ERROR(CheckText("resume", spec.resume(), kMaxPathBytes));
  XLAD_RETURN_IF_ERROR(CheckText("state_uri", spec.state_uri(), kMaxPathBytes));
  XLAD_RETURN_IF_ERROR(CheckText("data_uri", spec.data_uri(), kMaxPathBytes));
  if (spec.shrink_axes_size() > kMaxMeshAxes) {
    return Bad("shrink_axes", absl::StrCat(spec.shrink_axes_size(), " axes"), absl::StrCat("at most ", kMaxMeshAxes));
  }
  for (const std::string& axis : spec.shrink_axes()) {
    XLAD_RETURN_IF_ERROR(CheckText("shrink_axes", axis));
    const bool exists = std::ranges::any_of(spec.mesh(), [&](const MeshAxis& of) { return of.name() == axis; });
    if (!exists) return Bad("shrink_axes", Quoted(axis), "the name of an axis of the mesh");
  }
  XLAD_RETURN_IF_ERROR(CheckEntries("parameter", spec.parameters()));
  return CheckEntries("result", spec.results());
}

absl::Status Validate(const SubmitJobRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckText("client_key", request.client_key()));
  XLAD_RETURN_IF_ERROR(CheckDigest("program_blob", request.spec().program_blob()));
  for (const std::string& digest : {request.spec().state_blob(), request.spec().data_blob()}) {
    if (!digest.empty()) XLAD_RETURN_IF_ERROR(CheckDigest("state_blob or data_blob", digest));
  }
  return Validate(request.spec());
}

absl::Status Validate(const ListJobsRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckRange("limit", request.limit(), 0, kMaxEntries));
  return CheckText("after", request.after());
}
absl::Status Validate(const GetJobRequest& request) { return CheckId("job_id", request.job_id()); }
absl::Status Validate(const WatchJobRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckId("job_id", request.job_id()));
  return CheckNumber("from_step", request.from_step());
}
absl::Status Validate(const CancelJobRequest& request) { return CheckId("job_id", request.job_id()); }
absl::Status Validate(const JobLogRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckNumber("after_sequence", request.after_sequence()));
  XLAD_RETURN_IF_ERROR(CheckRange("limit", request.limit(), 0, kMaxEntries));
  return CheckId("job_id", request.job_id());
}
absl::Status Validate(const WhyJobRequest& request) { return CheckId("job_id", request.job_id()); }
absl::Status Validate(const GetTraceRequest& request) { return CheckId("job_id", request.job_id()); }
absl::Status Validate(const ResizeJobRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckId("job_id", request.job_id()));
  XLAD_RETURN_IF_ERROR(CheckRange("devices", request.devices(), 0, kMaxMeshDevices));
  return CheckMesh(request.mesh());
}
absl::Status Validate(const ListWorkersRequest&) { return absl::OkStatus(); }
absl::Status Validate(const DrainWorkerRequest& request) { return CheckId("worker_id", request.worker_id()); }
absl::Status Validate(const UndrainWorkerRequest& request) { return CheckId("worker_id", request.worker_id()); }
absl::Status Validate(const GetStatusRequest&) { return absl::OkStatus(); }
absl::Status Validate(const BackupRequest& request) { return CheckText("folder", request.folder(), kMaxPathBytes); }

absl::Status Validate(const HasBlobsRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckCount("digests", request.digests_size()));
  for (const std::string& digest : request.digests()) XLAD_RETURN_IF_ERROR(CheckDigest("digests", digest));
  return absl::OkStatus();
}
absl::Status Validate(const GetBlobRequest& request) { return CheckDigest("digest", request.digest()); }
absl::Status Validate(const GetBlobRangeRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckNumber("offset", request.offset()));
  XLAD_RETURN_IF_ERROR(CheckNumber("size", request.size()));
  if (request.has_reader()) {
    const BlobReader& reader = request.reader();
    XLAD_RETURN_IF_ERROR(CheckId("reader.job_id", reader.job_id()));
    XLAD_RETURN_IF_ERROR(CheckNumber("reader.attempt", reader.attempt()));
    XLAD_RETURN_IF_ERROR(CheckId("reader.worker_id", reader.worker_id()));
    XLAD_RETURN_IF_ERROR(CheckRange("number of reader.failed", reader.failed_size(), 0, kMaxFailedPeers));
    for (const std::string& failed : reader.failed()) XLAD_RETURN_IF_ERROR(CheckId("reader.failed", failed));
  }
  return CheckDigest("digest", request.digest());
}

absl::Status Validate(const OpenSessionRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckText("client_key", request.client_key()));
  XLAD_RETURN_IF_ERROR(CheckText("name", request.name()));
  return CheckMesh(request.mesh());
}
absl::Status Validate(const HoldSessionRequest& request) { return CheckId("session_id", request.session_id()); }
absl::Status Validate(const LoadProgramRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckId("session_id", request.session_id()));
  XLAD_RETURN_IF_ERROR(CheckCount("feeds", request.feeds_size()));
  return CheckDigest("program_blob", request.program_blob());
}
absl::Status Validate(const CallProgramRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckCount("arguments", request.arguments_size()));
  XLAD_RETURN_IF_ERROR(CheckCount("free", request.free_size()));
  return CheckId("session_id", request.session_id());
}
absl::Status Validate(const PutBatchRequest& header) {
  XLAD_RETURN_IF_ERROR(CheckId("job_id", header.job_id()));
  return CheckNumber("batch", header.batch());
}
absl::Status Validate(const GetBatchRangeRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckId("job_id", request.job_id()));
  XLAD_RETURN_IF_ERROR(CheckNumber("batch", request.batch()));
  XLAD_RETURN_IF_ERROR(CheckNumber("offset", request.offset()));
  return CheckNumber("size", request.size());
}
absl::Status Validate(const LocateSessionRequest& request) { return CheckId("session_id", request.session_id()); }
absl::Status Validate(const AddProgramRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckId("session_id", request.session_id()));
  XLAD_RETURN_IF_ERROR(CheckCount("plans", request.plans_size()));
  XLAD_RETURN_IF_ERROR(CheckText("seal", request.seal()));
  return CheckDigest("executable_digest", request.executable_digest());
}
absl::Status Validate(const GetArrayRequest& request) { return CheckId("session_id", request.session_id()); }
absl::Status Validate(const FreeArraysRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckCount("arrays", request.arrays_size()));
  return CheckId("session_id", request.session_id());
}
absl::Status Validate(const CloseSessionRequest& request) { return CheckId("session_id", request.session_id()); }

absl::Status Validate(const PutBlobRequest& header) { return CheckDigest("digest", header.digest()); }
absl::Status Validate(const PutArrayRequest& header) {
  XLAD_RETURN_IF_ERROR(CheckId("session_id", header.session_id()));
  XLAD_RETURN_IF_ERROR(CheckShape("shape", header.shape()));
  return CheckRange("bytes of the array", tensor::ShapeFromWire(header.shape()).bytes(), 0, kMaxUploadedArrayBytes);
}

absl::Status Validate(const WorkerMessage& message) {
  switch (message.message_case()) {
    case WorkerMessage::kRegister:
      return CheckRegister(message.register_());
    case WorkerMessage::kHeartbeat:
      return CheckTasks(message.heartbeat().running());
    case WorkerMessage::kReady:
      XLAD_RETURN_IF_ERROR(CheckText("ready.session_address", message.ready().session_address()));
      if (message.ready().session_authority().size() > kMaxPathBytes) {
        return Bad("ready.session_authority", absl::StrCat(message.ready().session_authority().size(), " bytes"),
                   absl::StrCat("a certificate of at most ", kMaxPathBytes, " bytes"));
      }
      return CheckAttempt("ready", message.ready());
    case WorkerMessage::kSteps:
      return CheckSteps(message.steps());
    case WorkerMessage::kStopAnswer:
      XLAD_RETURN_IF_ERROR(CheckNumber("stop_answer.step", message.stop_answer().step()));
      XLAD_RETURN_IF_ERROR(CheckNumber("stop_answer.current", message.stop_answer().current()));
      return CheckAttempt("stop_answer", message.stop_answer());
    case WorkerMessage::kStopped:
      XLAD_RETURN_IF_ERROR(CheckNumber("stopped.step", message.stopped().step()));
      return CheckAttempt("stopped", message.stopped());
    case WorkerMessage::kFinished:
      XLAD_RETURN_IF_ERROR(CheckReport(message.finished().report()));
      return CheckAttempt("finished", message.finished());
    case WorkerMessage::kFailed:
      return CheckFailed(message.failed());
    case WorkerMessage::kCheckpointAnswer:
      XLAD_RETURN_IF_ERROR(CheckNumber("checkpoint_answer.step", message.checkpoint_answer().step()));
      XLAD_RETURN_IF_ERROR(CheckNumber("checkpoint_answer.current", message.checkpoint_answer().current()));
      return CheckAttempt("checkpoint_answer", message.checkpoint_answer());
    case WorkerMessage::kShardWritten:
      return CheckShard(message.shard_written());
    case WorkerMessage::kShardFailed:
      return CheckShardFailed(message.shard_failed());
    case WorkerMessage::kTrace:
      return CheckTrace(message.trace());
    case WorkerMessage::kExited:
      return CheckExited(message.exited());
    default:  // Draining, ClockProbe and messages of newer workers, which may have any values.
      return absl::OkStatus();
  }
}

}  // namespace xlad::service

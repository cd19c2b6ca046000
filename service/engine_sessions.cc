// Session requests of the engine: calls that block and calls that move arrays. The state of a session is in
// sessions/session.cc, its life cycle in jobs/session_machine.cc.
#include "service/engine.h"
#include "tensor/wire.h"

namespace xlad::service {
namespace {

constexpr size_t kMaxPendingCommands = 16;

EntryValue WithoutBuffer(const EntryValue& entry) {
  EntryValue out = entry;
  out.clear_buffer();
  return out;
}

}  // namespace

absl::Status Engine::OnSession(const std::string& id, const std::function<absl::Status(Session*)>& work) {
  return Tell([&](CoordinatorCore& coordinator) { return coordinator.WithSession(JobId(id), work); });
}

absl::StatusOr<OpenSessionResponse> Engine::OpenSession(const OpenSessionRequest& request) {
  XLAD_ASSIGN_OR_RETURN(const SubmitJobResponse opened, Ask<SubmitJobResponse>([&](CoordinatorCore& coordinator) {
                          return coordinator.OpenSession(request);
                        }));
  OpenSessionResponse response;
  response.set_session_id(opened.job_id());
  return response;
}

absl::Status Engine::HoldSession(const std::string& session_id) {
  return Tell([&](CoordinatorCore& coordinator) { return coordinator.sessions().Hold(JobId(session_id)); });
}

void Engine::ReleaseSession(const std::string& session_id) {
  Post([session_id](CoordinatorCore& coordinator) { coordinator.sessions().Release(JobId(session_id)); });
}

absl::Status Engine::WaitForSession(const std::string& session_id) {
  int64_t seen = -1;
  while (WaitForChange(&seen)) {
    absl::Status found;
    const absl::Status served = PostAndWait(
        [&](CoordinatorCore& coordinator) { found = coordinator.sessions().Check(JobId(session_id)); });
    if (!served.ok()) return served;
    if (!absl::IsUnavailable(found)) return found;
  }
  return absl::UnavailableError("the coordinator is stopping");
}

absl::StatusOr<LoadProgramResponse> Engine::LoadProgram(const LoadProgramRequest& request) {
  const std::string& id = request.session_id();
  XLAD_RETURN_IF_ERROR(WaitForSession(id));
  if (!blobs_->Has(request.program_blob())) {
    return absl::FailedPreconditionError(
        absl::StrCat("found no blob ", request.program_blob(), ", expected it to be uploaded"));
  }
  BuildRequest build;
  XLAD_ASSIGN_OR_RETURN(const JobSpec spec, SpecOf(JobId(id)));
  build.mutable_spec()->set_session(true);
  for (const int64_t feeds : request.feeds()) build.mutable_spec()->add_results()->set_feeds(feeds);
  *build.mutable_spec()->mutable_mesh() = spec.mesh();
  XLAD_ASSIGN_OR_RETURN(*build.mutable_target(), Ask<Target>([&](CoordinatorCore& coordinator) {
                          return coordinator.sessions().TargetOf(JobId(id));
                        }));
  XLAD_ASSIGN_OR_RETURN(*build.mutable_program(), blobs_->Get(request.program_blob()));
  XLAD_ASSIGN_OR_RETURN(const BuiltProgram built, RunQueuedBuild(id, build));
  XLAD_ASSIGN_OR_RETURN(const Executable executable, LoadExecutable(built.executable_digest));
  XLAD_RETURN_IF_ERROR(CheckCompiledFor(executable, build.target()));
  XLAD_ASSIGN_OR_RETURN(const auto plans, PlanCollectives(executable, DeviceCount(spec.mesh())));
  LoadProgramResponse response;
  XLAD_RETURN_IF_ERROR(OnSession(id, [&](Session* session) {
    response.set_program(session->LoadProgram(executable, built.executable_digest, plans));
    return absl::OkStatus();
  }));
  for (const EntryValue& entry : executable.parameters()) *response.add_parameters() = WithoutBuffer(entry);
  for (const EntryValue& entry : executable.results()) *response.add_results() = WithoutBuffer(entry);
  response.set_compile_ms(built.compile_ms);
  response.set_cached(built.cached);
  for (const std::string& warning : built.warnings) response.add_warnings(warning);
  return response;
}

absl::StatusOr<PutArrayResponse> Engine::PutArray(const std::string& session_id, const ArrayShape& wire,
                                                  const std::string& bytes) {
  XLAD_ASSIGN_OR_RETURN(const tensor::Shape shape, tensor::CheckedShapeFromWire(wire));
  if (std::ssize(bytes) != shape.bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("found ", bytes.size(), " bytes, expected ", shape.bytes(), " for ",
                                                   shape.ToString()));
  }
  XLAD_RETURN_IF_ERROR(WaitForSession(session_id));
  PutArrayResponse response;
  XLAD_RETURN_IF_ERROR(OnSession(session_id, [&](Session* session) {
    response.set_array(session->AddArray(shape));
    arrays_.Put(session_id, response.array(), shape, bytes);
    return absl::OkStatus();
  }));
  return response;
}

absl::StatusOr<CallProgramResponse> Engine::CallProgram(const CallProgramRequest& request) {
  const std::string& id = request.session_id();
  XLAD_RETURN_IF_ERROR(WaitForSession(id));
  CallProgramResponse response;
  int64_t seen = -1;
  while (WaitForChange(&seen)) {
    bool full = false;
    XLAD_RETURN_IF_ERROR(OnSession(id, [&](Session* session) -> absl::Status {
      full = session->pending() >= kMaxPendingCommands;
      if (full) return absl::OkStatus();
      XLAD_ASSIGN_OR_RETURN(const std::vector<int64_t> results, session->Call(request));
      response.mutable_results()->Assign(results.begin(), results.end());
      return absl::OkStatus();
    }));
    if (!full) return response;
  }
  return absl::UnavailableError("the coordinator is stopping");
}

absl::StatusOr<std::shared_ptr<const tensor::Array>> Engine::GetArray(const GetArrayRequest& request) {
  const std::string& id = request.session_id();
  XLAD_RETURN_IF_ERROR(WaitForSession(id));
  XLAD_RETURN_IF_ERROR(OnSession(id, [&](Session* session) { return session->Pin(request.array()); }));
  auto array = arrays_.Wait(id, request.array());
  const absl::Status session_status = OnSession(id, [&](Session* session) {
    session->Unpin(request.array());
    return absl::OkStatus();
  });
  if (!array.ok() && !session_status.ok()) return session_status;  // The end of the session is the better explanation.
  return array;
}

absl::Status Engine::FreeArrays(const FreeArraysRequest& request) {
  return OnSession(request.session_id(), [&](Session* session) {
    session->Free({request.arrays().begin(), request.arrays().end()});
    return absl::OkStatus();
  });
}

absl::Status Engine::CloseSession(const std::string& session_id) {
  return Tell([&](CoordinatorCore& coordinator) { return coordinator.CloseSession(JobId(session_id)); });
}

absl::StatusOr<tensor::Array> Engine::ReadArrayShard(const GetArrayShardRequest& request) {
  XLAD_ASSIGN_OR_RETURN(const auto array, arrays_.Wait(request.session_id(), request.array()));
  const tensor::Box box = tensor::BoxFromWire(request.box());
  if (!tensor::IsInside(box, array->shape())) {
    return absl::OutOfRangeError(
        absl::StrCat("found box ", box.ToString(), ", expected one inside ", array->shape().ToString()));
  }
  return tensor::ExtractBox(*array, box, box.sizes());
}

absl::Status Engine::PutArrayShard(const PutArrayShardRequest& header, const std::string& bytes) {
  return arrays_.Add(header.session_id(), header.array(), tensor::BoxFromWire(header.box()), bytes);
}

}  // namespace xlad::service

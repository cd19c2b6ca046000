// Session requests of the engine. The coordinator's state of a session is in jobs/session_machine.cc.
#include "service/engine.h"

namespace xlad::service {
namespace {

EntryValue WithoutBuffer(const EntryValue& entry) {
  EntryValue out = entry;
  out.clear_buffer();
  return out;
}

}  // namespace

absl::StatusOr<OpenSessionResponse> Engine::OpenSession(const OpenSessionRequest& request, const std::string& actor) {
  XLAD_ASSIGN_OR_RETURN(const SubmitJobResponse opened, Ask<SubmitJobResponse>([&](CoordinatorCore& coordinator) {
                          const ActingFor acting(&coordinator, actor);
                          return coordinator.OpenSession(request);
                        }));
  OpenSessionResponse response;
  response.set_session_id(opened.job_id());
  return response;
}

absl::StatusOr<JobStatus> Engine::HoldSession(const std::string& session_id, int64_t* term) {
  XLAD_ASSIGN_OR_RETURN(JobStatus status,
                        Ask<JobStatus>([&](CoordinatorCore& coordinator) -> absl::StatusOr<JobStatus> {
                          const int64_t current = coordinator.context().jobs.term().value();
                          if (*term != current) {
                            const absl::Status held = coordinator.sessions().Hold(JobId(session_id));
                            if (!held.ok()) return held;
                            *term = current;
                          }
                          return coordinator.jobs().Status(JobId(session_id));
                        }));
  return WithFolder(std::move(status));
}

void Engine::ReleaseSession(const std::string& session_id, int64_t term) {
  Post([session_id, term](CoordinatorCore& coordinator) {
    if (coordinator.context().jobs.term().value() == term) coordinator.sessions().Release(JobId(session_id));
  });
}

absl::StatusOr<std::optional<LocateSessionResponse>> Engine::LocateSession(const std::string& session_id) {
  absl::StatusOr<LocateSessionResponse> found;
  XLAD_RETURN_IF_ERROR(
      PostAndWait([&](CoordinatorCore& coordinator) { found = coordinator.sessions().Locate(JobId(session_id)); }));
  if (absl::IsUnavailable(found.status())) return std::nullopt;
  XLAD_RETURN_IF_ERROR(found.status());
  return *std::move(found);
}

absl::StatusOr<LocateSessionResponse> Engine::AwaitSession(const std::string& session_id, const Check& check) {
  int64_t seen = -1;
  while (WaitForChange(&seen)) {
    XLAD_RETURN_IF_ERROR(check());
    XLAD_ASSIGN_OR_RETURN(std::optional<LocateSessionResponse> place, LocateSession(session_id));
    if (place.has_value()) return *std::move(place);
  }
  return absl::UnavailableError("the coordinator is stopping");
}

absl::StatusOr<LoadProgramResponse> Engine::LoadProgram(const LoadProgramRequest& request, const Check& check) {
  const std::string& id = request.session_id();
  XLAD_RETURN_IF_ERROR(AwaitSession(id, check).status());
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
  XLAD_ASSIGN_OR_RETURN(const BuiltProgram built, RunQueuedBuild(id, build, check));
  XLAD_ASSIGN_OR_RETURN(const Executable executable, LoadExecutable(built.executable_digest));
  XLAD_RETURN_IF_ERROR(CheckCompiledFor(executable, build.target()));
  XLAD_ASSIGN_OR_RETURN(auto plans, PlanCollectives(executable, DeviceCount(spec.mesh())));
  XLAD_ASSIGN_OR_RETURN(const bool sends_f32, Ask<bool>([&](CoordinatorCore& coordinator) {
                          return coordinator.sessions().SendsPartialsInF32(JobId(id));
                        }));
  if (!sends_f32) {
    XLAD_ASSIGN_OR_RETURN(plans, PlansForOldWorkers(executable, DeviceCount(spec.mesh()), std::move(plans)));
  }
  LoadProgramResponse response;
  response.set_executable_digest(built.executable_digest);
  response.mutable_plans()->Assign(plans.begin(), plans.end());
  XLAD_ASSIGN_OR_RETURN(*response.mutable_seal(), Ask<std::string>([&](CoordinatorCore& coordinator) {
                          return coordinator.sessions().SealOf(JobId(id), built.executable_digest, response.plans());
                        }));
  for (const EntryValue& entry : executable.parameters()) *response.add_parameters() = WithoutBuffer(entry);
  for (const EntryValue& entry : executable.results()) *response.add_results() = WithoutBuffer(entry);
  response.set_compile_ms(built.compile_ms);
  response.set_cached(built.cached);
  for (const std::string& warning : built.warnings) response.add_warnings(warning);
  return response;
}

absl::Status Engine::CloseSession(const std::string& session_id, const std::string& actor) {
  return Tell([&](CoordinatorCore& coordinator) { return coordinator.CloseSession(JobId(session_id)); }, actor);
}

}  // namespace xlad::service

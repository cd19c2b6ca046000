// Session requests of the engine: calls that block and calls that move arrays. The state of a session is in session.cc,
// its life cycle in coordinator_sessions.cc.
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

absl::StatusOr<OpenSessionResponse> Engine::OpenSession(const OpenSessionRequest& request) {
  XLAD_ASSIGN_OR_RETURN(const std::string id, WithCore([&](Actions* actions) {
                          return core_->OpenSession(request, actions);
                        }));
  OpenSessionResponse response;
  response.set_session_id(id);
  return response;
}

absl::Status Engine::HoldSession(const std::string& session_id) {
  return WithCore([&](Actions*) { return core_->HoldSession(session_id); });
}

void Engine::ReleaseSession(const std::string& session_id) {
  WithCore([&](Actions*) {
    core_->ReleaseSession(session_id);
    return 0;
  });
}

absl::Status Engine::WaitForSession(const std::string& session_id) {
  std::unique_lock lock(mutex_);
  absl::Status status;
  changed_.wait(lock, [&] {
    status = stopping_ ? absl::UnavailableError("the coordinator is stopping") : core_->CheckSession(session_id);
    return stopping_ || !absl::IsUnavailable(status);
  });
  return status;
}

absl::StatusOr<LoadProgramResponse> Engine::LoadProgram(const LoadProgramRequest& request) {
  const std::string& id = request.session_id();
  XLAD_RETURN_IF_ERROR(WaitForSession(id));
  if (!blobs_->Has(request.program_blob())) {
    return absl::FailedPreconditionError(
        absl::StrCat("found no blob ", request.program_blob(), ", expected it to be uploaded"));
  }
  BuildRequest build;
  build.mutable_spec()->set_session(true);
  for (const int64_t feeds : request.feeds()) build.mutable_spec()->add_results()->set_feeds(feeds);
  {
    const std::lock_guard lock(mutex_);
    *build.mutable_spec()->mutable_mesh() = core_->SpecOf(id).mesh();
    XLAD_ASSIGN_OR_RETURN(*build.mutable_target(), core_->SessionTarget(id));
  }
  XLAD_ASSIGN_OR_RETURN(*build.mutable_program(), blobs_->Get(request.program_blob()));
  XLAD_ASSIGN_OR_RETURN(const BuiltProgram built, RunBuild(build, FolderOf(id)));
  XLAD_ASSIGN_OR_RETURN(const Executable executable, LoadExecutable(built.executable_digest));
  LoadProgramResponse response;
  XLAD_ASSIGN_OR_RETURN(const int64_t program, WithCore([&](Actions* actions) {
                          return core_->LoadProgram(id, built.executable_digest, actions);
                        }));
  response.set_program(program);
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
  XLAD_RETURN_IF_ERROR(WithCore([&](Actions* actions) {
    return core_->WithSession(
        session_id,
        [&](Session* session) {
          response.set_array(session->AddArray(shape));
          arrays_.Put(session_id, response.array(), shape, bytes);
          return absl::OkStatus();
        },
        actions);
  }));
  return response;
}

absl::StatusOr<CallProgramResponse> Engine::CallProgram(const CallProgramRequest& request) {
  const std::string& id = request.session_id();
  XLAD_RETURN_IF_ERROR(WaitForSession(id));
  std::unique_lock lock(mutex_);
  Actions actions;
  CallProgramResponse response;
  while (true) {
    bool full = false;
    absl::Status status = core_->WithSession(
        id,
        [&](Session* session) -> absl::Status {
          full = session->pending() >= kMaxPendingCommands;
          if (full) return absl::OkStatus();
          XLAD_ASSIGN_OR_RETURN(const std::vector<int64_t> results, session->Call(request));
          response.mutable_results()->Assign(results.begin(), results.end());
          return absl::OkStatus();
        },
        &actions);
    Perform(actions);
    XLAD_RETURN_IF_ERROR(status);
    if (!full) return response;
    if (stopping_) return absl::UnavailableError("the coordinator is stopping");
    changed_.wait(lock);
  }
}

absl::StatusOr<std::shared_ptr<const tensor::Array>> Engine::GetArray(const GetArrayRequest& request) {
  const std::string& id = request.session_id();
  const auto on_session = [&](const std::function<absl::Status(Session*)>& work) {
    return WithCore([&](Actions* actions) { return core_->WithSession(id, work, actions); });
  };
  XLAD_RETURN_IF_ERROR(WaitForSession(id));
  XLAD_RETURN_IF_ERROR(on_session([&](Session* session) { return session->Pin(request.array()); }));
  auto array = arrays_.Wait(id, request.array());
  const absl::Status session_status = on_session([&](Session* session) {
    session->Unpin(request.array());
    return absl::OkStatus();
  });
  if (!array.ok() && !session_status.ok()) return session_status;  // The end of the session is the better explanation.
  return array;
}

absl::Status Engine::FreeArrays(const FreeArraysRequest& request) {
  return WithCore([&](Actions* actions) {
    return core_->WithSession(
        request.session_id(),
        [&](Session* session) {
          session->Free({request.arrays().begin(), request.arrays().end()});
          return absl::OkStatus();
        },
        actions);
  });
}

absl::Status Engine::CloseSession(const std::string& session_id) {
  return WithCore([&](Actions* actions) { return core_->CloseSession(session_id, actions); });
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

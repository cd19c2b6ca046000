#include "service/rpc/grpc_standard_calls.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <array>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/containers.h"

namespace xlad::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using grpc::reflection::v1::FileDescriptorResponse;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

constexpr std::array<absl::string_view, 3> kServiceNames = {
    "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "xlad.v1.Coordinator"};
constexpr int64_t kMaxStandardRequestBytes = 64 << 10;

void AddFile(const FileDescriptor* file, std::set<const FileDescriptor*>* added, FileDescriptorResponse* response) {
  if (!added->insert(file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  response->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), added, response);
}

void SetError(grpc::StatusCode code, const std::string& message, ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(code);
  response->mutable_error_response()->set_error_message(message);
}

// Adds the file and its imports to the response. If `file` is null, the response is an error: `what` was not found.
void SetFile(const FileDescriptor* file, const std::string& what, ServerReflectionResponse* response) {
  std::set<const FileDescriptor*> added;
  if (file != nullptr) return AddFile(file, &added, response->mutable_file_descriptor_response());
  SetError(grpc::StatusCode::NOT_FOUND, absl::StrCat("found no ", what), response);
}

void SetExtensions(const std::string& type, ServerReflectionResponse* response) {
  const DescriptorPool* const pool = DescriptorPool::generated_pool();
  const Descriptor* const message = pool->FindMessageTypeByName(type);
  if (message == nullptr) {
    return SetError(grpc::StatusCode::NOT_FOUND, absl::StrCat("found no message ", type), response);
  }
  std::vector<const FieldDescriptor*> extensions;
  pool->FindAllExtensions(message, &extensions);
  response->mutable_all_extension_numbers_response()->set_base_type_name(type);
  for (const FieldDescriptor* extension : extensions) {
    response->mutable_all_extension_numbers_response()->add_extension_number(extension->number());
  }
}

// Answers each request of the stream before it reads the next one. The time limit also ends an idle stream.
class ReflectionCall final : public grpc::ServerGenericBidiReactor {
 public:
  ReflectionCall(MessageLimits* message_limits, grpc::CallbackServerContext* context)
      : message_limits_(message_limits), context_(context) {
    Read();
  }
  void OnReadDone(bool ok) override {
    message_limits_->End(message_);
    if (!ok) return Finish(grpc::Status::OK);
    ServerReflectionRequest request;
    const absl::Status read = FromByteBuffer(incoming_, kMaxStandardRequestBytes, &request);
    if (!read.ok()) return Finish(ToGrpcStatus(read));
    outgoing_ = ToByteBuffer(Reflect(request));
    message_ = message_limits_->Begin(context_);
    StartWrite(&outgoing_);
  }
  void OnWriteDone(bool ok) override {
    message_limits_->End(message_);
    ok ? Read() : Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  void Read() {
    incoming_.Clear();
    message_ = message_limits_->Begin(context_);
    StartRead(&incoming_);
  }

  MessageLimits* const message_limits_;
  grpc::CallbackServerContext* const context_;
  int64_t message_ = 0;  // The message that is being read or written.
  grpc::ByteBuffer incoming_, outgoing_;
};

absl::Status CheckHealth(Engine* engine, CallStream* stream) {
  HealthCheckRequest request;
  XLAD_RETURN_IF_ERROR(stream->Read(&request).status());
  const HealthCheckResponse response = HealthOf(engine->Status().serving(), request.service());
  if (response.status() != HealthCheckResponse::SERVICE_UNKNOWN) return stream->Write(response);
  return absl::NotFoundError(absl::StrCat("found no service ", request.service(), ", expected one of ",
                                          absl::StrJoin(kServiceNames, ", "), ", or no name for the server"));
}

class HealthFollower final : public Follower {
 public:
  HealthFollower(Engine* engine, std::string service) : engine_(engine), service_(std::move(service)) {}

  absl::StatusOr<Update> Next() override {
    const HealthCheckResponse response = HealthOf(engine_->Status().serving(), service_);
    Update update;
    if (std::exchange(last_, response.status()) != response.status()) update.message = ToByteBuffer(response);
    return update;
  }

 private:
  Engine* const engine_;
  const std::string service_;
  // HealthOf never returns UNKNOWN, so the first status is sent.
  HealthCheckResponse::ServingStatus last_ = HealthCheckResponse::UNKNOWN;
};

}  // namespace

HealthCheckResponse HealthOf(bool serving, absl::string_view service) {
  const bool known = service.empty() || Contains(kServiceNames, service);
  HealthCheckResponse response;
  response.set_status(!known    ? HealthCheckResponse::SERVICE_UNKNOWN
                      : serving ? HealthCheckResponse::SERVING
                                : HealthCheckResponse::NOT_SERVING);
  return response;
}

ServerReflectionResponse Reflect(const ServerReflectionRequest& request) {
  const DescriptorPool* const pool = DescriptorPool::generated_pool();
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename: {
      const std::string& name = request.file_by_filename();
      SetFile(pool->FindFileByName(name), absl::StrCat("file ", name), &response);
      break;
    }
    case ServerReflectionRequest::kFileContainingSymbol: {
      const std::string& name = request.file_containing_symbol();
      SetFile(pool->FindFileContainingSymbol(name), absl::StrCat("symbol ", name), &response);
      break;
    }
    case ServerReflectionRequest::kFileContainingExtension: {
      const std::string& type = request.file_containing_extension().containing_type();
      const int number = request.file_containing_extension().extension_number();
      const Descriptor* const message = pool->FindMessageTypeByName(type);
      const FieldDescriptor* const extension =
          message == nullptr ? nullptr : pool->FindExtensionByNumber(message, number);
      SetFile(extension == nullptr ? nullptr : extension->file(), absl::StrCat("extension ", number, " of ", type),
              &response);
      break;
    }
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      SetExtensions(request.all_extension_numbers_of_type(), &response);
      break;
    case ServerReflectionRequest::kListServices:
      for (const absl::string_view service : kServiceNames) {
        response.mutable_list_services_response()->add_service()->set_name(std::string(service));
      }
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      SetError(grpc::StatusCode::INVALID_ARGUMENT, "found a reflection request without a query, expected one",
               &response);
      break;
  }
  return response;
}

void AddStandardCalls(const Serving& serving, CallTable* table) {
  Engine* const engine = serving.engine;
  table->is_serving = [engine] { return engine->Status().serving(); };
  table->methods["grpc.health.v1.Health/Check"] = {
      &serving.pools->requests, kMaxStandardRequestBytes,
      [engine](CallStream* stream) { return CheckHealth(engine, stream); }};
  table->reactors["grpc.health.v1.Health/Watch"] = [serving](grpc::GenericCallbackServerContext* context,
                                                             const CallerAccess& access) {
    using FollowerOr = absl::StatusOr<std::unique_ptr<Follower>>;
    const auto open = [engine = serving.engine](const grpc::ByteBuffer& buffer) -> FollowerOr {
      HealthCheckRequest request;
      XLAD_RETURN_IF_ERROR(FromByteBuffer(buffer, kMaxStandardRequestBytes, &request));
      return std::make_unique<HealthFollower>(engine, request.service());
    };
    return serving.followers->MakeStream(context, access, open);
  };
  // The messages of both versions are the same.
  for (const char* version : {"v1", "v1alpha"}) {
    table->reactors[absl::StrCat("grpc.reflection.", version, ".ServerReflection/ServerReflectionInfo")] =
        [serving](grpc::GenericCallbackServerContext* context, const CallerAccess&) {
          return new ReflectionCall(serving.message_limits, context);
        };
  }
}

}  // namespace xlad::service

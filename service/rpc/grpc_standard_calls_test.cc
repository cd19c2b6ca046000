// Health and reflection of a coordinator, requested as standard gRPC clients do.
#include "service/rpc/grpc_standard_calls.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "base/net/grpc_channel.h"
#include "base/testing/test_folder.h"
#include "proto/health.grpc.pb.h"
#include "proto/reflection.grpc.pb.h"
#include "service/rpc/coordinator_daemon.h"

namespace xlad::service {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptorProto;
using google::protobuf::ServiceDescriptor;
using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using grpc::reflection::v1::ServerReflection;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;
using ::testing::HasSubstr;

constexpr char kCoordinator[] = "xlad.v1.Coordinator";

class StandardCallsTest : public testing::Test {
 protected:
  void SetUp() override {
    DaemonOptions options;
    options.listen = "127.0.0.1:0";
    options.data_folder = folder_.path();
    options.program_path = "/bin/false";
    auto daemon = CoordinatorDaemon::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    channel_ = *MakeChannel({daemon_->Address(), "", ""});
  }
  void TearDown() override {
    channel_ = nullptr;
    daemon_.reset();
  }

  grpc::Status Check(const std::string& service, HealthCheckResponse* response) {
    grpc::ClientContext context;
    PrepareCall(&context, "", /*timeout_ms=*/600'000);
    HealthCheckRequest request;
    request.set_service(service);
    return Health::NewStub(channel_)->Check(&context, request, response);
  }

  const TestFolder folder_;
  std::unique_ptr<CoordinatorDaemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(StandardCallsTest, HealthOfEachService) {
  for (const char* service : {"", kCoordinator, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"}) {
    HealthCheckResponse response;
    const grpc::Status status = Check(service, &response);
    EXPECT_TRUE(status.ok()) << service << ": " << status.error_message();
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING) << service;
  }
  HealthCheckResponse response;
  const grpc::Status unknown = Check("xlad.v1.Other", &response);
  EXPECT_EQ(unknown.error_code(), grpc::NOT_FOUND);
  EXPECT_THAT(unknown.error_message(), HasSubstr("found no service xlad.v1.Other"));
  EXPECT_EQ(HealthOf(false, kCoordinator).status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(HealthOf(false, "xlad.v1.Other").status(), HealthCheckResponse::SERVICE_UNKNOWN);
}

TEST_F(StandardCallsTest, HealthIsWatchedUntilTheCoordinatorEnds) {
  const auto stub = Health::NewStub(channel_);
  grpc::ClientContext known_context, unknown_context;
  HealthCheckRequest known, unknown;
  known.set_service(kCoordinator);
  unknown.set_service("xlad.v1.Other");
  const auto stream = stub->Watch(&known_context, known), other = stub->Watch(&unknown_context, unknown);
  HealthCheckResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  ASSERT_TRUE(other->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  unknown_context.TryCancel();
  EXPECT_FALSE(other->Read(&response));
  daemon_.reset();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::UNAVAILABLE);
}

// Sends the requests of one stream, each after the answer to the previous one.
class ReflectionClient {
 public:
  explicit ReflectionClient(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(ServerReflection::NewStub(channel)), stream_(stub_->ServerReflectionInfo(&context_)) {}

  ServerReflectionResponse Ask(const ServerReflectionRequest& request) {
    ServerReflectionResponse response;
    EXPECT_TRUE(stream_->Write(request));
    EXPECT_TRUE(stream_->Read(&response));
    EXPECT_EQ(response.original_request().SerializeAsString(), request.SerializeAsString());
    return response;
  }
  ServerReflectionResponse AskForSymbol(const std::string& name) {
    ServerReflectionRequest request;
    request.set_file_containing_symbol(name);
    return Ask(request);
  }
  grpc::Status Finish() {
    stream_->WritesDone();
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  const std::unique_ptr<ServerReflection::Stub> stub_;
  const std::unique_ptr<grpc::ClientReaderWriter<ServerReflectionRequest, ServerReflectionResponse>> stream_;
};

// Adds the files of a response to a pool, each after the files that it imports.
void AddTo(DescriptorPool* pool, const ServerReflectionResponse& response) {
  const auto& files = response.file_descriptor_response().file_descriptor_proto();
  std::map<std::string, FileDescriptorProto> by_name;
  for (const std::string& bytes : files) {
    FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromString(bytes));
    by_name[file.name()] = file;
  }
  const std::function<void(const FileDescriptorProto&)> add = [&](const FileDescriptorProto& file) {
    for (const std::string& import : file.dependency()) {
      ASSERT_TRUE(by_name.contains(import)) << file.name() << " imports " << import;
      add(by_name[import]);
    }
    if (pool->FindFileByName(file.name()) == nullptr) ASSERT_NE(pool->BuildFile(file), nullptr) << file.name();
  };
  for (const auto& [name, file] : by_name) add(file);
}

// A program without the coordinator's .proto files can obtain the descriptions of all calls and messages of the
// coordinator.
TEST_F(StandardCallsTest, ReflectionDescribesEveryService) {
  ReflectionClient client(channel_);
  ServerReflectionRequest request;
  request.set_list_services("*");
  std::set<std::string> services;
  DescriptorPool pool;
  const ServerReflectionResponse listed = client.Ask(request);
  for (const auto& service : listed.list_services_response().service()) services.insert(service.name());
  EXPECT_TRUE(services.contains(kCoordinator));
  EXPECT_EQ(services.size(), 3u);
  for (const std::string& name : services) {
    AddTo(&pool, client.AskForSymbol(name));
    const ServiceDescriptor* found = pool.FindServiceByName(name);
    const ServiceDescriptor* expected = DescriptorPool::generated_pool()->FindServiceByName(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->DebugString(), expected->DebugString());
    for (int m = 0; m < found->method_count(); ++m) {
      EXPECT_EQ(found->method(m)->input_type()->DebugString(), expected->method(m)->input_type()->DebugString());
      EXPECT_EQ(found->method(m)->output_type()->DebugString(), expected->method(m)->output_type()->DebugString());
    }
  }
  EXPECT_TRUE(client.Finish().ok());
}

TEST_F(StandardCallsTest, ReflectionReturnsAnErrorForWhatItDoesNotFind) {
  ReflectionClient client(channel_);
  EXPECT_THAT(client.AskForSymbol("xlad.v1.Other").error_response().error_message(), HasSubstr("symbol xlad.v1.Other"));
  EXPECT_EQ(client.AskForSymbol("").error_response().error_code(), grpc::NOT_FOUND);
  ServerReflectionRequest request;
  EXPECT_EQ(client.Ask(request).error_response().error_code(), grpc::INVALID_ARGUMENT);
  request.set_file_by_filename("../secret");
  EXPECT_EQ(client.Ask(request).error_response().error_code(), grpc::NOT_FOUND);
  request.mutable_file_containing_extension()->set_containing_type("xlad.v1.JobSpec");
  EXPECT_EQ(client.Ask(request).error_response().error_code(), grpc::NOT_FOUND);
  request.set_all_extension_numbers_of_type("xlad.v1.Other");
  EXPECT_EQ(client.Ask(request).error_response().error_code(), grpc::NOT_FOUND);
  request.set_all_extension_numbers_of_type("xlad.v1.JobSpec");
  EXPECT_EQ(client.Ask(request).all_extension_numbers_response().base_type_name(), "xlad.v1.JobSpec");
  request.set_file_by_filename("proto/job.proto");
  FileDescriptorProto file;
  ASSERT_TRUE(file.ParseFromString(client.Ask(request).file_descriptor_response().file_descriptor_proto(0)));
  EXPECT_EQ(file.name(), "proto/job.proto");
  EXPECT_TRUE(client.Finish().ok());
}

}  // namespace
}  // namespace xlad::service

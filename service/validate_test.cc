#include "service/validate.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace xlad::service {
namespace {

using testing::HasSubstr;

template <typename Message>
Message Parsed(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

const char kDigest[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

SubmitJobRequest GoodJob() {
  SubmitJobRequest request = Parsed<SubmitJobRequest>(R"(
      client_key: "k" spec { name: "mlp" steps: 10 batch_size: 2 batch_count: 3 mesh { name: "dp" size: 8 } })");
  request.mutable_spec()->set_program_blob(kDigest);
  return request;
}

// The error message must begin with `field`.
void ExpectBad(const absl::Status& status, const std::string& field) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
  EXPECT_THAT(status.message(), testing::StartsWith(field));
  EXPECT_THAT(status.message(), HasSubstr("expected")) << field;
  EXPECT_LT(status.message().size(), 400) << "an error message must not repeat long input";
}

TEST(Validate, AcceptsAJobAndNamesAtTheirLimit) {
  SubmitJobRequest request = GoodJob();
  EXPECT_TRUE(Validate(request).ok());
  request.mutable_spec()->set_name(std::string(kMaxNameBytes, 'n'));
  EXPECT_TRUE(Validate(request).ok());
  request.mutable_spec()->set_name(std::string(kMaxNameBytes + 1, 'n'));
  ExpectBad(Validate(request), "name");
  request.mutable_spec()->set_name(std::string(60 << 20, 'n'));
  ExpectBad(Validate(request), "name");
  request.mutable_spec()->set_name("line\nbreak");
  ExpectBad(Validate(request), "name");
}

TEST(Validate, OnlyAxesOfTheMeshMayShrink) {
  SubmitJobRequest request = GoodJob();
  request.mutable_spec()->add_shrink_axes("dp");
  EXPECT_TRUE(Validate(request).ok());
  request.mutable_spec()->add_shrink_axes("pd");
  ExpectBad(Validate(request), "shrink_axes: found \"pd\"");
}

TEST(Validate, CheckpointsGoToTheCoordinatorOrToAFolder) {
  SubmitJobRequest request = GoodJob();
  for (const char* uri : {"", "xlad:", "file:/shared/run7"}) {
    request.mutable_spec()->mutable_checkpoint()->set_uri(uri);
    EXPECT_TRUE(Validate(request).ok()) << uri;
  }
  for (const char* uri : {"/shared/run7", "file:run7", "s3://bucket", "xlad:run7", "file:"}) {
    request.mutable_spec()->mutable_checkpoint()->set_uri(uri);
    ExpectBad(Validate(request), "checkpoint.uri");
  }
}

TEST(Validate, RefusesNegativeCounts) {
  const std::pair<const char*, void (JobSpec::*)(int64_t)> counts[] = {{"steps", &JobSpec::set_steps},
                                                                       {"batch_size", &JobSpec::set_batch_size},
                                                                       {"batch_count", &JobSpec::set_batch_count}};
  for (const auto& [field, set] : counts) {
    for (const int64_t value : {int64_t{-1}, INT64_MIN, INT64_MAX, kMaxSteps + 1}) {
      SubmitJobRequest request = GoodJob();
      (request.mutable_spec()->*set)(value);
      ExpectBad(Validate(request), field);
    }
  }
  SubmitJobRequest request = GoodJob();
  request.mutable_spec()->set_max_attempts(-1);
  ExpectBad(Validate(request), "max_attempts");
}

TEST(Validate, DevicesOfAJobDivideItsShards) {
  SubmitJobRequest request = GoodJob();
  JobSpec& spec = *request.mutable_spec();
  spec.set_devices(4);
  ExpectBad(Validate(request), "devices: found 4 in a mode other than canonical");
  spec.mutable_compile()->set_reduction_mode(CANONICAL);
  for (const int64_t devices : {0, 1, 2, 4, 8}) {
    spec.set_devices(devices);
    EXPECT_TRUE(Validate(request).ok()) << devices;
  }
  for (const int64_t devices : {int64_t{-1}, int64_t{3}, int64_t{16}, INT64_MIN, INT64_MAX}) {
    spec.set_devices(devices);
    ExpectBad(Validate(request), "devices");
  }
  spec.set_devices(0);
  spec.mutable_compile()->set_reduction_mode(static_cast<ReductionMode>(3));
  ExpectBad(Validate(request), "compile.reduction_mode");
}

TEST(Validate, RefusesImpossibleMeshes) {
  const auto session = [](std::vector<int64_t> sizes) {
    OpenSessionRequest request;
    for (const int64_t size : sizes) {
      request.add_mesh()->set_name(absl::StrCat("a", request.mesh_size()));
      request.mutable_mesh(request.mesh_size() - 1)->set_size(size);
    }
    return Validate(request);
  };
  EXPECT_TRUE(session({1 << 10, 1 << 10}).ok());
  const int64_t huge = int64_t{1} << 32;
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {huge, huge}, {INT64_MAX}, {0}, {-2, -2}, {1 << 10, 1 << 11}, {INT64_MIN, 2}}) {
    EXPECT_EQ(session(sizes).code(), absl::StatusCode::kInvalidArgument) << testing::PrintToString(sizes);
  }
  EXPECT_FALSE(session(std::vector<int64_t>(kMaxMeshAxes + 1, 1)).ok());
}

TEST(Validate, RefusesBoxesWhoseEndsDoNotMatchTheirStarts) {
  const auto shard = [](absl::string_view box) {
    const std::string piece = absl::StrCat("tensor: 't' box { ", box, " }");
    return Parsed<WorkerMessage>(absl::StrCat("shard_written { job_id: 'j' attempt: 1 shard { uri: 'u' sha256: '",
                                              kDigest, "' pieces { ", piece, " } } }"));
  };
  for (const char* box :
       {"lo: [0, 0] hi: [1]", "lo: [0] hi: [1, 1]", "lo: [3] hi: [2]", "lo: [-1] hi: [2]", "hi: [9]"}) {
    ExpectBad(Validate(shard(box)), "shard_written piece's box");
  }
  EXPECT_TRUE(Validate(shard("")).ok()) << "a scalar's box has no dimensions";
}

TEST(Validate, RefusesShapesThatOverflowAndMalformedDigests) {
  const auto put =
      Parsed<PutArrayRequest>("session_id: 's' shape { element_type: 11 dims: 4294967296 dims: 4294967296 }");
  EXPECT_EQ(Validate(put).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Validate(Parsed<PutArrayRequest>("session_id: 's' shape { element_type: 99 }")).code(),
            absl::StatusCode::kInvalidArgument);
  PutArrayRequest ranks = Parsed<PutArrayRequest>("session_id: 's' shape { element_type: 11 }");
  ranks.mutable_shape()->mutable_dims()->Resize(64, 1);
  EXPECT_TRUE(Validate(ranks).ok());
  ranks.mutable_shape()->mutable_dims()->Resize(65, 1);
  ExpectBad(Validate(ranks), "shape: found 65 dimensions");
  for (const std::string& digest : {std::string("../../etc/passwd"), std::string(64, 'A'), std::string(63, 'a')}) {
    GetBlobRequest get;
    get.set_digest(digest);
    ExpectBad(Validate(get), "digest");
  }
}

TEST(Validate, LimitsTheEntriesOfSessionRequests) {
  constexpr int kMost = 1 << 20;
  FreeArraysRequest free;
  free.set_session_id("s");
  CallProgramRequest call;
  call.set_session_id("s");
  for (int i = 0; i < kMost; ++i) {
    free.add_arrays(i);
    call.add_free(i);
  }
  EXPECT_TRUE(Validate(free).ok());
  EXPECT_TRUE(Validate(call).ok());
  free.add_arrays(0);
  call.add_free(0);
  ExpectBad(Validate(free), "arrays");
  ExpectBad(Validate(call), "free");
  AddProgramRequest add;
  add.set_session_id("s");
  add.set_executable_digest(std::string(64, 'a'));
  add.set_seal(std::string(64, '0'));
  EXPECT_TRUE(Validate(add).ok());
  add.set_seal(std::string(300, '0'));
  ExpectBad(Validate(add), "seal");
}

TEST(Validate, ChecksMessagesOfWorkers) {
  EXPECT_TRUE(Validate(Parsed<WorkerMessage>("register { worker_id: 'w0' devices: 2 offers { count: 2 } }")).ok());
  const std::pair<const char*, const char*> bad[] = {
      {"worker_id", "register { devices: 1 }"},
      {"devices", "register { worker_id: 'w0' devices: -1 }"},
      {"offers", "register { worker_id: 'w0' devices: 2 offers { count: 3 } }"},
      {"devices of an offer", "register { worker_id: 'w0' devices: 0 offers { count: -2 } offers { count: 2 } }"},
      {"running.job_id", "heartbeat { running { attempt: 1 } }"},
      {"running.silent.worker_id", "heartbeat { running { job_id: 'j' attempt: 1 silent { silent_ms: 1 } } }"},
      {"running.silent.silent_ms",
       "heartbeat { running { job_id: 'j' attempt: 1 silent { worker_id: 'w' silent_ms: -1 } } }"},
      {"running.silent.silent_ms",
       "heartbeat { running { job_id: 'j' attempt: 1 silent { worker_id: 'w' silent_ms: 9000000000000000000 } } }"},
      {"ready.attempt", "ready { job_id: 'j' attempt: -1 }"},
      {"steps.metrics.step", "steps { job_id: 'j' attempt: 1 metrics { step: -5 } }"},
      {"stopped.step", "stopped { job_id: 'j' attempt: 1 step: -5 }"},
  };
  for (const auto& [field, text] : bad) ExpectBad(Validate(Parsed<WorkerMessage>(text)), field);
}

// The reason of a job that waits for devices contains their target, so the texts of a target are limited.
TEST(Validate, LimitsWhatWorkersOffer) {
  const auto registration = [](const std::string& target) {
    return Validate(Parsed<WorkerMessage>(
        absl::StrCat("register { worker_id: 'w0' devices: 1 offers { count: 1 target { ", target, " } } }")));
  };
  const std::string long_text(257, 'x');
  for (const char* field : {"triple", "cpu", "device_kind"}) {
    EXPECT_TRUE(registration(absl::StrCat(field, ": 'cpu'")).ok());
    ExpectBad(registration(absl::StrCat(field, ": '", long_text, "'")), absl::StrCat("target.", field));
    ExpectBad(registration(absl::StrCat(field, ": 'a\\nb'")), absl::StrCat("target.", field));
  }
  EXPECT_TRUE(registration(absl::StrCat("features: '", std::string(1 << 16, '+'), "'")).ok());
  ExpectBad(registration(absl::StrCat("features: '", std::string((1 << 16) + 1, '+'), "'")), "target.features");
  ExpectBad(registration(absl::StrCat("device_model: '", std::string(4097, 'm'), "'")), "target.device_model");
  EXPECT_TRUE(registration("chip: 'two\\nlines'").ok());
  ExpectBad(registration(absl::StrCat("chip: '", std::string((1 << 20) + 1, 'c'), "'")), "target.chip");
  WorkerMessage many = Parsed<WorkerMessage>("register { worker_id: 'w0' }");
  for (int i = 0; i < 1025; ++i) many.mutable_register_()->add_offers();
  ExpectBad(Validate(many), "number of offers");
}

}  // namespace
}  // namespace xlad::service

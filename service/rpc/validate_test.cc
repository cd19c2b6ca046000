#include "service/rpc/validate.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

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

// Checkpoints are safetensors files, which cannot have every name.
TEST(Validate, NamesOfStateMustBeStorable) {
  SubmitJobRequest request = GoodJob();
  auto* const parameter = request.mutable_spec()->add_parameters();
  parameter->mutable_shape()->set_element_type(11);
  parameter->set_name("__metadata");
  EXPECT_TRUE(Validate(request).ok()) << Validate(request);
  for (const char* const name : {"__metadata__", "w\xff"}) {
    parameter->set_name(name);
    ExpectBad(Validate(request), "parameter 0: found");
  }
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

using Field = google::protobuf::FieldDescriptor;

TEST(Validate, PeersConnectToAHostAndAPort) {
  WorkerMessage message = Parsed<WorkerMessage>("register { worker_id: 'w' }");
  for (const char* good : {"", "10.0.0.1:80", "[fd00::1]:80", "host-1.example:80"}) {
    message.mutable_register_()->set_data_address(good);
    EXPECT_TRUE(Validate(message).ok()) << Validate(message);
  }
  for (const char* bad : {"host", "host:x", "a b:80", "[fd00::1%a b]:80", "host\n:80"}) {
    message.mutable_register_()->set_data_address(bad);
    ExpectBad(Validate(message), "data_address");
  }
}

// Appends elements until the field has more than `limit`.
void Overfill(const Field* field, int limit, google::protobuf::Message* message) {
  const auto* reflection = message->GetReflection();
  while (reflection->FieldSize(*message, field) <= limit) {
    switch (field->cpp_type()) {
      case Field::CPPTYPE_MESSAGE:
        reflection->AddMessage(message, field);
        break;
      case Field::CPPTYPE_STRING:
        reflection->AddString(message, field, "");
        break;
      case Field::CPPTYPE_ENUM:
        reflection->AddEnumValue(message, field, 0);
        break;
      case Field::CPPTYPE_INT32:
        reflection->AddInt32(message, field, 0);
        break;
      case Field::CPPTYPE_INT64:
        reflection->AddInt64(message, field, 0);
        break;
      default:
        FAIL() << field->full_name();
    }
  }
}

// Whether an element may take more memory than it has bytes in the message. A limit on the bytes of the message is then
// not enough.
bool Expands(const Field* field) {
  const Field::CppType type = field->cpp_type();
  return type != Field::CPPTYPE_FLOAT && type != Field::CPPTYPE_BOOL && field->type() != Field::TYPE_FIXED64;
}

// Whether the error says that a field has too many elements.
bool IsOverLimit(const absl::Status& status) {
  return absl::IsInvalidArgument(status) &&
         testing::Value(std::string(status.message()), testing::ContainsRegex("(number of.* to |at most )[0-9]+$"));
}

// `message` is a part of what `validate` checks. Expects that `validate` refuses too many elements in each of its
// repeated fields. The message must have an element in each repeated field of messages.
void ExpectLimits(google::protobuf::Message* message, const std::function<absl::Status()>& validate) {
  const auto* reflection = message->GetReflection();
  for (int f = 0; f < message->GetDescriptor()->field_count(); ++f) {
    const Field* field = message->GetDescriptor()->field(f);
    const bool is_message = field->cpp_type() == Field::CPPTYPE_MESSAGE && !field->is_map();
    if (field->is_repeated() && !field->is_map() && Expands(field)) {
      const std::unique_ptr<google::protobuf::Message> saved(message->New());
      saved->CopyFrom(*message);
      absl::Status status;
      // No field may have more than 2^20 elements. Most limits are much lower, and found with fewer elements.
      for (int limit = 1 << 10; !IsOverLimit(status) && limit <= 1 << 20; limit <<= 5) {
        Overfill(field, limit, message);
        status = validate();
      }
      EXPECT_TRUE(IsOverLimit(status)) << field->full_name() << ": " << status;
      message->CopyFrom(*saved);
    }
    if (is_message && field->is_repeated()) {
      ASSERT_GT(reflection->FieldSize(*message, field), 0) << field->full_name();
      ExpectLimits(reflection->MutableRepeatedMessage(message, field, 0), validate);
    } else if (is_message && (field->containing_oneof() == nullptr || reflection->HasField(*message, field))) {
      ExpectLimits(reflection->MutableMessage(message, field), validate);
    }
  }
}

// Numbers that may have any value.
const std::set<std::string> kAnyNumber = {
    "RegisterWorker.pid",    // For display.
    "AttemptExited.pid",     // For display.
    "ClockProbe.sent_ns",    // Sent back.
    "JobSpec.Result.feeds",  // These are checked against the program.
    "LoadProgramRequest.feeds",
    "CallProgramRequest.program",  // These are looked up.
    "CallProgramRequest.free",    "CallProgramRequest.Argument.array",
    "FreeArraysRequest.arrays",   "GetArrayRequest.array",
};

std::set<std::string>& TriedNumbers() {
  static std::set<std::string> tried;
  return tried;
}

// Expects that `validate` refuses the least and the greatest number in each int64 field, except for kAnyNumber.
void ExpectRanges(google::protobuf::Message* message, const std::function<absl::Status()>& validate) {
  const auto* reflection = message->GetReflection();
  for (int f = 0; f < message->GetDescriptor()->field_count(); ++f) {
    const Field* field = message->GetDescriptor()->field(f);
    if (field->is_map()) continue;
    if (field->cpp_type() == Field::CPPTYPE_INT64) {
      const std::string name(absl::StripPrefix(field->full_name(), "xlad.v1."));
      TriedNumbers().insert(name);
      for (const int64_t number : {INT64_MIN, INT64_MAX}) {
        const std::unique_ptr<google::protobuf::Message> saved(message->New());
        saved->CopyFrom(*message);
        field->is_repeated() ? reflection->AddInt64(message, field, number)
                             : reflection->SetInt64(message, field, number);
        EXPECT_EQ(validate().ok(), kAnyNumber.contains(name)) << name << " = " << number << ": " << validate();
        message->CopyFrom(*saved);
      }
    } else if (field->cpp_type() == Field::CPPTYPE_MESSAGE && field->is_repeated()) {
      ExpectRanges(reflection->MutableRepeatedMessage(message, field, 0), validate);
    } else if (field->cpp_type() == Field::CPPTYPE_MESSAGE &&
               (field->containing_oneof() == nullptr || reflection->HasField(*message, field))) {
      ExpectRanges(reflection->MutableMessage(message, field), validate);
    }
  }
}

template <typename Message>
void ExpectLimits(const std::string& text) {
  SCOPED_TRACE(text);
  Message message = Parsed<Message>(absl::StrReplaceAll(text, {{"DIGEST", absl::StrCat("'", kDigest, "'")}}));
  ASSERT_TRUE(Validate(message).ok()) << Validate(message);
  ExpectLimits(&message, [&] { return Validate(message); });
  ExpectRanges(&message, [&] { return Validate(message); });
}

TEST(Validate, LimitsTheElementsAndTheNumbersOfEveryField) {
  const std::string running = "running { job_id: 'j' silent { worker_id: 'w' } }";
  ExpectLimits<WorkerMessage>(absl::StrCat("register { worker_id: 'w' offers {} ", running, " }"));
  ExpectLimits<WorkerMessage>(absl::StrCat("heartbeat { ", running, " }"));
  ExpectLimits<WorkerMessage>("steps { job_id: 'j' metrics {} }");
  ExpectLimits<WorkerMessage>("finished { job_id: 'j' }");
  for (const char* kind :
       {"ready", "stop_answer", "stopped", "failed", "checkpoint_answer", "shard_failed", "exited"}) {
    ExpectLimits<WorkerMessage>(absl::StrCat(kind, " { job_id: 'j' }"));
  }
  ExpectLimits<WorkerMessage>("clock_probe {}");
  ExpectLimits<WorkerMessage>("shard_written { job_id: 'j' shard { sha256: DIGEST pieces {} } }");
  ExpectLimits<WorkerMessage>(
      "trace { job_id: 'j' program { instructions {} collectives { groups {} } } steps {} clock {} }");
  ExpectLimits<SubmitJobRequest>(
      "spec { program_blob: DIGEST parameters { shape { element_type: 11 } } results { shape { element_type: 11 } } "
      "mesh { size: 1 } }");
  ExpectLimits<ResizeJobRequest>("job_id: 'j' mesh { size: 1 }");
  ExpectLimits<HasBlobsRequest>("");
  ExpectLimits<GetBlobRangeRequest>("digest: DIGEST reader { job_id: 'j' worker_id: 'w' }");
  ExpectLimits<OpenSessionRequest>("mesh { size: 1 }");
  ExpectLimits<LoadProgramRequest>("session_id: 's' program_blob: DIGEST");
  ExpectLimits<CallProgramRequest>("session_id: 's' arguments {}");
  ExpectLimits<AddProgramRequest>("session_id: 's' executable_digest: DIGEST plans {}");
  ExpectLimits<PutArrayRequest>("session_id: 's' shape { element_type: 11 }");
  ExpectLimits<FreeArraysRequest>("session_id: 's'");
  ExpectLimits<GetArrayRequest>("session_id: 's'");
  ExpectLimits<PutBatchRequest>("job_id: 'j'");
  ExpectLimits<GetBatchRangeRequest>("job_id: 'j'");
  ExpectLimits<ListJobsRequest>("");
  ExpectLimits<JobLogRequest>("job_id: 'j'");
  ExpectLimits<WatchJobRequest>("job_id: 'j'");
  for (const std::string& name : kAnyNumber) EXPECT_TRUE(TriedNumbers().contains(name)) << name << " is in no message";
}

}  // namespace
}  // namespace xlad::service

// SessionHost: repeated requests of clients, waiting calls and their ends, and commands for workers that connect and
// disconnect.
#include "runtime/session_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::Array;
using tensor::ElementType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const tensor::Shape kVector{ElementType::kF32, {4}};

// (x) -> (y), on two devices. Parameters are split and results replicated, so that results change their layout.
Executable MakeResplitExecutable() {
  Executable executable;
  for (const bool split : {true, false}) {
    EntryValue* entry = split ? executable.add_parameters() : executable.add_results();
    tensor::ShapeToWire(kVector, entry->mutable_global());
    tensor::ShapeToWire({ElementType::kF32, {split ? 2 : 4}}, entry->mutable_local());
    tensor::BoxToWire(split ? tensor::Box{{0}, {2}} : tensor::FullBox(kVector), entry->add_boxes());
    if (split) tensor::BoxToWire({{2}, {4}}, entry->add_boxes());
  }
  return executable;
}

std::shared_ptr<Array> Numbers() {
  auto array = std::make_shared<Array>(kVector);
  float* values = reinterpret_cast<float*>(array->bytes().data());
  std::iota(values, values + 4, 1.0f);
  return array;
}

class SessionHostTest : public ::testing::Test {
 protected:
  SessionHostTest() : host_("job-1", "a", /*workers=*/2) {
    AddProgramRequest request;
    request.set_executable_digest("digest");
    program_ = host_.AddProgram(MakeResplitExecutable(), request).value();
    host_.Begin([this](const SessionCommand& command) { delivered_.push_back(command.sequence()); });
  }
  CallProgramRequest Call(int64_t array, const std::string& key = "") {
    CallProgramRequest request;
    request.set_program(program_);
    request.add_arguments()->set_array(array);
    request.set_request_key(key);
    return request;
  }
  std::vector<int64_t> CommandsAfter(int64_t sequence) {
    std::vector<int64_t> sequences;
    const auto commands = host_.CommandsAfter(sequence, gone_);
    for (const SessionCommand& command : *commands) sequences.push_back(command.sequence());
    return sequences;
  }
  void AnswerAll(int64_t sequence) {
    host_.Answer("a", sequence);
    host_.Answer("b", sequence);
  }

  SessionHost host_;
  int64_t program_ = 0;
  std::vector<int64_t> delivered_;
  const std::atomic<bool> gone_ = true, here_ = false;
};

TEST_F(SessionHostTest, ARepeatedRequestHasTheResultOfTheFirst) {
  AddProgramRequest again;
  again.set_request_key("p");
  const int64_t second = *host_.AddProgram(MakeResplitExecutable(), again);
  EXPECT_NE(second, program_);
  EXPECT_EQ(*host_.AddProgram(MakeResplitExecutable(), again), second);
  const int64_t x = *host_.PutArray(Numbers(), "x");
  EXPECT_EQ(*host_.PutArray(Numbers(), "x"), x);
  EXPECT_NE(*host_.PutArray(Numbers(), ""), *host_.PutArray(Numbers(), ""));
  const std::vector<int64_t> results = *host_.Call(Call(x, "c"));
  EXPECT_EQ(*host_.Call(Call(x, "c")), results);
  EXPECT_NE(*host_.Call(Call(x, "d")), results);
  EXPECT_THAT(delivered_, ElementsAre(1, 2, 3, 4)) << "two loads, which came before and after Begin, and two calls";
}

TEST_F(SessionHostTest, RequestsOfDifferentMethodsMayHaveTheSameKey) {
  AddProgramRequest add;
  add.set_request_key("k");
  Executable executable;  // A program without results.
  *executable.add_parameters() = MakeResplitExecutable().parameters(0);
  program_ = *host_.AddProgram(executable, add);
  std::vector<int64_t> arrays;
  for (const int i : {1, 2, 3}) arrays.push_back(*host_.PutArray(Numbers(), absl::StrCat("x", i)));
  const int64_t x = *host_.PutArray(Numbers(), "k");
  EXPECT_EQ(std::count(arrays.begin(), arrays.end(), x), 0) << "a new array";
  EXPECT_THAT(*host_.Call(Call(x, "k")), ElementsAre());
  EXPECT_EQ(*host_.AddProgram(executable, add), program_);
  EXPECT_EQ(*host_.PutArray(Numbers(), "k"), x);
  EXPECT_THAT(*host_.Call(Call(x, "k")), ElementsAre());
  EXPECT_THAT(*host_.Call(Call(x, "c")), ElementsAre());
  EXPECT_NE(*host_.PutArray(Numbers(), "c"), x);
}

TEST_F(SessionHostTest, RefusesLongKeys) {
  const std::string longest(SessionHost::kMaxKeyBytes, 'k'), too_long = longest + "k";
  const auto x = host_.PutArray(Numbers(), longest);
  ASSERT_TRUE(x.ok()) << x.status();
  AddProgramRequest request;
  request.set_request_key(too_long);
  for (const absl::Status& status :
       {host_.AddProgram(MakeResplitExecutable(), request).status(), host_.PutArray(Numbers(), too_long).status(),
        host_.Call(Call(*x, too_long)).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("found 129 bytes, expected at most 128"));
  }
}

TEST(SessionHostLimits, AreForProgramsArraysAndBytes) {
  SessionHost host("job-1", "a", 1, {.programs = 2, .arrays = 4, .host_bytes = 40});
  host.Begin([](const SessionCommand&) {});
  const auto refusal = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    return std::string(status.message());
  };
  AddProgramRequest program;
  const int64_t number = *host.AddProgram(MakeResplitExecutable(), program);
  ASSERT_TRUE(host.AddProgram(MakeResplitExecutable(), program).ok());
  EXPECT_THAT(refusal(host.AddProgram(MakeResplitExecutable(), program).status()),
              HasSubstr("session job-1: found 3 programs, expected at most 2"));

  auto upload = host.BeginUpload(30);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_THAT(refusal(host.BeginUpload(16).status()),
              HasSubstr("found 30 bytes of whole arrays in the memory of worker a and 16 more, expected at most 40 "
                        "together"));
  EXPECT_TRUE(host.BeginUpload(10).ok());
  EXPECT_FALSE(host.BeginUpload(INT64_MAX).ok());
  upload->reset();
  const int64_t x = *host.PutArray(Numbers(), ""), y = *host.PutArray(Numbers(), "");
  EXPECT_THAT(refusal(host.BeginUpload(16).status()), HasSubstr("found 32 bytes"));
  ASSERT_TRUE(host.FreeArrays({y}).ok());
  EXPECT_TRUE(host.BeginUpload(16).ok());

  // Results are stored on the workers. Their bytes count only while a client reads them.
  CallProgramRequest call;
  call.set_program(number);
  call.add_arguments()->set_array(x);
  const int64_t z = host.Call(call)->front();
  ASSERT_TRUE(host.Call(call).ok());
  {
    const auto room = host.BeginUpload(20);
    EXPECT_THAT(refusal(host.GetArray(z).status()), HasSubstr("and 16 more"));
  }
  ASSERT_TRUE(host.Call(call).ok());
  EXPECT_THAT(refusal(host.Call(call).status()),
              HasSubstr("found 4 arrays and a request for more, expected at most 4"));
  EXPECT_THAT(refusal(host.PutArray(Numbers(), "").status()), HasSubstr("found 4 arrays"));
  EXPECT_THAT(refusal(host.BeginUpload(0).status()), HasSubstr("found 4 arrays"));
}

// Values of arguments, and arrays that the program needs in another layout, are stored on the host as a whole.
TEST(SessionHostLimits, CallsNeedRoomForWholeArrays) {
  SessionHost host("job-1", "a", 1, {.programs = 2, .arrays = 20, .host_bytes = 40});
  host.Begin([](const SessionCommand&) {});
  CallProgramRequest of_value, of_result;
  of_value.set_program(*host.AddProgram(MakeResplitExecutable(), AddProgramRequest()));
  host.Answer("a", 1);
  of_result = of_value;
  const auto numbers = Numbers();
  const absl::Span<const std::byte> bytes = numbers->bytes();
  of_value.add_arguments()->set_value(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const int64_t y = host.Call(of_value)->front();
  host.Answer("a", 2);  // The value is dropped.
  of_result.add_arguments()->set_array(y);
  {
    const auto room = host.BeginUpload(30);
    ASSERT_TRUE(room.ok());
    for (const CallProgramRequest& call : {of_value, of_result}) {
      const absl::Status status = host.Call(call).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(status.message(), HasSubstr("found 30 bytes of whole arrays in the memory of worker a and 16 more"));
    }
  }
  ASSERT_TRUE(host.Call(of_result).ok());
  ASSERT_TRUE(host.Call(of_result).ok()) << "the workers have the array in this layout, too";
  ASSERT_TRUE(host.Call(of_value).ok());
  std::thread last([&] { EXPECT_TRUE(host.Call(of_value).ok()) << "it waits until the other calls are done"; });
  for (int64_t done = 3; done <= 7; ++done) host.Answer("a", done);
  last.join();
  // Uploads that end at the same time may exceed the limit. A call that stores nothing on the host is still accepted.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(host.PutArray(Numbers(), "").ok());
  const absl::Status status = host.Call(of_result).status();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(SessionHostTest, WorkersReadBoxesOfUploadedArraysUntilTheyHaveThem) {
  const int64_t x = *host_.PutArray(Numbers(), "");
  ASSERT_TRUE(host_.Call(Call(x)).ok());
  const auto box = host_.ReadBox(x, {{2}, {4}});
  ASSERT_TRUE(box.ok()) << box.status();
  EXPECT_EQ(reinterpret_cast<const float*>(box->bytes().data())[0], 3);
  EXPECT_THAT(host_.ReadBox(x, {{2}, {5}}).status().message(), HasSubstr("expected one inside f32[4]"));
  AnswerAll(2);
  EXPECT_TRUE(absl::IsNotFound(host_.ReadBox(x, {{2}, {4}}).status()));
}

TEST_F(SessionHostTest, AResultIsFetchedFromTheWorkers) {
  const int64_t y = host_.Call(Call(*host_.PutArray(Numbers(), "")))->front();
  absl::StatusOr<std::shared_ptr<const Array>> got;
  std::thread reader([&] { got = host_.GetArray(y); });
  const auto fetch = host_.CommandsAfter(2, here_);  // Waits until the array has been computed.
  ASSERT_EQ(fetch->size(), 1u);
  EXPECT_EQ((*fetch)[0].fetch().array(), y);
  EXPECT_EQ(*host_.BytesOf(y, tensor::FullBox(kVector)), 16);
  EXPECT_FALSE(host_.BytesOf(y, {{0}, {5}}).ok());
  host_.WriteBox(y, tensor::FullBox(kVector), Numbers()->bytes());
  host_.WriteBox(y, tensor::FullBox(kVector), Numbers()->bytes());  // Repeated after a reconnection.
  reader.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(reinterpret_cast<const float*>((*got)->bytes().data())[3], 4);
  AnswerAll(3);
  EXPECT_TRUE(absl::IsNotFound(host_.BytesOf(y, tensor::FullBox(kVector)).status())) << "the copy is dropped";
}

TEST_F(SessionHostTest, AWorkerThatReconnectsGetsTheCommandsItMissed) {
  const int64_t x = *host_.PutArray(Numbers(), "");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(host_.Call(Call(x)).ok());
  EXPECT_THAT(CommandsAfter(0), ElementsAre(1, 2, 3, 4));
  host_.Answer("a", 4);
  host_.Answer("b", 2);
  EXPECT_THAT(CommandsAfter(2), ElementsAre(3, 4));
  EXPECT_THAT(CommandsAfter(4), ElementsAre());
}

TEST_F(SessionHostTest, CallsWaitWhileManyAreNotDone) {
  const int64_t x = *host_.PutArray(Numbers(), "");
  std::atomic<int> calls = 0;
  std::thread caller([&] {
    for (; calls < 100; ++calls) EXPECT_TRUE(host_.Call(Call(x)).ok());
  });
  for (int64_t done = 1; done <= 101; ++done) {
    const auto commands = host_.CommandsAfter(done - 1, here_);
    EXPECT_LE(commands->size(), 16u);
    AnswerAll(done);
  }
  caller.join();
}

TEST_F(SessionHostTest, TheEndEndsAllWaits) {
  const int64_t y = host_.Call(Call(*host_.PutArray(Numbers(), "")))->front();
  std::vector<std::thread> threads;
  std::vector<absl::Status> ends(3);
  threads.emplace_back([&] { ends[0] = host_.GetArray(y).status(); });
  threads.emplace_back([&] {
    absl::Status status;
    while (status.ok()) status = host_.Call(Call(y)).status();
    ends[1] = status;
  });
  threads.emplace_back([&] {
    absl::Status status;
    for (int64_t sequence = 0; status.ok();) {
      const auto commands = host_.CommandsAfter(sequence, here_);
      status = commands.status();
      if (status.ok()) sequence = commands->back().sequence();
    }
    ends[2] = status;
  });
  host_.End("worker b was lost");
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) {
    EXPECT_TRUE(absl::IsAborted(end));
    EXPECT_THAT(end.message(), HasSubstr("session job-1 has ended: worker b was lost"));
  }
}

}  // namespace
}  // namespace xlad::runtime

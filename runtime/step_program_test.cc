// Step programs: kernels, copies, loops, branches, and inconsistent programs.
#include "runtime/step_program.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/clock.h"
#include "base/random.h"
#include "runtime/testing/test_support.h"

namespace xlad::runtime {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Allocations: 0: s32 counter, 1: pred, 2: s32 result, 3: 64 bytes.
class StepProgramTest : public ::testing::Test {
 protected:
  StepProgramTest() {
    AddAllocation(&executable_, Allocation::TEMPORARY, 4);
    AddAllocation(&executable_, Allocation::TEMPORARY, 1);
    AddAllocation(&executable_, Allocation::TEMPORARY, 4);
    AddAllocation(&executable_, Allocation::TEMPORARY, 64);
    executable_.set_name("program");
    kernels_["increment"] = [](absl::Span<void* const> b, int) {
      ++*static_cast<int32_t*>(b[0]);
      return absl::OkStatus();
    };
    kernels_["below_ten"] = [](absl::Span<void* const> b, int) {
      *static_cast<uint8_t*>(b[1]) = *static_cast<int32_t*>(b[0]) < 10;
      return absl::OkStatus();
    };
    kernels_["add_to"] = [](absl::Span<void* const> b, int) {
      *static_cast<int32_t*>(b[1]) += *static_cast<int32_t*>(b[0]);
      return absl::OkStatus();
    };
    kernels_["fail"] = [](absl::Span<void* const>, int) { return absl::InternalError("division by zero"); };
  }

  absl::StatusOr<std::unique_ptr<StepProgram>> Prepare() {
    loaded_ = std::make_unique<TestLoaded>(executable_, kernels_);
    return StepProgram::Prepare(*loaded_);
  }

  absl::Status Run(const collectives::AbortSignal* abort = nullptr) {
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<StepProgram> program, Prepare());
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device_->MakeStream());
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<Launcher> launcher, loaded_->MakeLauncher(0, stream.get()));
    std::vector<std::byte*> addresses;
    for (auto& block : memory_) addresses.push_back(block);
    StepEnvironment environment;
    environment.stream = stream.get();
    environment.launcher = launcher.get();
    environment.allocations = addresses;
    environment.abort = abort;
    environment.device = 3;
    environment.times = times_;
    environment.communicator = communicator_;
    return program->Run(environment);
  }

  int32_t& At(int allocation) { return *reinterpret_cast<int32_t*>(memory_[allocation]); }
  void Add(const Step& step) { *executable_.add_steps() = step; }
  std::string Refusal() { return std::string(Prepare().status().message()); }

  const std::unique_ptr<Device> device_ = MakeCpuDevice();
  Executable executable_;
  TestKernels kernels_;
  std::unique_ptr<TestLoaded> loaded_;
  StepTimes* times_ = nullptr;
  collectives::Communicator* communicator_ = nullptr;
  alignas(64) std::byte memory_[4][64] = {};
};

TEST_F(StepProgramTest, LoopsRunUntilTheirPredicateIsFalse) {
  Step loop;
  WhileStep* step = loop.mutable_while_();
  *step->add_condition() = KernelOn(executable_, "below_ten", {0, 1});
  *step->mutable_predicate() = Whole(executable_, 1);
  *step->add_body() = KernelOn(executable_, "increment", {0});
  *step->add_body() = KernelOn(executable_, "add_to", {0, 2});
  Add(loop);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(At(0), 10);
  EXPECT_EQ(At(2), 55);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(At(2), 55);
}

TEST_F(StepProgramTest, SelectorsOutOfRangeChooseTheLastBranch) {
  Step choice;
  IfStep* step = choice.mutable_if_();
  *step->mutable_selector() = Whole(executable_, 0);
  *step->add_branches()->add_steps() = KernelOn(executable_, "increment", {2});
  step->add_branches();
  *step->add_branches()->add_steps() = KernelOn(executable_, "add_to", {0, 2});
  Add(choice);
  for (const auto& [selector, result] : std::map<int, int>{{0, 1}, {1, 0}, {2, 2}, {3, 3}, {-1, -1}, {99, 99}}) {
    At(0) = selector;
    At(2) = 0;
    ASSERT_TRUE(Run().ok());
    EXPECT_EQ(At(2), result) << selector;
  }
  executable_.mutable_steps(0)->mutable_if_()->set_selector_is_predicate(true);
  At(0) = 1;
  At(2) = 0;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(At(2), 1) << "true is the first branch";
  At(0) = 0;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(At(2), 1) << "false is the second branch, which is empty";
}

// A clock that moves by 5 ns whenever it is read.
class SteppingClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_ += 5; }
  int64_t WallNs() const override { return 0; }

 private:
  mutable int64_t now_ns_ = 0;
};

TEST_F(StepProgramTest, MeasuresEachStepOfALoop) {
  Step loop;
  WhileStep* step = loop.mutable_while_();
  *step->add_condition() = KernelOn(executable_, "below_ten", {0, 1});
  *step->mutable_predicate() = Whole(executable_, 1);
  *step->add_body() = KernelOn(executable_, "increment", {0});
  Add(loop);
  Add(KernelOn(executable_, "increment", {2}));
  const SteppingClock clock;
  StepTimes times;
  times.clock = &clock;
  times_ = &times;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(times.calls, ElementsAre(1, 11, 10, 1)) << "the loop, its condition, its body, the kernel after it";
  EXPECT_THAT(times.ns, ElementsAre(5 + 21 * 10, 11 * 5, 10 * 5, 5)) << "the loop contains 21 measured steps";
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(times.calls, ElementsAre(2, 12, 10, 2)) << "the counter is already 10";
}

TEST_F(StepProgramTest, NamesTheStepThatMakesTheFirstNan) {
  const auto set = [&](const char* name, float value) {
    kernels_[name] = [value](absl::Span<void* const> b, int) {
      static_cast<float*>(b[1])[2] = value;
      return absl::OkStatus();
    };
    Step step = KernelOn(executable_, name, {0, 3});
    step.set_source("train.py:31");
    for (const auto& [allocation, arrays] :
         {std::pair(0, step.mutable_checked_operands()), std::pair(3, step.mutable_checked_results())}) {
      *arrays->Add()->mutable_buffer() = Whole(executable_, allocation);
      arrays->Mutable(0)->set_element_type(static_cast<int>(tensor::ElementType::kF32));
    }
    Add(step);
  };
  set("one", 1);
  ASSERT_TRUE(Run().ok());
  set("infinity", INFINITY);
  absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("infinity (train.py:31): device 3: found an infinity in floating-point result 0, "),
                    HasSubstr("element 2, expected")));
  // An infinite operand explains an infinite result, but not a NaN.
  *reinterpret_cast<float*>(memory_[0]) = -INFINITY;
  ASSERT_TRUE(Run().ok());
  set("nan", NAN);
  EXPECT_THAT(std::string(Run().message()),
              HasSubstr("nan (train.py:31): device 3: found NaN in floating-point result"));
  // A step that reads a NaN operand has not made the NaN; a select may remove it.
  *reinterpret_cast<float*>(memory_[0]) = NAN;
  EXPECT_THAT(std::string(Run().message()), HasSubstr("infinity (train.py:31): device 3: found an infinity"));
  executable_.mutable_steps()->DeleteSubrange(1, 1);
  EXPECT_TRUE(Run().ok());
}

TEST_F(StepProgramTest, CheckedArraysHaveElementsOfAKnownType) {
  using tensor::ElementType;
  struct Case {
    int type;
    int64_t bytes;
    const char* refusal;  // Empty if the array is valid.
  };
  const Case cases[] = {{static_cast<int>(ElementType::kF32), 64, ""},
                        {static_cast<int>(ElementType::kBF16), 6, ""},
                        {static_cast<int>(ElementType::kF32), 62, "found a checked array of 62 bytes"},
                        {static_cast<int>(ElementType::kC128), 24, "found a checked array of 24 bytes"},
                        {static_cast<int>(ElementType::kInvalid), 64, "found element type number 0"},
                        {-1, 64, "found element type number -1"},
                        {12345, 64, "found element type number 12345"}};
  for (const bool is_result : {false, true}) {
    for (const Case& one : cases) {
      Step step = KernelOn(executable_, "increment", {0});
      CheckedArray* array = is_result ? step.add_checked_results() : step.add_checked_operands();
      SetSlice(array->mutable_buffer(), 3, 0, one.bytes);
      array->set_element_type(one.type);
      executable_.clear_steps();
      Add(step);
      const std::string refusal = Refusal();
      EXPECT_THAT(refusal, HasSubstr(one.refusal)) << one.type;
      EXPECT_EQ(refusal.empty(), one.refusal[0] == 0) << refusal;
    }
  }
}

TEST_F(StepProgramTest, CopiesParts) {
  Step copy;
  SetSlice(copy.mutable_copy()->mutable_from(), 3, 8, 4);
  SetSlice(copy.mutable_copy()->mutable_to(), 2, 0, 4);
  Add(copy);
  reinterpret_cast<int32_t*>(memory_[3])[2] = 77;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(At(2), 77);
}

TEST_F(StepProgramTest, ErrorsNameTheInnermostStepAndItsSource) {
  Step loop;
  loop.set_name("while.1");
  *loop.mutable_while_()->add_condition() = KernelOn(executable_, "below_ten", {0, 1});
  *loop.mutable_while_()->mutable_predicate() = Whole(executable_, 1);
  Step* inner = loop.mutable_while_()->add_body();
  *inner = KernelOn(executable_, "fail", {0});
  inner->set_name("divide.7");
  inner->set_source("train.py:31");
  Add(loop);
  EXPECT_EQ(std::string(Run().message()), "divide.7 (train.py:31): division by zero");
}

TEST_F(StepProgramTest, AnEndlessLoopEndsWithTheAbort) {
  Step loop;
  *loop.mutable_while_()->add_condition() = KernelOn(executable_, "below_ten", {0, 1});
  *loop.mutable_while_()->mutable_predicate() = Whole(executable_, 1);
  Add(loop);
  collectives::AbortSignal abort;
  int rounds = 0;
  kernels_["below_ten"] = [&](absl::Span<void* const> b, int) {
    *static_cast<uint8_t*>(b[1]) = 1;
    if (++rounds == 1000) abort.Raise({absl::CancelledError("enough"), ""});
    return absl::OkStatus();
  };
  EXPECT_THAT(std::string(Run(&abort).message()), HasSubstr("enough"));
  EXPECT_EQ(rounds, 1000);
}

TEST_F(StepProgramTest, RefusesInconsistentSteps) {
  const auto refusal = [&](const Step& step) {
    executable_.clear_steps();
    Add(step);
    return Refusal();
  };
  EXPECT_THAT(refusal(KernelOn(executable_, "missing", {0})),
              AllOf(HasSubstr("executable 'program'"), HasSubstr("step missing: no kernel missing")));
  EXPECT_THAT(refusal(Step()), HasSubstr("found a step of an unknown kind"));
  Step step;
  SetSlice(step.mutable_copy()->mutable_from(), 9, 0, 4);
  SetSlice(step.mutable_copy()->mutable_to(), 2, 0, 4);
  EXPECT_THAT(refusal(step), HasSubstr("found allocation 9, expected 0 to 3"));
  for (const auto& [offset, bytes] : std::vector<std::pair<int64_t, int64_t>>{
           {-1, 4}, {61, 4}, {0, 65}, {4, int64_t{1} << 62}, {int64_t{1} << 62, 4}, {0, -4}}) {
    SetSlice(step.mutable_copy()->mutable_from(), 3, offset, bytes);
    EXPECT_THAT(refusal(step), HasSubstr("of allocation 3, which has 64 bytes")) << offset << " " << bytes;
  }
  SetSlice(step.mutable_copy()->mutable_from(), 3, 0, 8);
  EXPECT_THAT(refusal(step), HasSubstr("found a copy of 8 bytes to 4"));
  Step library;
  library.mutable_library()->set_op(0);
  EXPECT_THAT(refusal(library), HasSubstr("found library op 0, expected none"));
  Step collective;
  collective.mutable_collective()->set_spec(3);
  EXPECT_THAT(refusal(collective), HasSubstr("found collective 3, expected none"));
  Step choice;
  SetSlice(choice.mutable_if_()->mutable_selector(), 1, 0, 1);
  EXPECT_THAT(refusal(choice), HasSubstr("found a selector whose size in bytes is 1, expected 4"));
  SetSlice(choice.mutable_if_()->mutable_selector(), 0, 0, 4);
  EXPECT_THAT(refusal(choice), HasSubstr("found 0 branches"));
  Step deep;
  Step* at = &deep;
  for (int i = 0; i < 100; ++i) {
    *at->mutable_if_()->mutable_selector() = Whole(executable_, 0);
    at = at->mutable_if_()->add_branches()->add_steps();
  }
  *at = KernelOn(executable_, "increment", {0});
  EXPECT_THAT(refusal(deep), HasSubstr("deep"));
}

TEST_F(StepProgramTest, CollectiveBuffersMustFit) {
  MeshAxis* axis = executable_.add_mesh();
  axis->set_name("dp");
  axis->set_size(2);
  xlad::CollectiveSpec* spec = executable_.add_collectives();
  spec->set_kind(xlad::CollectiveSpec::ALL_GATHER);
  spec->set_element_type(static_cast<int>(tensor::ElementType::kS32));
  spec->add_counts(1);
  spec->add_groups()->add_devices(0);
  spec->mutable_groups(0)->add_devices(1);
  Step step;
  *step.mutable_collective()->add_inputs() = Whole(executable_, 0);
  *step.mutable_collective()->add_outputs() = Whole(executable_, 2);
  Add(step);
  EXPECT_THAT(Refusal(), HasSubstr("found 4 bytes for element 0 of the outputs, expected at least 8 for all_gather "
                                   "s32[1] over 2 ranks"));
  *executable_.mutable_steps(0)->mutable_collective()->mutable_outputs(0) = Whole(executable_, 3);
  EXPECT_TRUE(Prepare().ok());
}

// Doubles the counter when the program waits for a collective.
class LateCommunicator final : public collectives::Communicator {
 public:
  absl::Status Launch(const collectives::CollectiveLaunch&) override {
    return absl::InternalError("found a launch, expected a start");
  }
  absl::StatusOr<int64_t> Start(const collectives::CollectiveLaunch& launch) override {
    running_[++count_] = launch.outputs[0];
    return count_;
  }
  absl::Status Wait(int64_t number) override {
    const auto found = running_.find(number);
    if (found == running_.end()) return absl::InternalError("found a wait for a collective that is not running");
    *reinterpret_cast<int32_t*>(found->second) *= 2;
    running_.erase(found);
    return result;
  }

  absl::Status result;

 private:
  std::map<int64_t, std::byte*> running_;
  int64_t count_ = 0;
};

Step StartOn(Executable* executable, int request) {
  Step step = AllReduceOn(executable, 1, 1, 0);
  step.mutable_collective()->set_request(request);
  return step;
}

Step Done(int request) {
  Step step;
  step.set_name("all-reduce.1");
  step.mutable_collective_done()->set_request(request);
  return step;
}

TEST_F(StepProgramTest, StepsRunBetweenTheStartAndTheEndOfACollective) {
  LateCommunicator communicator;
  communicator_ = &communicator;
  Step loop;
  WhileStep* step = loop.mutable_while_();
  *step->add_condition() = KernelOn(executable_, "below_ten", {0, 1});
  *step->mutable_predicate() = Whole(executable_, 1);
  *step->add_body() = StartOn(&executable_, 5);
  *step->add_body() = KernelOn(executable_, "increment", {2});
  *step->add_body() = Done(5);
  Add(loop);
  At(0) = 3;
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(At(0), 12);
  EXPECT_EQ(At(2), 2);
  communicator.result = absl::AbortedError("peer 1 ended");
  At(0) = 3;
  EXPECT_THAT(std::string(Run().message()), AllOf(HasSubstr("all-reduce.1"), HasSubstr("peer 1 ended")));
}

TEST_F(StepProgramTest, RequestsMustEndOnceInTheListThatStartsThem) {
  const Step start = StartOn(&executable_, 1);
  const auto refusal = [&](const std::vector<Step>& steps) {
    executable_.clear_steps();
    for (const Step& step : steps) Add(step);
    return Refusal();
  };
  EXPECT_EQ(refusal({start, Done(1)}), "");
  EXPECT_THAT(refusal({start}), HasSubstr("found no end of request 1"));
  EXPECT_THAT(refusal({Done(1), start}), HasSubstr("found the end of request 1"));
  EXPECT_THAT(refusal({start, Done(2)}), HasSubstr("found the end of request 2"));
  EXPECT_THAT(refusal({start, Done(1), Done(1)}), HasSubstr("found the end of request 1"));
  EXPECT_THAT(refusal({start, Done(1), start, Done(1)}), HasSubstr("a second time"));
  Step branch;
  *branch.mutable_if_()->mutable_selector() = Whole(executable_, 0);
  *branch.mutable_if_()->add_branches()->add_steps() = Done(1);
  EXPECT_THAT(refusal({start, branch}), HasSubstr("found the end of request 1"));
}

// Changes random bytes in a valid executable. Prepare must accept or reject each result without a crash.
TEST_F(StepProgramTest, MutantsNeverCrash) {
  Step loop;
  *loop.mutable_while_()->add_condition() = KernelOn(executable_, "below_ten", {0, 1});
  *loop.mutable_while_()->mutable_predicate() = Whole(executable_, 1);
  *loop.mutable_while_()->add_body() = KernelOn(executable_, "increment", {0});
  Add(loop);
  const std::string bytes = executable_.SerializeAsString();
  const std::unique_ptr<Random> random = SeededRandom(11);
  const google::protobuf::LogSilencer silence;
  for (int i = 0; i < 3000; ++i) {
    std::string mutant = bytes;
    for (uint64_t k = 0; k <= random->Below(3); ++k)
      mutant[random->Below(mutant.size())] = static_cast<char>(random->Next());
    Executable executable;
    if (!executable.ParseFromString(mutant)) continue;
    const TestLoaded loaded(executable, kernels_);
    StepProgram::Prepare(loaded).status().IgnoreError();
  }
}

}  // namespace
}  // namespace xlad::runtime

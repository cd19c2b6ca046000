// Groups of steps (StepGroup): which steps form groups, and what is done if the launcher enqueues a group itself, or
// refuses it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "runtime/step_program.h"
#include "runtime/testing/test_support.h"

namespace xlad::runtime {
namespace {

using ::testing::ElementsAre;

// What a GroupingLauncher does and is told.
struct GroupLog {
  std::set<int> known;   // The groups that the launcher enqueues itself.
  bool refuses = false;  // Whether EndGroup returns false.
  std::vector<std::string> calls;
};

class GroupingLauncher final : public Launcher {
 public:
  GroupingLauncher(std::unique_ptr<Launcher> inner, GroupLog* log) : inner_(std::move(inner)), log_(*log) {}
  absl::Status RunKernel(int kernel, absl::Span<void* const> buffers, void* scratch, int64_t tiles) override {
    // A launcher that refuses a group enqueues none of its steps.
    const bool is_enqueued = !is_inside_ || !log_.refuses;
    log_.calls.push_back(is_enqueued ? "kernel" : "recorded");
    return is_enqueued ? inner_->RunKernel(kernel, buffers, scratch, tiles) : absl::OkStatus();
  }
  absl::Status RunLibraryOp(int op, absl::Span<void* const> buffers) override {
    return inner_->RunLibraryOp(op, buffers);
  }
  absl::StatusOr<bool> BeginGroup(const StepGroup& group) override {
    const bool is_known = log_.known.contains(group.number);
    log_.calls.push_back(absl::StrCat(is_known ? "known " : "begin ", group.number, ": ", group.launches));
    is_inside_ = !is_known;
    return is_known;
  }
  absl::StatusOr<bool> EndGroup(const absl::Status& enqueued) override {
    is_inside_ = false;
    log_.calls.push_back(absl::StrCat("end ", enqueued.message()));
    return !log_.refuses;
  }

 private:
  const std::unique_ptr<Launcher> inner_;
  GroupLog& log_;
  bool is_inside_ = false;
};

// All kernels can be in groups except "host".
class GroupingLoaded final : public LoadedExecutable {
 public:
  GroupingLoaded(Executable executable, const TestKernels& kernels, GroupLog* log)
      : inner_(std::move(executable), kernels), log_(log) {}
  const Executable& executable() const override { return inner_.executable(); }
  bool CanGroup(const Step& step) const override { return step.has_kernel() && step.kernel().symbol() != "host"; }
  absl::StatusOr<int> FindKernel(absl::string_view symbol) const override { return inner_.FindKernel(symbol); }
  absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(int32_t partition, Stream* stream) const override {
    XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Launcher> launcher, inner_.MakeLauncher(partition, stream));
    return std::make_unique<GroupingLauncher>(std::move(launcher), log_);
  }

 private:
  const TestLoaded inner_;
  GroupLog* const log_;
};

class StepGroupsTest : public ::testing::Test {
 protected:
  StepGroupsTest() {
    AddAllocation(&executable_, Allocation::TEMPORARY, 4);
    AddAllocation(&executable_, Allocation::TEMPORARY, 1);
    for (const char* const name : {"add", "host"}) {
      kernels_[name] = [](absl::Span<void* const> b, int) {
        ++*static_cast<int32_t*>(b[0]);
        return absl::OkStatus();
      };
    }
    kernels_["below_ten"] = [](absl::Span<void* const> b, int) {
      *static_cast<uint8_t*>(b[1]) = *static_cast<int32_t*>(b[0]) < 10;
      return absl::OkStatus();
    };
    kernels_["fail"] = [](absl::Span<void* const>, int) { return absl::InternalError("division by zero"); };
  }

  void Add(const std::vector<std::string>& names) {
    for (const std::string& name : names) *executable_.add_steps() = KernelOn(executable_, name, {0, 1});
  }
  absl::Status Run(StepTimes* times = nullptr) {
    log_.calls.clear();
    value_ = 0;
    const GroupingLoaded loaded(executable_, kernels_, &log_);
    const std::unique_ptr<Device> device = MakeCpuDevice();
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<StepProgram> program, StepProgram::Prepare(loaded));
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->MakeStream());
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<Launcher> launcher, loaded.MakeLauncher(0, stream.get()));
    std::byte* const addresses[] = {reinterpret_cast<std::byte*>(&value_), reinterpret_cast<std::byte*>(&predicate_)};
    StepEnvironment environment;
    environment.stream = stream.get();
    environment.launcher = launcher.get();
    environment.allocations = addresses;
    environment.times = times;
    return program->Run(environment);
  }

  Executable executable_;
  TestKernels kernels_;
  GroupLog log_;
  int32_t value_ = 0;
  uint8_t predicate_ = 0;
};

TEST_F(StepGroupsTest, ConsecutiveStepsFormGroups) {
  Add({"add", "add", "host", "add", "host", "add", "add", "add"});
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(value_, 8);
  EXPECT_THAT(log_.calls, ElementsAre("begin 0: 2", "kernel", "kernel", "end ", "kernel", "kernel", "kernel",
                                      "begin 2: 3", "kernel", "kernel", "kernel", "end "))
      << "one step is not a group";
}

TEST_F(StepGroupsTest, GroupsThatTheLauncherEnqueues) {
  Add({"add", "add", "host", "add", "add"});
  log_.known = {1};
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(value_, 3);
  EXPECT_THAT(log_.calls, ElementsAre("begin 0: 2", "kernel", "kernel", "end ", "kernel", "known 1: 2"));
}

TEST_F(StepGroupsTest, StepsOfARefusedGroupAreEnqueuedAgain) {
  Add({"add", "add"});
  log_.refuses = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(value_, 2);
  EXPECT_THAT(log_.calls, ElementsAre("begin 0: 2", "recorded", "recorded", "end ", "kernel", "kernel"));
}

TEST_F(StepGroupsTest, ErrorsNameTheStep) {
  Add({"add", "fail", "add"});
  executable_.mutable_steps(1)->set_source("train.py:31");
  for (const bool refuses : {false, true}) {
    log_.refuses = refuses;
    EXPECT_EQ(std::string(Run().message()), "fail (train.py:31): division by zero") << refuses;
    EXPECT_EQ(value_, 1);
  }
  log_.refuses = false;
  Run().IgnoreError();
  EXPECT_THAT(log_.calls, ElementsAre("begin 0: 3", "kernel", "kernel", "end division by zero"));
}

TEST_F(StepGroupsTest, TheBodyOfALoopIsAGroup) {
  Step loop;
  *loop.mutable_while_()->add_condition() = KernelOn(executable_, "below_ten", {0, 1});
  *loop.mutable_while_()->mutable_predicate() = Whole(executable_, 1);
  for (int i = 0; i < 2; ++i) *loop.mutable_while_()->add_body() = KernelOn(executable_, "add", {0, 1});
  *executable_.add_steps() = loop;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(value_, 10);
  EXPECT_EQ(std::count(log_.calls.begin(), log_.calls.end(), "begin 1: 2"), 5);
}

// Steps that are measured or whose floats are checked must be enqueued one by one.
TEST_F(StepGroupsTest, MeasuredStepsAndCheckedStepsFormNoGroups) {
  Add({"add", "add"});
  StepTimes times;
  times.clock = &RealClock();
  ASSERT_TRUE(Run(&times).ok());
  EXPECT_THAT(log_.calls, ElementsAre("kernel", "kernel"));
  EXPECT_THAT(times.calls, ElementsAre(1, 1));
  for (Step& step : *executable_.mutable_steps()) {
    CheckedArray* array = step.add_checked_results();
    *array->mutable_buffer() = Whole(executable_, 0);
    array->set_element_type(static_cast<int>(tensor::ElementType::kF32));
  }
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(log_.calls, ElementsAre("kernel", "kernel"));
}

}  // namespace
}  // namespace xlad::runtime

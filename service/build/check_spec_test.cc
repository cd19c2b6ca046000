#include "service/build/check_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "hlo/read/read.h"
#include "tensor/wire.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;
using Parameter = JobSpec::Parameter;
using Result = JobSpec::Result;
using tensor::SafetensorsIndex;

// The program has a state of four floats, a batch of two rows, a step number, and two scalar results.
constexpr char kProgram[] = R"(
HloModule program
ENTRY main {
  w = f32[4] parameter(0)
  x = f32[2,4] parameter(1)
  step = s32[] parameter(2)
  loss = f32[] constant(1)
  metric = f32[] constant(2)
  ROOT all = (f32[4], f32[], f32[]) tuple(w, loss, metric)
}
)";

class CheckSpecTest : public testing::Test {
 protected:
  void SetUp() override {
    auto module = hlo::ReadModule(kProgram);
    ASSERT_TRUE(module.ok()) << module.status();
    module_ = *std::move(module);
    AddParameter("w", Parameter::STATE, "f32[4]");
    AddParameter("x", Parameter::DATA, "f32[2,4]");
    AddParameter("step", Parameter::STEP, "s32[]");
    AddResult("w", Result::STATE, "f32[4]", 0);
    AddResult("loss", Result::LOSS, "f32[]", -1);
    AddResult("metric", Result::METRIC, "f32[]", -1);
    spec_.set_batch_size(2);
    spec_.set_batch_count(3);
    state_["w"].shape = *tensor::ParseShape("f32[4]");
    data_["x"].shape = *tensor::ParseShape("f32[6,4]");
  }
  void AddParameter(const std::string& name, Parameter::Kind kind, const std::string& shape) {
    Parameter* parameter = spec_.add_parameters();
    parameter->set_name(name);
    parameter->set_kind(kind);
    tensor::ShapeToWire(*tensor::ParseShape(shape), parameter->mutable_shape());
  }
  void AddResult(const std::string& name, Result::Kind kind, const std::string& shape, int64_t feeds) {
    Result* result = spec_.add_results();
    result->set_name(name);
    result->set_kind(kind);
    result->set_feeds(feeds);
    tensor::ShapeToWire(*tensor::ParseShape(shape), result->mutable_shape());
  }
  std::string Check(const JobSpec& spec) const {
    const absl::Status status = CheckSpec(spec, *module_, state_, data_);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  std::unique_ptr<hlo::Module> module_;
  JobSpec spec_;
  SafetensorsIndex state_, data_;
};

TEST_F(CheckSpecTest, AcceptsASpecThatAgreesWithTheProgram) { EXPECT_EQ(Check(spec_), ""); }

// A client may submit any number, and only state can feed a parameter.
TEST_F(CheckSpecTest, NoResultFeedsAParameterThatItCannotFeed) {
  for (int r = 0; r < spec_.results_size(); ++r) {
    for (const int64_t feeds : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{1} << 20, int64_t{1} << 32,
                                (int64_t{1} << 32) + 1, INT64_MAX - 1, INT64_MAX}) {
      if (r == 0 && feeds == 0) continue;  // This is the valid spec.
      JobSpec spec = spec_;
      spec.mutable_results(r)->set_feeds(feeds);
      EXPECT_THAT(Check(spec), HasSubstr("feeds")) << r << " feeds " << feeds;
      EXPECT_THAT(Check(spec), HasSubstr(absl::StrCat("result ", r, " (\"", spec.results(r).name(), "\")")));
    }
    JobSpec spec = spec_;
    spec.mutable_results(r)->set_feeds(-1);
    EXPECT_EQ(Check(spec), "") << "result " << r << " need not feed a parameter";
  }
}

TEST_F(CheckSpecTest, JobsAndSessionsHaveTheirOwnKinds) {
  for (const int kind : {-1, 0, 1, 2, 3, 4, 5, INT32_MAX}) {
    for (const bool session : {false, true}) {
      JobSpec spec = spec_;
      if (session) ASSERT_TRUE(CompleteSessionSpec(*module_, &spec).ok());
      spec.set_session(session);
      EXPECT_EQ(Check(spec), "");
      const bool is_known = session ? kind == 4 : kind >= 1 && kind <= 3;
      spec.mutable_parameters(2)->set_kind(static_cast<Parameter::Kind>(kind));
      EXPECT_EQ(absl::StrContains(Check(spec), "parameter 2 (\"") && absl::StrContains(Check(spec), "found kind"),
                !is_known)
          << Check(spec);
      spec.mutable_parameters(2)->set_kind(session ? Parameter::ARGUMENT : Parameter::STEP);
      spec.mutable_results(2)->set_kind(static_cast<Result::Kind>(kind));
      EXPECT_EQ(absl::StrContains(Check(spec), "result 2 (\"") && absl::StrContains(Check(spec), "found kind"),
                !is_known)
          << Check(spec);
    }
  }
}

// The numbers of rows of a batch and of batches are each at most 2^53. Their product modulo 2^64 may be small.
TEST_F(CheckSpecTest, TheRowsOfAllBatchesAreCountedWithoutOverflow) {
  data_["x"].shape = *tensor::ParseShape("u8[2048,4]");
  for (const int log_rows : {0, 1, 10, 11, 12, 31, 40, 53}) {
    const int64_t rows = int64_t{1} << log_rows;
    const std::string shape = absl::StrCat("u8[", rows, ",4]");
    auto module = hlo::ReadModule(absl::StrCat("HloModule m\nENTRY main {\n  ROOT x = ", shape, " parameter(0)\n}\n"));
    ASSERT_TRUE(module.ok()) << module.status();
    module_ = *std::move(module);
    spec_.clear_parameters();
    spec_.clear_results();
    AddParameter("x", Parameter::DATA, shape);
    AddResult("x", Result::STATE, shape, -1);
    spec_.set_batch_size(rows);
    for (const int log_count : {0, 1, 3, 10, 11, 24, 33, 52, 53}) {
      for (const int64_t count : {int64_t{1} << log_count, (int64_t{1} << log_count) + 1}) {
        spec_.set_batch_count(count);
        EXPECT_EQ(Check(spec_).empty(), rows <= 2048 / count) << count << " batches of " << rows << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace xlad::service

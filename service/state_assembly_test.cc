#include "service/state_assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/wire.h"

namespace xlad::service {
namespace {

using testing::HasSubstr;

// A job with one state "w" of 4 x 6 numbers.
JobSpec Spec() {
  JobSpec spec;
  spec.set_steps(100);
  JobSpec::Parameter* parameter = spec.add_parameters();
  parameter->set_kind(JobSpec::Parameter::STATE);
  parameter->set_name("w");
  tensor::ShapeToWire({tensor::ElementType::kF32, {4, 6}}, parameter->mutable_shape());
  return spec;
}

PutStateShardRequest Header(const tensor::Box& box, int64_t step = 100, const std::string& tensor = "w") {
  PutStateShardRequest header;
  header.set_job_id("job");
  header.set_attempt(1);
  header.set_step(step);
  header.set_tensor(tensor);
  tensor::BoxToWire(box, header.mutable_box());
  return header;
}

TEST(StateAssembly, ShardsBecomeOneFile) {
  StateAssembly assembly;
  ASSERT_TRUE(assembly.Add(Header({{0, 0}, {2, 6}}), Spec(), std::string(48, 'a')).ok());
  EXPECT_EQ(assembly.Assemble("job", 1, 100, Spec()).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(assembly.Add(Header({{2, 0}, {4, 6}}), Spec(), std::string(48, 'x')).ok());
  ASSERT_TRUE(assembly.Add(Header({{2, 0}, {4, 6}}), Spec(), std::string(48, 'b')).ok()) << "again";
  const auto file = assembly.Assemble("job", 1, 100, Spec());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(*file, HasSubstr(std::string(48, 'a') + std::string(48, 'b')));
}

TEST(StateAssembly, ForgedShardsAreRefused) {
  StateAssembly assembly;
  const auto refused = [&](const PutStateShardRequest& header, size_t bytes, const std::string& why) {
    const absl::Status status = assembly.Add(header, Spec(), std::string(bytes, 'x'));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused(Header({{0, 0}, {2, 6}}, 101), 48, "expected at most 100");
  refused(Header({{0, 0}, {2, 6}}, 100, "v"), 48, "has no state of");
  refused(Header({{0, 0}, {2, 7}}), 56, "expected a box in");
  refused(Header({{0}, {2}}), 8, "expected a box in");
  refused(Header({{0, 0}, {2, 6}}), 47, "expected 48");
  ASSERT_TRUE(assembly.Add(Header({{0, 0}, {2, 6}}), Spec(), std::string(48, 'a')).ok());
  refused(Header({{1, 0}, {3, 6}}), 48, "overlaps");
}

TEST(StateAssembly, KeepsTheLastTwoStepsOfTheLastAttempt) {
  StateAssembly assembly;
  const auto add = [&](int64_t attempt, int64_t step) {
    PutStateShardRequest header = Header({{0, 0}, {4, 6}}, step);
    header.set_attempt(attempt);
    ASSERT_TRUE(assembly.Add(header, Spec(), std::string(96, 'a')).ok());
  };
  const auto has = [&](int64_t attempt, int64_t step) { return assembly.Assemble("job", attempt, step, Spec()).ok(); };
  for (const int64_t step : {10, 20, 30}) add(1, step);
  EXPECT_FALSE(has(1, 10));
  EXPECT_TRUE(has(1, 20));
  EXPECT_TRUE(has(1, 30));
  add(2, 20);
  EXPECT_FALSE(has(1, 30));
  EXPECT_TRUE(has(2, 20));
}

}  // namespace
}  // namespace xlad::service

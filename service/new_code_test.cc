#include "service/new_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

Executable Quick() {
  Executable executable;
  executable.set_name("train");
  executable.set_kernel_abi_version(1);
  executable.mutable_target()->set_cpu("cpu");
  executable.add_mesh()->set_size(2);
  executable.add_parameters();
  executable.add_results();
  executable.add_allocations()->set_bytes(64);
  executable.add_library_ops();
  executable.add_collectives()->set_collective_id(1);
  executable.add_steps()->mutable_kernel()->set_symbol("k0");
  executable.add_steps()->mutable_kernel()->set_symbol("k1");
  executable.set_object_code("quick");
  executable.set_program_hash("hash");
  executable.set_quick(true);
  return executable;
}

TEST(NewCodeTest, OnlyOptimizedCodeOfTheSameProgramReplacesQuickCode) {
  Executable optimized = Quick();
  optimized.set_object_code("optimized code");
  EXPECT_FALSE(CheckReplaces(Quick(), optimized).ok());
  EXPECT_THAT(CheckReplaces(Quick(), optimized).message(), HasSubstr("found quickly compiled code"));
  optimized.set_quick(false);
  EXPECT_TRUE(CheckReplaces(Quick(), optimized).ok()) << CheckReplaces(Quick(), optimized);
  const std::vector<std::function<void(Executable*)>> changes = {
      [](Executable* e) { e->set_name("another"); },
      [](Executable* e) { e->set_kernel_abi_version(2); },
      [](Executable* e) { e->mutable_target()->set_cpu("another"); },
      [](Executable* e) { e->mutable_mesh(0)->set_size(1); },
      [](Executable* e) { e->mutable_parameters(0)->set_donated(true); },
      [](Executable* e) { e->add_results(); },
      [](Executable* e) { e->mutable_allocations(0)->set_bytes(32); },
      [](Executable* e) { e->clear_library_ops(); },
      [](Executable* e) { e->mutable_collectives(0)->set_collective_id(2); },
      [](Executable* e) { e->mutable_steps()->SwapElements(0, 1); },
      [](Executable* e) { e->mutable_steps()->RemoveLast(); },
      [](Executable* e) { e->mutable_steps(0)->mutable_kernel()->set_symbol("k2"); },
      [](Executable* e) { e->set_program_hash("another"); },
      [](Executable* e) { e->mutable_rematerialization()->set_operations(1); },
      [](Executable* e) { e->mutable_simulated(); },
  };
  for (size_t c = 0; c < changes.size(); ++c) {
    Executable other = optimized;
    changes[c](&other);
    const absl::Status status = CheckReplaces(Quick(), other);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c;
    EXPECT_THAT(status.message(), HasSubstr("found another program (")) << c;
  }
}

}  // namespace
}  // namespace xlad::service

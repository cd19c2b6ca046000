#include "service/build/background_proof.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "hlo/text/text.h"
#include "sharding/testing/sum_that_starts_again.h"

namespace xlad::service {
namespace {

// Keeps its entries in memory, and counts those that were added.
class MemoryCache final : public compiler::ObjectCache {
 public:
  std::optional<std::string> Find(const std::string& key) override {
    const auto found = entries.find(key);
    return found == entries.end() ? std::nullopt : std::optional(found->second);
  }
  void Add(const std::string& key, absl::string_view object) override {
    entries[key] = std::string(object);
    ++added;
  }

  std::map<std::string, std::string> entries;
  int added = 0;
};

// The rows of x are split, so the sum of its rows ends with an all-reduce.
constexpr const char* kSumOfSplitRows = R"(
HloModule m, frontend_attributes={xla.sdy.meshes="{mesh = #sdy.mesh<[\"dp\"=8]>}"}
reducer {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  $reducer
}
ENTRY main {
  x = s32[64,3] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"dp\"}, {}]>"}
  zero = s32[] constant(0)
  ROOT r = s32[3] reduce(x, zero), dimensions={0}, to_apply=reducer
})";

constexpr const char* kSum = "ROOT c = s32[] add(a, b)";

sharding::PipelineResult Partitioned(const std::string& reducer) {
  auto module = hlo::ParseText(absl::StrReplaceAll(kSumOfSplitRows, {{"$reducer", reducer}}));
  XLAD_CHECK(module.ok()) << module.status();
  sharding::PipelineOptions options;
  options.check = false;
  auto result = sharding::RunPipeline(*std::move(module), options);
  XLAD_CHECK(result.ok()) << result.status();
  return *std::move(result);
}

TEST(BackgroundProof, InstancesAreProvenByOneBuild) {
  MemoryCache cache;
  const sharding::PipelineResult program = Partitioned(kSum);
  EXPECT_TRUE(BackgroundProof(program, &cache).Join().ok());
  EXPECT_EQ(cache.added, 1);
  EXPECT_TRUE(BackgroundProof(program, &cache).Join().ok());
  EXPECT_EQ(cache.added, 1) << "the second build proves nothing";
  EXPECT_TRUE(BackgroundProof(Partitioned("ROOT c = s32[] maximum(a, b)"), &cache).Join().ok());
  EXPECT_EQ(cache.added, 2) << "another reducer is another instance";
  ASSERT_EQ(cache.entries.size(), 1u);
  EXPECT_EQ(cache.entries.begin()->second.size(), 64u + 1 + 64);
  EXPECT_TRUE(BackgroundProof(program, &cache).Join().ok());
  EXPECT_EQ(cache.added, 2) << "the instance of the first program is still known";
}

TEST(BackgroundProof, FailuresAreNotRemembered) {
  MemoryCache cache;
  const sharding::PipelineResult program = Partitioned(sharding::kSumThatStartsAgain);
  for (int build = 0; build < 2; ++build) {
    const absl::Status status = BackgroundProof(program, &cache).Join();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_NE(std::string(status.message()).find("is wrong on a small instance"), std::string::npos) << status;
  }
  EXPECT_EQ(cache.added, 0);
}

TEST(BackgroundProof, DamagedEntriesProveNothing) {
  MemoryCache cache;
  const sharding::PipelineResult program = Partitioned(kSum);
  ASSERT_TRUE(BackgroundProof(program, &cache).Join().ok());
  const std::string hash = cache.entries.begin()->second;
  const std::string texts[] = {"", hash.substr(1), hash + "0", "x" + hash.substr(1), std::string("\n\0", 2)};
  for (const std::string& text : texts) {
    cache.entries.begin()->second = text;
    cache.added = 0;
    EXPECT_TRUE(BackgroundProof(program, &cache).Join().ok());
    EXPECT_EQ(cache.added, 1) << text;
    EXPECT_EQ(cache.entries.begin()->second, hash);
  }
}

TEST(BackgroundProof, TheOldestInstancesAreForgotten) {
  sharding::ProvenInstances proven;
  for (int i = 0; i < 20; ++i) proven.Enter(absl::StrCat(i), sharding::ProofOutcome::kProven);
  const sharding::ProvenInstances kept(proven.ToText(5));
  EXPECT_FALSE(kept.has_new());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(kept.Find(absl::StrCat(i)).has_value(), i >= 15) << i;
}

TEST(BackgroundProof, NoCacheIsNeeded) {
  EXPECT_TRUE(BackgroundProof(Partitioned(kSum), nullptr).Join().ok());
  const sharding::PipelineResult program = Partitioned(kSum);
  { const BackgroundProof not_joined(program, nullptr); }
}

}  // namespace
}  // namespace xlad::service

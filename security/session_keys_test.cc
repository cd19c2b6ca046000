#include "security/session_keys.h"

#include <gtest/gtest.h>

#include <set>

namespace xlad::security {
namespace {

CollectivePlanProto Plan(const std::string& algorithm, int chunks, int channels, uint64_t hash) {
  CollectivePlanProto plan;
  plan.set_algorithm(algorithm);
  plan.set_chunks(chunks);
  plan.set_channels(channels);
  plan.set_schedule_hash(hash);
  return plan;
}

CollectivePlans Plans(std::initializer_list<CollectivePlanProto> plans) { return {plans.begin(), plans.end()}; }

TEST(SessionKeys, AreHmacsAsInRfc2104) {
  // Computed with Python's hmac module: hmac.new(b"key", b"follower 2:w1", "sha256").
  EXPECT_EQ(FollowerKey("key", "w1"), "9d534cc38f2f0d8b6d354b4ceb70e5e90128df0d1af31feb9bb539bcfb24f1e1");
}

TEST(SessionKeys, DifferIfAnythingDiffers) {
  const CollectivePlanProto ring = Plan("ring", 4, 2, 99);
  std::set<std::string> seals{FollowerKey("secret", "w1"), FollowerKey("secret", "w2"), FollowerKey("secret2", "w1"),
                              FollowerKey("secret", "")};
  const std::string seal = ProgramSeal("secret", "digest", Plans({ring}));
  EXPECT_EQ(ProgramSeal("secret", "digest", Plans({ring})), seal);
  seals.insert({seal, ProgramSeal("other", "digest", Plans({ring})), ProgramSeal("secret", "other", Plans({ring})),
                ProgramSeal("secret", "digest", {}), ProgramSeal("secret", "digest", Plans({ring, ring})),
                ProgramSeal("secret", "digest", Plans({Plan("tree", 4, 2, 99)})),
                ProgramSeal("secret", "digest", Plans({Plan("ring", 5, 2, 99)})),
                ProgramSeal("secret", "digest", Plans({Plan("ring", 4, 3, 99)})),
                ProgramSeal("secret", "digest", Plans({Plan("ring", 4, 2, 98)}))});
  EXPECT_EQ(seals.size(), 13u);
  for (const std::string& text : seals) EXPECT_EQ(text.size(), 64u);
}

// A field that contains separators has a different seal than separate fields.
TEST(SessionKeys, FieldsDoNotMerge) {
  EXPECT_NE(ProgramSeal("s", "d1:x0 0 0;", {}), ProgramSeal("s", "d", Plans({Plan("x", 0, 0, 0)})));
  EXPECT_NE(ProgramSeal("s", "d", Plans({Plan("a", 0, 0, 0), Plan("b", 0, 0, 0)})),
            ProgramSeal("s", "d", Plans({Plan("a0 0 0;1:b", 0, 0, 0)})));
  EXPECT_NE(FollowerKey("s", "w"), ProgramSeal("s", "w", {}));
}

}  // namespace
}  // namespace xlad::security

// The chain of causes of a sharding.
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/work.h"
#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {
namespace {

// A chain whose nearest link is "op0" and whose farthest link is "op(links-1)"; null if `links` is 0.
OriginPtr MakeChain(int links) {
  OriginPtr chain;
  for (int link = links - 1; link >= 0; --link) {
    chain = std::make_shared<const Origin>(
        Origin{Origin::Kind::kPropagated, absl::StrCat("op", link), "split", "", std::move(chain)});
  }
  return chain;
}

TEST(Chain, KeepsBothEndsOfALongChainAndCountsTheRest) {
  std::set<size_t> lengths;
  for (int links = 0; links < 300; ++links) {
    const std::vector<std::string> lines = Chain(MakeChain(links));
    lengths.insert(lines.size());
    if (links == 0) continue;
    EXPECT_EQ(lines.front(), "op0: split");
    EXPECT_EQ(lines.back(), absl::StrCat("op", links - 1, ": split"));
    int64_t dropped = 0, named = 0;
    for (const std::string& line : lines) {
      const bool counts = absl::StartsWith(line, "(through ");
      if (counts) dropped = std::stoll(line.substr(9));
      named += counts ? 0 : 1;
    }
    EXPECT_EQ(named + dropped, links);
    EXPECT_NE(dropped, 1);
  }
  EXPECT_LE(*lengths.rbegin(), 50u);
}

TEST(Chain, WorkDoesNotGrowWithTheLengthOfAChain) {
  const auto work_of = [](int links) {
    const OriginPtr chain = MakeChain(links);
    const int64_t before = WorkOfThread();
    Chain(chain);
    return WorkOfThread() - before;
  };
  EXPECT_EQ(work_of(1000), work_of(4000));
}

}  // namespace
}  // namespace xlad::sharding

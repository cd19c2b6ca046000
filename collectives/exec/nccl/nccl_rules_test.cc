// Which collectives NCCL may run.
#include "collectives/exec/nccl/nccl_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/exec/nccl/nccl_library.h"

namespace xlad::collectives::nccl {
namespace {

using tensor::ElementType;
using ::testing::HasSubstr;

constexpr ReductionMode kModes[] = {ReductionMode::kRunToRun, ReductionMode::kFast, ReductionMode::kCanonical};

CollectiveSpec NcclSpec(CollectiveKind kind, ElementType type, Reduction reduction, ReductionMode mode) {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.type = type;
  spec.reduction = Reduces(kind) ? reduction : Reduction::kNone;
  spec.mode = mode;
  return spec;
}

// Kinds that only move data have the same bits in every mode, for every type.
TEST(NcclRulesTest, DataMovesInEveryModeAndType) {
  for (const ReductionMode mode : kModes) {
    for (int number = 1; number <= kNumCollectiveKinds; ++number) {
      const auto kind = static_cast<CollectiveKind>(number);
      if (Reduces(kind) || kind == CollectiveKind::kBarrier) continue;
      for (const auto type : {ElementType::kF32, ElementType::kPred, ElementType::kU16, ElementType::kC128}) {
        const CollectiveSpec spec = NcclSpec(kind, type, Reduction::kNone, mode);
        EXPECT_EQ(WhyNotSpec(spec, false), "");
        EXPECT_EQ(ElementsOf(spec).type, kUint8);
        EXPECT_EQ(ElementsOf(spec).per_element, tensor::ByteWidth(type));
      }
    }
  }
}

// Floating-point reductions and averages need the mode fast. Other integer reductions run in every mode.
TEST(NcclRulesTest, ReductionsKeepTheBitsOfTheirMode) {
  for (const auto kind : {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kReduce}) {
    for (const ReductionMode mode : kModes) {
      for (const auto reduction :
           {Reduction::kSum, Reduction::kProduct, Reduction::kMax, Reduction::kMin, Reduction::kAverage}) {
        const bool is_fast = mode == ReductionMode::kFast;
        for (const auto type : {ElementType::kF64, ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
          const CollectiveSpec spec = NcclSpec(kind, type, reduction, mode);
          EXPECT_EQ(WhyNotSpec(spec, true).empty(), is_fast) << spec.ToString();
          const bool is_extremum = reduction == Reduction::kMax || reduction == Reduction::kMin;
          EXPECT_EQ(WhyNotSpec(spec, false).empty(), is_fast && !is_extremum) << spec.ToString();
        }
        for (const auto type : {ElementType::kS8, ElementType::kU8, ElementType::kS32, ElementType::kU32,
                                ElementType::kS64, ElementType::kU64}) {
          const CollectiveSpec spec = NcclSpec(kind, type, reduction, mode);
          EXPECT_EQ(WhyNotSpec(spec, false).empty(), is_fast || reduction != Reduction::kAverage) << spec.ToString();
        }
      }
    }
  }
}

TEST(NcclRulesTest, WhatNcclLacksIsRefused) {
  const auto why = [](CollectiveKind kind, ElementType type, Reduction reduction) {
    return WhyNotSpec(NcclSpec(kind, type, reduction, ReductionMode::kFast), true);
  };
  EXPECT_EQ(why(CollectiveKind::kAllReduce, ElementType::kS16, Reduction::kSum), "NCCL does not reduce s16");
  EXPECT_EQ(why(CollectiveKind::kAllReduce, ElementType::kC64, Reduction::kSum), "NCCL does not reduce c64");
  EXPECT_EQ(why(CollectiveKind::kAllReduce, ElementType::kU32, Reduction::kXor), "NCCL has no reduction xor");
  EXPECT_EQ(why(CollectiveKind::kBarrier, ElementType::kF32, Reduction::kNone), "NCCL has no barrier");
}

TEST(NcclRulesTest, EveryRankNeedsAGpuOfItsOwn) {
  const Endpoint first{"m0", "0000:01:00.0", 22809}, second{"m0", "0000:02:00.0", 22809};
  EXPECT_EQ(WhyNotGroup({0, 1}, {{0, first}, {1, second}}), "");
  EXPECT_THAT(WhyNotGroup({0, 2, 1}, {{0, first}, {1, second}, {2, first}}), HasSubstr("devices 0 and 2 share a GPU"));
  EXPECT_EQ(WhyNotGroup({0, 1}, {{0, first}, {1, {"", "", 0, false, "it has no library"}}}),
            "device 1: it has no library");
  EXPECT_EQ(WhyNotGroup({0, 1}, {{0, first}, {1, {"m0", second.gpu, 21800}}}),
            "device 1 has NCCL 2.18.0, expected 2.28.9 as device 0 has");
  EXPECT_THAT(WhyNotGroup({0, 1}, {{0, first}}), HasSubstr("device 1 has not reported"));
}

TEST(NcclRulesTest, CollectivesOfOneDeviceAreListed) {
  const auto collective = [](ReductionMode mode, const std::vector<std::vector<int>>& groups,
                             const std::string& engine) {
    Collective made;
    made.spec = NcclSpec(CollectiveKind::kAllReduce, ElementType::kF32, Reduction::kSum, mode);
    made.groups = groups;
    made.plan.engine = engine;
    return made;
  };
  CollectiveSet set;
  set.collectives = {collective(ReductionMode::kFast, {{0, 1}}, ""), collective(ReductionMode::kRunToRun, {{0, 1}}, ""),
                     collective(ReductionMode::kFast, {{0}, {1}}, ""),
                     collective(ReductionMode::kFast, {{0}, {1}}, kNcclEngine),
                     collective(ReductionMode::kFast, {{1, 2}}, "")};
  const std::map<int, Endpoint> endpoints = {
      {0, {"m0", "0000:01:00.0", 22809}}, {1, {"m0", "0000:02:00.0", 22809}}, {2, {"m0", "0000:01:00.0", 22809}}};
  EXPECT_EQ(SpecsOf(set, 0, endpoints), (std::set<int>{0, 3}));
  EXPECT_EQ(SpecsOf(set, 1, endpoints), (std::set<int>{0, 3, 4}));
  EXPECT_EQ(SpecsOf(set, 2, endpoints), (std::set<int>{4}));
}

// NCCL connects machines only if all of their workers allow it.
TEST(NcclRulesTest, NetworksAreUsedOnlyIfAllowed) {
  for (const bool first_allows : {false, true}) {
    for (const bool second_allows : {false, true}) {
      const Endpoint first{"m0", "0000:01:00.0", 22809, first_allows}, second{"m1", first.gpu, 22809, second_allows};
      const std::string why = WhyNotGroup({0, 1}, {{0, first}, {1, second}});
      EXPECT_EQ(why.empty(), first_allows && second_allows);
      if (!why.empty()) EXPECT_THAT(why, HasSubstr("devices 0 and 1 are on different machines"));
    }
  }
}

TEST(NcclRulesTest, EndpointsAreSentAsText) {
  for (const Endpoint& endpoint :
       {Endpoint{"m0", "0000:01:00.0", 22809, true}, Endpoint{"", "", 0, false, "two\nlines"}}) {
    const Endpoint decoded = Endpoint::Decode(endpoint.Encode());
    EXPECT_EQ(decoded.gpu, endpoint.gpu);
    EXPECT_EQ(decoded.machine, endpoint.machine);
    EXPECT_EQ(decoded.any_network, endpoint.any_network);
    EXPECT_EQ(decoded.version, endpoint.version);
    EXPECT_EQ(decoded.why, endpoint.why);
  }
  for (const char* text : {"", "1", "x\ny\nz"}) EXPECT_FALSE(Endpoint::Decode(text).why.empty());
}

TEST(NcclRulesTest, VersionsOfBothNumberingsHaveText) {
  EXPECT_EQ(VersionText(2804), "2.8.4");
  EXPECT_EQ(VersionText(21800), "2.18.0");
  EXPECT_EQ(VersionText(22809), "2.28.9");
}

// Later versions send more text after the endpoint, separated by a tab.
TEST(NcclRulesTest, TextAfterAnEndpointDoesNotChangeWhatItCanDo) {
  Endpoint endpoint;
  endpoint.machine = "boot host";
  endpoint.gpu = "0000:01:00.0";
  endpoint.version = 22304;
  const Endpoint decoded = Endpoint::Decode(endpoint.Encode() + "\t" + "more");
  EXPECT_EQ(decoded.gpu, endpoint.gpu);
  EXPECT_EQ(decoded.machine, endpoint.machine);
  EXPECT_EQ(decoded.version, endpoint.version);
  EXPECT_EQ(Endpoint::Decode("\tmore").gpu, "");
}

}  // namespace
}  // namespace xlad::collectives::nccl

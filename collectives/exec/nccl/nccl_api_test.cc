// Compares the declarations of NCCL's functions with those of its header, if it is installed.
#include "collectives/exec/nccl/nccl_api.h"

#include <gtest/gtest.h>

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace xlad::collectives::nccl {
namespace {

// Enumerations are passed as ints, and all pointers in the same way.
template <typename Own, typename Theirs>
constexpr bool kIsSame = sizeof(Own) == sizeof(Theirs) && std::is_pointer_v<Own> == std::is_pointer_v<Theirs> &&
                         std::is_class_v<Own> == std::is_class_v<Theirs>;

template <typename Own, typename Theirs>
struct SameNcclFunction : std::false_type {};
template <typename OwnResult, typename... Own, typename TheirResult, typename... Theirs>
  requires(sizeof...(Own) == sizeof...(Theirs))
struct SameNcclFunction<OwnResult(Own...), TheirResult(Theirs...)>
    : std::bool_constant<kIsSame<OwnResult, TheirResult> && (kIsSame<Own, Theirs> && ...)> {};

#define XLAD_COMPARE_NCCL(result, name, parameters) \
  using Own_##name = result parameters;             \
  static_assert(SameNcclFunction<Own_##name, decltype(::name)>::value, #name " differs from NCCL's declaration");
XLAD_NCCL_FUNCTIONS(XLAD_COMPARE_NCCL)

TEST(NcclApiTest, ConstantsAreThoseOfNccl) {
  EXPECT_EQ(kSuccess, ncclSuccess);
  EXPECT_EQ(kUnhandledCudaError, ncclUnhandledCudaError);
  EXPECT_EQ(kSystemError, ncclSystemError);
  EXPECT_EQ(kInternalError, ncclInternalError);
  EXPECT_EQ(kInvalidArgument, ncclInvalidArgument);
  EXPECT_EQ(kInvalidUsage, ncclInvalidUsage);
  EXPECT_EQ(kRemoteError, ncclRemoteError);
  EXPECT_EQ(kInProgress, ncclInProgress);
  EXPECT_EQ(kInt8, ncclInt8);
  EXPECT_EQ(kUint8, ncclUint8);
  EXPECT_EQ(kInt32, ncclInt32);
  EXPECT_EQ(kUint32, ncclUint32);
  EXPECT_EQ(kInt64, ncclInt64);
  EXPECT_EQ(kUint64, ncclUint64);
  EXPECT_EQ(kFloat16, ncclFloat16);
  EXPECT_EQ(kFloat32, ncclFloat32);
  EXPECT_EQ(kFloat64, ncclFloat64);
  EXPECT_EQ(kBfloat16, ncclBfloat16);
  EXPECT_EQ(kSum, ncclSum);
  EXPECT_EQ(kProduct, ncclProd);
  EXPECT_EQ(kMax, ncclMax);
  EXPECT_EQ(kMin, ncclMin);
  EXPECT_EQ(kAverage, ncclAvg);
  EXPECT_EQ(sizeof(UniqueId), sizeof(ncclUniqueId));
  EXPECT_EQ(kUndefined, NCCL_CONFIG_UNDEF_INT);
}

TEST(NcclApiTest, ConfigBeginsLikeThatOfNccl) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config own;
  EXPECT_EQ(own.magic, theirs.magic);
  EXPECT_LE(own.version, theirs.version);
  EXPECT_LE(sizeof(Config), sizeof(ncclConfig_t));
  EXPECT_EQ(offsetof(Config, size), offsetof(ncclConfig_t, size));
  EXPECT_EQ(offsetof(Config, magic), offsetof(ncclConfig_t, magic));
  EXPECT_EQ(offsetof(Config, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(Config, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(Config, cga_cluster_size), offsetof(ncclConfig_t, cgaClusterSize));
  EXPECT_EQ(offsetof(Config, min_ctas), offsetof(ncclConfig_t, minCTAs));
  EXPECT_EQ(offsetof(Config, max_ctas), offsetof(ncclConfig_t, maxCTAs));
  EXPECT_EQ(offsetof(Config, net_name), offsetof(ncclConfig_t, netName));
  EXPECT_EQ(offsetof(Config, split_share), offsetof(ncclConfig_t, splitShare));
}

}  // namespace
}  // namespace xlad::collectives::nccl

#else

TEST(NcclApiTest, ConstantsAreThoseOfNccl) { GTEST_SKIP() << "NCCL's header is not installed"; }

#endif

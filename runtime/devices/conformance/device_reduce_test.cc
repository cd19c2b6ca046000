// Reductions of arrays in device memory, by which devices run the schedules of collectives.
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "base/testing/case_count.h"
#include "collectives/exec/reduce.h"
#include "runtime/devices/conformance/device_conformance_fixture.h"
#include "tensor/small_float.h"

namespace xlad::runtime {
namespace {

using collectives::DeviceReduction;
using collectives::Reduction;
using tensor::ElementType;

constexpr ElementType kTypes[] = {
    ElementType::kPred,       ElementType::kS8,        ElementType::kS16,      ElementType::kS32,
    ElementType::kS64,        ElementType::kU8,        ElementType::kU16,      ElementType::kU32,
    ElementType::kU64,        ElementType::kBF16,      ElementType::kF16,      ElementType::kF32,
    ElementType::kF64,        ElementType::kC64,       ElementType::kC128,     ElementType::kF8E5M2,
    ElementType::kF8E4M3,     ElementType::kF8E3M4,    ElementType::kF8E4M3FN, ElementType::kF8E4M3B11FNUZ,
    ElementType::kF8E5M2FNUZ, ElementType::kF8E4M3FNUZ};
constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kProduct, Reduction::kMax, Reduction::kMin,
                                     Reduction::kAnd, Reduction::kOr,      Reduction::kXor, Reduction::kAverage};

class DeviceReduce : public DeviceConformance {
 protected:
  static constexpr int64_t kCount = 300;  // More than one block of threads.
  using Bytes = std::vector<std::byte>;

  // Numbers of very different sizes, so that sums depend on the order, and both zeros, infinities and NaNs.
  double RandomReal() {
    const int kind = static_cast<int>(random_() % 40);
    if (kind < 6) return std::array<double, 6>{0.0, -0.0, 1.0, INFINITY, -INFINITY, NAN}[kind];
    const double fraction = static_cast<double>(random_() % 2001) / 1000 - 1;
    return std::ldexp(fraction, static_cast<int>(random_() % 12));
  }

  Bytes RandomArray(ElementType type) {
    Bytes bytes(kCount * tensor::ByteWidth(type));
    const ElementType part = tensor::RealPartOf(type);
    const int64_t width = tensor::ByteWidth(part);
    for (int64_t at = 0; at < std::ssize(bytes); at += width) {
      const double real = RandomReal();
      uint64_t bits = type == ElementType::kPred ? random_() % 2 : random_();
      if (part == ElementType::kF64) bits = std::bit_cast<uint64_t>(real);
      if (part == ElementType::kF32) bits = std::bit_cast<uint32_t>(static_cast<float>(real));
      if (tensor::IsSmallFloat(part)) bits = tensor::EncodeSmallFloat(part, real);
      std::memcpy(bytes.data() + at, &bits, width);
    }
    return bytes;
  }

  static bool IsNan(ElementType part, const std::byte* at) {
    uint64_t bits = 0;
    std::memcpy(&bits, at, tensor::ByteWidth(part));
    if (part == ElementType::kF64) return std::isnan(std::bit_cast<double>(bits));
    if (part == ElementType::kF32) return std::isnan(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    return tensor::IsSmallFloat(part) && std::isnan(tensor::DecodeSmallFloat(part, static_cast<uint16_t>(bits)));
  }

  // The index of the first number that differs, or -1. Two NaNs are equal.
  static int64_t FirstDifference(ElementType type, const Bytes& a, const Bytes& b) {
    const ElementType part = tensor::RealPartOf(type);
    const int64_t width = tensor::ByteWidth(part);
    for (int64_t at = 0; at < std::ssize(a); at += width) {
      if (std::memcmp(a.data() + at, b.data() + at, width) == 0) continue;
      if (!IsNan(part, a.data() + at) || !IsNan(part, b.data() + at)) return at / width;
    }
    return -1;
  }

  void Check(const DeviceReduction& reduction, int sources, bool in_place) {
    const auto function = reduction.as_tree ? collectives::FindTreeReduceFunction(reduction.type, reduction.reduction)
                                            : collectives::FindReduceFunction(reduction.type, reduction.reduction);
    ASSERT_TRUE(function.ok()) << function.status();
    std::vector<Bytes> inputs;
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    std::vector<const void*> on_host, on_device;
    for (int s = 0; s < sources; ++s) inputs.push_back(RandomArray(reduction.type));
    for (const Bytes& input : inputs) {
      memory.push_back(Upload(input));
      on_host.push_back(input.data());
      on_device.push_back(memory.back()->address());
    }
    Bytes expected(inputs[0].size());
    void* const dsts[] = {expected.data()};
    (*function)(dsts, on_host, kCount, collectives::StoreKind::kCached);
    const std::unique_ptr<DeviceMemory> apart = Upload(Bytes(expected.size()));
    void* const to = in_place ? memory.back()->address() : apart->address();
    const absl::Status status = stream_->Reduce(reduction, to, on_device, kCount);
    ASSERT_TRUE(status.ok()) << status;
    const Bytes found = Download<std::byte>(to, std::ssize(expected));
    EXPECT_EQ(FirstDifference(reduction.type, found, expected), -1)
        << tensor::ToString(reduction.type) << " " << ToString(reduction.reduction) << " of " << sources
        << (reduction.as_tree ? " as a tree" : "") << (in_place ? " in place" : "");
  }

  std::mt19937_64 random_{7};
};

TEST_P(DeviceReduce, HasTheBitsOfTheHost) {
  if (stream_->memory_name().empty()) GTEST_SKIP() << "the device does not run schedules";
  int supported = 0;
  int64_t pairs = 0;
  for (const ElementType type : kTypes) {
    for (const Reduction reduction : kReductions) {
      const bool is_valid = collectives::FindReduceFunction(type, reduction).ok();
      EXPECT_TRUE(is_valid || !stream_->CanReduce({type, reduction, false}));
      if (!stream_->CanReduce({type, reduction, false})) continue;
      ++supported;
      // By default, the reductions of a type take turns with the numbers of sources.
      int64_t turn = ++pairs;
      for (const int sources : {1, 2, 3, 4, 7, 16}) {
        if (TriesCase(turn++, 3)) Check({type, reduction, false}, sources, sources == 4);
      }
      for (const int sources : {3, 6, 13}) {
        if (TriesCase(turn++, 3)) Check({type, reduction, true}, sources, sources == 6);
      }
    }
  }
  // 8 types of integers with 8 reductions each, pred with 7, 11 types of real numbers with 5 each, and complex sums.
  EXPECT_EQ(supported, 8 * 8 + 7 + 11 * 5 + 2);
}

TEST_P(DeviceReduce, ManyBlocksOfOneType) {
  if (stream_->memory_name().empty()) GTEST_SKIP() << "the device does not run schedules";
  constexpr int64_t kMany = 5003;
  const std::vector<float> a = Sequence(kMany), b = Sequence(kMany, 100);
  const auto on_a = Upload(a), on_b = Upload(b);
  const auto sum = stream_->AllocateDevice(kMany * 4);
  ASSERT_TRUE(sum.ok()) << sum.status();
  ASSERT_TRUE(stream_->Reduce({}, sum->get(), std::vector<const void*>{on_a->address(), on_b->address()}, kMany).ok());
  std::vector<float> expected;
  for (int64_t i = 0; i < kMany; ++i) expected.push_back(a[i] + b[i]);
  EXPECT_EQ(Download(sum->get(), kMany), expected);
}

TEST_P(DeviceReduce, DevicesAccessSharedMemoryOfEachOther) {
  if (stream_->shared_memory_name().empty()) {
    EXPECT_EQ(stream_->AllocateShared(4).status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(stream_->OpenShared("").status().code(), absl::StatusCode::kUnimplemented);
    return;
  }
  constexpr int64_t kMany = 5003;
  const std::vector<float> a = Sequence(kMany), b = Sequence(kMany, 100);
  const auto other = MakeDevice();
  const std::unique_ptr<Stream> peer = *other->MakeStream();
  EXPECT_EQ(peer->shared_memory_name(), stream_->shared_memory_name());
  auto shared = peer->AllocateShared(kMany * 4);
  ASSERT_TRUE(shared.ok()) << shared.status();
  ASSERT_TRUE(peer->CopyToDevice(shared->address.get(), BytesOf(a)).ok());
  ASSERT_TRUE(peer->Synchronize().ok());
  auto opened = stream_->OpenShared(shared->handle);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto on_b = Upload(b);
  const auto sum = stream_->AllocateDevice(kMany * 4);
  ASSERT_TRUE(sum.ok()) << sum.status();
  ASSERT_TRUE(stream_->Reduce({}, sum->get(), std::vector<const void*>{opened->get(), on_b->address()}, kMany).ok());
  std::vector<float> expected;
  for (int64_t i = 0; i < kMany; ++i) expected.push_back(a[i] + b[i]);
  EXPECT_EQ(Download(sum->get(), kMany), expected);
  if (ChecksAddresses()) {
    EXPECT_EQ(stream_->Copy(sum->get(), opened->get(), kMany * 4 + 1).code(), absl::StatusCode::kInvalidArgument);
  }
  for (const std::string& handle : {std::string(), std::string("1/2"), std::string(shared->handle.size(), '0')}) {
    EXPECT_FALSE(stream_->OpenShared(handle).ok()) << handle;
  }
  EXPECT_FALSE(stream_->AllocateShared(-1).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
}

TEST_P(DeviceReduce, RefusesWhatHasNoKernel) {
  const auto memory = Upload(Sequence(20));
  const std::vector<const void*> one = {memory->address()}, none, many(17, memory->address());
  const auto code = [&](const DeviceReduction& reduction, absl::Span<const void* const> sources, int64_t count) {
    return stream_->Reduce(reduction, memory->address(), sources, count).code();
  };
  if (stream_->memory_name().empty()) {
    EXPECT_EQ(code({}, one, 20), absl::StatusCode::kUnimplemented);
    EXPECT_FALSE(stream_->CanReduce({}));
    EXPECT_FALSE(stream_->AllocateDevice(4).ok());
    return;
  }
  EXPECT_EQ(code({ElementType::kC64, Reduction::kMax, false}, one, 2), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code({ElementType::kF8E8M0FNU, Reduction::kSum, false}, one, 2), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code({}, none, 20), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({}, many, 20), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({}, one, -1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({ElementType::kF64}, one, int64_t{1} << 61), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({}, one, 0), absl::StatusCode::kOk);
  if (ChecksAddresses()) EXPECT_EQ(code({}, one, 100'000), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(stream_->Synchronize().ok());
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceReduce, ::testing::ValuesIn(AllKinds()), KindName);

}  // namespace
}  // namespace xlad::runtime

// Tests the models of the tpu_sim device and the results of its products. The conformance suite tests the rest.
#include "runtime/devices/tpu_sim/tpu_sim_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "absl/strings/str_replace.h"
#include "base/file_system.h"
#include "base/kernel_abi.h"
#include "base/testing/test_folder.h"
#include "machine/built_in_chips.h"
#include "runtime/devices/tpu_sim/systolic_products.h"
#include "tensor/element_type.h"
#include "tensor/small_float.h"

namespace xlad::runtime {
namespace {

using ::testing::HasSubstr;

const std::vector<DeviceKind>& Kinds() {
  static const auto* const kinds = new std::vector<DeviceKind>{TpuSimDeviceKind()};
  return *kinds;
}

DeviceRequest Read(const std::string& text) {
  const auto requests = ParseDeviceRequests(text, Kinds());
  EXPECT_TRUE(requests.ok()) << requests.status();
  return requests.ok() ? requests->at(0) : DeviceRequest();
}

std::string ErrorOf(const std::string& text) {
  const auto requests = ParseDeviceRequests(text, Kinds());
  return requests.ok() ? "read" : std::string(requests.status().message());
}

// The path of a chip file that is written to the folder: v5e with `from` replaced by `to`.
std::string ChipFileWith(const TestFolder& folder, const std::string& from, const std::string& to) {
  for (const machine::ChipFile& file : machine::ChipFiles()) {
    if (file.name != "v5e") continue;
    const std::string path = (std::filesystem::path(folder.path()) / "chip.toml").lexically_normal().string();
    EXPECT_TRUE(RealFileSystem().WriteAtomically(path, absl::StrReplaceAll(file.text, {{from, to}})).ok());
    return path;
  }
  return "";
}

TEST(TpuSimDeviceTest, ModelsAreChipsAndChipFiles) {
  EXPECT_EQ(Read("tpu_sim").Name(), "tpu_sim:v5e");
  EXPECT_EQ(Read("tpu_sim:4").ToString(), "tpu_sim:v5e:4");
  EXPECT_EQ(Read("tpu_sim:v4:2").ToString(), "tpu_sim:v4:2");
  const TestFolder folder;
  const std::string path = ChipFileWith(folder, "819 GB/s", "410 GB/s");
  const DeviceRequest own = Read("tpu_sim:" + path + ":3");
  EXPECT_EQ(own.model, path);
  EXPECT_EQ(own.count, 3);
  const auto offer = MakeOffer(own, Kinds());
  ASSERT_TRUE(offer.ok()) << offer.status();
  EXPECT_THAT(offer->target().chip(), HasSubstr("410 GB/s"));
}

TEST(TpuSimDeviceTest, UnknownChipsAndWrongFilesAreRefused) {
  EXPECT_THAT(ErrorOf("tpu_sim:v5f"), ::testing::AllOf(HasSubstr("found chip \"v5f\""), HasSubstr("v6e"),
                                                       HasSubstr("did you mean v5e?"), HasSubstr("chip file")));
  EXPECT_THAT(ErrorOf("tpu_sim:./missing.toml"), HasSubstr("missing.toml"));
  const TestFolder folder;
  EXPECT_THAT(ErrorOf("tpu_sim:" + ChipFileWith(folder, "819 GB/s", "819 GB")),
              ::testing::AllOf(HasSubstr("chip.toml:"), HasSubstr("found \"819 GB\""), HasSubstr("819 GB/s")));
  EXPECT_FALSE(TpuSimDeviceKind().make("v5f").ok());
}

Executable ProductOf(int64_t m, int64_t k, int64_t n, Precision precision) {
  Executable executable;
  executable.set_name("product");
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  *executable.mutable_target() = TpuSimDeviceKind().target("v5e");
  DotOp* dot = executable.add_library_ops()->mutable_dot();
  const auto set = [](ArrayShape* shape, int64_t rows, int64_t columns) {
    shape->set_element_type(static_cast<int>(tensor::ElementType::kF32));
    shape->add_dims(rows);
    shape->add_dims(columns);
  };
  set(dot->mutable_lhs(), m, k);
  set(dot->mutable_rhs(), k, n);
  set(dot->mutable_result(), m, n);
  dot->add_lhs_contracting(1);
  dot->add_rhs_contracting(0);
  dot->set_precision(precision);
  return executable;
}

std::vector<float> RandomFloats(std::mt19937* random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(*random);
  return values;
}

// Computes the product on a tpu_sim device.
std::vector<float> Multiply(const Executable& executable, const std::vector<float>& lhs, const std::vector<float>& rhs,
                            int64_t result) {
  const std::unique_ptr<Device> device = *TpuSimDeviceKind().make("v5e");
  const std::unique_ptr<LoadedExecutable> loaded = *device->Load(executable);
  const std::unique_ptr<Stream> stream = *device->MakeStream();
  const std::unique_ptr<Launcher> launcher = *loaded->MakeLauncher(0, stream.get());
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  for (const size_t count : {lhs.size(), rhs.size(), static_cast<size_t>(result)}) {
    memory.push_back(*device->Allocate(static_cast<int64_t>(count * sizeof(float))));
  }
  const auto bytes = [](const std::vector<float>& v) {
    return absl::Span<const std::byte>(reinterpret_cast<const std::byte*>(v.data()), v.size() * sizeof(float));
  };
  EXPECT_TRUE(stream->CopyToDevice(memory[0]->address(), bytes(lhs)).ok());
  EXPECT_TRUE(stream->CopyToDevice(memory[1]->address(), bytes(rhs)).ok());
  EXPECT_TRUE(launcher->RunLibraryOp(0, {memory[0]->address(), memory[1]->address(), memory[2]->address()}).ok());
  std::vector<float> out(result);
  EXPECT_TRUE(
      stream->CopyToHost({reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(float)}, memory[2]->address())
          .ok());
  EXPECT_TRUE(stream->Synchronize().ok());
  return out;
}

TEST(SystolicProductsTest, RoundingIsThatOfBf16) {
  std::mt19937 random(1);
  for (int i = 0; i < 10000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    float rounded = 0;
    RoundToBf16({&value, 1}, {&rounded, 1});
    const uint16_t bits = tensor::EncodeBf16(value);
    const float want = tensor::DecodeSmallFloat(tensor::ElementType::kBF16, bits);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(rounded));
    } else {
      EXPECT_EQ(rounded, want) << value;
    }
  }
}

TEST(SystolicProductsTest, ErrorsAreWithinTheBoundOfThePrecision) {
  std::mt19937 random(2);
  const std::vector<std::vector<int64_t>> sizes = {{1, 1, 1}, {7, 13, 5}, {33, 257, 17}, {128, 128, 128}, {3, 1000, 2}};
  for (const std::vector<int64_t>& size : sizes) {
    const int64_t m = size[0], k = size[1], n = size[2];
    const std::vector<float> lhs = RandomFloats(&random, m * k), rhs = RandomFloats(&random, k * n);
    std::vector<float> lhs16(lhs.size()), rhs16(rhs.size());
    RoundToBf16(lhs, absl::MakeSpan(lhs16));
    RoundToBf16(rhs, absl::MakeSpan(rhs16));
    const auto low = Multiply(ProductOf(m, k, n, PRECISION_DEFAULT), lhs, rhs, m * n);
    const auto high = Multiply(ProductOf(m, k, n, PRECISION_HIGH), lhs, rhs, m * n);
    const auto highest = Multiply(ProductOf(m, k, n, PRECISION_HIGHEST), lhs, rhs, m * n);
    for (int64_t r = 0; r < m * n; ++r) {
      double rounded = 0, exact = 0, size_of_terms = 0;
      for (int64_t i = 0; i < k; ++i) {
        const int64_t a = r / n * k + i, b = i * n + r % n;
        rounded += static_cast<double>(lhs16[a]) * static_cast<double>(rhs16[b]);
        exact += static_cast<double>(lhs[a]) * static_cast<double>(rhs[b]);
        size_of_terms += std::abs(static_cast<double>(lhs[a]) * static_cast<double>(rhs[b]));
      }
      EXPECT_NEAR(static_cast<double>(low[r]), rounded, 1e-5 * size_of_terms);
      EXPECT_NEAR(static_cast<double>(high[r]), exact, 6e-5 * size_of_terms);
      EXPECT_NEAR(static_cast<double>(highest[r]), exact, 1e-6 * size_of_terms + 1e-30);
    }
  }
}

TEST(SystolicProductsTest, OnePassRoundsOperandsToBf16) {
  const float value = 1 + std::ldexp(1.0f, -10);
  EXPECT_EQ(Multiply(ProductOf(1, 1, 1, PRECISION_DEFAULT), {value}, {1}, 1)[0], 1);
  EXPECT_EQ(Multiply(ProductOf(1, 1, 1, PRECISION_HIGH), {value}, {1}, 1)[0], value);
  EXPECT_EQ(Multiply(ProductOf(1, 1, 1, PRECISION_HIGHEST), {value}, {1}, 1)[0], value);
}

TEST(SystolicProductsTest, InfinityStaysInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Precision precision : {PRECISION_DEFAULT, PRECISION_HIGH, PRECISION_HIGHEST}) {
    EXPECT_EQ(Multiply(ProductOf(1, 1, 1, precision), {infinity}, {2}, 1)[0], infinity);
  }
}

TEST(TpuSimDeviceTest, ProgramsThatDoNotFitTheMemoryOfAChipAreRefused) {
  Executable executable = ProductOf(1, 1, 1, PRECISION_DEFAULT);
  executable.add_allocations()->set_bytes(int64_t{17} * 1000 * 1000 * 1000);
  const auto loaded = (*TpuSimDeviceKind().make("v5e"))->Load(executable);
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(loaded.status().message(), ::testing::AllOf(HasSubstr("17000000000"), HasSubstr("chip v5e")));
}

}  // namespace
}  // namespace xlad::runtime

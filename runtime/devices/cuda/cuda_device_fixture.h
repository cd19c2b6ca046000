// Fixtures that the tests of the kind cuda share. The tests use test doubles of the driver (tests/cuda_driver_double)
// and of cuBLASLt (tests/cublaslt_double).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/kernel_abi.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/cuda/cuda_device.h"
#include "runtime/devices/cuda/testing/driver_double.h"
#include "runtime/devices/cuda/testing/run_library_op.h"
#include "tensor/element_type.h"
#include "tensor/small_float.h"
#include "tensor/wire.h"

namespace xlad::runtime {

inline constexpr char kDouble[] = XLAD_CUDA_DRIVER_DOUBLE;
inline constexpr char kCublasLtDouble[] = XLAD_CUBLASLT_DOUBLE;

inline void Configure(const std::string& settings) { testing::ConfigureDriverDouble(settings); }

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { Configure(""); }
  void TearDown() override { Configure(""); }

  virtual absl::StatusOr<std::unique_ptr<Device>> Make() {
    auto driver = cuda::LoadDriver(kDouble);
    if (!driver.ok()) return driver.status();
    return MakeCudaDevice(*driver);
  }

  static Executable MakeExecutable(const std::string& ptx) {
    Executable executable;
    executable.set_name("job");
    executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
    executable.mutable_target()->set_device_kind("cuda");
    executable.set_object_code(ptx);
    return executable;
  }
};

// Compares the library ops of this device with those of the cpu device.
class CudaLibraryOpTest : public CudaDeviceTest {
 protected:
  static void SetShape(ArrayShape* shape, tensor::ElementType type, const std::vector<int64_t>& dims) {
    shape->set_element_type(static_cast<int>(type));
    shape->mutable_dims()->Assign(dims.begin(), dims.end());
  }
  static int64_t Count(const ArrayShape& shape) { return tensor::ShapeFromWire(shape).elements(); }
  // Small integers, so that sums are exact in every order.
  std::vector<std::byte> RandomBytes(const ArrayShape& shape) {
    const auto type = tensor::TypeFromWire(shape);
    std::vector<std::byte> bytes(Count(shape) * tensor::ByteWidth(type));
    for (int64_t i = 0; i < Count(shape); ++i) {
      const float value = static_cast<float>(static_cast<int>(random_() % 9) - 4);
      const uint16_t bf16 = tensor::EncodeBf16(value), f16 = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
      const auto f64 = static_cast<double>(value);
      const auto s8 = static_cast<int8_t>(value);
      const void* const from = type == tensor::ElementType::kBF16  ? static_cast<const void*>(&bf16)
                               : type == tensor::ElementType::kF16 ? static_cast<const void*>(&f16)
                               : type == tensor::ElementType::kF64 ? static_cast<const void*>(&f64)
                               : type == tensor::ElementType::kS8  ? static_cast<const void*>(&s8)
                                                                   : static_cast<const void*>(&value);
      std::memcpy(bytes.data() + i * tensor::ByteWidth(type), from, tensor::ByteWidth(type));
    }
    return bytes;
  }
  // A dot whose operands have the same batch dimensions, `batch`.
  struct DotDims {
    std::vector<int64_t> lhs, rhs, result, batch, lhs_contracting, rhs_contracting;
  };
  struct DotTypes {
    tensor::ElementType lhs, rhs, result;
  };
  static LibraryOp MakeDot(const DotDims& dims, const DotTypes& types) {
    LibraryOp op;
    DotOp& dot = *op.mutable_dot();
    SetShape(dot.mutable_lhs(), types.lhs, dims.lhs);
    SetShape(dot.mutable_rhs(), types.rhs, dims.rhs);
    SetShape(dot.mutable_result(), types.result, dims.result);
    dot.mutable_lhs_batch()->Assign(dims.batch.begin(), dims.batch.end());
    dot.mutable_rhs_batch()->Assign(dims.batch.begin(), dims.batch.end());
    dot.mutable_lhs_contracting()->Assign(dims.lhs_contracting.begin(), dims.lhs_contracting.end());
    dot.mutable_rhs_contracting()->Assign(dims.rhs_contracting.begin(), dims.rhs_contracting.end());
    return op;
  }
  static std::vector<std::byte> RunOn(Device* device, const LibraryOp& op, const testing::Arrays& inputs,
                                      int64_t result_bytes) {
    const testing::Arrays results = testing::RunLibraryOp(device, op, inputs, {result_bytes});
    return results.empty() ? std::vector<std::byte>() : results[0];
  }
  template <typename Product>
  void Compare(const LibraryOp& op, const Product& product) {
    const std::vector<std::vector<std::byte>> inputs = {RandomBytes(product.lhs()), RandomBytes(product.rhs())};
    const int64_t bytes = tensor::ShapeFromWire(product.result()).bytes();
    const auto expected = RunOn(MakeCpuDevice().get(), op, inputs, bytes);
    const auto device = *Make();
    EXPECT_EQ(RunOn(device.get(), op, inputs, bytes), expected) << op.ShortDebugString();
  }

  std::mt19937 random_{1};
};

}  // namespace xlad::runtime

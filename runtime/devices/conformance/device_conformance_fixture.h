// The device conformance suite, which every kind of device in the registry must pass. Each file device_*_test.cc here
// has the tests of one part of runtime/device.h.
//
// To make a new kind pass, first add its row to the registry. If the kind cannot run native code, make
// MakeKernelExecutable load object code that the kind can run. Then run device_conformance_test until nothing fails.
#pragma once

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/containers.h"
#include "base/kernel_abi.h"
#include "runtime/devices/registry/registry.h"
#include "tensor/element_type.h"

namespace xlad::runtime {

// The kinds that reject addresses outside allocated memory.
inline const std::set<std::string> kKindsThatCheckAddresses = {"opaque", "gpu_sim", "gpu_sim_checked", "tpu_sim"};

// The kinds whose kernels return no error codes and cannot call the functions of the `api` in base/kernel_abi.h.
inline const std::set<std::string> kKindsWithoutCallbacks = {"cuda"};

inline std::byte* Add(void* address, int64_t bytes) { return static_cast<std::byte*>(address) + bytes; }

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
absl::Span<std::byte> MutableBytesOf(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

inline std::vector<float> Sequence(int64_t count, float first = 0) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

class DeviceConformance : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    const absl::Status available = GetParam().available();
    if (!available.ok()) GTEST_SKIP() << GetParam().name << ": " << available;
    device_ = MakeDevice();
    stream_ = MakeStream();
  }

  std::string Model() const { return GetParam().models.empty() ? "" : GetParam().models[0]; }
  std::unique_ptr<Device> MakeDevice() const { return *GetParam().make(Model()); }
  std::unique_ptr<Stream> MakeStream() const { return *device_->MakeStream(); }
  bool ChecksAddresses() const { return kKindsThatCheckAddresses.contains(GetParam().name); }

  bool HasCallbacks() const { return !kKindsWithoutCallbacks.contains(GetParam().name); }

  bool HasMemory(MemoryKind kind) const { return Contains(GetParam().memory, kind); }

  template <typename T>
  std::unique_ptr<DeviceMemory> Upload(const std::vector<T>& values, MemoryKind kind = MEMORY_DEVICE) {
    std::unique_ptr<DeviceMemory> memory = *device_->Allocate(values.size() * sizeof(T), kind);
    EXPECT_TRUE(stream_->CopyToDevice(memory->address(), BytesOf(values)).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return memory;
  }

  // The address of memory that has been written and freed.
  void* FreedAddress() {
    return Upload(Sequence(10))->address();
  }

  template <typename T = float>
  std::vector<T> Download(const void* address, int64_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(stream_->CopyToHost(MutableBytesOf(values), address).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return values;
  }

  // An executable for this kind with the kernels of kernels.c and, as library op 0, a product of 2x3 and 3x2 matrices.
  Executable MakeKernelExecutable() const {
    Executable executable;
    executable.set_name("kernels");
    executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
    *executable.mutable_target() = GetParam().target(Model());
    std::ifstream file(GetParam().name == "cuda" ? XLAD_CONFORMANCE_PTX : XLAD_CONFORMANCE_KERNELS, std::ios::binary);
    executable.set_object_code(std::string(std::istreambuf_iterator<char>(file), {}));
    DotOp* dot = executable.add_library_ops()->mutable_dot();
    SetShape(dot->mutable_lhs(), {2, 3});
    SetShape(dot->mutable_rhs(), {3, 2});
    SetShape(dot->mutable_result(), {2, 2});
    dot->add_lhs_contracting(1);
    dot->add_rhs_contracting(0);
    return executable;
  }

  static void SetShape(ArrayShape* shape, const std::vector<int64_t>& dims) {
    shape->set_element_type(static_cast<int>(tensor::ElementType::kF32));
    shape->mutable_dims()->Assign(dims.begin(), dims.end());
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

// A loaded executable with a launcher, for tests that launch.
class DeviceLaunchConformance : public DeviceConformance {
 protected:
  void SetUp() override {
    DeviceConformance::SetUp();
    if (IsSkipped()) return;
    auto loaded = device_->Load(MakeKernelExecutable());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    loaded_ = *std::move(loaded);
    launcher_ = *loaded_->MakeLauncher(3, stream_.get());
  }

  int Kernel(const std::string& symbol) const {
    const auto kernel = loaded_->FindKernel(symbol);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return kernel.value_or(-1);
  }

  std::unique_ptr<LoadedExecutable> loaded_;
  std::unique_ptr<Launcher> launcher_;
};

inline void PrintTo(const DeviceKind& kind, std::ostream* out) { *out << kind.name; }

// All kinds of the registry. If NVIDIA's driver is not installed, the kind cuda uses the test doubles of the driver and
// of cuBLASLt.
inline std::vector<DeviceKind> AllKinds() {
  if (void* const driver = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(driver);
  } else {
    setenv("XLAD_CUDA_DRIVER", XLAD_CUDA_DRIVER_DOUBLE, /*overwrite=*/0);
    setenv("XLAD_CUBLASLT", XLAD_CUBLASLT_DOUBLE, /*overwrite=*/0);
  }
  return {AllDeviceKinds().begin(), AllDeviceKinds().end()};
}
inline std::string KindName(const ::testing::TestParamInfo<DeviceKind>& info) { return info.param.name; }

}  // namespace xlad::runtime

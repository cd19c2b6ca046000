// Runs a library op on a device, and reads its results, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "base/kernel_abi.h"
#include "runtime/device.h"
#include "tensor/small_float.h"

namespace xlad::runtime::testing {

using Arrays = std::vector<std::vector<std::byte>>;

// Returns the results, whose sizes in bytes are `result_bytes`. The test fails if the device returns an error.
inline Arrays RunLibraryOp(Device* device, const LibraryOp& op, const Arrays& operands,
                           const std::vector<int64_t>& result_bytes) {
  Executable executable;
  executable.set_name("job");
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  executable.mutable_target()->set_device_kind(device->Name());
  *executable.add_library_ops() = op;
  const auto loaded = device->Load(executable);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (!loaded.ok()) return {};
  const auto stream = *device->MakeStream();
  const auto launcher = *(*loaded)->MakeLauncher(0, stream.get());
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<void*> addresses;
  const auto allocate = [&](int64_t bytes) {
    memory.push_back(*device->Allocate(bytes));
    addresses.push_back(memory.back()->address());
  };
  for (const std::vector<std::byte>& operand : operands) {
    allocate(std::ssize(operand));
    EXPECT_TRUE(stream->CopyToDevice(addresses.back(), operand).ok());
  }
  Arrays results;
  for (const int64_t bytes : result_bytes) {
    allocate(bytes);
    results.emplace_back(bytes);
    EXPECT_TRUE(stream->FillZero(addresses.back(), bytes).ok());
  }
  const absl::Status status = launcher->RunLibraryOp(0, addresses);
  EXPECT_TRUE(status.ok()) << status;
  for (size_t r = 0; r < results.size(); ++r) {
    const absl::Status copied = stream->CopyToHost(absl::MakeSpan(results[r]), addresses[operands.size() + r]);
    EXPECT_TRUE(copied.ok()) << copied;
  }
  const absl::Status finished = stream->Synchronize();
  EXPECT_TRUE(finished.ok()) << finished;
  return results;
}

// Element `i` of an array of f32 or a small float type.
inline float FloatAt(const std::vector<std::byte>& bytes, int64_t i, tensor::ElementType type) {
  if (tensor::IsSmallFloat(type)) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + i * 2, 2);
    return tensor::DecodeSmallFloat(type, bits);
  }
  float value;
  std::memcpy(&value, bytes.data() + i * 4, 4);
  return value;
}

}  // namespace xlad::runtime::testing

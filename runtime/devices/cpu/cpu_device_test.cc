// The cpu device: memory, loading, launching, and object code that is no good.
#include "runtime/devices/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/kernel_abi.h"
#include "runtime/devices/cpu/object_loader.h"

namespace xlad::runtime {
namespace {

TEST(CpuDevice, AllocatesAlignedMemory) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  for (const int64_t bytes : {0, 1, 63, 64, 65, 1 << 20}) {
    const auto memory = device->Allocate(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->address()) % XLAD_BUFFER_ALIGNMENT, 0u);
    EXPECT_NE((*memory)->address(), nullptr);
    EXPECT_EQ((*memory)->bytes(), bytes);
    std::memset((*memory)->address(), 1, static_cast<size_t>(bytes));
  }
}

TEST(CpuDevice, RefusesAbsurdSizes) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  for (const int64_t bytes : {int64_t{-1}, int64_t{1} << 50, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(device->Allocate(bytes).status().code(), absl::StatusCode::kResourceExhausted) << bytes;
  }
}

TEST(CpuDevice, CopiesInAndOut) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  const auto memory = device->Allocate(16);
  std::vector<std::byte> in(16, std::byte{7}), out(16);
  ASSERT_TRUE(device->CopyToDevice((*memory)->address(), in).ok());
  ASSERT_TRUE(device->CopyToHost(absl::MakeSpan(out), (*memory)->address()).ok());
  EXPECT_EQ(in, out);
  EXPECT_TRUE(device->CopyToDevice((*memory)->address(), {}).ok());
}

TEST(CpuDevice, LoadsAnExecutableWithoutCode) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  Executable executable;
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  const auto loaded = device->Load(executable);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->FindKernel("k").status().code(), absl::StatusCode::kNotFound);
  const auto launcher = (*loaded)->MakeLauncher(0);
  ASSERT_TRUE(launcher.ok());
  EXPECT_FALSE((*launcher)->RunKernel(0, {}, nullptr).ok());
  EXPECT_FALSE((*launcher)->RunKernel(-1, {}, nullptr).ok());
  EXPECT_FALSE((*launcher)->RunLibraryOp(0, {}).ok());
  EXPECT_FALSE((*launcher)->RunLibraryOp(-1, {}).ok());
  char to = 0;
  const char from = 5;
  EXPECT_TRUE((*launcher)->Copy(&to, &from, 1).ok());
  EXPECT_EQ(to, 5);
}

TEST(CpuDevice, RefusesOtherKernelAbis) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  Executable executable;
  executable.set_name("old");
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION + 1);
  const auto loaded = device->Load(executable);
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(loaded.status().message().find("ABI version"), absl::string_view::npos);
}

TEST(CpuDevice, RefusesUnknownLibraryOps) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  Executable executable;
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  executable.add_library_ops();
  EXPECT_EQ(device->Load(executable).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ObjectLoader, RefusesBytesThatAreNoObject) {
  std::string elf(
      "\x7f"
      "ELF",
      4);
  elf.resize(200, '\0');
  for (const std::string& bytes : {std::string("not an object"), std::string(1000, 'x'), elf, elf.substr(0, 5)}) {
    const auto object = LoadedObject::Load(bytes);
    // What looks like an object is refused at the latest when a symbol is asked for.
    if (object.ok()) {
      EXPECT_FALSE((*object)->Find("kernel").ok());
    } else {
      EXPECT_EQ(object.status().code(), absl::StatusCode::kInvalidArgument) << object.status();
    }
  }
}

}  // namespace
}  // namespace xlad::runtime

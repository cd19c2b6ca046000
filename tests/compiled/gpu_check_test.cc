// The checking mode of gpu_sim: no races in kernels, races in damaged kernels, and the traffic of kernels.
#include <gtest/gtest.h>

#include "base/kernel_abi.h"
#include "compiler/codegen/nvptx/gpu_emitter.h"
#include "compiler/kernel/build_kernel.h"
#include "compiler/kernel/gpu_target.h"
#include "hlo/analysis/leaves.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/gpu_sim/access_checker.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

// Kernels of all forms: a program with one instruction besides its parameters, or a fusion.
const char* Softmax() {
  static const auto* const text = new std::string(hlo::TestText("tests/compiled/testdata/softmax.hlo"));
  return text->c_str();
}
const char* const kElementwise = R"(
HloModule elementwise
ENTRY main {
  x = f32[64,1024] parameter(0)
  y = f32[64,1024] parameter(1)
  p = f32[64,1024] multiply(x, y)
  ROOT t = f32[64,1024] tanh(p)
})";
const char* const kRows = R"(
HloModule rows
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
ENTRY main {
  x = f32[64,1024] parameter(0)
  zero = f32[] parameter(1)
  ROOT s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
})";
const char* const kColumns = R"(
HloModule columns
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
ENTRY main {
  x = f32[64,1024] parameter(0)
  zero = f32[] parameter(1)
  ROOT s = f32[1024] reduce(x, zero), dimensions={0}, to_apply=add
})";
const char* const kTranspose = R"(
HloModule transposed
ENTRY main {
  x = f32[6,96,160] parameter(0)
  ROOT t = f32[6,160,96] transpose(x), dimensions={0,2,1}
})";
const char* const kScatter = R"(
HloModule scattered
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
ENTRY main {
  x = f32[20,64] parameter(0)
  i = s32[50,1] parameter(1)
  u = f32[50,64] parameter(2)
  ROOT s = f32[20,64] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
})";
const char* const kUpdate = R"(
HloModule updated
ENTRY main {
  x = f32[20,64] parameter(0)
  u = f32[3,64] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT s = f32[20,64] dynamic-update-slice(x, u, i, j)
})";
const char* const kSort = R"(
HloModule sorted
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT l = pred[] compare(a, b), direction=LT }
ENTRY main {
  x = f32[7,33] parameter(0)
  ROOT s = f32[7,33] sort(x), dimensions={1}, to_apply=less
})";
const char* const kOthers[] = {kElementwise, kRows, kColumns, kTranspose, kScatter, kUpdate, kSort};

// Compiles a program as one kernel, damages it as `options` say, runs it and reports.
runtime::LaunchReport Check(const std::string& text, HostOptions options) {
  options.check = true;
  auto module = *hlo::ParseText(text);
  KernelRequest request;
  request.root = AsKernel(module.get());
  request.symbol = "checked";
  request.kernel = ScheduleFusion(*request.root, kOneRowTiles);
  Target target;
  target.set_device_kind(kGpuSimChecked);
  const auto emitter = *MakeGpuEmitter(target, options);
  const EmittedKernel kernel = *emitter->EmitKernel(request);
  Executable executable;
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  executable.set_object_code(*emitter->Finish());
  const auto device = runtime::MakeCpuDevice();
  const auto stream = *device->MakeStream();
  const auto loaded = *runtime::LoadNativeCode(executable, runtime::AccessChecker::Functions());
  const auto launcher = *loaded->MakeLauncher(0, stream.get());
  const auto random = SeededRandom(1);
  constexpr int64_t kGuard = 64;  // A damaged kernel may write one element beyond its result.
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memory;
  std::vector<void*> buffers;
  for (const hlo::Instruction* operand : request.root->operands()) {
    const tensor::Array input = RandomArray(*random, operand->shape().array());
    memory.push_back(*device->Allocate(input.shape().bytes() + kGuard));
    EXPECT_TRUE(stream->CopyToDevice(memory.back()->address(), input.bytes()).ok());
    buffers.push_back(memory.back()->address());
  }
  for (const tensor::Shape& shape : hlo::LeafShapes(request.root->shape())) {
    memory.push_back(*device->Allocate(shape.bytes() + kGuard));
    buffers.push_back(memory.back()->address());
  }
  memory.push_back(*device->Allocate(kernel.scratch_bytes + kGuard));
  runtime::AccessChecker checker;
  const int number = *loaded->FindKernel("checked");
  checker.Begin();
  EXPECT_TRUE(launcher->RunKernel(number, buffers, memory.back()->address(), kernel.tiles).ok());
  return checker.End();
}

TEST(GpuCheck, NoKernelHasRaces) {
  EXPECT_EQ(Check(Softmax(), {}).race, "");
  for (const char* text : kOthers) EXPECT_EQ(Check(text, {}).race, "") << text;
}

// The bytes of the operands and results of a program.
int64_t LeastBytes(const std::string& text) {
  const auto module = *hlo::ParseText(text);
  int64_t bytes = module->entry()->root()->shape().array().bytes();
  for (const hlo::Instruction* parameter : module->entry()->parameters()) bytes += parameter->shape().array().bytes();
  return bytes;
}

TEST(GpuCheck, KernelsMoveEachByteOnce) {
  for (const char* text : {Softmax(), kElementwise, kRows, kColumns, kTranspose}) {
    const runtime::LaunchReport report = Check(text, {});
    const auto moved = static_cast<double>(report.loaded_bytes + report.stored_bytes);
    const auto least = static_cast<double>(LeastBytes(text));
    EXPECT_GE(moved, least) << text;
    EXPECT_LE(moved, 1.05 * least) << text;
  }
}

TEST(GpuCheck, DamagedKernelsHaveRaces) {
  int64_t damaged = 0, found = 0;
  std::string missed;
  const auto count = [&](const char* text, const HostOptions& options, const std::string& damage) {
    const runtime::LaunchReport report = Check(text, options);
    ++damaged;
    if (!report.race.empty()) ++found;
    if (report.race.empty()) missed += report.kernel + ": " + damage + "\n" + text + "\n";
  };
  // Kernels whose threads use what others have written. If a store of the others is moved in all threads, their results
  // are wrong, but no two threads write the same element.
  for (const char* text : {Softmax(), kRows, kTranspose, kScatter}) {
    Damageable all;
    HostOptions options;
    options.count = &all;
    Check(text, options);
    for (int64_t b = 0; b < all.barriers; ++b) {
      HostOptions without;
      without.barrier_to_remove = b;
      count(text, without, absl::StrCat("without barrier ", b));
    }
    for (int64_t s = 0; s < all.stores; ++s) {
      HostOptions moved;
      moved.store_to_move = s;
      count(text, moved, absl::StrCat("store ", s, " moved"));
    }
  }
  EXPECT_GE(damaged, 40);
  EXPECT_GE(static_cast<double>(found), 0.95 * static_cast<double>(damaged)) << missed;
}

TEST(GpuCheck, ARaceNamesTheThreads) {
  HostOptions options;
  options.barrier_to_remove = 0;
  const std::string race = Check(Softmax(), options).race;
  for (const char* word : {"kernel checked", "race", "block", "thread", "expected a barrier"}) {
    EXPECT_NE(race.find(word), std::string::npos) << race;
  }
}

}  // namespace
}  // namespace xlad::compiler

#include "tests/compiled/checked_run.h"

#include <algorithm>
#include <cstring>

#include "base/kernel_abi.h"
#include "base/testing/case_count.h"
#include "compiler/codegen/nvptx/gpu_emitter.h"
#include "compiler/kernel/gpu_target.h"
#include "hlo/analysis/leaves.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

// The memory of kernels. It is freed with this object.
class Memory {
 public:
  absl::Status Add(int64_t bytes, absl::Span<const std::byte> contents) {
    XLAD_ASSIGN_OR_RETURN(memory_.emplace_back(), device_->Allocate(bytes));
    addresses.push_back(memory_.back()->address());
    std::memset(addresses.back(), 0xcd, static_cast<size_t>(bytes));
    if (!contents.empty()) std::memcpy(addresses.back(), contents.data(), contents.size());
    return absl::OkStatus();
  }
  std::vector<void*> addresses;

 private:
  const std::unique_ptr<runtime::Device> device_ = runtime::MakeCpuDevice();
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memory_;
};

}  // namespace

std::vector<tensor::Array> RandomOperands(const KernelRequest& request, uint64_t seed) {
  const auto random = SeededRandom(seed);
  std::vector<tensor::Array> inputs;
  for (const hlo::Instruction* operand : request.root->operands()) {
    for (const tensor::Shape& shape : hlo::LeafShapes(operand->shape())) {
      inputs.push_back(RandomArray(*random, shape));
      if (!tensor::IsInteger(shape.type)) continue;
      const int64_t width = tensor::ByteWidth(shape.type);
      for (int64_t i = 0; i < shape.bytes(); ++i) {  // The lowest byte is stored first.
        inputs.back().bytes()[i] = static_cast<std::byte>(i % width == 0 ? random->Below(8) : 0);
      }
    }
  }
  return inputs;
}

absl::StatusOr<CheckedRun> RunChecked(const KernelRequest& request, const std::vector<tensor::Array>& inputs,
                                      HostOptions options) {
  options.check = true;
  options.quick = !AllCases();
  Target target;
  target.set_device_kind(kGpuSimChecked);
  XLAD_ASSIGN_OR_RETURN(const auto emitter, MakeGpuEmitter(target, options));
  XLAD_ASSIGN_OR_RETURN(const EmittedKernel kernel, emitter->EmitKernel(request));
  Executable executable;
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  XLAD_ASSIGN_OR_RETURN(*executable.mutable_object_code(), emitter->Finish());
  const auto device = runtime::MakeCpuDevice();
  XLAD_ASSIGN_OR_RETURN(const auto stream, device->MakeStream());
  XLAD_ASSIGN_OR_RETURN(const auto loaded, runtime::LoadNativeCode(executable, runtime::AccessChecker::Functions()));
  XLAD_ASSIGN_OR_RETURN(const auto launcher, loaded->MakeLauncher(0, stream.get()));
  XLAD_ASSIGN_OR_RETURN(const int number, loaded->FindKernel(request.symbol));
  Memory memory;
  for (const tensor::Array& input : inputs) XLAD_RETURN_IF_ERROR(memory.Add(input.shape().bytes(), input.bytes()));
  CheckedRun run;
  for (const tensor::Shape& shape : hlo::LeafShapes(request.root->shape())) {
    XLAD_RETURN_IF_ERROR(memory.Add(shape.bytes(), {}));
    run.results.emplace_back(shape);
  }
  std::vector<void*> buffers = memory.addresses;
  for (const auto& [result, operand] : request.in_place) {
    buffers[inputs.size() + static_cast<size_t>(result)] = buffers[static_cast<size_t>(operand)];
  }
  XLAD_RETURN_IF_ERROR(memory.Add(kernel.scratch_bytes, {}));
  runtime::AccessChecker checker;
  checker.Begin();
  const absl::Status status = launcher->RunKernel(number, buffers, memory.addresses.back(), kernel.tiles);
  run.report = checker.End();
  for (size_t i = 0; i < run.results.size(); ++i) {
    const absl::Span<std::byte> bytes = run.results[i].bytes();
    if (!bytes.empty()) std::memcpy(bytes.data(), buffers[inputs.size() + i], bytes.size());
  }
  if (!status.ok()) return status;
  return run;
}

bool SameBits(const std::vector<tensor::Array>& a, const std::vector<tensor::Array>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const tensor::Array& x, const tensor::Array& y) {
    return std::equal(x.bytes().begin(), x.bytes().end(), y.bytes().begin(), y.bytes().end());
  });
}

}  // namespace xlad::compiler

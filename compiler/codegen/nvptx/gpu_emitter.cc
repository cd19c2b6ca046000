#include "compiler/codegen/nvptx/gpu_emitter.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "compiler/codegen/llvm/code_generator.h"
#include "compiler/codegen/llvm/emitted_module.h"
#include "compiler/codegen/nvptx/device_math.h"
#include "compiler/codegen/nvptx/host_threads.h"
#include "compiler/codegen/nvptx/thread_kernel.h"
#include "compiler/kernel/gpu_target.h"

namespace xlad::compiler {
namespace {

constexpr char kTriple[] = "nvptx64-nvidia-cuda";
constexpr int kOldest = 80;  // sm_80

absl::Status CheckGpu(const Target& target) {
  if (target.triple() != kTriple) {
    return absl::InvalidArgumentError("target: found " + target.triple() + ", expected " + kTriple);
  }
  const std::string number = target.cpu().substr(std::min<size_t>(3, target.cpu().size()));
  if (!absl::StartsWith(target.cpu(), "sm_") || std::atoi(number.c_str()) < kOldest) {
    return absl::InvalidArgumentError("target: found GPU '" + target.cpu() + "', expected sm_80 or a later one");
  }
  return absl::OkStatus();
}

class GpuEmitter final : public ObjectEmitter {
 public:
  // `host` generates code for the CPU if the CPU simulates a GPU. Otherwise it is null.
  GpuEmitter(std::unique_ptr<CodeGenerator> ptx, std::unique_ptr<CodeGenerator> host, Target target,
             const HostOptions& options)
      : ptx_(std::move(ptx)), host_(std::move(host)), target_(std::move(target)), options_(options) {
    ptx_->Prepare(*module_);
  }

  const Target& target() const override { return target_; }

  absl::StatusOr<EmittedKernel> EmitKernel(const KernelRequest& request) override {
    XLAD_RETURN_IF_ERROR(module_.CheckNewSymbol(request.symbol));
    return EmitThreadKernel(module_.get(), request);
  }

  absl::StatusOr<EmittedKernel> EmitProgram(const NativeProgramRequest& request) override {
    return absl::UnimplementedError("program " + request.symbol + ": found a native program for " +
                                    target_.device_kind() + " " + target_.triple() +
                                    ", expected kernels only: a GPU does not run loops over kernels");
  }

  absl::StatusOr<std::string> Finish() override {
    XLAD_RETURN_IF_ERROR(module_.Finish());
    CodeGenerator& generator = host_ != nullptr ? *host_ : *ptx_;
    if (host_ != nullptr) {
      XLAD_RETURN_IF_ERROR(ReplaceThreadsByLoops(*module_, options_));
      host_->Prepare(*module_);
    } else {
      XLAD_RETURN_IF_ERROR(DefineMathFunctions(*module_));
    }
    for (llvm::Function& function : *module_) {
      if (!function.isDeclaration()) generator.Prepare(function);
    }
    const bool is_quick = host_ != nullptr && options_.quick;
    XLAD_RETURN_IF_ERROR(is_quick ? generator.Simplify(*module_) : generator.Optimize(*module_));
    return module_.UnlessErrors(host_ != nullptr ? host_->Object(*module_) : ptx_->Assembly(*module_));
  }

  std::string IrText() const override { return module_.IrText(); }

  absl::StatusOr<std::string> AssemblyText() override {
    XLAD_RETURN_IF_ERROR(module_.CheckFinished());
    return (host_ != nullptr ? *host_ : *ptx_).Assembly(*module_);
  }

 private:
  const std::unique_ptr<CodeGenerator> ptx_, host_;
  const Target target_;
  const HostOptions options_;
  EmittedModule module_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectEmitter>> MakeGpuEmitter(const Target& requested, const HostOptions& options) {
  const bool simulated = IsSimulatedGpu(requested);
  Target gpu;
  gpu.set_triple(simulated ? kTriple : requested.triple());
  gpu.set_cpu(simulated || requested.cpu().empty() ? "sm_90" : requested.cpu());
  if (!simulated) {
    gpu.set_features(requested.features());
    gpu.set_device_kind(requested.device_kind());
    gpu.set_has_dots_of_f64_and_s8(requested.has_dots_of_f64_and_s8());
    XLAD_RETURN_IF_ERROR(CheckGpu(gpu));
  }
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<CodeGenerator> ptx, CodeGenerator::Create(gpu));
  if (!simulated) return std::make_unique<GpuEmitter>(std::move(ptx), nullptr, gpu, options);
  Target cpu = requested;
  cpu.clear_device_kind();
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<CodeGenerator> host, CodeGenerator::Create(cpu));
  Target complete = host->target();
  complete.set_device_kind(requested.device_kind());
  complete.set_device_model(requested.device_model());
  HostOptions all = options;
  all.check = all.check || requested.device_kind() == kGpuSimChecked;
  return std::make_unique<GpuEmitter>(std::move(ptx), std::move(host), complete, all);
}

}  // namespace xlad::compiler

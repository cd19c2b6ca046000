#include "cli/measure_schedules.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/kernel_abi.h"
#include "cli/values.h"
#include "hlo/analysis/leaves.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "tensor/array.h"

namespace xlad::cli {
namespace {

using tensor::Array;
using tensor::ElementType;

constexpr int kMinRounds = 3;
// A short kernel is run several times in a row, so that the time between two readings of the clock is at least this.
constexpr int64_t kMinMeasuredNs = 50'000;
constexpr int64_t kMaxRuns = 1000;

// Returns numbers of ordinary size, so that denormal numbers and NaNs do not slow down a kernel.
Array Numbers(const tensor::Shape& shape) {
  Array values(tensor::Shape{ElementType::kF64, shape.dims});
  int64_t i = 0;
  for (double& value : values.values<double>()) value = 0.5 + static_cast<double>(i++ % 97) / 97;
  return ConvertArray(values, shape.type);
}

struct Variant {
  int kernel = 0;
  compiler::EmittedKernel facts;
  std::unique_ptr<runtime::DeviceMemory> scratch;
};

// The buffers of a kernel. An in-place result shares the memory of its operand.
class KernelBuffers {
 public:
  static absl::StatusOr<std::unique_ptr<KernelBuffers>> Make(runtime::Device& device,
                                                             const compiler::KernelRequest& request) {
    auto made = std::make_unique<KernelBuffers>();
    std::vector<tensor::Shape> results = hlo::LeafShapes(request.root->shape());
    for (const hlo::Instruction* operand : request.root->operands()) {
      for (const tensor::Shape& leaf : hlo::LeafShapes(operand->shape())) made->inputs_.push_back(Numbers(leaf));
    }
    for (const Array& input : made->inputs_) XLAD_RETURN_IF_ERROR(made->Add(device, input.shape().bytes()));
    for (int r = 0; r < std::ssize(results); ++r) {
      const auto pair = std::find_if(request.in_place.begin(), request.in_place.end(),
                                     [&](const auto& in_place) { return in_place.first == r; });
      if (pair == request.in_place.end()) {
        XLAD_RETURN_IF_ERROR(made->Add(device, results[r].bytes()));
        continue;
      }
      made->overwritten_.push_back(pair->second);
      made->addresses_.push_back(made->addresses_[pair->second]);
    }
    for (int i = 0; i < std::ssize(made->inputs_); ++i) made->overwritten_.push_back(i);
    return made;
  }

  // Writes the inputs: in the first call all of them, and later those that a run overwrites.
  absl::Status Fill(runtime::Stream& stream) {
    for (const int input : overwritten_) {
      XLAD_RETURN_IF_ERROR(stream.CopyToDevice(addresses_[input], inputs_[input].bytes()));
    }
    if (!filled_) overwritten_.resize(overwritten_.size() - inputs_.size());
    filled_ = true;
    return stream.Synchronize();
  }
  absl::Span<void* const> addresses() const { return addresses_; }

 private:
  absl::Status Add(runtime::Device& device, int64_t bytes) {
    XLAD_ASSIGN_OR_RETURN(memory_.emplace_back(), device.Allocate(bytes));
    addresses_.push_back(memory_.back()->address());
    return absl::OkStatus();
  }

  std::vector<Array> inputs_;
  std::vector<int> overwritten_;
  bool filled_ = false;
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memory_;
  std::vector<void*> addresses_;
};

struct KernelBench {
  const Clock* clock = nullptr;
  runtime::Launcher* launcher = nullptr;
  runtime::Stream* stream = nullptr;
  KernelBuffers* buffers = nullptr;
};

// Runs the kernel `runs` times on the inputs, and returns the mean time of a run.
absl::StatusOr<int64_t> Measure(const KernelBench& bench, const Variant& variant, int64_t runs) {
  XLAD_RETURN_IF_ERROR(bench.buffers->Fill(*bench.stream));
  const int64_t start_ns = bench.clock->NowNs();
  for (int64_t run = 0; run < runs; ++run) {
    XLAD_RETURN_IF_ERROR(bench.launcher->RunKernel(variant.kernel, bench.buffers->addresses(),
                                                   variant.scratch->address(), variant.facts.tiles));
  }
  XLAD_RETURN_IF_ERROR(bench.stream->Synchronize());
  return (bench.clock->NowNs() - start_ns) / runs;
}

// Returns how often the kernel is run between two readings of the clock: once if it overwrites its inputs, because the
// next run would have other inputs.
absl::StatusOr<int64_t> ChooseRuns(const KernelBench& bench, const Variant& variant, bool in_place) {
  XLAD_RETURN_IF_ERROR(Measure(bench, variant, 1).status());  // The first run reads code and data from memory.
  XLAD_ASSIGN_OR_RETURN(const int64_t ns, Measure(bench, variant, 1));
  return in_place ? 1 : std::clamp<int64_t>(kMinMeasuredNs / std::max<int64_t>(ns, 1), 1, kMaxRuns);
}

}  // namespace

absl::StatusOr<std::vector<MeasuredSchedule>> MeasureSchedules(const compiler::KernelRequest& request,
                                                               const std::vector<compiler::KernelSchedule>& schedules,
                                                               const MeasureOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const auto emitter, compiler::ObjectEmitter::Create(Target()));
  const std::unique_ptr<runtime::Device> device = runtime::MakeCpuDevice();
  std::vector<MeasuredSchedule> measured;
  std::vector<Variant> variants;
  for (const compiler::KernelSchedule& schedule : schedules) {
    compiler::KernelRequest variant = request;
    variant.symbol = absl::StrCat("v", variants.size());
    XLAD_ASSIGN_OR_RETURN(auto scheduled, compiler::ApplySchedule(request.kernel->kernel, schedule));
    variant.kernel = std::make_shared<const compiler::ScheduledKernel>(std::move(scheduled));
    Variant& made = variants.emplace_back();
    XLAD_ASSIGN_OR_RETURN(made.facts, emitter->EmitKernel(variant));
    XLAD_ASSIGN_OR_RETURN(made.scratch, device->Allocate(made.facts.scratch_bytes));
    measured.push_back({schedule, std::numeric_limits<int64_t>::max()});
  }
  Executable executable;
  executable.set_name(request.symbol);
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  XLAD_ASSIGN_OR_RETURN(*executable.mutable_object_code(), emitter->Finish());
  XLAD_ASSIGN_OR_RETURN(const auto loaded, device->Load(std::move(executable)));
  for (size_t v = 0; v < variants.size(); ++v) {
    XLAD_ASSIGN_OR_RETURN(variants[v].kernel, loaded->FindKernel(absl::StrCat("v", v)));
  }
  XLAD_ASSIGN_OR_RETURN(const auto stream, device->MakeStream(options.threads));
  XLAD_ASSIGN_OR_RETURN(const auto launcher, loaded->MakeLauncher(0, stream.get()));
  XLAD_ASSIGN_OR_RETURN(const auto buffers, KernelBuffers::Make(*device, request));
  const KernelBench bench{options.clock, launcher.get(), stream.get(), buffers.get()};
  const int64_t until_ns = options.clock->NowNs() + options.budget_ns;
  XLAD_ASSIGN_OR_RETURN(const int64_t runs, ChooseRuns(bench, variants[0], !request.in_place.empty()));
  for (int round = 0; round < kMinRounds || options.clock->NowNs() < until_ns; ++round) {
    for (size_t v = 0; v < variants.size(); ++v) {
      XLAD_ASSIGN_OR_RETURN(const int64_t ns, Measure(bench, variants[v], runs));
      measured[v].ns = std::min(measured[v].ns, ns);
    }
  }
  return measured;
}

}  // namespace xlad::cli

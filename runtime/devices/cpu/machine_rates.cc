#include "runtime/devices/cpu/machine_rates.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/kernel_abi.h"
#include "proto/executable.pb.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

constexpr int64_t kCopiedBytes = 64 << 20;
constexpr int64_t kMatrix = 1024;
constexpr int kCopies = 4, kProducts = 6;

double Seconds(const Clock& clock, int64_t since_ns) {
  return std::max(1e-9, static_cast<double>(clock.NowNs() - since_ns) * 1e-9);
}

double CopyRate(const Clock& clock, int threads) {
  std::vector<char> from(kCopiedBytes, 1), to(kCopiedBytes, 0);
  double best = 0;
  for (int i = 0; i < kCopies; ++i) {
    const int64_t start_ns = clock.NowNs();
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        const int64_t begin = kCopiedBytes * t / threads, end = kCopiedBytes * (t + 1) / threads;
        std::memcpy(to.data() + begin, from.data() + begin, end - begin);
      });
    }
    for (std::thread& thread : team) thread.join();
    best = std::max(best, 2.0 * static_cast<double>(kCopiedBytes) / Seconds(clock, start_ns));
  }
  return best;
}

absl::StatusOr<double> ProductRate(const Clock& clock, int threads) {
  Executable executable;
  executable.set_name("machine");
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION);
  DotOp* dot = executable.add_library_ops()->mutable_dot();
  for (ArrayShape* shape : {dot->mutable_lhs(), dot->mutable_rhs(), dot->mutable_result()}) {
    tensor::TypeToWire(tensor::ElementType::kF32, shape);
    shape->add_dims(kMatrix);
    shape->add_dims(kMatrix);
  }
  dot->add_lhs_contracting(1);
  dot->add_rhs_contracting(0);
  const std::unique_ptr<Device> device = MakeCpuDevice();
  XLAD_ASSIGN_OR_RETURN(const auto stream, device->MakeStream(threads));
  XLAD_ASSIGN_OR_RETURN(const auto loaded, device->Load(std::move(executable)));
  XLAD_ASSIGN_OR_RETURN(const auto launcher, loaded->MakeLauncher(0, stream.get()));
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<void*> buffers;
  for (int i = 0; i < 3; ++i) {
    XLAD_ASSIGN_OR_RETURN(memory.emplace_back(), device->Allocate(kMatrix * kMatrix * sizeof(float)));
    buffers.push_back(memory.back()->address());
    XLAD_RETURN_IF_ERROR(stream->FillZero(buffers.back(), memory.back()->bytes()));
  }
  double best = 0;
  for (int i = 0; i < kProducts; ++i) {
    const int64_t start_ns = clock.NowNs();
    XLAD_RETURN_IF_ERROR(launcher->RunLibraryOp(0, buffers));
    XLAD_RETURN_IF_ERROR(stream->Synchronize());
    best = std::max(best, 2.0 * kMatrix * kMatrix * kMatrix / Seconds(clock, start_ns));
  }
  return best;
}

}  // namespace

absl::StatusOr<MachineRates> MeasureMachine(const Clock& clock, int threads) {
  MachineRates rates;
  rates.bytes_per_s = CopyRate(clock, threads);
  XLAD_ASSIGN_OR_RETURN(rates.flops_per_s, ProductRate(clock, threads));
  return rates;
}

}  // namespace xlad::runtime

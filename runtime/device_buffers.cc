// The memory of one device for a task.
#include "runtime/device_buffers.h"

#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace xlad::runtime {
namespace {

bool IsWhole(const Executable& executable, const Slice& slice) {
  return slice.offset == 0 && slice.bytes == executable.allocations(slice.allocation).bytes();
}

bool SameMemory(const Slice& a, const Slice& b) { return a.allocation == b.allocation && a.offset == b.offset; }

absl::Status CheckEntry(const Executable& executable, const JobSpec& spec) {
  if (executable.parameters_size() != spec.parameters_size() || executable.results_size() != spec.results_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("executable '", executable.name(), "': found ", executable.parameters_size(), " parameters and ",
                     executable.results_size(), " results, expected ", spec.parameters_size(), " and ",
                     spec.results_size(), ", as the job says"));
  }
  return absl::OkStatus();
}

// Memory moves in chains: whoever gives its block away without getting one gets the block at the chain's other end.
void CloseChains(std::vector<int>* block_from, const std::vector<bool>& is_taken, const std::vector<bool>& takes) {
  const int n = static_cast<int>(block_from->size());
  std::vector<int> taker(n, -1);
  for (int a = 0; a < n; ++a) {
    if (takes[a]) taker[(*block_from)[a]] = a;
  }
  for (int a = 0; a < n; ++a) {
    if (!is_taken[a] || takes[a]) continue;
    int end = a;
    while (taker[end] >= 0) end = taker[end];
    (*block_from)[a] = end;
  }
}

}  // namespace

absl::StatusOr<FeedPlan> PlanFeeds(const Executable& executable, const JobSpec& spec) {
  XLAD_RETURN_IF_ERROR(CheckEntry(executable, spec));
  FeedPlan plan;
  const size_t n = executable.allocations_size();
  plan.block_from.resize(n);
  std::iota(plan.block_from.begin(), plan.block_from.end(), 0);
  std::vector<bool> takes(n), is_taken(n), is_fed(static_cast<size_t>(spec.parameters_size()));
  for (int r = 0; r < spec.results_size(); ++r) {
    const int64_t p = spec.results(r).feeds();
    if (spec.results(r).kind() != JobSpec::Result::STATE || p < 0) continue;
    const std::string place = absl::StrCat("result ", r, " (\"", spec.results(r).name(), "\")");
    if (p >= spec.parameters_size() || spec.parameters(static_cast<int>(p)).kind() != JobSpec::Parameter::STATE ||
        is_fed[p]) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": found that it feeds parameter ", p,
                                                     ", expected a state parameter that nothing else feeds"));
    }
    is_fed[p] = true;
    XLAD_ASSIGN_OR_RETURN(const Slice from, ReadSlice(executable, executable.results(r).buffer()));
    XLAD_ASSIGN_OR_RETURN(const Slice to, ReadSlice(executable, executable.parameters(static_cast<int>(p)).buffer()));
    if (from.bytes != to.bytes) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": found ", from.bytes, " bytes on a device, expected ",
                                                     to.bytes, " as parameter ", p, " has"));
    }
    if (SameMemory(from, to)) continue;
    const bool can_swap = IsWhole(executable, from) && IsWhole(executable, to) && !takes[to.allocation] &&
                          !is_taken[from.allocation] && from.allocation != to.allocation;
    if (!can_swap) {
      plan.copies.push_back({from, to});
      continue;
    }
    takes[to.allocation] = is_taken[from.allocation] = true;
    plan.block_from[to.allocation] = from.allocation;
  }
  CloseChains(&plan.block_from, is_taken, takes);
  // A block that moves must not have parts that are copied to or from: then everything is copied.
  for (FeedPlan::Copy& copy : plan.copies) {
    if (plan.block_from[copy.from.allocation] != copy.from.allocation ||
        plan.block_from[copy.to.allocation] != copy.to.allocation) {
      return absl::UnimplementedError("found results that share memory in a way that cannot be fed back");
    }
  }
  for (int p = 0; p < spec.parameters_size(); ++p) {
    if (spec.parameters(p).kind() != JobSpec::Parameter::STATE || is_fed[p]) continue;
    if (!executable.parameters(p).donated()) continue;
    XLAD_ASSIGN_OR_RETURN(plan.keep.emplace_back(), ReadSlice(executable, executable.parameters(p).buffer()));
  }
  return plan;
}

absl::StatusOr<Constants> MakeConstants(Device* device, const Executable& executable) {
  Constants constants;
  for (const Allocation& allocation : executable.allocations()) {
    constants.addresses.push_back(nullptr);
    if (allocation.kind() != Allocation::CONSTANT) continue;
    if (std::ssize(allocation.blob()) != allocation.bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("executable '", executable.name(), "': found a constant of ",
                                                     allocation.blob().size(), " bytes, expected ",
                                                     allocation.bytes()));
    }
    XLAD_ASSIGN_OR_RETURN(constants.memory.emplace_back(), device->Allocate(allocation.bytes()));
    void* const address = constants.memory.back()->address();
    const absl::Span<const std::byte> contents(reinterpret_cast<const std::byte*>(allocation.blob().data()),
                                               allocation.blob().size());
    XLAD_RETURN_IF_ERROR(device->CopyToDevice(address, contents));
    constants.addresses.back() = static_cast<std::byte*>(address);
  }
  return constants;
}

absl::StatusOr<std::unique_ptr<DeviceBuffers>> DeviceBuffers::Allocate(Device* device, const Executable& executable,
                                                                       const FeedPlan& plan,
                                                                       const std::vector<std::byte*>& constants) {
  std::unique_ptr<DeviceBuffers> buffers(new DeviceBuffers(plan));
  for (int a = 0; a < executable.allocations_size(); ++a) {
    if (constants[a] != nullptr) {
      buffers->addresses_.push_back(constants[a]);
      continue;
    }
    XLAD_ASSIGN_OR_RETURN(buffers->memory_.emplace_back(), device->Allocate(executable.allocations(a).bytes()));
    buffers->addresses_.push_back(static_cast<std::byte*>(buffers->memory_.back()->address()));
  }
  buffers->next_addresses_ = buffers->addresses_;
  buffers->staged_.resize(plan.copies.size());
  return buffers;
}

void DeviceBuffers::KeepState() {
  kept_.clear();
  for (const Slice& slice : plan_.keep) {
    const absl::Span<const std::byte> bytes = At(slice);
    kept_.emplace_back(bytes.begin(), bytes.end());
  }
}

void DeviceBuffers::PrepareStep() {
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (!kept_[i].empty()) std::memcpy(At(plan_.keep[i]).data(), kept_[i].data(), kept_[i].size());
  }
}

void DeviceBuffers::FeedBack() {
  // All are read before any is written: one result's new place may be another's old one.
  for (size_t i = 0; i < plan_.copies.size(); ++i) {
    const absl::Span<const std::byte> from = At(plan_.copies[i].from);
    staged_[i].assign(from.begin(), from.end());
  }
  for (size_t i = 0; i < plan_.copies.size(); ++i) {
    if (!staged_[i].empty()) std::memcpy(At(plan_.copies[i].to).data(), staged_[i].data(), staged_[i].size());
  }
  for (size_t a = 0; a < addresses_.size(); ++a) next_addresses_[a] = addresses_[plan_.block_from[a]];
  addresses_.swap(next_addresses_);
}

}  // namespace xlad::runtime

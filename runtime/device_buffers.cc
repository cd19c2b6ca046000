#include "runtime/device_buffers.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "runtime/memory_need.h"

namespace xlad::runtime {
namespace {

class SharedDeviceMemory final : public DeviceMemory {
 public:
  SharedDeviceMemory(collectives::HostMemory* shared, std::byte* address, int64_t bytes)
      : shared_(*shared), address_(address), bytes_(bytes) {}
  ~SharedDeviceMemory() override { shared_.Free(address_, bytes_); }
  void* address() const override { return address_; }
  int64_t bytes() const override { return bytes_; }

 private:
  collectives::HostMemory& shared_;
  std::byte* const address_;
  const int64_t bytes_;
};

bool IsWholeAllocation(const Executable& executable, const Slice& slice) {
  return slice.offset == 0 && slice.bytes == executable.allocations(slice.allocation).bytes();
}

bool SameMemory(const Slice& a, const Slice& b) { return a.allocation == b.allocation && a.offset == b.offset; }

absl::Status CheckEntry(const Executable& executable, const JobSpec& spec) {
  if (executable.parameters_size() != spec.parameters_size() || executable.results_size() != spec.results_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("executable '", executable.name(), "': parameters and results: found ",
                     executable.parameters_size(), " and ", executable.results_size(), ", expected ",
                     spec.parameters_size(), " and ", spec.results_size(), " as in the job"));
  }
  return absl::OkStatus();
}

// Completes the permutation `block_from`. The block of an allocation is its memory. takes[a]: allocation a has been
// assigned the block of another allocation; is_taken[a]: the block of a has been assigned to another allocation. The
// assignments form chains. The allocation at the beginning of a chain has no block yet, because its own block is taken.
// It receives the block at the end of the chain.
void CloseChains(std::vector<int>* block_from, const std::vector<bool>& is_taken, const std::vector<bool>& takes) {
  const int n = std::ssize(*block_from);
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

// Describes an allocation for which there is not enough memory: its largest values and the bytes of the whole program.
std::string DescribeNeed(const Executable& executable, int allocation) {
  int64_t before = 0, all = 0;
  for (int a = 0; a < executable.allocations_size(); ++a) {
    const Allocation& other = executable.allocations(a);
    // The constants are allocated first, and then the other allocations in this order.
    if (a < allocation || other.kind() == Allocation::CONSTANT) before += other.bytes();
    all += other.bytes();
  }
  const std::string largest = LargestValues(executable, [&](int a) { return a == allocation; });
  const int64_t bytes = executable.allocations(allocation).bytes();
  return absl::StrCat("out of memory: cannot allocate ", bytes, " bytes",
                      largest.empty() ? "" : absl::StrCat("; the largest values: ", largest), "; the program needs ",
                      all, " bytes per device, of which ", before, " are allocated",
                      "; use a smaller batch, more devices, or workers with more memory");
}

}  // namespace

absl::StatusOr<FeedPlan> PlanFeeds(const Executable& executable, const JobSpec& spec) {
  XLAD_RETURN_IF_ERROR(CheckEntry(executable, spec));
  FeedPlan plan;
  const size_t n = executable.allocations_size();
  plan.block_from.resize(n);
  std::iota(plan.block_from.begin(), plan.block_from.end(), 0);
  std::vector<bool> takes(n), is_taken(n), is_fed(spec.parameters_size());
  std::vector<std::string> places;  // The result of each copy.
  for (int r = 0; r < spec.results_size(); ++r) {
    const int64_t p = spec.results(r).feeds();
    if (spec.results(r).kind() != JobSpec::Result::STATE || p < 0) continue;
    const std::string place = absl::StrCat("result ", r, " (\"", spec.results(r).name(), "\")");
    if (p >= spec.parameters_size() || spec.parameters(p).kind() != JobSpec::Parameter::STATE || is_fed[p]) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": found that it feeds parameter ", p,
                                                     ", expected a state parameter that no other result feeds"));
    }
    is_fed[p] = true;
    XLAD_ASSIGN_OR_RETURN(const Slice from, ReadSlice(executable, executable.results(r).buffer()));
    XLAD_ASSIGN_OR_RETURN(const Slice to, ReadSlice(executable, executable.parameters(p).buffer()));
    if (from.bytes != to.bytes) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": found ", from.bytes, " bytes on a device, expected ",
                                                     to.bytes, ", the size of parameter ", p));
    }
    if (SameMemory(from, to)) continue;
    const bool can_swap = IsWholeAllocation(executable, from) && IsWholeAllocation(executable, to) &&
                          !takes[to.allocation] && !is_taken[from.allocation] && from.allocation != to.allocation;
    if (!can_swap) {
      plan.copies.push_back({from, to});
      places.push_back(place);
      continue;
    }
    takes[to.allocation] = is_taken[from.allocation] = true;
    plan.block_from[to.allocation] = from.allocation;
  }
  CloseChains(&plan.block_from, is_taken, takes);
  for (size_t c = 0; c < plan.copies.size(); ++c) {
    const int from = plan.copies[c].from.allocation, to = plan.copies[c].to.allocation;
    const bool moves_from = plan.block_from[from] != from;
    if (!moves_from && plan.block_from[to] == to) continue;
    return absl::UnimplementedError(
        absl::StrCat(places[c], ": found a result that must be copied to its parameter, but allocation ",
                     moves_from ? from : to, ", which contains the ", moves_from ? "result" : "parameter",
                     ", is exchanged with another allocation, expected results and parameters that do not share ",
                     "memory"));
  }
  for (int p = 0; p < spec.parameters_size(); ++p) {
    if (spec.parameters(p).kind() != JobSpec::Parameter::STATE || is_fed[p]) continue;
    if (!executable.parameters(p).donated()) continue;
    XLAD_ASSIGN_OR_RETURN(plan.restore.emplace_back(), ReadSlice(executable, executable.parameters(p).buffer()));
  }
  return plan;
}

absl::StatusOr<Constants> MakeConstants(Device* device, const Executable& executable) {
  Constants constants;
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->MakeStream());
  for (const Allocation& allocation : executable.allocations()) {
    constants.addresses.push_back(nullptr);
    if (allocation.kind() != Allocation::CONSTANT) continue;
    if (std::ssize(allocation.blob()) != allocation.bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("executable '", executable.name(), "': found a constant of ",
                                                     allocation.blob().size(), " bytes, expected ",
                                                     allocation.bytes()));
    }
    XLAD_ASSIGN_OR_RETURN(constants.memory.emplace_back(), device->Allocate(allocation.bytes(), allocation.memory()));
    void* const address = constants.memory.back()->address();
    const absl::Span<const std::byte> contents(reinterpret_cast<const std::byte*>(allocation.blob().data()),
                                               allocation.blob().size());
    XLAD_RETURN_IF_ERROR(stream->CopyToDevice(address, contents));
    constants.addresses.back() = static_cast<std::byte*>(address);
  }
  XLAD_RETURN_IF_ERROR(stream->Synchronize());
  return constants;
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> MemorySource::Allocate(int64_t bytes, MemoryKind kind) const {
  if (shared_ == nullptr) return device_->Allocate(bytes, kind);
  XLAD_ASSIGN_OR_RETURN(std::byte* const address, shared_->Allocate(bytes));
  return std::make_unique<SharedDeviceMemory>(shared_, address, bytes);
}

absl::StatusOr<std::unique_ptr<DeviceBuffers>> DeviceBuffers::Allocate(const MemorySource& source, Stream* stream,
                                                                       const Executable& executable,
                                                                       const FeedPlan& plan,
                                                                       const std::vector<std::byte*>& constants) {
  std::unique_ptr<DeviceBuffers> buffers(new DeviceBuffers(stream, plan));
  for (int a = 0; a < executable.allocations_size(); ++a) {
    if (constants[a] != nullptr) {
      buffers->addresses_.push_back(constants[a]);
      continue;
    }
    const Allocation& allocation = executable.allocations(a);
    absl::StatusOr<std::unique_ptr<DeviceMemory>> memory = source.Allocate(allocation.bytes(), allocation.memory());
    if (absl::IsResourceExhausted(memory.status())) return Annotate(memory.status(), DescribeNeed(executable, a));
    if (!memory.ok()) return memory.status();
    buffers->memory_.push_back(*std::move(memory));
    buffers->addresses_.push_back(static_cast<std::byte*>(buffers->memory_.back()->address()));
  }
  buffers->next_addresses_ = buffers->addresses_;
  for (const Slice& slice : plan.restore) {
    XLAD_ASSIGN_OR_RETURN(buffers->saved_.emplace_back(), source.Allocate(slice.bytes));
  }
  for (const FeedPlan::Copy& copy : plan.copies) {
    XLAD_ASSIGN_OR_RETURN(buffers->staged_.emplace_back(), source.Allocate(copy.from.bytes));
  }
  return buffers;
}

absl::Status DeviceBuffers::Write(const Slice& to, absl::Span<const std::byte> from) {
  return stream_->CopyToDevice(AddressOf(to), from);
}

absl::Status DeviceBuffers::Read(const Slice& from, absl::Span<std::byte> to) const {
  XLAD_RETURN_IF_ERROR(stream_->CopyToHost(to, AddressOf(from)));
  return stream_->Synchronize();
}

absl::Status DeviceBuffers::SaveState() {
  for (size_t i = 0; i < saved_.size(); ++i) {
    const Slice& slice = plan_.restore[i];
    XLAD_RETURN_IF_ERROR(stream_->Copy(saved_[i]->address(), AddressOf(slice), slice.bytes));
  }
  return absl::OkStatus();
}

absl::Status DeviceBuffers::RestoreState() {
  for (size_t i = 0; i < saved_.size(); ++i) {
    const Slice& slice = plan_.restore[i];
    XLAD_RETURN_IF_ERROR(stream_->Copy(AddressOf(slice), saved_[i]->address(), slice.bytes));
  }
  return absl::OkStatus();
}

absl::Status DeviceBuffers::FeedBack() {
  // All results are read before any parameter is written, because a parameter may be in the memory of another result.
  for (size_t i = 0; i < staged_.size(); ++i) {
    const Slice& from = plan_.copies[i].from;
    XLAD_RETURN_IF_ERROR(stream_->Copy(staged_[i]->address(), AddressOf(from), from.bytes));
  }
  for (size_t i = 0; i < staged_.size(); ++i) {
    const Slice& to = plan_.copies[i].to;
    XLAD_RETURN_IF_ERROR(stream_->Copy(AddressOf(to), staged_[i]->address(), to.bytes));
  }
  for (size_t a = 0; a < addresses_.size(); ++a) next_addresses_[a] = addresses_[plan_.block_from[a]];
  addresses_.swap(next_addresses_);
  return absl::OkStatus();
}

}  // namespace xlad::runtime

#include "runtime/memory_need.h"

#include <google/protobuf/message.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes_text.h"
#include "base/counted.h"
#include "base/process/memory_limit.h"

namespace xlad::runtime {
namespace {

constexpr size_t kMaxNamedValues = 4;

using SliceVisitor = std::function<void(const BufferSlice& slice, const Step& step)>;

// Visits the slices in a message of any type, recursively. `step` is the innermost step that contains the message.
void VisitSlices(const google::protobuf::Message& message, const Step& step, const SliceVisitor& visit) {
  if (message.GetDescriptor() == BufferSlice::descriptor()) {
    return visit(static_cast<const BufferSlice&>(message), step);
  }
  const bool is_step = message.GetDescriptor() == Step::descriptor();
  const Step& inner = is_step ? static_cast<const Step&>(message) : step;
  const google::protobuf::Reflection* reflection = message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      VisitSlices(reflection->GetMessage(message, field), inner, visit);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      VisitSlices(reflection->GetRepeatedMessage(message, field, i), inner, visit);
    }
  }
}

const char* MemoryUse(Allocation::Kind kind) {
  switch (kind) {
    case Allocation::PARAMETER:
      return "parameter";
    case Allocation::RESULT:
      return "result";
    case Allocation::CONSTANT:
      return "constant";
    default:
      return "temporary";
  }
}

bool IsOnHost(const Allocation& allocation, bool is_host_device) {
  return is_host_device || allocation.memory() == MEMORY_PINNED_HOST;
}

// The bytes of the machine's memory that the constants of the executable take, which all shards of a process share, or
// that its other allocations take, which each shard has.
double HostBytes(const Executable& executable, bool is_host_device, bool constants) {
  double bytes = 0;
  for (const Allocation& allocation : executable.allocations()) {
    const bool is_constant = allocation.kind() == Allocation::CONSTANT;
    if (IsOnHost(allocation, is_host_device) && is_constant == constants) {
      bytes += static_cast<double>(allocation.bytes());
    }
  }
  return bytes;
}

std::string HostPart(const std::string& address) { return address.substr(0, address.rfind(':')); }

// The shards of a job, and the bytes that they need. The sum of the bytes may exceed an int64_t.
struct HostNeed {
  int64_t shards = 0;
  double bytes = 0;
};

HostNeed NeedOfWorker(const ConnectedExecutable& executable, int64_t shards) {
  HostNeed need{shards, 0};
  std::vector<const Executable*> seen;
  for (int index = 0; index < shards; ++index) {
    const Executable& program = executable.executable(index);
    const bool is_host_device = executable.device(index).uses_host_memory();
    need.bytes += HostBytes(program, is_host_device, /*constants=*/false);
    if (std::find(seen.begin(), seen.end(), &program) != seen.end()) continue;
    need.bytes += HostBytes(program, is_host_device, /*constants=*/true);
    seen.push_back(&program);
  }
  return need;
}

// The need of all workers of the job on this machine.
HostNeed NeedOfMachine(const ConnectedExecutable& executable, const LaunchTask& launch, const std::string& worker_id,
                       const HostNeed& own) {
  const auto self = std::find_if(launch.peers().begin(), launch.peers().end(),
                                 [&](const Peer& peer) { return peer.worker_id() == worker_id; });
  HostNeed need = own;
  if (self == launch.peers().end() || self->kinds_size() > 0) return need;
  const Executable& program = executable.executable();
  const bool is_host_device = executable.device(0).uses_host_memory();
  const double of_shard = HostBytes(program, is_host_device, /*constants=*/false);
  const double of_worker = HostBytes(program, is_host_device, /*constants=*/true);
  for (const Peer& peer : launch.peers()) {
    if (peer.worker_id() == worker_id || peer.host() != self->host()) continue;
    if (HostPart(peer.data_address()) != HostPart(self->data_address())) continue;
    need.shards += peer.devices_size();
    need.bytes += static_cast<double>(peer.devices_size()) * of_shard + of_worker;
  }
  return need;
}

// The largest values in the machine's memory of the shard of this worker that needs the most of it.
std::string LargestHostValues(const ConnectedExecutable& executable, int64_t shards) {
  const auto bytes_of = [&](int index) {
    const Executable& program = executable.executable(index);
    const bool is_host_device = executable.device(index).uses_host_memory();
    return HostBytes(program, is_host_device, /*constants=*/false) +
           HostBytes(program, is_host_device, /*constants=*/true);
  };
  int most = 0;
  for (int index = 1; index < shards; ++index) {
    if (bytes_of(index) > bytes_of(most)) most = index;
  }
  const Executable& program = executable.executable(most);
  const bool is_host_device = executable.device(most).uses_host_memory();
  return LargestValues(program, [&](int number) { return IsOnHost(program.allocations(number), is_host_device); });
}

// The texts of a need and of a smaller limit, which always differ.
std::pair<std::string, std::string> DifferentTexts(double need, double limit) {
  std::pair<std::string, std::string> texts = {BytesText(need), BytesText(limit)};
  if (texts.first == texts.second) texts = {absl::StrFormat("%.0f bytes", need), absl::StrFormat("%.0f bytes", limit)};
  return texts;
}

}  // namespace

std::string LargestValues(const Executable& executable, absl::FunctionRef<bool(int allocation)> counts) {
  // The name of the value in each place. A parameter comes before the results and the steps that use its memory.
  // Otherwise, the first step that uses a place writes it.
  std::map<std::tuple<int, int64_t, int64_t>, std::string> names;
  const auto add = [&](const BufferSlice& slice, const std::string& name) {
    if (slice.bytes() <= 0 || !counts(slice.allocation())) return;
    names.try_emplace({slice.allocation(), slice.offset(), slice.bytes()}, name);
  };
  for (int p = 0; p < executable.parameters_size(); ++p) {
    const EntryValue& value = executable.parameters(p);
    add(value.buffer(), value.name().empty() ? absl::StrCat("parameter ", p) : value.name());
  }
  for (const Step& outer : executable.steps()) {
    VisitSlices(outer, outer, [&](const BufferSlice& slice, const Step& step) {
      add(slice, step.source().empty() ? step.name() : absl::StrCat(step.name(), " (", step.source(), ")"));
    });
  }
  std::vector<std::pair<int64_t, std::string>> values;  // Bytes and text.
  for (const auto& [place, name] : names) {
    const auto& [number, offset, bytes] = place;
    const char* const use = MemoryUse(executable.allocations(number).kind());
    values.emplace_back(bytes, absl::StrCat(name, " (", use, ", ", BytesText(static_cast<double>(bytes)), ")"));
  }
  std::stable_sort(values.begin(), values.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (values.size() > kMaxNamedValues) values.resize(kMaxNamedValues);
  return absl::StrJoin(values, ", ", [](std::string* out, const auto& value) { out->append(value.second); });
}

AvailableMemory AvailableMemory::Now() {
  struct sysinfo info{};
  if (sysinfo(&info) != 0) return {INT64_MAX, INT64_MAX};
  const int64_t unit = info.mem_unit, swap = static_cast<int64_t>(info.totalswap) * unit;
  return {std::min(GroupMemoryBytes(), INT64_MAX - swap) + swap, static_cast<int64_t>(info.totalram) * unit + swap};
}

absl::Status CheckHostMemory(const ConnectedExecutable& executable, const LaunchTask& launch,
                             const std::string& worker_id, const AvailableMemory& available, absl::string_view advice) {
  const HostNeed own = NeedOfWorker(executable, launch.devices_size());
  const HostNeed all = NeedOfMachine(executable, launch, worker_id, own);
  const auto group = static_cast<double>(available.of_group), machine = static_cast<double>(available.of_machine);
  const bool fits_group = own.bytes <= group;
  if (fits_group && all.bytes <= machine) return absl::OkStatus();
  const HostNeed& need = fits_group ? all : own;
  const int64_t devices = need.shards / std::max(1, launch.shards_per_device());
  const auto [needs, expected] = DifferentTexts(need.bytes, fits_group ? machine : group);
  return absl::ResourceExhaustedError(absl::StrCat(
      "out of memory: found a program that needs ", needs, " for ", Counted(devices, "device"),
      fits_group ? " on one machine" : " of one worker", ", expected at most ", expected,
      fits_group ? ", the machine's memory" : ", the memory that the worker may use",
      "; the largest values of a device: ", LargestHostValues(executable, launch.devices_size()), "; ", advice));
}

}  // namespace xlad::runtime

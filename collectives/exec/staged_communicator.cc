#include "collectives/exec/staged_communicator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/rounding.h"
#include "collectives/exec/layout.h"

namespace xlad::collectives {
namespace {

// The alignment of staged operands in bytes. The buffers of a device have the same alignment.
constexpr int64_t kStagedAlignment = 64;

}  // namespace

absl::Status StagedCommunicator::Launch(const CollectiveLaunch& launch) {
  XLAD_RETURN_IF_ERROR(ops_.Synchronize());
  if (ops_.host_can_access()) return inner_->Launch(launch);
  XLAD_ASSIGN_OR_RETURN(Staging staging, CopyIn(launch));
  XLAD_RETURN_IF_ERROR(inner_->Launch(staging.ToLaunch(launch)));
  return CopyOut(std::move(staging));
}

absl::StatusOr<int64_t> StagedCommunicator::Start(const CollectiveLaunch& launch) {
  XLAD_RETURN_IF_ERROR(ops_.Synchronize());
  if (ops_.host_can_access()) return inner_->Start(launch);
  XLAD_ASSIGN_OR_RETURN(Staging staging, CopyIn(launch));
  XLAD_ASSIGN_OR_RETURN(staging.inner, inner_->Start(staging.ToLaunch(launch)));
  started_.emplace(++count_, std::move(staging));
  return count_;
}

absl::Status StagedCommunicator::Wait(int64_t number) {
  if (ops_.host_can_access()) return inner_->Wait(number);
  const auto found = started_.find(number);
  if (found == started_.end()) {
    const bool was_started = number >= 1 && number <= count_;
    return absl::InvalidArgumentError(absl::StrCat("found collective start ", number, ", which has ",
                                                   was_started ? "been waited for" : "not been made",
                                                   ", expected one that still runs"));
  }
  XLAD_RETURN_IF_ERROR(inner_->Wait(found->second.inner));
  Staging staging = std::move(found->second);
  started_.erase(found);
  return CopyOut(std::move(staging));
}

std::string StagedCommunicator::Medium(int spec) const {
  if (ops_.host_can_access()) return inner_->Medium(spec);
  const auto found = reasons_.find(spec);
  return absl::StrCat(kHostMedium, " (staged: ",
                      found != reasons_.end() ? found->second : "devices of this kind do not run schedules", ")");
}

absl::StatusOr<StagedCommunicator::Staging> StagedCommunicator::CopyIn(const CollectiveLaunch& launch) {
  const std::vector<Collective>& collectives = collectives_.collectives;
  if (launch.spec < 0 || launch.spec >= std::ssize(collectives)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found collective ", launch.spec, ", expected 0 or more and less than ", collectives.size()));
  }
  const Collective& collective = collectives[launch.spec];
  const CollectiveSpec& spec = collective.spec;
  const auto [group, rank] = FindGroup(collective, device_);
  if (group == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("device ", device_, " launches ", collective.ToString(),
                                                   ", expected a collective in which it takes part"));
  }
  const std::vector<int64_t> input_counts = InputCounts(spec, rank), output_counts = OutputCounts(spec, rank);
  if (launch.inputs.size() != input_counts.size() || launch.outputs.size() != output_counts.size()) {
    return absl::InvalidArgumentError(absl::StrCat(collective.ToString(), ": inputs and outputs: found ",
                                                   launch.inputs.size(), " and ", launch.outputs.size(), ", expected ",
                                                   input_counts.size(), " and ", output_counts.size()));
  }
  const int64_t width = tensor::ByteWidth(spec.type);
  int64_t total = kStagedAlignment;
  for (const int64_t count : input_counts) total += RoundUp(count * width, kStagedAlignment);
  for (const int64_t count : output_counts) total += RoundUp(count * width, kStagedAlignment);
  Staging staging;
  if (!free_.empty()) {
    staging.memory = std::move(free_.back());
    free_.pop_back();
  }
  if (std::ssize(staging.memory) < total) staging.memory.resize(total);
  auto* next =
      reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<intptr_t>(staging.memory.data()), kStagedAlignment));
  const auto take = [&next](int64_t bytes) {
    const absl::Span<std::byte> taken(next, static_cast<size_t>(bytes));
    next += RoundUp(bytes, kStagedAlignment);
    return taken;
  };
  for (size_t i = 0; i < launch.inputs.size(); ++i) {
    const absl::Span<std::byte> staged = take(input_counts[i] * width);
    if (const absl::Status status = ops_.CopyToHost(staged, launch.inputs[i]); !status.ok()) {
      ops_.Synchronize().IgnoreError();  // The copies of earlier operands write to the memory, which is freed.
      return status;
    }
    staging.inputs.push_back(staged.data());
  }
  const bool writes_outputs = WritesOutputs(spec, rank);
  for (size_t i = 0; i < launch.outputs.size(); ++i) {
    // An in-place operation is also staged in place, because schedules may depend on it.
    const bool in_place = launch.outputs[i] == launch.inputs[i] && output_counts[i] == input_counts[i];
    const int64_t bytes = output_counts[i] * width;
    std::byte* const staged = in_place ? const_cast<std::byte*>(staging.inputs[i]) : take(bytes).data();
    staging.outputs.push_back(staged);
    if (writes_outputs) staging.results.emplace_back(launch.outputs[i], absl::MakeConstSpan(staged, bytes));
  }
  XLAD_RETURN_IF_ERROR(ops_.Synchronize());
  return staging;
}

absl::Status StagedCommunicator::CopyOut(Staging staging) {
  for (const auto& [to, from] : staging.results) XLAD_RETURN_IF_ERROR(ops_.CopyToDevice(to, from));
  free_.push_back(std::move(staging.memory));
  return absl::OkStatus();
}

}  // namespace xlad::collectives

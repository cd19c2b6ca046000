#include "collectives/exec/staged_communicator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/rounding.h"

namespace xlad::collectives {
namespace {

// Staged operands begin at multiples of this, as buffers of a device do.
constexpr int64_t kAlignment = 64;

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
    return absl::InvalidArgumentError(absl::StrCat("found collective start ", number, ", which has been waited for"));
  }
  XLAD_RETURN_IF_ERROR(inner_->Wait(found->second.inner));
  Staging staging = std::move(found->second);
  started_.erase(found);
  return CopyOut(std::move(staging));
}

absl::StatusOr<StagedCommunicator::Staging> StagedCommunicator::CopyIn(const CollectiveLaunch& launch) {
  const std::vector<Collective>& collectives = collectives_.collectives;
  if (launch.spec < 0 || launch.spec >= std::ssize(collectives)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found collective ", launch.spec, ", expected one below ", collectives.size()));
  }
  const CollectiveSpec& spec = collectives[launch.spec].spec;
  const std::vector<int64_t> output_counts = spec.output_counts();
  if (launch.inputs.size() != spec.counts.size() || launch.outputs.size() != output_counts.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        collectives[launch.spec].ToString(), ": found ", launch.inputs.size(), " inputs and ", launch.outputs.size(),
        " outputs, expected ", spec.counts.size(), " and ", output_counts.size()));
  }
  const int64_t width = tensor::ByteWidth(spec.type);
  int64_t total = kAlignment;
  for (const int64_t count : spec.counts) total += RoundUp(count * width, kAlignment);
  for (const int64_t count : output_counts) total += RoundUp(count * width, kAlignment);
  Staging staging;
  if (!free_.empty()) {
    staging.memory = std::move(free_.back());
    free_.pop_back();
  }
  if (std::ssize(staging.memory) < total) staging.memory.resize(total);
  auto* next = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<intptr_t>(staging.memory.data()), kAlignment));
  const auto take = [&next](int64_t bytes) {
    const absl::Span<std::byte> taken(next, static_cast<size_t>(bytes));
    next += RoundUp(bytes, kAlignment);
    return taken;
  };
  for (size_t i = 0; i < launch.inputs.size(); ++i) {
    const absl::Span<std::byte> staged = take(spec.counts[i] * width);
    XLAD_RETURN_IF_ERROR(ops_.CopyToHost(staged, launch.inputs[i]));
    staging.inputs.push_back(staged.data());
  }
  for (size_t i = 0; i < launch.outputs.size(); ++i) {
    // An operation in place stays in place, because schedules may depend on it.
    const bool in_place = launch.outputs[i] == launch.inputs[i] && output_counts[i] == spec.counts[i];
    const int64_t bytes = output_counts[i] * width;
    staging.outputs.push_back(in_place ? const_cast<std::byte*>(staging.inputs[i]) : take(bytes).data());
    staging.results.push_back({launch.outputs[i], bytes});
  }
  XLAD_RETURN_IF_ERROR(ops_.Synchronize());
  return staging;
}

absl::Status StagedCommunicator::CopyOut(Staging staging) {
  for (size_t i = 0; i < staging.outputs.size(); ++i) {
    const auto& [to, bytes] = staging.results[i];
    XLAD_RETURN_IF_ERROR(ops_.CopyToDevice(to, absl::MakeSpan(staging.outputs[i], static_cast<size_t>(bytes))));
  }
  free_.push_back(std::move(staging.memory));
  return absl::OkStatus();
}

}  // namespace xlad::collectives

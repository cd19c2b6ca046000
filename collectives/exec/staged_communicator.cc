#include "collectives/exec/staged_communicator.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/rounding.h"

namespace xlad::collectives {
namespace {

// Staged operands begin at multiples of this, as buffers of a device do.
constexpr int64_t kAlignment = 64;

}  // namespace

absl::Status StagedCommunicator::Launch(const CollectiveLaunch& launch) {
  XLAD_RETURN_IF_ERROR(ops_.Synchronize());
  return ops_.host_can_access() ? inner_->Launch(launch) : LaunchStaged(launch);
}

absl::Status StagedCommunicator::LaunchStaged(const CollectiveLaunch& launch) {
  const std::vector<Collective>& collectives = collectives_.collectives;
  if (launch.spec < 0 || launch.spec >= std::ssize(collectives)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found collective ", launch.spec, ", expected one below ", collectives.size()));
  }
  const CollectiveSpec& spec = collectives[launch.spec].spec;
  const std::vector<int64_t> output_counts = spec.output_counts();
  if (launch.inputs.size() != spec.counts.size() || launch.outputs.size() != output_counts.size()) {
    return inner_->Launch(launch);  // It says what is expected before it accesses any buffer.
  }
  const int64_t width = tensor::ByteWidth(spec.type);
  int64_t total = kAlignment;
  for (const int64_t count : spec.counts) total += RoundUp(count * width, kAlignment);
  for (const int64_t count : output_counts) total += RoundUp(count * width, kAlignment);
  if (std::ssize(staging_) < total) staging_.resize(total);
  auto* next = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<intptr_t>(staging_.data()), kAlignment));
  const auto take = [&next](int64_t bytes) {
    const absl::Span<std::byte> taken(next, static_cast<size_t>(bytes));
    next += RoundUp(bytes, kAlignment);
    return taken;
  };

  absl::InlinedVector<const std::byte*, 8> inputs;
  for (size_t i = 0; i < launch.inputs.size(); ++i) {
    const absl::Span<std::byte> staged = take(spec.counts[i] * width);
    XLAD_RETURN_IF_ERROR(ops_.CopyToHost(staged, launch.inputs[i]));
    inputs.push_back(staged.data());
  }
  absl::InlinedVector<std::byte*, 8> outputs;
  for (size_t i = 0; i < launch.outputs.size(); ++i) {
    // An operation in place stays in place, because schedules may depend on it.
    const bool in_place = launch.outputs[i] == launch.inputs[i] && output_counts[i] == spec.counts[i];
    outputs.push_back(in_place ? const_cast<std::byte*>(inputs[i]) : take(output_counts[i] * width).data());
  }
  XLAD_RETURN_IF_ERROR(ops_.Synchronize());
  XLAD_RETURN_IF_ERROR(inner_->Launch({launch.spec, inputs, outputs, launch.step, launch.iteration}));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const absl::Span<const std::byte> staged(outputs[i], static_cast<size_t>(output_counts[i] * width));
    XLAD_RETURN_IF_ERROR(ops_.CopyToDevice(launch.outputs[i], staged));
  }
  return absl::OkStatus();
}

}  // namespace xlad::collectives

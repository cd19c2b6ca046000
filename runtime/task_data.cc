#include "runtime/task_data.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/connected_executable.h"
#include "storage/job_uris.h"
#include "tensor/not_finite.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::Array;
using tensor::AtOrigin;
using tensor::Box;
using tensor::Shape;

// The maximum number of bytes of state in host memory at a time while the state is read. A shard that is larger than
// this is read alone.
constexpr int64_t kMaxStateBytes = 64 << 20;

// The URI of the state before the first step.
std::string StartUri(const LaunchTask& launch) {
  if (!launch.checkpoint_uri().empty()) return launch.checkpoint_uri();
  return launch.state_blob().empty() ? storage::StateUri(launch.spec()) : storage::BlobUri(launch.state_blob());
}

}  // namespace

TaskData::TaskData(const LaunchTask& launch, TaskStore* store, collectives::AbortSignal* abort)
    : launch_(launch), store_(store), abort_(abort), devices_(MeshPositions(launch)) {
  listener_ = abort_->AddListener([this](const collectives::Failure& failure) { reads_.Raise(failure); });
}

TaskData::~TaskData() {
  abort_->RemoveListener(listener_);
  reads_.Raise({absl::CancelledError("the task has ended"), ""});
}

absl::StatusOr<std::unique_ptr<TaskData>> TaskData::Make(const LaunchTask& launch,
                                                         absl::Span<const Executable* const> executables,
                                                         TaskStore* store, collectives::AbortSignal* abort) {
  std::unique_ptr<TaskData> data(new TaskData(launch, store, abort));
  XLAD_CHECK(!executables.empty()) << "a task without devices has no data";
  // Losses and metrics are read from device 0.
  const auto first = std::find(data->devices_.begin(), data->devices_.end(), 0);
  const Executable& executable = *executables[first == data->devices_.end() ? 0 : first - data->devices_.begin()];
  for (int p = 0; p < executable.parameters_size(); ++p) {
    const absl::Status status = data->AddParameter(executable, p);
    if (!status.ok())
      return Annotate(status, absl::StrCat("parameter ", p, " (\"", launch.spec().parameters(p).name(), "\")"));
  }
  for (int r = 0; r < executable.results_size(); ++r) {
    const absl::Status status = data->AddResult(executable, r);
    if (!status.ok())
      return Annotate(status, absl::StrCat("result ", r, " (\"", launch.spec().results(r).name(), "\")"));
  }
  for (size_t index = 0; index < executables.size(); ++index) {
    if (index == 0 || executables[index] != executables[index - 1]) {
      XLAD_RETURN_IF_ERROR(data->AddDevice(*executables[index]));
      continue;
    }
    for (Entry& entry : data->parameters_) entry.slices.push_back(entry.slices.back());
  }
  return data;
}

absl::Status TaskData::AddDevice(const Executable& executable) {
  if (executable.parameters_size() != std::ssize(parameters_)) {
    return absl::InvalidArgumentError(absl::StrCat("executable '", executable.name(), "': found ",
                                                   executable.parameters_size(), " parameters, expected ",
                                                   parameters_.size(), " as in the executable of the other devices"));
  }
  for (int p = 0; p < std::ssize(parameters_); ++p) {
    Entry& entry = parameters_[p];
    XLAD_ASSIGN_OR_RETURN(const EntryLayout layout, ReadEntryLayout(executable, executable.parameters(p)));
    if (!(layout.global == entry.global) || !(layout.local == entry.local) || layout.boxes != entry.boxes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "executable '", executable.name(), "': found parameter ", p, " (\"", entry.name,
          "\") divided differently than in the executable ", "of the other devices, expected the same program"));
    }
    entry.slices.push_back(layout.slice);
  }
  return absl::OkStatus();
}

absl::Status TaskData::AddParameter(const Executable& executable, int index) {
  const EntryValue& value = executable.parameters(index);
  const JobSpec::Parameter& spec = launch_.spec().parameters(index);
  XLAD_ASSIGN_OR_RETURN(EntryLayout layout, ReadEntryLayout(executable, value));
  Entry& entry = parameters_.emplace_back(Entry{std::move(layout), spec.name(), spec.kind(), {}});
  const Shape& global = entry.global;
  if (entry.kind == JobSpec::Parameter::DATA && global.dims.empty()) {
    return absl::InvalidArgumentError("found data without dimensions, expected the rows of a batch in dimension 0");
  }
  if (entry.kind == JobSpec::Parameter::STEP && (!global.dims.empty() || !tensor::IsInteger(global.type))) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", global.ToString(), " for the step number, expected an integer scalar"));
  }
  return absl::OkStatus();
}

absl::Status TaskData::AddResult(const Executable& executable, int index) {
  const JobSpec::Result::Kind kind = launch_.spec().results(index).kind();
  if (kind != JobSpec::Result::LOSS && kind != JobSpec::Result::METRIC) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(const Shape shape, tensor::CheckedShapeFromWire(executable.results(index).local()));
  XLAD_ASSIGN_OR_RETURN(scalars_.emplace_back(), ReadSlice(executable, executable.results(index).buffer()));
  if (shape.type == tensor::ElementType::kF32 && shape.elements() == 1 && scalars_.back().bytes == 4) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("found ", shape.ToString(), " for a loss or metric, expected f32[]"));
}

std::vector<TaskData::StateBox> TaskData::StateBoxes() const {
  std::vector<StateBox> boxes;
  for (const Entry& entry : parameters_) {
    if (entry.kind != JobSpec::Parameter::STATE) continue;
    const size_t first = boxes.size();
    for (int index = 0; index < std::ssize(devices_); ++index) {
      const Box& box = entry.BoxOf(devices_[index]);
      const auto same = [&](const StateBox& other) { return other.box == box; };
      auto found = std::find_if(boxes.begin() + first, boxes.end(), same);
      if (found == boxes.end()) found = boxes.insert(found, {&entry, box, {}});
      found->indices.push_back(index);
    }
  }
  return boxes;
}

absl::Status TaskData::ReadBoxes(const storage::TensorSource& source, absl::Span<const StateBox> boxes,
                                 absl::Span<DeviceBuffers* const> buffers) {
  std::vector<Array> arrays(boxes.size());
  std::vector<absl::Span<std::byte>> outs;
  std::vector<bool> is_in_place;
  std::vector<storage::BoxRead> reads;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const StateBox& box = boxes[i];
    const Shape shape{box.entry->local.type, box.box.sizes()};
    const int first = box.indices[0];
    // The first use of new host memory costs more than a copy. A shard without padding is therefore read directly into
    // the memory of the first device, if the host can access it.
    is_in_place.push_back(shape == box.entry->local && buffers[first]->stream().host_can_access());
    if (is_in_place[i]) {
      outs.emplace_back(buffers[first]->AddressOf(box.entry->slices[first]), shape.bytes());
    } else {
      arrays[i] = Array(shape);
      outs.push_back(arrays[i].bytes());
    }
    if (!outs[i].empty()) reads.push_back({box.entry->name, shape.type, box.box, outs[i]});
  }
  XLAD_RETURN_IF_ERROR(source.Read(reads));
  for (size_t i = 0; i < boxes.size(); ++i) {
    const StateBox& box = boxes[i];
    if (!is_in_place[i] && !(arrays[i].shape() == box.entry->local)) {
      Array padded(box.entry->local);
      tensor::InsertBox(arrays[i], AtOrigin(box.box), &padded);
      arrays[i] = std::move(padded);
      outs[i] = arrays[i].bytes();
    }
    for (size_t k = is_in_place[i] ? 1 : 0; k < box.indices.size(); ++k) {
      const int index = box.indices[k];
      XLAD_RETURN_IF_ERROR(buffers[index]->Write(box.entry->slices[index], outs[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status TaskData::ReadState(absl::Span<DeviceBuffers* const> buffers) {
  const std::vector<StateBox> boxes = StateBoxes();
  for (DeviceBuffers* const device : buffers) XLAD_RETURN_IF_ERROR(device->stream().Synchronize());
  if (!boxes.empty()) {
    const std::string uri = StartUri(launch_);
    absl::StatusOr<std::shared_ptr<storage::TensorSource>> source = store_->OpenTensors(uri, abort_);
    if (!source.ok()) return Annotate(source.status(), storage::StateContext(uri));
    // Read accepts a box of a larger tensor, whose other elements would be ignored.
    for (const Entry& entry : parameters_) {
      if (entry.kind != JobSpec::Parameter::STATE) continue;
      XLAD_RETURN_IF_ERROR((*source)->CheckShape(entry.name, entry.global));
    }
    for (size_t first = 0; first < boxes.size();) {
      size_t end = first;
      int64_t bytes = 0;
      while (end < boxes.size() && (end == first || bytes + boxes[end].entry->local.bytes() <= kMaxStateBytes)) {
        bytes += boxes[end++].entry->local.bytes();
      }
      const absl::Status status = ReadBoxes(**source, absl::MakeConstSpan(boxes).subspan(first, end - first), buffers);
      if (!status.ok()) return Annotate(status, storage::StateContext(uri));
      first = end;
    }
  }
  for (DeviceBuffers* const device : buffers) XLAD_RETURN_IF_ERROR(device->SaveState());
  return absl::OkStatus();
}

absl::Status TaskData::StartData() {
  const JobSpec& spec = launch_.spec();
  BatchPlan plan;
  for (const Entry& entry : parameters_) {
    const bool is_data = entry.kind == JobSpec::Parameter::DATA;
    inputs_.push_back(is_data ? std::ssize(plan.inputs) : -1);
    if (!is_data) continue;
    BatchInput& input = plan.inputs.emplace_back(BatchInput{entry.name, entry.global, entry.local, {}});
    for (const int device : devices_) input.boxes.push_back(entry.BoxOf(device));
  }
  if (plan.inputs.empty() || spec.steps() <= launch_.first_step()) return absl::OkStatus();
  plan.batch_size = spec.batch_size();
  plan.batch_count = spec.batch_count();
  plan.first_step = launch_.first_step();
  plan.end_step = spec.steps();
  plan.devices = std::ssize(devices_);
  const std::string uri = storage::DataUri(spec);
  absl::StatusOr<std::shared_ptr<storage::TensorSource>> source = nullptr;
  if (uri == storage::kStreamUri) {
    plan.batch_count = spec.steps();
    plan.open_batch = [this](int64_t batch) {
      return store_->OpenTensors(absl::StrCat(storage::kStreamUri, batch), &reads_);
    };
  } else {
    source = store_->OpenTensors(uri, &reads_);
  }
  if (!source.ok()) return Annotate(source.status(), "data");
  absl::StatusOr<std::unique_ptr<BatchReader>> reader =
      BatchReader::Start(*std::move(source), std::move(plan), &reads_);
  if (!reader.ok()) return Annotate(reader.status(), absl::StrCat("data ", uri));
  batches_ = *std::move(reader);
  return absl::OkStatus();
}

absl::Status TaskData::WriteInputs(int index, int64_t step, DeviceBuffers* buffers) {
  for (int p = 0; p < std::ssize(parameters_); ++p) {
    const Entry& entry = parameters_[p];
    if (entry.kind == JobSpec::Parameter::STEP) {
      // Little-endian: the low bytes come first, so integers of any width are prefixes of `step`.
      const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(&step), sizeof step);
      XLAD_RETURN_IF_ERROR(buffers->Write(entry.slices[index], bytes.first(entry.local.bytes())));
    }
    if (inputs_[p] < 0) continue;
    const absl::StatusOr<BatchReader::Bytes> bytes = batches_->Get(index, inputs_[p], step);
    if (!bytes.ok()) return bytes.status();
    XLAD_RETURN_IF_ERROR(buffers->Write(entry.slices[index], **bytes));
  }
  return absl::OkStatus();
}

std::vector<SavedBox> TaskData::SavedBoxes() const {
  std::vector<SavedBox> boxes;
  for (const Entry& entry : parameters_) {
    if (entry.kind != JobSpec::Parameter::STATE) continue;
    for (int index = 0; index < std::ssize(devices_); ++index) {
      const int device = devices_[index];
      if (entry.FirstHolder(device) != device || entry.BoxOf(device).elements() == 0) continue;
      boxes.push_back({entry.name, &entry, entry.slices[index], device, index});
    }
  }
  return boxes;
}

absl::StatusOr<std::string> TaskData::FirstNotFinite(int index, const DeviceBuffers& buffers) const {
  for (const Entry& entry : parameters_) {
    if (entry.kind != JobSpec::Parameter::STATE) continue;
    std::vector<std::byte> bytes(entry.local.bytes());
    XLAD_RETURN_IF_ERROR(buffers.Read(entry.slices[index], absl::MakeSpan(bytes)));
    const Array part = WithoutPadding(entry, devices_[index], bytes);
    if (!tensor::FindNotFinite(entry.local.type, part.bytes()).all_finite()) return entry.name;
  }
  return std::string();
}

absl::StatusOr<std::vector<float>> TaskData::ReadScalars(const DeviceBuffers& buffers) const {
  std::vector<float> values(scalars_.size());
  for (size_t i = 0; i < scalars_.size(); ++i) {
    const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(&values[i]), sizeof(float));
    XLAD_RETURN_IF_ERROR(buffers.Read(scalars_[i], bytes));
  }
  return values;
}

}  // namespace xlad::runtime

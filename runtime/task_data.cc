#include "runtime/task_data.h"

#include "absl/strings/str_cat.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::Array;
using tensor::AtOrigin;
using tensor::Box;
using tensor::Shape;

}  // namespace

absl::StatusOr<std::unique_ptr<TaskData>> TaskData::Make(const LaunchTask& launch, const Executable& executable,
                                                         TaskStore* store, collectives::AbortSignal* abort) {
  std::unique_ptr<TaskData> data(new TaskData(launch, store, abort));
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
  return data;
}

absl::Status TaskData::AddParameter(const Executable& executable, int index) {
  const EntryValue& value = executable.parameters(index);
  const JobSpec::Parameter& spec = launch_.spec().parameters(index);
  XLAD_ASSIGN_OR_RETURN(EntryLayout layout, ReadEntryLayout(executable, value));
  Entry& entry = parameters_.emplace_back(Entry{std::move(layout), spec.name(), spec.kind()});
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

absl::StatusOr<Array> TaskData::ReadShard(const std::string& digest, const Entry& entry, int device, int64_t row) {
  Box box = entry.BoxOf(device);
  Array compact(Shape{entry.local.type, box.sizes()});
  Array padded(entry.local);
  const Box target = AtOrigin(box);
  if (row != 0) {
    box.lo[0] += row;
    box.hi[0] += row;
  }
  if (compact.elements() > 0) {
    XLAD_RETURN_IF_ERROR(store_->ReadShard(digest, entry.name, box, compact.bytes(), abort_));
    tensor::InsertBox(compact, target, &padded);
  }
  return padded;
}

absl::Status TaskData::ReadState(int device, DeviceBuffers* buffers) {
  for (const Entry& entry : parameters_) {
    if (entry.kind != JobSpec::Parameter::STATE) continue;
    absl::StatusOr<Array> array = ReadShard(launch_.state_blob(), entry, device, 0);
    if (!array.ok()) return Annotate(array.status(), absl::StrCat("state \"", entry.name, "\" of device ", device));
    XLAD_RETURN_IF_ERROR(buffers->Write(entry.slice, array->bytes()));
  }
  return buffers->SaveState();
}

absl::Status TaskData::ReadData(int device) {
  const JobSpec& spec = launch_.spec();
  for (int p = 0; p < std::ssize(parameters_); ++p) {
    const Entry& entry = parameters_[p];
    if (entry.kind != JobSpec::Parameter::DATA) continue;
    const std::pair<int, std::string> key(p, entry.BoxOf(device).ToString());
    {
      // Devices with the same box share one copy; two that come at the same time may both read it.
      std::lock_guard<std::mutex> lock(mutex_);
      if (batches_.count(key) > 0) continue;
    }
    const int64_t needed = std::min(spec.batch_count(), spec.steps());
    std::vector<Bytes> batches;
    for (int64_t batch = 0; batch < needed; ++batch) {
      absl::StatusOr<Array> array = ReadShard(spec.data_blob(), entry, device, batch * spec.batch_size());
      if (!array.ok()) {
        return Annotate(array.status(),
                        absl::StrCat("data \"", entry.name, "\", batch ", batch, " of device ", device));
      }
      batches.push_back(std::make_shared<std::vector<std::byte>>(array->bytes().begin(), array->bytes().end()));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    batches_.emplace(key, std::move(batches));
  }
  return absl::OkStatus();
}

absl::Status TaskData::WriteInputs(int device, int64_t step, DeviceBuffers* buffers) {
  const int64_t batch_count = launch_.spec().batch_count();
  for (int p = 0; p < std::ssize(parameters_); ++p) {
    const Entry& entry = parameters_[p];
    if (entry.kind == JobSpec::Parameter::STEP) {
      // Little-endian: the low bytes are the first ones, whatever the width of the integer.
      const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(&step), sizeof step);
      XLAD_RETURN_IF_ERROR(buffers->Write(entry.slice, bytes.first(entry.local.bytes())));
    }
    if (entry.kind != JobSpec::Parameter::DATA) continue;
    if (batch_count < 1) {
      return absl::InvalidArgumentError(absl::StrCat("found ", batch_count, " batches for the data parameter \"",
                                                     entry.name, "\", expected 1 or more"));
    }
    Bytes bytes;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      bytes = batches_.at({p, entry.BoxOf(device).ToString()})[step % batch_count];
    }
    XLAD_RETURN_IF_ERROR(buffers->Write(entry.slice, *bytes));
  }
  return absl::OkStatus();
}

absl::Status TaskData::WriteState(int device, int64_t step, const DeviceBuffers& buffers) {
  for (const Entry& entry : parameters_) {
    if (entry.kind != JobSpec::Parameter::STATE) continue;
    const Box& box = entry.BoxOf(device);
    if (entry.FirstHolder(device) != device || box.elements() == 0) continue;
    std::vector<std::byte> shard(entry.local.bytes());
    XLAD_RETURN_IF_ERROR(buffers.Read(entry.slice, absl::MakeSpan(shard)));
    const Array compact = WithoutPadding(entry, device, shard);
    const absl::Status status = store_->WriteStateShard(step, entry.name, box, compact.bytes(), abort_);
    if (!status.ok()) return Annotate(status, absl::StrCat("state \"", entry.name, "\" after step ", step));
  }
  return absl::OkStatus();
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

#include "storage/export.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "storage/object_writer.h"

namespace xlad::storage {
namespace {

using Append = std::function<absl::Status(absl::string_view)>;

// Writes a box of a tensor in parts of at most kReadBytes. Larger boxes are halved along their first dimension with
// more than one index.
absl::Status WriteBox(const TensorSource& source, const std::string& name, tensor::ElementType type,
                      const tensor::Box& box, const Append& append) {
  const int64_t bytes = box.elements() * ByteWidth(type);
  if (bytes > kReadBytes && box.elements() > 1) {
    int64_t d = 0;
    while (box.hi[d] - box.lo[d] == 1) ++d;
    tensor::Box low = box, high = box;
    low.hi[d] = high.lo[d] = box.lo[d] + (box.hi[d] - box.lo[d]) / 2;
    XLAD_RETURN_IF_ERROR(WriteBox(source, name, type, low, append));
    return WriteBox(source, name, type, high, append);
  }
  std::vector<std::byte> out(bytes);
  const BoxRead read{name, type, box, absl::MakeSpan(out)};
  XLAD_RETURN_IF_ERROR(source.Read({&read, 1}));
  tensor::ToStored(type, absl::MakeSpan(out));
  return append({reinterpret_cast<const char*>(out.data()), out.size()});
}

}  // namespace

absl::Status ExportSafetensors(const TensorSource& source, const Append& append) {
  XLAD_RETURN_IF_ERROR(append(source.Header()));
  for (const auto& [name, tensor] : source.tensors()) {
    XLAD_RETURN_IF_ERROR(WriteBox(source, name, tensor.shape.type, FullBox(tensor.shape), append));
  }
  return absl::OkStatus();
}

absl::Status ExportSafetensors(const TensorSource& source, FileSystem& files, const std::string& path) {
  const std::string temporary = path + ".tmp";
  if (files.Exists(temporary)) XLAD_RETURN_IF_ERROR(files.Remove(temporary));
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer, ObjectWriter::Create(files, temporary));
  XLAD_RETURN_IF_ERROR(ExportSafetensors(source, [&](absl::string_view bytes) { return writer->Append(bytes); }));
  XLAD_RETURN_IF_ERROR(writer->Finish().status());
  return writer->Publish(path);
}

}  // namespace xlad::storage

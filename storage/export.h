// Copies of checkpoints for other programs.
#pragma once

#include <functional>
#include <string>

#include "base/file_system.h"
#include "storage/tensor_source.h"

namespace xlad::storage {

// Calls `append` with successive parts of one safetensors file. The file has all tensors of `source` in the order of
// their names, each assembled from its pieces. The memory use does not depend on the size of the tensors.
absl::Status ExportSafetensors(const TensorSource& source,
                               const std::function<absl::Status(absl::string_view)>& append);

// Writes the same file to `path`. If this fails, `path` is unchanged.
absl::Status ExportSafetensors(const TensorSource& source, FileSystem& files, const std::string& path);

}  // namespace xlad::storage

// Copies of checkpoints for other programs.
#pragma once

#include <functional>
#include <string>

#include "base/file_system.h"
#include "storage/tensor_source.h"

namespace xlad::storage {

// Calls `append` with the bytes of one safetensors file that has all tensors of `source`, each assembled from its
// pieces, in the order of their names. The memory use does not depend on the size of the tensors.
absl::Status ExportSafetensors(const TensorSource& source,
                               const std::function<absl::Status(absl::string_view)>& append);

// Writes that file. After a failure there is no incomplete file.
absl::Status ExportSafetensors(const TensorSource& source, FileSystem& files, const std::string& path);

}  // namespace xlad::storage

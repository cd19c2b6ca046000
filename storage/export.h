// Copies of checkpoints for other programs.
#pragma once

#include <string>

#include "base/file_system.h"
#include "storage/tensor_source.h"

namespace xlad::storage {

// Writes all tensors, whole, into one safetensors file, which exists whole or not at all. The memory that this takes
// does not depend on the size of the tensors.
absl::Status ExportSafetensors(const TensorSource& source, FileSystem& files, const std::string& path);

}  // namespace xlad::storage

// Files for tests: those of the source tree, and those in a directory that an environment variable names.
#pragma once

#include <cstdlib>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace xlad::hlo {

// The bytes of a file of the source tree. Ends the test program if the file cannot be read.
inline std::string TestText(const std::string& path) {
  absl::StatusOr<std::string> text = RealFileSystem().Read(path);
  XLAD_CHECK(text.ok()) << text.status() << "; run the test in the root of the source tree";
  return *std::move(text);
}

// Sorted paths under $variable that end in `suffix`; none if the variable is not set.
inline std::vector<std::string> MaterialFiles(const char* variable, const std::string& suffix) {
  std::vector<std::string> files;
  const char* const root = std::getenv(variable);
  if (root == nullptr) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().string().ends_with(suffix)) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The bytes of a file, or "" if it cannot be read. Files named *.zst are decompressed by the zstd program.
inline std::string MaterialBytes(const std::string& path) {
  if (!path.ends_with(".zst")) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    return bytes.str();
  }
  std::string bytes;
  FILE* const pipe = popen(("zstd -qdc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return bytes;
  char buffer[1 << 16];
  while (const size_t n = fread(buffer, 1, sizeof(buffer), pipe)) bytes.append(buffer, n);
  pclose(pipe);
  return bytes;
}

}  // namespace xlad::hlo

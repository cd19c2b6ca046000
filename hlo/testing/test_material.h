// Test material outside the repository: files in a directory that an environment variable names.
#pragma once

#include <cstdlib>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace xlad::hlo {

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

// The bytes of a file. Files named *.zst are decompressed by the zstd program.
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

// The texts of the chip files in deploy/chips, which are built into the library.
#pragma once

#include <string>
#include <vector>

namespace xlad::machine {

struct ChipFile {
  std::string name;  // The name of the file without ".toml": "v5e".
  std::string text;
};

// Sorted by name.
const std::vector<ChipFile>& ChipFiles();

}  // namespace xlad::machine

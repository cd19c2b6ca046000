// Checks of the values of flags. Their errors say what was found and what is expected, as those of CLI11 do not.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace xlad::cli {

CLI::Validator AtLeast(int64_t least);  // A whole number.
CLI::Validator Between(int64_t least, int64_t most);
CLI::Validator OneOf(std::vector<std::string> words);
CLI::Validator PositiveNumber();     // Below a million; not necessarily whole.
CLI::Validator NonNegativeNumber();  // Not necessarily whole.
CLI::Validator InputFile();          // A file that exists.

// For outputs: an error is found before a long computation, not after it. The folder of the file must exist and be
// writable. NamedOutputFile refuses a hyphen, which stands for standard output elsewhere.
CLI::Validator OutputFile();
CLI::Validator NamedOutputFile();

// For transform(): replace sizes, such as 500MB or 2GB, by bytes, and times, such as 500ms, 60s or 5min, by ms.
CLI::Validator ByteSize();
CLI::Validator Duration();

}  // namespace xlad::cli

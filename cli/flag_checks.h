// Checks of the values of flags. Unlike those of CLI11, their errors say what was found and what is expected.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace xlad::cli {

// Returns "found TEXT, expected EXPECTED". An empty text is called "nothing".
std::string Found(const std::string& text, const std::string& expected);

CLI::Validator AtLeast(int64_t least);  // Accepts a whole number of `least` or more.
CLI::Validator Between(int64_t least, int64_t most);
CLI::Validator MillisecondsFrom(int64_t least);  // Accepts a whole number of ms from `least` to 100 years.
CLI::Validator OneOf(std::vector<std::string> words);
CLI::Validator PositiveNumber();     // Accepts a number above 0 and below a million.
CLI::Validator NonNegativeNumber();  // Accepts a number of 0 or more.
// Accepts any text that is not empty. An empty value often comes from an unset shell variable, which must not silently
// disable the flag.
CLI::Validator NotEmpty();
CLI::Validator Address();            // Accepts HOST:PORT, with an IPv6 address in brackets.
CLI::Validator Host();               // Accepts a host without a port.
CLI::Validator HostOrAddress();      // Accepts what Host or Address accepts.
// For transform(). If the host of HOST or HOST:PORT is the name of an interface of this machine, such as eth0, replaces
// it by the interface's address. Refuses an interface without an address.
CLI::Validator InterfaceAddress();
CLI::Validator MeshAxes();           // Accepts AXIS=SIZE,..., such as dp=4,tp=2.
CLI::Validator InputFile();          // Accepts a file that exists.
CLI::Validator Folder();             // Accepts a folder that exists.

// These check output files, so that an error is found before a long computation and not after it. The folder of the
// file must exist and be writable. OutputFile also accepts a hyphen, which means standard output; NamedOutputFile does
// not.
CLI::Validator OutputFile();
CLI::Validator NamedOutputFile();
// Throws CLI::ValidationError if two of the outputs, each with the name of its flag, are the same file. Empty paths and
// devices are ignored.
void CheckOutputsDiffer(const std::vector<std::pair<std::string, std::string>>& paths_of_flags);

// For transform(). ByteSize converts a size, such as 500MB or 2GB, to bytes. Duration converts a time, such as 500ms,
// 60s or 5min, to milliseconds. A time is at most 100 years, so that it can also be counted in nanoseconds.
CLI::Validator ByteSize();
CLI::Validator Duration();

}  // namespace xlad::cli

// The kernel schedules that `xlad tune` has found, in the cache folder: a file for each CPU, in the text form of
// compiler/kernel/schedule_tables.h.
#pragma once

#include <string>

#include "base/status.h"

namespace xlad::cli {

// The path of the file for this machine's CPU, or "" if `cache_folder` is empty.
std::string TunedPath(const std::string& cache_folder);
// The contents of the file, or "" if the file does not exist. If the file cannot be read or parsed, reports a warning
// and returns "".
std::string ReadTuned(const std::string& cache_folder);

}  // namespace xlad::cli

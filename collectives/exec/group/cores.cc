#include "collectives/exec/group/cores.h"

#include <algorithm>
#include <bit>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"

namespace xlad::collectives {

bool EachHasACore(const std::vector<std::vector<uint64_t>>& masks, double quota) {
  const int ranks = static_cast<int>(masks.size());
  if (quota < ranks) return false;
  std::vector<uint64_t> all;
  for (const std::vector<uint64_t>& mask : masks) {
    all.resize(std::max(all.size(), mask.size()));
    for (size_t i = 0; i < mask.size(); ++i) all[i] |= mask[i];
  }
  int cores = 0;
  for (const uint64_t word : all) cores += std::popcount(word);
  return cores >= ranks;
}

int64_t LastLevelCacheBytes() {
  int64_t bytes = 0;
  for (int index = 0; index < 8; ++index) {
    const absl::StatusOr<std::string> text =
        RealFileSystem().Read(absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
    int64_t kib = 0;
    if (text.ok() && absl::SimpleAtoi(absl::StripSuffix(absl::StripSuffix(*text, "\n"), "K"), &kib)) {
      bytes = std::max(bytes, kib << 10);
    }
  }
  return bytes > 0 ? bytes : int64_t{32} << 20;
}

}  // namespace xlad::collectives

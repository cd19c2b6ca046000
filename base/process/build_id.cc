#include "base/process/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace xlad {
namespace {

// A callback of dl_iterate_phdr: stores the build id note of the main program, if it has one, in the string `out`.
int FindBuildId(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    const char* const end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* name = at + sizeof note;
      const char* contents = name + (note.n_namesz + 3) / 4 * 4;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        *static_cast<std::string*>(out) = absl::BytesToHexString({contents, note.n_descsz});
        return 1;
      }
      at = contents + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;  // A value other than 0 ends the iteration: the first entry is the main program.
}

}  // namespace

std::string BuildId(const std::string& program_path) {
  std::string id;
  dl_iterate_phdr(FindBuildId, &id);
  if (!id.empty()) return id;
  std::error_code error;
  const auto size = std::filesystem::file_size(program_path, error);
  const auto time = std::filesystem::last_write_time(program_path, error);
  return absl::StrCat(size, "-", time.time_since_epoch().count());
}

}  // namespace xlad

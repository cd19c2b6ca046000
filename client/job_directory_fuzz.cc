// libFuzzer target that parses arbitrary bytes as the manifest of a job directory. A bad manifest must be an error.
#include <cstddef>
#include <cstdint>

#include "client/job_directory.h"
#include "storage/testing/memory_files.h"

namespace {

void Write(xlad::storage::MemoryFiles* files, const char* name, absl::string_view bytes) {
  XLAD_CHECK(files->WriteAtomically(xlad::JoinPath("/job", name), bytes).ok()) << name;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  xlad::storage::MemoryFiles files;
  (void)files.MakeDirectories("/job");
  Write(&files, "manifest.json", {reinterpret_cast<const char*>(data), size});
  Write(&files, "program.hlo", "HloModule m\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n");
  Write(&files, "state.safetensors", std::string("\x02\0\0\0\0\0\0\0{}", 10));
  for (const char* mesh : {"", "dp=4,tp=2"}) (void)xlad::client::ReadJobDirectory(files, "/job", mesh, -1);
  return 0;
}

// Reads "text PATH" and "proto PATH" lines from standard input. For each line, prints the CPU seconds that this thread
// takes to read the file's bytes into a module and to release the module, or "error: ...". The bytes are in memory
// before the clock starts.
#include <time.h>

#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "hlo/text/text.h"
#include "hlo/wire/proto.h"

namespace {

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The contents of a file, which is read once.
const std::string& BytesOf(const std::string& path) {
  static auto* const files = new std::map<std::string, std::string>();
  std::string& bytes = (*files)[path];
  if (bytes.empty()) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream stream;
    stream << in.rdbuf();
    bytes = stream.str();
  }
  return bytes;
}

}  // namespace

int main() {
  std::string form, path;
  while (std::cin >> form >> path) {
    const std::string& bytes = BytesOf(path);
    const double start = ThreadSeconds();
    auto module = form == "proto" ? xlad::hlo::ParseProto(bytes) : xlad::hlo::ParseText(bytes);
    const absl::Status status = module.status();
    if (module.ok()) module->reset();
    const double seconds = ThreadSeconds() - start;
    if (status.ok()) {
      std::cout << seconds << std::endl;
    } else {
      std::cout << "error: " << status.message() << std::endl;
    }
  }
}

// CompileInChild and the main function of the child.
#include <csignal>
#include <cstring>
#include <iostream>
#include <iterator>

#include "absl/strings/strip.h"
#include "base/clock.h"
#include "compiler/compile.h"

namespace xlad::compiler {
namespace {

// The end of the child's standard error, as one line.
std::string ErrorTail(absl::string_view errors) {
  constexpr size_t kMaxBytes = 500;
  errors = absl::StripAsciiWhitespace(errors);
  if (errors.size() > kMaxBytes) errors.remove_prefix(errors.size() - kMaxBytes);
  std::string line(errors);
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  return line.empty() ? std::string() : absl::StrCat("; its last output: ", line);
}

std::string Ending(const ChildResult& child, const ChildLimits& limits) {
  std::string memory = limits.memory_bytes == 0
                           ? std::string()
                           : absl::StrCat(" (its memory limit is ", limits.memory_bytes >> 20, " MiB)");
  if (child.signal != 0) {
    return absl::StrCat("the compile process was ended by signal ", child.signal, " (", strsignal(child.signal), ")",
                        memory);
  }
  return absl::StrCat("the compile process exited with code ", child.exit_code, memory);
}

}  // namespace

int RunCompileChild() {
  const std::string input((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  CompileRequest request;
  CompileResponse response;
  auto compile = [&]() -> absl::Status {
    if (!request.ParseFromString(input)) {
      return absl::InvalidArgumentError(
          absl::StrCat("compile request: found ", input.size(), " bytes that cannot be parsed as a CompileRequest"));
    }
    XLAD_ASSIGN_OR_RETURN(CompileResult result, CompileWithListings(request, {}, false));
    if (!result.executable.SerializeToString(response.mutable_executable())) {
      return absl::ResourceExhaustedError("the executable is larger than 2 GiB");
    }
    for (const PassTime& time : result.times) {
      CompileResponse::PassTiming* timing = response.add_timings();
      timing->set_name(time.pass);
      timing->set_milliseconds(static_cast<double>(time.ns) / kNsPerMs);
    }
    return absl::OkStatus();
  };
  if (absl::Status status = compile(); !status.ok()) {
    response.Clear();
    response.set_error(std::string(status.message()));
    response.set_error_code(status.raw_code());
  }
  return response.SerializeToOstream(&std::cout) && std::cout.flush() ? 0 : 1;
}

absl::StatusOr<std::string> CompileInChild(const CompileRequest& request, const std::string& program_path,
                                           const ChildLimits& limits) {
  std::string input;
  if (!request.SerializeToString(&input)) return absl::ResourceExhaustedError("the program is larger than 2 GiB");
  auto child = RunChild({program_path, "__compile"}, input, limits);
  if (!child.ok()) return Annotate(child.status(), "compiling");
  if (child->exit_code != 0 || child->signal != 0) {
    return absl::InternalError(absl::StrCat("compiling: ", Ending(*child, limits), ErrorTail(child->errors)));
  }
  CompileResponse response;
  if (!response.ParseFromString(child->output)) {
    return absl::InternalError(absl::StrCat("compiling: the compile process answered ", child->output.size(),
                                            " bytes that cannot be parsed as a CompileResponse",
                                            ErrorTail(child->errors)));
  }
  if (!response.error().empty() || response.error_code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(response.error_code()), response.error());
  }
  return std::move(*response.mutable_executable());
}

}  // namespace xlad::compiler

#include "runtime/devices/cuda/ptx_kernels.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace xlad::runtime::cuda {
namespace {

constexpr absl::string_view kEntry = ".entry ", kThreads = ".reqntid ";

absl::Status Misfit(absl::string_view kernel, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat("PTX of kernel '", kernel, "': expected ", expected));
}

// The number of parameters in a list: 2 in ".param .u64 a, .param .u64 b".
int CountParameters(absl::string_view list) {
  const bool is_empty = absl::StripAsciiWhitespace(list).empty();
  return is_empty ? 0 : 1 + std::count(list.begin(), list.end(), ',');
}

}  // namespace

absl::StatusOr<std::map<std::string, PtxKernel>> ListPtxKernels(absl::string_view ptx) {
  std::map<std::string, PtxKernel> kernels;
  for (size_t at = ptx.find(kEntry); at != absl::string_view::npos; at = ptx.find(kEntry, at)) {
    at += kEntry.size();
    const size_t open = ptx.find('(', at), close = ptx.find(')', at), body = ptx.find('{', at);
    const absl::string_view name = absl::StripAsciiWhitespace(ptx.substr(at, std::min(open, ptx.size()) - at));
    if (open == absl::string_view::npos || body == absl::string_view::npos || !(open < close && close < body)) {
      return Misfit(name.substr(0, 100), "parameters in parentheses and a body");
    }
    PtxKernel kernel;
    kernel.parameters = CountParameters(ptx.substr(open + 1, close - open - 1));
    const absl::string_view directives = ptx.substr(close, body - close);
    const size_t threads = directives.find(kThreads);
    if (threads == absl::string_view::npos) return Misfit(name, ".reqntid, the number of threads of a block");
    absl::string_view number = directives.substr(threads + kThreads.size());
    number = absl::StripAsciiWhitespace(number.substr(0, number.find_first_of(",\n{")));
    if (!absl::SimpleAtoi(number, &kernel.threads) || kernel.threads < 1) {
      return Misfit(name, absl::StrCat("a number of threads, found '", number, "'"));
    }
    kernels[std::string(name)] = kernel;
  }
  return kernels;
}

}  // namespace xlad::runtime::cuda

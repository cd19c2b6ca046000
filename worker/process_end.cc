#include "worker/process_end.h"

#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace xlad::worker {

absl::Status ExitError(const ProcessEnd& end, int64_t memory_limit_bytes) {
  const std::string words = end.last_output.empty() ? "" : absl::StrCat("; its last output: ", end.last_output);
  const std::string who = absl::StrCat("the process of the attempt (pid ", end.pid, ") ");
  if (end.out_of_memory) {
    const std::string limit = memory_limit_bytes == 0 ? std::string("of this machine")
                                                      : absl::StrCat("(limit: ", memory_limit_bytes >> 20, " MiB)");
    return absl::ResourceExhaustedError(absl::StrCat(who, "ran out of memory ", limit, " after using ",
                                                     end.peak_bytes >> 20, " MiB, and ended: ", end.how, words));
  }
  const bool from_outside = end.signal == SIGKILL || end.signal == SIGTERM;
  const auto code = from_outside ? absl::StatusCode::kUnavailable : absl::StatusCode::kInternal;
  return absl::Status(code, absl::StrCat(who, "ended: ", end.how, words));
}

std::optional<int64_t> OomKills(FileSystem& files) {
  const absl::StatusOr<std::string> text = files.Read("/proc/vmstat");
  if (!text.ok()) return std::nullopt;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    int64_t kills = 0;
    if (absl::StartsWith(line, "oom_kill ") && absl::SimpleAtoi(line.substr(9), &kills)) return kills;
  }
  return std::nullopt;
}

bool HasNewOomKills(std::optional<int64_t> before, FileSystem& files) {
  const std::optional<int64_t> now = OomKills(files);
  return before.has_value() && now.has_value() && *now > *before;
}

WorkerMessage ExitMessage(AttemptExited exited, const ProcessEnd& end, const absl::Status& error) {
  exited.set_pid(end.pid);
  exited.set_exit_code(end.exit_code);
  exited.set_signal(end.signal);
  exited.set_out_of_memory(end.out_of_memory);
  exited.set_what(std::string(error.message()));
  WorkerMessage message;
  *message.mutable_exited() = std::move(exited);
  return message;
}

}  // namespace xlad::worker

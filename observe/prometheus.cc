#include "observe/prometheus.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/process/process_state.h"
#include "base/status.h"

namespace xlad::observe {
namespace {

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  double back = 0;
  char shorter[32];
  std::snprintf(shorter, sizeof shorter, "%.15g", value);
  return absl::SimpleAtod(shorter, &back) && back == value ? shorter : text;
}

// The start of this process in seconds since 1970, or 0 if /proc does not have it.
double StartSeconds() {
  const uint64_t ticks = StartOfProcess(getpid());
  const auto machine = RealFileSystem().Read("/proc/stat");
  const size_t boot = machine.ok() ? machine->find("\nbtime ") : std::string::npos;
  double boot_seconds = 0;
  if (ticks == 0 || boot == std::string::npos ||
      !absl::SimpleAtod(machine->substr(boot + 7, machine->find('\n', boot + 7) - boot - 7), &boot_seconds)) {
    return 0;
  }
  return boot_seconds + static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

void MetricsPage::Family(absl::string_view name, absl::string_view type, absl::string_view help) {
  family_ = std::string(name);
  absl::StrAppend(&text_, "# HELP ", name, " ", absl::StrReplaceAll(help, {{"\\", "\\\\"}, {"\n", "\\n"}}), "\n",
                  "# TYPE ", name, " ", type, "\n");
}

void MetricsPage::Sample(double value, const Labels& labels) {
  text_ += family_;
  for (size_t i = 0; i < labels.size(); ++i) {
    const std::string escaped = absl::StrReplaceAll(labels[i].second, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
    absl::StrAppend(&text_, i == 0 ? "{" : ",", labels[i].first, "=\"", escaped, "\"");
  }
  absl::StrAppend(&text_, labels.empty() ? " " : "} ", Number(value), "\n");
}

void MetricsPage::Gauge(absl::string_view name, absl::string_view help, double value) {
  Family(name, "gauge", help);
  Sample(value);
}

void AddProcess(MetricsPage* page) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  page->Family("process_cpu_seconds_total", "counter", "User and system CPU time in seconds.");
  page->Sample(seconds(usage.ru_utime) + seconds(usage.ru_stime));
  int64_t pages = 0;
  const auto statm = RealFileSystem().Read("/proc/self/statm");
  if (statm.ok()) {
    const std::vector<std::string> fields = absl::StrSplit(*statm, ' ');
    if (fields.size() > 1 && absl::SimpleAtoi(fields[1], &pages)) {
      page->Gauge("process_resident_memory_bytes", "Resident memory in bytes.",
                  static_cast<double>(pages * sysconf(_SC_PAGESIZE)));
    }
  }
  std::error_code error;
  int64_t files = 0;
  for (auto at = std::filesystem::directory_iterator("/proc/self/fd", error); at != std::filesystem::end(at);
       at.increment(error)) {
    ++files;
  }
  if (!error) page->Gauge("process_open_fds", "Open file descriptors.", static_cast<double>(files));
  if (const double start = StartSeconds(); start > 0) {
    page->Gauge("process_start_time_seconds", "Start time of the process in seconds since 1970.", start);
  }
}

}  // namespace xlad::observe

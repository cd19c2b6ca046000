#include "base/log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json_text.h"
#include "base/log_file.h"

namespace xlad {
namespace {

bool UsesJson() {
  const char* format = std::getenv("XLAD_LOG_FORMAT");
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  if (format == nullptr) return !is_terminal;
  const absl::string_view name = format;
  if (name == "json" || name == "text") return name == "json";
  std::fprintf(stderr, "xlad: found XLAD_LOG_FORMAT=%s, expected text or json; using %s\n", format,
               is_terminal ? "text" : "json");
  return !is_terminal;
}

spdlog::level::level_enum LevelFromEnvironment() {
  const char* name = std::getenv("XLAD_LOG_LEVEL");
  if (name == nullptr) return spdlog::level::info;
  const spdlog::level::level_enum level = spdlog::level::from_str(name);
  // from_str returns `off` for an unknown name.
  if (level != spdlog::level::off || absl::string_view(name) == "off") return level;
  std::fprintf(stderr, "xlad: found XLAD_LOG_LEVEL=%s, expected debug, info, warn, error or off; using info\n", name);
  return spdlog::level::info;
}

struct Logger {
  Logger() : json(UsesJson()) {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    if (std::getenv("NO_COLOR") != nullptr) sink->set_color_mode(spdlog::color_mode::never);
    log = std::make_shared<spdlog::logger>("xlad", sink);
    SetPattern();
    log->set_level(LevelFromEnvironment());
    log->flush_on(spdlog::level::info);
  }
  void SetPattern() { log->set_pattern(json ? "%v" : "%Y-%m-%d %H:%M:%S.%e %^%L%$ %v"); }

  bool json;
  std::shared_ptr<spdlog::logger> log;
  std::mutex mutex;
  std::vector<std::pair<std::string, std::string>> context;  // Guarded by `mutex`.
};

Logger& TheLogger() {
  static Logger* logger = new Logger();
  return *logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

using Fields = std::vector<std::pair<absl::string_view, absl::string_view>>;

std::string FormatJson(LogLevel level, absl::string_view message, const Fields& fields) {
  static constexpr const char* kNames[] = {"debug", "info", "warn", "error"};
  const std::chrono::duration<double> time = std::chrono::system_clock::now().time_since_epoch();
  std::string line;
  const auto add = [&line](absl::string_view key, absl::string_view value) {
    absl::StrAppend(&line, line.empty() ? "{" : ",", JsonString(key), ":", JsonString(value));
  };
  add("ts", absl::StrFormat("%.3f", time.count()));
  add("level", kNames[static_cast<int>(level)]);
  add("msg", message);
  for (const auto& [key, value] : fields) add(key, value);
  return line + "}";
}

}  // namespace

void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields) {
  Logger& logger = TheLogger();
  const auto spd_level = ToSpdlog(level);
  if (!logger.log->should_log(spd_level)) return;
  std::vector<std::pair<std::string, std::string>> context;
  {
    std::lock_guard<std::mutex> lock(logger.mutex);
    context = logger.context;
  }
  Fields all(fields.begin(), fields.end());
  for (const auto& [key, value] : context) {
    const auto same = [&key = key](const auto& field) { return field.first == key; };
    if (std::none_of(fields.begin(), fields.end(), same)) all.emplace_back(key, value);
  }
  std::string text;
  if (logger.json) {
    text = FormatJson(level, message, all);
  } else {
    text = std::string(message);
    for (const auto& [key, value] : all) absl::StrAppend(&text, " ", key, "=", value);
  }
  logger.log->log(spd_level, "{}", text);
}

void SetLogLevel(LogLevel level) { TheLogger().log->set_level(ToSpdlog(level)); }

void SetLogContext(std::vector<std::pair<std::string, std::string>> fields) {
  Logger& logger = TheLogger();
  std::lock_guard<std::mutex> lock(logger.mutex);
  logger.context = std::move(fields);
}

bool LogsText() { return !TheLogger().json; }

void SetLogsText(bool text) {
  Logger& logger = TheLogger();
  logger.json = !text;
  logger.SetPattern();
}

bool LogToFile(const std::string& path) {
  try {
    Logger& logger = TheLogger();
    logger.log->sinks() = {std::make_shared<spdlog::sinks::rotating_file_sink_mt>(path, kMaxLogBytes, kOldLogs)};
    logger.SetPattern();
    return true;
  } catch (const spdlog::spdlog_ex&) {
    return false;
  }
}

}  // namespace xlad

#include "cli/flag_checks.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/containers.h"
#include "base/net/advertised.h"
#include "base/net/network.h"
#include "client/job_directory.h"

namespace xlad::cli {
namespace {

constexpr int64_t kMaxMs = int64_t{36'500} * 86'400'000;  // 100 years.

// Returns "a, b or c".
std::string Alternatives(const std::vector<std::string>& words) {
  if (words.size() < 2) return absl::StrJoin(words, "");
  return absl::StrCat(absl::StrJoin(words.begin(), words.end() - 1, ", "), " or ", words.back());
}

CLI::Validator Number(const std::string& expected, bool (*is_good)(double)) {
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0;
        return absl::SimpleAtod(text, &value) && is_good(value) ? "" : Found(text, expected);
      },
      "");
}

std::string CheckWritable(const std::string& path) {
  if (path.empty()) return Found(path, "the name of a file");
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return absl::StrCat("cannot write ", path, ": it is a folder");
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  if (access(folder.c_str(), W_OK) == 0 && std::filesystem::is_directory(folder, ignored)) return "";
  return absl::StrCat("cannot write ", path, ": ", folder, " is not a folder that can be written");
}

using Units = std::map<std::string, int64_t>;

// The units "k", "kb", "ki" and "kib" are all 1024 bytes, and likewise for larger units. A number without a unit is in
// bytes.
Units ByteUnits() {
  Units units = {{"", 1}, {"b", 1}};
  int64_t bytes = 1;
  for (const char prefix : {'k', 'm', 'g', 't', 'p', 'e'}) {
    bytes <<= 10;
    for (const char* rest : {"", "b", "i", "ib"}) units[absl::StrCat(std::string(1, prefix), rest)] = bytes;
  }
  return units;
}

// Accepts a whole number that is followed by one of the units, and replaces the text by their product, at most `most`.
CLI::Validator WithUnit(const Units& units, int64_t most, const std::string& name, const std::string& expected) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
        const auto unit = units.find(absl::AsciiStrToLower(absl::StripAsciiWhitespace(text.substr(end))));
        int64_t number = 0, product = 0;
        const bool is_good = unit != units.end() && absl::SimpleAtoi(text.substr(0, end), &number) &&
                             !__builtin_mul_overflow(number, unit->second, &product) && product <= most;
        if (!is_good) return Found(text, expected);
        text = absl::StrCat(product);
        return "";
      },
      name);
}

}  // namespace

std::string Found(const std::string& text, const std::string& expected) {
  return absl::StrCat("found ", text.empty() ? "nothing" : text, ", expected ", expected);
}

CLI::Validator AtLeast(int64_t least) {
  return CLI::Validator(
      [least](const std::string& text) {
        int64_t value = 0;
        const bool is_good = absl::SimpleAtoi(text, &value) && value >= least;
        return is_good ? "" : Found(text, absl::StrCat("a whole number of ", least, " or more"));
      },
      absl::StrCat("of ", least, " or more"));
}

CLI::Validator Between(int64_t least, int64_t most) {
  return CLI::Validator(
      [=](const std::string& text) {
        int64_t value = 0;
        const bool is_good = absl::SimpleAtoi(text, &value) && value >= least && value <= most;
        return is_good ? "" : Found(text, absl::StrCat("a whole number from ", least, " to ", most));
      },
      absl::StrCat("from ", least, " to ", most));
}

CLI::Validator MillisecondsFrom(int64_t least) { return Between(least, kMaxMs); }

CLI::Validator OneOf(std::vector<std::string> words) {
  const std::string name = absl::StrCat("{", absl::StrJoin(words, ","), "}");
  return CLI::Validator(
      [words = std::move(words)](const std::string& text) {
        return Contains(words, text) ? "" : Found(text, Alternatives(words));
      },
      name);
}

CLI::Validator PositiveNumber() {
  return Number("a number above 0 and below 1000000", [](double value) { return value > 0 && value < 1e6; });
}

CLI::Validator NonNegativeNumber() {
  return Number("a number of 0 or more", [](double value) { return value >= 0 && std::isfinite(value); });
}

CLI::Validator Folder() {
  return CLI::Validator(
      [](const std::string& path) -> std::string {
        std::error_code ignored;
        return std::filesystem::is_directory(path, ignored) ? "" : absl::StrCat("there is no folder ", path);
      },
      "");
}

CLI::Validator InputFile() {
  return CLI::Validator(
      [](const std::string& path) -> std::string {
        std::error_code ignored;
        if (std::filesystem::is_directory(path, ignored)) return absl::StrCat(path, " is a folder, expected a file");
        return std::filesystem::exists(path, ignored) ? "" : absl::StrCat("there is no file ", path);
      },
      "");
}

CLI::Validator NotEmpty() {
  return CLI::Validator([](const std::string& text) { return text.empty() ? Found(text, "a value") : ""; }, "");
}

CLI::Validator Address() {
  return CLI::Validator([](const std::string& text) { return std::string(ParseHostPort(text).status().message()); },
                        "");
}

CLI::Validator Host() {
  return CLI::Validator([](const std::string& text) { return std::string(ParseHost(text).status().message()); }, "");
}

CLI::Validator HostOrAddress() {
  return CLI::Validator(
      [](const std::string& text) {
        const bool is_good = ParseHost(text).ok() || ParseHostPort(text).ok();
        return is_good ? "" : Found(text, "HOST or HOST:PORT, such as 0.0.0.0, [::1] or [::1]:7412");
      },
      "");
}

CLI::Validator InterfaceAddress() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const size_t end = std::min(text.find(':'), text.size());  // Names of interfaces contain no colons.
        const std::string host = text.substr(0, end), port = text.substr(end);
        const absl::StatusOr<std::string> address = AddressOfInterface(host);
        if (!address.ok()) return std::string(address.status().message());
        if (*address == host) return "";
        const bool needs_brackets = !port.empty() && address->find(':') != std::string::npos;
        text = needs_brackets ? absl::StrCat("[", *address, "]", port) : absl::StrCat(*address, port);
        return "";
      },
      "");
}

CLI::Validator MeshAxes() {
  return CLI::Validator(
      [](const std::string& text) { return std::string(client::ParseMeshFlag(text).status().message()); }, "");
}

CLI::Validator OutputFile() {
  return CLI::Validator([](const std::string& path) { return path == "-" ? "" : CheckWritable(path); }, "");
}

CLI::Validator NamedOutputFile() {
  return CLI::Validator(
      [](const std::string& path) { return path == "-" ? Found(path, "the name of a file") : CheckWritable(path); },
      "");
}

void CheckOutputsDiffer(const std::vector<std::pair<std::string, std::string>>& paths_of_flags) {
  std::map<std::string, std::string> flag_of;
  for (const auto& [flag, path] : paths_of_flags) {
    std::error_code ignored;
    const bool is_device = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
    if (path.empty() || is_device) continue;
    const std::string file = std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
    const auto [other, is_new] = flag_of.emplace(path == "-" ? path : file, flag);
    if (is_new) continue;
    throw CLI::ValidationError(flag, absl::StrCat("found ", path, ", expected an output other than that of ",
                                                  other->second, ", which would be replaced"));
  }
}

CLI::Validator ByteSize() {
  return WithUnit(ByteUnits(), INT64_MAX, "SIZE", "a number of bytes, or a size such as 500MB or 2GB");
}

CLI::Validator Duration() {
  const Units units = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"min", 60'000}};
  return WithUnit(units, kMaxMs, "TIME", "a time such as 500ms, 60s or 5min");
}

}  // namespace xlad::cli

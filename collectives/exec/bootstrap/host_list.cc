#include "collectives/exec/bootstrap/host_list.h"

#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace xlad::collectives {
namespace {

constexpr size_t kMaxHosts = 1'000'000;

absl::Status Malformed(absl::string_view list, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("found the list \"", list, "\", expected ", expected));
}

bool IsNumber(absl::string_view text) {
  if (text.empty() || text.size() > 9) return false;
  for (const char c : text) {
    if (!absl::ascii_isdigit(c)) return false;
  }
  return true;
}

// Returns the numbers that the contents of a bracket stand for, as text: "1-3,07" is 1, 2, 3, 07. InvalidArgument if
// there are more than `most`.
absl::StatusOr<std::vector<std::string>> ExpandBracket(absl::string_view list, absl::string_view contents,
                                                       size_t most) {
  std::vector<std::string> texts;
  for (const absl::string_view range : absl::StrSplit(contents, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int64_t first = 0, last = 0;
    if (ends.size() > 2 || !IsNumber(ends.front()) || !IsNumber(ends.back()) ||
        !absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) || last < first) {
      return Malformed(list, "ranges of numbers in brackets, such as n[1-4,7]");
    }
    if (static_cast<size_t>(last - first) + texts.size() >= most) {
      return Malformed(list, "at most 1,000,000 hosts");
    }
    for (int64_t n = first; n <= last; ++n) {
      std::string text = absl::StrCat(n);
      if (text.size() < ends.front().size()) text.insert(0, ends.front().size() - text.size(), '0');
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

// Returns the hosts of `pattern` ("n[1-2]-[0-1]"). Expands the last bracket first, so that a bracket with too many
// numbers for the hosts after it is refused before it is expanded.
absl::StatusOr<std::vector<std::string>> ExpandPattern(absl::string_view list, absl::string_view pattern) {
  std::vector<std::string> hosts = {""};  // Those of the end of the pattern, which has been removed.
  while (pattern.find_first_of("[]") != absl::string_view::npos) {
    const size_t open = pattern.rfind('['), close = pattern.rfind(']');
    if (close == absl::string_view::npos || close < open) {
      return Malformed(list, "names with balanced brackets, such as n[1-4,7]");
    }
    const absl::string_view contents = pattern.substr(open + 1, close - open - 1), name = pattern.substr(close + 1);
    XLAD_ASSIGN_OR_RETURN(const auto texts, ExpandBracket(list, contents, kMaxHosts / hosts.size()));
    std::vector<std::string> longer;
    for (const std::string& text : texts) {
      for (const std::string& host : hosts) longer.push_back(absl::StrCat(text, name, host));
    }
    hosts = std::move(longer);
    pattern = pattern.substr(0, open);
  }
  for (std::string& host : hosts) host.insert(0, pattern.data(), pattern.size());
  return hosts;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view list) {
  std::vector<std::string> hosts;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') inside = true;
    if (i < list.size() && list[i] == ']') inside = false;
    if (i < list.size() && (list[i] != ',' || inside)) continue;
    if (i == begin) return Malformed(list, "names that are not empty, separated by commas");
    XLAD_ASSIGN_OR_RETURN(auto more, ExpandPattern(list, list.substr(begin, i - begin)));
    if (hosts.size() + more.size() > kMaxHosts) return Malformed(list, "at most 1,000,000 hosts");
    hosts.insert(hosts.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    begin = i + 1;
  }
  return hosts;
}

absl::StatusOr<std::vector<int>> ExpandCounts(absl::string_view list) {
  std::vector<int> counts;
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    std::pair<absl::string_view, absl::string_view> halves = absl::StrSplit(part, absl::MaxSplits("(x", 1));
    int count = 0, times = 1;
    const bool repeated = absl::ConsumeSuffix(&halves.second, ")");
    if (!IsNumber(halves.first) || !absl::SimpleAtoi(halves.first, &count) ||
        (repeated && (!IsNumber(halves.second) || !absl::SimpleAtoi(halves.second, &times))) ||
        (!repeated && absl::StrContains(part, '('))) {
      return Malformed(list, "numbers with repetitions, such as 4(x2),3");
    }
    if (counts.size() + static_cast<size_t>(times) > kMaxHosts) return Malformed(list, "at most 1,000,000 numbers");
    counts.insert(counts.end(), times, count);
  }
  return counts;
}

}  // namespace xlad::collectives

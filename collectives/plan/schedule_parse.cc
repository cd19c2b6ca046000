// Parses the text of schedules.
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/quoted.h"
#include "collectives/plan/schedule.h"

namespace xlad::collectives {
namespace {

// The words of one line, read in order.
class Words {
 public:
  Words(absl::string_view line, int number) : number_(number) {
    words_ = absl::StrSplit(line, absl::ByAnyChar(" ,"), absl::SkipEmpty());
  }

  bool empty() const { return next_ == std::ssize(words_); }
  absl::string_view Next() { return empty() ? absl::string_view() : words_[next_++]; }

  absl::Status Error(absl::string_view found, absl::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule, line ", number_, ": found ",
                     found.empty() ? "the end of the line" : Quoted(found), ", expected ", expected));
  }

  absl::Status Expect(absl::string_view word) {
    const absl::string_view found = Next();
    return found == word ? absl::OkStatus() : Error(found, absl::StrCat("\"", word, "\""));
  }

  template <typename Int>
  absl::Status Number(absl::string_view prefix, Int* out) {
    const absl::string_view found = Next();
    absl::string_view digits = found;
    if (absl::ConsumePrefix(&digits, prefix) && absl::SimpleAtoi(digits, out) && *out >= 0) return absl::OkStatus();
    return Error(found, absl::StrCat("\"", prefix, "NUMBER\""));
  }

  absl::Status ReadRegion(Region* out) { return ToRegion(Next(), out); }

  // Parses "output[0:4]", or "output@2[0:4]" for the memory of rank 2.
  absl::Status ToRegion(absl::string_view found, Region* out) {
    static constexpr absl::string_view kNames[] = {"input", "output", "scratch"};
    for (int i = 0; i < 3; ++i) {
      absl::string_view rest = found;
      if (!absl::ConsumePrefix(&rest, kNames[i]) || !absl::ConsumeSuffix(&rest, "]")) continue;
      const std::vector<absl::string_view> parts = absl::StrSplit(rest, '[');
      if (parts.size() != 2) break;
      int rank = kOwnRank;
      absl::string_view rank_text = parts[0];
      if (absl::ConsumePrefix(&rank_text, "@")) {
        if (!absl::SimpleAtoi(rank_text, &rank) || rank < 0) break;
      } else if (!rank_text.empty()) {
        break;
      }
      const std::vector<absl::string_view> ends = absl::StrSplit(parts[1], ':');
      int64_t begin = 0, end = 0;
      if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &begin) || !absl::SimpleAtoi(ends[1], &end) || begin < 0 ||
          end < begin) {
        break;
      }
      *out = Region{static_cast<ScheduleBuffer>(i), begin, end - begin, rank};
      return absl::OkStatus();
    }
    return Error(found, "a region such as \"output[0:4]\" or \"output@2[0:4]\"");
  }

  // Reads the destinations, up to "=" if operands follow, otherwise up to the end of the line.
  absl::Status ReadDestinations(bool has_operands, ScheduleOp* op) {
    XLAD_RETURN_IF_ERROR(ReadRegion(&op->dst));
    while (!empty()) {
      const absl::string_view word = Next();
      if (has_operands && word == "=") return absl::OkStatus();
      if (!has_operands && word.find('[') == absl::string_view::npos) return Error(word, "the end of the line");
      XLAD_RETURN_IF_ERROR(ToRegion(word, &op->more_dsts.emplace_back()));
    }
    return has_operands ? Error("", "\"=\"") : absl::OkStatus();
  }

 private:
  std::vector<absl::string_view> words_;
  int64_t next_ = 0;
  int number_;
};

absl::Status ParseSources(Words* words, ScheduleOp* op) {
  while (!words->empty()) {
    const absl::string_view word = words->Next();
    ReduceSource source;
    absl::string_view digits = word;
    if (absl::ConsumePrefix(&digits, "<-")) {
      if (!absl::SimpleAtoi(digits, &source.peer) || source.peer < 0) return words->Error(word, "\"<-RANK\"");
    } else {
      XLAD_RETURN_IF_ERROR(words->ToRegion(word, &source.region));
    }
    op->sources.push_back(source);
  }
  return absl::OkStatus();
}

absl::StatusOr<OpKind> ParseOpKind(Words* words) {
  static constexpr std::pair<absl::string_view, OpKind> kKinds[] = {
      {"send", OpKind::kSend},
      {"recv", OpKind::kRecv},
      {"recv_reduce", OpKind::kRecvReduce},
      {"copy", OpKind::kCopy},
      {"reduce_many", OpKind::kReduceMany},
      {"zero", OpKind::kZero},
      {"reduce_tree", OpKind::kReduceTree},
      {"signal", OpKind::kSignal},
      {"wait", OpKind::kWait},
  };
  const absl::string_view name = words->Next();
  for (const auto& [text, kind] : kKinds) {
    if (text == name) return kind;
  }
  return words->Error(name, "send, recv, recv_reduce, copy, reduce_many, reduce_tree, zero, signal or wait");
}

absl::Status ParseOp(Words* words, ScheduleOp* op) {
  XLAD_ASSIGN_OR_RETURN(op->kind, ParseOpKind(words));
  const bool to_peer = op->kind == OpKind::kSend || op->kind == OpKind::kSignal;
  const bool from_peer = op->kind == OpKind::kRecv || op->kind == OpKind::kRecvReduce || op->kind == OpKind::kWait;
  if (to_peer || from_peer) XLAD_RETURN_IF_ERROR(words->Number(to_peer ? "->" : "<-", &op->peer));
  XLAD_RETURN_IF_ERROR(words->Number("ch", &op->channel));
  if (op->kind == OpKind::kSignal || op->kind == OpKind::kWait) return words->Number("flag", &op->flag);
  if (op->kind == OpKind::kSend) return words->ReadRegion(&op->src);
  const bool has_operands = op->kind != OpKind::kRecv && op->kind != OpKind::kZero;
  XLAD_RETURN_IF_ERROR(words->ReadDestinations(has_operands, op));
  if (HasSources(op->kind)) return ParseSources(words, op);
  return has_operands ? words->ReadRegion(&op->src) : absl::OkStatus();
}

absl::Status ParseHead(Words* words, Schedule* schedule) {
  XLAD_RETURN_IF_ERROR(words->Expect("schedule"));
  XLAD_RETURN_IF_ERROR(words->Expect("rank"));
  XLAD_RETURN_IF_ERROR(words->Number("", &schedule->rank));
  XLAD_RETURN_IF_ERROR(words->Expect("of"));
  XLAD_RETURN_IF_ERROR(words->Number("", &schedule->ranks));
  XLAD_RETURN_IF_ERROR(words->Expect("input"));
  XLAD_RETURN_IF_ERROR(words->Number("", &schedule->input));
  XLAD_RETURN_IF_ERROR(words->Expect("output"));
  XLAD_RETURN_IF_ERROR(words->Number("", &schedule->output));
  XLAD_RETURN_IF_ERROR(words->Expect("scratch"));
  XLAD_RETURN_IF_ERROR(words->Number("", &schedule->scratch));
  if (words->empty()) return absl::OkStatus();
  XLAD_RETURN_IF_ERROR(words->Expect("in"));
  XLAD_RETURN_IF_ERROR(words->Expect("place"));
  schedule->in_place = true;
  return absl::OkStatus();
}

// Parses the lines of `text`. The first line has the number `number`.
absl::StatusOr<Schedule> ParseLines(absl::Span<const absl::string_view> lines, int number) {
  Schedule schedule;
  bool head = true;
  for (const absl::string_view line : lines) {
    Words words(line, number++);
    if (words.empty()) continue;
    if (head) {
      XLAD_RETURN_IF_ERROR(ParseHead(&words, &schedule));
    } else {
      XLAD_RETURN_IF_ERROR(ParseOp(&words, &schedule.ops.emplace_back()));
    }
    head = false;
    if (!words.empty()) return words.Error(words.Next(), "the end of the line");
  }
  if (head) return absl::InvalidArgumentError("schedule: found no line, expected \"schedule rank ...\"");
  return schedule;
}

}  // namespace

absl::StatusOr<Schedule> ParseSchedule(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  return ParseLines(lines, 1);
}

absl::StatusOr<ScheduleSet> ParseScheduleSet(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  constexpr absl::string_view kHead = "collective ";
  absl::string_view head = lines[0];
  if (!absl::ConsumePrefix(&head, kHead)) {
    return absl::InvalidArgumentError(absl::StrCat("schedules, line 1: found ", Quoted(lines[0]),
                                                   ", expected \"collective\" and a spec such as \"all_reduce(sum) "
                                                   "f32[10] over 4 ranks\""));
  }
  ScheduleSet set;
  XLAD_ASSIGN_OR_RETURN(set.spec, ParseSpec(head));
  const auto starts_schedule = [&](int i) { return absl::StartsWith(lines[i], "schedule "); };
  for (int begin = 1; begin < std::ssize(lines);) {
    int end = begin + 1;
    while (end < std::ssize(lines) && !starts_schedule(end)) ++end;
    const absl::Span<const absl::string_view> span = absl::MakeSpan(lines).subspan(begin, end - begin);
    if (end < std::ssize(lines) || starts_schedule(begin)) {
      XLAD_ASSIGN_OR_RETURN(set.schedules.emplace_back(), ParseLines(span, begin + 1));
    }
    begin = end;
  }
  if (std::ssize(set.schedules) != set.spec.ranks) {
    return absl::InvalidArgumentError(absl::StrCat("schedules: found ", set.schedules.size(), ", expected ",
                                                   set.spec.ranks, ", one for each rank of ", set.spec.ToString()));
  }
  return set;
}

}  // namespace xlad::collectives

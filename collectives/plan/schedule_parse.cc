// The parser of the text of schedules.
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
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
                     found.empty() ? "the end of the line" : absl::StrCat("\"", found, "\""), ", expected ", expected));
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

  absl::Status ToRegion(absl::string_view found, Region* out) {
    static constexpr absl::string_view kNames[] = {"input[", "output[", "scratch["};
    for (int i = 0; i < 3; ++i) {
      absl::string_view rest = found;
      if (!absl::ConsumePrefix(&rest, kNames[i]) || !absl::ConsumeSuffix(&rest, "]")) continue;
      const std::vector<absl::string_view> ends = absl::StrSplit(rest, ':');
      int64_t begin = 0, end = 0;
      if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &begin) || !absl::SimpleAtoi(ends[1], &end) || begin < 0 ||
          end < begin) {
        break;
      }
      *out = Region{static_cast<ScheduleBuffer>(i), begin, end - begin};
      return absl::OkStatus();
    }
    return Error(found, "a region such as \"output[0:4]\"");
  }

 private:
  std::vector<absl::string_view> words_;
  int64_t next_ = 0;
  int number_;
};

absl::Status ParseReduceMany(Words* words, ScheduleOp* op) {
  op->kind = OpKind::kReduceMany;
  XLAD_RETURN_IF_ERROR(words->Number("ch", &op->channel));
  XLAD_RETURN_IF_ERROR(words->ReadRegion(&op->dst));
  XLAD_RETURN_IF_ERROR(words->Expect("="));
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

absl::Status ParseOp(Words* words, ScheduleOp* op) {
  const absl::string_view name = words->Next();
  if (name == "reduce_many") return ParseReduceMany(words, op);
  if (name == "zero") {
    op->kind = OpKind::kZero;
    return words->ReadRegion(&op->dst);
  }
  if (name == "copy") {
    op->kind = OpKind::kCopy;
    XLAD_RETURN_IF_ERROR(words->ReadRegion(&op->dst));
    XLAD_RETURN_IF_ERROR(words->Expect("="));
    return words->ReadRegion(&op->src);
  }
  if (name != "send" && name != "recv" && name != "recv_reduce") {
    return words->Error(name, "send, recv, recv_reduce, copy, reduce_many or zero");
  }
  XLAD_RETURN_IF_ERROR(words->Number(name == "send" ? "->" : "<-", &op->peer));
  XLAD_RETURN_IF_ERROR(words->Number("ch", &op->channel));
  if (name == "send") {
    op->kind = OpKind::kSend;
    return words->ReadRegion(&op->src);
  }
  XLAD_RETURN_IF_ERROR(words->ReadRegion(&op->dst));
  op->kind = OpKind::kRecv;
  if (name == "recv") return absl::OkStatus();
  op->kind = OpKind::kRecvReduce;
  XLAD_RETURN_IF_ERROR(words->Expect("="));
  return words->ReadRegion(&op->src);
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

}  // namespace

absl::StatusOr<Schedule> ParseSchedule(absl::string_view text) {
  Schedule schedule;
  int number = 0;
  bool head = true;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    Words words(line, number);
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

}  // namespace xlad::collectives

// Attributes without a meaning in xlad. They are stored as text in a field that xlad adds to the proto. Those in
// kCarriedRows are also stored in XLA's own fields.
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "hlo/enum_names.h"
#include "hlo/text/parse.h"
#include "hlo/wire/parts.h"

namespace xlad::hlo {
namespace {

constexpr absl::string_view kSchedules[] = {"SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"};
constexpr absl::string_view kPaddings[] = {"PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"};
constexpr absl::string_view kConvolutionKinds[] = {"unset", "fprop", "dgrad", "wgrad"};
constexpr absl::string_view kAccuracyModes[] = {"default", "highest"};

// An attribute and two functions: `write` sets XLA's field from the text of the attribute, and `read` returns the text
// of the field, which is empty if the field is not set.
struct CarriedRow {
  absl::string_view name;
  void (*write)(absl::string_view value, pb::Instruction* out);
  std::string (*read)(const pb::Instruction& in);
};

template <auto Set>
void WriteNumber(absl::string_view value, pb::Instruction* out) {
  int64_t number = 0;
  if (absl::SimpleAtoi(value, &number)) (out->*Set)(number);
}
template <auto Get>
std::string ReadNumber(const pb::Instruction& in) { return (in.*Get)() == 0 ? "" : absl::StrCat((in.*Get)()); }
template <auto Set, const auto& Table>
void WriteWord(absl::string_view value, pb::Instruction* out) {
  const std::optional<int64_t> number = IndexOf(Table, value);
  if (number.has_value()) (out->*Set)(*number);
}
template <auto Get, const auto& Table>
std::string ReadWord(const pb::Instruction& in) {
  return (in.*Get)() == 0 ? "" : std::string(WordOf(Table, (in.*Get)()));
}
void WriteComposite(absl::string_view value, pb::Instruction* out) { out->set_is_composite(value == "true"); }
std::string ReadComposite(const pb::Instruction& in) { return in.is_composite() ? "true" : ""; }

// Parses {mode=highest} or {tolerance={atol=1, rtol=0.5, ulps=3}}.
void WriteAccuracy(absl::string_view value, pb::Instruction* out) {
  Lexer lexer(value);
  if (!lexer.Accept('{')) return;
  pb::ResultAccuracy& accuracy = *out->mutable_result_accuracy();
  if (lexer.AcceptWord("mode") && lexer.Accept('=')) {
    const std::optional<int64_t> mode = IndexOf(kAccuracyModes, lexer.Word());
    if (mode.has_value()) accuracy.set_mode(*mode);
    return;
  }
  if (!lexer.AcceptWord("tolerance") || !lexer.Accept('=') || !lexer.Accept('{')) return;
  while (!lexer.AtEnd() && lexer.Peek() != '}') {
    lexer.Accept(',');
    const absl::string_view field = lexer.Word();
    absl::string_view text;
    double number = 0;
    if (!lexer.Accept('=') || !lexer.Raw(&text, /*spaces=*/true) || !absl::SimpleAtod(text, &number)) return;
    if (field == "atol") accuracy.mutable_tolerance()->set_atol(number);
    if (field == "rtol") accuracy.mutable_tolerance()->set_rtol(number);
    // The field is an integer. The text in `other` keeps any other number.
    if (field == "ulps" && std::fabs(number) < 0x1p63) {
      accuracy.mutable_tolerance()->set_ulps(number);
    }
  }
}
std::string ReadAccuracy(const pb::Instruction& in) {
  const pb::ResultAccuracy& accuracy = in.result_accuracy();
  if (accuracy.has_tolerance()) {
    return absl::StrCat("{tolerance={atol=", accuracy.tolerance().atol(), ",rtol=", accuracy.tolerance().rtol(),
                        ",ulps=", accuracy.tolerance().ulps(), "}}");
  }
  return accuracy.mode() == 0 ? "" : absl::StrCat("{mode=", WordOf(kAccuracyModes, accuracy.mode()), "}");
}

constexpr CarriedRow kCarriedRows[] = {
    {"result_accuracy", WriteAccuracy, ReadAccuracy},
    {"is_composite", WriteComposite, ReadComposite},
    {"schedule", WriteWord<&pb::Instruction::set_custom_call_schedule, kSchedules>,
     ReadWord<&pb::Instruction::custom_call_schedule, kSchedules>},
    {"padding_type", WriteWord<&pb::Instruction::set_padding_type, kPaddings>,
     ReadWord<&pb::Instruction::padding_type, kPaddings>},
    {"convolution_kind", WriteWord<&pb::Instruction::set_conv_kind, kConvolutionKinds>,
     ReadWord<&pb::Instruction::conv_kind, kConvolutionKinds>},
    {"delta", WriteNumber<&pb::Instruction::set_delta>, ReadNumber<&pb::Instruction::delta>},
};

}  // namespace

void WriteCarried(absl::string_view other, pb::Instruction* out) {
  if (other.empty()) return;
  out->set_other(std::string(other));
  Lexer lexer(other);
  do {
    absl::string_view name, value;
    if (!lexer.ExpectWord("a name", &name) || !lexer.Expect('=') || !lexer.Raw(&value)) return;
    for (const CarriedRow& row : kCarriedRows) {
      if (row.name == name) row.write(value, out);
    }
  } while (lexer.Accept(','));
}

std::string ReadCarried(const pb::Instruction& in) {
  std::string other;
  for (const CarriedRow& row : kCarriedRows) {
    const std::string value = row.read(in);
    if (!value.empty()) absl::StrAppend(&other, other.empty() ? "" : ", ", row.name, "=", value);
  }
  return other;
}

}  // namespace xlad::hlo

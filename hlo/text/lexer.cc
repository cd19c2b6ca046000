// The lexer of HLO text.
#include "hlo/text/lexer.h"

#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace xlad::hlo {
namespace {

constexpr std::array<bool, 256> kWordLetters = [] {
  std::array<bool, 256> letters{};
  for (int c = 0; c < 256; ++c) {
    letters[c] = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                                      c == '_' || c == '.' || c == '-';
  }
  return letters;
}();

bool IsWordLetter(char c) { return kWordLetters[static_cast<unsigned char>(c)]; }

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// The text at a position, for an error: at most 40 characters of a word, or one other character.
std::string Excerpt(const char* at, const char* end) {
  if (at >= end) return "the end of the text";
  const char* stop = at;
  constexpr size_t kMost = 40;
  while (stop < end && IsWordLetter(*stop) && stop < at + kMost) ++stop;
  if (stop == at) ++stop;
  const absl::string_view text(at, stop - at);
  const bool plain = *at >= ' ' && *at <= '~';
  return absl::StrCat("\"", plain ? std::string(text) : absl::CHexEscape(text), "\"");
}

}  // namespace

void Lexer::SkipSpaceSlow() {
  while (at_ < end_) {
    if (IsSpace(*at_)) {
      ++at_;
      continue;
    }
    if (*at_ != '/' || end_ - at_ < 2) return;
    if (at_[1] == '/') {
      const void* const newline = std::memchr(at_, '\n', end_ - at_);
      at_ = newline == nullptr ? end_ : static_cast<const char*>(newline);
    } else if (at_[1] == '*') {
      const size_t close = rest().find("*/", 2);
      if (close == absl::string_view::npos) {
        const char* const open = at_;
        at_ = end_;
        Fail(open, "found a comment without end, expected */");
        return;
      }
      at_ += close + 2;
    } else {
      return;
    }
  }
}

bool Lexer::Accept(absl::string_view text) {
  SkipSpace();
  if (end_ - at_ < std::ssize(text) || std::memcmp(at_, text.data(), text.size()) != 0) return false;
  at_ += text.size();
  return true;
}

absl::string_view Lexer::Word() {
  SkipSpace();
  const char* const start = at_;
  while (at_ < end_ && IsWordLetter(*at_)) {
    if (*at_ == '-' && at_ + 1 < end_ && at_[1] == '>') break;
    ++at_;
  }
  return Since(start);
}

absl::string_view Lexer::PeekWord() {
  const char* const start = Here();
  const absl::string_view word = Word();
  at_ = start;
  return word;
}

bool Lexer::AcceptWord(absl::string_view word) {
  const char* const start = Here();
  if (Word() == word) return true;
  at_ = start;
  return false;
}

bool Lexer::ExpectWord(absl::string_view what, absl::string_view* word) {
  *word = Word();
  return !word->empty() || FailExpected(what);
}

absl::string_view Lexer::Packed() {
  SkipSpace();
  const char* const start = at_;
  while (at_ < end_ && !IsSpace(*at_) && std::strchr(",{}()", *at_) == nullptr) ++at_;
  return Since(start);
}

bool Lexer::Integer(int64_t* value) {
  SkipSpace();
  const auto [stop, error] = std::from_chars(at_, end_, *value);
  if (error != std::errc() || (stop < end_ && IsWordLetter(*stop))) return FailExpected("an integer of 64 bits");
  at_ = stop;
  return true;
}

bool Lexer::Integer32(int64_t* value) {
  const char* const start = Here();
  return Integer(value) && (std::in_range<int32_t>(*value) || FailAt(start, "an integer of 32 bits"));
}

bool Lexer::Bool(bool* value) {
  const char* const start = Here();
  const absl::string_view word = Word();
  *value = word == "true";
  return *value || word == "false" || FailAt(start, "true or false");
}

bool Lexer::SkipString(char quote) {
  const char* const start = at_ - 1;
  while (at_ < end_) {
    const char c = *at_++;
    if (c == quote) return true;
    if (c == '\\' && at_ < end_) ++at_;
  }
  return Fail(start, "found a string without end, expected its closing quote");
}

bool Lexer::String(std::string* value) {
  if (!AtString()) return FailExpected("a string in quotes");
  const char quote = *at_++;
  const char* const start = at_;
  if (!SkipString(quote)) return false;
  const absl::string_view inside(start, at_ - 1 - start);
  if (inside.find('\\') == absl::string_view::npos) {
    value->assign(inside.data(), inside.size());
    return true;
  }
  std::string error;
  return absl::CUnescape(inside, value, &error) ||
         Fail(start - 1,
              absl::StrCat("found a bad escape in a string: ", error, ", expected an escape sequence of C"));
}

bool Lexer::Raw(absl::string_view* value, bool spaces) {
  SkipSpace();
  const char* const start = at_;
  std::string open;  // The closing brackets that are expected, innermost last.
  while (at_ < end_) {
    const char c = *at_;
    if (open.empty() && (c == ',' || c == ')' || c == '}' || c == ']' || c == '\n' || (spaces && c == ' '))) break;
    ++at_;
    if (c == '"') {
      if (!SkipString(c)) return false;
    } else if (c == '{' || c == '(' || c == '[') {
      open.push_back(c == '{' ? '}' : c == '(' ? ')' : ']');
    } else if (!open.empty() && (c == '}' || c == ')' || c == ']')) {
      if (open.back() != c) return FailAt(at_ - 1, absl::string_view(&open.back(), 1));
      open.pop_back();
    }
  }
  if (!open.empty()) return FailExpected(absl::string_view(&open.back(), 1));
  const char* stop = at_;
  while (stop > start && IsSpace(stop[-1])) --stop;
  *value = absl::string_view(start, stop - start);
  return !value->empty() || FailExpected("a value");
}

bool Lexer::FailAt(const char* at, absl::string_view expected) {
  if (failed()) return false;
  return Fail(at, absl::StrCat("found ", Excerpt(at, end_), ", expected ", expected));
}

bool Lexer::Fail(const char* at, absl::string_view message) {
  if (failed()) return false;
  int line = 0, column = 0;
  Place(at, &line, &column);
  status_ = absl::InvalidArgumentError(absl::StrCat(line, ":", column, ": ", message));
  at_ = end_;
  return false;
}

void Lexer::Place(const char* at, int* line, int* column) {
  if (at < line_start_) {
    line_ = 1;
    line_start_ = placed_ = begin_;
  }
  // Newlines before `placed_` are already counted, so that a long line is scanned only once.
  while (placed_ < at) {
    const void* const newline = std::memchr(placed_, '\n', at - placed_);
    if (newline == nullptr) {
      placed_ = at;
    } else {
      placed_ = line_start_ = static_cast<const char*>(newline) + 1;
      ++line_;
    }
  }
  *line = line_;
  *column = at - line_start_ + 1;
}

bool IsBracedValue(absl::string_view text) {
  if (text.empty() || text.front() != '{') return false;
  Lexer lexer(text);
  absl::string_view value;
  return lexer.Raw(&value) && value.size() == text.size();
}

bool IsWord(absl::string_view text) {
  for (const char c : text) {
    if (!IsWordLetter(c)) return false;
  }
  return !text.empty();
}

}  // namespace xlad::hlo

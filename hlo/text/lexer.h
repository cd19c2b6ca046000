// The lexer of HLO text: a cursor with a function for each kind of token.
//
// There are no token objects, because the meaning of HLO's words depends on the context ("2x2", "0_1x0_1",
// "b01f_01io"). The parser calls the function for the token that it expects. The first error is kept. After an error,
// the position is the end of the text, so every function that requires a token returns false, and so do its callers.
// Only String copies text; the text must outlive the lexer. Rewind allows a second attempt.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xlad::hlo {

class Lexer {  // This class has more than 25 methods, one for each kind of token.
 public:
  explicit Lexer(absl::string_view text)
      : begin_(text.data()), end_(text.data() + text.size()), at_(text.data()),
        line_start_(text.data()), placed_(text.data()) {}

  // The next character after spaces and comments, or '\0' at the end of the text.
  char Peek() {
    SkipSpace();
    return at_ < end_ ? *at_ : '\0';
  }
  // The next character, which may be a space.
  char PeekRaw() const { return at_ < end_ ? *at_ : '\0'; }
  bool AtEnd() {
    SkipSpace();
    return at_ == end_;
  }
  // Here returns the position of the next token. Rewind goes back to an earlier position.
  const char* Here() {
    SkipSpace();
    return at_;
  }
  void Rewind(const char* to) { at_ = to; }
  const char* begin() const { return begin_; }
  absl::string_view rest() const { return absl::string_view(at_, end_ - at_); }
  absl::string_view Since(const char* from) const { return absl::string_view(from, at_ - from); }

  bool Accept(char c) {
    if (Peek() != c || at_ == end_) return false;
    ++at_;
    return true;
  }
  bool Accept(absl::string_view text);
  bool Expect(char c) { return Accept(c) || FailExpected(absl::string_view(&c, 1)); }
  // A word: the characters [A-Za-z0-9_.-]+ up to "->", or "" if there are none.
  absl::string_view Word();
  absl::string_view PeekWord();
  bool AcceptWord(absl::string_view word);
  // A required word. `what` describes it in the error.
  bool ExpectWord(absl::string_view what, absl::string_view* word);
  // The characters up to a space or one of ",{}()", for sizes and labels such as "2x2" and "b01f".
  absl::string_view Packed();
  bool Integer(int64_t* value);
  bool Integer32(int64_t* value);  // An integer that fits 32 bits.
  bool Bool(bool* value);
  // A string in double or single quotes. Escapes are resolved.
  bool String(std::string* value);
  bool AtString() {
    const char c = Peek();
    return c == '"' || c == '\'';
  }
  // The text of one value without surrounding spaces. Outside of brackets and double quotes, it ends before a ',', ')',
  // '}', ']', the end of the line or (if `spaces`) a space.
  bool Raw(absl::string_view* value, bool spaces = false);

  // Stores the error "LINE:COLUMN: found FOUND, expected EXPECTED", where FOUND is the text at `at`. Returns false.
  bool FailExpected(absl::string_view expected) { return FailAt(Here(), expected); }
  bool FailAt(const char* at, absl::string_view expected);
  bool Fail(const char* at, absl::string_view message);
  bool failed() const { return !status_.ok(); }
  const absl::Status& status() const { return status_; }

  // The line and column of a position, counted from 1. Fast if the position is not before that of the previous call.
  void Place(const char* at, int* line, int* column);

  // Limits recursion: every nested construct of the grammar holds one of these and checks that it is within the limit.
  class Depth {
   public:
    explicit Depth(Lexer& lexer) : lexer_(lexer) { ++lexer_.depth_; }
    ~Depth() { --lexer_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    bool Check() {
      return lexer_.depth_ <= kMaxDepth ||
             lexer_.Fail(lexer_.Here(), "found more than 200 levels of nesting, expected fewer");
    }

   private:
    Lexer& lexer_;
  };

 private:
  static constexpr int kMaxDepth = 200;

  void SkipSpace() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n')) ++at_;
    if (at_ < end_ && (*at_ == '/' || *at_ == '\t' || *at_ == '\r')) SkipSpaceSlow();
  }
  void SkipSpaceSlow();
  bool SkipString(char quote);

  const char* begin_;
  const char* end_;
  const char* at_;
  const char* line_start_;  // The beginning of line_, the line of the last call of Place.
  const char* placed_;
  int line_ = 1;
  int depth_ = 0;
  absl::Status status_;
};

// Returns true if `text` is one value for Raw and begins with '{'. It may then be printed without quotes.
bool IsBracedValue(absl::string_view text);
// Returns true if all characters of `text` may be in a word.
bool IsWord(absl::string_view text);

}  // namespace xlad::hlo

// The lexical layer of HLO text: a cursor with the few primitives that all of the grammar is made of.
//
// There are no token objects: HLO's words mean different things in different places ("2x2", "0_1x0_1", "b01f_01io"),
// so whoever knows what comes next asks for it. Failure is latched: the first error wins, every primitive returns
// false from then on, and callers just return false. One pass, no copies; the text must outlive the lexer.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xlad::hlo {

class Lexer {
 public:
  explicit Lexer(absl::string_view text)
      : begin_(text.data()), end_(text.data() + text.size()), at_(text.data()),
        line_start_(text.data()), placed_(text.data()) {}

  // The next character that is not space or comment; '\0' at the end.
  char Peek() {
    SkipSpace();
    return at_ < end_ ? *at_ : '\0';
  }
  // The next character as it is.
  char PeekRaw() const { return at_ < end_ ? *at_ : '\0'; }
  bool AtEnd() {
    SkipSpace();
    return at_ == end_;
  }
  // Where the next token begins, and going back there.
  const char* Here() {
    SkipSpace();
    return at_;
  }
  void Rewind(const char* to) { at_ = to; }
  const char* begin() const { return begin_; }
  absl::string_view rest() const { return {at_, static_cast<size_t>(end_ - at_)}; }
  absl::string_view Since(const char* from) const { return {from, static_cast<size_t>(at_ - from)}; }

  bool Accept(char c) {
    if (Peek() != c || at_ == end_) return false;
    ++at_;
    return true;
  }
  bool Accept(absl::string_view text);
  bool Expect(char c) { return Accept(c) || FailExpected(absl::string_view(&c, 1)); }
  // [A-Za-z0-9_.-]+ (a '-' before '>' ends it), empty where there is none.
  absl::string_view Word();
  absl::string_view PeekWord();
  bool AcceptWord(absl::string_view word);
  // A word that must be there; `what` says in the error what it is for.
  bool ExpectWord(absl::string_view what, absl::string_view* word);
  // Everything up to space or one of ",{}()" : sizes and labels whose letters mean something.
  absl::string_view Packed();
  bool Integer(int64_t* value);
  bool Integer32(int64_t* value);  // One that fits 32 bits.
  bool Bool(bool* value);
  // A string in double or single quotes, escapes resolved.
  bool String(std::string* value);
  bool AtString() {
    const char c = Peek();
    return c == '"' || c == '\'';
  }
  // One value as it stands, brackets and strings balanced, up to a ',' ')' '}' or the line's end (or, where `spaces`,
  // a space) outside of all of them. Without surrounding space.
  bool Raw(absl::string_view* value, bool spaces = false);

  // Latches "LINE:COLUMN: found FOUND, expected EXPECTED" (FOUND: what stands at `at`). Always false.
  bool FailExpected(absl::string_view expected) { return FailAt(Here(), expected); }
  bool FailAt(const char* at, absl::string_view expected);
  bool Fail(const char* at, absl::string_view message);
  bool failed() const { return !status_.ok(); }
  const absl::Status& status() const { return status_; }

  // 1-based. Cheap where the position is not before the last one asked for.
  void Place(const char* at, int* line, int* column);

  // Recursion: every nesting of the grammar takes one and gives up where there are too many.
  class Depth {
   public:
    explicit Depth(Lexer& lexer) : lexer_(lexer) { ++lexer_.depth_; }
    ~Depth() { --lexer_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    bool Check() {
      return lexer_.depth_ <= kMaxDepth || lexer_.Fail(lexer_.Here(), "found nesting too deep, expected at most 200");
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
  const char* line_start_;  // Of line_, the last one that Place has counted up to.
  const char* placed_;
  int line_ = 1;
  int depth_ = 0;
  absl::Status status_;
};

// Whether Raw takes all of `text` as one value that begins with '{': then it may be printed without quotes.
bool IsBracedValue(absl::string_view text);
// Letters of words.
bool IsWord(absl::string_view text);

}  // namespace xlad::hlo

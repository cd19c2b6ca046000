// Finds functions in C++ text well enough to check the house rules. It scans braces and parentheses and is not a
// parser.
//
// Comments, strings, character literals and preprocessor lines are blanked first. The head of a brace is the text
// between the last ';', '{' or '}' and the brace. A brace at namespace or class scope opens a function if its head
// contains a parenthesis outside of template brackets and no '=' before that. Lambdas and local classes are part of the
// function that contains them. A declaration (a head that ends in ';') has parameters and no lines. Functions in the
// definitions of macros are not found. Default arguments that contain a comparison with '<' are misread.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <vector>

namespace xlad::house {

struct Function {
  std::string name;
  std::string class_name;  // The innermost class or struct whose body contains the function, or empty if there is none.
  int class_line = 0;      // The first line of the head of that class.
  int line = 0;            // The first line of the function's head, 1-based.
  int lines = 0;           // The number of lines from the head to the closing brace; 0 for a declaration.
  int parameters = 0;
  // Whether the function is a friend, or is defined by "= default" or "= delete".
  bool is_friend_or_not_written = false;
};

// Returns the functions in the order of the source text.
std::vector<Function> FindFunctions(const std::string& source);

namespace internal {

inline bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Replaces comments, literals and preprocessor lines by blanks. Line breaks are kept.
class Blanker {
 public:
  explicit Blanker(std::string text) : text_(std::move(text)) {}

  std::string Run() {
    while (i_ < text_.size()) Step();
    return std::move(text_);
  }

 private:
  char At(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

  void BlankTo(size_t end) {
    for (; i_ < end && i_ < text_.size(); ++i_) {
      if (text_[i_] != '\n') text_[i_] = ' ';
    }
  }

  size_t FindOrEnd(const std::string& what, size_t from) const {
    const size_t found = text_.find(what, from);
    return found == std::string::npos ? text_.size() : found + what.size();
  }

  void Step() {
    const char c = text_[i_];
    if (c == '/' && At(i_ + 1) == '/') return BlankTo(text_.find('\n', i_));
    if (c == '/' && At(i_ + 1) == '*') return BlankTo(FindOrEnd("*/", i_ + 2));
    if (c == '"' || c == '\'') return BlankQuoted(c);
    if (c == '#' && line_is_empty_) return BlankTo(EndOfDirective());
    line_is_empty_ = c == '\n' || (line_is_empty_ && (c == ' ' || c == '\t'));
    ++i_;
  }

  // Blanks the literal that begins with the quote `c`, or skips the quote if it separates digits of a number.
  void BlankQuoted(char c) {
    const std::string prefix = WordBefore();
    if (c == '"' && (prefix == "R" || prefix == "LR" || prefix == "uR" || prefix == "UR" || prefix == "u8R")) {
      const size_t open = text_.find('(', i_);
      if (open != std::string::npos) {
        return BlankTo(FindOrEnd(")" + text_.substr(i_ + 1, open - i_ - 1) + "\"", open));
      }
    }
    // A quote in a number separates digits. A quote after another word, such as in L'x', begins a literal.
    const bool is_separator = c == '\'' && !prefix.empty() && std::isdigit(static_cast<unsigned char>(prefix[0])) != 0;
    if (c == '"' || !is_separator) return BlankTo(EndOfQuoted(c));
    line_is_empty_ = false;
    ++i_;
  }

  // The word, or the number with its separators, that ends before the current offset. Empty if there is none.
  std::string WordBefore() const {
    size_t start = i_;
    while (start > 0 && (IsWordChar(text_[start - 1]) || text_[start - 1] == '\'')) --start;
    return text_.substr(start, i_ - start);
  }

  size_t EndOfQuoted(char quote) const {
    size_t end = i_ + 1;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n') end += text_[end] == '\\' ? 2 : 1;
    return end + 1;
  }

  size_t EndOfDirective() const {
    size_t end = text_.find('\n', i_);
    while (end != std::string::npos && text_[end - 1] == '\\') end = text_.find('\n', end + 1);
    return end == std::string::npos ? text_.size() : end;
  }

  std::string text_;
  size_t i_ = 0;
  bool line_is_empty_ = true;
};

// The contents of a head (the text before a brace or semicolon).
struct Head {
  bool is_function = false;
  bool is_scope = false;  // Whether it is a namespace or a class, which may contain functions.
  std::string name;       // The name of the function, class or struct.
  int parameters = 0;
  bool is_friend_or_not_written = false;
};

inline bool HasWord(const std::string& text, const std::string& word) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const bool left = at == 0 || !IsWordChar(text[at - 1]);
    const bool right = at + word.size() >= text.size() || !IsWordChar(text[at + word.size()]);
    if (left && right) return true;
  }
  return false;
}

inline bool Opens(char c) { return c == '(' || c == '[' || c == '{' || c == '<'; }
inline bool Closes(char c) { return c == ')' || c == ']' || c == '}' || c == '>'; }

// Returns the offset after the bracket that closes the bracket at `open`.
inline size_t SkipBrackets(const std::string& text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    const bool arrow = text[i] == '>' && i > 0 && text[i - 1] == '-';
    if (Opens(text[i])) ++depth;
    if (!arrow && Closes(text[i]) && --depth == 0) return i + 1;
  }
  return text.size();
}

inline int CountParameters(const std::string& list) {
  if (list.find_first_not_of(" \n\t") == std::string::npos) return 0;
  int count = 1;
  for (size_t i = 0; i < list.size(); ++i) {
    if (Opens(list[i]))
      i = SkipBrackets(list, i) - 1;
    else if (list[i] == ',')
      ++count;
  }
  return count;
}

inline std::string NameBefore(const std::string& head, size_t open) {
  size_t end = head.find_last_not_of(" \n\t", open == 0 ? 0 : open - 1);
  if (end == std::string::npos) return "";
  size_t start = end + 1;
  while (start > 0 && (IsWordChar(head[start - 1]) || head[start - 1] == ':' || head[start - 1] == '~')) --start;
  return head.substr(start, end + 1 - start);
}

// A brace after a constructor's member initializer ("a_" in ": a_{1}") does not open a body.
inline bool EndsInMemberInitializer(const std::string& tail) {
  const size_t colon = tail.find(':');
  if (colon == std::string::npos || tail.compare(colon, 2, "::") == 0) return false;
  const size_t last = tail.find_last_not_of(" \n\t");
  return IsWordChar(tail[last]) || tail[last] == '>';
}

// Returns the head without leading template <...> and attributes.
inline std::string WithoutPrefixes(std::string head) {
  while (true) {
    head = head.substr(std::min(head.size(), head.find_first_not_of(" \n\t")));
    if (head.compare(0, 8, "template") == 0 && head.find('<') != std::string::npos) {
      head = head.substr(SkipBrackets(head, head.find('<')));
    } else if (head.compare(0, 2, "[[") == 0) {
      head = head.substr(SkipBrackets(head, 0));
    } else {
      return head;
    }
  }
}

// Returns the offset of the parenthesis that opens the parameter list: the first one outside template arguments, not
// counting the parentheses in the name operator().
inline size_t FindParameterList(const std::string& head) {
  const auto is_operator = [&](size_t at) { return NameBefore(head, at).find("operator") != std::string::npos; };
  for (size_t i = 0; i < head.size(); ++i) {
    if (head[i] == '<' && !is_operator(i) && (i == 0 || head[i - 1] != '<')) {
      i = SkipBrackets(head, i) - 1;
    } else if (head[i] == '(' && is_operator(i) && head.compare(i, 3, "()(") == 0) {
      return i + 2;
    } else if (head[i] == '(') {
      return i;
    }
  }
  return std::string::npos;
}

// Returns the name in "class Name final : public Base", or an empty text if the head is not that of a class.
inline std::string ClassName(const std::string& head) {
  size_t at = 0;
  for (const char* const keyword : {"class ", "struct ", "union "}) {
    if (head.compare(0, std::string(keyword).size(), keyword) == 0) at = std::string(keyword).size();
  }
  if (at == 0) return "";
  std::string name;
  while (at < head.size() && (IsWordChar(head[at]) || head[at] == ':')) {
    if (head[at] == ':' && (at + 1 >= head.size() || (head[at + 1] != ':' && head[at - 1] != ':'))) break;
    name += head[at++];
  }
  return name;
}

inline Head ReadHead(const std::string& text) {
  const std::string head = WithoutPrefixes(text);
  const size_t open = FindParameterList(head);
  Head result;
  if (open == std::string::npos) {
    const bool scope = HasWord(head, "namespace") || HasWord(head, "class") || HasWord(head, "struct") ||
                       HasWord(head, "union") || HasWord(head, "extern");
    result.is_scope = scope && !HasWord(head, "enum") && head.find('=') == std::string::npos;
    if (result.is_scope) result.name = ClassName(head);
    return result;
  }
  const std::string before = head.substr(0, open);
  const bool is_operator = HasWord(before, "operator");
  if (!is_operator && before.find('=') != std::string::npos) return result;
  const size_t end = SkipBrackets(head, open);
  result.name = is_operator ? "operator" : NameBefore(head, open);
  result.parameters = CountParameters(head.substr(open + 1, end - open - 2));
  const std::string tail = head.substr(end);
  result.is_friend_or_not_written = HasWord(before, "friend") || HasWord(tail, "delete") || HasWord(tail, "default");
  result.is_function = !result.name.empty() && !EndsInMemberInitializer(tail);
  return result;
}

// Uses find(), because the tests are not optimized and std::count would take most of their time.
inline int LineOf(const std::string& text, size_t at) {
  int line = 1;
  for (size_t end = text.find('\n'); end < at; end = text.find('\n', end + 1)) ++line;
  return line;
}

inline size_t ClosingBrace(const std::string& text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return text.size();
}

}  // namespace internal

inline std::vector<Function> FindFunctions(const std::string& source) {
  const std::string text = internal::Blanker(source).Run();
  std::vector<Function> functions;
  struct Scope {
    std::string class_name;  // Empty for a namespace.
    int line;
  };
  std::vector<Scope> scopes = {{"", 0}};
  size_t start = 0;  // The offset of the current head.
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(') i = internal::SkipBrackets(text, i) - 1;
    if (c != '{' && c != '}' && c != ';') continue;
    const internal::Head head = c == '}' ? internal::Head() : internal::ReadHead(text.substr(start, i - start));
    const size_t first = std::min(i, text.find_first_not_of(" \n\t", start));
    size_t end = i;
    if (c == '{' && !head.is_scope) end = internal::ClosingBrace(text, i);
    if (head.is_function) {
      const int line = internal::LineOf(text, first);
      const int lines = c == ';' ? 0 : internal::LineOf(text, std::min(end, text.size() - 1)) - line + 1;
      functions.push_back({head.name, scopes.back().class_name, scopes.back().line, line, lines, head.parameters,
                           head.is_friend_or_not_written});
    }
    if (head.is_scope && c == '{') scopes.push_back({head.name, internal::LineOf(text, first)});
    if (c == '}' && scopes.size() > 1) scopes.pop_back();
    // The braces of a member initializer are part of the head.
    const bool head_continues = c == '{' && !head.is_scope && !head.is_function;
    i = std::min(end, text.size());
    if (!head_continues) start = i + 1;
  }
  return functions;
}

}  // namespace xlad::house

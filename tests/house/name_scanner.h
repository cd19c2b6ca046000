// Finds the names that the namespaces of a source define, by the same method as function_scanner.h.
//
// Enumerators, and names that a macro defines, are not found. If a declaration has several variables, the first one is
// found, and those of the others that are followed by "=". A variable that is initialized in parentheses is read as a
// function, unless it has the name of a constant.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "tests/house/function_scanner.h"

namespace xlad::house {

struct NamespaceName {
  std::string space;        // The named namespaces around the definition: "xlad::hlo".
  bool is_unnamed = false;  // Whether the definition is in an unnamed namespace.
  std::string name;         // The name of a function, type, alias, constant or variable.
  std::string type;         // The parameters of a function as "(type,type)", an alias as "=type", otherwise empty.
  size_t offset = 0;        // The start of the definition in the source.
};

// Returns the names in the order of the source text. Functions that are only declared are found; types that are only
// declared are not.
std::vector<NamespaceName> FindNamespaceNames(const std::string& source);

// Whether one source may contain both definitions: functions with different parameters, or two aliases of one type.
inline bool MayBeInOneSource(const NamespaceName& a, const NamespaceName& b) {
  if ((!a.is_unnamed && !b.is_unnamed) || a.space != b.space || a.name != b.name) return true;
  const auto both_begin_with = [&](char c) { return a.type[0] == c && b.type[0] == c; };
  return (both_begin_with('(') && a.type != b.type) || (both_begin_with('=') && a.type == b.type);
}

namespace internal {

inline bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\t'; }

// Returns the text without the blanks that do not separate words.
inline std::string WithoutBlanks(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsBlank(text[i])) continue;
    const bool begins_word = i > 0 && IsBlank(text[i - 1]) && IsWordChar(text[i]);
    if (begins_word && !result.empty() && IsWordChar(result.back())) result += ' ';
    result += text[i];
  }
  return result;
}

// Returns the part of `text` before the first of `ends` that is outside of all brackets.
inline std::string Until(const std::string& text, const std::string& ends) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (ends.find(text[i]) != std::string::npos) return text.substr(0, i);
    if (Opens(text[i])) i = SkipBrackets(text, i) - 1;
  }
  return text;
}

inline bool BeginsWithWord(const std::string& text, const std::string& word) {
  return text.compare(0, word.size(), word) == 0 && (text.size() == word.size() || !IsWordChar(text[word.size()]));
}

// Returns the type of a parameter: "const Shape&" of "const Shape& shape = {}".
inline std::string ParameterType(const std::string& parameter) {
  const std::string whole = WithoutBlanks(Until(parameter, "="));
  const std::string name = NameBefore(whole, whole.size());
  const std::string type = WithoutBlanks(whole.substr(0, whole.size() - name.size()));
  const bool has_name = !type.empty() && type != "const" && name.find(':') == std::string::npos;
  return has_name ? type : whole;
}

inline std::string ParameterTypes(std::string list) {
  std::string types = "(";
  while (!list.empty()) {
    const std::string parameter = Until(list, ",");
    types += (types == "(" ? "" : ",") + ParameterType(parameter);
    list.erase(0, parameter.size() + 1);
  }
  return types + ")";
}

class NamespaceNameScanner {
 public:
  explicit NamespaceNameScanner(const std::string& source) : text_(Blanker(source).Run()) {}

  std::vector<NamespaceName> Run() {
    for (size_t i = 0; i < text_.size(); ++i) {
      if (text_[i] == '(') {
        i = AfterParentheses(i) - 1;
      } else if (text_[i] == '{') {
        i = EndOfBrace(i);
      } else if (text_[i] == ';') {
        AddStatement(WithoutPrefixes(text_.substr(start_, i - start_)));
        start_ = i + 1;
      } else if (text_[i] == '}') {
        if (!scopes_.empty()) scopes_.pop_back();
        start_ = i + 1;
      }
    }
    return std::move(names_);
  }

 private:
  // Unlike SkipBrackets, does not treat the "<" of a shift or comparison as a bracket.
  size_t AfterParentheses(size_t open) const {
    int depth = 0;
    for (size_t i = open; i < text_.size(); ++i) {
      if (text_[i] == '(') ++depth;
      if (text_[i] == ')' && --depth == 0) return i + 1;
    }
    return text_.size();
  }

  // Handles the brace at `open`, and returns the offset of the last character that is handled with it.
  size_t EndOfBrace(size_t open) {
    const std::string head = WithoutPrefixes(text_.substr(start_, open - start_));
    if (BeginsWithWord(head, "namespace")) {
      scopes_.push_back(NameBefore(head.substr(std::string("namespace").size()), head.size()));
      start_ = open + 1;
      return open;
    }
    const size_t close = ClosingBrace(text_, open);
    const Head read = ReadHead(head);
    if (BeginsWithWord(head, "enum")) {
      Add(NameBefore(Until(head, ":"), head.size()), "");
    } else if (read.is_scope) {
      Add(read.name, "");
    } else if (read.is_function) {
      AddFunction(head);
    } else {
      return close;  // An initializer, which is part of a statement.
    }
    start_ = close + 1;
    return close;
  }

  void AddFunction(const std::string& head) {
    const size_t open = FindParameterList(head);
    const size_t after = SkipBrackets(head, open), symbol = head.find("operator");
    const std::string name = symbol < open ? WithoutBlanks(head.substr(symbol, open - symbol)) : NameBefore(head, open);
    const bool is_constant =
        name.size() > 1 && name[0] == 'k' && std::isupper(static_cast<unsigned char>(name[1])) != 0;
    Add(name, is_constant ? "" : ParameterTypes(head.substr(open + 1, after - open - 2)));
  }

  void AddStatement(const std::string& statement) {
    const size_t equals = statement.find('=');
    if (BeginsWithWord(statement, "using") || BeginsWithWord(statement, "namespace")) {
      if (equals != std::string::npos) Add(NameBefore(statement, equals), WithoutBlanks(statement.substr(equals)));
      return;
    }
    const std::string declared = Until(statement, "={[");
    if (BeginsWithWord(declared, "class") || BeginsWithWord(declared, "struct")) return;
    const size_t open = FindParameterList(declared);
    if (open == std::string::npos) {
      Add(NameBefore(declared, declared.size()), "");
      return AddLaterVariables(statement);
    }
    // A macro or static_assert has no type before its name.
    if (NameBefore(declared, open).size() < WithoutBlanks(declared.substr(0, open)).size()) AddFunction(declared);
  }

  // Adds b and c of "int a = F(1, 2), b = 2, c = 3". A later variable without "=" looks like an argument of a template.
  void AddLaterVariables(const std::string& statement) {
    int depth = 0;
    for (size_t i = 0; i < statement.size(); ++i) {
      const char c = statement[i];
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
      if (c != ',' || depth > 0) continue;
      const size_t end = statement.find_first_of("=,<>", i + 1);
      if (end != std::string::npos && statement[end] == '=' && statement[end + 1] != '=') {
        Add(NameBefore(statement, end), "");
      }
    }
  }

  void Add(const std::string& name, const std::string& type) {
    if (name.empty() || name[0] == ':') return;  // After "<T>", "::" begins the name of a member of a class template.
    const bool is_unnamed = std::find(scopes_.begin(), scopes_.end(), "") != scopes_.end();
    std::string space;
    for (const std::string& each : scopes_) space += (space.empty() || each.empty() ? "" : "::") + each;
    names_.push_back({space, is_unnamed, name, type, text_.find_first_not_of(" \n\t", start_)});
  }

  std::string text_;
  std::vector<std::string> scopes_;  // The namespaces around the current place; empty for an unnamed one.
  std::vector<NamespaceName> names_;
  size_t start_ = 0;  // The offset of the current head or statement.
};

}  // namespace internal

inline std::vector<NamespaceName> FindNamespaceNames(const std::string& source) {
  return internal::NamespaceNameScanner(source).Run();
}

}  // namespace xlad::house

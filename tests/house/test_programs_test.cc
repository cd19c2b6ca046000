// Checks that test programs of 20 lines or more are files in testdata/, not C++ strings.
#include <cstring>

#include "gtest/gtest.h"
#include "tests/house/function_scanner.h"
#include "tests/house/source_tree.h"

namespace xlad::house {
namespace {

constexpr int kMaxLines = 19;

struct StringLiteral {
  int line = 0;  // The first line of the literal, 1-based.
  std::string text;
};

// Finds the string literals of a C++ file. Adjacent literals are joined, as by the compiler.
class StringLiterals {
 public:
  explicit StringLiterals(const std::string& source) : source_(source) {}

  std::vector<StringLiteral> Run() {
    while (i_ < source_.size()) Step();
    return std::move(found_);
  }

 private:
  bool At(const char* what) const { return source_.compare(i_, std::strlen(what), what) == 0; }
  char Now() const { return i_ < source_.size() ? source_[i_] : '\0'; }

  void SkipTo(const char* end) {
    const size_t at = source_.find(end, i_ + 1);
    i_ = at == std::string::npos ? source_.size() : at + std::string(end).size();
  }

  void Step() {
    const bool in_word = i_ > 0 && internal::IsWordChar(source_[i_ - 1]);
    if (At("//")) return SkipTo("\n");
    if (At("/*")) return SkipTo("*/");
    if (At("R\"") && !in_word) return Raw();
    if (Now() == '"') return Quoted();
    if (Now() == '\'' && !in_word) return Character();
    // Text that is neither blank nor a comment ends a series of adjacent literals.
    if (Now() != ' ' && Now() != '\n') continues_ = false;
    ++i_;
  }

  void Character() {
    continues_ = false;
    for (++i_; i_ < source_.size() && Now() != '\''; ++i_) i_ += Now() == '\\' ? 1 : 0;
    ++i_;
  }

  void Raw() {
    const size_t start = i_, open = source_.find('(', i_);
    const std::string close = ")" + source_.substr(i_ + 2, open - i_ - 2) + "\"";
    const size_t end = source_.find(close, open);
    i_ = end == std::string::npos ? source_.size() : end + close.size();
    Add(start, source_.substr(open + 1, end - open - 1));
  }

  void Quoted() {
    const size_t start = i_;
    std::string text;
    for (++i_; i_ < source_.size() && Now() != '"'; ++i_) {
      if (Now() == '\\') ++i_;
      text += Now() == 'n' && source_[i_ - 1] == '\\' ? '\n' : Now();
    }
    ++i_;
    Add(start, text);
  }

  void Add(size_t start, const std::string& text) {
    if (!continues_) {
      found_.push_back({internal::LineOf(source_, start), ""});
    }
    found_.back().text += text;
    continues_ = true;
  }

  const std::string source_;
  size_t i_ = 0;
  bool continues_ = false;
  std::vector<StringLiteral> found_;
};

// Returns the literals that contain a program of more than kMaxLines lines.
std::vector<StringLiteral> LargePrograms(const std::string& source) {
  std::vector<StringLiteral> large;
  for (const StringLiteral& literal : StringLiterals(source).Run()) {
    const std::vector<std::string> lines = Lines(literal.text);
    const auto is_blank = [](const std::string& line) { return line.find_first_not_of(' ') == std::string::npos; };
    const auto count = std::ssize(lines) - std::count_if(lines.begin(), lines.end(), is_blank);
    const bool is_program = literal.text.find("] parameter(") != std::string::npos ||
                            literal.text.find("} parameter(") != std::string::npos ||
                            literal.text.find(") parameter(") != std::string::npos;
    if (count > kMaxLines && is_program) large.push_back(literal);
  }
  return large;
}

// Returns a body of `lines` lines, each of which ends with `end`.
std::string Body(int lines, const std::string& end) {
  std::string text = "  x = f32[] parameter(0)" + end;
  for (int i = 1; i < lines; ++i) text += "  y" + std::to_string(i) + " = f32[] negate(x)" + end;
  return text;
}

TEST(LargeProgramsTest, FindsProgramsInStrings) {
  const std::string raw = "int a;\nconst char* b = R\"x(\n" + Body(kMaxLines + 1, "\n") + ")x\";\n";
  ASSERT_EQ(LargePrograms(raw).size(), 1u);
  EXPECT_EQ(LargePrograms(raw)[0].line, 2);
  EXPECT_TRUE(LargePrograms("R\"(" + Body(kMaxLines, "\n") + ")\"").empty());
  EXPECT_EQ(LargePrograms("f(\"" + Body(kMaxLines + 1, "\\n\"\n  // A comment.\n    \"") + "\", '\"');").size(), 1u);
  EXPECT_TRUE(LargePrograms("f(\"" + Body(kMaxLines + 1, "\\n\", \"") + "\");").empty());
  EXPECT_TRUE(LargePrograms("// R\"(" + Body(kMaxLines + 1, "\n//") + ")\"").empty());
  EXPECT_TRUE(LargePrograms("R\"(" + std::string(40, '\n') + " parameter(0) text)\"").empty());
}

TEST(LargeProgramsTest, AreFiles) {
  for (const SourceFile& file : CppFiles()) {
    if (!EndsWith(file.path, "_test.cc")) continue;
    for (const StringLiteral& program : LargePrograms(file.text)) {
      ADD_FAILURE() << file.path << ":" << program.line << ": found a program of more than " << kMaxLines
                    << " lines in a string, expected a file in testdata/ (TestText of hlo/testing/test_material.h "
                    << "reads it)";
    }
  }
}

}  // namespace
}  // namespace xlad::house

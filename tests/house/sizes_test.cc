// Checks the limits of size: files of at most 600 lines, functions of at most 70 lines and 5 parameters, lines of C++
// of at most 120 columns, and classes of at most 25 methods.
#include <map>
#include <utility>

#include "gtest/gtest.h"
#include "tests/house/function_scanner.h"
#include "tests/house/source_tree.h"

namespace xlad::house {
namespace {

constexpr int kMaxFileLines = 600;
constexpr int kMaxFunctionLines = 70;
constexpr int kMaxParameters = 5;
constexpr size_t kMaxColumns = 120;
constexpr int kMaxMethods = 25;
// The comment of a class with more methods must contain "More than 25 methods" or "more than 25 methods", and say why.
constexpr const char* kMethodsReason = "ore than 25 methods";

struct CountedClass {
  std::string name;
  int line = 0;  // The first line of the head of the class.
  int methods = 0;
  bool has_reason = false;  // Whether its comment says that it has more than kMaxMethods methods.
};

// Returns the comment lines that end before `line` (1-based), without "//", and `line` itself, joined to one line.
std::string CommentOf(const std::vector<std::string>& lines, int line) {
  std::string comment = lines[line - 1];
  for (int i = line - 2; i >= 0; --i) {
    const size_t start = lines[i].find_first_not_of(" ");
    if (start == std::string::npos || lines[i].compare(start, 2, "//") != 0) break;
    comment = lines[i].substr(std::min(lines[i].size(), start + 3)) + " " + comment;
  }
  return comment;
}

// Returns the classes of a file with their numbers of methods, public and private together. Constructors, destructors,
// friends and defaulted or deleted functions do not count.
std::vector<CountedClass> CountMethods(const std::string& source) {
  std::map<int, CountedClass> classes;  // By the line of the class.
  for (const Function& function : FindFunctions(source)) {
    if (function.class_name.empty() || function.is_friend_or_not_written) continue;
    if (function.name == function.class_name || function.name[0] == '~') continue;
    CountedClass& in = classes[function.class_line];
    in = {function.class_name, function.class_line, in.methods + 1};
  }
  const std::vector<std::string> lines = Lines(source);
  std::vector<CountedClass> counted;
  for (auto& [line, in] : classes) {
    in.has_reason = CommentOf(lines, line).find(kMethodsReason) != std::string::npos;
    counted.push_back(in);
  }
  return counted;
}

bool IsTooLarge(const CountedClass& counted) { return counted.methods > kMaxMethods && !counted.has_reason; }
bool HasAFalseReason(const CountedClass& counted) { return counted.methods <= kMaxMethods && counted.has_reason; }

TEST(FunctionScannerTest, FindsFunctionsAndTheirSizes) {
  const std::vector<Function> found = FindFunctions(R"text(
#define MACRO(a) { a }
namespace a::b {
struct S {
  int x = 1;
  S(int a, std::map<int, int> b) : x{a}, y(b) {
    if (a) { x = '}'; }  // } in a comment
  }
  bool operator()(int a) const { return a; }
  friend bool operator==(const S&, const S&) = default;
  std::function<void(int, int)> callback = [](int a, int b) { return a; };
};
template <typename T, int N>
absl::StatusOr<T> Free(const T& a, int (*f)(int, int),
                       int c = 3) {
  return [&](int x, int y, int z) { return "{"; };
}
constexpr int kTable[] = {1, 2, Call(3)};
void Declared(int, int, int, int, int, int);
enum class E { kA, kB };
}  // namespace
)text");
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[0].name, "S");
  EXPECT_EQ(found[0].line, 6);
  EXPECT_EQ(found[0].lines, 3);
  EXPECT_EQ(found[0].parameters, 2);
  EXPECT_EQ(found[1].name, "operator");
  EXPECT_EQ(found[1].parameters, 1);
  EXPECT_EQ(found[1].lines, 1);
  EXPECT_EQ(found[2].parameters, 2);
  EXPECT_EQ(found[3].name, "Free");
  EXPECT_EQ(found[3].lines, 5);
  EXPECT_EQ(found[3].parameters, 3);
  EXPECT_EQ(found[4].name, "Declared");
  EXPECT_EQ(found[4].lines, 0);
  EXPECT_EQ(found[4].parameters, 6);
}

TEST(FunctionScannerTest, LiteralsWithPrefixesAndNumbersWithSeparatorsAreRead) {
  for (const std::string literal :
       {"L'\"'", "u8'\"'", "U'}'", "u'{'", "'\"'", "L\"}\"", "u8R\"(}\")\"", "R\"a(}\")a\"", "1'000'000",
        "0xFF'FF + '}'", "FOR\"}\"", "'\\''", "L'\\'' + '{'"}) {
    const std::vector<Function> found =
        FindFunctions("int F(int a) {\n  return " + literal + ";\n}\nint G(int a, int b) { return 1; }\n// }");
    ASSERT_EQ(found.size(), 2u) << literal;
    EXPECT_EQ(found[0].lines, 3) << literal;
    EXPECT_EQ(found[1].name, "G") << literal;
    EXPECT_EQ(found[1].parameters, 2) << literal;
  }
}

// Returns a class with a constructor, a destructor and `methods` methods. Every third method is defined in the class.
std::string ClassWithMethods(const std::string& comment, int methods) {
  std::string text = "namespace a {\n" + comment + "class Large final : public Base {\n";
  text += " public:\n  Large();\n  ~Large();\n";
  text += "  Large& operator=(const Large&) = delete;\n  friend bool operator==(Large a, Large b) { return true; }\n";
  for (int i = 0; i < methods; ++i) {
    text += "  int F" + std::to_string(i) + "(int a) const" + (i % 3 == 0 ? " { return a; }\n" : ";\n");
  }
  return text + " private:\n  struct Small { int G() { return 1; } };\n  int x_ = 0;\n};\nint Free();\n}\n";
}

// Returns the class of ClassWithMethods.
CountedClass CountedWithMethods(const std::string& comment, int methods) {
  const std::vector<CountedClass> counted = CountMethods(ClassWithMethods(comment, methods));
  const auto found = std::find_if(counted.begin(), counted.end(), [](const auto& c) { return c.name == "Large"; });
  return found == counted.end() ? CountedClass() : *found;
}

TEST(LargeClassesTest, CountsMethodsAndReadsReasons) {
  EXPECT_FALSE(IsTooLarge(CountedWithMethods("", kMaxMethods)));
  EXPECT_FALSE(IsTooLarge(CountedWithMethods("// It has more than\n// 25 methods: one per opcode.\n", 40)));
  const CountedClass large = CountedWithMethods("// Large.\n", kMaxMethods + 1);
  EXPECT_TRUE(IsTooLarge(large));
  EXPECT_EQ(large.line, 3);
  EXPECT_EQ(large.methods, kMaxMethods + 1);
}

TEST(LargeClassesTest, ReasonsMustBeTrue) {
  const std::string reason = "// It has more than 25 methods: one per opcode.\n";
  EXPECT_FALSE(HasAFalseReason(CountedWithMethods(reason, kMaxMethods + 1)));
  EXPECT_FALSE(HasAFalseReason(CountedWithMethods("// Small.\n", 3)));
  EXPECT_TRUE(HasAFalseReason(CountedWithMethods(reason, kMaxMethods)));
}

TEST(SizesTest, Classes) {
  for (const SourceFile& file : CppFiles()) {
    for (const CountedClass& found : CountMethods(file.text)) {
      if (IsTooLarge(found)) {
        ADD_FAILURE() << file.path << ":" << found.line << ": " << found.name << " has " << found.methods
                      << " methods; at most " << kMaxMethods << " are allowed. Split the class, or write in a comment "
                      << "above it or in its first line why it has more than 25 methods.";
      } else if (HasAFalseReason(found)) {
        ADD_FAILURE() << file.path << ":" << found.line << ": " << found.name << " has " << found.methods
                      << " methods; remove the comment that says that it has more than " << kMaxMethods << ".";
      }
    }
  }
}

TEST(SizesTest, Files) {
  for (const SourceFile& file : FilesEndingWith({".cc", ".h", ".def", ".proto", ".py", ".sh", ".c"})) {
    const std::vector<std::string> lines = Lines(file.text);
    EXPECT_LE(lines.size(), static_cast<size_t>(kMaxFileLines)) << file.path;
    if (StartsWith(file.path, "scripts/") || (!EndsWith(file.path, ".cc") && !EndsWith(file.path, ".h"))) continue;
    std::string too_long;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].size() <= kMaxColumns) continue;
      // Columns are counted as characters, because a character outside ASCII has several bytes.
      const size_t columns =
          std::count_if(lines[i].begin(), lines[i].end(), [](char c) { return (c & 0xC0) != 0x80; });
      if (columns > kMaxColumns) too_long += " " + std::to_string(i + 1);
    }
    EXPECT_EQ(too_long, "") << "lines of more than " << kMaxColumns << " columns in " << file.path;
  }
}

TEST(SizesTest, Functions) {
  for (const SourceFile& file : CppFiles()) {
    for (const Function& function : FindFunctions(file.text)) {
      EXPECT_LE(function.lines, kMaxFunctionLines) << file.path << ":" << function.line << " " << function.name;
      EXPECT_LE(function.parameters, kMaxParameters) << file.path << ":" << function.line << " " << function.name;
    }
  }
}

}  // namespace
}  // namespace xlad::house

// Files of at most 600 lines, functions of at most 70, at most 5 parameters, lines of at most 120 columns.
#include "gtest/gtest.h"
#include "tests/house/function_scanner.h"
#include "tests/house/source_tree.h"

namespace xlad::house {
namespace {

constexpr int kMaxFileLines = 600;
constexpr int kMaxFunctionLines = 70;
constexpr int kMaxParameters = 5;
constexpr size_t kMaxColumns = 120;

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

TEST(SizesTest, Files) {
  for (const SourceFile& file : FilesEndingWith({".cc", ".h", ".def", ".proto", ".py", ".sh", ".c"})) {
    const std::vector<std::string> lines = Lines(file.text);
    EXPECT_LE(lines.size(), static_cast<size_t>(kMaxFileLines)) << file.path;
    if (StartsWith(file.path, "scripts/") || (!EndsWith(file.path, ".cc") && !EndsWith(file.path, ".h"))) continue;
    std::string too_long;
    for (size_t i = 0; i < lines.size(); ++i) {
      // Beyond ASCII a byte is not a column.
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

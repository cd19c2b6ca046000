// Checks that the names in the unnamed namespaces of a library or test program differ from each other, and from the
// names in the headers that its sources include. The unity build compiles several sources as one, and a new file
// changes which sources are compiled together.
#include <map>
#include <set>

#include "gtest/gtest.h"
#include "tests/house/name_scanner.h"
#include "tests/house/source_tree.h"

namespace xlad::house {
namespace {

namespace fs = std::filesystem;

// Returns the library or test program of a source: "folder" or "folder (tests)" for the nearest folder that has a
// CMakeLists.txt. Empty for a program of one source and for a library that is not in the unity build. Sources that a
// library excludes from its unity build are checked too.
std::string UnityTarget(const std::string& path) {
  if (!EndsWith(path, ".cc") || EndsWith(path, "_fuzz.cc") || EndsWith(path, "_benchmark.cc")) return "";
  fs::path folder = fs::path(path).parent_path();
  while (!folder.empty() && !fs::exists(folder / "CMakeLists.txt")) folder = folder.parent_path();
  const std::string name = folder.generic_string();
  if (EndsWith(path, "_test.cc")) return name + " (tests)";
  static auto* const is_unity = new std::map<std::string, bool>;
  const auto [found, is_new] = is_unity->try_emplace(name);
  if (is_new) found->second = ReadText(folder / "CMakeLists.txt").find("UNITY_BUILD OFF") == std::string::npos;
  return found->second ? name : "";
}

struct ScannedFile {
  const SourceFile* file;
  std::vector<NamespaceName> names;
  std::vector<std::string> includes;
};
using ScannedFiles = std::map<std::string, ScannedFile>;  // By path.

// Only the names that occur in several files, at least once in an unnamed namespace, are kept.
ScannedFiles Scan(const std::vector<SourceFile>& files) {
  ScannedFiles scanned;
  std::map<std::string, std::set<std::string>> files_of_name;
  std::set<std::string> unnamed;
  for (const SourceFile& file : files) {
    ScannedFile& scan = scanned[file.path];
    scan = {&file, FindNamespaceNames(file.text), IncludesOf(file).quoted};
    for (const NamespaceName& name : scan.names) {
      files_of_name[name.name].insert(file.path);
      if (name.is_unnamed) unnamed.insert(name.name);
    }
  }
  for (auto& [path, scan] : scanned) {
    std::erase_if(scan.names, [&](const NamespaceName& name) {
      return files_of_name[name.name].size() < 2 || !unnamed.contains(name.name);
    });
  }
  return scanned;
}

// Adds the file and all that it includes.
void AddWithIncludes(const ScannedFiles& scanned, const std::string& path, std::set<std::string>* paths) {
  const auto scan = scanned.find(path);
  if (scan == scanned.end() || !paths->insert(path).second) return;
  for (const std::string& include : scan->second.includes) AddWithIncludes(scanned, include, paths);
}

struct PlacedName {
  const SourceFile* file;
  const NamespaceName* name;
};

std::string Place(const PlacedName& placed) {
  return placed.file->path + ":" + std::to_string(internal::LineOf(placed.file->text, placed.name->offset));
}

// Returns a message for each name that occurs twice in a target.
std::vector<std::string> Clashes(const std::vector<SourceFile>& files) {
  const ScannedFiles scanned = Scan(files);
  std::map<std::string, std::set<std::string>> paths_of_target;  // Sources, and the headers that they include.
  for (const SourceFile& file : files) {
    const std::string target = UnityTarget(file.path);
    if (!target.empty()) AddWithIncludes(scanned, file.path, &paths_of_target[target]);
  }
  std::vector<std::string> messages;
  for (const auto& [target, paths] : paths_of_target) {
    std::map<std::string, std::vector<PlacedName>> placed_names;
    for (const std::string& path : paths) {
      const ScannedFile& scan = scanned.at(path);
      for (const NamespaceName& name : scan.names) {
        const PlacedName placed = {scan.file, &name};
        std::vector<PlacedName>& others = placed_names[name.name];
        const auto clash = std::find_if(others.begin(), others.end(), [&](const PlacedName& other) {
          return other.file != placed.file && !MayBeInOneSource(*other.name, name);
        });
        if (clash != others.end()) {
          messages.push_back(Place(placed) + ": found " + name.name + ", which " + Place(*clash) +
                             " has too, expected different names in the unnamed namespaces of " + target +
                             " and in the headers that it includes, because several of its sources are compiled as "
                             "one; rename the less general of the two");
        }
        others.push_back(placed);
      }
    }
  }
  return messages;
}

TEST(UnnamedNamesTest, Differ) {
  for (const std::string& clash : Clashes(CppFiles())) ADD_FAILURE() << clash;
}

// Returns the names of a text as "space name type", with "{}" for unnamed namespaces.
std::vector<std::string> Found(const std::string& text) {
  std::vector<std::string> found;
  for (const NamespaceName& name : FindNamespaceNames(text)) {
    found.push_back(name.space + (name.is_unnamed ? " {} " : " ") + name.name + " " + name.type);
  }
  return found;
}

TEST(NameScannerTest, FindsNamesAndParameterTypes) {
  EXPECT_EQ(
      Found(R"text(
namespace a::b {
int Declared(const std::string&);
namespace {
namespace fs = std::filesystem;
using std::vector;
using Kind = Step::Kind;
enum class Color : int { kRed, kBlue };
struct Row : Base { int x; int F(int a) { return a; } };
class Forward;
constexpr Row kRows[] = {{1}, {Call(2 << 3)}};
const std::map<int, Row>* cache = nullptr;
std::atomic<int> counter{0};
const Shape kVector(ElementType::kF32, {4});
constexpr int64_t kLimit = (int64_t{1} << 20);
const std::map<int, Row> kFirst = F(1, 2), kSecond = {{1, kRows}}, kThird = 1 << 2;
constexpr bool kHas = Has<1, kFirst == 2>;
static_assert(sizeof(Row) == 4);
template <typename T, int N = 2>
absl::StatusOr<T> Free(const std::pair<T, int>& a, absl::Span<const int64_t> sizes = {}, Row (*f)(int, int) = nullptr,
                       int64_t, std::string text = "=,", bool = true) {
  int local = 1;
  return [&](int x) { return x; };
}
bool operator<(const Row& a, const Row& b) { return a.x < b.x; }
template <typename T>
int Box<T>::Get() { return 1; }
TEST(Suite, Name) { EXPECT_TRUE(true); }
}  // namespace
int Defined() { return 0; }
}  // namespace a::b
)text"),
      (std::vector<std::string>{
          "a::b Declared (const std::string&)", "a::b {} fs =std::filesystem", "a::b {} Kind =Step::Kind",
          "a::b {} Color ", "a::b {} Row ", "a::b {} kRows ", "a::b {} cache ", "a::b {} counter ", "a::b {} kVector ",
          "a::b {} kLimit ", "a::b {} kFirst ", "a::b {} kSecond ", "a::b {} kThird ", "a::b {} kHas ",
          "a::b {} Free (const std::pair<T,int>&,absl::Span<const int64_t>,Row(*f)(int,int),int64_t,std::string,"
          "bool)",
          "a::b {} operator< (const Row&,const Row&)", "a::b {} TEST (Suite,Name)", "a::b Defined ()"}));
}

std::string Unnamed(const std::string& text) { return "namespace a {\nnamespace {\n" + text + "\n}\n}\n"; }

// The folders exist, the files do not.
size_t CountClashes(const std::string& path, const std::string& text, const std::string& other_path,
                    const std::string& other) {
  return Clashes({{path, text}, {other_path, other}}).size();
}

TEST(ClashesTest, AreNamesThatOneSourceCannotHaveTwice) {
  const auto count = [](const std::string& one, const std::string& other) {
    return CountClashes("base/one.cc", Unnamed(one), "base/two.cc", Unnamed(other));
  };
  EXPECT_EQ(count("struct Row { int x; };", "constexpr int Row = 1;"), 1u);
  EXPECT_EQ(count("constexpr int kRows[] = {1};", "const Rows kRows(1);"), 1u);
  EXPECT_EQ(count("int F(int a) { return a; }", "void F(int b = 1) {}"), 1u);
  EXPECT_EQ(count("int F(int a) { return a; }", "void F(int64_t a) {}"), 0u);
  EXPECT_EQ(count("using A = int;", "using A = int64_t;"), 1u);
  EXPECT_EQ(count("using A = int;", "using A = int;"), 0u);
  EXPECT_EQ(count("struct Row {};", "struct Column {};"), 0u);
  EXPECT_EQ(count("struct Row {};", "}\nnamespace b {\nnamespace {\nstruct Row {};\n}"), 0u);
  EXPECT_EQ(count("struct Row; struct Row {};", "Row F();"), 0u);
}

TEST(ClashesTest, AreInOneTarget) {
  const std::string row = Unnamed("struct Row {};");
  EXPECT_EQ(CountClashes("hlo/one.cc", row, "hlo/text/two.cc", row), 1u);
  EXPECT_EQ(CountClashes("hlo/one_test.cc", row, "hlo/text/two_test.cc", row), 1u);
  EXPECT_EQ(CountClashes("hlo/one.cc", row, "hlo/two_test.cc", row), 0u);
  EXPECT_EQ(CountClashes("hlo/one.cc", row, "hlo/two_fuzz.cc", row), 0u);
  EXPECT_EQ(CountClashes("hlo/one.cc", row, "sharding/two.cc", row), 0u);
  EXPECT_EQ(CountClashes("sharding/one.cc", row, "sharding/testing/two.cc", row), 0u);
  EXPECT_EQ(CountClashes("collectives/plan/algorithms/one.cc", row, "collectives/plan/algorithms/two.cc", row), 0u)
      << "the library is not in the unity build";
}

TEST(ClashesTest, AreWithHeadersThatATargetIncludes) {
  const std::string row = Unnamed("struct Row {};"), header = "namespace a {\nint Row();\n}\n";
  const SourceFile include{"base/two.cc", "#include \"base/one.h\"\n"}, source{"base/three.cc", row};
  EXPECT_EQ(Clashes({{"base/zero.h", header}, {"base/one.h", "#include \"base/zero.h\"\n"}, include, source}).size(),
            1u);
  EXPECT_EQ(Clashes({{"base/zero.h", header}, include, source}).size(), 0u) << "no source includes the header";
  const std::vector<std::string> found = Clashes({{"base/one.h", header}, include, source});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].substr(0, found[0].find(", expected")), "base/three.cc:3: found Row, which base/one.h:2 has too");
}

}  // namespace
}  // namespace xlad::house

// Drawings contain every computation, say what they omit, and escape special characters.
#include "hlo/graph/graph.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/testing/test_programs.h"
#include "hlo/text/text.h"

namespace xlad::hlo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<Module> ParseProgram(absl::string_view text) {
  auto module = ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return *std::move(module);
}

constexpr absl::string_view kLoop = R"(HloModule loop
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
body { p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1, sharding={devices=[2]<=[2]}
  z = f32[] constant(0)
  r = f32[] reduce(x, z), dimensions={0}, to_apply=add
  y = f32[4] broadcast(r), dimensions={}
  ROOT t = (s32[], f32[4]) tuple(i, y) }
more { p = (s32[], f32[4]) parameter(0) ROOT c = pred[] constant(false) }
ENTRY main { q = (s32[], f32[4]) parameter(0) ROOT w = (s32[], f32[4]) while(q), condition=more, body=body })";

// Every tag that opens must be closed, in the right order.
void ExpectBalanced(absl::string_view html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != absl::string_view::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    ASSERT_NE(end, absl::string_view::npos);
    const absl::string_view tag = html.substr(at + 1, end - at - 1);
    if (tag.front() == '!' || tag.back() == '/') continue;
    const absl::string_view name = tag.substr(0, tag.find(' '));
    if (name.front() != '/') {
      open.emplace_back(name);
    } else {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), std::string(name.substr(1)));
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(Graph, DotHasAClusterForEachComputation) {
  const std::string dot = PrintDot(*ParseProgram(kLoop));
  EXPECT_THAT(dot, AllOf(HasSubstr("label=\"main (entry)\""), HasSubstr("label=\"body\"")));
  EXPECT_THAT(dot, AllOf(HasSubstr("label=\"more\""), HasSubstr("label=\"add\""), HasSubstr("label=\"f32[4]\"")));
  EXPECT_THAT(dot, HasSubstr("{devices=[2]&lt;=[2]}"));
  // The body of the loop is inside the cluster of the entry, and the reducer inside that of the body.
  EXPECT_LT(dot.find("\n  subgraph"), dot.find("\n    subgraph"));
  EXPECT_LT(dot.find("\n    subgraph"), dot.find("\n      subgraph"));
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
}

// Computations that are called below the 40th level are drawn outside of their callers, and have edges as well.
TEST(Graph, DotHasAnEdgeForEachCall) {
  constexpr int kDepth = 100;
  std::string text = "HloModule deep\nc0 { p = f32[] parameter(0) ROOT r = f32[] negate(p) }\n";
  for (int i = 1; i < kDepth; ++i) {
    absl::StrAppend(&text, "c", i, " { p = f32[] parameter(0) ROOT r = f32[] call(p), to_apply=c", i - 1, " }\n");
  }
  absl::StrAppend(&text, "ENTRY main { x = f32[] parameter(0) ROOT y = f32[] call(x), to_apply=c", kDepth - 1, " }");
  const std::string dot = PrintDot(*ParseProgram(text));
  int edges = 0;
  const std::string label = "label=\"calls\"";
  for (size_t at = dot.find(label); at != std::string::npos; at = dot.find(label, at + 1)) ++edges;
  EXPECT_EQ(edges, kDepth);
}

TEST(Graph, HtmlFoldsAndLinks) {
  const std::string html = PrintHtml(*ParseProgram(kLoop));
  ExpectBalanced(html);
  EXPECT_THAT(html, AllOf(HasSubstr("<details id=\"c-main\" open=\"open\">"), HasSubstr("<details id=\"c-body\">"),
                          HasSubstr("href=\"#c-body\""), HasSubstr("href=\"#c-add\"")));
  EXPECT_THAT(html, AllOf(HasSubstr("{devices=[2]&lt;=[2]}"), HasSubstr("(s32[], f32[4])"), Not(HasSubstr("http:")),
                          Not(HasSubstr("https:"))));
}

TEST(Graph, EveryProgramHasBothDrawings) {
  for (const auto& snippets : {InstructionSnippets(), ModuleSnippets()}) {
    for (const absl::string_view text : snippets) {
      SCOPED_TRACE(text);
      const std::unique_ptr<Module> module = ParseProgram(text);
      ExpectBalanced(PrintHtml(*module));
      EXPECT_THAT(PrintDot(*module), HasSubstr("subgraph cluster_0"));
    }
  }
}

TEST(Graph, LargeProgramsAreDrawnInPart) {
  std::string text = "ENTRY main {\n  x0 = f32[2] parameter(0)\n";
  for (int i = 1; i < 3000; ++i) absl::StrAppend(&text, "  x", i, " = f32[2] negate(x", i - 1, ")\n");
  const std::unique_ptr<Module> module = ParseProgram(text + "}");
  const std::string html = PrintHtml(*module), dot = PrintDot(*module);
  EXPECT_THAT(html, AllOf(HasSubstr("2600 of 3000 instructions are not drawn"), HasSubstr("i-x2999"),
                          Not(HasSubstr("i-x2599\""))));
  EXPECT_THAT(dot, HasSubstr("2600 instructions are not drawn"));
  EXPECT_LT(html.size(), 1u << 19);
}

}  // namespace
}  // namespace xlad::hlo

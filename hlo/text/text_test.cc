// HLO text: the printed text parses to the same module, and texts parse to the expected modules.
#include "hlo/text/text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/testing/test_programs.h"
#include "hlo/text/parse.h"

namespace xlad::hlo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Module> Parse(absl::string_view text) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  return module.ok() ? *std::move(module) : nullptr;
}

// Parses, prints, parses and prints again, and expects equal texts and equal roots. Returns the printed text, or "" if
// `text` does not parse.
std::string ExpectStable(absl::string_view text) {
  const std::unique_ptr<Module> module = Parse(text);
  if (module == nullptr) return "";
  const std::string printed = PrintText(*module);
  const std::unique_ptr<Module> again = Parse(printed);
  if (again != nullptr) {
    EXPECT_EQ(PrintText(*again), printed);
    EXPECT_EQ(again->entry()->root()->attributes(), module->entry()->root()->attributes());
    EXPECT_EQ(again->entry()->root()->shape(), module->entry()->root()->shape());
    EXPECT_EQ(again->entry()->root()->metadata(), module->entry()->root()->metadata());
  }
  return printed;
}

TEST(Text, EveryOpcodeAndAttributeReadsBack) {
  for (const absl::string_view snippet : InstructionSnippets()) {
    SCOPED_TRACE(snippet);
    ExpectStable(snippet);
  }
}

TEST(Text, ShardingsPrintAsWritten) {
  for (const absl::string_view sharding : ShardingSnippets()) {
    SCOPED_TRACE(sharding);
    const std::string attribute = absl::StrCat("sharding=", sharding);
    EXPECT_THAT(ExpectStable(absl::StrCat("f32[8] add(f32[8] x, f32[8] y), ", attribute)), HasSubstr(attribute));
  }
}

TEST(Text, AlternativeFormsOfShardings) {
  const auto printed = [](absl::string_view sharding) {
    return ExpectStable(absl::StrCat("f32[8] negate(f32[8] x), sharding=", sharding));
  };
  EXPECT_THAT(printed("{single_device[device_id=3]}"), HasSubstr("sharding={maximal_mesh[device_id=3]}"));
  EXPECT_THAT(printed("{mesh['a'=2], [{}], unreduced=sum{'a'}}"), HasSubstr("[{}], unreduced={'a'}}"));
  EXPECT_THAT(printed("{mesh['a'=2], [{}], unreduced=[max]{'a'}}"), HasSubstr("[{}], unreduced=max{'a'}}"));
}

TEST(Text, ReplicaGroupsPrintAsWritten) {
  for (const absl::string_view groups : ReplicaGroupSnippets()) {
    SCOPED_TRACE(groups);
    const std::string attribute = absl::StrCat("replica_groups=", groups, "\n");
    EXPECT_THAT(ExpectStable(absl::StrCat("f32[8] all-to-all(f32[8] x), ", attribute)), HasSubstr(attribute));
  }
}

TEST(Text, LiteralsPrintAsWritten) {
  for (const absl::string_view literal : LiteralSnippets()) {
    SCOPED_TRACE(literal);
    EXPECT_THAT(ExpectStable(literal), HasSubstr(std::string(literal)));
  }
}

TEST(Text, PrintedModulesReadBackUnchanged) {
  for (const absl::string_view module : ModuleSnippets()) {
    SCOPED_TRACE(module);
    ExpectStable(module);
  }
}

// Instructions with the same metadata text share one object until one of them changes it.
TEST(Text, MetadataIsShared) {
  const std::unique_ptr<Module> module = Parse(R"(ENTRY e {
  a = f32[] parameter(0), metadata={op_name="a}b" source_line=1}
  b = f32[] negate(a), metadata={op_name="x" source_line=1}
  c = f32[] negate(b), metadata={op_name="x" source_line=1}
  d = f32[] negate(c), metadata={op_name="a}c" source_line=1}
  ROOT f = f32[] negate(d), metadata={op_name="a}b" source_line=1}
})");
  ASSERT_NE(module, nullptr);
  std::vector<std::string> names;
  for (const auto& i : module->entry()->instructions()) names.push_back(i->metadata().op_name);
  EXPECT_THAT(names, ElementsAre("a}b", "x", "x", "a}c", "a}b"));
  Instruction* const b = module->entry()->instructions()[1].get();
  Instruction* const c = module->entry()->instructions()[2].get();
  EXPECT_EQ(&b->metadata(), &c->metadata());
  b->mutable_metadata().op_name = "y";
  EXPECT_EQ(b->metadata().source_line, 1);
  EXPECT_EQ(c->metadata().op_name, "x");
}

TEST(Text, HeaderReadsIntoTheModule) {
  const std::unique_ptr<Module> module = Parse(ModuleSnippets()[0]);
  ASSERT_NE(module, nullptr);
  EXPECT_TRUE(module->is_scheduled);
  EXPECT_EQ(module->replica_count, 2);
  EXPECT_EQ(module->num_partitions, 4);
  ASSERT_EQ(module->input_output_alias.size(), 2u);
  EXPECT_TRUE(module->input_output_alias[1].must_alias);
  EXPECT_THAT(module->input_output_alias[1].output_index, ElementsAre(1, 2));
  EXPECT_THAT(module->buffer_donors[1].parameter_index, ElementsAre(0, 1));
  EXPECT_EQ(module->frontend_attributes.at("xla.sdy.meshes"), "{mesh = #sdy.mesh<[\"dp\"=4, \"tp\"=2]>}");
  EXPECT_EQ(module->stack_frames.frames[0].parent_frame_id, 0);
  EXPECT_EQ(module->stack_frames.frames[1].parent_frame_id, 1);
  EXPECT_EQ(module->SourceOf(*module->entry()->root()), "a.py:10 (f.<locals>.g)");
  EXPECT_EQ(module->computations()[0]->execution_thread(), "host");
  EXPECT_EQ(module->entry()->root()->line(), 28);
  EXPECT_EQ(module->entry()->root()->column(), 3);
}

TEST(Text, AttributesReadIntoTheInstruction) {
  const std::unique_ptr<Module> module = Parse(
      "f32[3,6,5] convolution(f32[6,4,5] x, f32[1,4,6] y), window={size=1 pad=-1_2 rhs_reversal=1 lhs_dilate=3}, "
      "dim_labels=b0f_0io->fb0");
  ASSERT_NE(module, nullptr);
  const Attributes& a = module->entry()->root()->attributes();
  ASSERT_TRUE(a.window.has_value());
  EXPECT_EQ((*a.window)[0], (WindowDimension{1, 1, -1, 2, 1, 3, true}));
  EXPECT_EQ(a.convolution->input_feature, 2);
  EXPECT_EQ(a.convolution->kernel_output_feature, 2);
  EXPECT_EQ(a.convolution->output_batch, 1);
  EXPECT_THAT(a.convolution->output_spatial, ElementsAre(2));
}

TEST(Text, CalledComputationsAreInAttributeOrder) {
  const std::unique_ptr<Module> module = Parse(R"(
c { a = s32[] parameter(0) ROOT t = pred[] constant(true) }
b { a = s32[] parameter(0) }
ENTRY e { x = s32[] parameter(0) ROOT w = s32[] while(x), body=b, condition=c })");
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->entry()->root()->called()[0]->name(), "c");
  EXPECT_EQ(module->entry()->root()->called()[1]->name(), "b");
}

TEST(Text, EntryIsLastInTheModuleButAnywhereInTheText) {
  const std::unique_ptr<Module> module = Parse("ENTRY e { ROOT x = f32[] constant(1) }\nf { y = f32[] constant(2) }");
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->entry()->name(), "e");
  EXPECT_EQ(module->computations().back().get(), module->entry());
}

TEST(Text, EqualMeaningsHaveOneSpelling) {
  const std::pair<absl::string_view, absl::string_view> pairs[] = {
      {"pred[2] compare(f32[2] x, f32[2] y), direction=LT, type=FLOAT",
       "pred[2] compare(f32[2] x, f32[2] y), direction=LT"},
      {"pred[2] compare(f32[2] x, f32[2] y), direction=LT, order=TOTAL",
       "pred[2] compare(f32[2] x, f32[2] y), direction=LT, type=TOTALORDER"},
      {"f32[2] dot(f32[2,3] x, f32[3] y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
       "operand_precision={default,default}",
       "f32[2] dot(f32[2,3] x, f32[3] y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
      {"f32[] custom-call(), custom_call_target=\"f\", api_version=API_VERSION_ORIGINAL",
       "f32[] custom-call(), custom_call_target=\"f\""},
      {"f32[] custom-call(), custom_call_target=\"f\", backend_config=\"{\\\"a\\\": 1}\"",
       "f32[] custom-call(), custom_call_target=\"f\", backend_config={\"a\": 1}"},
      {"f32[8] all-to-all(f32[8] x), replica_groups=[4,2]<=[2,4]",
       "f32[8] all-to-all(f32[8] x), replica_groups=[4,2]<=[2,4]T(0,1)"},
      {"f32[2] constant({1.0, 100e-2})", "f32[2] constant({1, 1})"},
  };
  for (const auto& [a, b] : pairs) EXPECT_EQ(ExpectStable(a), ExpectStable(b));
}

TEST(Text, NumbersAreRoundedToTheirType) {
  const auto value = [](absl::string_view text) {
    const std::unique_ptr<Module> module = Parse(text);
    return module->entry()->root()->literal()->array.values<float>()[0];
  };
  EXPECT_EQ(value("f32[] constant(1e-60)"), 0.0f);
  EXPECT_EQ(value("f32[] constant(16777217)"), 16777216.0f);
  EXPECT_TRUE(std::signbit(value("f32[] constant(-0)")));
}

TEST(Text, NamesMayRepeatInOtherComputations) {
  const std::unique_ptr<Module> module = Parse(
      "f { x = f32[] parameter(0) }\nENTRY e { x = f32[] parameter(0) ROOT c = f32[] call(x), to_apply=f }");
  ASSERT_NE(module, nullptr);
  EXPECT_NE(module->entry()->parameter(0)->name(), module->computations()[0]->parameter(0)->name());
  ExpectStable(PrintText(*module));
}

TEST(Text, SingleInstructionGetsParameters) {
  const std::unique_ptr<Module> module = Parse("%r = f32[2] subtract(f32[2] %x, f32[2] %y)");
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->entry()->parameters().size(), 2u);
  EXPECT_EQ(module->entry()->parameter(1)->name(), "y");
  EXPECT_EQ(module->entry()->root()->ToString(), "ROOT %r = f32[2] subtract(%x, %y)");
}

TEST(Text, LongListsHaveElementNumbers) {
  std::string parameters, operands;
  for (int i = 0; i < 7; ++i) absl::StrAppend(&operands, i == 0 ? "" : ", ", "f32[] x", i);
  const std::string printed = ExpectStable(
      absl::StrCat("(f32[], f32[], f32[], f32[], f32[], f32[], f32[]) tuple(", operands, ")"));
  EXPECT_THAT(printed, HasSubstr("%x4, /*index=5*/%x5"));
  EXPECT_THAT(printed, HasSubstr("f32[], /*index=5*/f32[], f32[])"));
}

// The printer omits a window without dimensions. Code that uses windows expects one, so the parser adds it.
TEST(Text, WindowsOfScalarsHaveNoDimensions) {
  for (const absl::string_view window : {"", ", window={}"}) {
    const std::string text = absl::StrCat(
        "HloModule m\nadd { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b) }\n",
        "ENTRY e { x = f32[] parameter(0)\n  ROOT r = f32[] reduce-window(x, x), to_apply=add", window, " }\n");
    EXPECT_THAT(ExpectStable(text), ::testing::Not(HasSubstr("window={")));
    EXPECT_EQ(Parse(text)->entry()->root()->attributes().window, Window());
  }
}

TEST(Text, SuggestsNames) {
  EXPECT_THAT(std::string(ParseText("f32[] addd(f32[] x)").status().message()), HasSubstr("did you mean \"add\"?"));
  EXPECT_THAT(std::string(ParseText("f32[2] broadcast(f32[] x), dimension={}").status().message()),
              HasSubstr("did you mean \"dimensions\"?"));
}

}  // namespace
}  // namespace xlad::hlo

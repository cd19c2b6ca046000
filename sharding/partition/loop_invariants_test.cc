// Tests where and how often loop-invariant values are resharded, and that the results equal the source program's.
#include "sharding/partition/loop_invariants.h"

#include <gtest/gtest.h>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "hlo/eval/evaluate.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "sharding/explain/explain.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

struct Loop {
  const char* rounds = "5";
  const char* size = "8";                // The number of rows of the weight, which are split. A row has 8 elements.
  const char* weight = "u = f32[8,8] copy(w)";  // How the body computes `u`.
  const char* next = "w";                // The weight of the next iteration.
};

// A loop that computes x = sin(x u) for a batch of 64 rows. The batch is split as well.
std::string Recurrence(const Loop& loop) {
  return absl::StrReplaceAll(
      hlo::TestText("sharding/partition/testdata/recurrence.hlo"),
      {{"$rounds", loop.rounds}, {"$n", loop.size}, {"$weight", loop.weight}, {"$next", loop.next}});
}

// Returns one string per collective: "all-gather 5x192" runs 5 times, and each device sends 192 bytes each time. Also
// checks that the partitioned program computes the same values as the source program.
std::vector<std::string> CountedCollectives(const std::string& text) {
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) return {};
  const std::vector<hlo::Literal> inputs = SampleInputs(**module);
  absl::StatusOr<hlo::Literal> whole = hlo::Evaluate(**module, inputs);
  EXPECT_TRUE(whole.ok()) << whole.status();
  absl::StatusOr<PipelineResult> result = RunPipeline(*std::move(module), {});
  EXPECT_TRUE(result.ok()) << result.status();
  if (!whole.ok() || !result.ok()) return {};
  absl::StatusOr<hlo::Literal> joined = EvaluatePartitioned(result->partitioned, inputs);
  EXPECT_TRUE(joined.ok()) << joined.status();
  if (joined.ok()) EXPECT_TRUE(CompareValues(*joined, *whole, 1e-4).ok()) << CompareValues(*joined, *whole, 1e-4);
  std::vector<std::string> collectives;
  const Explanation explanation = *Explain(result->partitioned);
  for (const ExplainedCollective& c : explanation.collectives) {
    EXPECT_FALSE(c.because.empty());
    collectives.push_back(absl::StrCat(c.kind, " ", c.trip_count.value_or(-1), "x", c.bytes));
  }
  return collectives;
}

using Found = std::vector<std::string>;

TEST(LoopInvariants, WeightIsGatheredBeforeTheLoop) {
  EXPECT_EQ(CountedCollectives(Recurrence({})), Found{"all-gather 1x192"});
}

// A token is an element of the tuple, but not an array leaf: the numbers of the following elements and leaves differ.
TEST(LoopInvariants, ALoopThatCarriesATokenIsPartitioned) {
  absl::StatusOr<std::unique_ptr<hlo::Module>> module =
      hlo::ParseText(hlo::TestText("sharding/partition/testdata/recurrence_with_token.hlo"));
  ASSERT_TRUE(module.ok()) << module.status();
  const absl::StatusOr<PipelineResult> result = RunPipeline(*std::move(module), {});
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST(LoopInvariants, ConvertedWeightIsGatheredBeforeTheLoop) {
  Loop loop;
  loop.weight = "h = f16[8,8] convert(w)  s = f16[8,8] transpose(h), dimensions={1,0}  u = f32[8,8] convert(s)";
  const Found found = CountedCollectives(Recurrence(loop));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].substr(0, 13), "all-gather 1x");
}

TEST(LoopInvariants, LoopOfOneIteration) {
  Loop loop;
  loop.rounds = "1";
  EXPECT_EQ(CountedCollectives(Recurrence(loop)), Found{"all-gather 1x192"});
}

TEST(LoopInvariants, ChangedWeightIsGatheredInEveryIteration) {
  Loop loop;
  loop.next = "n";
  EXPECT_EQ(CountedCollectives(Recurrence(loop)), Found{"all-gather 5x192"});
}

TEST(LoopInvariants, SliceByTheCounterIsGatheredInEveryIteration) {
  Loop loop;
  loop.size = "40";
  loop.weight = "s = f32[5,8,8] reshape(w)  v = f32[1,8,8] dynamic-slice(s, i, zero, zero), "
                "dynamic_slice_sizes={1,8,8}  u = f32[8,8] reshape(v)";
  const std::string text = absl::StrReplaceAll(
      Recurrence(loop), {{"f32[40,8]", "f32[5,8,8]"},
                         {R"(parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{)",
                          R"(parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {)"}});
  EXPECT_EQ(CountedCollectives(text), Found{"all-gather 5x192"});
}

// A gathered array would need more than half as much memory as the values that the loop carries.
TEST(LoopInvariants, LargeValuesAreNotHoisted) {
  const std::string text = absl::StrReplaceAll(
      hlo::TestText("sharding/partition/testdata/sorted_slice_in_loop.hlo"), {{"f32[1000]", "f32[1]"}});
  EXPECT_EQ(CountedCollectives(text), Found{"all-gather 3x28"});
}

// A slice that moves nothing has the same local instruction as its operand, but is gathered separately.
TEST(LoopInvariants, SliceThatMovesNothing) {
  const std::string text = hlo::TestText("sharding/partition/testdata/sorted_slice_in_loop.hlo");
  EXPECT_EQ(CountedCollectives(text), (Found{"all-gather 1x28", "all-gather 1x28"}));
}

// In nested loops, the weight is gathered before the outer loop.
TEST(LoopInvariants, HoistedOutOfNestedLoops) {
  const std::string text = hlo::TestText("sharding/partition/testdata/weight_in_nested_loops.hlo");
  EXPECT_EQ(CountedCollectives(text), Found{"all-gather 1x192"});
}

// The values i, x and w of a loop as a tree of tuples. The form "i(xw)" is the tuple (i, (x, w)), and "()" is an empty
// tuple.
class TupleTree {
 public:
  explicit TupleTree(absl::string_view form) : form_(form) {}

  // The shape of the tree.
  std::string Shape() {
    at_ = 0;
    return ShapeOfElements();
  }
  // Instructions that make the tree of the values that are called `prefix`i, `prefix`x and `prefix`w, and its name.
  std::string Make(absl::string_view prefix, std::string* name) {
    at_ = 0;
    text_.clear();
    *name = MakeElements(prefix);
    return text_;
  }
  // Instructions that define i, x and w as the elements of the tree `name`.
  std::string Take(absl::string_view name) {
    at_ = 0;
    text_.clear();
    TakeElements(std::string(name));
    return text_;
  }

 private:
  static absl::string_view LeafShape(char leaf) {
    return leaf == 'i' ? "s32[]" : leaf == 'x' ? "f32[64,8]" : "f32[8,8]";
  }
  // Each of these reads the elements of a tuple, up to its closing parenthesis.
  std::string ShapeOfElements() {
    std::vector<std::string> shapes;
    while (at_ < form_.size() && form_[at_] != ')') {
      const char c = form_[at_++];
      shapes.push_back(c == '(' ? ShapeOfElements() : std::string(LeafShape(c)));
    }
    ++at_;
    return absl::StrCat("(", absl::StrJoin(shapes, ", "), ")");
  }
  std::string MakeElements(absl::string_view prefix) {
    const size_t begin = at_;
    std::vector<std::string> names;
    while (at_ < form_.size() && form_[at_] != ')') {
      const char c = form_[at_++];
      names.push_back(c == '(' ? MakeElements(prefix) : absl::StrCat(prefix, std::string(1, c)));
    }
    ++at_;
    const std::string name = absl::StrCat("made", begin);
    TupleTree inner(form_.substr(begin, at_ - 1 - begin));
    absl::StrAppend(&text_, "  ", name, " = ", inner.Shape(), " tuple(", absl::StrJoin(names, ", "), ")\n");
    return name;
  }
  void TakeElements(const std::string& tuple) {
    for (int index = 0; at_ < form_.size() && form_[at_] != ')'; ++index) {
      const size_t begin = at_;
      const char c = form_[at_++];
      const std::string inner = absl::StrCat("taken", begin);
      const size_t close = c == '(' ? Close(at_) : at_;
      const std::string shape =
          c == '(' ? TupleTree(form_.substr(at_, close - at_)).Shape() : std::string(LeafShape(c));
      absl::StrAppend(&text_, "  ", c == '(' ? inner : std::string(1, c), " = ", shape, " get-tuple-element(", tuple,
                      "), index=", index, "\n");
      if (c == '(') TakeElements(inner);
    }
    ++at_;
  }
  // The position of the parenthesis that closes the tuple whose elements begin at `at`.
  size_t Close(size_t at) const {
    for (int depth = 1;; ++at) {
      depth += form_[at] == '(' ? 1 : form_[at] == ')' ? -1 : 0;
      if (depth == 0) return at;
    }
  }

  absl::string_view form_;
  size_t at_ = 0;
  std::string text_;
};

std::string RecurrenceOfForm(absl::string_view form) {
  TupleTree tree(form);
  std::string init, next;
  const std::string make_init = tree.Make("init_", &init);
  const std::string make_next = absl::StrReplaceAll(tree.Make("next_", &next), {{"next_w", "w"}});
  return absl::StrReplaceAll(hlo::TestText("sharding/partition/testdata/recurrence_of_tuples.hlo"),
                             {{"$shape", tree.Shape()},
                              {"$take_result", tree.Take("l")},
                              {"$take", tree.Take("p")},
                              {"$make_init", make_init},
                              {"$make_next", absl::StrReplaceAll(make_next, {{next + " =", "ROOT " + next + " ="}})},
                              {"$init", init}});
}

// Nothing is hoisted out of a loop whose tuple contains tuples. Its trip count is known if the counter is an element of
// the outer tuple.
TEST(LoopInvariants, CarriedValuesInTuplesOfTuples) {
  for (absl::string_view form : {"ixw", "wxi", "i(xw)", "(ix)w", "(ixw)", "((ixw))", "()ixw", "()(ixw)", "()i(xw)",
                                 "(ix)()w", "w()(xi)", "((i)(x))w", "(w)(x)(i)", "(((x)w)i)", "()w(xi)", "x(wi)()"}) {
    SCOPED_TRACE(form);
    const Found found = CountedCollectives(RecurrenceOfForm(form));
    const absl::string_view before = form.substr(0, form.find('i'));
    const bool is_flat = form.find('(') == form.npos;
    const bool is_counted = absl::c_count(before, '(') == absl::c_count(before, ')');
    EXPECT_EQ(found, Found{is_flat ? "all-gather 1x192" : is_counted ? "all-gather 5x192" : "all-gather -1x192"});
  }
}

TEST(LoopInvariants, NonUniformScalarsAreGatheredBeforeTheLoop) {
  auto module = hlo::ParseText(hlo::TestText("sharding/partition/testdata/device_ids_in_loop.hlo"));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto program = RunPipeline(*std::move(module), {});
  ASSERT_TRUE(program.ok()) << program.status();
  const tensor::Array zeros(tensor::Shape{tensor::ElementType::kF32, {4}});
  const auto found = EvaluatePartitioned(program->partitioned, {hlo::Literal(zeros)});
  ASSERT_TRUE(found.ok()) << found.status();
  const auto sums = found->tuple[0].array.values<float>();
  EXPECT_EQ(std::vector<float>(sums.begin(), sums.end()), (std::vector<float>{0, 5, 10, 15}));
}

}  // namespace
}  // namespace xlad::sharding

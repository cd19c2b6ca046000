// Trip counts of given loops, compared with numbers computed by hand, and of random loops, compared with a simulation.
#include "hlo/analysis/trip_count.h"

#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/testing/case_count.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"

namespace xlad::hlo {
namespace {

using tensor::ElementType;

// A loop that also counts its iterations, in the element after the induction variable.
struct Loop {
  ElementType type = ElementType::kS32;
  std::string init = "constant(0)", step = "constant(3)", bound = "constant(10)";
  std::string next = "add(i, step)";
  std::string compare = "i, bound), direction=LT";
  bool carries_constants = false;  // The step and the bound are elements of the loop's tuple.
};

std::string TextOf(const Loop& loop) {
  const std::string t = absl::StrCat(tensor::ToString(loop.type), "[]");
  const std::string state = absl::StrCat("(", t, ", s32[], ", t, ", ", t, ")");
  const auto constant = [&](const char* name, int element, const std::string& text) {
    return absl::StrCat("  ", name, " = ", t, " ",
                        loop.carries_constants ? absl::StrCat("get-tuple-element(s), index=", element) : text, "\n");
  };
  const std::string step = constant("step", 2, loop.step), bound = constant("bound", 3, loop.bound);
  const std::string begin =
      absl::StrCat("  s = ", state, " parameter(0)\n  i = ", t, " get-tuple-element(s), index=0\n");
  return absl::StrCat("HloModule m\ncond {\n", begin, bound, "  ROOT c = pred[] compare(", loop.compare, " }\nbody {\n",
                      begin, step, "  n = s32[] get-tuple-element(s), index=1\n  one = s32[] constant(1)\n",
                      "  a = ", t, " get-tuple-element(s), index=2\n  b = ", t, " get-tuple-element(s), index=3\n",
                      "  count = s32[] add(n, one)\n  next = ", t, " ", loop.next, "\n  ROOT r = ", state,
                      " tuple(next, count, a, b) }\nENTRY main {\n  p = ", t, " parameter(0)\n  i = ", t, " ",
                      loop.init, "\n  zero = s32[] constant(0)\n  step = ", t, " ", loop.step, "\n  bound = ", t,
                      " ", loop.bound, "\n  t = ", state, " tuple(i, zero, step, bound)\n  ROOT w = ", state,
                      " while(t), condition=cond, body=body\n}");
}

std::unique_ptr<Module> Parse(const std::string& text) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  return module.ok() ? *std::move(module) : nullptr;
}

std::optional<int64_t> Count(const Loop& loop) { return TripCount(*Parse(TextOf(loop))->entry()->root()); }

TEST(TripCountTest, CountedLoops) {
  const std::tuple<Loop, std::optional<int64_t>> cases[] = {
      {{}, 4},
      {{.init = "constant(1)", .next = "add(step, i)"}, 3},
      {{.compare = "i, bound), direction=LE"}, 4},
      {{.init = "constant(1)", .compare = "i, bound), direction=LE"}, 4},
      {{.compare = "bound, i), direction=GT"}, 4},
      {{.init = "constant(40)", .next = "subtract(i, step)", .compare = "i, bound), direction=GT"}, 10},
      {{.init = "constant(40)", .next = "subtract(i, step)", .compare = "i, bound), direction=GE"}, 11},
      {{.init = "constant(20)"}, 0},
      {{.init = "constant(1)", .compare = "i, bound), direction=NE"}, 3},
      {{.init = "constant(10)", .compare = "i, bound), direction=EQ"}, 1},
      {{.compare = "i, bound), direction=LT, type=SIGNED"}, 4},
      {{.next = "multiply(i, step)"}, std::nullopt},
      {{.init = "add(p, p)"}, std::nullopt},
      {{.bound = "copy(p)", .carries_constants = true}, std::nullopt},
      {{.carries_constants = true}, 4},
  };
  for (const auto& [loop, trips] : cases) EXPECT_EQ(Count(loop), trips) << TextOf(loop);
}

TEST(TripCountTest, WrappingLoops) {
  EXPECT_EQ(Count({.type = ElementType::kU32, .init = "constant(3)", .step = "constant(4294967295)",
                   .bound = "constant(4)"}), 4);
  EXPECT_EQ(Count({.type = ElementType::kS8, .step = "constant(100)", .bound = "constant(120)"}), 14);
  // 0 + k * 3 = 10 modulo 2^32 has a solution, because 3 is odd.
  EXPECT_EQ(Count({.compare = "i, bound), direction=NE"}), 2863311534);
  // Down from 0, the counter passes -2^31 and becomes positive.
  EXPECT_EQ(Count({.next = "subtract(i, step)"}), 715827883);
  // The counter has only even values and is never 9.
  EXPECT_EQ(Count({.step = "constant(2)", .bound = "constant(9)", .compare = "i, bound), direction=NE"}), std::nullopt);
  EXPECT_EQ(Count({.step = "constant(0)"}), std::nullopt);
  // No value of the type is above the largest one.
  EXPECT_EQ(Count({.type = ElementType::kU8, .bound = "constant(255)", .compare = "i, bound), direction=LE"}),
            std::nullopt);
  // The trip count exceeds the range of int64_t.
  EXPECT_EQ(Count({.type = ElementType::kU64, .init = "constant(1)", .step = "constant(1)", .bound = "constant(0)",
                   .compare = "i, bound), direction=NE"}), std::nullopt);
  EXPECT_EQ(Count({.type = ElementType::kU64, .step = "constant(1)", .bound = "constant(9223372036854775807)"}),
            INT64_MAX);
}

TEST(TripCountTest, StateWithoutTuple) {
  const auto module = Parse(R"(HloModule m
cond { i = s32[] parameter(0) n = s32[] constant(7) ROOT c = pred[] compare(i, n), direction=LT }
body { i = s32[] parameter(0) k = s32[] constant(2) ROOT j = s32[] add(i, k) }
ENTRY main { i = s32[] constant(1) ROOT w = s32[] while(i), condition=cond, body=body })");
  EXPECT_EQ(TripCount(*module->entry()->root()), 3);
}

TEST(TripCountTest, AChangedElementIsNotConstant) {
  // The bound grows with the counter.
  const auto module = Parse(R"(HloModule m
cond { s = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1 ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1 one = s32[] constant(1) j = s32[] add(i, one) m = s32[] add(n, one)
  ROOT t = (s32[], s32[]) tuple(j, m) }
ENTRY main { i = s32[] constant(1) n = s32[] constant(5) t = (s32[], s32[]) tuple(i, n)
  ROOT w = (s32[], s32[]) while(t), condition=cond, body=body })");
  EXPECT_EQ(TripCount(*module->entry()->root()), std::nullopt);
  EXPECT_EQ(TripCountOrAssumed(*module->entry()->root()), kAssumedTripCount);
}

// A random loop, and its values as integers, so that it can be simulated step by step.
class RandomLoop {
 public:
  explicit RandomLoop(std::mt19937_64* random) : random_(*random) {
    constexpr ElementType kTypes[] = {ElementType::kS4,  ElementType::kU4,  ElementType::kS8,  ElementType::kU8,
                                      ElementType::kS16, ElementType::kU16, ElementType::kS32, ElementType::kU32,
                                      ElementType::kS64, ElementType::kU64};
    loop_.type = kTypes[random_() % std::size(kTypes)];
    bits_ = tensor::BitWidth(loop_.type);
    init_ = Value(), step_ = Value(), bound_ = Value();
    loop_.init = Text(init_), loop_.step = Text(step_), loop_.bound = Text(bound_);
    constexpr const char* kNext[] = {"add(i, step)", "add(step, i)", "subtract(i, step)"};
    const size_t next = random_() % 3;
    loop_.next = kNext[next];
    if (next == 2) step_ = -step_;
    direction_ = kDirections[random_() % std::size(kDirections)];
    mirrored_ = random_() % 2 == 0;
    loop_.compare = absl::StrCat(mirrored_ ? "bound, i" : "i, bound", "), direction=", direction_);
    loop_.carries_constants = random_() % 2 == 0;
  }

  const Loop& loop() const { return loop_; }
  int bits() const { return bits_; }

  // The number of iterations, or `limit` if there are more.
  int64_t Simulate(int64_t limit) const {
    uint64_t i = init_;
    for (int64_t count = 0; count < limit; ++count, i += step_) {
      if (!(mirrored_ ? Holds(bound_, i) : Holds(i, bound_))) return count;
    }
    return limit;
  }

 private:
  static constexpr const char* kDirections[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};

  // A random value, often near zero or near the limits of the type.
  uint64_t Value() {
    const uint64_t any = random_(), small = any % 7 - 3;
    switch (random_() % 4) {
      case 0: return any;
      case 1: return (uint64_t{1} << (bits_ - 1)) + small;
      default: return small;
    }
  }
  int64_t Signed(uint64_t x) const { return static_cast<int64_t>(x << (64 - bits_)) >> (64 - bits_); }
  uint64_t Unsigned(uint64_t x) const { return x << (64 - bits_) >> (64 - bits_); }
  std::string Text(uint64_t x) const {
    return tensor::IsSigned(loop_.type) ? absl::StrCat("constant(", Signed(x), ")")
                                        : absl::StrCat("constant(", Unsigned(x), ")");
  }
  template <typename T>
  bool Compare(T x, T y) const {
    const std::string direction = direction_;
    return direction == "EQ"   ? x == y
           : direction == "NE" ? x != y
           : direction == "LT" ? x < y
           : direction == "LE" ? x <= y
           : direction == "GT" ? x > y
                               : x >= y;
  }
  bool Holds(uint64_t x, uint64_t y) const {
    return tensor::IsSigned(loop_.type) ? Compare(Signed(x), Signed(y)) : Compare(Unsigned(x), Unsigned(y));
  }

  std::mt19937_64& random_;
  Loop loop_;
  int bits_ = 0;
  uint64_t init_ = 0, step_ = 0, bound_ = 0;
  const char* direction_ = nullptr;
  bool mirrored_ = false;
};

TEST(TripCountTest, RandomLoopsHaveTheSimulatedTripCount) {
  std::mt19937_64 random(1);
  const int rounds = CaseCount(600, 3000);
  int evaluated = 0, counted = 0;
  for (int round = 0; round < rounds; ++round) {
    const RandomLoop loop(&random);
    const auto module = Parse(TextOf(loop.loop()));
    const std::optional<int64_t> trips = TripCount(*module->entry()->root());
    // A loop of at most 16 bits that has not ended after 2^16 iterations never ends.
    const int64_t limit = (int64_t{1} << 16) + 1, simulated = loop.Simulate(limit);
    counted += trips.has_value();
    if (simulated < limit) {
      ASSERT_EQ(trips, simulated) << TextOf(loop.loop());
    } else if (loop.bits() <= 16) {
      ASSERT_EQ(trips, std::nullopt) << TextOf(loop.loop());
    } else {
      ASSERT_GE(trips.value_or(limit), limit) << TextOf(loop.loop());
    }
    if (!trips || *trips > 100) continue;
    ++evaluated;
    const auto input = Literal(tensor::Array(tensor::Shape{loop.loop().type, {}}));
    const absl::StatusOr<Literal> result = Evaluate(*module, {input});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->tuple[1].array.values<int32_t>()[0], *trips) << TextOf(loop.loop());
  }
  EXPECT_GT(counted, rounds * 2 / 3);
  EXPECT_GT(evaluated, rounds / 3);
}

}  // namespace
}  // namespace xlad::hlo

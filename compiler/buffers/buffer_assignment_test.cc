#include "compiler/buffers/buffer_assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/kernel_abi.h"
#include "base/random.h"
#include "base/rounding.h"
#include "base/work.h"
#include "compiler/buffers/coalesce.h"
#include "compiler/compile.h"
#include "compiler/testing/random_program.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

Compilation Compiled(const std::string& text) {
  auto module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(hlo::Verify(**module).ok()) << hlo::Verify(**module);
  auto compiled = CompileToSteps(std::move(*module), {}, {.verify = true});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return std::move(*compiled);
}

int64_t CountCopies(const std::vector<LinearOp>& ops, const BufferAssignment& assignment) {
  int64_t count = 0;
  for (const LinearOp& op : ops) {
    if (op.kind == LinearOp::Kind::kCopy) {
      const BufferSlice& from = assignment.slices[op.inputs[0]];
      const BufferSlice& to = assignment.slices[op.outputs[0]];
      count += from.allocation() != to.allocation() || from.offset() != to.offset();
    }
    count += CountCopies(op.condition, assignment);
    for (const std::vector<LinearOp>& body : op.bodies) count += CountCopies(body, assignment);
  }
  return count;
}

TEST(BufferAssignment, UpdatesDonatedParametersInPlace) {
  Compilation c = Compiled(R"(HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
ENTRY e {
  p = f32[64,64] parameter(0)
  m = f32[64,64] parameter(1)
  x = f32[8,64] parameter(2)
  g = f32[64,64] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  n = f32[64,64] add(m, g)
  q = f32[64,64] subtract(p, n)
  y = f32[8,64] dot(x, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[64,64], f32[64,64], f32[8,64]) tuple(q, n, y)
})");
  EXPECT_EQ(CountCopies(c.program.ops, c.assignment), 0) << ToString(c.program);
  EXPECT_EQ(c.assignment.slices[c.program.results[0]].allocation(),
            c.assignment.slices[c.program.parameters[0]].allocation());
  // Only g has memory in the arena: n and q are written in place over m and p, and y into the memory of its result.
  EXPECT_EQ(c.assignment.arena_bytes, 64 * 64 * 4);
}

TEST(BufferAssignment, SwappedDonatedParametersKeepTheirValues) {
  Compilation c = Compiled(R"(HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
ENTRY e {
  p = f32[64] parameter(0)
  q = f32[64] parameter(1)
  ROOT t = (f32[64], f32[64]) tuple(q, p)
})");
  EXPECT_EQ(CountCopies(c.program.ops, c.assignment), 3);  // One of the copies saves a value to a temporary.
}

TEST(BufferAssignment, SwappedLeavesOfANestedDonatedTupleKeepTheirValues) {
  Compilation c = Compiled(R"(HloModule m, input_output_alias={ {0}: (0, {1,1}, must-alias), {1}: (0, {0}, must-alias) }
ENTRY e {
  p = (f32[8], (f32[4], f32[8])) parameter(0)
  a = f32[8] get-tuple-element(p), index=0
  q = (f32[4], f32[8]) get-tuple-element(p), index=1
  b = f32[8] get-tuple-element(q), index=1
  ROOT r = (f32[8], f32[8]) tuple(a, b)
})");
  EXPECT_EQ(CountCopies(c.program.ops, c.assignment), 3);
  EXPECT_EQ(c.program.results, (std::vector<int>{c.program.parameters[2], c.program.parameters[0]}));
}

// Compile time must not be exponential in the depth of nested loops.
TEST(BufferAssignment, CompilesDeeplyNestedLoops) {
  const std::string state = "(s32[], f32[], s32[])";
  std::string text = "HloModule m\n";
  constexpr int kDepth = 24;
  for (int depth = 0; depth < kDepth; ++depth) {
    const std::string inner = depth == 0
                                  ? "y = f32[] cosine(x)"
                                  : absl::StrCat("z = s32[] constant(0) t = ", state, " tuple(z, x, n) w = ", state,
                                                 " while(t), condition=cond", depth - 1, ", body=body", depth - 1,
                                                 " y = f32[] get-tuple-element(w), index=1");
    absl::StrAppend(&text, "cond", depth, " { s = ", state,
                    " parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] get-tuple-element(s), index=2 "
                    "ROOT c = pred[] compare(i, n), direction=LT }\n");
    absl::StrAppend(&text, "body", depth, " { s = ", state,
                    " parameter(0) i = s32[] get-tuple-element(s), index=0 x = f32[] get-tuple-element(s), index=1 "
                    "n = s32[] get-tuple-element(s), index=2 ",
                    inner, " one = s32[] constant(1) j = s32[] add(i, one) ROOT r = ", state, " tuple(j, y, n) }\n");
  }
  absl::StrAppend(&text, "ENTRY e { x = f32[] parameter(0) n = s32[] parameter(1) z = s32[] constant(0) t = ", state,
                  " tuple(z, x, n) w = ", state, " while(t), condition=cond", kDepth - 1, ", body=body", kDepth - 1,
                  " ROOT r = f32[] get-tuple-element(w), index=1 }");
  EXPECT_FALSE(Compiled(text).steps.steps.empty());
}

// The two operands of the branch's kernel share a buffer, so the kernel must not write in place over one of them.
TEST(BufferAssignment, BranchesWithARepeatedOperandDoNotOverwriteIt) {
  Compilation c = Compiled(R"(HloModule m
yes { p = (f32[99], f32[99]) parameter(0)
  a = f32[99] get-tuple-element(p), index=0  c = f32[99] get-tuple-element(p), index=1
  z = f32[99] add(c, c)  s = f32[99] add(z, a)  b = bf16[99] convert(s)
  ROOT t = (f32[99], bf16[99]) tuple(z, b) }
no { p = (f32[99], f32[99]) parameter(0)
  a = f32[99] get-tuple-element(p), index=0  c = f32[99] get-tuple-element(p), index=1
  z = f32[99] multiply(c, c)  s = f32[99] multiply(z, a)  b = bf16[99] convert(s)
  ROOT t = (f32[99], bf16[99]) tuple(z, b) }
ENTRY e {
  x = f32[99] parameter(0)
  q = pred[] parameter(1)
  y = f32[99] cosine(x)
  t = (f32[99], f32[99]) tuple(y, y)
  ROOT r = (f32[99], bf16[99]) conditional(q, t, t), true_computation=yes, false_computation=no
})");
  const auto conditional = std::find_if(c.program.ops.begin(), c.program.ops.end(),
                                        [](const LinearOp& op) { return op.kind == LinearOp::Kind::kIf; });
  ASSERT_NE(conditional, c.program.ops.end());
  for (const std::vector<LinearOp>& branch : conditional->bodies) {
    const LinearOp& kernel = branch[0];
    ASSERT_EQ(kernel.inputs.size(), 2u) << ToString(c.program);
    EXPECT_EQ(kernel.inputs[0], kernel.inputs[1]);
    EXPECT_FALSE(IsSameOperand(kernel, 0, 1));
    const BufferSlice& read = c.assignment.slices[kernel.inputs[0]];
    for (int output : kernel.outputs) {
      const BufferSlice& written = c.assignment.slices[output];
      EXPECT_FALSE(written.allocation() == read.allocation() && written.offset() == read.offset());
    }
  }
}

TEST(BufferAssignment, ReturnedParameterAndTwoResultsOfOneValueAreCopied) {
  Compilation c = Compiled(R"(HloModule m
ENTRY e {
  p = f32[64] parameter(0)
  n = f32[64] negate(p)
  ROOT t = (f32[64], f32[64], f32[64]) tuple(p, n, n)
})");
  EXPECT_EQ(CountCopies(c.program.ops, c.assignment), 2);
  EXPECT_EQ(c.assignment.arena_bytes, 0);
}

// A loop of 100 iterations fills rows of an array. The array must not be copied in each iteration.
TEST(BufferAssignment, LoopUpdatesItsStateInPlace) {
  const auto text = RealFileSystem().Read("compiler/buffers/testdata/loop_fills_rows.hlo");
  ASSERT_TRUE(text.ok()) << text.status();
  Compilation c = Compiled(*text);

  const LinearOp* loop = nullptr;
  for (const LinearOp& op : c.program.ops) {
    if (op.kind == LinearOp::Kind::kWhile) loop = &op;
  }
  ASSERT_NE(loop, nullptr);
  EXPECT_EQ(CountCopies(loop->bodies[0], c.assignment), 0) << ToString(c.program);
  EXPECT_EQ(c.steps.steps.back().while_().trip_count(), 100);
}

// Joins the groups of values that are copies of each other, directly or indirectly. Values of one group may share
// memory while both are live.
void JoinCopies(const std::vector<LinearOp>& ops, std::vector<int>* group) {
  for (const LinearOp& op : ops) {
    if (op.kind == LinearOp::Kind::kCopy) {
      const int from = (*group)[op.inputs[0]], to = (*group)[op.outputs[0]];
      std::replace(group->begin(), group->end(), from, to);
    }
    JoinCopies(op.condition, group);
    for (const std::vector<LinearOp>& body : op.bodies) JoinCopies(body, group);
  }
}

// A program of `count` operations. Each writes one value of a random size, which one of the next `most_steps`
// operations reads.
LinearProgram RandomLifetimes(int count, int most_steps, Random* random) {
  LinearProgram program;
  program.values.resize(count);
  program.ops.resize(count + 1);
  for (int i = 0; i < count; ++i) {
    program.values[i].bytes = 16 * random->Below(6) * random->Below(40);
    program.ops[i].outputs = {i};
    const auto end = i + 1 + static_cast<int64_t>(random->Below(most_steps));
    program.ops[std::min<int64_t>(end, count)].inputs.push_back(i);
  }
  return program;
}

// The offsets that best fit chooses: the largest class first, each in the smallest sufficient gap between the classes
// that are live at the same time.
std::vector<int64_t> OffsetsByBestFit(const LinearProgram& program) {
  const Liveness liveness = ComputeLiveness(program);
  const BufferClasses classes = Coalesce(program, liveness);
  std::vector<int> order(program.values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return program.values[a].bytes > program.values[b].bytes; });
  std::vector<int64_t> offsets(order.size(), 0);
  std::vector<int> placed;
  for (const int value : order) {
    const auto size_of = [&](int v) { return RoundUp(program.values[v].bytes, XLAD_BUFFER_ALIGNMENT); };
    if (size_of(value) == 0) continue;
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const int other : placed) {
      if (!Overlap(classes.live[value], classes.live[other])) continue;
      taken.emplace_back(offsets[other], offsets[other] + size_of(other));
    }
    std::sort(taken.begin(), taken.end());
    int64_t best = -1, best_gap = 0, end = 0;
    for (const auto& [first, last] : taken) {
      const int64_t gap = first - end;
      if (gap >= size_of(value) && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, last);
    }
    offsets[value] = best < 0 ? end : best;
    placed.push_back(value);
  }
  return offsets;
}

TEST(BufferAssignment, PlacesTemporariesByBestFit) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto random = SeededRandom(seed);
    const LinearProgram program = RandomLifetimes(1 + random->Below(80), 1 + random->Below(60), random.get());
    const BufferAssignment assignment = AssignBuffers(program);
    const std::vector<int64_t> expected = OffsetsByBestFit(program);
    for (size_t v = 0; v < expected.size(); ++v) {
      ASSERT_EQ(assignment.slices[v].offset(), expected[v]) << "seed " << seed << " value " << v;
    }
  }
}

TEST(BufferAssignment, WorkIsNearlyLinearIfAllValuesAreLiveAtOnce) {
  const auto work_of = [&](int count) {
    LinearProgram program;  // The last operation reads all values.
    program.values.resize(count);
    program.ops.resize(count + 1);
    for (int i = 0; i < count; ++i) {
      program.values[i].bytes = 4096;
      program.ops[i].outputs = {i};
      program.ops[count].inputs.push_back(i);
    }
    const int64_t before = WorkOfThread();
    EXPECT_EQ(AssignBuffers(program).arena_bytes, 4096 * count);
    return WorkOfThread() - before;
  };
  const int64_t small = work_of(1000), large = work_of(4000);
  EXPECT_GT(small, 1000);
  EXPECT_LT(large, 6 * small) << small << " and " << large;
}

// The checker rejects every assignment in which two values that are live at the same time share memory.
TEST(CheckAssignment, FindsOverwrittenValues) {
  int wrong = 0, found = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    auto compiled = CompileToSteps(RandomProgram(seed, 30, 1), {}, {});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const LinearProgram& program = compiled->program;
    const Liveness liveness = ComputeLiveness(program);
    std::vector<int> group(program.values.size());
    std::iota(group.begin(), group.end(), 0);
    JoinCopies(program.ops, &group);
    for (size_t a = 0; a < program.values.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        const Intervals common = Intersect(liveness.values[a], liveness.values[b]);
        // Values that are live at the same time only during one operation may share memory, if it runs in place.
        if (common.empty() || common[0].last - common[0].first < 2) continue;
        const BufferSlice& x = compiled->assignment.slices[a];
        const BufferSlice& y = compiled->assignment.slices[b];
        if (x.bytes() != y.bytes() || x.bytes() == 0 || x.allocation() != 0 || y.allocation() != 0) continue;
        if (x.offset() == y.offset() || group[a] == group[b]) continue;
        BufferAssignment bad = compiled->assignment;
        bad.slices[a] = y;
        ++wrong;
        found += CheckAssignment(program, bad).ok() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(wrong, 20);
  EXPECT_EQ(found, wrong);
}

// A list of operations, such as the body of a loop, ends the collectives that it starts, and no others.
TEST(CheckAssignment, ListsEndTheirOwnCollectives) {
  const Compilation c = Compiled(R"(HloModule m
cond { p = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(300)
  ROOT c = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(p), index=0 one = s32[] constant(1)
  j = s32[] add(i, one) x = f32[8] get-tuple-element(p), index=1 y = f32[8] cosine(x)
  ROOT t = (s32[], f32[8]) tuple(j, y) }
ENTRY e {
  x = f32[8] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[8]) tuple(z, x)
  w = (s32[], f32[8]) while(t), condition=cond, body=body
  ROOT r = f32[8] get-tuple-element(w), index=1
})");
  const auto is_loop = [](const LinearOp& op) { return op.kind == LinearOp::Kind::kWhile; };
  const auto check = [&](int started_inside, int ended_inside, int ended_outside) {
    LinearProgram program = c.program;
    const auto loop = std::find_if(program.ops.begin(), program.ops.end(), is_loop);
    EXPECT_NE(loop, program.ops.end());
    const auto op = [&](LinearOp::Kind kind, int request) {
      LinearOp made;
      made.kind = kind;
      made.instruction = loop->instruction;
      made.request = request;
      return made;
    };
    std::vector<LinearOp>& body = loop->bodies[0];
    if (started_inside > 0) body.push_back(op(LinearOp::Kind::kCollective, started_inside));
    if (ended_inside > 0) body.push_back(op(LinearOp::Kind::kCollectiveDone, ended_inside));
    const LinearOp start = op(LinearOp::Kind::kCollective, 1), end = op(LinearOp::Kind::kCollectiveDone, 1);
    if (ended_outside > 0) program.ops.insert(loop + 1, end);
    program.ops.insert(std::find_if(program.ops.begin(), program.ops.end(), is_loop), start);
    return std::string(CheckAssignment(program, c.assignment).message());
  };
  EXPECT_EQ(check(0, 0, 1), "");
  EXPECT_EQ(check(2, 2, 1), "");
  EXPECT_NE(check(0, 1, 0).find("found the end of collective %w, which is not running"), std::string::npos);
  EXPECT_NE(check(2, 1, 1).find("found the end of collective %w, which is not running"), std::string::npos);
  EXPECT_NE(check(2, 0, 1).find("found no end of the collective %w"), std::string::npos);
}

}  // namespace
}  // namespace xlad::compiler

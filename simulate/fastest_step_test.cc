// Compares the default placement with every assignment that a user can write.
#include "simulate/fastest_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/read/read.h"
#include "simulate/simulate.h"
#include "simulate/testing/slice_of.h"

namespace xlad::simulate {
namespace {

// A product of x and w, whose rows are gathered over the first axis of the mesh, and an all-reduce of the result over
// the last one.
PreparedProgram Gathered(const std::string& axes, const std::string& first, const std::string& last, int64_t width) {
  const auto sharding = [](const std::string& dimensions) {
    return absl::StrCat("frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<@mesh, [", dimensions, "]>\"}");
  };
  const std::string shape = absl::StrCat("bf16[", width, ",", width, "]");
  const std::string text =
      absl::StrCat("HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<[", axes,
                   "]>}}\nENTRY main {\n  x = ", shape, " parameter(0), ", sharding("{\\\"" + first + "\\\"}, {}"),
                   "\n  w = ", shape, " parameter(1), ", sharding("{\\\"" + first + "\\\"}, {\\\"" + last + "\\\"}"),
                   "\n  v = ", shape, " parameter(2), ", sharding("{\\\"" + last + "\\\"}, {}"), "\n  h = ", shape,
                   " dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n  t = ", shape,
                   " tanh(h)\n  ROOT y = ", shape, " dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}, ",
                   sharding("{\\\"" + first + "\\\"}, {}"), "\n}");
  auto module = hlo::ReadModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  auto prepared = PrepareProgram(*std::move(module), {});
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  return *std::move(prepared);
}

// All assignments of axes of these sizes to the dimensions x, y, z, which have `free` chips left. Every axis is split
// into powers of two and, on the last dimension, the rest.
void AddAssignments(const std::vector<std::pair<std::string, int>>& axes, std::vector<int> free,
                    const std::string& before, std::vector<std::string>* found) {
  if (axes.empty()) return found->push_back(before);
  for (size_t i = 0; i < axes.size(); ++i) {
    std::vector<std::pair<std::string, int>> others = axes;
    others.erase(others.begin() + static_cast<int64_t>(i));
    const auto [name, size] = axes[i];
    for (int x = 1; x <= size; x *= 2) {
      for (int y = 1; x * y <= size; y *= 2) {
        const int z = size / (x * y);
        std::vector<int> left = free;
        std::string text = absl::StrCat(before, before.empty() ? "" : ",", name, "=");
        const int parts[] = {x, y, z};
        bool fits = x * y * z == size && (z == 1 || free.size() > 2);
        for (size_t d = 0; d < free.size() && fits; ++d) {
          fits = left[d] % parts[d] == 0;
          left[d] /= parts[d];
          if (parts[d] > 1) absl::StrAppend(&text, std::string(1, static_cast<char>('x' + d)), parts[d]);
        }
        if (fits) AddAssignments(others, left, text, found);
      }
    }
  }
}

TEST(FastestStep, NoAssignmentOfAUserIsFaster) {
  struct Case {
    const char* topology;
    std::vector<std::pair<std::string, int>> axes;
    int64_t width;
  };
  const Case cases[] = {{"v5e-4x4", {{"a", 8}, {"b", 2}}, 1024},
                        {"v5e-2x8", {{"a", 4}, {"b", 4}}, 512},
                        {"v5e-4x8", {{"a", 4}, {"b", 4}, {"c", 2}}, 8192},
                        {"v4-2x4x4", {{"a", 8}, {"b", 4}}, 2048},
                        {"v5e-16x16", {{"a", 16}, {"b", 4}, {"c", 4}}, 1024},
                        {"v5e-16x16", {{"a", 32}, {"b", 8}}, 4096},
                        {"v5e-16x16", {{"a", 128}, {"b", 2}}, 256},
                        {"v4-4x8x8", {{"a", 32}, {"b", 8}}, 2048}};
  for (const Case& c : cases) {
    const std::string axes = absl::StrJoin(c.axes, ", ", [](std::string* out, const auto& axis) {
      absl::StrAppend(out, "\"", axis.first, "\"=", axis.second);
    });
    const PreparedProgram program = Gathered(axes, c.axes.front().first, c.axes.back().first, c.width);
    ASSERT_GE(program.collectives.size(), 2u);
    const Slice slice = SliceOf(c.topology);
    const auto chosen = Predict(program, slice, "");
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    std::vector<std::string> assignments;
    AddAssignments(c.axes, slice.grid, "", &assignments);
    ASSERT_GE(assignments.size(), 4u) << c.topology;
    StepTimer timer(*program.compiled, program.collectives, program.partitioned.mesh, slice);
    for (const std::string& assignment : assignments) {
      const auto placements = ParsePlacements(assignment, program.partitioned.mesh, slice);
      ASSERT_TRUE(placements.ok()) << placements.status();
      const auto other = timer.TimeOf(placements->at(0));
      ASSERT_TRUE(other.ok()) << assignment << ": " << other.status();
      EXPECT_LE(chosen->step.us, other->us) << c.topology << " " << chosen->placement << " " << assignment;
    }
  }
}

// Links that are broken separate the groups of some placements. The fastest one of the others is chosen.
TEST(FastestStep, PlacementsThatBrokenLinksSeparateAreOmitted) {
  const PreparedProgram program = Gathered(R"("a"=16, "b"=2)", "a", "b", 256);
  Slice slice = SliceOf("v5e-16x2");
  ASSERT_TRUE(BreakLink("0-1", &slice).ok());
  const auto separated = Predict(program, slice, "b=x2,a=x8y2");
  EXPECT_EQ(separated.status().code(), absl::StatusCode::kUnavailable) << separated.status();
  const auto chosen = Predict(program, slice, "");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  std::vector<std::string> assignments;
  AddAssignments({{"a", 16}, {"b", 2}}, slice.grid, "", &assignments);
  int available = 0;
  for (const std::string& assignment : assignments) {
    const auto other = Predict(program, slice, assignment);
    if (absl::IsUnavailable(other.status())) continue;
    ASSERT_TRUE(other.ok()) << assignment << ": " << other.status();
    EXPECT_LE(chosen->step.us, other->step.us) << chosen->placement << " " << assignment;
    ++available;
  }
  EXPECT_GE(available, 2);
}

// The estimate by which the placements of large topologies are sorted does not know the algorithm of a collective, nor
// which collectives overlap.
TEST(FastestStep, SeveralPlacementsOfALargeTopologyAreTimed) {
  struct Case {
    const char* topology;
    const char* axes;
    const char* first;
    const char* last;
    int64_t width;
  };
  const Case cases[] = {{"v4-8x8x16", R"("a"=32, "b"=8, "c"=4)", "a", "c", 2048},
                        {"v5e-16x20", R"("a"=64, "b"=5)", "a", "b", 640}};
  int improved = 0;
  for (const Case& c : cases) {
    const PreparedProgram program = Gathered(c.axes, c.first, c.last, c.width);
    const Slice slice = SliceOf(c.topology);
    const sharding::Mesh& mesh = program.partitioned.mesh;
    ASSERT_GT(slice.chips(), kMaxTimedChips);
    const auto chosen = Predict(program, slice, "");
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    const auto sorted = CheapestFirst(*ParsePlacements("", mesh, slice), program.collectives, mesh, slice);
    StepTimer timer(*program.compiled, program.collectives, mesh, slice);
    const auto first = timer.TimeOf(sorted.front());
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_LE(chosen->step.us, first->us) << c.topology << " " << chosen->placement;
    improved += chosen->step.us < 0.95 * first->us ? 1 : 0;
  }
  EXPECT_GE(improved, 1);
}

// With too many chips to time all placements, the fastest one of the first kMaxTimedPlacements is chosen. Those whose
// groups are separated are omitted.
TEST(FastestStep, BrokenLinksSeparateTheCheapestPlacementOfALargeSlice) {
  // The groups of a and b are small, so that they are simulated quickly.
  const PreparedProgram program = Gathered(R"("c"=128, "a"=2, "b"=2)", "a", "b", 256);
  Slice slice = SliceOf("v4-8x8x8");
  ASSERT_GT(slice.chips(), kMaxTimedChips);
  ASSERT_TRUE(BreakLink("0-1", &slice).ok());
  const auto chosen = Predict(program, slice, "");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  const sharding::Mesh& mesh = program.partitioned.mesh;
  StepTimer timer(*program.compiled, program.collectives, mesh, slice);
  std::vector<Placement> sorted = CheapestFirst(*ParsePlacements("", mesh, slice), program.collectives, mesh, slice);
  ASSERT_GT(sorted.size(), kMaxTimedPlacements);
  sorted.resize(kMaxTimedPlacements);
  EXPECT_TRUE(absl::IsUnavailable(timer.TimeOf(sorted.front()).status()));
  double fastest_us = std::numeric_limits<double>::infinity();
  for (const Placement& placement : sorted) {
    const auto time = timer.TimeOf(placement);
    if (time.ok()) fastest_us = std::min(fastest_us, time->us);
  }
  EXPECT_EQ(chosen->step.us, fastest_us) << chosen->placement;
}

}  // namespace
}  // namespace xlad::simulate

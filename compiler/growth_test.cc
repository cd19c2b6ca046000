// How the work of the build path grows with the size of a program, from the partitioner to the steps. Work is counted
// (base/work.h), because times would depend on the machine.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "base/work.h"
#include "compiler/compile.h"
#include "hlo/text/text.h"
#include "sharding/pipeline.h"

namespace xlad::compiler {
namespace {

// The maximum factor by which the work may grow if the program becomes four times as large. The work of linear
// algorithms grows by a factor of 4, that of quadratic ones by 16, and that of cubic ones by 64.
constexpr double kLinear = 7, kQuadratic = 17;

// Returns the work of partitioning the program and compiling it to steps.
int64_t WorkOf(const std::string& text) {
  auto module = hlo::ParseText(text);
  XLAD_CHECK(module.ok()) << module.status();
  const int64_t before = WorkOfThread();
  const auto sharded = sharding::RunPipeline(*std::move(module), {});
  XLAD_CHECK(sharded.ok()) << sharded.status();
  const auto compiled = CompileToSteps(sharded->partitioned.variants[0].module->Clone(), CompileRequest());
  XLAD_CHECK(compiled.ok()) << compiled.status();
  return WorkOfThread() - before;
}

template <typename Program>
void ExpectGrowth(const Program& program, int size, double max_factor) {
  const int64_t small = WorkOf(program(size)), large = WorkOf(program(4 * size));
  EXPECT_GT(small, size);
  EXPECT_LT(static_cast<double>(large), max_factor * static_cast<double>(small)) << small << " and " << large;
}

std::string Repeated(int count, absl::string_view format) {
  std::string text;
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, absl::Substitute(format, i, i - 1, (i + 1) % count));
  return text;
}

std::string Listed(int count, absl::string_view format) {
  std::vector<std::string> items;
  for (int i = 0; i < count; ++i) items.push_back(absl::Substitute(format, i));
  return absl::StrJoin(items, ", ");
}

// A forward and a backward pass over layers whose weights are split by fsdp and tp, and an update of each weight.
std::string Layers(int layers) {
  return absl::StrCat(
      "HloModule layers, num_partitions=8, input_output_alias={ ", Listed(layers, "{$0}: ($0, {}, may-alias)"), R"( }
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
)",
      Repeated(layers, R"(
 w$0 = f32[64,64] parameter($0), sharding={devices=[2,2,2]<=[2,2,2]T(1,2,0) last_tile_dim_replicate}
)"),
      " x = f32[64,64] parameter(", layers, R"(), sharding={devices=[4,1,2]<=[8] last_tile_dim_replicate}
 zero = f32[] constant(0)
 y-1 = f32[64,64] negate(x)
)",
      Repeated(layers, R"( h$0 = f32[64,64] dot(y$1, w$0), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 t$0 = f32[64,64] tanh(h$0)
 n$0 = f32[64] reduce(t$0, zero), dimensions={1}, to_apply=sum
 m$0 = f32[64,64] broadcast(n$0), dimensions={0}
 d$0 = f32[64,64] multiply(t$0, m$0)
 y$0 = f32[64,64] add(y$1, d$0)
 g$0 = f32[64,64] dot(y$1, y$0), lhs_contracting_dims={0}, rhs_contracting_dims={0}
 u$0 = f32[64,64] subtract(w$0, g$0)
)"),
      " ROOT r = (", Listed(layers, "f32[64,64]"), ") tuple(", Listed(layers, "u$0"), ")\n}");
}

// Every donated parameter is read by its own update and by that of its neighbor.
std::string Donations(int count) {
  return absl::StrCat("HloModule donations, input_output_alias={ ", Listed(count, "{$0}: ($0, {}, may-alias)"),
                      " }\nENTRY e {\n", Repeated(count, " p$0 = f32[32,32] parameter($0)\n"),
                      Repeated(count, R"(
 d$0 = f32[32,32] dot(p$0, p$2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 a$0 = f32[32,32] add(p$0, d$0)
)"),
                      " ROOT r = (", Listed(count, "f32[32,32]"), ") tuple(", Listed(count, "a$0"), ")\n}");
}

// Kernels that differ only in a constant, and one constant that all of them use.
std::string Constants(int count) {
  return absl::StrCat(R"(HloModule constants, num_partitions=8
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 x = f32[64,64] parameter(0), sharding={devices=[8,1]<=[8]}
 zero = f32[] constant(0)
)",
                      Repeated(count, R"( c$0 = f32[] constant($0)
 b$0 = f32[64,64] broadcast(c$0), dimensions={}
 a$0 = f32[64,64] multiply(x, b$0)
 r$0 = f32[64] reduce(a$0, zero), dimensions={0}, to_apply=sum, sharding={replicated}
)"),
                      " ROOT r = (", Listed(count, "f32[64]"), ") tuple(", Listed(count, "r$0"), ")\n}");
}

// Products and additions, each of which reads the previous one.
std::string Chain(int count) {
  return absl::StrCat("HloModule chain\nENTRY e {\n x = f32[64,64] parameter(0)\n a-1 = f32[64,64] negate(x)\n",
                      Repeated(count, R"(
 d$0 = f32[64,64] dot(a$1, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 a$0 = f32[64,64] add(d$0, x)
)"),
                      " ROOT r = f32[64,64] tanh(a", count - 1, ")\n}");
}

// Each array is the previous one minus broadcasts of its sums, as in Sinkhorn's algorithm. A fusion of each sum could
// compute all previous arrays again.
std::string Normalizations(int count) {
  return absl::StrCat(R"(HloModule normalizations
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 x-1 = f32[64,64] parameter(0)
 zero = f32[] constant(0)
)",
                      Repeated(count, R"( s$0 = f32[64] reduce(x$1, zero), dimensions={1}, to_apply=sum
 b$0 = f32[64,64] broadcast(s$0), dimensions={0}
 x$0 = f32[64,64] subtract(x$1, b$0)
)"),
                      " ROOT r = f32[64,64] tanh(x", count - 1, ")\n}");
}

// Kernels that differ only in the bounds of a slice.
std::string Slices(int count) {
  std::string slices;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&slices, " s", i, " = f32[7] slice(x), slice={[", i, ":", i + 7, "]}\n a", i, " = f32[7] sort(s", i,
                    "), dimensions={0}, to_apply=less\n");
  }
  return absl::StrCat(R"(HloModule slices
less { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e {
 x = f32[100000] parameter(0)
)",
                      slices, " ROOT r = (", Listed(count, "f32[7]"), ") tuple(", Listed(count, "a$0"), ")\n}");
}

// For each all-reduce, combine-collectives visits all buckets on which the all-reduce depends. This work is quadratic.
TEST(Growth, LayersOnAMesh) { ExpectGrowth(Layers, 12, kQuadratic); }
TEST(Growth, DonatedParameters) { ExpectGrowth(Donations, 100, kLinear); }
TEST(Growth, KernelsThatDifferInAConstant) { ExpectGrowth(Constants, 60, kLinear); }
TEST(Growth, KernelsThatDifferInTheBoundsOfASlice) { ExpectGrowth(Slices, 100, kLinear); }
TEST(Growth, ChainOfProducts) { ExpectGrowth(Chain, 200, kLinear); }
TEST(Growth, ChainOfNormalizations) { ExpectGrowth(Normalizations, 200, kQuadratic); }

}  // namespace
}  // namespace xlad::compiler

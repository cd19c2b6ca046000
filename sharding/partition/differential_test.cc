// Partitioned programs are compared with their source programs on the evaluator, under random shardings of every
// instruction.
#include <gtest/gtest.h>

#include "base/testing/case_count.h"
#include "hlo/eval/evaluate.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "sharding/partition/ops/families.h"
#include "sharding/proof/check_structure.h"
#include "sharding/proof/equivalence.h"
#include "sharding/testing/random_sharding.h"

namespace xlad::sharding {
namespace {

struct PartitionedCase {
  const char* name;
  const char* text;  // HLO, or the name of a file in sharding/partition/testdata.
  // If kBits, the inputs have special values: zeros of both signs, NaNs with payloads, infinities, denormal numbers.
  Exactness exactness = Exactness::kSums;
};

#define ADD_F32 "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
#define MAX_F32 "max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }\n"
#define ADD_S32 "adds { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] add(a, b) }\n"

const PartitionedCase kPartitionedCases[] = {
    {"elementwise", R"(HloModule m
ENTRY main {
  x = f32[7,12] parameter(0)
  y = f32[7,12] parameter(1)
  s = f32[] constant(0.25)
  b = f32[7,12] broadcast(s), dimensions={}
  m = f32[7,12] multiply(x, y)
  n = f32[7,12] negate(m)
  e = f32[7,12] exponential(n)
  c = pred[7,12] compare(e, y), direction=GT
  t = f32[7,12] select(c, e, b)
  lo = f32[] constant(-0.5)
  hi = f32[] constant(0.9)
  ROOT r = f32[7,12] clamp(lo, t, hi)
})"},
    {"integers", R"(HloModule m
ENTRY main {
  x = s32[10,6] parameter(0)
  y = s32[10,6] parameter(1)
  d = s32[10,6] divide(x, y)
  r = s32[10,6] remainder(x, y)
  a = s32[10,6] add(d, r)
  u = u32[10,6] bitcast-convert(a)
  k = u32[] constant(3)
  kb = u32[10,6] broadcast(k), dimensions={}
  ROOT z = u32[10,6] shift-right-logical(u, kb)
})"},
    {"broadcast_transpose", R"(HloModule m
ENTRY main {
  x = f32[7] parameter(0)
  y = f32[5,7,6] parameter(1)
  b = f32[5,7,6] broadcast(x), dimensions={1}
  a = f32[5,7,6] add(b, y)
  ROOT t = f32[6,5,7] transpose(a), dimensions={2,0,1}
})"},
    {"reshape", R"(HloModule m
ENTRY main {
  x = f32[12,10] parameter(0)
  a = f32[3,4,10] reshape(x)
  b = f32[3,40] reshape(a)
  c = f32[120] reshape(b)
  d = f32[8,15] reshape(c)
  e = f32[1,8,1,15] reshape(d)
  ROOT f = f32[8,5,3] reshape(e)
})", Exactness::kBits},
    {"reshape_ones", R"(HloModule m
ENTRY main {
  x = f32[7,1,6] parameter(0)
  a = f32[7,6] reshape(x)
  b = f32[1,7,6] reshape(a)
  ROOT c = f32[42] reshape(b)
})", Exactness::kBits},
    {"dot", R"(HloModule m
ENTRY main {
  x = f32[10,7] parameter(0)
  y = f32[7,12] parameter(1)
  z = f32[5,12] parameter(2)
  d = f32[10,12] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[10,5] dot(d, z), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT f = f32[7,5] dot(x, e), lhs_contracting_dims={0}, rhs_contracting_dims={0}
})"},
    // Padding may hold infinities, and zero times infinity is NaN. Padding must therefore not affect the result.
    {"dot_infinite", R"(HloModule m
ENTRY main {
  x = f32[3,7] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[3,7] broadcast(zero), dimensions={}
  m = f32[3,7] multiply(x, zeros)
  e = f32[3,7] exponential(m)
  l = f32[3,7] log(e)
  q = f32[3,7] divide(e, e)
  w = f32[7,4] parameter(1)
  ROOT d = f32[3,4] dot(q, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})"},
    {"dot_batch", R"(HloModule m
ENTRY main {
  x = f32[4,3,5,6] parameter(0)
  y = f32[4,7,3,6] parameter(1)
  ROOT d = f32[4,3,5,7] dot(x, y), lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={3},
      rhs_contracting_dims={3}
})"},
    {"reduce", "HloModule m\n" ADD_F32 MAX_F32 R"(ENTRY main {
  x = f32[10,7,6] parameter(0)
  zero = f32[] constant(0)
  five = f32[] constant(5)
  low = f32[] constant(-inf)
  a = f32[7] reduce(x, zero), dimensions={0,2}, to_apply=add
  b = f32[10,6] reduce(x, five), dimensions={1}, to_apply=add
  c = f32[10] reduce(x, low), dimensions={1,2}, to_apply=max
  d = f32[] reduce(x, zero), dimensions={0,1,2}, to_apply=add
  ROOT t = (f32[7], f32[10,6], f32[10], f32[]) tuple(a, b, c, d)
})"},
    {"reduce_types", "reduce_types.hlo"},
    {"argmax", "argmax.hlo"},
    {"iota_constant", R"(HloModule m
ENTRY main {
  x = f32[10,7] parameter(0)
  i = f32[10,7] iota(), iota_dimension=0
  j = s32[10,7] iota(), iota_dimension=1
  k = f32[10,7] convert(j)
  c = f32[7] constant({1, 2, 3, 4, 5, 6, 7})
  b = f32[10,7] broadcast(c), dimensions={1}
  s = f32[10,7] add(i, k)
  t = f32[10,7] multiply(s, b)
  ROOT r = f32[10,7] add(t, x)
})"},
    {"slices", R"(HloModule m
ENTRY main {
  x = f32[10,7] parameter(0)
  z = f32[] constant(3)
  a = f32[4,7] slice(x), slice={[2:10:2], [0:7]}
  b = f32[10,3] slice(x), slice={[0:10], [1:4]}
  p = f32[13,7] pad(x, z), padding=1_2x0_0
  q = f32[10,14] pad(x, z), padding=0_0x1_0_1
  c = f32[10,10] concatenate(x, b), dimensions={1}
  r = f32[10,7] reverse(x), dimensions={0}
  ROOT t = (f32[4,7], f32[10,3], f32[13,7], f32[10,14], f32[10,10], /*index=5*/f32[10,7]) tuple(a, b, p, q, c, r)
})", Exactness::kBits},
    {"dynamic_slices", R"(HloModule m
ENTRY main {
  x = f32[10,7] parameter(0)
  u = f32[3,7] parameter(1)
  w = f32[2,1] parameter(2)
  i = s32[] parameter(3)
  j = s32[] constant(8)
  k = s32[] constant(-4)
  a = f32[4,7] dynamic-slice(x, i, j), dynamic_slice_sizes={4,7}
  b = f32[10,7] dynamic-update-slice(x, u, i, j)
  c = f32[10,7] dynamic-update-slice(x, u, j, i)
  d = f32[10,7] dynamic-update-slice(b, w, i, i)
  e = f32[10,7] dynamic-update-slice(d, w, k, j)
  ROOT t = (f32[4,7], f32[10,7], f32[10,7]) tuple(a, c, e)
})", Exactness::kBits},
    {"slices_of_types", R"(HloModule m
ENTRY main {
  h = f16[10,7] parameter(0)
  b = bf16[10,7] parameter(1)
  d = f64[10,7] parameter(2)
  c = c64[10,7] parameter(3)
  p = pred[10,7] parameter(4)
  i = s64[] parameter(5)
  j = s64[] constant(2)
  u = c64[3,7] parameter(6)
  r1 = f16[4,7] dynamic-slice(h, i, j), dynamic_slice_sizes={4,7}
  r2 = bf16[1,7] dynamic-slice(b, i, j), dynamic_slice_sizes={1,7}
  r3 = f64[10,2] dynamic-slice(d, j, i), dynamic_slice_sizes={10,2}
  r4 = c64[4,3] dynamic-slice(c, i, i), dynamic_slice_sizes={4,3}
  r5 = pred[4,7] dynamic-slice(p, i, j), dynamic_slice_sizes={4,7}
  r6 = c64[10,7] dynamic-update-slice(c, u, i, j)
  ROOT t = (f16[4,7], bf16[1,7], f64[10,2], c64[4,3], pred[4,7], c64[10,7]) tuple(r1, r2, r3, r4, r5, r6)
})", Exactness::kBits},
    // There are no updates, so all rows are moved without arithmetic, which keeps the bits of special values.
    {"signs_beside_sums", "HloModule m\n" ADD_F32 R"(ENTRY main {
  x = f32[10,6] parameter(0)
  i = s32[0,1] parameter(1)
  u = f32[0,6] parameter(2)
  ROOT s = f32[10,6] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
})", Exactness::kBits},
    // Initial values that are not identities of the reducer.
    {"variadic_sum_from_five", R"(HloModule m
both { a = f32[] parameter(0) b = s32[] parameter(1) c = f32[] parameter(2) d = s32[] parameter(3)
  p = f32[] add(a, c) q = s32[] add(b, d) ROOT t = (f32[], s32[]) tuple(p, q) }
ENTRY main {
  x = f32[10,7] parameter(0)
  y = s32[10,7] parameter(1)
  i = f32[] constant(5)
  j = s32[] constant(7)
  ROOT r = (f32[7], s32[7]) reduce(x, y, i, j), dimensions={0}, to_apply=both
})"},
    {"subtract", R"(HloModule m
sub { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] subtract(a, b) }
ENTRY main {
  x = s32[10,7] parameter(0)
  zero = s32[] constant(0)
  ROOT r = s32[7] reduce(x, zero), dimensions={0}, to_apply=sub
})"},
    // This reducer is associative but not commutative, so the result depends on the order of the parts.
    {"first_of_ties", R"(HloModule m
first { a = s32[] parameter(0) i = s32[] parameter(1) b = s32[] parameter(2) j = s32[] parameter(3)
  k = pred[] compare(a, b), direction=GE  v = s32[] select(k, a, b)  n = s32[] select(k, i, j)
  ROOT t = (s32[], s32[]) tuple(v, n) }
ENTRY main {
  x = s32[24,4] parameter(0)
  n = s32[24,4] iota(), iota_dimension=0
  least = s32[] constant(-100)
  none = s32[] constant(0)
  a = (s32[4], s32[4]) reduce(x, n, least, none), dimensions={0}, to_apply=first
  b = (s32[], s32[]) reduce(x, n, least, none), dimensions={0,1}, to_apply=first
  a1 = s32[4] get-tuple-element(a), index=1
  b1 = s32[] get-tuple-element(b), index=1
  ROOT t = (s32[4], s32[]) tuple(a1, b1)
})"},
    {"last", R"(HloModule m
last { a = s32[] parameter(0) ROOT b = s32[] parameter(1) }
ENTRY main {
  x = s32[10,7] parameter(0)
  zero = s32[] constant(0)
  ROOT r = s32[7] reduce(x, zero), dimensions={0}, to_apply=last
})"},
    {"first_infinity", "first_infinity.hlo"},
    {"scatter_subtract", R"(HloModule m
sub { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] subtract(a, b) }
ENTRY main {
  x = s32[10,6] parameter(0)
  i = s32[7,1] parameter(1)
  u = s32[7,6] parameter(2)
  ROOT s = s32[10,6] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sub
})"},
};

const PartitionedCase kIndexPrograms[] = {
    {"take_rows", R"(HloModule m
ENTRY main {
  x = f32[10,6] parameter(0)
  i = s32[4,5,1] parameter(1)
  ROOT g = f32[4,5,6] gather(x, i), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0},
      index_vector_dim=2, slice_sizes={1,6}
})", Exactness::kBits},
    {"take_rows_implicit", R"(HloModule m
ENTRY main {
  x = s32[10,6] parameter(0)
  i = s32[5] parameter(1)
  ROOT g = s32[6,5] gather(x, i), offset_dims={0}, collapsed_slice_dims={0}, start_index_map={0},
      index_vector_dim=1, slice_sizes={1,6}
})", Exactness::kBits},
    {"take_along", R"(HloModule m
ENTRY main {
  x = f32[10,6] parameter(0)
  i = s32[10,1,1] parameter(1)
  ROOT g = f32[10,1] gather(x, i), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1},
      operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}
})", Exactness::kBits},
    {"gather_blocks", R"(HloModule m
ENTRY main {
  x = f32[10,6,4] parameter(0)
  i = s32[7,2] parameter(1)
  ROOT g = f32[7,3,4] gather(x, i), offset_dims={1,2}, collapsed_slice_dims={1}, start_index_map={1,0},
      index_vector_dim=1, slice_sizes={3,1,4}
})", Exactness::kBits},
    {"gather_whole", R"(HloModule m
ENTRY main {
  x = f32[5,2,3,7] parameter(0)
  i = s32[4,2] parameter(1)
  ROOT g = f32[4,2,3,7] gather(x, i), offset_dims={1,2,3}, collapsed_slice_dims={0}, start_index_map={0,1},
    index_vector_dim=1, slice_sizes={1,2,3,7}
})", Exactness::kBits},
    {"gather_u8", R"(HloModule m
ENTRY main {
  x = f32[10,6] parameter(0)
  i = u8[7,2] parameter(1)
  ROOT g = f32[7] gather(x, i), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1},
      index_vector_dim=1, slice_sizes={1,1}
})", Exactness::kBits},
    {"scatter_add", "HloModule m\n" ADD_F32 R"(ENTRY main {
  x = f32[10,6] parameter(0)
  i = s32[7,1] parameter(1)
  u = f32[7,6] parameter(2)
  ROOT s = f32[10,6] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
})"},
    {"scatter_zeros", "HloModule m\n" ADD_F32 R"(ENTRY main {
  z = f32[] constant(0)
  x = f32[10,6] broadcast(z), dimensions={}
  i = s32[3,5,1] parameter(0)
  u = f32[3,5,6] parameter(1)
  ROOT s = f32[10,6] scatter(x, i, u), update_window_dims={2}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=2, to_apply=add
})"},
    {"scatter_max", "HloModule m\n" MAX_F32 R"(ENTRY main {
  x = f32[10,6] parameter(0)
  i = s32[7,2] parameter(1)
  u = f32[7] parameter(2)
  ROOT s = f32[10,6] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0,1},
      scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=max
})"},
    {"scatter_batch", "HloModule m\n" ADD_F32 R"(ENTRY main {
  x = f32[10,6] parameter(0)
  i = s32[10,1,1] parameter(1)
  u = f32[10,1] parameter(2)
  ROOT s = f32[10,6] scatter(x, i, u), update_window_dims={}, inserted_window_dims={1},
      scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0},
      index_vector_dim=2, to_apply=add
})"},
    {"scatter_blocks", "HloModule m\n" ADD_F32 R"(ENTRY main {
  x = f32[10,6] parameter(0)
  i = s32[5,2] parameter(1)
  u = f32[5,3,6] parameter(2)
  ROOT s = f32[10,6] scatter(x, i, u), update_window_dims={1,2}, inserted_window_dims={},
      scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=add
})"},
    {"scatter_overwrite", R"(HloModule m
second { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }
ENTRY main {
  x = f32[10,6] parameter(0)
  i = s32[2,1] constant({{3}, {7}})
  u = f32[2,6] parameter(1)
  ROOT s = f32[10,6] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=second
})", Exactness::kBits},
};

const PartitionedCase kOtherPrograms[] = {
    {"sort", R"(HloModule m
less { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT }
ENTRY main {
  x = f32[10,7] parameter(0)
  i = s32[10,7] iota(), iota_dimension=1
  ROOT s = (f32[10,7], s32[10,7]) sort(x, i), dimensions={1}, is_stable=true, to_apply=less
})"},
    {"cumsum", "HloModule m\n" ADD_S32 R"(ENTRY main {
  x = s32[10,7] parameter(0)
  z = s32[] constant(0)
  ROOT r = s32[10,7] reduce-window(x, z), window={size=10x1 pad=9_0x0_0}, to_apply=adds
})"},
    {"cumsum_from_three", "HloModule m\n" ADD_S32 R"(ENTRY main {
  x = s32[10,7] parameter(0)
  z = s32[] constant(3)
  ROOT r = s32[10,7] reduce-window(x, z), window={size=10x1 pad=0_9x0_0}, to_apply=adds
})"},
    {"pool", "HloModule m\n" MAX_F32 R"(ENTRY main {
  x = f32[3,8,6,4] parameter(0)
  z = f32[] constant(-inf)
  ROOT r = f32[3,4,3,4] reduce-window(x, z), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=max
})"},
    {"convolution", R"(HloModule m
ENTRY main {
  x = f32[6,5,5,7] parameter(0)
  k = f32[3,3,7,10] parameter(1)
  ROOT c = f32[6,5,5,10] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
})"},
    {"convolution_depthwise", R"(HloModule m
ENTRY main {
  x = f32[2,10,7] parameter(0)
  k = f32[3,1,7] parameter(1)
  ROOT c = f32[2,10,7] convolution(x, k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, feature_group_count=7
})"},
    {"convolution_batch_groups", R"(HloModule m
ENTRY main {
  x = f32[7,10,3] parameter(0)
  k = f32[4,3,7] parameter(1)
  ROOT c = f32[1,9,7] convolution(x, k), window={size=4 pad=1_1}, dim_labels=b0f_0io->b0f, batch_group_count=7
})"},
    {"convolution_groups", R"(HloModule m
ENTRY main {
  x = f32[6,5,12] parameter(0)
  k = f32[3,2,24] parameter(1)
  ROOT c = f32[6,5,24] convolution(x, k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, feature_group_count=6
})"},
    {"barrier", R"(HloModule m
ENTRY main {
  x = f32[10] parameter(0)
  y = s32[7] parameter(1)
  t = (f32[10], s32[7]) tuple(x, y)
  b = (f32[10], s32[7]) opt-barrier(t)
  u = f32[10] get-tuple-element(b), index=0
  v = s32[7] get-tuple-element(b), index=1
  w = (f32[10], f32[10]) tuple(u, x)
  ROOT r = (s32[7], (f32[10], f32[10])) tuple(v, w)
})", Exactness::kBits},
    {"while", "while.hlo"},
    {"tokens", "tokens.hlo"},
    {"conditional", R"(HloModule m
yes { x = f32[10,7] parameter(0) ROOT y = f32[10,7] negate(x) }
no { t = (f32[10,7], f32[7]) parameter(0)
  x = f32[10,7] get-tuple-element(t), index=0
  b = f32[7] get-tuple-element(t), index=1
  c = f32[10,7] broadcast(b), dimensions={1}
  ROOT y = f32[10,7] add(x, c) }
ENTRY main {
  x = f32[10,7] parameter(0)
  b = f32[7] parameter(1)
  p = pred[] parameter(2)
  t = (f32[10,7], f32[7]) tuple(x, b)
  ROOT c = f32[10,7] conditional(p, x, t), true_computation=yes, false_computation=no
})"},
    {"topk", R"(HloModule m
ENTRY main {
  x = f32[10,7] parameter(0)
  ROOT t = (f32[10,3], s32[10,3]) topk(x), k=3, largest=true
})"},
    {"complex", R"(HloModule m
ENTRY main {
  x = f32[10,6] parameter(0)
  y = f32[10,6] parameter(1)
  c = c64[10,6] complex(x, y)
  d = c64[10,10] dot(c, c), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT r = f32[10,10] real(d)
})"},
    {"halves", R"(HloModule m
ENTRY main {
  x = bf16[10,6] parameter(0)
  y = bf16[6,7] parameter(1)
  d = f32[10,7] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = bf16[10,7] convert(d)
})"},
    {"empty", R"(HloModule m
ENTRY main {
  x = f32[0,6] parameter(0)
  y = f32[6,3] parameter(1)
  ROOT d = f32[0,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})"},
};

const char* const kMeshes[] = {"dp=2", "dp=3", "dp=8", "dp=4,tp=2", "dp=2,tp=3", "dp=2,tp=2,pp=2"};

// Checks one program with one mesh and seed.
void RunOne(const PartitionedCase& program, const char* mesh_text, uint64_t seed) {
  SCOPED_TRACE(absl::StrCat(program.name, " on ", mesh_text, ", seed ", seed));
  const bool is_file = std::string(program.text).ends_with(".hlo");
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(
      is_file ? hlo::TestText(absl::StrCat("sharding/partition/testdata/", program.text)) : program.text);
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<hlo::Literal> inputs = SampleInputs(**module, seed * 31);
  if (program.exactness == Exactness::kBits) inputs = WithSpecialValues(std::move(inputs));
  absl::StatusOr<hlo::Literal> whole = hlo::Evaluate(**module, inputs);
  ASSERT_TRUE(whole.ok()) << whole.status();
  absl::StatusOr<Mesh> mesh = ParseMesh(mesh_text);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  const ShardedModule sharded = WithRandomShardings(*std::move(module), *mesh, seed);
  absl::StatusOr<PartitionedProgram> partitioned = Partition(sharded, FamilyOf);
  ASSERT_TRUE(partitioned.ok()) << partitioned.status();
  const hlo::Module& local = *partitioned->variants[0].module;
  EXPECT_TRUE(hlo::Verify(local).ok()) << hlo::Verify(local);
  EXPECT_TRUE(CheckCollectives(*partitioned, local).ok()) << CheckCollectives(*partitioned, local);
  EXPECT_TRUE(CheckReplicasAgree(*partitioned, local).ok()) << CheckReplicasAgree(*partitioned, local);
  EXPECT_TRUE(CheckPartials(*partitioned, local).ok()) << CheckPartials(*partitioned, local);
  absl::StatusOr<hlo::Literal> joined = EvaluatePartitioned(*partitioned, inputs);
  ASSERT_TRUE(joined.ok()) << joined.status() << "\n" << hlo::PrintText(local);
  const absl::Status same = CompareValues(*joined, *whole, 1e-5, program.exactness);
  EXPECT_TRUE(same.ok()) << same << "\n" << hlo::PrintText(local);
}

class Differential : public testing::TestWithParam<PartitionedCase> {};

TEST_P(Differential, PartitionedEqualsSource) {
  for (const char* mesh : kMeshes) {
    for (uint64_t seed = 1; seed <= CaseCount(6, 40); ++seed) {
      RunOne(GetParam(), mesh, seed);
      if (HasFailure()) return;
    }
  }
}

std::string CaseName(const testing::TestParamInfo<PartitionedCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Basic, Differential, testing::ValuesIn(kPartitionedCases), CaseName);
INSTANTIATE_TEST_SUITE_P(Index, Differential, testing::ValuesIn(kIndexPrograms), CaseName);
INSTANTIATE_TEST_SUITE_P(Other, Differential, testing::ValuesIn(kOtherPrograms), CaseName);

}  // namespace
}  // namespace xlad::sharding

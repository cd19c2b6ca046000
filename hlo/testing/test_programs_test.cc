// Defines the programs of test_programs.h, and tests that they contain every opcode.
#include "hlo/testing/test_programs.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "hlo/opcode.h"
#include "hlo/testing/test_material.h"

namespace xlad::hlo {
namespace {

// Computations in braces, as to_apply= accepts them.
#define XLAD_ADD "{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"
#define XLAD_LESS "{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }"

constexpr absl::string_view kElementwiseOps[] = {
    "f32[2,<=3]{1,0} abs(f32[2,<=3]{1,0} x)", "f32[2] acos(f32[2] x)", "f32[2] acosh(f32[2] x)",
    "f32[2] asin(f32[2] x)", "f32[2] asinh(f32[2] x)", "f32[2] atan(f32[2] x)", "f32[2] atanh(f32[2] x)",
    "f32[2] cbrt(f32[2] x)", "f32[2] ceil(f32[2] x)", "f32[2] cosine(f32[2] x)", "f32[2] cosh(f32[2] x)",
    "s32[2] count-leading-zeros(s32[2] x)", "f32[2] erf(f32[2] x)",
    "f32[2] exponential(f32[2] x), result_accuracy={mode=highest}",
    "f32[2] exponential-minus-one(f32[2] x), result_accuracy={tolerance={atol=1,rtol=0.5,ulps=3}}",
    "f32[2] floor(f32[2] x)", "f32[2] imag(c64[2] x)", "pred[2] is-finite(f32[2] x)", "f32[2] log(f32[2] x)",
    "f32[2] log-plus-one(f32[2] x)", "f32[2] logistic(f32[2] x)", "f32[2] negate(f32[2] x)", "pred[2] not(pred[2] x)",
    "u32[2] popcnt(u32[2] x)", "f32[2] real(c64[2] x)", "f32[2] round-nearest-afz(f32[2] x)",
    "f32[2] round-nearest-even(f32[2] x)", "f32[2] rsqrt(f32[2] x)", "f32[2] sign(f32[2] x)", "f32[2] sine(f32[2] x)",
    "f32[2] sinh(f32[2] x)", "f32[2] sqrt(f32[2] x)", "f32[2] tan(f32[2] x)", "f32[2] tanh(f32[2] x)",
    "s8[2] convert(f32[2] x)", "u32[2] bitcast-convert(f32[2] x)",
    "f32[2] reduce-precision(f32[2] x), exponent_bits=5, mantissa_bits=10", "f32[2] add(f32[2] x, f32[2] y)",
    "f32[2] subtract(f32[2] x, f32[2] y)", "f32[2] multiply(f32[2] x, f32[2] y)", "f32[2] divide(f32[2] x, f32[2] y)",
    "f32[2] remainder(f32[2] x, f32[2] y)", "f32[2] power(f32[2] x, f32[2] y)", "f32[2] maximum(f32[2] x, f32[2] y)",
    "f32[2] minimum(f32[2] x, f32[2] y)", "s32[2] and(s32[2] x, s32[2] y)", "s32[2] or(s32[2] x, s32[2] y)",
    "s32[2] xor(s32[2] x, s32[2] y)", "s32[2] shift-left(s32[2] x, s32[2] y)",
    "s32[2] shift-right-arithmetic(s32[2] x, s32[2] y)", "s32[2] shift-right-logical(s32[2] x, s32[2] y)",
    "f32[2] atan2(f32[2] x, f32[2] y)", "c64[2] complex(f32[2] x, f32[2] y)",
    "pred[2] compare(f32[2] x, f32[2] y), direction=GE, type=TOTALORDER",
    "pred[2] compare(s32[2] x, s32[2] y), direction=NE", "s32[2] mulhi(s32[2] x, s32[2] y)",
    "s8[2] stochastic-convert(f32[2] x, u32[2] y)", "f32[2] clamp(f32[] x, f32[2] y, f32[] z)",
    "f32[2] select(pred[2] x, f32[2] y, f32[2] z)",
};

constexpr absl::string_view kShapeOps[] = {
    "f32[2]{0} bitcast(f32[2]{0} x)", "f32[2,3]{1,0} broadcast(f32[3]{0} x), dimensions={1}",
    "f32[6]{0} reshape(f32[2,3]{1,0} x)", "f32[3,2] transpose(f32[2,3] x), dimensions={1,0}",
    "f32[2,1] slice(f32[4,3] x), slice={[0:4:2], [1:2]}", "f32[2,3] reverse(f32[2,3] x), dimensions={0,1}",
    "f32[2,3]{0,1:T(8,128)(2,1)E(4)S(5)} copy(f32[2,3]{1,0:S(1)} x)",
    "f32[1,3] dynamic-slice(f32[2,3] x, s32[] i, s32[] j), dynamic_slice_sizes={1,3}",
    "f32[2] dynamic-update-slice(f32[2] x, f32[1] y, s32[] i)",
    "f32[5] concatenate(f32[2] x, f32[3] y), dimensions={0}",
    "f32[<=6] dynamic-reshape(f32[2,3] x, s32[] n)", "f32[7,4] pad(f32[2,3] x, f32[] y), padding=1_2_2x-1_2",
    "f32[3,2] gather(f32[5,2] x, s32[3,1] i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={1,2}, indices_are_sorted=true",
    "f32[4,3] gather(f32[4,5] x, s32[4,3,1] i), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, "
    "operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}",
    "f32[5,2] scatter(f32[5,2] x, s32[3,1] i, f32[3,2] u), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, indices_are_sorted=true, unique_indices=true, "
    "to_apply=" XLAD_ADD,
    "s32[4,3] iota(), iota_dimension=1", "f32[] constant(1)", "f32[2]{0} parameter(0), parameter_replication={true}",
    "(f32[2], (s32[], token[])) tuple(f32[2] x, (s32[], token[]) y)",
    "s32[] get-tuple-element((f32[2], s32[]) x), index=1", "s32[] get-dimension-size(f32[<=3] x), dimensions={0}",
    "f32[<=3] set-dimension-size(f32[3] x, s32[] n), dimensions={0}",
    "f32[?,4] add(f32[?,4] x, f32[?,4] y)", "(f32[?,<=4]{0,1}, s32[?]) tuple(f32[?,<=4]{0,1} x, s32[?] y)",
};

constexpr absl::string_view kContractions[] = {
    "f32[2,5] dot(f32[2,3] x, f32[3,5] y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    "operand_precision={highest,default}, algorithm=dot_bf16_bf16_f32_x3",
    "f32[4,2,5] dot(f32[4,2,3] x, f32[4,3,5] y), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
    "rhs_contracting_dims={1}",
    "f32[1,4,4,8] convolution(f32[1,9,9,4] x, f32[3,3,2,8] y), "
    "window={size=3x3 stride=2x2 pad=0_1x1_0 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=1x0}, "
    "dim_labels=b01f_01io->b01f, feature_group_count=2, operand_precision={high,high}",
    "f32[2,5,5,8,4] custom-call(f32[2,6,6,4,4] x, f32[2,2,4,4,8] y), custom_call_target=\"conv\", window={size=2x2}, "
    "dim_labels=b01f?_01i?o->b01f?",
    "f32[3,6,5] convolution(f32[6,4,5] x, f32[1,4,6] y), window={size=1}, dim_labels=b0f_0io->fb0, "
    "batch_group_count=2",
    "f32[11,7] ragged-dot(f32[11,5] x, f32[3,5,7] y, s32[3] g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
    "lhs_ragged_dims={0}, rhs_group_dims={0}",
    "f32[2,5] scaled-dot(f8e4m3fn[2,32] x, f8e4m3fn[32,5] y, f8e8m0fnu[2,1] s, f8e8m0fnu[1,5] t), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "f32[2] reduce(f32[2,3] x, f32[] y), dimensions={1}, to_apply=" XLAD_ADD,
    "f32[2,2] reduce-window(f32[4,3] x, f32[] y), window={size=2x2 stride=2x1}, to_apply=" XLAD_ADD,
    "(f32[4], f32[]) scan(f32[4] x, f32[] y), dimensions={0}, num_carries=1, is_reverse=true, is_associative=true, "
    "to_apply={ a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] add(a, b) "
    "ROOT t = (f32[], f32[]) tuple(c, c) }",
    "f32[] reduce-window(f32[] x, f32[] y), to_apply=" XLAD_ADD, "f32[] slice(f32[] x), slice={}",
    "f32[2,3] sort(f32[2,3] x), dimensions={1}, is_stable=true, to_apply=" XLAD_LESS,
    "f32[2] map(f32[2] x, f32[2] y), dimensions={0}, to_apply=" XLAD_ADD,
    "f32[4] select-and-scatter(f32[4] x, f32[2] y, f32[] z), window={size=2 stride=2}, select=" XLAD_LESS
    ", scatter=" XLAD_ADD,
    "(f32[2,4], s32[2,4]) topk(f32[2,9] x), k=4, largest=false, is_stable=false",
};

constexpr absl::string_view kMath[] = {
    "c64[5] fft(f32[8] x), fft_type=RFFT, fft_length={8}", "f32[2,2] cholesky(f32[2,2] x), lower=true",
    "f32[2,2] triangular-solve(f32[2,2] x, f32[2,2] y), left_side=true, lower=true, unit_diagonal=true, "
    "transpose_a=ADJOINT",
    "(f32[2,3], f32[3], f32[3]) batch-norm-training(f32[2,3] x, f32[3] s, f32[3] o), epsilon=0.001, feature_index=1",
    "f32[2,3] batch-norm-inference(f32[2,3] x, f32[3] s, f32[3] o, f32[3] m, f32[3] v), epsilon=0.001, "
    "feature_index=1",
    "(f32[2,3], f32[3], f32[3]) batch-norm-grad(f32[2,3] x, f32[3] s, f32[3] m, f32[3] v, f32[2,3] g), "
    "epsilon=1e-05, feature_index=1",
    "f32[4] shuffle(f32[4] x), dimensions={0}", "f32[4] rng(f32[] x, f32[] y), distribution=rng_uniform",
    "u32[4] rng-bit-generator(u64[8] x), algorithm=rng_default",
    "(u64[2], u32[4]) rng-bit-generator(u64[2] x), algorithm=rng_three_fry",
    "u64[2] rng-get-and-update-state(), delta=4096",
};

constexpr absl::string_view kControl[] = {
    "f32[] call(f32[] x, f32[] y), to_apply=" XLAD_ADD ", is_composite=true",
    "f32[] fusion(f32[] x, f32[] y), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=" XLAD_ADD,
    "f32[] conditional(pred[] p, f32[] x, f32[] y), true_computation={ a = f32[] parameter(0) }, "
    "false_computation={ a = f32[] parameter(0) }",
    "f32[] conditional(s32[] p, f32[] x, f32[] y), branch_computations={{ a = f32[] parameter(0) }, "
    "{ a = f32[] parameter(0) }}",
    "s32[] while(s32[] x), body={ a = s32[] parameter(0) }, condition={ a = s32[] parameter(0) "
    "ROOT t = pred[] constant(true) }",
    "f32[2]{0} custom-call(f32[2]{0} x), custom_call_target=\"a\\\"b\", operand_layout_constraints={f32[2]{0}}, "
    "custom_call_has_side_effect=true, output_to_operand_aliasing={{}: (0, {})}, api_version=API_VERSION_TYPED_FFI, "
    "schedule=SCHEDULE_LATEST, backend_config={\"a\": {\"b\": [1, 2]}}",
    "f32[2]{0} custom-call(f32[2]{0} x), custom_call_target=\"f\", called_computations={" XLAD_ADD "}, "
    "backend_config=\"plain \\n text\"",
    "(f32[2], s32[]) opt-barrier((f32[2], s32[]) x)", "token[] after-all()",
    "f32[2] add-dependency(f32[2] x, token[] y)", "f32[2] domain(f32[2] x), domain={kind=\"sharding\", entry={manual}, "
    "exit={replicated}}",
    "((f32[2]), token[]) infeed(token[] x), infeed_config=\"c\"",
    "token[] outfeed((f32[2]{0}) x, token[] y), outfeed_shape=(f32[2]{0}), outfeed_config=\"c\"",
    "(f32[2], u32[], token[]) send(f32[2] x, token[] y), channel_id=3, is_host_transfer=true",
    "token[] send-done((f32[2], u32[], token[]) x), channel_id=3, is_host_transfer=true",
    "(f32[2], u32[], token[]) recv(token[] y), channel_id=3",
    "(f32[2], token[]) recv-done((f32[2], u32[], token[]) x), channel_id=3",
    "u32[] partition-id()", "u32[] replica-id()",
};

constexpr absl::string_view kCollectives[] = {
    "f32[2] all-reduce(f32[2] x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply="
    XLAD_ADD,
    "f32[2] all-reduce(f32[2] x), replica_groups={}, constrain_layout=true, to_apply=" XLAD_ADD,
    "f32[1] reduce-scatter(f32[2] x), replica_groups={{0,1}}, dimensions={0}, to_apply=" XLAD_ADD,
    "f32[2] collective-reduce(f32[2] x), replica_groups={{0,1}}, to_apply=" XLAD_ADD,
    "f32[4] all-gather(f32[2] x), channel_id=1, replica_groups=[2,2]<=[4], dimensions={0}, use_global_device_ids=true",
    "f32[2] all-to-all(f32[2] x), replica_groups={{0,1}}, dimensions={0}",
    "(f32[2], f32[2]) all-to-all(f32[2] x, f32[2] y), replica_groups={{0,1}}",
    "s64[4] ragged-all-to-all(s64[4] x, s64[4] y, s64[2] a, s64[2] b, s64[2] c, s64[2] d), replica_groups={{0,1}}",
    "f32[2] collective-permute(f32[2] x), channel_id=1, source_target_pairs={{0,1},{1,0}}",
    "f32[2] collective-broadcast(f32[2] x), replica_groups={{0,1}}, has_dynamic_root=false",
    "f32[2] all-reduce-start(f32[2] x), replica_groups={}, to_apply=" XLAD_ADD,
    "f32[2] all-reduce-done(f32[2] x)",
    "(f32[2], f32[4]) all-gather-start(f32[2] x), replica_groups={{0,1}}, dimensions={0}",
    "f32[4] all-gather-done((f32[2], f32[4]) x)",
    "(f32[2], f32[2]) collective-permute-start(f32[2] x), source_target_pairs={{0,1}}",
    "f32[2] collective-permute-done((f32[2], f32[2]) x)",
    "(f32[2], f32[2], u32[]) copy-start(f32[2] x), cross_program_prefetch_index=0",
    "f32[2] copy-done((f32[2], f32[2], u32[]) x)",
    "((f32[], f32[]), f32[], u32[]) async-start(f32[] x, f32[] y), async_execution_thread=\"t\", calls=" XLAD_ADD,
    "((f32[8]), f32[2], s32[]) slice-start(f32[8] x), slice={[2:8:3]}, metadata={op_name=\"a\"}",
    "((f32[8]), f32[2], s32[]) reduce-scatter-start(f32[8] x), channel_id=0, replica_groups={{0,1,2,3}}, "
    "dimensions={0}, async_execution_thread=\"side\", to_apply=" XLAD_ADD,
    "((f32[2], f32[3]), f32[2], u32[]) custom-call-start(f32[2] x, f32[3] y), custom_call_target=\"f\", "
    "backend_config={\"a\": 1}, frontend_attributes={k=\"v\"}",
    "((f32[], f32[]), f32[], u32[]) async-update(((f32[], f32[]), f32[], u32[]) x)",
    "f32[] async-done(((f32[], f32[]), f32[], u32[]) x)",
};

constexpr absl::string_view kCommon[] = {
    "f32[2] add(f32[2] x, f32[2] y), metadata={op_type=\"t\" op_name=\"jit(f)/\\303\\251\" source_file=\"a b.py\" "
    "source_line=7 source_end_line=8 source_column=1 source_end_column=2 stack_frame_id=3 "
    "deduplicated_name=\"d\" preserve_layout=true}",
    "f32[2] add(f32[2] x, f32[2] y), frontend_attributes={a=\"1\",b={n = 2 : i64},\"odd key\"=\"v\",z=\"{not closed\"}",
    "f32[2] add(f32[2] x, f32[2] y), control-predecessors={x}, backend_config={}",
    "f32[2] add(f32[2] x, f32[2] y), origin={{\"x\" {0}}}, statistics={visualizing_index=0,a=1}",
    "b(f32[2]) custom-call(b(f32[2]) x, opaque[] y), custom_call_target=\"f\"",
};

template <size_t N>
void Append(const absl::string_view (&from)[N], std::vector<absl::string_view>* to) {
  to->insert(to->end(), std::begin(from), std::end(from));
}

}  // namespace

std::vector<absl::string_view> InstructionSnippets() {
  std::vector<absl::string_view> all;
  Append(kElementwiseOps, &all);
  Append(kShapeOps, &all);
  Append(kContractions, &all);
  Append(kMath, &all);
  Append(kControl, &all);
  Append(kCollectives, &all);
  Append(kCommon, &all);
  return all;
}

std::vector<absl::string_view> ShardingSnippets() {
  return {
      "{replicated}", "{manual}", "{unknown}", "{unreduced}", "{maximal device=3}", "{}",
      "{devices=[2,4]0,1,2,3,4,5,6,7}", "{devices=[2,4]<=[8]}", "{devices=[4,2]<=[2,4]T(1,0)}",
      "{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
      "{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}", "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}",
      "{{replicated}, {devices=[2]<=[2]}}", "{{{manual}}, {replicated}}", "{replicated shard_as 4}",
      "{devices=[2]<=[2] shard_like 7}", "{replicated metadata={op_name=\"a\" source_line=3}}",
      "{devices=[2]0,1 shard_as 1 metadata={{op_name=\"a\"}, {op_name=\"b\"}}}",
      "{mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2, ?}]}", "{mesh['a'=2,'b'=4], [{?}, {}], replicated={'b':(2)2}}",
      "{mesh['a'=2,'b'=4], device_ids=(7,6,5,4,3,2,1,0), [{'a', 'b'}]}",
      "{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a'}], unreduced={'b'}}",
      "{mesh['a'=2,'b'=4], [{'a'}], unreduced=max{'b'}}", "{mesh['a'=2,'b'=4], [{}], manual={'a'}}",
      "{mesh['a'=2], replicated}", "{mesh['a'=2,'b'=4], manual}", "{mesh['a'=2,'b'=4], unreduced}",
      "{mesh['a'=2,'b'=4], unreduced=min}", "{maximal_mesh[device_id=5]}",
      "{mesh['a'=2], [{'a'}], metadata={{op_name=\"x\"}}}", "{{mesh['a'=2], [{'a'}]}, {replicated}}",
      "{{replicated}, {replicated}, {replicated}, {replicated}, {replicated}, /*index=5*/{manual}}",
  };
}

std::vector<absl::string_view> ReplicaGroupSnippets() {
  return {"{}", "{{0,1,2,3,4,5,6,7}}", "{{0,2},{1,3}}", "[2,4]<=[8]", "[4,2]<=[2,4]T(1,0)", "[2,4]<=[2,4]T(0,1)",
          "mesh['a'=2,'b'=4] {'a'}", "mesh['a'=2,'b'=4] {'a', 'b':(2)2}", "mesh['a'=2,'b'=4] {}",
          "mesh['a'=2,'b'=4], device_ids=(1,0,3,2,5,4,7,6) {'b'}"};
}

std::vector<absl::string_view> LiteralSnippets() {
  return {
      "pred[] constant(true)", "pred[2]{0} constant({true, false})", "s1[2]{0} constant({-1, 0})",
      "u1[2]{0} constant({1, 0})", "s2[3]{0} constant({-2, 1, 0})", "u2[2]{0} constant({3, 0})",
      "s4[3]{0} constant({-8, 7, 0})", "u4[2]{0} constant({15, 0})", "s8[2]{0} constant({-128, 127})",
      "u8[2]{0} constant({0, 255})",
      "f32[1000000,1000]{1,0} constant({...})", "s16[2]{0} constant({-32768, 32767})", "u16[1]{0} constant({65535})",
      "s32[2]{0} constant({-2147483648, 2147483647})", "u32[1]{0} constant({4294967295})",
      "s64[2]{0} constant({-9223372036854775808, 9223372036854775807})", "u64[1]{0} constant({18446744073709551615})",
      "f32[] constant(0.1)", "f32[6]{0} constant({inf, -inf, nan, -nan, -0.0, 3.4028235e+38})",
      "f32[3]{0} constant({nan(0x1), -nan(0x7fffff), 1e-45})", "f64[3]{0} constant({0.1, -nan(0x8), 5e-324})",
      "f16[5]{0} constant({0.1, 65500, inf, nan(0x1), -nan})",
      "bf16[4]{0} constant({0.1, 3.39e+38, -nan(0x7f), -0.0})",
      "f8e5m2[4]{0} constant({1, 60000, nan(0x1), -inf})", "f8e4m3[3]{0} constant({200, inf, nan})",
      "f8e3m4[3]{0} constant({15, inf, -nan})", "f8e4m3fn[3]{0} constant({400, nan, -nan})",
      "f8e4m3b11fnuz[2]{0} constant({30, nan})", "f8e5m2fnuz[2]{0} constant({60000, nan})",
      "f8e4m3fnuz[2]{0} constant({200, nan})", "f4e2m1fn[3]{0} constant({6, -0.5, -0.0})",
      "f8e8m0fnu[3]{0} constant({1, 0.5, nan})", "c64[2]{0} constant({(1, -0.0), (nan, inf)})",
      "c128[] constant((0.1, 1e+300))", "f32[2,2]{1,0} constant({{1, 2}, {3, 4}})",
      "f32[2,3]{0,1:T(8,128)} constant({{1, 2, 3}, {4, 5, 6}})",
      "(s4[2,1,2]{1,0,2}, c64[1,2]{0,1}) constant(({{{1, 2}}, {{3, 4}}}, {{(1, 2), (3, 4)}}))",
      "f32[2,0]{1,0} constant({{}, {}})", "f32[0,3]{1,0} constant({})", "f32[1000,2,0]{2,1,0} constant({...})",
      "f32[2,2]{1,0} constant({...})", "(f32[2]{0}, (s32[], pred[])) constant(({1, 2}, (3, true)))",
      "() constant(())",
  };
}

std::vector<absl::string_view> ModuleSnippets() {
  static const auto* const files = new std::vector<std::string>{
      TestText("hlo/testdata/text/header.hlo"), TestText("hlo/testdata/text/async_pairs.hlo"),
      TestText("hlo/testdata/text/bound_late.hlo")};
  return {
      (*files)[0],
      "ENTRY e { ROOT c = f32[] constant(1) }",
      "f { x = f32[] parameter(0) }\ng { y = f32[] parameter(0) ROOT c = f32[] call(y), to_apply=f }",
      "HloModule no_percent\nENTRY main.2 {\n  Arg_0 = f32[2]{0} parameter(0)\n  ROOT r = f32[2]{0} "
      "add(f32[2]{0} Arg_0, Arg_0)\n}",
      "HloModule inferred\nENTRY e {\n  p = f32[2,3] parameter(0)\n  ROOT r = add(multiply(p, p), p)\n}",
      "// a comment\nHloModule /* inside */ c\nENTRY e {\n  // another\n  ROOT c = f32[] constant(/*v=*/1) // end\n}",
      (*files)[1],
      (*files)[2],
      "HloModule left_out:\nENTRY %e (p f32[3], q: s32[7]) -> f32[2] {\n  p = f32[2,3] parameter(0)\n"
      "  c = f32[3] constant(7)\n  ROOT d = dot(p, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
      "operand_precision={HIGH,HIGHEST}\n}, execution_thread=\"main\"",
  };
}

namespace {

TEST(TestPrograms, ContainEveryOpcode) {
  for (int o = 0; o < OpcodeCount(); ++o) {
    const std::string call = absl::StrCat(" ", ToString(static_cast<Opcode>(o)), "(");
    bool found = false;
    for (const absl::string_view snippet : InstructionSnippets()) found |= absl::StrContains(snippet, call);
    EXPECT_TRUE(found) << call;
  }
}

}  // namespace
}  // namespace xlad::hlo

// Shape inference of every opcode, on programs that omit the result shapes. If an opcode takes part of its result shape
// from the instruction itself, the program has the shape.
#include "hlo/infer/infer.h"

#include <set>

#include "gtest/gtest.h"
#include "hlo/build/builder.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::hlo {
namespace {

// One instruction named r, the parameters that it uses ("x: f32[2], y: s32[]"), and its result.
struct InferenceCase {
  const char* parameters;
  const char* instruction;
  const char* result;
};

const std::vector<InferenceCase>& ElementwiseCases() {
  static const auto* const cases = new std::vector<InferenceCase>{
      {"x: f32[2]", "is-finite(x)", "pred[2]"},
      {"x: c64[2]", "abs(x)", "f32[2]"},
      {"x: s8[2]", "abs(x)", "s8[2]"},
      {"x: c128[]", "real(x)", "f64[]"},
      {"x: c64[3]", "imag(x)", "f32[3]"},
      {"x: f32[3]", "imag(x)", "f32[3]"},
      {"x: f32[2,0]", "complex(x, x)", "c64[2,0]"},
      {"x: f64[]", "complex(x, x)", "c128[]"},
      {"x: pred[2]", "not(x)", "pred[2]"},
      {"x: u4[2]", "popcnt(x)", "u4[2]"},
      {"x: s64[2]", "count-leading-zeros(x)", "s64[2]"},
      {"x: f8e4m3fn[5]", "negate(x)", "f8e4m3fn[5]"},
      {"x: pred[4]", "add(x, x)", "pred[4]"},
      {"x: u32[4]", "mulhi(x, x)", "u32[4]"},
      {"x: s32[4]", "shift-left(x, x)", "s32[4]"},
      {"x: s32[4]", "shift-right-logical(x, x)", "s32[4]"},
      {"x: s32[4]", "shift-right-arithmetic(x, x)", "s32[4]"},
      {"x: pred[4]", "and(x, x)", "pred[4]"},
      {"x: u8[4]", "or(x, x)", "u8[4]"},
      {"x: s32[]", "xor(x, x)", "s32[]"},
      {"x: c64[4]", "compare(x, x), direction=EQ", "pred[4]"},
      {"x: f32[4]", "compare(x, x), direction=LT, type=TOTALORDER", "pred[4]"},
      {"l: f32[], x: f32[3], h: f32[3]", "clamp(l, x, h)", "f32[3]"},
      {"c: pred[], x: f32[3]", "select(c, x, x)", "f32[3]"},
      {"c: pred[3], x: f32[3]", "select(c, x, x)", "f32[3]"},
      {"x: f32[3]", "reduce-precision(x), exponent_bits=5, mantissa_bits=10", "f32[3]"},
      {"x: f32[3]", "s32[3] convert(x)", "s32[3]"},
      {"x: u32[3]", "u8[3,4] bitcast-convert(x)", "u8[3,4]"},
      {"x: u8[3,4]", "f32[3] bitcast-convert(x)", "f32[3]"},
      {"x: f32[3,4]", "s32[3,4] bitcast-convert(x)", "s32[3,4]"},
      {"x: u8[3]", "u4[3,2] bitcast-convert(x)", "u4[3,2]"},
      {"x: f32[3], q: u32[3]", "bf16[3] stochastic-convert(x, q)", "bf16[3]"},
  };
  return *cases;
}

const std::vector<InferenceCase>& ShapeCases() {
  static const auto* const cases = new std::vector<InferenceCase>{
      {"x: f32[2,3]", "s32[6] bitcast(x)", "s32[6]"},
      {"x: f32[2]", "f32[3,2] broadcast(x), dimensions={1}", "f32[3,2]"},
      {"x: f32[2,3]", "f32[3,5,2] broadcast(x), dimensions={2,0}", "f32[3,5,2]"},
      {"x: f32[]", "f32[7] broadcast(x), dimensions={}", "f32[7]"},
      {"x: f32[2,3]", "f32[1,6,1] reshape(x)", "f32[1,6,1]"},
      {"x: f32[0,3]", "f32[7,0] reshape(x)", "f32[7,0]"},
      {"x: f32[2,3,5]", "transpose(x), dimensions={2,0,1}", "f32[5,2,3]"},
      {"x: f32[]", "transpose(x), dimensions={}", "f32[]"},
      {"x: f32[10,7]", "slice(x), slice={[1:10:3], [7:7]}", "f32[3,0]"},
      {"x: f32[10,7]", "slice(x), slice={[1:9:3], [0:7:9]}", "f32[3,1]"},
      {"x: f32[10,7]", "reverse(x), dimensions={1}", "f32[10,7]"},
      {"x: f32[10,7]", "copy(x)", "f32[10,7]"},
      {"x: f32[10,7], i: s32[]", "dynamic-slice(x, i, i), dynamic_slice_sizes={3,7}", "f32[3,7]"},
      {"x: f32[10,7], i: s32[2]", "dynamic-slice(x, i), dynamic_slice_sizes={1,0}", "f32[1,0]"},
      {"x: f32[10,7], u: f32[2,7], i: u8[]", "dynamic-update-slice(x, u, i, i)", "f32[10,7]"},
      {"x: f32[2,3], y: f32[2,5]", "concatenate(x, y, x), dimensions={1}", "f32[2,11]"},
      {"x: f32[2,3], n: s32[]", "f32[3,2] dynamic-reshape(x, n, n)", "f32[3,2]"},
      {"x: f32[4,5], v: f32[]", "pad(x, v), padding=1_2x-1_-1_2", "f32[7,11]"},
      {"x: f32[0,1], v: f32[]", "pad(x, v), padding=1_2_9x0_0_9", "f32[3,1]"},
      {"x: f32[2]", "s32[3,4] iota(), iota_dimension=1", "s32[3,4]"},
      {"x: f32[2]", "s4[3] constant({1, -2, 3})", "s4[3]"},
      {"x: f32[2]", "f32[2] parameter(1)", "f32[2]"},
      {"x: f32[2], y: s32[]", "tuple(x, y, x)", "(f32[2], s32[], f32[2])"},
      {"x: f32[2]", "tuple()", "()"},
      {"t: (f32[2], (s32[], pred[]))", "get-tuple-element(t), index=1", "(s32[], pred[])"},
      {"x: f32[2,3]", "get-dimension-size(x), dimensions={1}", "s32[]"},
      {"x: f32[2,3], n: s32[]", "set-dimension-size(x, n), dimensions={1}", "f32[2,<=3]"},
  };
  return *cases;
}

const std::vector<InferenceCase>& IndexCases() {
  static const auto* const cases = new std::vector<InferenceCase>{
      {"x: f32[10,4], i: s32[5,1]",
       "gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
       "slice_sizes={1,4}",
       "f32[5,4]"},
      {"x: f32[10,4,6], i: s32[7,2,9]",
       "gather(x, i), offset_dims={0,2}, collapsed_slice_dims={2}, start_index_map={2,0}, index_vector_dim=1, "
       "slice_sizes={3,2,1}",
       "f32[3,7,2,9]"},
      {"x: f32[5,10,4], i: s64[5,3]",
       "gather(x, i), offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, "
       "start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1,4}",
       "f32[5,3,4]"},
      {"x: f32[10,4], i: s32[5,1], u: f32[5,4]",
       "scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
       "index_vector_dim=1, to_apply=add_f32",
       "f32[10,4]"},
      {"x: f32[10,4], y: s32[10,4], i: s32[5,1], u: f32[5,3], v: s32[5,3]",
       "scatter(x, y, i, u, v), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
       "index_vector_dim=1, to_apply=argmax",
       "(f32[10,4], s32[10,4])"},
  };
  return *cases;
}

const std::vector<InferenceCase>& ContractionCases() {
  static const auto* const cases = new std::vector<InferenceCase>{
      {"x: bf16[7,3,5], y: bf16[7,5,2]",
       "f32[7,3,2] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
       "rhs_contracting_dims={1}",
       "f32[7,3,2]"},
      {"x: f32[3], y: f32[4]", "f32[3,4] dot(x, y)", "f32[3,4]"},
      {"x: f32[11,5], y: f32[3,5,7], g: s32[3]",
       "f32[11,7] ragged-dot(x, y, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, "
       "rhs_group_dims={0}",
       "f32[11,7]"},
      {"x: f32[11,5], y: f32[5,7], g: s32[3]",
       "f32[3,11,7] ragged-dot(x, y, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}",
       "f32[3,11,7]"},
      {"x: f8e4m3fn[4,32], y: f8e4m3fn[32,8], s: f8e8m0fnu[4,1], t: f8e8m0fnu[1,8]",
       "bf16[4,8] scaled-dot(x, y, s, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "bf16[4,8]"},
      {"x: f32[8,16,17,4], k: f32[3,5,2,6]",
       "f32[8,8,14,6] convolution(x, k), window={size=3x5 stride=2x1 pad=1_1x2_3 rhs_dilate=1x2 lhs_dilate=1x1}, "
       "dim_labels=b01f_01io->b01f, feature_group_count=2",
       "f32[8,8,14,6]"},
      {"x: f32[4,6], z: f32[]", "reduce-window(x, z), window={size=2x3 stride=2x1 pad=0_0x1_1}, to_apply=add_f32",
       "f32[2,6]"},
      {"x: f32[4], i: s32[4], z: f32[], w: s32[]", "reduce-window(x, i, z, w), window={size=2}, to_apply=argmax",
       "(f32[3], s32[3])"},
      {"x: f32[4,6], y: f32[2,3], z: f32[]",
       "select-and-scatter(x, y, z), window={size=2x2 stride=2x2}, select=ge, scatter=add_f32", "f32[4,6]"},
      {"x: f32[2,3,4], z: f32[]", "reduce(x, z), dimensions={0,2}, to_apply=add_f32", "f32[3]"},
      {"x: bf16[2,3], z: f32[]", "reduce(x, z), dimensions={1}, to_apply=add_bf16_in_f32", "f32[2]"},
      {"x: f32[2,3], i: s32[2,3], z: f32[], w: s32[]", "reduce(x, i, z, w), dimensions={1}, to_apply=argmax",
       "(f32[2], s32[2])"},
      {"x: f32[5], z: f64[]", "scan(x, z), dimensions={0}, num_carries=1, to_apply=running_sum", "(s32[5], f64[])"},
      {"x: f32[2,3]", "sort(x), dimensions={1}, to_apply=ge", "f32[2,3]"},
      {"x: f32[2,3], i: s32[2,3]", "sort(x, i), dimensions={0}, to_apply=sort_pairs", "(f32[2,3], s32[2,3])"},
      {"x: f32[2,3]", "map(x), dimensions={0,1}, to_apply=to_int", "s32[2,3]"},
      {"x: bf16[2,9]", "topk(x), k=4, largest=true", "(bf16[2,4], s32[2,4])"},
  };
  return *cases;
}

const std::vector<InferenceCase>& MathCases() {
  static const auto* const cases = new std::vector<InferenceCase>{
      {"x: f64[2,8]", "fft(x), fft_type=RFFT, fft_length={8}", "c128[2,5]"},
      {"x: c64[2,5]", "fft(x), fft_type=IRFFT, fft_length={9}", "f32[2,9]"},
      {"x: c64[4,6]", "fft(x), fft_type=IFFT, fft_length={4,6}", "c64[4,6]"},
      {"x: f32[7,3,3]", "cholesky(x), lower=true", "f32[7,3,3]"},
      {"a: f32[3,3], b: f32[2,3]", "triangular-solve(a, b), left_side=false, lower=true, transpose_a=TRANSPOSE",
       "f32[2,3]"},
      {"x: f32[2,3], s: f32[3]", "batch-norm-training(x, s, s), epsilon=0.001, feature_index=1",
       "(f32[2,3], f32[3], f32[3])"},
      {"x: f32[2,3], s: f32[3]", "batch-norm-inference(x, s, s, s, s), epsilon=0.001, feature_index=1", "f32[2,3]"},
      {"x: f32[2,3], s: f32[3]", "batch-norm-grad(x, s, s, s, x), epsilon=0.001, feature_index=1",
       "(f32[2,3], f32[3], f32[3])"},
      {"x: f32[4]", "shuffle(x)", "f32[4]"},
      {"a: f32[]", "f32[9] rng(a, a), distribution=rng_uniform", "f32[9]"},
      {"s: u64[3]", "(u64[3], u32[5]) rng-bit-generator(s), algorithm=rng_philox", "(u64[3], u32[5])"},
      {"x: f32[]", "rng-get-and-update-state(), delta=1", "u64[2]"},
  };
  return *cases;
}

const std::vector<InferenceCase>& ControlCases() {
  static const auto* const cases = new std::vector<InferenceCase>{
      {"x: f32[], y: f32[]", "call(x, y), to_apply=add_f32", "f32[]"},
      {"x: f32[2]", "fusion(x), kind=kLoop, calls=halves", "bf16[2]"},
      {"p: pred[], x: f32[2], y: f32[2]", "conditional(p, x, y), branch_computations={halves, halves}", "bf16[2]"},
      {"p: s32[], x: f32[]", "conditional(p, x), branch_computations={to_int}", "s32[]"},
      {"t: (s32[], f32[3])", "while(t), condition=keep_going, body=step", "(s32[], f32[3])"},
      {"x: f32[]", "(f32[2], token[]) custom-call(x), custom_call_target=\"f\"", "(f32[2], token[])"},
      {"t: (s32[], f32[3])", "opt-barrier(t)", "(s32[], f32[3])"},
      {"t: token[]", "after-all(t, t)", "token[]"},
      {"x: f32[2], t: token[]", "add-dependency(x, t)", "f32[2]"},
      {"x: f32[2]", "domain(x), domain={kind=\"sharding\", entry={replicated}, exit={replicated}}", "f32[2]"},
      {"t: token[]", "(f32[3], token[]) infeed(t)", "(f32[3], token[])"},
      {"x: f32[2], t: token[]", "outfeed(x, t), outfeed_shape=f32[2]", "token[]"},
      {"x: f32[2], t: token[]", "send(x, t), channel_id=1", "(f32[2], u32[], token[])"},
      {"t: token[]", "(f32[3], u32[], token[]) recv(t), channel_id=1", "(f32[3], u32[], token[])"},
      {"s: (f32[2], u32[], token[])", "send-done(s), channel_id=1", "token[]"},
      {"s: (f32[2], u32[], token[])", "recv-done(s), channel_id=1", "(f32[2], token[])"},
      {"x: f32[2]", "copy-start(x)", "(f32[2], f32[2], u32[])"},
      {"s: (f32[2], f32[2], u32[])", "copy-done(s)", "f32[2]"},
      {"x: f32[2]", "((f32[2]), bf16[2], s32[]) async-start(x), calls=halves", "((f32[2]), bf16[2], s32[])"},
      {"s: ((f32[2]), bf16[2], s32[])", "async-update(s)", "((f32[2]), bf16[2], s32[])"},
      {"s: ((f32[2]), bf16[2], s32[])", "async-done(s)", "bf16[2]"},
  };
  return *cases;
}

const std::vector<InferenceCase>& CollectiveCases() {
  static const auto* const cases = new std::vector<InferenceCase>{
      {"x: f32[2]", "partition-id()", "u32[]"},
      {"x: f32[2]", "replica-id()", "u32[]"},
      {"x: f32[2]", "all-reduce(x), channel_id=1, replica_groups={}, use_global_device_ids=true, to_apply=add_f32",
       "f32[2]"},
      {"x: f32[2], y: f32[3]", "all-reduce(x, y), channel_id=1, replica_groups={}, to_apply=add_f32",
       "(f32[2], f32[3])"},
      {"x: f32[2]", "all-reduce-start(x), channel_id=1, replica_groups={}, to_apply=add_f32", "f32[2]"},
      {"x: f32[2]", "all-reduce-done(x)", "f32[2]"},
      {"x: f32[2]", "collective-reduce(x), channel_id=1, replica_groups={}, to_apply=add_f32", "f32[2]"},
      {"x: f32[8,6]",
       "f32[2,6] reduce-scatter(x), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, "
       "dimensions={0}, to_apply=add_f32",
       "f32[2,6]"},
      {"x: f32[8,6]",
       "f32[8,24] all-gather(x), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, dimensions={1}",
       "f32[8,24]"},
      {"x: f32[2]", "(f32[2], f32[16]) all-gather-start(x), channel_id=1, replica_groups={}, dimensions={0}",
       "(f32[2], f32[16])"},
      {"s: (f32[2], f32[16])", "all-gather-done(s)", "f32[16]"},
      {"x: f32[8,6]", "all-to-all(x), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}", "f32[8,6]"},
      {"x: f32[6], y: f32[6]", "all-to-all(x, y), channel_id=1, replica_groups=[4,2]<=[8]", "(f32[6], f32[6])"},
      {"x: f32[8,4], o: f32[9,4], i: s32[8]", "ragged-all-to-all(x, o, i, i, i, i), channel_id=1, replica_groups={}",
       "f32[9,4]"},
      {"x: f32[6]", "collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}", "f32[6]"},
      {"x: f32[6]", "(f32[6], f32[6]) collective-permute-start(x), channel_id=1, source_target_pairs={{0,1}}",
       "(f32[6], f32[6])"},
      {"s: (f32[6], f32[6])", "collective-permute-done(s)", "f32[6]"},
      {"x: f32[6]", "f32[6] collective-broadcast(x), channel_id=1, replica_groups={{1,0}}", "f32[6]"},
  };
  return *cases;
}

std::vector<InferenceCase> AllCases() {
  std::vector<InferenceCase> all;
  for (const auto* part : {&ElementwiseCases(), &ShapeCases(), &IndexCases(), &ContractionCases(), &MathCases(),
                           &ControlCases(), &CollectiveCases()}) {
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}

std::string TextOf(const InferenceCase& c) {
  std::string text = absl::StrCat("HloModule m, num_partitions=8\n",
                                  TestText("hlo/testdata/called_computations.hlo"), "ENTRY main {\n");
  // Splits "x: f32[2], y: (f32[], s32[])". A name is the word before a colon.
  std::string rest = c.parameters;
  for (int number = 0; !rest.empty(); ++number) {
    const size_t colon = rest.find(": ");
    const size_t next = rest.find(": ", colon + 1);
    const size_t end = next == std::string::npos ? rest.size() : rest.rfind(", ", next);
    absl::StrAppend(&text, "  ", rest.substr(0, colon), " = ", rest.substr(colon + 2, end - colon - 2), " parameter(",
                    number, ")\n");
    rest = end >= rest.size() ? "" : rest.substr(end + 2);
  }
  return absl::StrCat(text, "  ROOT r = ", c.instruction, "\n}\n");
}

TEST(InferTest, InfersTheShape) {
  std::set<Opcode> seen;
  for (const InferenceCase& c : AllCases()) {
    SCOPED_TRACE(c.instruction);
    const auto module = ParseText(TextOf(c));
    ASSERT_TRUE(module.ok()) << module.status() << "\n" << TextOf(c);
    const Instruction& root = *(*module)->entry()->root();
    const absl::StatusOr<Shape> shape = InferShape(root);
    ASSERT_TRUE(shape.ok()) << shape.status();
    EXPECT_EQ(shape->ToString(), c.result);
    seen.insert(root.opcode());
  }
  // ElementwiseOverAllTypes tests the elementwise opcodes, over several types.
  for (int i = 0; i < OpcodeCount(); ++i) {
    const auto opcode = static_cast<Opcode>(i);
    EXPECT_TRUE(HasInference(opcode)) << ToString(opcode);
    if (!IsElementwise(opcode)) EXPECT_TRUE(seen.contains(opcode)) << ToString(opcode) << " has no case";
  }
}

// Verify compares the shape of every instruction with the inferred shape.
TEST(InferTest, VerifierRefusesAnyOtherShape) {
  for (const InferenceCase& c : AllCases()) {
    SCOPED_TRACE(c.instruction);
    const auto module = ParseText(TextOf(c));
    ASSERT_TRUE(module.ok());
    Instruction* const root = (*module)->entry()->root();
    // The operand of a done opcode must be a start opcode, but here it is a parameter.
    const absl::Status status = Verify(**module);
    if (!status.ok()) {
      EXPECT_NE(status.message().find("[async-pair]"), absl::string_view::npos) << status;
      continue;
    }
    // These opcodes also accept other result shapes.
    const std::set<Opcode> free = {Opcode::kParameter, Opcode::kCustomCall, Opcode::kIota, Opcode::kRngBitGenerator};
    if (free.contains(root->opcode())) continue;
    root->mutable_shape() = Shape(ElementType::kF8E3M4, {3, 1, 4, 1, 5, 9});
    EXPECT_FALSE(Verify(**module).ok());
  }
}

// The numbers of elements are equal modulo 2^64, to each other and to those of small arrays.
TEST(InferTest, SizesBeyond64Bits) {
  const Dims sizes[] = {{int64_t{1} << 62, 4}, {int64_t{1} << 62, 8}, {int64_t{1} << 62, int64_t{1} << 62}, {0}};
  for (const Opcode opcode : {Opcode::kReshape, Opcode::kBitcast}) {
    for (const Dims& from : sizes) {
      for (const Dims& to : sizes) {
        Module module("m");
        Builder builder(module.Add(std::make_unique<Computation>("main")));
        Instruction* const x = builder.Parameter(0, Shape(ElementType::kF32, from));
        auto reshape = std::make_unique<Instruction>(opcode, Shape(ElementType::kF32, to));
        const auto shape = InferShape(*x->parent()->Add(std::move(reshape), {x}));
        EXPECT_EQ(shape.ok(), from == Dims{0} && to == Dims{0}) << shape.status();
        if (!shape.ok()) EXPECT_NE(shape.status().message().find("expected at most 2^62 bytes"), std::string::npos);
      }
    }
  }
}

// Every elementwise opcode that determines its result shape accepts two or more of these types, and the result has the
// operands' sizes.
TEST(InferTest, ElementwiseOverAllTypes) {
  const ElementType types[] = {ElementType::kPred, ElementType::kS4,  ElementType::kS32,  ElementType::kU8,
                               ElementType::kU64,  ElementType::kF16, ElementType::kBF16, ElementType::kF32,
                               ElementType::kF64,  ElementType::kC64, ElementType::kC128, ElementType::kF8E5M2};
  for (int i = 0; i < OpcodeCount(); ++i) {
    const auto opcode = static_cast<Opcode>(i);
    if (!IsElementwise(opcode) || ShapeSourceOf(opcode) == ShapeSource::kGiven) continue;
    int accepted = 0;
    for (const ElementType type : types) {
      Module module("m");
      Computation* const entry = module.Add(std::make_unique<Computation>("main"));
      Builder builder(entry);
      std::vector<Instruction*> operands;
      for (int k = 0; k < Arity(opcode); ++k) operands.push_back(builder.Parameter(k, Shape(type, {2, 0, 3})));
      if (opcode == Opcode::kSelect) operands[0]->mutable_shape() = Shape(ElementType::kPred, {2, 0, 3});
      auto instruction = std::make_unique<Instruction>(opcode, Shape());
      instruction->mutable_attributes().exponent_bits = 5;
      const auto shape = InferShape(*entry->Add(std::move(instruction), operands));
      if (!shape.ok()) continue;
      ++accepted;
      EXPECT_EQ(shape->dims(), (Dims{2, 0, 3})) << ToString(opcode);
    }
    EXPECT_GT(accepted, 1) << ToString(opcode);
  }
}

}  // namespace
}  // namespace xlad::hlo

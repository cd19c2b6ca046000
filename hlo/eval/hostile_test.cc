// Programs in which numbers are replaced by extreme ones: each is refused, or evaluated within the limits.
#include <cctype>
#include <random>

#include "hlo/eval/test_programs.h"

namespace xlad::hlo {
namespace {

constexpr const char* kPrograms[] = {
    R"(HloModule m
ENTRY e { p = f32[4,5] parameter(0)
  i = s32[] constant(2)
  a = f32[2,3] slice(p), slice={[1:3:1], [0:5:2]}
  z = f32[] constant(0)
  b = f32[7,6] pad(a, z), padding=2_3_0x0_1_1
  c = f32[6,7] transpose(b), dimensions={1,0}
  d = f32[6,7] reverse(c), dimensions={0,1}
  f = f32[2,2] dynamic-slice(d, i, i), dynamic_slice_sizes={2,2}
  g = f32[6,7] dynamic-update-slice(d, f, i, i)
  h = f32[6,14] concatenate(g, g), dimensions={1}
  j = f32[84] reshape(h)
  ROOT k = f32[3,84] broadcast(j), dimensions={1} })",
    R"(HloModule m
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
ge { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = pred[] compare(x, y), direction=GE }
ENTRY e { p = f32[8,6] parameter(0)
  z = f32[] constant(0)
  r = f32[8] reduce(p, z), dimensions={1}, to_apply=add
  w = f32[4,4] reduce-window(p, z), window={size=3x2 stride=2x1 pad=1_0x0_0 rhs_dilate=1x2}, to_apply=add
  s = f32[8,6] select-and-scatter(p, w, z), window={size=2x3 stride=2x1}, select=ge, scatter=add
  t = f32[8,6] sort(s), dimensions={1}, to_apply=ge
  ROOT o = (f32[8], f32[8,6]) tuple(r, t) })",
    R"(HloModule m
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
ENTRY e { p = f32[6,4] parameter(0)
  i = s32[3,2] constant({{0, 1}, {5, 3}, {2, -7}})
  g = f32[3,2,2] gather(p, i), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1},
      index_vector_dim=1, slice_sizes={2,2}
  s = f32[6,4] scatter(p, i, g), update_window_dims={1,2}, inserted_window_dims={},
      scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=add
  ROOT t = (f32[6,2], s32[6,2]) topk(s), k=2, largest=true })",
    R"(HloModule m
ENTRY e { x = f32[1,6,5,2] parameter(0)
  k = f32[3,2,1,4] parameter(1)
  c = f32[1,6,2,4] convolution(x, k), window={size=3x2 stride=1x2 pad=1_1x0_0}, dim_labels=b01f_01io->b01f,
      feature_group_count=2
  d = f32[1,6,6] dot(c, c), lhs_batch_dims={0}, rhs_batch_dims={0},
      lhs_contracting_dims={2,3}, rhs_contracting_dims={2,3}
  h = f32[1,6,6] cholesky(d), lower=true
  s = f32[1,6,6] triangular-solve(h, d), left_side=true, lower=true, transpose_a=TRANSPOSE
  f = c64[1,6,4] fft(s), fft_type=RFFT, fft_length={6}
  ROOT r = f32[1,6,6] fft(f), fft_type=IRFFT, fft_length={6} })",
    R"(HloModule m, replica_count=2
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
ENTRY e { p = f32[4] parameter(0)
  a = f32[4] all-reduce(p), replica_groups={{0,1}}, to_apply=add
  g = f32[8] all-gather(a), replica_groups={{0,1}}, dimensions={0}
  s = f32[4] reduce-scatter(g), replica_groups={{1,0}}, dimensions={0}, to_apply=add
  t = f32[4] all-to-all(s), replica_groups={{0,1}}, dimensions={0}
  c = f32[4] collective-permute(t), source_target_pairs={{0,1},{1,0}}
  ROOT b = f32[4] collective-broadcast(c), replica_groups={{1,0}} })",
    R"(HloModule m
body { t = (s32[], u8[4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = u8[4] get-tuple-element(t), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = u32[1] bitcast-convert(x)
  k = u32[1] constant({5})
  z = u32[1] shift-left(y, k)
  v = u8[1,4] bitcast-convert(z)
  w = u8[4] reshape(v)
  ROOT r = (s32[], u8[4]) tuple(n, w) }
cond { t = (s32[], u8[4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(6)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { p = u8[4] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], u8[4]) tuple(zero, p)
  w = (s32[], u8[4]) while(t), condition=cond, body=body
  x = u8[4] get-tuple-element(w), index=1
  q = u64[2] constant({3, 4})
  rng = (u64[2], u8[4]) rng-bit-generator(q), algorithm=rng_three_fry
  y = u8[4] get-tuple-element(rng), index=1
  ROOT o = u8[4] divide(x, y) })",
};

constexpr const char* kExtremes[] = {"0",
                                     "1",
                                     "2",
                                     "3",
                                     "7",
                                     "-1",
                                     "-2",
                                     "64",
                                     "1000",
                                     "2147483647",
                                     "4294967296",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     "4611686018427387904"};

// The text with one number replaced.
std::string Mutate(const std::string& text, std::mt19937* random) {
  std::vector<std::pair<size_t, size_t>> numbers;
  for (size_t i = 0; i < text.size(); ++i) {
    const char before = i == 0 ? ' ' : text[i - 1];
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0 || std::isalnum(static_cast<unsigned char>(before))) {
      continue;
    }
    size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    numbers.emplace_back(i, end - i);
    i = end;
  }
  const auto [at, length] = numbers[(*random)() % numbers.size()];
  std::string mutant = text;
  return mutant.replace(at, length, kExtremes[(*random)() % std::size(kExtremes)]);
}

TEST(Hostile, MutantsTerminate) {
  std::mt19937 random(11);
  EvaluateLimits limits;
  limits.instructions = 20'000;
  limits.live_bytes = 1 << 22;
  limits.element_steps = 1e7;
  int evaluated = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = kPrograms[static_cast<size_t>(round) % std::size(kPrograms)];
    for (unsigned changes = random() % 4; changes > 0; --changes) text = Mutate(text, &random);
    const auto module = ParseText(text);
    if (!module.ok() || (*module)->entry() == nullptr) continue;
    std::vector<Literal> inputs;
    int64_t bytes = 0;
    for (const Instruction* parameter : (*module)->entry()->parameters()) {
      const Shape& shape = parameter->shape();
      if (!shape.is_array() || !tensor::CheckedElements(shape.type(), shape.dims()).ok()) bytes = 1 << 30;
      if (bytes < 1 << 20) bytes += shape.bytes();
      if (bytes < 1 << 20) inputs.emplace_back(tensor::Array(shape.array()));
    }
    if (bytes >= 1 << 20) continue;
    const size_t devices = round % 6 == 4 ? 2 : 1;
    const auto result = Evaluate(std::vector<const Module*>(devices, module->get()),
                                 std::vector<std::vector<Literal>>(devices, inputs), limits);
    if (result.ok()) ++evaluated;
  }
  EXPECT_GT(evaluated, 500);
}

}  // namespace
}  // namespace xlad::hlo

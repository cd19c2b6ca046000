#include "sharding/import/matrix_loops.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "hlo/build/builder.h"
#include "hlo/text/text.h"

namespace xlad::sharding {
namespace {

using hlo::Builder;
using hlo::Dims;
using hlo::Instruction;
using hlo::Shape;

// In the texts, $B is the batch, $M and $N are a matrix's rows and columns, $K how many columns have a step, $T the
// type.
constexpr absl::string_view kHead = R"(HloModule loops
add { a = $T[] parameter(0) b = $T[] parameter(1) ROOT c = $T[] add(a, b) }
max { a = $T[] parameter(0) b = $T[] parameter(1) ROOT c = $T[] maximum(a, b) }
min { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] minimum(a, b) }
less { a = $T[] parameter(0) b = $T[] parameter(1) c = $T[] parameter(2) d = $T[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }
)";

// The state's column j, rows and columns by number; `s` is the state, `a` its matrices.
constexpr absl::string_view kColumn = R"(
  j = s32[] get-tuple-element(s), index=0
  a = $T[$B,$M,$N] get-tuple-element(s), index=1
  i0 = s32[] constant(0)
  i1 = s32[] constant(1)
  next = s32[] add(j, i1)
  zero = $T[] constant(0)
  zeros = $T[$B,$M] broadcast(zero), dimensions={}
  zeros_n = $T[$B,$N] broadcast(zero), dimensions={}
  rows = s32[$B,$M] iota(), iota_dimension=1
  columns = s32[$B,$N] iota(), iota_dimension=1
  steps = s32[$B,$K] iota(), iota_dimension=1
  jm = s32[$B,$M] broadcast(j), dimensions={}
  jn = s32[$B,$N] broadcast(j), dimensions={}
  jk = s32[$B,$K] broadcast(j), dimensions={}
  at_row = pred[$B,$M] compare(rows, jm), direction=EQ
  after = pred[$B,$M] compare(rows, jm), direction=GT
  right = pred[$B,$N] compare(columns, jn), direction=GT
  at_column = pred[$B,$N] compare(columns, jn), direction=EQ
  at_column3 = pred[$B,$M,$N] broadcast(at_column), dimensions={0,2}
  at_step = pred[$B,$K] compare(steps, jk), direction=EQ
)";

constexpr absl::string_view kLu = R"(
body {
  s = (s32[], $T[$B,$M,$N], s32[$B,$K], s32[$B]) parameter(0)$COLUMN
  pivots = s32[$B,$K] get-tuple-element(s), index=2
  info = s32[$B] get-tuple-element(s), index=3
  here3 = $T[$B,$M,1] dynamic-slice(a, i0, i0, j), dynamic_slice_sizes={$B,$M,1}
  here = $T[$B,$M] reshape(here3)
  size = $T[$B,$M] abs(here)
  none = $T[] constant(-1)
  nones = $T[$B,$M] broadcast(none), dimensions={}
  free = pred[$B,$M] or(at_row, after)
  sizes = $T[$B,$M] select(free, size, nones)
  largest = $T[$B] reduce(sizes, none), dimensions={1}, to_apply=max
  largest2 = $T[$B,$M] broadcast(largest), dimensions={0}
  is_largest = pred[$B,$M] compare(sizes, largest2), direction=EQ
  last = s32[] constant($LAST)
  lasts = s32[$B,$M] broadcast(last), dimensions={}
  found = s32[$B,$M] select(is_largest, rows, lasts)
  best = s32[$B] reduce(found, last), dimensions={1}, to_apply=min
  best2 = s32[$B,$M] broadcast(best), dimensions={0}
  at_best = pred[$B,$M] compare(rows, best2), direction=EQ
  at_best3 = pred[$B,$M,$N] broadcast(at_best), dimensions={0,1}
  at_row3 = pred[$B,$M,$N] broadcast(at_row), dimensions={0,1}
  zeros3 = $T[$B,$M,$N] broadcast(zero), dimensions={}
  row3 = $T[$B,1,$N] dynamic-slice(a, i0, j, i0), dynamic_slice_sizes={$B,1,$N}
  row = $T[$B,$N] reshape(row3)
  of_best = $T[$B,$M,$N] select(at_best3, a, zeros3)
  pivot_row = $T[$B,$N] reduce(of_best, zero), dimensions={1}, to_apply=add
  rows_j = $T[$B,$M,$N] broadcast(row), dimensions={0,2}
  rows_p = $T[$B,$M,$N] broadcast(pivot_row), dimensions={0,2}
  half = $T[$B,$M,$N] select(at_best3, rows_j, a)
  swapped = $T[$B,$M,$N] select(at_row3, rows_p, half)
  under3 = $T[$B,$M,1] dynamic-slice(swapped, i0, i0, j), dynamic_slice_sizes={$B,$M,1}
  under = $T[$B,$M] reshape(under3)
  pivot2 = $T[$B,1] dynamic-slice(pivot_row, i0, j), dynamic_slice_sizes={$B,1}
  pivot = $T[$B] reshape(pivot2)
  pivot_m = $T[$B,$M] broadcast(pivot), dimensions={0}
  quotient = $T[$B,$M] divide(under, pivot_m)
  empty_m = pred[$B,$M] compare(pivot_m, zeros), direction=EQ
  factor = $T[$B,$M] select(empty_m, zeros, quotient)
  factors = $T[$B,$M] select(after, factor, zeros)
  factors3 = $T[$B,$M,$N] broadcast(factors), dimensions={0,1}
  rest = $T[$B,$N] select(right, pivot_row, zeros_n)
  rest3 = $T[$B,$M,$N] broadcast(rest), dimensions={0,2}
  product = $T[$B,$M,$N] multiply(factors3, rest3)
  reduced = $T[$B,$M,$N] subtract(swapped, product)
  new = $T[$B,$M] select(after, factor, under)
  new3 = $T[$B,$M,$N] broadcast(new), dimensions={0,1}
  a2 = $T[$B,$M,$N] select(at_column3, new3, reduced)
  ones = s32[$B] broadcast(i1), dimensions={}
  number = s32[$B] add(best, ones)
  number2 = s32[$B,$K] broadcast(number), dimensions={0}
  pivots2 = s32[$B,$K] select(at_step, number2, pivots)
  zeros_b = $T[$B] broadcast(zero), dimensions={}
  empty = pred[$B] compare(pivot, zeros_b), direction=EQ
  sound_b = s32[$B] broadcast(i0), dimensions={}
  sound = pred[$B] compare(info, sound_b), direction=EQ
  first = pred[$B] and(empty, sound)
  nexts = s32[$B] broadcast(next), dimensions={}
  info2 = s32[$B] select(first, nexts, info)
  ROOT r = (s32[], $T[$B,$M,$N], s32[$B,$K], s32[$B]) tuple(next, a2, pivots2, info2)
}
condition {
  s = (s32[], $T[$B,$M,$N], s32[$B,$K], s32[$B]) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  k = s32[] constant($K)
  ROOT r = pred[] compare(j, k), direction=LT
}
ENTRY lu {
  a = $T[$B,$M,$N] parameter(0)
  i0 = s32[] constant(0)
  p = s32[$B,$K] broadcast(i0), dimensions={}
  f = s32[$B] broadcast(i0), dimensions={}
  t = (s32[], $T[$B,$M,$N], s32[$B,$K], s32[$B]) tuple(i0, a, p, f)
  l = (s32[], $T[$B,$M,$N], s32[$B,$K], s32[$B]) while(t), condition=condition, body=body
  x = $T[$B,$M,$N] get-tuple-element(l), index=1
  y = s32[$B,$K] get-tuple-element(l), index=2
  z = s32[$B] get-tuple-element(l), index=3
  ROOT r = ($T[$B,$M,$N], s32[$B,$K], s32[$B]) tuple(x, y, z)
}
)";

constexpr absl::string_view kQr = R"(
body {
  s = (s32[], $T[$B,$M,$N], $T[$B,$K]) parameter(0)$COLUMN
  taus = $T[$B,$K] get-tuple-element(s), index=2
  here3 = $T[$B,$M,1] dynamic-slice(a, i0, i0, j), dynamic_slice_sizes={$B,$M,1}
  here = $T[$B,$M] reshape(here3)
  under = $T[$B,$M] select(after, here, zeros)
  squares = $T[$B,$M] multiply(under, under)
  below = $T[$B] reduce(squares, zero), dimensions={1}, to_apply=add
  alpha2 = $T[$B,1] dynamic-slice(here, i0, j), dynamic_slice_sizes={$B,1}
  alpha = $T[$B] reshape(alpha2)
  square = $T[$B] multiply(alpha, alpha)
  sum = $T[$B] add(square, below)
  length = $T[$B] sqrt(sum)
  minus = $T[$B] negate(length)
  zeros_b = $T[$B] broadcast(zero), dimensions={}
  negative = pred[$B] compare(alpha, zeros_b), direction=LT
  away = $T[$B] select(negative, length, minus)
  none = pred[$B] compare(below, zeros_b), direction=EQ
  beta = $T[$B] select(none, alpha, away)
  d = $T[$B] subtract(alpha, beta)
  d2 = $T[$B,$M] broadcast(d), dimensions={0}
  none2 = pred[$B,$M] broadcast(none), dimensions={0}
  quotient = $T[$B,$M] divide(under, d2)
  tail = $T[$B,$M] select(none2, zeros, quotient)
  d_minus = $T[$B] negate(d)
  tau0 = $T[$B] divide(d_minus, beta)
  tau = $T[$B] select(none, zeros_b, tau0)
  one = $T[] constant(1)
  ones = $T[$B,$M] broadcast(one), dimensions={}
  v = $T[$B,$M] select(at_row, ones, tail)
  w = $T[$B,$N] dot(v, a), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}
  tau_n = $T[$B,$N] broadcast(tau), dimensions={0}
  scaled = $T[$B,$N] multiply(w, tau_n)
  rest = $T[$B,$N] select(right, scaled, zeros_n)
  rest3 = $T[$B,$M,$N] broadcast(rest), dimensions={0,2}
  v3 = $T[$B,$M,$N] broadcast(v), dimensions={0,1}
  product = $T[$B,$M,$N] multiply(v3, rest3)
  reduced = $T[$B,$M,$N] subtract(a, product)
  beta2 = $T[$B,$M] broadcast(beta), dimensions={0}
  above = $T[$B,$M] select(at_row, beta2, here)
  new = $T[$B,$M] select(after, tail, above)
  new3 = $T[$B,$M,$N] broadcast(new), dimensions={0,1}
  a2 = $T[$B,$M,$N] select(at_column3, new3, reduced)
  tau_k = $T[$B,$K] broadcast(tau), dimensions={0}
  taus2 = $T[$B,$K] select(at_step, tau_k, taus)
  ROOT r = (s32[], $T[$B,$M,$N], $T[$B,$K]) tuple(next, a2, taus2)
}
condition {
  s = (s32[], $T[$B,$M,$N], $T[$B,$K]) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  k = s32[] constant($K)
  ROOT r = pred[] compare(j, k), direction=LT
}
ENTRY qr {
  a = $T[$B,$M,$N] parameter(0)
  i0 = s32[] constant(0)
  zero = $T[] constant(0)
  p = $T[$B,$K] broadcast(zero), dimensions={}
  t = (s32[], $T[$B,$M,$N], $T[$B,$K]) tuple(i0, a, p)
  l = (s32[], $T[$B,$M,$N], $T[$B,$K]) while(t), condition=condition, body=body
  x = $T[$B,$M,$N] get-tuple-element(l), index=1
  y = $T[$B,$K] get-tuple-element(l), index=2
  ROOT r = ($T[$B,$M,$N], $T[$B,$K]) tuple(x, y)
}
)";

// $R of the $K reflectors are used, the last one first.
constexpr absl::string_view kReflectors = R"(
body {
  s = (s32[], $T[$B,$M,$N], $T[$B,$K], $T[$B,$M,$N]) parameter(0)
  t = s32[] get-tuple-element(s), index=0
  a = $T[$B,$M,$N] get-tuple-element(s), index=1
  taus = $T[$B,$K] get-tuple-element(s), index=2
  q = $T[$B,$M,$N] get-tuple-element(s), index=3
  i0 = s32[] constant(0)
  i1 = s32[] constant(1)
  next = s32[] add(t, i1)
  last = s32[] constant($LAST)
  j = s32[] subtract(last, t)
  rows = s32[$B,$M] iota(), iota_dimension=1
  jm = s32[$B,$M] broadcast(j), dimensions={}
  at_row = pred[$B,$M] compare(rows, jm), direction=EQ
  after = pred[$B,$M] compare(rows, jm), direction=GT
  zero = $T[] constant(0)
  zeros = $T[$B,$M] broadcast(zero), dimensions={}
  one = $T[] constant(1)
  ones = $T[$B,$M] broadcast(one), dimensions={}
  here3 = $T[$B,$M,1] dynamic-slice(a, i0, i0, j), dynamic_slice_sizes={$B,$M,1}
  here = $T[$B,$M] reshape(here3)
  under = $T[$B,$M] select(after, here, zeros)
  v = $T[$B,$M] select(at_row, ones, under)
  tau2 = $T[$B,1] dynamic-slice(taus, i0, j), dynamic_slice_sizes={$B,1}
  tau = $T[$B] reshape(tau2)
  w = $T[$B,$N] dot(v, q), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}
  tau_n = $T[$B,$N] broadcast(tau), dimensions={0}
  scaled = $T[$B,$N] multiply(w, tau_n)
  scaled3 = $T[$B,$M,$N] broadcast(scaled), dimensions={0,2}
  v3 = $T[$B,$M,$N] broadcast(v), dimensions={0,1}
  product = $T[$B,$M,$N] multiply(v3, scaled3)
  q2 = $T[$B,$M,$N] subtract(q, product)
  ROOT r = (s32[], $T[$B,$M,$N], $T[$B,$K], $T[$B,$M,$N]) tuple(next, a, taus, q2)
}
condition {
  s = (s32[], $T[$B,$M,$N], $T[$B,$K], $T[$B,$M,$N]) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  k = s32[] constant($R)
  ROOT r = pred[] compare(j, k), direction=LT
}
ENTRY reflectors {
  a = $T[$B,$M,$N] parameter(0)
  taus = $T[$B,$K] parameter(1)
  i0 = s32[] constant(0)
  rows = s32[$B,$M,$N] iota(), iota_dimension=1
  columns = s32[$B,$M,$N] iota(), iota_dimension=2
  same = pred[$B,$M,$N] compare(rows, columns), direction=EQ
  eye = $T[$B,$M,$N] convert(same)
  t = (s32[], $T[$B,$M,$N], $T[$B,$K], $T[$B,$M,$N]) tuple(i0, a, taus, eye)
  l = (s32[], $T[$B,$M,$N], $T[$B,$K], $T[$B,$M,$N]) while(t), condition=condition, body=body
  ROOT x = $T[$B,$M,$N] get-tuple-element(l), index=3
}
)";

// One rotation of columns and rows p and q, and of the vectors' columns; then the next pair, $PAIRS times in all.
constexpr absl::string_view kEigen = R"(
body {
  s = (s32[], s32[], s32[], $T[$B,$N,$N], $T[$B,$N,$N]) parameter(0)
  t = s32[] get-tuple-element(s), index=0
  p = s32[] get-tuple-element(s), index=1
  q = s32[] get-tuple-element(s), index=2
  a = $T[$B,$N,$N] get-tuple-element(s), index=3
  v = $T[$B,$N,$N] get-tuple-element(s), index=4
  i0 = s32[] constant(0)
  i1 = s32[] constant(1)
  i2 = s32[] constant(2)
  zero = $T[] constant(0)
  zeros = $T[$B,1,1] broadcast(zero), dimensions={}
  one = $T[] constant(1)
  ones = $T[$B,1,1] broadcast(one), dimensions={}
  app = $T[$B,1,1] dynamic-slice(a, i0, p, p), dynamic_slice_sizes={$B,1,1}
  aqq = $T[$B,1,1] dynamic-slice(a, i0, q, q), dynamic_slice_sizes={$B,1,1}
  apq = $T[$B,1,1] dynamic-slice(a, i0, p, q), dynamic_slice_sizes={$B,1,1}
  gap = $T[$B,1,1] subtract(aqq, app)
  twice = $T[$B,1,1] add(apq, apq)
  zeta = $T[$B,1,1] divide(gap, twice)
  zeta2 = $T[$B,1,1] multiply(zeta, zeta)
  under = $T[$B,1,1] add(zeta2, ones)
  root = $T[$B,1,1] sqrt(under)
  size = $T[$B,1,1] abs(zeta)
  sum = $T[$B,1,1] add(size, root)
  tangent = $T[$B,1,1] divide(ones, sum)
  negated = $T[$B,1,1] negate(tangent)
  negative = pred[$B,1,1] compare(zeta, zeros), direction=LT
  signed = $T[$B,1,1] select(negative, negated, tangent)
  settled = pred[$B,1,1] compare(apq, zeros), direction=EQ
  tan = $T[$B,1,1] select(settled, zeros, signed)
  tan2 = $T[$B,1,1] multiply(tan, tan)
  tan3 = $T[$B,1,1] add(tan2, ones)
  c = $T[$B,1,1] rsqrt(tan3)
  sine = $T[$B,1,1] multiply(c, tan)
  cb = $T[$B] reshape(c)
  sb = $T[$B] reshape(sine)
  c_down = $T[$B,$N,1] broadcast(cb), dimensions={0}
  s_down = $T[$B,$N,1] broadcast(sb), dimensions={0}
  ap = $T[$B,$N,1] dynamic-slice(a, i0, i0, p), dynamic_slice_sizes={$B,$N,1}
  aq = $T[$B,$N,1] dynamic-slice(a, i0, i0, q), dynamic_slice_sizes={$B,$N,1}
  ap_c = $T[$B,$N,1] multiply(ap, c_down)
  aq_s = $T[$B,$N,1] multiply(aq, s_down)
  ap_s = $T[$B,$N,1] multiply(ap, s_down)
  aq_c = $T[$B,$N,1] multiply(aq, c_down)
  ap2 = $T[$B,$N,1] subtract(ap_c, aq_s)
  aq2 = $T[$B,$N,1] add(ap_s, aq_c)
  a1 = $T[$B,$N,$N] dynamic-update-slice(a, ap2, i0, i0, p)
  a2 = $T[$B,$N,$N] dynamic-update-slice(a1, aq2, i0, i0, q)
  vp = $T[$B,$N,1] dynamic-slice(v, i0, i0, p), dynamic_slice_sizes={$B,$N,1}
  vq = $T[$B,$N,1] dynamic-slice(v, i0, i0, q), dynamic_slice_sizes={$B,$N,1}
  vp_c = $T[$B,$N,1] multiply(vp, c_down)
  vq_s = $T[$B,$N,1] multiply(vq, s_down)
  vp_s = $T[$B,$N,1] multiply(vp, s_down)
  vq_c = $T[$B,$N,1] multiply(vq, c_down)
  vp2 = $T[$B,$N,1] subtract(vp_c, vq_s)
  vq2 = $T[$B,$N,1] add(vp_s, vq_c)
  v1 = $T[$B,$N,$N] dynamic-update-slice(v, vp2, i0, i0, p)
  v2 = $T[$B,$N,$N] dynamic-update-slice(v1, vq2, i0, i0, q)
  c_right = $T[$B,1,$N] broadcast(cb), dimensions={0}
  s_right = $T[$B,1,$N] broadcast(sb), dimensions={0}
  rp = $T[$B,1,$N] dynamic-slice(a2, i0, p, i0), dynamic_slice_sizes={$B,1,$N}
  rq = $T[$B,1,$N] dynamic-slice(a2, i0, q, i0), dynamic_slice_sizes={$B,1,$N}
  rp_c = $T[$B,1,$N] multiply(rp, c_right)
  rq_s = $T[$B,1,$N] multiply(rq, s_right)
  rp_s = $T[$B,1,$N] multiply(rp, s_right)
  rq_c = $T[$B,1,$N] multiply(rq, c_right)
  rp2 = $T[$B,1,$N] subtract(rp_c, rq_s)
  rq2 = $T[$B,1,$N] add(rp_s, rq_c)
  a3 = $T[$B,$N,$N] dynamic-update-slice(a2, rp2, i0, p, i0)
  a4 = $T[$B,$N,$N] dynamic-update-slice(a3, rq2, i0, q, i0)
  t2 = s32[] add(t, i1)
  n = s32[] constant($N)
  q1 = s32[] add(q, i1)
  p1 = s32[] add(p, i1)
  p2 = s32[] add(p, i2)
  row_ends = pred[] compare(q1, n), direction=EQ
  q3 = s32[] select(row_ends, p2, q1)
  p3 = s32[] select(row_ends, p1, p)
  all_done = pred[] compare(q3, n), direction=EQ
  q4 = s32[] select(all_done, i1, q3)
  p4 = s32[] select(all_done, i0, p3)
  ROOT r = (s32[], s32[], s32[], $T[$B,$N,$N], $T[$B,$N,$N]) tuple(t2, p4, q4, a4, v2)
}
condition {
  s = (s32[], s32[], s32[], $T[$B,$N,$N], $T[$B,$N,$N]) parameter(0)
  t = s32[] get-tuple-element(s), index=0
  k = s32[] constant($PAIRS)
  ROOT r = pred[] compare(t, k), direction=LT
}
ENTRY eigen {
  given = $T[$B,$N,$N] parameter(0)
  i0 = s32[] constant(0)
  i1 = s32[] constant(1)
  zero = $T[] constant(0)
  zeros = $T[$B,$N,$N] broadcast(zero), dimensions={}
  rows = s32[$B,$N,$N] iota(), iota_dimension=1
  columns = s32[$B,$N,$N] iota(), iota_dimension=2
  own = pred[$B,$N,$N] compare(rows, columns), direction=$OWN
  mirror = $T[$B,$N,$N] transpose(given), dimensions={0,2,1}
  a = $T[$B,$N,$N] select(own, given, mirror)
  same = pred[$B,$N,$N] compare(rows, columns), direction=EQ
  eye = $T[$B,$N,$N] convert(same)
  t = (s32[], s32[], s32[], $T[$B,$N,$N], $T[$B,$N,$N]) tuple(i0, i0, i1, a, eye)
  l = (s32[], s32[], s32[], $T[$B,$N,$N], $T[$B,$N,$N]) while(t), condition=condition, body=body
  d = $T[$B,$N,$N] get-tuple-element(l), index=3
  v = $T[$B,$N,$N] get-tuple-element(l), index=4
  on_diagonal = $T[$B,$N,$N] select(same, d, zeros)
  w = $T[$B,$N] reduce(on_diagonal, zero), dimensions={1}, to_apply=add
  keys = $T[$B,$N,$N] broadcast(w), dimensions={0,2}
  sorted = ($T[$B,$N,$N], $T[$B,$N,$N]) sort(keys, v), dimensions={2}, is_stable=true, to_apply=less
  values3 = $T[$B,$N,$N] get-tuple-element(sorted), index=0
  values1 = $T[$B,1,$N] slice(values3), slice={[0:$B], [0:1], [0:$N]}
  values = $T[$B,$N] reshape(values1)
  vectors = $T[$B,$N,$N] get-tuple-element(sorted), index=1
  info = s32[$B] broadcast(i0), dimensions={}
  ROOT r = ($T[$B,$N,$N], $T[$B,$N], s32[$B]) tuple(vectors, values, info)
}
)";

struct Routine {
  absl::string_view name;
  absl::string_view text;
};
constexpr Routine kRoutines[] = {
    {"getrf", kLu}, {"geqrf", kQr}, {"orgqr", kReflectors}, {"syevd", kEigen}};

// Sweeps over all pairs. Random 128 x 128 matrices are diagonal up to rounding after 8 of them in f32 and 10 in f64.
int64_t Sweeps(hlo::ElementType type) { return type == hlo::ElementType::kF64 ? 14 : 10; }

// The product of all but the last `behind` dimensions.
int64_t BatchOf(const Dims& dims, size_t behind) {
  int64_t batch = 1;
  for (size_t d = 0; d + behind < dims.size(); ++d) batch *= dims[d];
  return batch;
}

std::string Text(const Instruction& call, absl::string_view text, const std::string& own) {
  const Dims& dims = call.operand(0)->shape().dims();
  const hlo::ElementType type = call.operand(0)->shape().type();
  const int64_t m = dims[dims.size() - 2], n = dims.back();
  const bool reflectors = call.operand_count() == 2;
  const int64_t k = reflectors ? call.operand(1)->shape().dims().back() : std::min(m, n);
  const int64_t used = std::min(k, std::min(m, n));
  return absl::StrReplaceAll(absl::StrReplaceAll(absl::StrCat(kHead, text), {{"$COLUMN", kColumn}}),
                             {{"$B", absl::StrCat(BatchOf(dims, 2))},
                              {"$M", absl::StrCat(m)},
                              {"$N", absl::StrCat(n)},
                              {"$K", absl::StrCat(k)},
                              {"$R", absl::StrCat(used)},
                              {"$LAST", absl::StrCat((reflectors ? used : m) - 1)},
                              {"$PAIRS", absl::StrCat(n * (n - 1) / 2 * Sweeps(type))},
                              {"$OWN", own},
                              {"$T", tensor::ToString(type)}});
}

// All sizes at least 1 and results of the shapes that the loops give, behind the batch's dimensions.
bool Fits(const Instruction& call, const Shape& made) {
  const Dims& dims = call.operand(0)->shape().dims();
  const Dims batch(dims.begin(), dims.end() - 2);
  const auto same = [&](const Shape& found, const Shape& flat) {
    if (!found.is_array() || found.type() != flat.type()) return false;
    Dims expected = batch;
    expected.insert(expected.end(), flat.dims().begin() + 1, flat.dims().end());
    return found.dims() == expected;
  };
  if (made.is_array()) return same(call.shape(), made);
  if (!call.shape().is_tuple() || call.shape().tuple().size() != made.tuple().size()) return false;
  for (size_t i = 0; i < made.tuple().size(); ++i) {
    if (!same(call.shape().tuple()[i], made.tuple()[i])) return false;
  }
  return true;
}

bool HasMatrices(const Instruction& call) {
  if (call.operand_count() < 1 || call.operand_count() > 2) return false;
  for (const Instruction* operand : call.operands()) {
    const Shape& shape = operand->shape();
    if (!shape.is_array() || shape.array().elements() == 0 || shape.ndim() < 1) return false;
  }
  const Shape& a = call.operand(0)->shape();
  if (a.ndim() < 2) return false;
  return call.operand_count() == 1 || call.operand(1)->shape().ndim() == a.ndim() - 1;
}

Instruction* Flat(Builder& builder, Instruction* x, size_t behind) {
  const Dims& dims = x->shape().dims();
  Dims flat(dims.end() - static_cast<int64_t>(behind), dims.end());
  flat.insert(flat.begin(), BatchOf(dims, behind));
  return flat == dims ? x : builder.Reshape(x, flat);
}

// The constraint that only the batch may be split: every step needs all of a matrix.
Instruction* Whole(Instruction* x) {
  Instruction* copy = Builder(x->parent()).Unary(hlo::Opcode::kCopy, x);
  copy->mutable_metadata() = x->metadata();
  copy->mutable_frontend_attributes()[kWholeMatrices] = "";
  return copy;
}

Instruction* Shaped(Builder& builder, Instruction* x, const Shape& shape) {
  return x->shape().dims() == shape.dims() ? x : builder.Reshape(x, shape.dims());
}

}  // namespace

Instruction* ReplaceByLoop(Instruction* call, hlo::Module* module) {
  absl::string_view target = call->attributes().custom_call_target;
  if (!absl::ConsumePrefix(&target, "lapack_") || !absl::ConsumeSuffix(&target, "_ffi") || target.empty()) {
    return nullptr;
  }
  const auto* routine = std::find_if(std::begin(kRoutines), std::end(kRoutines),
                                     [&](const Routine& r) { return r.name == target.substr(1); });
  const hlo::ElementType type = target[0] == 's' ? hlo::ElementType::kF32 : hlo::ElementType::kF64;
  const bool real = target[0] == 's' || target[0] == 'd';
  if (routine == std::end(kRoutines) || !real || !HasMatrices(*call) || call->operand(0)->shape().type() != type ||
      (call->operand_count() == 2) != (routine->name == "orgqr")) {
    return nullptr;
  }
  // 'U' is 85.
  const bool upper = absl::StrContains(call->attributes().backend_config, "uplo = 85");
  absl::StatusOr<std::unique_ptr<hlo::Module>> parsed = hlo::ParseText(Text(*call, routine->text, upper ? "LE" : "GE"));
  XLAD_CHECK(parsed.ok()) << parsed.status();
  if (!Fits(*call, (*parsed)->entry()->root()->shape())) return nullptr;
  const size_t before = module->computations().size();
  hlo::Computation* loop = module->CloneComputation(*(*parsed)->entry(), (*parsed)->entry()->name());
  for (size_t c = before; c < module->computations().size(); ++c) {
    for (const auto& instruction : module->computations()[c]->instructions()) {
      instruction->mutable_metadata() = call->metadata();
    }
  }
  Builder builder(call->parent());
  builder.set_template(call);
  std::vector<Instruction*> operands = {Whole(Flat(builder, call->operand(0), 2))};
  if (call->operand_count() == 2) operands.push_back(Whole(Flat(builder, call->operand(1), 1)));
  Instruction* result = builder.Call(loop, operands);
  if (call->shape().is_array()) return Shaped(builder, Whole(result), call->shape());
  std::vector<Instruction*> elements;
  for (size_t i = 0; i < call->shape().tuple().size(); ++i) {
    elements.push_back(
        Shaped(builder, Whole(builder.GetTupleElement(result, i)), call->shape().tuple()[i]));
  }
  return builder.Tuple(elements);
}

}  // namespace xlad::sharding

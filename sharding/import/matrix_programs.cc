#include "sharding/import/matrix_programs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace xlad::sharding {
namespace {

constexpr absl::string_view kReducers = R"(HloModule loops
add { a = $T[] parameter(0) b = $T[] parameter(1) ROOT c = $T[] add(a, b) }
max { a = $T[] parameter(0) b = $T[] parameter(1) ROOT c = $T[] maximum(a, b) }
min { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] minimum(a, b) }
less { a = $T[] parameter(0) b = $T[] parameter(1) c = $T[] parameter(2) d = $T[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }
)";

// The condition of every loop. The loop's state $STATE begins with the number of steps that are done.
constexpr absl::string_view kCondition = R"(condition {
  s = $STATE parameter(0)
  done = s32[] get-tuple-element(s), index=0
  steps = s32[] constant($STEPS)
  ROOT r = pred[] compare(done, steps), direction=LT
})";

// The start of every step j of LU and QR: the loop's state is `s`, its matrices are `a`, and `x` is column j.
constexpr absl::string_view kColumn = R"(
  j = s32[] get-tuple-element(s), index=0
  a = $T[$B,$M,$N] get-tuple-element(s), index=1
  i0 = s32[] constant(0)
  i1 = s32[] constant(1)
  next = s32[] add(j, i1)
  zero = $T[] constant(0)
  zeros = $T[$B,$M] broadcast(zero), dimensions={}
  zeros_b = $T[$B] broadcast(zero), dimensions={}
  row_number = s32[$B,$M] iota(), iota_dimension=1
  column_number = s32[$B,$N] iota(), iota_dimension=1
  step_number = s32[$B,$K] iota(), iota_dimension=1
  j_m = s32[$B,$M] broadcast(j), dimensions={}
  j_n = s32[$B,$N] broadcast(j), dimensions={}
  j_k = s32[$B,$K] broadcast(j), dimensions={}
  // Row j, the rows below it, the columns right of column j, and column j.
  at_row = pred[$B,$M] compare(row_number, j_m), direction=EQ
  below_row = pred[$B,$M] compare(row_number, j_m), direction=GT
  right = pred[$B,$N] compare(column_number, j_n), direction=GT
  right3 = pred[$B,$M,$N] broadcast(right), dimensions={0,2}
  at_column = pred[$B,$N] compare(column_number, j_n), direction=EQ
  at_column3 = pred[$B,$M,$N] broadcast(at_column), dimensions={0,2}
  at_step = pred[$B,$K] compare(step_number, j_k), direction=EQ
  x3 = $T[$B,$M,1] dynamic-slice(a, i0, i0, j), dynamic_slice_sizes={$B,$M,1}
  x = $T[$B,$M] reshape(x3)
  magnitude = $T[$B,$M] abs(x)
)";

// `scale` is the divisor of each matrix or vector; `largest` is its largest magnitude. The header explains the scaling.
constexpr absl::string_view kScale = R"(
  low = $T[] constant($LOW)
  lows = $T[$B] broadcast(low), dimensions={}
  high = $T[] constant($HIGH)
  highs = $T[$B] broadcast(high), dimensions={}
  too_small = pred[$B] compare(largest, lows), direction=LT
  too_large = pred[$B] compare(largest, highs), direction=GT
  out_of_range = pred[$B] or(too_small, too_large)
  not_zero = pred[$B] compare(largest, zeros_b), direction=NE
  scales = pred[$B] and(out_of_range, not_zero)
  one = $T[] constant(1)
  ones_b = $T[$B] broadcast(one), dimensions={}
  scale = $T[$B] select(scales, largest, ones_b)
)";

// LU factorization with partial pivoting: Golub and Van Loan, "Matrix Computations" (4th edition), algorithm 3.4.1.
//
//   for j = 0 .. K-1:
//     p = the first row >= j with the largest |a[p,j]|;  pivots[j] = p + 1;  exchange rows j and p
//     if a[j,j] == 0: info = j + 1 if it is still 0
//     else: a[j+1:,j] /= a[j,j];  a[j+1:,j+1:] -= a[j+1:,j] a[j,j+1:]
//
// |a[i,j] / a[j,j]| <= 1, so nothing needs scaling. In the search for the pivot, a NaN in row j counts as the largest
// element of the column, and NaNs in the other rows are ignored, as in LAPACK.
constexpr absl::string_view kLu = R"(
body {
  s = $STATE parameter(0)$COLUMN
  pivots = s32[$B,$K] get-tuple-element(s), index=2
  info = s32[$B] get-tuple-element(s), index=3

  // best: the row of the pivot.
  infinity = $T[] constant(inf)
  infinities = $T[$B,$M] broadcast(infinity), dimensions={}
  lowest = $T[] constant(-1)
  lowests = $T[$B,$M] broadcast(lowest), dimensions={}
  of_nan = $T[$B,$M] select(at_row, infinities, lowests)
  is_number = pred[$B,$M] compare(magnitude, magnitude), direction=EQ
  ordered = $T[$B,$M] select(is_number, magnitude, of_nan)
  remaining = pred[$B,$M] or(at_row, below_row)
  candidates = $T[$B,$M] select(remaining, ordered, lowests)
  largest = $T[$B] reduce(candidates, lowest), dimensions={1}, to_apply=max
  largest_m = $T[$B,$M] broadcast(largest), dimensions={0}
  is_largest = pred[$B,$M] compare(candidates, largest_m), direction=EQ
  last_row = s32[] constant($LAST)
  last_rows = s32[$B,$M] broadcast(last_row), dimensions={}
  rows_of_largest = s32[$B,$M] select(is_largest, row_number, last_rows)
  best = s32[$B] reduce(rows_of_largest, last_row), dimensions={1}, to_apply=min
  best_m = s32[$B,$M] broadcast(best), dimensions={0}
  at_best = pred[$B,$M] compare(row_number, best_m), direction=EQ

  // swapped: rows j and best exchanged. A sum of one element and of -0 is that element, with its sign.
  at_best3 = pred[$B,$M,$N] broadcast(at_best), dimensions={0,1}
  at_row3 = pred[$B,$M,$N] broadcast(at_row), dimensions={0,1}
  minus_zero = $T[] constant(-0)
  minus_zeros3 = $T[$B,$M,$N] broadcast(minus_zero), dimensions={}
  only_best = $T[$B,$M,$N] select(at_best3, a, minus_zeros3)
  pivot_row = $T[$B,$N] reduce(only_best, minus_zero), dimensions={1}, to_apply=add
  pivot_row3 = $T[$B,$M,$N] broadcast(pivot_row), dimensions={0,2}
  row_j3 = $T[$B,1,$N] dynamic-slice(a, i0, j, i0), dynamic_slice_sizes={$B,1,$N}
  row_j = $T[$B,$N] reshape(row_j3)
  rows_j = $T[$B,$M,$N] broadcast(row_j), dimensions={0,2}
  row_j_moved = $T[$B,$M,$N] select(at_best3, rows_j, a)
  swapped = $T[$B,$M,$N] select(at_row3, pivot_row3, row_j_moved)

  // a2: the column divided by the pivot and the remaining block reduced, unless the pivot is 0.
  column3 = $T[$B,$M,1] dynamic-slice(swapped, i0, i0, j), dynamic_slice_sizes={$B,$M,1}
  column = $T[$B,$M] reshape(column3)
  pivot2 = $T[$B,1] dynamic-slice(pivot_row, i0, j), dynamic_slice_sizes={$B,1}
  pivot = $T[$B] reshape(pivot2)
  pivot_m = $T[$B,$M] broadcast(pivot), dimensions={0}
  quotient = $T[$B,$M] divide(column, pivot_m)
  has_pivot = pred[$B,$M] compare(pivot_m, zeros), direction=NE
  eliminates = pred[$B,$M] and(below_row, has_pivot)
  new_column = $T[$B,$M] select(eliminates, quotient, column)
  new_column3 = $T[$B,$M,$N] broadcast(new_column), dimensions={0,1}
  product = $T[$B,$M,$N] multiply(new_column3, pivot_row3)
  difference = $T[$B,$M,$N] subtract(swapped, product)
  eliminates3 = pred[$B,$M,$N] broadcast(eliminates), dimensions={0,1}
  block = pred[$B,$M,$N] and(eliminates3, right3)
  reduced = $T[$B,$M,$N] select(block, difference, swapped)
  a2 = $T[$B,$M,$N] select(at_column3, new_column3, reduced)

  ones = s32[$B] broadcast(i1), dimensions={}
  pivot_number = s32[$B] add(best, ones)
  pivot_number_k = s32[$B,$K] broadcast(pivot_number), dimensions={0}
  pivots2 = s32[$B,$K] select(at_step, pivot_number_k, pivots)
  no_pivot = pred[$B] compare(pivot, zeros_b), direction=EQ
  no_info = s32[$B] broadcast(i0), dimensions={}
  is_first = pred[$B] compare(info, no_info), direction=EQ
  reports = pred[$B] and(no_pivot, is_first)
  step = s32[$B] broadcast(next), dimensions={}
  info2 = s32[$B] select(reports, step, info)
  ROOT r = $STATE tuple(next, a2, pivots2, info2)
}
$CONDITION
ENTRY lu {
  a = $T[$B,$M,$N] parameter(0)
  i0 = s32[] constant(0)
  pivots = s32[$B,$K] broadcast(i0), dimensions={}
  info = s32[$B] broadcast(i0), dimensions={}
  start = $STATE tuple(i0, a, pivots, info)
  loop = $STATE while(start), condition=condition, body=body
  factors = $T[$B,$M,$N] get-tuple-element(loop), index=1
  pivots2 = s32[$B,$K] get-tuple-element(loop), index=2
  info2 = s32[$B] get-tuple-element(loop), index=3
  ROOT r = ($T[$B,$M,$N], s32[$B,$K], s32[$B]) tuple(factors, pivots2, info2)
}
)";

// QR factorization by Householder reflectors: Golub and Van Loan, algorithms 5.1.1 and 5.2.1, with the sign and the
// scaling of v of LAPACK's larfg.
//
//   for j = 0 .. K-1:                                    x = a[j:,j], alpha = x[0]
//     beta = -sign(alpha) ||x||                          (alpha, and tau = 0, if x[1:] == 0)
//     v = (1, x[1:] / (alpha - beta));  tau[j] = (beta - alpha) / beta
//     a[j:,j+1:] -= tau[j] v (v^T a[j:,j+1:])            the reflector I - tau v v^T
//     a[j,j] = beta;  a[j+1:,j] = v[1:]
//
// |v[i]| <= 1 and 1 <= tau <= 2. Only the norm needs scaling.
constexpr absl::string_view kQr = R"(
body {
  s = $STATE parameter(0)$COLUMN
  taus = $T[$B,$K] get-tuple-element(s), index=2
  alpha2 = $T[$B,1] dynamic-slice(x, i0, j), dynamic_slice_sizes={$B,1}
  alpha = $T[$B] reshape(alpha2)
  below = $T[$B,$M] select(below_row, x, zeros)
  below_magnitude = $T[$B,$M] abs(below)
  largest_below = $T[$B] reduce(below_magnitude, zero), dimensions={1}, to_apply=max
  alpha_magnitude = $T[$B] abs(alpha)
  largest = $T[$B] maximum(largest_below, alpha_magnitude)$SCALE
  scale_m = $T[$B,$M] broadcast(scale), dimensions={0}
  scaled_alpha = $T[$B] divide(alpha, scale)
  scaled_below = $T[$B,$M] divide(below, scale_m)

  // beta and alpha - beta, scaled.
  squares = $T[$B,$M] multiply(scaled_below, scaled_below)
  below_square = $T[$B] reduce(squares, zero), dimensions={1}, to_apply=add
  alpha_square = $T[$B] multiply(scaled_alpha, scaled_alpha)
  square = $T[$B] add(alpha_square, below_square)
  norm = $T[$B] sqrt(square)
  minus_norm = $T[$B] negate(norm)
  negative = pred[$B] compare(alpha, zeros_b), direction=LT, type=TOTALORDER
  scaled_beta = $T[$B] select(negative, norm, minus_norm)
  gap = $T[$B] subtract(scaled_alpha, scaled_beta)

  // beta, tau and v.
  reflects = pred[$B] compare(largest_below, zeros_b), direction=NE
  long_beta = $T[$B] multiply(scaled_beta, scale)
  beta = $T[$B] select(reflects, long_beta, alpha)
  minus_gap = $T[$B] negate(gap)
  reflector_tau = $T[$B] divide(minus_gap, scaled_beta)
  tau = $T[$B] select(reflects, reflector_tau, zeros_b)
  gap_m = $T[$B,$M] broadcast(gap), dimensions={0}
  quotient = $T[$B,$M] divide(scaled_below, gap_m)
  reflects_m = pred[$B,$M] broadcast(reflects), dimensions={0}
  tail = $T[$B,$M] select(reflects_m, quotient, below)
  ones = $T[$B,$M] broadcast(one), dimensions={}
  v = $T[$B,$M] select(at_row, ones, tail)

  // a2: the reflector applied to the remaining block, and column j replaced.
  w = $T[$B,$N] dot(v, a), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}
  tau_n = $T[$B,$N] broadcast(tau), dimensions={0}
  tau_w = $T[$B,$N] multiply(w, tau_n)
  tau_w3 = $T[$B,$M,$N] broadcast(tau_w), dimensions={0,2}
  v3 = $T[$B,$M,$N] broadcast(v), dimensions={0,1}
  product = $T[$B,$M,$N] multiply(v3, tau_w3)
  difference = $T[$B,$M,$N] subtract(a, product)
  remaining = pred[$B,$M] or(at_row, below_row)
  remaining3 = pred[$B,$M,$N] broadcast(remaining), dimensions={0,1}
  block = pred[$B,$M,$N] and(remaining3, right3)
  reflected = $T[$B,$M,$N] select(block, difference, a)
  beta_m = $T[$B,$M] broadcast(beta), dimensions={0}
  with_beta = $T[$B,$M] select(at_row, beta_m, x)
  new_column = $T[$B,$M] select(below_row, tail, with_beta)
  new_column3 = $T[$B,$M,$N] broadcast(new_column), dimensions={0,1}
  a2 = $T[$B,$M,$N] select(at_column3, new_column3, reflected)
  tau_k = $T[$B,$K] broadcast(tau), dimensions={0}
  taus2 = $T[$B,$K] select(at_step, tau_k, taus)
  ROOT r = $STATE tuple(next, a2, taus2)
}
$CONDITION
ENTRY qr {
  a = $T[$B,$M,$N] parameter(0)
  i0 = s32[] constant(0)
  zero = $T[] constant(0)
  taus = $T[$B,$K] broadcast(zero), dimensions={}
  start = $STATE tuple(i0, a, taus)
  loop = $STATE while(start), condition=condition, body=body
  factors = $T[$B,$M,$N] get-tuple-element(loop), index=1
  taus2 = $T[$B,$K] get-tuple-element(loop), index=2
  ROOT r = ($T[$B,$M,$N], $T[$B,$K]) tuple(factors, taus2)
}
)";

// The first columns of Q, by backward accumulation of the reflectors: Golub and Van Loan, section 5.1.6. Reflector j is
// v = (0, ..., 0, 1, a[j+1:,j]) with tau[j]; the first $R reflectors of the $K are used.
//
//   q = I;  for j = R-1 .. 0:  q -= tau[j] v (v^T q)
constexpr absl::string_view kReflectors = R"(
body {
  s = $STATE parameter(0)
  done = s32[] get-tuple-element(s), index=0
  a = $T[$B,$M,$N] get-tuple-element(s), index=1
  taus = $T[$B,$K] get-tuple-element(s), index=2
  q = $T[$B,$M,$N] get-tuple-element(s), index=3
  i0 = s32[] constant(0)
  i1 = s32[] constant(1)
  next = s32[] add(done, i1)
  last = s32[] constant($LAST)
  j = s32[] subtract(last, done)
  row_number = s32[$B,$M] iota(), iota_dimension=1
  j_m = s32[$B,$M] broadcast(j), dimensions={}
  at_row = pred[$B,$M] compare(row_number, j_m), direction=EQ
  below_row = pred[$B,$M] compare(row_number, j_m), direction=GT
  zero = $T[] constant(0)
  zeros = $T[$B,$M] broadcast(zero), dimensions={}
  one = $T[] constant(1)
  ones = $T[$B,$M] broadcast(one), dimensions={}
  x3 = $T[$B,$M,1] dynamic-slice(a, i0, i0, j), dynamic_slice_sizes={$B,$M,1}
  x = $T[$B,$M] reshape(x3)
  below = $T[$B,$M] select(below_row, x, zeros)
  v = $T[$B,$M] select(at_row, ones, below)
  tau2 = $T[$B,1] dynamic-slice(taus, i0, j), dynamic_slice_sizes={$B,1}
  tau = $T[$B] reshape(tau2)
  w = $T[$B,$N] dot(v, q), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}
  tau_n = $T[$B,$N] broadcast(tau), dimensions={0}
  tau_w = $T[$B,$N] multiply(w, tau_n)
  tau_w3 = $T[$B,$M,$N] broadcast(tau_w), dimensions={0,2}
  v3 = $T[$B,$M,$N] broadcast(v), dimensions={0,1}
  product = $T[$B,$M,$N] multiply(v3, tau_w3)
  q2 = $T[$B,$M,$N] subtract(q, product)
  ROOT r = $STATE tuple(next, a, taus, q2)
}
$CONDITION
ENTRY reflectors {
  a = $T[$B,$M,$N] parameter(0)
  taus = $T[$B,$K] parameter(1)
  i0 = s32[] constant(0)
  row_number = s32[$B,$M,$N] iota(), iota_dimension=1
  column_number = s32[$B,$M,$N] iota(), iota_dimension=2
  on_diagonal = pred[$B,$M,$N] compare(row_number, column_number), direction=EQ
  eye = $T[$B,$M,$N] convert(on_diagonal)
  start = $STATE tuple(i0, a, taus, eye)
  loop = $STATE while(start), condition=condition, body=body
  ROOT q = $T[$B,$M,$N] get-tuple-element(loop), index=3
}
)";

// $X2 is the matrices $X with columns p and q rotated by (c, s).
constexpr absl::string_view kRotateColumns = R"(
  $Xp = $T[$B,$N,1] dynamic-slice($X, i0, i0, p), dynamic_slice_sizes={$B,$N,1}
  $Xq = $T[$B,$N,1] dynamic-slice($X, i0, i0, q), dynamic_slice_sizes={$B,$N,1}
  $Xp_c = $T[$B,$N,1] multiply($Xp, c_column)
  $Xq_s = $T[$B,$N,1] multiply($Xq, s_column)
  $Xp_s = $T[$B,$N,1] multiply($Xp, s_column)
  $Xq_c = $T[$B,$N,1] multiply($Xq, c_column)
  $Xp2 = $T[$B,$N,1] subtract($Xp_c, $Xq_s)
  $Xq2 = $T[$B,$N,1] add($Xp_s, $Xq_c)
  $X1 = $T[$B,$N,$N] dynamic-update-slice($X, $Xp2, i0, i0, p)
  $X2 = $T[$B,$N,$N] dynamic-update-slice($X1, $Xq2, i0, i0, q)
)";

// Eigenvalues and eigenvectors of a symmetric matrix by the cyclic Jacobi method: Golub and Van Loan, algorithms 8.5.1
// and 8.5.3. A step rotates columns and rows p and q of a, and columns p and q of v, so that a[p,q] becomes 0.
//
//   repeat for p < q, row by row, in several sweeps ($PAIRS steps in all):
//     zeta = (a[q,q] - a[p,p]) / (2 a[p,q]);  t = sign(zeta) / (|zeta| + sqrt(zeta^2 + 1))     (t = 0 if a[p,q] == 0)
//     c = 1 / sqrt(t^2 + 1);  s = c t;  rotate by (c, s)
//
// The matrix is scaled, as LAPACK's syevd does; zeta^2 may overflow, and t is then 0, as it should be.
constexpr absl::string_view kEigen = R"(
body {
  state = $STATE parameter(0)
  done = s32[] get-tuple-element(state), index=0
  p = s32[] get-tuple-element(state), index=1
  q = s32[] get-tuple-element(state), index=2
  a = $T[$B,$N,$N] get-tuple-element(state), index=3
  v = $T[$B,$N,$N] get-tuple-element(state), index=4
  i0 = s32[] constant(0)
  i1 = s32[] constant(1)
  i2 = s32[] constant(2)
  zero = $T[] constant(0)
  zeros = $T[$B,1,1] broadcast(zero), dimensions={}
  one = $T[] constant(1)
  ones = $T[$B,1,1] broadcast(one), dimensions={}

  // The rotation.
  a_pp = $T[$B,1,1] dynamic-slice(a, i0, p, p), dynamic_slice_sizes={$B,1,1}
  a_qq = $T[$B,1,1] dynamic-slice(a, i0, q, q), dynamic_slice_sizes={$B,1,1}
  a_pq = $T[$B,1,1] dynamic-slice(a, i0, p, q), dynamic_slice_sizes={$B,1,1}
  gap = $T[$B,1,1] subtract(a_qq, a_pp)
  a_pq_twice = $T[$B,1,1] add(a_pq, a_pq)
  zeta = $T[$B,1,1] divide(gap, a_pq_twice)
  zeta_square = $T[$B,1,1] multiply(zeta, zeta)
  zeta_square_1 = $T[$B,1,1] add(zeta_square, ones)
  root = $T[$B,1,1] sqrt(zeta_square_1)
  zeta_magnitude = $T[$B,1,1] abs(zeta)
  denominator = $T[$B,1,1] add(zeta_magnitude, root)
  t_magnitude = $T[$B,1,1] divide(ones, denominator)
  minus_t = $T[$B,1,1] negate(t_magnitude)
  negative = pred[$B,1,1] compare(zeta, zeros), direction=LT
  signed_t = $T[$B,1,1] select(negative, minus_t, t_magnitude)
  is_zero = pred[$B,1,1] compare(a_pq, zeros), direction=EQ
  t = $T[$B,1,1] select(is_zero, zeros, signed_t)
  t_square = $T[$B,1,1] multiply(t, t)
  t_square_1 = $T[$B,1,1] add(t_square, ones)
  c = $T[$B,1,1] rsqrt(t_square_1)
  s = $T[$B,1,1] multiply(c, t)
  c_b = $T[$B] reshape(c)
  s_b = $T[$B] reshape(s)

  // Columns p and q of a and of v.
  c_column = $T[$B,$N,1] broadcast(c_b), dimensions={0}
  s_column = $T[$B,$N,1] broadcast(s_b), dimensions={0}$ROTATE_A$ROTATE_V
  // Rows p and q of a.
  c_row = $T[$B,1,$N] broadcast(c_b), dimensions={0}
  s_row = $T[$B,1,$N] broadcast(s_b), dimensions={0}
  rp = $T[$B,1,$N] dynamic-slice(a2, i0, p, i0), dynamic_slice_sizes={$B,1,$N}
  rq = $T[$B,1,$N] dynamic-slice(a2, i0, q, i0), dynamic_slice_sizes={$B,1,$N}
  rp_c = $T[$B,1,$N] multiply(rp, c_row)
  rq_s = $T[$B,1,$N] multiply(rq, s_row)
  rp_s = $T[$B,1,$N] multiply(rp, s_row)
  rq_c = $T[$B,1,$N] multiply(rq, c_row)
  rp2 = $T[$B,1,$N] subtract(rp_c, rq_s)
  rq2 = $T[$B,1,$N] add(rp_s, rq_c)
  a3 = $T[$B,$N,$N] dynamic-update-slice(a2, rp2, i0, p, i0)
  a4 = $T[$B,$N,$N] dynamic-update-slice(a3, rq2, i0, q, i0)

  // The next pair: (p, q+1), after the last q (p+1, p+2), after the last pair (0, 1).
  done2 = s32[] add(done, i1)
  n = s32[] constant($N)
  q_plus_1 = s32[] add(q, i1)
  p_plus_1 = s32[] add(p, i1)
  p_plus_2 = s32[] add(p, i2)
  row_ends = pred[] compare(q_plus_1, n), direction=EQ
  q_in_sweep = s32[] select(row_ends, p_plus_2, q_plus_1)
  p_in_sweep = s32[] select(row_ends, p_plus_1, p)
  sweep_ends = pred[] compare(q_in_sweep, n), direction=EQ
  q2 = s32[] select(sweep_ends, i1, q_in_sweep)
  p2 = s32[] select(sweep_ends, i0, p_in_sweep)
  ROOT r = $STATE tuple(done2, p2, q2, a4, v2)
}
$CONDITION
ENTRY eigen {
  given = $T[$B,$N,$N] parameter(0)
  i0 = s32[] constant(0)
  i1 = s32[] constant(1)
  zero = $T[] constant(0)
  zeros_b = $T[$B] broadcast(zero), dimensions={}
  zeros3 = $T[$B,$N,$N] broadcast(zero), dimensions={}

  // The matrix from its given triangle, scaled.
  row_number = s32[$B,$N,$N] iota(), iota_dimension=1
  column_number = s32[$B,$N,$N] iota(), iota_dimension=2
  in_triangle = pred[$B,$N,$N] compare(row_number, column_number), direction=$TRIANGLE
  mirrored = $T[$B,$N,$N] transpose(given), dimensions={0,2,1}
  symmetric = $T[$B,$N,$N] select(in_triangle, given, mirrored)
  magnitude = $T[$B,$N,$N] abs(symmetric)
  largest = $T[$B] reduce(magnitude, zero), dimensions={1,2}, to_apply=max$SCALE
  scale3 = $T[$B,$N,$N] broadcast(scale), dimensions={0}
  a = $T[$B,$N,$N] divide(symmetric, scale3)

  on_diagonal = pred[$B,$N,$N] compare(row_number, column_number), direction=EQ
  eye = $T[$B,$N,$N] convert(on_diagonal)
  start = $STATE tuple(i0, i0, i1, a, eye)
  loop = $STATE while(start), condition=condition, body=body
  rotated = $T[$B,$N,$N] get-tuple-element(loop), index=3
  v = $T[$B,$N,$N] get-tuple-element(loop), index=4

  // The eigenvalues are the diagonal; columns of v are sorted by them.
  only_diagonal = $T[$B,$N,$N] select(on_diagonal, rotated, zeros3)
  diagonal = $T[$B,$N] reduce(only_diagonal, zero), dimensions={1}, to_apply=add
  keys = $T[$B,$N,$N] broadcast(diagonal), dimensions={0,2}
  sorted = ($T[$B,$N,$N], $T[$B,$N,$N]) sort(keys, v), dimensions={2}, is_stable=true, to_apply=less
  values3 = $T[$B,$N,$N] get-tuple-element(sorted), index=0
  values2 = $T[$B,1,$N] slice(values3), slice={[0:$B], [0:1], [0:$N]}
  scaled_values = $T[$B,$N] reshape(values2)
  scale_n = $T[$B,$N] broadcast(scale), dimensions={0}
  values = $T[$B,$N] multiply(scaled_values, scale_n)
  vectors = $T[$B,$N,$N] get-tuple-element(sorted), index=1
  info = s32[$B] broadcast(i0), dimensions={}
  ROOT r = ($T[$B,$N,$N], $T[$B,$N], s32[$B]) tuple(vectors, values, info)
}
)";

struct Routine {
  absl::string_view name;
  absl::string_view text;
  absl::string_view state;  // The type of the loop's state.
  absl::string_view steps;  // The number of steps of the loop.
};
constexpr Routine kRoutines[] = {
    {"getrf", kLu, "(s32[], $T[$B,$M,$N], s32[$B,$K], s32[$B])", "$K"},
    {"geqrf", kQr, "(s32[], $T[$B,$M,$N], $T[$B,$K])", "$K"},
    {"orgqr", kReflectors, "(s32[], $T[$B,$M,$N], $T[$B,$K], $T[$B,$M,$N])", "$R"},
    {"syevd", kEigen, "(s32[], s32[], s32[], $T[$B,$N,$N], $T[$B,$N,$N])", "$PAIRS"},
};

// The number of sweeps over all pairs. Random 128 x 128 matrices are diagonal up to rounding after 8 sweeps in f32 and
// after 10 in f64.
int64_t Sweeps(tensor::ElementType type) { return type == tensor::ElementType::kF64 ? 14 : 10; }

}  // namespace

std::string MatrixProgram(absl::string_view routine, tensor::ElementType type, const MatrixProgramSizes& sizes) {
  const auto* found = std::find_if(std::begin(kRoutines), std::end(kRoutines),
                                   [&](const Routine& row) { return row.name == routine; });
  if (found == std::end(kRoutines)) return "";
  const int64_t m = sizes.rows, n = sizes.columns;
  const int64_t used = std::min({sizes.reflectors, m, n});
  const bool wide = type == tensor::ElementType::kF64;
  const std::string rotate_a = absl::StrReplaceAll(kRotateColumns, {{"$X", "a"}});
  const std::string rotate_v = absl::StrReplaceAll(kRotateColumns, {{"$X", "v"}});
  const std::string body = absl::StrReplaceAll(
      found->text,
      {{"$COLUMN", kColumn}, {"$SCALE", kScale}, {"$ROTATE_A", rotate_a}, {"$ROTATE_V", rotate_v},
       {"$CONDITION", kCondition}});
  const std::string loop =
      absl::StrReplaceAll(absl::StrCat(kReducers, body), {{"$STATE", found->state}, {"$STEPS", found->steps}});
  return absl::StrReplaceAll(loop,
                             {{"$B", absl::StrCat(sizes.batch)},
                              {"$M", absl::StrCat(m)},
                              {"$N", absl::StrCat(n)},
                              {"$K", absl::StrCat(sizes.reflectors)},
                              {"$R", absl::StrCat(used)},
                              {"$LAST", absl::StrCat((routine == "orgqr" ? used : m) - 1)},
                              {"$LOW", wide ? "1e-120" : "1e-15"},
                              {"$HIGH", wide ? "1e120" : "1e15"},
                              {"$PAIRS", absl::StrCat(n * (n - 1) / 2 * Sweeps(type))},
                              {"$TRIANGLE", sizes.upper ? "LE" : "GE"},
                              {"$T", tensor::ToString(type)}});
}

}  // namespace xlad::sharding

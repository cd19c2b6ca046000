/* Reductions of arrays for the collectives of GPUs, compiled to PTX by the build. */
#include "collectives/exec/device/reduce_kernel.h"
#include "runtime/devices/cuda/kernel_support.h"

/* The sources are 16 parameters and not an array, so that they are in registers. */
#define XLAD_REDUCE_PARAMETERS                                                                                        \
  void *to, int64_t count, int64_t code, const void *s0, const void *s1, const void *s2, const void *s3,              \
      const void *s4, const void *s5, const void *s6, const void *s7, const void *s8, const void *s9, const void *s10, \
      const void *s11, const void *s12, const void *s13, const void *s14, const void *s15

/* to[i] = the reduction of s0[i], s1[i], ...; `code` is an XladReduceCode. Each thread reads its element of all sources
 * before it writes, because `to` may be a source. */
KERNEL void xlad_reduce(XLAD_REDUCE_PARAMETERS) {
  const void* const sources[XLAD_REDUCE_SOURCES] = {s0, s1, s2,  s3,  s4,  s5,  s6,  s7,
                                                    s8, s9, s10, s11, s12, s13, s14, s15};
  const struct XladReduce what = XladReduceOf(code);
  const struct XladReduce of_two = {what.element, what.reduction, 0, 2, what.format};
  const int64_t at = Block() * XLAD_REDUCE_THREADS + Thread();
  if (at >= count) return;
  if (what.sources == 2) { /* The most frequent case, for which the compiler makes faster code. */
    XladReduceAt(to, sources, at, &of_two);
  } else {
    XladReduceAt(to, sources, at, &what);
  }
}

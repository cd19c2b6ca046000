/* Matrix products by tensor cores, for the kernels in C. */
#ifndef XLAD_RUNTIME_DEVICES_CUDA_KERNEL_MMA_H_
#define XLAD_RUNTIME_DEVICES_CUDA_KERNEL_MMA_H_

#include "runtime/devices/cuda/kernel_support.h"

/* A warp multiplies a[16, 16] and b[16, 8] and adds the product to sums[16, 8]. Elements of a and b have 16 bits, sums
 * are in f32. Lane l of the warp holds parts of the matrices in registers. With g = l / 4 and p = l % 4 * 2:
 *
 *   a[i]     row g + i % 2 * 8, columns c and c + 1, where c = p + i / 2 * 8
 *   b[i]     rows r and r + 1, column g, where r = p + i * 8
 *   sums[i]  row g + i / 2 * 8, column p + i % 2
 *
 * The first of two elements is in the low half. All threads of the warp must call Mma together. */
INLINE int MmaGroup(void) { return Thread() % XLAD_WARP / 4; }
INLINE int MmaPair(void) { return Thread() % 4 * 2; }

#define XLAD_MMA(type)                                                                    \
  __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
                   ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                   : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])           \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

INLINE void Mma(const uint32_t* a, const uint32_t* b, int element, float* sums) {
  if (element == XLAD_BF16) {
    XLAD_MMA("bf16");
  } else {
    XLAD_MMA("f16");
  }
}

/* The elements `first` and `first + 1` of a vector of elements of 16 bits. Elements at or after `end` are 0. */
INLINE uint32_t LoadPair(const uint16_t* vector, int64_t stride, int64_t first, int64_t end) {
  const uint16_t* const at = vector + first * stride;
  if (stride == 1 && ((uintptr_t)at & 3) == 0 && first + 1 < end) return *(const uint32_t*)at;
  const uint32_t low = first < end ? *at : 0, high = first + 1 < end ? at[stride] : 0;
  return low | high << 16;
}

/* The bits of a float that is a number of the type `element`, in this type. */
INLINE uint32_t ToHalf(uint32_t bits, int element) {
  if (element == XLAD_BF16) return bits >> 16;
  return __builtin_bit_cast(uint16_t, (_Float16)FromBits(bits));
}

/* LoadPair for floats that are numbers of the type `element`. */
INLINE uint32_t LoadPairOfFloats(const uint32_t* vector, int64_t first, int64_t end, int element) {
  const uint32_t low = first < end ? vector[first] : 0, high = first + 1 < end ? vector[first + 1] : 0;
  return ToHalf(low, element) | ToHalf(high, element) << 16;
}

#endif /* XLAD_RUNTIME_DEVICES_CUDA_KERNEL_MMA_H_ */

/* Functions that all kernels in C share: threads, barriers, and elements of arrays. */
#ifndef XLAD_RUNTIME_DEVICES_CUDA_KERNEL_SUPPORT_H_
#define XLAD_RUNTIME_DEVICES_CUDA_KERNEL_SUPPORT_H_

#include <stdint.h>

#include "runtime/devices/cuda/kernel_element.h"

#define KERNEL __attribute__((nvptx_kernel))
#define SHARED __attribute__((address_space(3)))
#define XLAD_WARP 32 /* The number of threads of a warp. */
#define UNROLL _Pragma("unroll")
#define INLINE static inline __attribute__((always_inline))

INLINE int Thread(void) { return __nvvm_read_ptx_sreg_tid_x(); }
INLINE int64_t Block(void) { return __nvvm_read_ptx_sreg_ctaid_x(); }
INLINE void Barrier(void) { __nvvm_bar_sync(0); }

INLINE float FromBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
INLINE uint32_t ToBits(float value) { return __builtin_bit_cast(uint32_t, value); }

INLINE float Load(const void* array, int64_t index, int element) {
  switch (element) {
    case XLAD_BF16:
      return FromBits((uint32_t)((const uint16_t*)array)[index] << 16);
    case XLAD_F16:
      return (float)((const _Float16*)array)[index];
    default:
      return ((const float*)array)[index];
  }
}

/* Rounds to nearest, ties to even, like tensor/small_float.h. */
INLINE uint16_t ToBf16(float value) {
  const uint32_t bits = ToBits(value);
  if (value != value) return (uint16_t)((bits >> 16 & 0x8000) | 0x7fc0);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

INLINE void Store(void* array, int64_t index, int element, float value) {
  switch (element) {
    case XLAD_BF16:
      ((uint16_t*)array)[index] = ToBf16(value);
      break;
    case XLAD_F16:
      ((_Float16*)array)[index] = (_Float16)value;
      break;
    default:
      ((float*)array)[index] = value;
  }
}

#endif /* XLAD_RUNTIME_DEVICES_CUDA_KERNEL_SUPPORT_H_ */

/* The kernel that reduces arrays in device memory. It is compiled to PTX (runtime/devices/cuda/reduce_kernels.c) and
 * for the host (reduce_code.cc), which runs it for simulated GPUs. This header is C, because the PTX is made from C.
 * The results are those of collectives/exec/reduce.h. */
#ifndef XLAD_COLLECTIVES_EXEC_DEVICE_REDUCE_KERNEL_H_
#define XLAD_COLLECTIVES_EXEC_DEVICE_REDUCE_KERNEL_H_

#include <stdint.h>

#define XLAD_REDUCE_SOURCES 16
#define XLAD_REDUCE_THREADS 256 /* The threads of a block. Each thread reduces one element. */

enum XladReduceElement {
  XLAD_REDUCE_F32,
  XLAD_REDUCE_BF16,
  XLAD_REDUCE_F16,
  XLAD_REDUCE_F8, /* Any float of 8 bits with a sign; XladReduce.format says which. */
  XLAD_REDUCE_F64,
  XLAD_REDUCE_PRED,
  XLAD_REDUCE_S8,
  XLAD_REDUCE_S16,
  XLAD_REDUCE_S32,
  XLAD_REDUCE_S64,
  XLAD_REDUCE_U8,
  XLAD_REDUCE_U16,
  XLAD_REDUCE_U32,
  XLAD_REDUCE_U64,
};

/* The numbers of collectives::Reduction. */
enum XladReduction { XLAD_SUM = 1, XLAD_PRODUCT, XLAD_MAX, XLAD_MIN, XLAD_AND, XLAD_OR, XLAD_XOR, XLAD_AVERAGE };

/* What the kernel computes. It is passed as one word (XladReduceCode), because each parameter of the kernel has 64
 * bits. */
struct XladReduce {
  int element, reduction, as_tree, sources;
  uint32_t format; /* An XLAD_FORMAT if the elements are floats of 8 bits, otherwise 0. */
};

/* A format of 8 bits: the members of tensor::FloatFormat with these names, each in 8 bits. */
#define XLAD_FORMAT(mantissa_bits, bias, max_finite, overflow) \
  ((uint32_t)(mantissa_bits) | (uint32_t)(bias) << 8 | (uint32_t)(max_finite) << 16 | (uint32_t)(overflow) << 24)

#define XLAD_REDUCE_INLINE static inline __attribute__((always_inline))
#define XLAD_REDUCE_UNROLL _Pragma("unroll")

XLAD_REDUCE_INLINE int64_t XladReduceCode(struct XladReduce what) {
  return (int64_t)((uint64_t)what.format << 32 |
                   (uint32_t)(what.element | what.reduction << 8 | what.as_tree << 16 | what.sources << 24));
}
XLAD_REDUCE_INLINE struct XladReduce XladReduceOf(int64_t code) {
  const struct XladReduce what = {(int)(code & 0xff), (int)(code >> 8 & 0xff), (int)(code >> 16 & 0xff),
                                  (int)(code >> 24 & 0xff), (uint32_t)(code >> 32)};
  return what;
}

XLAD_REDUCE_INLINE float XladFloat(uint32_t bits) { return __builtin_bit_cast(float, bits); }
XLAD_REDUCE_INLINE uint32_t XladBits(float value) { return __builtin_bit_cast(uint32_t, value); }
XLAD_REDUCE_INLINE float XladPowerOfTwo(int exponent) { return XladFloat((uint32_t)(exponent + 127) << 23); }

/* The conversions of tensor/small_float.h, except that decoding does not keep the payload of a NaN. If the code of an
 * overflow is that of -0, the format has one NaN with this code; if it is 0x7f, overflows are NaN. Otherwise they are
 * infinite. */
XLAD_REDUCE_INLINE float XladDecodeF8(uint32_t bits, uint32_t format) {
  const int mantissa_bits = format & 0xff, bias = format >> 8 & 0xff;
  const uint32_t code = bits & 0x7f, overflow = format >> 24;
  const uint32_t sign = (bits & 0x80) << 24;
  if (code > (format >> 16 & 0xff) || (overflow == 0x80 && bits == 0x80))
    return XladFloat(sign | (code == overflow && overflow < 0x7f ? 0x7f800000 : 0x7fc00000));
  /* The code is a float whose exponent is too small by the difference of the biases. The product is exact. */
  return XladFloat(sign | XladBits(XladFloat(code << (23 - mantissa_bits)) * XladPowerOfTwo(127 - bias)));
}
XLAD_REDUCE_INLINE uint8_t XladEncodeF8(float value, uint32_t format) {
  const int mantissa_bits = format & 0xff, bias = format >> 8 & 0xff, drop = 23 - mantissa_bits;
  const uint32_t overflow = format >> 24, sign = XladBits(value) >> 31 << 7, magnitude = XladBits(value) & 0x7fffffff;
  if (value != value) return (uint8_t)(overflow == 0x80 ? 0x80 : sign | overflow | 1u << (mantissa_bits - 1));
  uint32_t code = 0;
  if (XladFloat(magnitude) < XladPowerOfTwo(1 - bias)) { /* The sum rounds the subnormal result. */
    const float shifted = XladPowerOfTwo(1 - bias + drop);
    code = XladBits(XladFloat(magnitude) + shifted) - XladBits(shifted);
  } else {
    code = ((magnitude + (1u << (drop - 1)) - 1 + (magnitude >> drop & 1)) >> drop) -
           ((uint32_t)(127 - bias) << mantissa_bits);
  }
  if (code > (format >> 16 & 0xff)) code = overflow;
  return (uint8_t)(overflow == 0x80 && (code == 0 || code == 0x80) ? code : code | sign);
}

/* Elements of at most 32 bits are accumulated in f32. */
XLAD_REDUCE_INLINE float XladLoadReal(const void* array, int64_t at, const struct XladReduce* what) {
  const int element = what->element;
  if (element == XLAD_REDUCE_F8) return XladDecodeF8(((const uint8_t*)array)[at], what->format);
  if (element == XLAD_REDUCE_F32) return ((const float*)array)[at];
  if (element == XLAD_REDUCE_F16) return (float)((const _Float16*)array)[at];
  return XladFloat((uint32_t)((const uint16_t*)array)[at] << 16);
}
XLAD_REDUCE_INLINE void XladStoreReal(void* array, int64_t at, const struct XladReduce* what, float value) {
  const int element = what->element;
  const uint32_t bits = XladBits(value);
  if (element == XLAD_REDUCE_F8) {
    ((uint8_t*)array)[at] = XladEncodeF8(value, what->format);
  } else if (element == XLAD_REDUCE_F32) {
    ((float*)array)[at] = value;
  } else if (element == XLAD_REDUCE_F16) {
    ((_Float16*)array)[at] = (_Float16)value;
  } else if (value != value) {
    ((uint16_t*)array)[at] = (uint16_t)((bits >> 16 & 0x8000) | 0x7fc0);
  } else { /* Rounds to nearest, ties to even. */
    ((uint16_t*)array)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}
XLAD_REDUCE_INLINE double XladLoadDouble(const void* array, int64_t at, const struct XladReduce* what) {
  (void)what;
  return ((const double*)array)[at];
}
XLAD_REDUCE_INLINE void XladStoreDouble(void* array, int64_t at, const struct XladReduce* what, double value) {
  (void)what;
  ((double*)array)[at] = value;
}

/* Integers are accumulated in 64 bits. */
XLAD_REDUCE_INLINE int64_t XladLoadInteger(const void* array, int64_t at, const struct XladReduce* what) {
  switch (what->element) {
    case XLAD_REDUCE_PRED:
      return ((const uint8_t*)array)[at] != 0;
    case XLAD_REDUCE_S8:
      return ((const int8_t*)array)[at];
    case XLAD_REDUCE_S16:
      return ((const int16_t*)array)[at];
    case XLAD_REDUCE_S32:
      return ((const int32_t*)array)[at];
    case XLAD_REDUCE_U8:
      return ((const uint8_t*)array)[at];
    case XLAD_REDUCE_U16:
      return ((const uint16_t*)array)[at];
    case XLAD_REDUCE_U32:
      return ((const uint32_t*)array)[at];
    default:
      return ((const int64_t*)array)[at];
  }
}
XLAD_REDUCE_INLINE void XladStoreInteger(void* array, int64_t at, const struct XladReduce* what, int64_t value) {
  switch (what->element) {
    case XLAD_REDUCE_PRED:
    case XLAD_REDUCE_S8:
    case XLAD_REDUCE_U8:
      ((uint8_t*)array)[at] = (uint8_t)value;
      break;
    case XLAD_REDUCE_S16:
    case XLAD_REDUCE_U16:
      ((uint16_t*)array)[at] = (uint16_t)value;
      break;
    case XLAD_REDUCE_S32:
    case XLAD_REDUCE_U32:
      ((uint32_t*)array)[at] = (uint32_t)value;
      break;
    default:
      ((int64_t*)array)[at] = value;
  }
}

/* The max or min is NaN if an operand is NaN, and -0 is less than +0. */
#define XLAD_COMBINE_REALS(name, Number)                                              \
  XLAD_REDUCE_INLINE Number name(const struct XladReduce* what, Number a, Number b) { \
    const int is_max = what->reduction == XLAD_MAX;                                   \
    if (what->reduction == XLAD_SUM || what->reduction == XLAD_AVERAGE) return a + b; \
    if (what->reduction == XLAD_PRODUCT) return a * b;                                \
    if (a == b) return (__builtin_copysign(1.0, a) < 0) == is_max ? b : a;            \
    return (is_max ? a > b : a < b) || a != a ? a : b;                                \
  }
XLAD_COMBINE_REALS(XladCombineReal, float)
XLAD_COMBINE_REALS(XladCombineDouble, double)

XLAD_REDUCE_INLINE int XladIsUnsigned(int element) { return element >= XLAD_REDUCE_U8; }

XLAD_REDUCE_INLINE int64_t XladCombineInteger(const struct XladReduce* what, int64_t a, int64_t b) {
  const uint64_t x = (uint64_t)a, y = (uint64_t)b;
  const int is_pred = what->element == XLAD_REDUCE_PRED;
  const int is_less = XladIsUnsigned(what->element) ? x < y : a < b;
  switch (what->reduction) {
    case XLAD_PRODUCT:
      return (int64_t)(x * y); /* The product of two pred is their "and". */
    case XLAD_MAX:
      return is_less ? b : a;
    case XLAD_MIN:
      return is_less ? a : b;
    case XLAD_AND:
      return a & b;
    case XLAD_OR:
      return a | b;
    case XLAD_XOR:
      return a ^ b;
    default:
      return is_pred ? a | b : (int64_t)(x + y);
  }
}

XLAD_REDUCE_INLINE float XladDivideReal(const struct XladReduce* what, float sum) { return sum / (float)what->sources; }
XLAD_REDUCE_INLINE double XladDivideDouble(const struct XladReduce* what, double sum) {
  return sum / (double)what->sources;
}
/* Divides the sum in the type of the elements, in which it may have wrapped around. */
XLAD_REDUCE_INLINE int64_t XladDivideInteger(const struct XladReduce* what, int64_t sum) {
  uint64_t stored = 0;
  XladStoreInteger(&stored, 0, what, sum);
  const int64_t wrapped = XladLoadInteger(&stored, 0, what);
  if (XladIsUnsigned(what->element)) return (int64_t)((uint64_t)wrapped / (uint64_t)what->sources);
  return wrapped / what->sources;
}

/* Reduces element `at` from left to right, or as the tree of OpKind::kReduceTree. In that tree, sources whose numbers
 * have a distance of 1 are combined first, then those with a distance of 2, and so on. */
#define XLAD_REDUCE_ONE(Kind, Number)                                                                 \
  XLAD_REDUCE_INLINE void XladReduce##Kind(void* to, const void* const* sources, int64_t at,          \
                                           const struct XladReduce* what) {                           \
    Number values[XLAD_REDUCE_SOURCES];                                                               \
    XLAD_REDUCE_UNROLL for (int s = 0; s < XLAD_REDUCE_SOURCES; ++s) {                                \
      if (s < what->sources) values[s] = XladLoad##Kind(sources[s], at, what);                        \
    }                                                                                                 \
    if (what->as_tree) {                                                                              \
      XLAD_REDUCE_UNROLL for (int level = 0; 1 << level < XLAD_REDUCE_SOURCES; ++level) {             \
        XLAD_REDUCE_UNROLL for (int s = 0; s + (1 << level) < XLAD_REDUCE_SOURCES; s += 2 << level) { \
          if (s + (1 << level) < what->sources)                                                       \
            values[s] = XladCombine##Kind(what, values[s], values[s + (1 << level)]);                 \
        }                                                                                             \
      }                                                                                               \
    } else {                                                                                          \
      XLAD_REDUCE_UNROLL for (int s = 1; s < XLAD_REDUCE_SOURCES; ++s) {                              \
        if (s < what->sources) values[0] = XladCombine##Kind(what, values[0], values[s]);             \
      }                                                                                               \
    }                                                                                                 \
    if (what->reduction == XLAD_AVERAGE) values[0] = XladDivide##Kind(what, values[0]);               \
    XladStore##Kind(to, at, what, values[0]);                                                         \
  }
XLAD_REDUCE_ONE(Real, float)
XLAD_REDUCE_ONE(Double, double)
XLAD_REDUCE_ONE(Integer, int64_t)

XLAD_REDUCE_INLINE void XladReduceAt(void* to, const void* const* sources, int64_t at, const struct XladReduce* what) {
  if (what->element == XLAD_REDUCE_F64) {
    XladReduceDouble(to, sources, at, what);
  } else if (what->element < XLAD_REDUCE_F64) {
    XladReduceReal(to, sources, at, what);
  } else {
    XladReduceInteger(to, sources, at, what);
  }
}

#endif /* XLAD_COLLECTIVES_EXEC_DEVICE_REDUCE_KERNEL_H_ */

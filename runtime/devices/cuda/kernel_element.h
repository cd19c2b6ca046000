/* The element types that the kernels in C support. This header is C, because the kernels and the host include it. */
#ifndef XLAD_RUNTIME_DEVICES_CUDA_KERNEL_ELEMENT_H_
#define XLAD_RUNTIME_DEVICES_CUDA_KERNEL_ELEMENT_H_

/* How elements are stored. Only attention uses pred. Only matrix products use f64, with a result of f64, and s8, with a
 * result of s32. */
enum XladElement { XLAD_F32, XLAD_BF16, XLAD_F16, XLAD_S32, XLAD_PRED, XLAD_F64, XLAD_S8 };

#endif /* XLAD_RUNTIME_DEVICES_CUDA_KERNEL_ELEMENT_H_ */

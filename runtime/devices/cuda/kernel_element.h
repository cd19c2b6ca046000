/* The element types that the kernels in C support. This header is C, because the kernels and the host include it. */
#ifndef XLAD_RUNTIME_DEVICES_CUDA_KERNEL_ELEMENT_H_
#define XLAD_RUNTIME_DEVICES_CUDA_KERNEL_ELEMENT_H_

/* How elements are stored. Only attention uses s32 and pred. */
enum XladElement { XLAD_F32, XLAD_BF16, XLAD_F16, XLAD_S32, XLAD_PRED };

#endif /* XLAD_RUNTIME_DEVICES_CUDA_KERNEL_ELEMENT_H_ */

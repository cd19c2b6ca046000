/* The contract between compiled code and the runtime, in plain C.
 *
 * A kernel is a function of type XladKernel in the executable's object code. The compiler (compiler/codegen) emits it
 * and the device (runtime/devices) calls it; neither includes the other.
 *
 *   buffers  the addresses of the arguments, in the order of KernelStep.buffers (proto/executable.proto), each aligned
 *            to XLAD_BUFFER_ALIGNMENT; a kernel may read and write exactly the bytes of these slices
 *   scratch  KernelStep.scratch_bytes of memory that is used by this call only; may be NULL if that is 0
 *   api      calls back into the runtime, so that a natively compiled loop may contain library ops
 *
 * A kernel returns XLAD_KERNEL_OK, another XLAD_KERNEL_* code, or a code of its own, which the runtime reports. It does
 * not allocate memory, does not throw, keeps no state between calls, and may be called by several threads at once. For
 * example, a kernel with two buffers of four floats:
 *
 *   int32_t negate(void* const* buffers, void* scratch, const XladKernelApi* api) {
 *     for (int i = 0; i < 4; ++i) ((float*)buffers[1])[i] = -((const float*)buffers[0])[i];
 *     return XLAD_KERNEL_OK;
 *   }
 */
#ifndef XLAD_BASE_KERNEL_ABI_H_
#define XLAD_BASE_KERNEL_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XLAD_KERNEL_ABI_VERSION 1
#define XLAD_BUFFER_ALIGNMENT 64

#define XLAD_KERNEL_OK 0
#define XLAD_KERNEL_LIBRARY_OP_FAILED 1

typedef struct XladKernelApi {
  /* Runs library op `op` (an index into Executable.library_ops) on the given addresses: operands, then results. */
  int32_t (*run_library_op)(const struct XladKernelApi* api, int32_t op, void* const* arguments);
  /* The partition that this call computes: its row-major position in the mesh. */
  int32_t partition_id;
  void* runtime; /* Private to the runtime. */
} XladKernelApi;

typedef int32_t (*XladKernel)(void* const* buffers, void* scratch, const XladKernelApi* api);

#ifdef __cplusplus
}
#endif

#endif /* XLAD_BASE_KERNEL_ABI_H_ */

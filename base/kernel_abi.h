/* The contract between compiled code and the runtime, in plain C.
 *
 * A kernel is a function of this type in the executable's object code. The compiler (compiler/codegen/llvm) emits it,
 * the runtime (runtime/devices/cpu) calls it; neither includes the other.
 *
 *   buffers  base addresses, in the order of the step's argument list in the executable
 *            (proto/executable.proto, KernelStep.buffers); aligned to XLAD_BUFFER_ALIGNMENT
 *   scratch  KernelStep.scratch_bytes of memory that is used by this call alone; may be NULL if that is 0
 *   api      callbacks into the runtime, so that a natively compiled loop may contain library ops
 *
 * A kernel returns 0, or an XLAD_KERNEL_* code. It neither allocates nor throws, and keeps no state between calls.
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
  /* Runs library op `op` (index into Executable.library_ops) on the given addresses: operands, then results. */
  int32_t (*run_library_op)(const struct XladKernelApi* api, int32_t op, void* const* arguments);
  /* The partition this call computes: position in the mesh, row-major. */
  int32_t partition_id;
  void* runtime; /* The runtime's own. */
} XladKernelApi;

typedef int32_t (*XladKernel)(void* const* buffers, void* scratch, const XladKernelApi* api);

#ifdef __cplusplus
}
#endif

#endif /* XLAD_BASE_KERNEL_ABI_H_ */

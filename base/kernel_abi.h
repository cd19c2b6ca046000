/* The contract between compiled code and the runtime, in plain C.
 *
 * A kernel is a function of type XladKernel in the executable's object code. The compiler (compiler/codegen) emits it
 * and the device (runtime/devices) calls it; neither includes the other.
 *
 *   buffers     the addresses of the arguments, in the order of KernelStep.buffers (proto/executable.proto), each
 *               aligned to XLAD_BUFFER_ALIGNMENT; a kernel may read and write exactly the bytes of these slices
 *   scratch     KernelStep.scratch_bytes of memory that is used by this step only; may be NULL if that is 0
 *   api         calls back into the runtime, so that a natively compiled loop may contain library ops
 *   begin, end  this call computes the tiles [begin, end), 0 <= begin < end <= KernelStep.tiles
 *
 * Tiles are independent: several threads may compute different tiles of one step at once, in any order. What a tile
 * computes depends on its number alone, not on the range that it is called in, so that results do not depend on the
 * number of threads. All tiles of a step share `scratch`.
 *
 * A kernel returns XLAD_KERNEL_OK, another XLAD_KERNEL_* code, or a code of its own, which the runtime reports. It does
 * not allocate memory, does not throw, keeps no state between calls, and may be called by several threads at once. For
 * example, a kernel with two buffers of 4096 floats and 4 tiles:
 *
 *   int32_t negate(void* const* buffers, void* scratch, const XladKernelApi* api, int64_t begin, int64_t end) {
 *     for (int64_t i = 1024 * begin; i < 1024 * end; ++i) ((float*)buffers[1])[i] = -((const float*)buffers[0])[i];
 *     return XLAD_KERNEL_OK;
 *   }
 */
#ifndef XLAD_BASE_KERNEL_ABI_H_
#define XLAD_BASE_KERNEL_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XLAD_KERNEL_ABI_VERSION 2
#define XLAD_BUFFER_ALIGNMENT 64

#define XLAD_KERNEL_OK 0
#define XLAD_KERNEL_LIBRARY_OP_FAILED 1

struct XladKernelApi;

typedef int32_t (*XladKernel)(void* const* buffers, void* scratch, const struct XladKernelApi* api, int64_t begin,
                              int64_t end);

/* Only a kernel with one tile may call the two functions. */
typedef struct XladKernelApi {
  /* Runs library op `op` (an index into Executable.library_ops) on the given addresses: operands, then results.
   * Returns XLAD_KERNEL_OK or XLAD_KERNEL_LIBRARY_OP_FAILED. */
  int32_t (*run_library_op)(const struct XladKernelApi* api, int32_t op, void* const* arguments);
  /* Runs all `tiles` of another kernel on the threads of the device. Returns XLAD_KERNEL_OK, or one of the other codes
   * that its calls have returned. */
  int32_t (*run_tiles)(const struct XladKernelApi* api, XladKernel kernel, void* const* buffers, void* scratch,
                       int64_t tiles);
  /* The partition that this call computes: its row-major position in the mesh. */
  int32_t partition_id;
  void* runtime; /* Private to the runtime. */
} XladKernelApi;

#ifdef __cplusplus
}
#endif

#endif /* XLAD_BASE_KERNEL_ABI_H_ */

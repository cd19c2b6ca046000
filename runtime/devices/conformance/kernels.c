/* Kernels of the device conformance suite for devices that run this machine's native code: a program in the terms of
 * base/kernel_abi.h. Each has the buffers (count, ...), where count points to an int32_t. */
#include <stddef.h>

#include "base/kernel_abi.h"

/* (count, a, b, sum): sum[i] = a[i] + b[i]. */
int32_t xlad_test_add(void* const* buffers, void* scratch, const XladKernelApi* api) {
  const int32_t count = *(const int32_t*)buffers[0];
  const float* a = (const float*)buffers[1];
  const float* b = (const float*)buffers[2];
  float* sum = (float*)buffers[3];
  (void)scratch, (void)api;
  for (int32_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
  return XLAD_KERNEL_OK;
}

/* (count, x): x[i] += 1, by way of the scratch memory. */
int32_t xlad_test_increment(void* const* buffers, void* scratch, const XladKernelApi* api) {
  const int32_t count = *(const int32_t*)buffers[0];
  float* x = (float*)buffers[1];
  float* copy = (float*)scratch;
  (void)api;
  for (int32_t i = 0; i < count; ++i) copy[i] = x[i] + 1;
  for (int32_t i = 0; i < count; ++i) x[i] = copy[i];
  return XLAD_KERNEL_OK;
}

/* (count, x): x[i] = partition id. */
int32_t xlad_test_partition(void* const* buffers, void* scratch, const XladKernelApi* api) {
  const int32_t count = *(const int32_t*)buffers[0];
  float* x = (float*)buffers[1];
  (void)scratch;
  for (int32_t i = 0; i < count; ++i) x[i] = (float)api->partition_id;
  return XLAD_KERNEL_OK;
}

/* (count, a, b, product): library op 0, called from inside a kernel. */
int32_t xlad_test_call_dot(void* const* buffers, void* scratch, const XladKernelApi* api) {
  (void)scratch;
  return api->run_library_op(api, 0, buffers + 1);
}

/* (count): calls a library op that does not exist. */
int32_t xlad_test_call_unknown_op(void* const* buffers, void* scratch, const XladKernelApi* api) {
  (void)scratch;
  return api->run_library_op(api, 99, buffers);
}

/* (count): fails with a code of its own. */
int32_t xlad_test_fail(void* const* buffers, void* scratch, const XladKernelApi* api) {
  (void)buffers, (void)scratch, (void)api;
  return 7;
}

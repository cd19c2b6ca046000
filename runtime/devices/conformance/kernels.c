/* Kernels of the device conformance suite for devices that run this machine's native code, with the interface of
 * base/kernel_abi.h. The buffers of each kernel are (count, ...), where count points to an int32_t. */
#include <stddef.h>

#include "base/kernel_abi.h"

/* (count, a, b, sum): sum[i] = a[i] + b[i]. */
int32_t xlad_test_add(void* const* buffers, void* scratch, const XladKernelApi* api, int64_t begin,
                      int64_t end) {
  const int32_t count = *(const int32_t*)buffers[0];
  const float* a = (const float*)buffers[1];
  const float* b = (const float*)buffers[2];
  float* sum = (float*)buffers[3];
  (void)scratch, (void)api, (void)begin, (void)end;
  for (int32_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
  return XLAD_KERNEL_OK;
}

/* (count, x): x[i] += 1, with the sums written to the scratch memory first. */
int32_t xlad_test_increment(void* const* buffers, void* scratch, const XladKernelApi* api, int64_t begin,
                            int64_t end) {
  const int32_t count = *(const int32_t*)buffers[0];
  float* x = (float*)buffers[1];
  float* copy = (float*)scratch;
  (void)api, (void)begin, (void)end;
  for (int32_t i = 0; i < count; ++i) copy[i] = x[i] + 1;
  for (int32_t i = 0; i < count; ++i) x[i] = copy[i];
  return XLAD_KERNEL_OK;
}

/* (count, x): x[i] = partition id. */
int32_t xlad_test_partition(void* const* buffers, void* scratch, const XladKernelApi* api, int64_t begin,
                            int64_t end) {
  const int32_t count = *(const int32_t*)buffers[0];
  float* x = (float*)buffers[1];
  (void)scratch, (void)begin, (void)end;
  for (int32_t i = 0; i < count; ++i) x[i] = (float)api->partition_id;
  return XLAD_KERNEL_OK;
}

/* (count, a, b, product): library op 0, called from inside a kernel. */
int32_t xlad_test_call_dot(void* const* buffers, void* scratch, const XladKernelApi* api, int64_t begin,
                           int64_t end) {
  (void)scratch, (void)begin, (void)end;
  return api->run_library_op(api, 0, buffers + 1);
}

/* (count): calls a library op that does not exist. */
int32_t xlad_test_call_unknown_op(void* const* buffers, void* scratch, const XladKernelApi* api, int64_t begin,
                                  int64_t end) {
  (void)scratch, (void)begin, (void)end;
  return api->run_library_op(api, 99, buffers);
}

/* (count): fails with code 7. */
int32_t xlad_test_fail(void* const* buffers, void* scratch, const XladKernelApi* api, int64_t begin,
                       int64_t end) {
  (void)buffers, (void)scratch, (void)api, (void)begin, (void)end;
  return 7;
}

/* (count, x): tile t writes t to elements 16t .. 16t+15 of x, if they exist. */
int32_t xlad_test_tiles(void* const* buffers, void* scratch, const XladKernelApi* api, int64_t begin, int64_t end) {
  const int32_t count = *(const int32_t*)buffers[0];
  float* x = (float*)buffers[1];
  (void)scratch, (void)api;
  for (int64_t i = 16 * begin; i < 16 * end && i < count; ++i) x[i] = (float)(i / 16);
  return XLAD_KERNEL_OK;
}

/* (count, x): runs 40 tiles of xlad_test_tiles. */
int32_t xlad_test_call_tiles(void* const* buffers, void* scratch, const XladKernelApi* api, int64_t begin,
                             int64_t end) {
  (void)begin, (void)end;
  return api->run_tiles(api, xlad_test_tiles, buffers, scratch, 40);
}

/* (count): tiles 3 and 5 fail with their own numbers as codes. */
int32_t xlad_test_fail_tile(void* const* buffers, void* scratch, const XladKernelApi* api, int64_t begin, int64_t end) {
  (void)buffers, (void)scratch, (void)api;
  for (int64_t tile = begin; tile < end; ++tile) {
    if (tile == 3 || tile == 5) return (int32_t)tile;
  }
  return XLAD_KERNEL_OK;
}

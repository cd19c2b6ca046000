// The functions of NVIDIA's NCCL (libnccl.so.2) that xlad calls. The types are declared here, so xlad can be built
// without NCCL. nccl_api_test.cc compares them with NCCL's header if it is installed.
#pragma once

#include <climits>
#include <cstddef>

namespace xlad::collectives::nccl {

// ncclResult_t.
using Result = int;
inline constexpr Result kSuccess = 0, kUnhandledCudaError = 1, kSystemError = 2, kInternalError = 3,
                        kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;

using CommHandle = struct CommObject *;  // ncclComm_t
using StreamHandle = void *;             // cudaStream_t, which is a CUstream of the driver

// ncclUniqueId.
struct UniqueId {
  char bytes[128] = {};
};

// ncclDataType_t.
using DataType = int;
inline constexpr DataType kInt8 = 0, kUint8 = 1, kInt32 = 2, kUint32 = 3, kInt64 = 4, kUint64 = 5, kFloat16 = 6,
                          kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9;

// ncclRedOp_t.
using Op = int;
inline constexpr Op kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4;

// The beginning of ncclConfig_t, as it was in NCCL 2.18. NCCL reads `size` bytes and uses its defaults for the rest.
inline constexpr int kConfigVersion = 21800;
inline constexpr int kUndefined = INT_MIN;  // NCCL_CONFIG_UNDEF_INT
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kConfigVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

#define XLAD_NCCL_REDUCE_ALL_PARAMETERS \
  const void *send, void *receive, size_t count, DataType type, Op op, CommHandle communicator, StreamHandle stream
#define XLAD_NCCL_REDUCE_PARAMETERS                                                                       \
  const void *send, void *receive, size_t count, DataType type, Op op, int root, CommHandle communicator, \
      StreamHandle stream
#define XLAD_NCCL_GATHER_PARAMETERS \
  const void *send, void *receive, size_t count, DataType type, CommHandle communicator, StreamHandle stream
#define XLAD_NCCL_BROADCAST_PARAMETERS \
  const void *send, void *receive, size_t count, DataType type, int root, CommHandle communicator, StreamHandle stream
#define XLAD_NCCL_SEND_PARAMETERS \
  const void *send, size_t count, DataType type, int peer, CommHandle communicator, StreamHandle stream
#define XLAD_NCCL_RECEIVE_PARAMETERS \
  void *receive, size_t count, DataType type, int peer, CommHandle communicator, StreamHandle stream

// Each function with its result and its parameters. The names are those of the symbols in the library. `count` is the
// number of elements of the smaller buffer: of the input of an AllGather, and of the output of a ReduceScatter. With a
// nonblocking communicator, a function returns kInProgress if it has not finished.
#define XLAD_NCCL_FUNCTIONS(F)                                                                                     \
  F(Result, ncclGetVersion, (int* version))                                                                        \
  F(Result, ncclGetUniqueId, (UniqueId * id))                                                                      \
  F(Result, ncclCommInitRankConfig, (CommHandle * communicator, int ranks, UniqueId id, int rank, Config* config)) \
  F(Result, ncclCommFinalize, (CommHandle communicator))                                                           \
  F(Result, ncclCommDestroy, (CommHandle communicator))                                                            \
  F(Result, ncclCommAbort, (CommHandle communicator))                                                              \
  F(Result, ncclCommGetAsyncError, (CommHandle communicator, Result * error))                                      \
  F(const char*, ncclGetErrorString, (Result error))                                                               \
  F(const char*, ncclGetLastError, (CommHandle communicator))                                                      \
  F(Result, ncclGroupStart, ())                                                                                    \
  F(Result, ncclGroupEnd, ())                                                                                      \
  F(Result, ncclAllReduce, (XLAD_NCCL_REDUCE_ALL_PARAMETERS))                                                      \
  F(Result, ncclReduceScatter, (XLAD_NCCL_REDUCE_ALL_PARAMETERS))                                                  \
  F(Result, ncclAllGather, (XLAD_NCCL_GATHER_PARAMETERS))                                                          \
  F(Result, ncclBroadcast, (XLAD_NCCL_BROADCAST_PARAMETERS))                                                       \
  F(Result, ncclReduce, (XLAD_NCCL_REDUCE_PARAMETERS))                                                             \
  F(Result, ncclSend, (XLAD_NCCL_SEND_PARAMETERS))                                                                 \
  F(Result, ncclRecv, (XLAD_NCCL_RECEIVE_PARAMETERS))

}  // namespace xlad::collectives::nccl

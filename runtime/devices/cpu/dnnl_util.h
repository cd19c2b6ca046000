// oneDNN's C interface with RAII for its objects and absl::Status for its error codes. (The C++ interface throws
// exceptions.)
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "tensor/element_type.h"

namespace xlad::runtime {

template <typename T, dnnl_status_t (*destroy)(T)>
struct DnnlDestroyer {
  void operator()(T value) const { destroy(value); }
};
using DnnlPrimitiveDesc =
    std::unique_ptr<dnnl_primitive_desc, DnnlDestroyer<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>>;
using DnnlPrimitive = std::unique_ptr<dnnl_primitive, DnnlDestroyer<dnnl_primitive_t, dnnl_primitive_destroy>>;
using DnnlMemory = std::unique_ptr<dnnl_memory, DnnlDestroyer<dnnl_memory_t, dnnl_memory_destroy>>;
using DnnlStream = std::unique_ptr<dnnl_stream, DnnlDestroyer<dnnl_stream_t, dnnl_stream_destroy>>;

absl::Status FromDnnl(dnnl_status_t status, const char* what);
dnnl_engine_t DnnlEngine();
dnnl_data_type_t DnnlType(tensor::ElementType type);  // bf16 for kBF16, otherwise f32.

// Limits OpenMP to one thread in the calling thread, because oneDNN must not start threads in addition to those of the
// runtime. Cheap after the first call on a thread.
void UseOneThread();

// Makes oneDNN generate the code of its f32 matrix products, which takes about 30 ms. Otherwise, the first product of a
// process does so. Later calls return at once.
void GenerateMatrixCode();

// A primitive whose scratchpad memory is passed in by the caller.
struct DnnlOp {
  DnnlPrimitiveDesc desc;
  DnnlPrimitive primitive;
  std::string name;  // The name of the implementation.
  dnnl_memory_desc_t scratchpad;
  int64_t scratchpad_bytes = 0;  // The size of the scratchpad, a multiple of the buffer alignment.

  bool IsFast() const;           // Whether the implementation is not one of oneDNN's reference implementations.
  bool IsMatrixProduct() const;  // Whether the implementation is a general matrix product.
  const dnnl_memory_desc_t& Desc(dnnl_query_t what) const;
};
// `op_desc` is a dnnl_*_desc_t; `hint` is the forward primitive's description if this one is backward, or null.
// Unimplemented if oneDNN has no implementation.
absl::StatusOr<DnnlOp> MakeDnnlOp(const void* op_desc, const dnnl_primitive_desc* hint);
// A primitive that copies a tensor from one layout or type to another.
absl::StatusOr<DnnlOp> MakeDnnlReorder(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to);

// The arguments of a primitive and a stream. Used by one thread at a time.
class DnnlCall {
 public:
  // Called once, before Run. Each argument is oneDNN's number for it (DNNL_ARG_*) and its description. `op` must
  // outlive this object.
  absl::Status Prepare(const DnnlOp& op, const std::vector<std::pair<int, dnnl_memory_desc_t>>& arguments);
  // `addresses` are in the order of the arguments.
  absl::Status Run(absl::Span<void* const> addresses, void* scratchpad);

 private:
  const dnnl_primitive* primitive_ = nullptr;
  DnnlStream stream_;
  std::vector<DnnlMemory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

}  // namespace xlad::runtime

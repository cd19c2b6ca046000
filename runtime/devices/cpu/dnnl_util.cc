#include "runtime/devices/cpu/dnnl_util.h"

#include <dlfcn.h>

#include "absl/strings/match.h"
#include "base/kernel_abi.h"
#include "base/rounding.h"

namespace xlad::runtime {
namespace {

using DnnlAttributes =
    std::unique_ptr<dnnl_primitive_attr, DnnlDestroyer<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>>;

absl::StatusOr<DnnlAttributes> UserScratchpad() {
  dnnl_primitive_attr_t raw = nullptr;
  XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_primitive_attr_create(&raw), "attributes"));
  DnnlAttributes attributes(raw);
  XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_primitive_attr_set_scratchpad_mode(raw, dnnl_scratchpad_mode_user), "scratchpad"));
  return attributes;
}

absl::StatusOr<DnnlOp> Finish(dnnl_primitive_desc_t desc) {
  DnnlOp op;
  op.desc.reset(desc);
  const char* name = nullptr;
  dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
  op.name = name == nullptr ? "?" : name;
  op.scratchpad = *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
  op.scratchpad_bytes = RoundUp(dnnl_memory_desc_get_size(&op.scratchpad), XLAD_BUFFER_ALIGNMENT);
  dnnl_primitive_t primitive = nullptr;
  XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_primitive_create(&primitive, desc), "primitive"));
  op.primitive.reset(primitive);
  return op;
}

}  // namespace

absl::Status FromDnnl(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("oneDNN: ", what, " failed with status ", status));
}

dnnl_engine_t DnnlEngine() {
  static dnnl_engine_t engine = [] {
    dnnl_engine_t made = nullptr;
    dnnl_engine_create(&made, dnnl_cpu, 0);
    return made;
  }();
  return engine;
}

dnnl_data_type_t DnnlType(tensor::ElementType type) {
  return type == tensor::ElementType::kBF16 ? dnnl_bf16 : dnnl_f32;
}

void UseOneThread() {
  // omp_set_num_threads applies to the calling thread. The symbol exists if oneDNN uses OpenMP.
  thread_local const bool done = [] {
    const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (set != nullptr) set(1);
    return true;
  }();
  (void)done;
}

void GenerateMatrixCode() {
  UseOneThread();
  constexpr int64_t kSize = 64;  // oneDNN computes much smaller products without this code.
  std::vector<float> matrix(kSize * kSize), product(kSize * kSize);
  dnnl_sgemm('T', 'N', kSize, kSize, kSize, 1, matrix.data(), kSize, matrix.data(), kSize, 0, product.data(), kSize);
}

bool DnnlOp::IsFast() const { return !absl::StrContains(name, "ref"); }
bool DnnlOp::IsMatrixProduct() const { return absl::StrContains(name, "gemm"); }

const dnnl_memory_desc_t& DnnlOp::Desc(dnnl_query_t what) const {
  return *dnnl_primitive_desc_query_md(desc.get(), what, 0);
}

absl::StatusOr<DnnlOp> MakeDnnlOp(const void* op_desc, const dnnl_primitive_desc* hint) {
  XLAD_ASSIGN_OR_RETURN(const DnnlAttributes attributes, UserScratchpad());
  dnnl_primitive_desc_t desc = nullptr;
  if (dnnl_primitive_desc_create(&desc, op_desc, attributes.get(), DnnlEngine(), hint) != dnnl_success) {
    return absl::UnimplementedError("oneDNN has no implementation for this operation");
  }
  return Finish(desc);
}

absl::StatusOr<DnnlOp> MakeDnnlReorder(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to) {
  XLAD_ASSIGN_OR_RETURN(const DnnlAttributes attributes, UserScratchpad());
  dnnl_primitive_desc_t desc = nullptr;
  if (dnnl_reorder_primitive_desc_create(&desc, &from, DnnlEngine(), &to, DnnlEngine(), attributes.get()) !=
      dnnl_success) {
    return absl::UnimplementedError("oneDNN cannot convert between these memory layouts");
  }
  return Finish(desc);
}

absl::Status DnnlCall::Prepare(const DnnlOp& op, const std::vector<std::pair<int, dnnl_memory_desc_t>>& arguments) {
  primitive_ = op.primitive.get();
  dnnl_stream_t stream = nullptr;
  XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_stream_create(&stream, DnnlEngine(), dnnl_stream_default_flags), "stream"));
  stream_.reset(stream);
  const auto add = [&](int name, const dnnl_memory_desc_t& desc) {
    dnnl_memory_t memory = nullptr;
    XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_memory_create(&memory, &desc, DnnlEngine(), DNNL_MEMORY_NONE), "memory"));
    memories_.emplace_back(memory);
    arguments_.push_back({name, memory});
    return absl::OkStatus();
  };
  for (const auto& [name, desc] : arguments) XLAD_RETURN_IF_ERROR(add(name, desc));
  return add(DNNL_ARG_SCRATCHPAD, op.scratchpad);
}

absl::Status DnnlCall::Run(absl::Span<void* const> addresses, void* scratchpad) {
  UseOneThread();
  for (size_t i = 0; i < addresses.size(); ++i) dnnl_memory_set_data_handle(memories_[i].get(), addresses[i]);
  dnnl_memory_set_data_handle(memories_.back().get(), scratchpad);
  return FromDnnl(dnnl_primitive_execute(primitive_, stream_.get(), arguments_.size(), arguments_.data()),
                  "a primitive");
}

}  // namespace xlad::runtime

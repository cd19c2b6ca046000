// Matrix products by oneDNN.
//
// A plan is tried at load: operands as they lie in memory (transposes are strides), then with one or both packed to
// row-major, then with bf16 widened to f32 for machines without bf16; the first that oneDNN has a fast
// implementation for is taken. oneDNN's C interface is used: the C++ one throws.
#include "runtime/devices/cpu/dot.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.h>

#include "absl/strings/match.h"
#include "base/kernel_abi.h"
#include "runtime/devices/cpu/dot_shape.h"
#include "tensor/element_type.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

int64_t RoundUp(int64_t bytes) {
  return (bytes + XLAD_BUFFER_ALIGNMENT - 1) / XLAD_BUFFER_ALIGNMENT * XLAD_BUFFER_ALIGNMENT;
}

absl::Status FromDnnl(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("oneDNN: ", what, " failed with status ", static_cast<int>(status)));
}

dnnl_engine_t Engine() {
  static dnnl_engine_t engine = [] {
    dnnl_engine_t made = nullptr;
    dnnl_engine_create(&made, dnnl_cpu, 0);
    return made;
  }();
  return engine;
}

template <typename T, dnnl_status_t (*destroy)(T)>
struct Destroyer {
  void operator()(T value) const { destroy(value); }
};
using PrimitiveDesc =
    std::unique_ptr<dnnl_primitive_desc, Destroyer<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>>;
using Primitive = std::unique_ptr<dnnl_primitive, Destroyer<dnnl_primitive_t, dnnl_primitive_destroy>>;
using Memory = std::unique_ptr<dnnl_memory, Destroyer<dnnl_memory_t, dnnl_memory_destroy>>;
using Stream = std::unique_ptr<dnnl_stream, Destroyer<dnnl_stream_t, dnnl_stream_destroy>>;
using Attributes = std::unique_ptr<dnnl_primitive_attr, Destroyer<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>>;

// How the product is computed.
struct Plan {
  bool pack_lhs = false, pack_rhs = false;
  bool widen = false;  // Operands to f32, result from f32.
};

struct Types {
  ElementType lhs, rhs, result;
};

struct Matrices {
  dnnl_memory_desc_t lhs, rhs, result;
};

dnnl_data_type_t DataType(ElementType type) { return type == ElementType::kBF16 ? dnnl_bf16 : dnnl_f32; }

absl::StatusOr<dnnl_memory_desc_t> Describe(const DotShape& shape, const DotLoop& row, const DotLoop& column,
                                            int64_t DotLoop::*stride, ElementType type) {
  dnnl_dims_t sizes, strides;
  int n = 0;
  const auto add = [&](const DotLoop& loop) {
    sizes[n] = loop.size;
    strides[n++] = loop.*stride;
  };
  if (shape.batch.size() + 2 > DNNL_MAX_NDIMS) return absl::UnimplementedError("dot: more batch dimensions than oneDNN takes");
  for (const DotLoop& loop : shape.batch) add(loop);
  add(row);
  add(column);
  dnnl_memory_desc_t desc;
  XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_memory_desc_init_by_strides(&desc, n, sizes, DataType(type), strides),
                                "memory description"));
  return desc;
}

DotLoop Only(const std::vector<DotLoop>& loops) { return loops.empty() ? DotLoop{} : loops[0]; }

// Strides of the extents of 1 that were merged away: as if row-major, which is what oneDNN recognises.
absl::StatusOr<Matrices> DescribeAll(const DotShape& shape, const Types& types) {
  DotLoop m = Only(shape.m), n = Only(shape.n), k = Only(shape.k);
  if (m.size == 1) m.lhs = k.lhs * k.size, m.result = n.size;
  if (n.size == 1) n.rhs = k.rhs == 1 ? k.size : 1, n.result = 1;
  if (k.size == 1) k.lhs = m.lhs == 1 ? m.size : 1, k.rhs = n.rhs * n.size;
  Matrices matrices;
  XLAD_ASSIGN_OR_RETURN(matrices.lhs, Describe(shape, m, k, &DotLoop::lhs, types.lhs));
  XLAD_ASSIGN_OR_RETURN(matrices.rhs, Describe(shape, k, n, &DotLoop::rhs, types.rhs));
  XLAD_ASSIGN_OR_RETURN(matrices.result, Describe(shape, m, n, &DotLoop::result, types.result));
  return matrices;
}

PackKind KindOf(ElementType from, bool widen) {
  if (from == ElementType::kF32) return PackKind::kSame4;
  if (from == ElementType::kF16) return PackKind::kF16ToF32;
  return widen ? PackKind::kBf16ToF32 : PackKind::kSame2;
}

void Narrow(ElementType type, const float* from, int64_t count, void* to) {
  if (type == ElementType::kF16) {
    _Float16* half = static_cast<_Float16*>(to);
    for (int64_t i = 0; i < count; ++i) half[i] = static_cast<_Float16>(from[i]);
    return;
  }
  uint16_t* brain = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &from[i], sizeof(bits));
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    brain[i] = static_cast<uint16_t>(from[i] != from[i] ? (bits >> 16) | 0x40 : rounded);
  }
}

class DnnlDot final : public Dot {
 public:
  // Whether this plan is one that oneDNN is fast at.
  static absl::StatusOr<std::unique_ptr<DnnlDot>> Try(const DotOp& op, const Types& types, const Plan& plan) {
    auto dot = std::make_unique<DnnlDot>();
    dot->plan_ = plan;
    dot->types_ = types;
    XLAD_ASSIGN_OR_RETURN(dot->shape_, ReadDotShape(op));
    XLAD_RETURN_IF_ERROR(dot->Prepare());
    return dot;
  }

  int64_t scratch_bytes() const override { return lhs_bytes_ + rhs_bytes_ + result_bytes_ + library_bytes_; }
  absl::StatusOr<std::unique_ptr<DotCall>> MakeCall() const override;
  std::string Description() const override {
    return absl::StrCat(name_, plan_.pack_lhs ? ", lhs packed" : "", plan_.pack_rhs ? ", rhs packed" : "",
                        plan_.widen ? ", in f32" : "");
  }

 private:
  friend class DnnlCall;

  absl::Status Prepare() {
    const auto bytes = [&](const Packing& packing, ElementType type) {
      int64_t elements = 1;
      for (const int64_t size : packing.sizes) elements *= size;
      return RoundUp(elements * (plan_.widen ? 4 : tensor::ByteWidth(type)));
    };
    if (plan_.pack_lhs) lhs_bytes_ = bytes(lhs_packing_ = PackLhs(&shape_), types_.lhs);
    if (plan_.pack_rhs) rhs_bytes_ = bytes(rhs_packing_ = PackRhs(&shape_), types_.rhs);
    const int64_t results = shape_.Elements(shape_.batch) * shape_.Elements(shape_.m) * shape_.Elements(shape_.n);
    result_elements_ = results;
    empty_ = results == 0 || shape_.Elements(shape_.k) == 0;
    if (empty_) return absl::OkStatus();
    if (plan_.widen && types_.result != ElementType::kF32) result_bytes_ = RoundUp(results * 4);
    shape_.Merge();
    if (!shape_.IsMatrix()) return absl::UnimplementedError("strides that are no matrix");
    const Types computed = plan_.widen ? Types{ElementType::kF32, ElementType::kF32, ElementType::kF32} : types_;
    XLAD_ASSIGN_OR_RETURN(matrices_, DescribeAll(shape_, computed));
    return MakePrimitive();
  }

  absl::Status MakePrimitive() {
    dnnl_primitive_attr_t raw_attributes = nullptr;
    XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_primitive_attr_create(&raw_attributes), "attributes"));
    const Attributes attributes(raw_attributes);
    XLAD_RETURN_IF_ERROR(
        FromDnnl(dnnl_primitive_attr_set_scratchpad_mode(raw_attributes, dnnl_scratchpad_mode_user), "scratchpad"));
    dnnl_matmul_desc_t desc;
    XLAD_RETURN_IF_ERROR(FromDnnl(
        dnnl_matmul_desc_init(&desc, &matrices_.lhs, &matrices_.rhs, nullptr, &matrices_.result), "matmul"));
    dnnl_primitive_desc_t raw_desc = nullptr;
    if (dnnl_primitive_desc_create(&raw_desc, &desc, raw_attributes, Engine(), nullptr) != dnnl_success) {
      return absl::UnimplementedError("oneDNN has no matmul for this");
    }
    desc_.reset(raw_desc);
    const char* name = nullptr;
    dnnl_primitive_desc_query(raw_desc, dnnl_query_impl_info_str, 0, &name);
    name_ = name == nullptr ? "?" : name;
    scratchpad_ = *dnnl_primitive_desc_query_md(raw_desc, dnnl_query_scratchpad_md, 0);
    library_bytes_ = RoundUp(static_cast<int64_t>(dnnl_memory_desc_get_size(&scratchpad_)));
    dnnl_primitive_t raw_primitive = nullptr;
    XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_primitive_create(&raw_primitive, raw_desc), "primitive"));
    primitive_.reset(raw_primitive);
    return absl::OkStatus();
  }

 public:
  bool IsFast() const { return empty_ || !absl::StrContains(name_, "ref"); }

 private:
  Plan plan_;
  Types types_;
  DotShape shape_;
  Packing lhs_packing_, rhs_packing_;
  Matrices matrices_;
  dnnl_memory_desc_t scratchpad_;
  PrimitiveDesc desc_;
  Primitive primitive_;
  std::string name_ = "nothing to sum";
  bool empty_ = false;
  int64_t result_elements_ = 0;
  int64_t lhs_bytes_ = 0, rhs_bytes_ = 0, result_bytes_ = 0, library_bytes_ = 0;
};

class DnnlCall final : public DotCall {
 public:
  explicit DnnlCall(const DnnlDot* dot) : dot_(*dot) {}

  absl::Status Prepare() {
    if (dot_.empty_) return absl::OkStatus();
    dnnl_stream_t stream = nullptr;
    XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_stream_create(&stream, Engine(), dnnl_stream_default_flags), "stream"));
    stream_.reset(stream);
    const dnnl_memory_desc_t* descs[] = {&dot_.matrices_.lhs, &dot_.matrices_.rhs, &dot_.matrices_.result,
                                         &dot_.scratchpad_};
    const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    for (int i = 0; i < 4; ++i) {
      dnnl_memory_t memory = nullptr;
      XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_memory_create(&memory, descs[i], Engine(), DNNL_MEMORY_NONE), "memory"));
      memories_.emplace_back(memory);
      arguments_.push_back({names[i], memory});
    }
    return absl::OkStatus();
  }

  absl::Status Run(const void* lhs, const void* rhs, void* result, void* scratch) override {
    if (dot_.empty_) {
      const int64_t width = tensor::ByteWidth(dot_.types_.result);
      std::memset(result, 0, static_cast<size_t>(dot_.result_elements_ * width));
      return absl::OkStatus();
    }
    UseOneThread();
    char* free = static_cast<char*>(scratch);
    const auto take = [&](int64_t bytes) { return std::exchange(free, free + bytes); };
    if (dot_.plan_.pack_lhs) lhs = Packed(dot_.lhs_packing_, dot_.types_.lhs, lhs, take(dot_.lhs_bytes_));
    if (dot_.plan_.pack_rhs) rhs = Packed(dot_.rhs_packing_, dot_.types_.rhs, rhs, take(dot_.rhs_bytes_));
    void* product = dot_.result_bytes_ > 0 ? take(dot_.result_bytes_) : result;
    void* handles[] = {const_cast<void*>(lhs), const_cast<void*>(rhs), product, free};
    for (size_t i = 0; i < 4; ++i) dnnl_memory_set_data_handle(memories_[i].get(), handles[i]);
    XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_primitive_execute(dot_.primitive_.get(), stream_.get(),
                                                         static_cast<int>(arguments_.size()), arguments_.data()),
                                  "matmul"));
    if (product != result) Narrow(dot_.types_.result, static_cast<float*>(product), dot_.result_elements_, result);
    return absl::OkStatus();
  }

 private:
  const void* Packed(const Packing& packing, ElementType type, const void* from, void* to) const {
    Pack(packing, KindOf(type, dot_.plan_.widen), from, to);
    return to;
  }

  const DnnlDot& dot_;
  Stream stream_;
  std::vector<Memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

absl::StatusOr<std::unique_ptr<DotCall>> DnnlDot::MakeCall() const {
  auto call = std::make_unique<DnnlCall>(this);
  XLAD_RETURN_IF_ERROR(call->Prepare());
  return call;
}

bool IsLibraryType(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kBF16 || type == ElementType::kF16;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dot>> Dot::Create(const DotOp& op) {
  UseOneThread();
  const Types types{static_cast<ElementType>(op.lhs().element_type()), static_cast<ElementType>(op.rhs().element_type()),
                    static_cast<ElementType>(op.result().element_type())};
  if (!IsLibraryType(types.lhs) || !IsLibraryType(types.rhs) || !IsLibraryType(types.result)) {
    return absl::UnimplementedError("library op dot: element types other than f32, bf16 and f16");
  }
  XLAD_RETURN_IF_ERROR(ReadDotShape(op).status());
  const bool direct = types.lhs == types.rhs && types.lhs != ElementType::kF16 && types.result != ElementType::kF16 &&
                      (types.lhs == ElementType::kBF16 || types.result == ElementType::kF32);
  std::vector<Plan> plans;
  if (direct) plans = {{false, false, false}, {false, true, false}, {true, false, false}, {true, true, false}};
  plans.push_back({true, true, true});
  std::unique_ptr<DnnlDot> slow;
  for (const Plan& plan : plans) {
    absl::StatusOr<std::unique_ptr<DnnlDot>> dot = DnnlDot::Try(op, types, plan);
    if (!dot.ok()) continue;
    if ((*dot)->IsFast()) return std::unique_ptr<Dot>(std::move(*dot));
    if (slow == nullptr) slow = std::move(*dot);
  }
  if (slow == nullptr) return absl::UnimplementedError("library op dot: oneDNN has no implementation for these shapes");
  return std::unique_ptr<Dot>(std::move(slow));
}

void UseOneThread() {
  // A setting of the calling thread. The symbol is there where oneDNN runs on OpenMP.
  thread_local const bool done = [] {
    const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (set != nullptr) set(1);
    return true;
  }();
  (void)done;
}

}  // namespace xlad::runtime

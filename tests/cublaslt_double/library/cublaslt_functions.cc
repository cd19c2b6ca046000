// The functions of cuBLASLt that xlad calls, with the results on which xlad relies.
#include <atomic>
#include <cstring>
#include <utility>

#include "tests/cublaslt_double/product.h"
#include "tests/cuda_driver_double/driver_double_hooks.h"

namespace xlad::runtime::cuda {

struct LtHandleObject {};
struct LtMatmulDescObject {
  cublaslt_double::Operation operation;
};
struct LtLayoutObject {
  cublaslt_double::Layout layout;
};
struct LtPreferenceObject {
  cublaslt_double::Preference preference;
};

// A function whose parameters differ from cublaslt_api.h does not compile.
#define XLAD_DECLARE(result, name, parameters) extern "C" XLAD_DOUBLE_EXPORT result name parameters;
XLAD_CUBLASLT_FUNCTIONS(XLAD_DECLARE)
#undef XLAD_DECLARE
// The number of objects that have been created and not destroyed.
extern "C" XLAD_DOUBLE_EXPORT int xladCublasLtDoubleObjects();
// The number of products that have been enqueued.
extern "C" XLAD_DOUBLE_EXPORT int xladCublasLtDoubleProducts();

namespace {

using cublaslt_double::Problem;

std::atomic<int> objects{0}, products{0};

// An error that a test injects is a code of cuBLASLt. An error of the asynchronous work of the driver, which has a code
// of the driver, becomes kLtExecutionFailed.
LtStatus EnterFunction(const char* name) {
  const LtStatus injected = xladCudaDoubleEnter(name);
  return xladCudaDoubleBroken() == kSuccess ? injected : kLtExecutionFailed;
}

template <typename T>
LtStatus MakeObject(T** made, T object) {
  *made = new T(std::move(object));
  ++objects;
  return kLtSuccess;
}
template <typename T>
LtStatus DestroyObject(T* object) {
  if (object == nullptr) return kLtInvalidValue;
  delete object;
  --objects;
  return kLtSuccess;
}

// Copies the value of an attribute, whose size must be that of `target`.
template <typename T>
LtStatus SetValue(T* target, const void* value, size_t size) {
  if (value == nullptr || size != sizeof(T)) return kLtInvalidValue;
  std::memcpy(target, value, size);
  return kLtSuccess;
}

// A number of a scale type: float, double or int32_t.
struct Scale {
  std::byte bytes[8] = {};
};
Scale ReadScale(const void* number, int scale_type) {
  Scale scale;
  std::memcpy(scale.bytes, number, scale_type == kLtF64 ? 8 : 4);
  return scale;
}
bool IsZero(const Scale& scale, int scale_type) {
  double number = 0;
  if (scale_type == kLtF64) {
    std::memcpy(&number, scale.bytes, sizeof(number));
  } else if (scale_type == kLtF32) {
    float single;
    std::memcpy(&single, scale.bytes, sizeof(single));
    number = static_cast<double>(single);
  } else {
    int32_t integer;
    std::memcpy(&integer, scale.bytes, sizeof(integer));
    number = integer;
  }
  return number == 0;
}

// A product that the thread of the stream computes.
struct Product {
  Problem problem;
  LtAlgorithm algorithm;
  Scale alpha;
  cublaslt_double::Addresses at = {};
};

Result RunProduct(void* argument) {
  const auto& [problem, algorithm, alpha, at] = *static_cast<const Product*>(argument);
  const size_t workspace_bytes = cublaslt_double::WorkspaceBytes(algorithm);
  void* const a = xladCudaDoubleRange(at.a, problem.a.Bytes());
  void* const b = xladCudaDoubleRange(at.b, problem.b.Bytes());
  void* const d = xladCudaDoubleRange(at.d, problem.d.Bytes());
  void* const workspace = workspace_bytes > 0 ? xladCudaDoubleRange(at.workspace, workspace_bytes) : nullptr;
  if (a == nullptr || b == nullptr || d == nullptr || (workspace == nullptr && workspace_bytes > 0)) {
    return kIllegalAddress;
  }
  cublaslt_double::Multiply(problem, algorithm, alpha.bytes,
                            {static_cast<std::byte*>(a), static_cast<std::byte*>(b), static_cast<std::byte*>(d),
                             static_cast<std::byte*>(workspace)});
  return kSuccess;
}

}  // namespace

#define XLAD_ENTER_LT(name) \
  if (const LtStatus entered = EnterFunction(#name); entered != kLtSuccess) return entered

int xladCublasLtDoubleObjects() { return objects; }
int xladCublasLtDoubleProducts() { return products; }

size_t cublasLtGetVersion() { return static_cast<size_t>(xladCudaDoubleCublasLtVersion()); }
const char* cublasLtGetStatusName(LtStatus status) {
  constexpr std::pair<LtStatus, const char*> kNames[] = {
      {kLtSuccess, "CUBLAS_STATUS_SUCCESS"},
      {kLtNotInitialized, "CUBLAS_STATUS_NOT_INITIALIZED"},
      {kLtAllocFailed, "CUBLAS_STATUS_ALLOC_FAILED"},
      {kLtInvalidValue, "CUBLAS_STATUS_INVALID_VALUE"},
      {kLtArchMismatch, "CUBLAS_STATUS_ARCH_MISMATCH"},
      {kLtExecutionFailed, "CUBLAS_STATUS_EXECUTION_FAILED"},
      {kLtInternalError, "CUBLAS_STATUS_INTERNAL_ERROR"},
      {kLtNotSupported, "CUBLAS_STATUS_NOT_SUPPORTED"},
  };
  for (const auto& [code, name] : kNames) {
    if (code == status) return name;
  }
  return "unknown";
}
LtStatus cublasLtCreate(LtHandle* handle) {
  XLAD_ENTER_LT(cublasLtCreate);
  return MakeObject(handle, LtHandleObject{});
}
LtStatus cublasLtDestroy(LtHandle handle) { return DestroyObject(handle); }

// Descriptors.
LtStatus cublasLtMatmulDescCreate(LtMatmulDesc* desc, int compute_type, int scale_type) {
  XLAD_ENTER_LT(cublasLtMatmulDescCreate);
  return MakeObject(desc, LtMatmulDescObject{{compute_type, scale_type}});
}
LtStatus cublasLtMatmulDescDestroy(LtMatmulDesc desc) { return DestroyObject(desc); }
LtStatus cublasLtMatmulDescSetAttribute(LtMatmulDesc desc, int attribute, const void* value, size_t size) {
  XLAD_ENTER_LT(cublasLtMatmulDescSetAttribute);
  if (attribute == kLtDescTransposeA) return SetValue(&desc->operation.transpose_a, value, size);
  if (attribute == kLtDescTransposeB) return SetValue(&desc->operation.transpose_b, value, size);
  return kLtInvalidValue;
}
LtStatus cublasLtMatrixLayoutCreate(LtLayout* layout, int type, uint64_t rows, uint64_t columns,
                                    int64_t leading_dimension) {
  XLAD_ENTER_LT(cublasLtMatrixLayoutCreate);
  return MakeObject(layout, LtLayoutObject{{type, rows, columns, leading_dimension}});
}
LtStatus cublasLtMatrixLayoutDestroy(LtLayout layout) { return DestroyObject(layout); }
LtStatus cublasLtMatrixLayoutSetAttribute(LtLayout layout, int attribute, const void* value, size_t size) {
  XLAD_ENTER_LT(cublasLtMatrixLayoutSetAttribute);
  if (attribute == kLtLayoutBatchCount) return SetValue(&layout->layout.batch_count, value, size);
  if (attribute == kLtLayoutBatchStride) return SetValue(&layout->layout.batch_stride, value, size);
  return kLtInvalidValue;
}
LtStatus cublasLtMatmulPreferenceCreate(LtPreference* preference) {
  XLAD_ENTER_LT(cublasLtMatmulPreferenceCreate);
  return MakeObject(preference, LtPreferenceObject{});
}
LtStatus cublasLtMatmulPreferenceDestroy(LtPreference preference) { return DestroyObject(preference); }
LtStatus cublasLtMatmulPreferenceSetAttribute(LtPreference preference, int attribute, const void* value, size_t size) {
  XLAD_ENTER_LT(cublasLtMatmulPreferenceSetAttribute);
  cublaslt_double::Preference& target = preference->preference;
  if (attribute == kLtPreferWorkspaceBytes) return SetValue(&target.workspace_bytes, value, size);
  if (attribute == kLtPreferReductionSchemes) return SetValue(&target.reduction_schemes, value, size);
  if (attribute == kLtPreferAlignmentA) return SetValue(&target.alignment_a, value, size);
  if (attribute == kLtPreferAlignmentB) return SetValue(&target.alignment_b, value, size);
  if (attribute == kLtPreferAlignmentC) return SetValue(&target.alignment_c, value, size);
  if (attribute == kLtPreferAlignmentD) return SetValue(&target.alignment_d, value, size);
  return kLtInvalidValue;
}

// Products.
LtStatus cublasLtMatmulAlgoGetHeuristic(XLAD_CUBLASLT_HEURISTIC_PARAMETERS) {
  XLAD_ENTER_LT(cublasLtMatmulAlgoGetHeuristic);
  if (handle == nullptr) return kLtNotInitialized;
  if (desc == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr || requested < 1) {
    return kLtInvalidValue;
  }
  const Problem problem = {desc->operation, a->layout, b->layout, c->layout, d->layout};
  if (const LtStatus checked = CheckProblem(problem); checked != kLtSuccess) return checked;
  *returned = 0;
  for (const LtHeuristicResult& proposal : Propose(problem, preference->preference)) {
    if (*returned < requested) results[(*returned)++] = proposal;
  }
  return kLtSuccess;
}
LtStatus cublasLtMatmul(XLAD_CUBLASLT_MATMUL_PARAMETERS) {
  XLAD_ENTER_LT(cublasLtMatmul);
  if (handle == nullptr) return kLtNotInitialized;
  if (alpha == nullptr || beta == nullptr || algorithm == nullptr || stream == nullptr) return kLtInvalidValue;
  const int scale_type = desc->operation.scale_type;
  if (!IsZero(ReadScale(beta, scale_type), scale_type)) return kLtNotSupported;
  const auto address = [](const void* pointer) { return reinterpret_cast<uint64_t>(pointer); };
  Product product;
  product.problem = {desc->operation, a_layout->layout, b_layout->layout, c_layout->layout, d_layout->layout};
  product.algorithm = *algorithm;
  product.alpha = ReadScale(alpha, scale_type);
  product.at = {address(a), address(b), address(c), address(d), address(workspace)};
  if (const LtStatus checked = CheckProblem(product.problem); checked != kLtSuccess) return checked;
  const LtStatus checked = CheckCall(product.problem, *algorithm, product.at, workspace_bytes);
  if (checked != kLtSuccess) return checked;
  ++products;
  xladCudaDoubleEnqueue(
      stream, RunProduct, [](void* argument) { delete static_cast<Product*>(argument); },
      new Product(std::move(product)));
  return kLtSuccess;
}

}  // namespace xlad::runtime::cuda

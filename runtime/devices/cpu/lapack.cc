// The library op for LAPACK routines: checks the descriptor and runs the routine for every matrix of the batch.
#include <complex>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/devices/cpu/lapack_matrix.h"
#include "runtime/devices/cpu/library_op.h"
#include "tensor/lapack_call.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

template <typename T>
class PreparedLapack final : public PreparedLibraryOp {
 public:
  PreparedLapack(const LapackOp& op, const LapackLibrary<T>* library, LapackFunction<T> function)
      : op_(op), function_(function), measured_(&op_, library) {
    function_(measured_);
    for (const ArrayShape& shape : op.operands()) operand_bytes_.push_back(tensor::ShapeFromWire(shape).bytes());
    for (const ArrayShape& shape : op.results()) result_bytes_.push_back(tensor::ShapeFromWire(shape).bytes());
  }

  size_t buffer_count() const override { return operand_bytes_.size() + result_bytes_.size(); }
  int64_t scratch_bytes(int /*threads*/) const override { return std::max<int64_t>(64, measured_.used_bytes()); }
  absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall(int threads) const override;
  std::string Description() const override { return absl::StrCat("LAPACK ", op_.routine()); }

  // Runs the matrices begin .. end-1.
  void Run(int64_t begin, int64_t end, absl::Span<void* const> buffers, void* scratch) const {
    LapackMatrix<T> matrix = measured_;
    for (int64_t b = begin; b < end; ++b) {
      std::vector<const void*> operands;
      std::vector<void*> results;
      size_t next = 0;
      const auto at = [&](int64_t bytes) { return static_cast<char*>(buffers[next++]) + b * bytes; };
      for (const int64_t bytes : operand_bytes_) operands.push_back(at(bytes));
      for (const int64_t bytes : result_bytes_) results.push_back(at(bytes));
      matrix.Begin(static_cast<char*>(scratch), std::move(operands), std::move(results));
      function_(matrix);
    }
  }
  int64_t batch() const { return op_.batch(); }

 private:
  const LapackOp op_;
  const LapackFunction<T> function_;
  LapackMatrix<T> measured_;
  std::vector<int64_t> operand_bytes_, result_bytes_;  // The sizes for one matrix.
};

template <typename T>
class LapackCallState final : public LibraryCall {
 public:
  explicit LapackCallState(const PreparedLapack<T>* op) : op_(*op) {}
  absl::Status Run(absl::Span<void* const> buffers, void* scratch, ThreadTeam& /*team*/) override {
    op_.Run(0, op_.batch(), buffers, scratch);
    return absl::OkStatus();
  }

 private:
  const PreparedLapack<T>& op_;
};

template <typename T>
absl::StatusOr<std::unique_ptr<LibraryCall>> PreparedLapack<T>::MakeCall(int /*threads*/) const {
  return std::make_unique<LapackCallState<T>>(this);
}

// The checks that the signature of a routine does not express.
bool HasFittingSizes(const LapackOp& op) {
  const auto dim = [&](const ArrayShape& shape, int d) { return shape.dims(d); };
  const auto option = [&](absl::string_view name, int otherwise) {
    for (const LapackOp::Option& one : op.options()) {
      if (one.name() == name) return one.value();
    }
    return otherwise;
  };
  const std::string& routine = op.routine();
  const ArrayShape& a = op.operands(0);
  if (routine == "orgqr" || routine == "ungqr") {
    return dim(a, 0) >= dim(a, 1) && dim(a, 1) >= dim(op.operands(1), 0);
  }
  if (routine == "ormqr" || routine == "unmqr") {
    const int64_t size = dim(op.operands(2), option("left", 1) != 0 ? 0 : 1), k = dim(op.operands(1), 0);
    return dim(a, 0) == size && dim(a, 1) >= k && size >= k;
  }
  if (routine == "trsm") return dim(a, 0) == dim(op.results(0), option("side", 'L') == 'L' ? 0 : 1);
  if (routine == "gesdd" || routine == "gesvd") {
    const int64_t m = dim(a, 0), n = dim(a, 1), k = std::min(m, n), u = dim(op.results(2), 1),
                  vt = dim(op.results(3), 0);
    const int mode = option("mode", 'A');
    return mode == 'N' || (mode == 'A' && u == m && vt == n) || (mode == 'S' && u == k && vt == k);
  }
  if (routine == "gehrd") return option("low", 1) == 1 && option("high", dim(a, 0)) == dim(a, 0);
  return true;
}

absl::Status CheckLapack(const LapackOp& op) {
  std::vector<tensor::Shape> operands, results;
  for (const ArrayShape& shape : op.operands()) operands.push_back(tensor::ShapeFromWire(shape));
  for (const ArrayShape& shape : op.results()) results.push_back(tensor::ShapeFromWire(shape));
  tensor::LapackCall call{op.routine(), tensor::TypeFromWire(op), {}};
  if (op.routine() == "cholesky") {
    const bool square = operands.size() == 1 && results.size() == 1 && operands[0] == results[0] &&
                        operands[0].dims.size() == 2 && operands[0].dims[0] == operands[0].dims[1];
    if (!square) {
      return absl::InvalidArgumentError(absl::StrCat("found ", op.ShortDebugString(),
                                                     ", expected one square matrix and one result of the same shape"));
    }
  } else {
    XLAD_RETURN_IF_ERROR(CheckLapackShapes(operands, results, &call));
  }
  for (const std::vector<tensor::Shape>& shapes : {operands, results}) {
    for (const tensor::Shape& shape : shapes) {
      if (shape.elements() < (int64_t{1} << 31)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("found ", shape.ToString(), ", expected at most 2^31-1 elements in one matrix"));
    }
  }
  if (call.batch.empty() && op.batch() >= 0 && HasFittingSizes(op)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("found ", op.ShortDebugString(),
                   ", expected shapes of one matrix, a batch of 0 or more, and sizes and options that fit each other"));
}

template <typename T>
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareFor(const LapackOp& op) {
  LapackFunction<T> function = nullptr;
  for (const auto& routines : {LapackFactorRoutines<T>(), LapackSpectralRoutines<T>()}) {
    for (const LapackRoutine<T>& routine : routines) {
      if (routine.name == op.routine()) function = routine.function;
    }
  }
  XLAD_CHECK(function != nullptr) << "no implementation of " << op.routine();
  XLAD_ASSIGN_OR_RETURN(const LapackLibrary<T>* library, LoadLapack<T>());
  return std::make_unique<PreparedLapack<T>>(op, library, function);
}

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> Prepare(const LapackOp& op) {
  XLAD_RETURN_IF_ERROR(CheckLapack(op));
  switch (tensor::TypeFromWire(op)) {
    case ElementType::kF32:
      return PrepareFor<float>(op);
    case ElementType::kF64:
      return PrepareFor<double>(op);
    case ElementType::kC64:
      return PrepareFor<std::complex<float>>(op);
    case ElementType::kC128:
      return PrepareFor<std::complex<double>>(op);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("found element type number ", op.element_type(), ", expected f32, f64, c64 or c128"));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareLapack(const LapackOp& op) {
  absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> prepared = Prepare(op);
  if (!prepared.ok()) return Annotate(prepared.status(), absl::StrCat("library op ", op.routine()));
  return prepared;
}

}  // namespace xlad::runtime

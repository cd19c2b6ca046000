#include "runtime/devices/cpu/plain_dot.h"

#include <string>
#include <utility>

#include "absl/types/span.h"
#include "runtime/devices/cpu/dot_shape.h"
#include "tensor/element_type.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

// The offset of an array at position `index` of a nest of loops, outermost first. Tables of all offsets would be as
// large as the arrays, for each dot of a program, even if the GPU computes it.
int64_t OffsetAt(absl::Span<const DotLoop> loops, int64_t DotLoop::* stride, int64_t index) {
  int64_t offset = 0;
  for (size_t i = loops.size(); i-- > 0;) {
    offset += index % loops[i].size * loops[i].*stride;
    index /= loops[i].size;
  }
  return offset;
}

class PlainDot final : public PreparedLibraryOp {
 public:
  PlainDot(DotShape shape, ElementType operands)
      : operands_(operands), shape_(std::move(shape)), m_(shape_.Elements(shape_.m)), n_(shape_.Elements(shape_.n)) {
    if (shape_.k.empty()) return;
    inner_k_ = shape_.k.back();
    shape_.k.pop_back();
  }

  size_t buffer_count() const override { return 3; }
  int64_t scratch_bytes(int) const override { return 0; }
  absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall(int threads) const override;
  std::string Description() const override { return "xlad, plain loops"; }

  int64_t rows() const { return shape_.Elements(shape_.batch) * m_; }

  // Computes the rows begin .. end-1 of the result, which is row-major.
  void ComputeRows(int64_t begin, int64_t end, absl::Span<void* const> buffers) const {
    if (operands_ == ElementType::kF64) return Compute<double, double, double>(begin, end, buffers);
    // Sums of s32 wrap around, so they are computed as u32.
    Compute<int8_t, int32_t, uint32_t>(begin, end, buffers);
  }

 private:
  template <typename Operand, typename Product, typename Sum>
  void Compute(int64_t begin, int64_t end, absl::Span<void* const> buffers) const {
    const auto* const lhs = static_cast<const Operand*>(buffers[0]);
    const auto* const rhs = static_cast<const Operand*>(buffers[1]);
    auto* to = static_cast<Sum*>(buffers[2]) + begin * n_;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t batch = row / m_;
      const Operand* const of_row =
          lhs + OffsetAt(shape_.batch, &DotLoop::lhs, batch) + OffsetAt(shape_.m, &DotLoop::lhs, row % m_);
      const Operand* const of_batch = rhs + OffsetAt(shape_.batch, &DotLoop::rhs, batch);
      for (int64_t column = 0; column < n_; ++column) {
        *to++ = SumOf<Product, Sum>(of_row, of_batch + OffsetAt(shape_.n, &DotLoop::rhs, column));
      }
    }
  }

  // The sum for one element of the result: `row` and `column` are the first elements of its row and its column.
  template <typename Product, typename Sum, typename Operand>
  Sum SumOf(const Operand* row, const Operand* column) const {
    Sum sum = 0;
    const int64_t outer = shape_.Elements(shape_.k);
    for (int64_t i = 0; i < outer; ++i) {
      const Operand* const lhs = row + OffsetAt(shape_.k, &DotLoop::lhs, i);
      const Operand* const rhs = column + OffsetAt(shape_.k, &DotLoop::rhs, i);
      for (int64_t k = 0; k < inner_k_.size; ++k) {
        const auto a = static_cast<Product>(lhs[k * inner_k_.lhs]), b = static_cast<Product>(rhs[k * inner_k_.rhs]);
        sum += static_cast<Sum>(a * b);
      }
    }
    return sum;
  }

  const ElementType operands_;
  DotShape shape_;  // Without the innermost loop of the sum.
  DotLoop inner_k_;
  const int64_t m_, n_;
};

class PlainDotCall final : public LibraryCall {
 public:
  explicit PlainDotCall(const PlainDot* dot) : dot_(*dot) {}

  absl::Status Run(absl::Span<void* const> buffers, void* /*scratch*/, ThreadTeam& team) override {
    team.Run(dot_.rows(), [&](int, int64_t begin, int64_t end) {
      dot_.ComputeRows(begin, end, buffers);
      return 0;
    });
    return absl::OkStatus();
  }

 private:
  const PlainDot& dot_;
};

absl::StatusOr<std::unique_ptr<LibraryCall>> PlainDot::MakeCall(int) const {
  return std::make_unique<PlainDotCall>(this);
}

}  // namespace

bool HasPlainTypes(const DotOp& op) {
  const auto have = [&](ElementType operands, ElementType result) {
    return tensor::TypeFromWire(op.lhs()) == operands && tensor::TypeFromWire(op.rhs()) == operands &&
           tensor::TypeFromWire(op.result()) == result;
  };
  return have(ElementType::kF64, ElementType::kF64) || have(ElementType::kS8, ElementType::kS32);
}

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PreparePlainDot(const DotOp& op) {
  XLAD_ASSIGN_OR_RETURN(DotShape shape, ReadDotShape(op));
  shape.Merge();
  return std::make_unique<PlainDot>(std::move(shape), tensor::TypeFromWire(op.lhs()));
}

}  // namespace xlad::runtime

#include "runtime/devices/cpu/plain_dot.h"

#include <string>
#include <utility>
#include <vector>

#include "tensor/element_type.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

// The offsets of an array for each index into a nest of loops, outermost first.
std::vector<int64_t> NestOffsets(const std::vector<DotLoop>& loops, int64_t DotLoop::* stride) {
  std::vector<int64_t> offsets = {0};
  for (const DotLoop& loop : loops) {
    std::vector<int64_t> longer;
    longer.reserve(offsets.size() * static_cast<size_t>(loop.size));
    for (const int64_t outer : offsets) {
      for (int64_t i = 0; i < loop.size; ++i) longer.push_back(outer + i * loop.*stride);
    }
    offsets = std::move(longer);
  }
  return offsets;
}

class PlainDot final : public PreparedLibraryOp {
 public:
  PlainDot(const DotShape& shape, ElementType operands)
      : operands_(operands),
        batch_{NestOffsets(shape.batch, &DotLoop::lhs), NestOffsets(shape.batch, &DotLoop::rhs)},
        m_lhs_(NestOffsets(shape.m, &DotLoop::lhs)),
        n_rhs_(NestOffsets(shape.n, &DotLoop::rhs)),
        k_{NestOffsets(shape.k, &DotLoop::lhs), NestOffsets(shape.k, &DotLoop::rhs)} {}

  size_t buffer_count() const override { return 3; }
  int64_t scratch_bytes(int) const override { return 0; }
  absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall(int threads) const override;
  std::string Description() const override { return "xlad, plain loops"; }

  int64_t rows() const { return std::ssize(batch_.lhs) * std::ssize(m_lhs_); }

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
    auto* to = static_cast<Sum*>(buffers[2]) + begin * std::ssize(n_rhs_);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t batch = row / std::ssize(m_lhs_);
      const Operand* const of_row = lhs + batch_.lhs[batch] + m_lhs_[row % std::ssize(m_lhs_)];
      for (const int64_t column : n_rhs_) {
        const Operand* const of_column = rhs + batch_.rhs[batch] + column;
        Sum sum = 0;
        for (size_t k = 0; k < k_.lhs.size(); ++k) {
          sum += static_cast<Sum>(static_cast<Product>(of_row[k_.lhs[k]]) * static_cast<Product>(of_column[k_.rhs[k]]));
        }
        *to++ = sum;
      }
    }
  }

  struct OfBoth {
    std::vector<int64_t> lhs, rhs;
  };
  const ElementType operands_;
  const OfBoth batch_;
  const std::vector<int64_t> m_lhs_, n_rhs_;
  const OfBoth k_;
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
    return op.lhs().element_type() == static_cast<int>(operands) &&
           op.rhs().element_type() == static_cast<int>(operands) &&
           op.result().element_type() == static_cast<int>(result);
  };
  return have(ElementType::kF64, ElementType::kF64) || have(ElementType::kS8, ElementType::kS32);
}

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PreparePlainDot(const DotOp& op) {
  XLAD_ASSIGN_OR_RETURN(DotShape shape, ReadDotShape(op));
  shape.Merge();
  return std::make_unique<PlainDot>(shape, static_cast<ElementType>(op.lhs().element_type()));
}

}  // namespace xlad::runtime

#include "runtime/devices/tpu_sim/systolic_products.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/kernel_abi.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "tensor/small_float.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

float Bf16(float value) { return std::bit_cast<float>(uint32_t{tensor::EncodeBf16(value)} << 16); }

// A library op that may be a product of f32 (`is_f32`).
struct Product {
  bool is_f32 = false;
  Precision precision = PRECISION_DEFAULT;
  int64_t lhs = 0, rhs = 0, result = 0;  // The numbers of elements of the arrays.
};

template <typename Op>
Product ProductOf(const Op& op) {
  const tensor::Shape lhs = tensor::ShapeFromWire(op.lhs()), rhs = tensor::ShapeFromWire(op.rhs()),
                      result = tensor::ShapeFromWire(op.result());
  const bool is_f32 =
      lhs.type == ElementType::kF32 && rhs.type == ElementType::kF32 && result.type == ElementType::kF32;
  return {is_f32, op.precision(), lhs.elements(), rhs.elements(), result.elements()};
}

// Floats at an address that is aligned like a buffer of a device.
class Floats {
 public:
  absl::Span<float> Resize(int64_t count) {
    lines_.resize((count + kOfLine - 1) / kOfLine + 1);
    return {lines_[0].values, static_cast<size_t>(count)};
  }

 private:
  static constexpr int64_t kOfLine = XLAD_BUFFER_ALIGNMENT / sizeof(float);
  struct alignas(XLAD_BUFFER_ALIGNMENT) Line {
    float values[kOfLine];
  };
  std::vector<Line> lines_;
};

// Runs on the thread of a stream, with addresses that the process can access. Owns the rounded operands.
class SystolicLauncher final : public Launcher {
 public:
  SystolicLauncher(std::unique_ptr<Launcher> native, const std::vector<Product>* products)
      : native_(std::move(native)), products_(*products) {}

  absl::Status RunKernel(int kernel, absl::Span<void* const> buffers, void* scratch, int64_t tiles) override {
    return native_->RunKernel(kernel, buffers, scratch, tiles);
  }

  absl::Status RunLibraryOp(int op, absl::Span<void* const> buffers) override {
    const bool is_known = op >= 0 && op < std::ssize(products_) && buffers.size() == 3;
    if (!is_known || !products_[op].is_f32 || products_[op].precision == PRECISION_HIGHEST) {
      return native_->RunLibraryOp(op, buffers);  // This call also reports wrong arguments.
    }
    const Product& product = products_[op];
    const absl::Span<const float> lhs(static_cast<const float*>(buffers[0]), product.lhs);
    const absl::Span<const float> rhs(static_cast<const float*>(buffers[1]), product.rhs);
    if (product.precision == PRECISION_HIGH) return RunHigh(op, lhs, rhs, buffers);
    const absl::Span<float> rounded_lhs = lhs_.Resize(product.lhs), rounded_rhs = rhs_.Resize(product.rhs);
    RoundToBf16(lhs, rounded_lhs);
    RoundToBf16(rhs, rounded_rhs);
    return Run(op, rounded_lhs, rounded_rhs, buffers[2]);
  }

 private:
  absl::Status Run(int op, absl::Span<float> lhs, absl::Span<float> rhs, void* result) {
    return native_->RunLibraryOp(op, {static_cast<void*>(lhs.data()), static_cast<void*>(rhs.data()), result});
  }

  absl::Status RunHigh(int op, absl::Span<const float> lhs, absl::Span<const float> rhs,
                       absl::Span<void* const> buffers) {
    const Product& product = products_[op];
    const absl::Span<float> lhs_hi = lhs_.Resize(product.lhs), lhs_lo = lhs_rest_.Resize(product.lhs);
    const absl::Span<float> rhs_hi = rhs_.Resize(product.rhs), rhs_lo = rhs_rest_.Resize(product.rhs);
    if (!SplitBf16(lhs, lhs_hi, lhs_lo) || !SplitBf16(rhs, rhs_hi, rhs_lo)) return native_->RunLibraryOp(op, buffers);
    const absl::Span<float> small = small_.Resize(product.result);
    const absl::Span<float> result(static_cast<float*>(buffers[2]), product.result);
    XLAD_RETURN_IF_ERROR(Run(op, lhs_hi, rhs_lo, small.data()));
    XLAD_RETURN_IF_ERROR(Run(op, lhs_lo, rhs_hi, result.data()));
    for (size_t i = 0; i < small.size(); ++i) small[i] += result[i];
    XLAD_RETURN_IF_ERROR(Run(op, lhs_hi, rhs_hi, result.data()));
    for (size_t i = 0; i < small.size(); ++i) result[i] += small[i];
    return absl::OkStatus();
  }

  const std::unique_ptr<Launcher> native_;
  const std::vector<Product>& products_;
  Floats lhs_, rhs_, lhs_rest_, rhs_rest_, small_;
};

class SystolicExecutable final : public LoadedExecutable {
 public:
  explicit SystolicExecutable(std::unique_ptr<LoadedExecutable> native) : native_(std::move(native)) {
    for (const LibraryOp& op : executable().library_ops()) {
      products_.push_back(op.has_dot()           ? ProductOf(op.dot())
                          : op.has_convolution() ? ProductOf(op.convolution())
                                                 : Product());
    }
  }
  const Executable& executable() const override { return native_->executable(); }
  absl::StatusOr<int> FindKernel(absl::string_view symbol) const override { return native_->FindKernel(symbol); }
  absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(int32_t partition_id, Stream* stream) const override {
    XLAD_ASSIGN_OR_RETURN(auto native, native_->MakeLauncher(partition_id, stream));
    return std::make_unique<SystolicLauncher>(std::move(native), &products_);
  }

 private:
  const std::unique_ptr<LoadedExecutable> native_;
  std::vector<Product> products_;  // One per library op.
};

}  // namespace

void RoundToBf16(absl::Span<const float> values, absl::Span<float> rounded) {
  for (size_t i = 0; i < values.size(); ++i) rounded[i] = Bf16(values[i]);
}

bool SplitBf16(absl::Span<const float> values, absl::Span<float> rounded, absl::Span<float> rest) {
  bool is_finite = true;
  for (size_t i = 0; i < values.size(); ++i) {
    rounded[i] = Bf16(values[i]);
    rest[i] = Bf16(values[i] - rounded[i]);
    is_finite = is_finite && std::isfinite(rest[i]);
  }
  return is_finite;
}

absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadWithSystolicProducts(Executable executable) {
  XLAD_ASSIGN_OR_RETURN(auto native, LoadNativeCode(std::move(executable)));
  return std::make_unique<SystolicExecutable>(std::move(native));
}

}  // namespace xlad::runtime

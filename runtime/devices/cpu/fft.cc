// The library op fft: transforms one dimension after the other by plans for one length (fft_plan.h).
//
// The last dimension is transformed row by row. Several short rows are copied to memory where their elements alternate,
// and are transformed together. Any other row with an even number of real numbers is transformed as half as many
// complex numbers. The other dimensions are transformed in columns: several neighboring lines, whose elements already
// alternate in memory, are transformed together.
#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "runtime/devices/cpu/fft_plan.h"
#include "runtime/devices/cpu/library_op.h"
#include "tensor/element_type.h"
#include "tensor/indices.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

constexpr int64_t kLanes = 16;            // The number of lines that are transformed together.
constexpr int64_t kShortRow = 64;         // Rows up to this length are transformed together.
constexpr int64_t kColumnBytes = 1 << 18;  // The total size of the columns that are transformed together.

// An array of pairs of real and imaginary parts. `inverse` exchanges the parts, so that a forward transform computes an
// inverse one.
template <typename T>
FftArray<T> Pairs(T* at, bool inverse) {
  return inverse ? FftArray<T>{at + 1, at, 2} : FftArray<T>{at, at + 1, 2};
}
template <typename T>
FftArray<T> Parts(T* re, T* im, bool inverse) {
  return inverse ? FftArray<T>{im, re, 1} : FftArray<T>{re, im, 1};
}

// The transform of the rows of the last dimension.
template <typename T>
class RowTransform {
 public:
  RowTransform(FftOp::Kind kind, int64_t n, int64_t rows, T scale)
      : kind_(kind), n_(n), rows_(rows), scale_(scale), inverse_(kind == FftOp::IFFT || kind == FftOp::IRFFT) {
    half_ = n / 2 + 1;
    from_ = kind == FftOp::RFFT ? n : 2 * (kind == FftOp::IRFFT ? half_ : n);
    to_ = kind == FftOp::IRFFT ? n : 2 * (kind == FftOp::RFFT ? half_ : n);
    together_ = n <= kShortRow && rows >= 4 && !IsFftConvolution(n);
    const bool real = kind == FftOp::RFFT || kind == FftOp::IRFFT;
    halved_ = real && n % 2 == 0 && !together_;
    plan_.emplace(halved_ ? n / 2 : n, together_);
    if (!halved_) return;
    for (int64_t k = 0; k <= n / 4; ++k) {
      double re, im;
      FftRoot(k, n, &re, &im);
      roots_.push_back(static_cast<T>(re));
      roots_.push_back(static_cast<T>(im));
    }
  }

  // The number of groups of rows. A group is a unit of work.
  int64_t groups() const { return CeilDiv(rows_, group()); }
  int64_t scratch_elements() const {
    const int64_t lines = together_ ? kLanes : 1;
    return 2 * lines * n_ + plan_->scratch_elements(lines) + 64;
  }

  void Run(int64_t number, const T* from, T* to, T* scratch) const {
    const int64_t begin = number * group(), end = std::min(rows_, begin + group());
    const int64_t step = together_ ? kLanes : 1;
    for (int64_t row = begin; row < end; row += step) {
      const T* source = from + row * from_;
      T* target = to + row * to_;
      if (together_) {
        Together(source, target, std::min(kLanes, end - row), scratch);
      } else if (halved_) {
        Halved(source, target, scratch);
      } else {
        Whole(source, target, scratch);
      }
    }
  }

 private:
  // The number of rows in a unit of work, which takes some tens of microseconds. Short rows that are transformed
  // together are in one unit.
  int64_t group() const {
    const int64_t rows = std::max<int64_t>(1, 16384 / n_);
    return together_ ? RoundUp(rows, kLanes) : rows;
  }

  void Together(const T* from, T* to, int64_t lines, T* scratch) const {
    T *re = scratch, *im = scratch + kLanes * n_;
    const bool mirrored = kind_ == FftOp::IRFFT;
    for (int64_t k = 0; k < n_; ++k) {
      // The spectrum of real numbers is stored up to its middle: element n-k is the conjugate of element k.
      const bool second = mirrored && k >= half_;
      const int64_t at = second ? n_ - k : k;
      const bool is_real = mirrored && (k == 0 || 2 * k == n_);
      for (int64_t l = 0; l < lines; ++l) {
        const T* element = from + l * from_ + (kind_ == FftOp::RFFT ? at : 2 * at);
        re[k * kLanes + l] = element[0];
        im[k * kLanes + l] = kind_ == FftOp::RFFT || is_real ? T(0) : second ? -element[1] : element[1];
      }
      for (int64_t l = lines; l < kLanes; ++l) re[k * kLanes + l] = im[k * kLanes + l] = T(0);
    }
    const FftArray<T> data = Parts(re, im, inverse_);
    plan_->Run(data, data, kLanes, scale_, scratch + 2 * kLanes * n_);
    const int64_t count = kind_ == FftOp::RFFT ? half_ : n_;
    for (int64_t l = 0; l < lines; ++l) {
      T* target = to + l * to_;
      for (int64_t k = 0; k < count; ++k) {
        if (mirrored) {
          target[k] = re[k * kLanes + l];
        } else {
          target[2 * k] = re[k * kLanes + l];
          target[2 * k + 1] = im[k * kLanes + l];
        }
      }
      if (kind_ != FftOp::RFFT) continue;
      target[1] = T(0);
      if (n_ % 2 == 0) target[n_ + 1] = T(0);
    }
  }

  void Halved(const T* from, T* to, T* scratch) const {
    const FftKernels<T>& kernels = FftKernelsOf<T>();
    T* rest = scratch + 2 * n_;
    if (kind_ == FftOp::RFFT) {
      plan_->Run(Pairs(const_cast<T*>(from), false), Pairs(scratch, false), 1, scale_, rest);
      kernels.half_to_real(scratch, roots_.data(), n_ / 2, to);
    } else {
      kernels.real_to_half(from, roots_.data(), n_ / 2, scratch);
      plan_->Run(Pairs(scratch, true), Pairs(to, true), 1, scale_, rest);
    }
  }

  void Whole(const T* from, T* to, T* scratch) const {
    T *re = scratch, *im = scratch + n_, *rest = scratch + 2 * n_;
    if (kind_ == FftOp::RFFT) {
      std::fill(im, im + n_, T(0));
      plan_->Run(Parts(const_cast<T*>(from), im, false), Parts(re, im, false), 1, scale_, rest);
      im[0] = T(0);
      FftKernelsOf<T>().copy(Parts(re, im, false), Pairs(to, false), half_, T(1));
    } else if (kind_ == FftOp::IRFFT) {
      for (int64_t k = 0; k < half_; ++k) {
        re[k] = re[(n_ - k) % n_] = from[2 * k];
        im[k] = k == 0 ? T(0) : from[2 * k + 1];
        im[(n_ - k) % n_] = -im[k];
      }
      plan_->Run(Parts(re, im, true), Parts(to, im, true), 1, scale_, rest);
    } else {
      plan_->Run(Pairs(const_cast<T*>(from), inverse_), Pairs(to, inverse_), 1, scale_, rest);
    }
  }

  FftOp::Kind kind_;
  int64_t n_, rows_;
  T scale_;
  bool inverse_;
  int64_t half_ = 0;           // The length of a row of the spectrum of real numbers.
  int64_t from_ = 0, to_ = 0;  // The distance from one row of an array to the next, in elements of T.
  bool together_ = false, halved_ = false;
  std::optional<FftPlan<T>> plan_;
  std::vector<T> roots_;
};

// The transform of a dimension of size n. `inner` and `outer` are the products of the sizes of the dimensions after and
// before it.
template <typename T>
class ColumnTransform {
 public:
  ColumnTransform(int64_t outer, int64_t n, int64_t inner, bool inverse, T scale)
      : outer_(outer), n_(n), inner_(inner), inverse_(inverse), scale_(scale), single_(IsFftConvolution(n)) {
    plan_.emplace(n, !single_);
    const int64_t line_bytes = sizeof(T) * 4 * n, fitting = kColumnBytes / line_bytes / kLanes * kLanes;
    lines_ = single_ ? 1 : std::min(inner, std::max(kLanes, fitting));
  }

  int64_t groups() const { return outer_ * PerOuter(); }
  int64_t scratch_elements() const { return 2 * n_ * lines_ + plan_->scratch_elements(lines_) + 64; }

  void Run(int64_t number, const T* from, T* to, T* scratch) const {
    const int64_t first = number % PerOuter() * lines_, lines = std::min(lines_, inner_ - first);
    const int64_t start = 2 * (number / PerOuter() * n_ * inner_ + first);
    const FftKernels<T>& kernels = FftKernelsOf<T>();
    const FftArray<T> data = Parts(scratch, scratch + n_ * lines, inverse_);
    const auto row = [&](int64_t k) { return FftArray<T>{data.re + k * lines, data.im + k * lines, 1}; };
    for (int64_t k = 0; k < n_; ++k) {
      kernels.copy(Pairs(const_cast<T*>(from) + start + 2 * k * inner_, inverse_), row(k), lines, T(1));
    }
    plan_->Run(data, data, lines, scale_, scratch + 2 * n_ * lines_);
    for (int64_t k = 0; k < n_; ++k) {
      kernels.copy(row(k), Pairs(to + start + 2 * k * inner_, inverse_), lines, T(1));
    }
  }

 private:
  int64_t PerOuter() const { return CeilDiv(inner_, lines_); }

  int64_t outer_, n_, inner_;
  bool inverse_;
  T scale_;
  bool single_;
  int64_t lines_ = 1;
  std::optional<FftPlan<T>> plan_;
};

template <typename T>
class PreparedFft final : public PreparedLibraryOp {
 public:
  explicit PreparedFft(const FftOp& op) {
    const auto& dims = op.kind() == FftOp::IRFFT ? op.result().dims() : op.operand().dims();
    const auto& spectrum = op.kind() == FftOp::RFFT ? op.result().dims() : op.operand().dims();
    const int ndim = dims.size(), first = ndim - op.dimensions();
    int64_t rows = 1;
    double scale = 1;
    for (int d = 0; d + 1 < ndim; ++d) rows *= dims[d];
    const bool inverse = op.kind() == FftOp::IFFT || op.kind() == FftOp::IRFFT;
    for (int d = first; d < ndim && inverse; ++d) scale /= static_cast<double>(dims[d]);
    empty_ = rows * dims[ndim - 1] == 0;
    if (empty_) return;
    rows_first_ = op.kind() != FftOp::IRFFT;
    rows_.emplace(op.kind(), dims[ndim - 1], rows, static_cast<T>(scale));
    int64_t inner = spectrum[ndim - 1], outer = rows;
    spectrum_elements_ = 2 * rows * inner;
    for (int d = ndim - 2; d >= first; --d) {
      outer /= dims[d];
      // A dimension of size 1 is its own transform.
      if (dims[d] > 1) columns_.emplace_back(outer, dims[d], inner, inverse, T(1));
      inner *= dims[d];
    }
  }

  size_t buffer_count() const override { return 2; }
  int64_t scratch_bytes(int /*threads*/) const override { return own_elements() * width() + thread_bytes(); }
  absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall(int threads) const override;
  std::string Description() const override { return absl::StrCat("fft, ", columns_.size(), " columns"); }

  void Run(const T* from, T* to, T* scratch) const {
    if (empty_) return;
    T* const own = scratch;
    T* const rest = scratch + own_elements();
    if (rows_first_) {
      RunAll(*rows_, from, to, rest);
      for (const ColumnTransform<T>& columns : columns_) RunAll(columns, to, to, rest);
      return;
    }
    for (const ColumnTransform<T>& columns : columns_) {
      RunAll(columns, from, own, rest);
      from = own;
    }
    RunAll(*rows_, from, to, rest);
  }

 private:
  static constexpr int64_t width() { return sizeof(T); }
  // The columns of an IRFFT are transformed before its rows, into memory of their own.
  int64_t own_elements() const { return rows_first_ || columns_.empty() ? 0 : RoundUp(spectrum_elements_, 64); }
  int64_t thread_bytes() const {
    if (empty_) return 0;
    int64_t elements = rows_->scratch_elements();
    for (const ColumnTransform<T>& columns : columns_) elements = std::max(elements, columns.scratch_elements());
    return RoundUp(elements * width(), XLAD_BUFFER_ALIGNMENT);
  }
  template <typename Transform>
  static void RunAll(const Transform& transform, const T* from, T* to, T* scratch) {
    for (int64_t group = 0; group < transform.groups(); ++group) transform.Run(group, from, to, scratch);
  }

  bool empty_ = false, rows_first_ = true;
  int64_t spectrum_elements_ = 0;
  std::optional<RowTransform<T>> rows_;
  std::vector<ColumnTransform<T>> columns_;
};

template <typename T>
class FftCall final : public LibraryCall {
 public:
  explicit FftCall(const PreparedFft<T>* fft) : fft_(*fft) {}
  absl::Status Run(absl::Span<void* const> buffers, void* scratch, ThreadTeam& /*team*/) override {
    fft_.Run(static_cast<const T*>(buffers[0]), static_cast<T*>(buffers[1]), static_cast<T*>(scratch));
    return absl::OkStatus();
  }

 private:
  const PreparedFft<T>& fft_;
};

template <typename T>
absl::StatusOr<std::unique_ptr<LibraryCall>> PreparedFft<T>::MakeCall(int /*threads*/) const {
  return std::make_unique<FftCall<T>>(this);
}

absl::Status CheckFft(const FftOp& op) {
  const ElementType from = tensor::TypeFromWire(op.operand()), to = tensor::TypeFromWire(op.result());
  const bool wide = from == ElementType::kF64 || from == ElementType::kC128;
  const ElementType real = wide ? ElementType::kF64 : ElementType::kF32;
  const ElementType complex = wide ? ElementType::kC128 : ElementType::kC64;
  const int ndim = op.operand().dims_size();
  bool fits = FftOp::Kind_IsValid(op.kind()) && op.dimensions() >= 1 && op.dimensions() <= ndim &&
              op.result().dims_size() == ndim && from == (op.kind() == FftOp::RFFT ? real : complex) &&
              to == (op.kind() == FftOp::IRFFT ? real : complex);
  for (int d = 0; fits && d < ndim; ++d) {
    int64_t operand = op.operand().dims(d), result = op.result().dims(d);
    const bool last = d + 1 == ndim;
    if (last && op.kind() == FftOp::RFFT) operand = operand == 0 ? 0 : operand / 2 + 1;
    if (last && op.kind() == FftOp::IRFFT) result = result == 0 ? 0 : result / 2 + 1;
    fits = operand >= 0 && (operand == result || op.operand().dims(d) == 0);
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("library op fft: found ", op.ShortDebugString(),
                   ", expected a known kind, 1 to all dimensions, and the types and sizes of this kind of transform"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareFft(const FftOp& op) {
  XLAD_RETURN_IF_ERROR(CheckFft(op));
  const auto type = tensor::TypeFromWire(op.operand());
  if (type == ElementType::kF64 || type == ElementType::kC128) return std::make_unique<PreparedFft<double>>(op);
  return std::make_unique<PreparedFft<float>>(op);
}

}  // namespace xlad::runtime

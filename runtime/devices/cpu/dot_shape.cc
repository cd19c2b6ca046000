#include "runtime/devices/cpu/dot_shape.h"

#include <algorithm>

#include "base/rounding.h"
#include "runtime/devices/cpu/half_rows.h"
#include "tensor/shape.h"
#include "tensor/small_float.h"

namespace xlad::runtime {
namespace {

using tensor::Dims;

Dims DimsOf(const ArrayShape& shape) { return Dims(shape.dims().begin(), shape.dims().end()); }

absl::Status DotMisfit(const std::string& found, const std::string& expected) {
  return absl::InvalidArgumentError("library op dot: found " + found + ", expected " + expected);
}

// Marks in `used` the dimensions of one operand that are batch or contracting. InvalidArgument if a dimension is out of
// range or listed twice.
absl::Status CheckSide(const char* side, int64_t ndim, const google::protobuf::RepeatedField<int64_t>& batch,
                       const google::protobuf::RepeatedField<int64_t>& contracting, std::vector<bool>* used) {
  used->assign(ndim, false);
  for (const auto* list : {&batch, &contracting}) {
    for (const int64_t d : *list) {
      if (d < 0 || d >= ndim || (*used)[d]) {
        return DotMisfit(absl::StrCat(side, " dimension ", d, (d < 0 || d >= ndim) ? "" : " twice"),
                         absl::StrCat("distinct dimensions of an array with ", ndim, " dimensions"));
      }
      (*used)[d] = true;
    }
  }
  return absl::OkStatus();
}

void MergeLoops(std::vector<DotLoop>* loops) {
  std::vector<DotLoop> merged;
  for (const DotLoop& loop : *loops) {
    if (loop.size == 1) continue;
    if (!merged.empty()) {
      DotLoop& outer = merged.back();
      if (outer.lhs == loop.lhs * loop.size && outer.rhs == loop.rhs * loop.size &&
          outer.result == loop.result * loop.size) {
        outer = {outer.size * loop.size, loop.lhs, loop.rhs, loop.result};
        continue;
      }
    }
    merged.push_back(loop);
  }
  *loops = std::move(merged);
}

void SetRowMajor(std::vector<std::vector<DotLoop>*> groups, int64_t DotLoop::* member, Packing* packing) {
  int64_t stride = 1;
  for (size_t g = groups.size(); g-- > 0;) {
    for (size_t i = groups[g]->size(); i-- > 0;) {
      DotLoop& loop = (*groups[g])[i];
      packing->sizes.insert(packing->sizes.begin(), loop.size);
      packing->strides.insert(packing->strides.begin(), loop.*member);
      loop.*member = stride;
      stride *= loop.size;
    }
  }
}

// Converts a row element by element.
template <typename Convert>
auto Each(Convert convert) {
  return [convert](const auto* row, int64_t step, int64_t columns, auto* to) {
    if (step == 1) {
      for (int64_t c = 0; c < columns; ++c) to[c] = convert(row[c]);
    } else {
      for (int64_t c = 0; c < columns; ++c) to[c] = convert(row[c * step]);
    }
  };
}

// The rows of a packed operand that one call copies.
struct Rows {
  const Packing& packing;
  int64_t begin, end;
};

template <typename From, typename To, typename ConvertRow>
void PackAs(const Rows& rows, const From* from, To* to, ConvertRow convert_row) {
  const Packing& packing = rows.packing;
  const size_t ndim = packing.sizes.size();
  const int64_t columns = ndim == 0 ? 1 : packing.sizes[ndim - 1];
  const int64_t step = ndim == 0 ? 1 : packing.strides[ndim - 1];
  if (columns == 0 || rows.begin >= rows.end) return;
  const Dims outer(packing.sizes.begin(), packing.sizes.begin() + (ndim == 0 ? 0 : ndim - 1));
  Dims index = tensor::MultiIndexAt(outer, rows.begin);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    int64_t offset = 0;
    for (size_t d = 0; d < outer.size(); ++d) offset += index[d] * packing.strides[d];
    convert_row(from + offset, step, columns, to + row * columns);
    tensor::NextIndex(outer, absl::MakeSpan(index));
  }
}

constexpr double kMinDotTileFlops = 4e6;  // This takes about 20 microseconds.
constexpr double kMinTileBytes = 1e6;
constexpr int64_t kMaxDotTiles = 32;

// The size of the largest part if `size` is divided into `parts` parts, rounded up to a multiple of `multiple`.
int64_t PartSize(int64_t size, int64_t parts, int64_t multiple) {
  return std::min(size, RoundUp(CeilDiv(size, parts), multiple));
}

}  // namespace

int64_t DotShape::Elements(const std::vector<DotLoop>& loops) const {
  int64_t product = 1;
  for (const DotLoop& loop : loops) product *= loop.size;
  return product;
}

void DotShape::Merge() {
  for (std::vector<DotLoop>* loops : {&batch, &m, &n, &k}) MergeLoops(loops);
}

absl::StatusOr<DotShape> ReadDotShape(const DotOp& op) {
  const Dims lhs = DimsOf(op.lhs()), rhs = DimsOf(op.rhs());
  std::vector<bool> lhs_used, rhs_used;
  XLAD_RETURN_IF_ERROR(
      CheckSide("lhs", std::ssize(lhs), op.lhs_batch(), op.lhs_contracting(), &lhs_used));
  XLAD_RETURN_IF_ERROR(
      CheckSide("rhs", std::ssize(rhs), op.rhs_batch(), op.rhs_contracting(), &rhs_used));
  if (op.lhs_batch_size() != op.rhs_batch_size() || op.lhs_contracting_size() != op.rhs_contracting_size()) {
    return DotMisfit("different numbers of batch or contracting dimensions", "equal numbers on both sides");
  }
  const Dims lhs_strides = tensor::Strides(lhs), rhs_strides = tensor::Strides(rhs);
  DotShape shape;
  const auto pair = [&](int64_t l, int64_t r, std::vector<DotLoop>* loops) {
    loops->push_back({lhs[l], lhs_strides[l], rhs_strides[r], 0});
    return lhs[l] == rhs[r];
  };
  bool fits = true;
  for (int i = 0; i < op.lhs_batch_size(); ++i) fits &= pair(op.lhs_batch(i), op.rhs_batch(i), &shape.batch);
  for (int i = 0; i < op.lhs_contracting_size(); ++i) {
    fits &= pair(op.lhs_contracting(i), op.rhs_contracting(i), &shape.k);
  }
  for (size_t d = 0; d < lhs.size(); ++d) {
    if (!lhs_used[d]) shape.m.push_back({lhs[d], lhs_strides[d], 0, 0});
  }
  for (size_t d = 0; d < rhs.size(); ++d) {
    if (!rhs_used[d]) shape.n.push_back({rhs[d], 0, rhs_strides[d], 0});
  }
  Dims result;
  int64_t stride = 1;
  for (std::vector<DotLoop>* loops : {&shape.n, &shape.m, &shape.batch}) {
    for (size_t i = loops->size(); i-- > 0;) {
      (*loops)[i].result = stride;
      stride *= (*loops)[i].size;
      result.insert(result.begin(), (*loops)[i].size);
    }
  }
  if (!fits || result != DimsOf(op.result())) {
    return DotMisfit("shapes that do not match the dimension numbers",
                     "the result's dimensions to be the batch, then the rest of lhs, then the rest of rhs");
  }
  // The loops of the sum may have any order. Loops in the memory order of lhs are the most likely to merge.
  std::stable_sort(shape.k.begin(), shape.k.end(), [](const DotLoop& a, const DotLoop& b) { return a.lhs > b.lhs; });
  return shape;
}

Packing PackLhs(DotShape* shape) {
  Packing packing;
  SetRowMajor({&shape->batch, &shape->m, &shape->k}, &DotLoop::lhs, &packing);
  return packing;
}

Packing PackRhs(DotShape* shape) {
  Packing packing;
  SetRowMajor({&shape->batch, &shape->k, &shape->n}, &DotLoop::rhs, &packing);
  return packing;
}

int64_t CountRows(const Packing& packing) {
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < packing.sizes.size(); ++d) rows *= packing.sizes[d];
  return rows;
}

void PackRows(const Packing& packing, PackKind kind, const void* from, void* to, RowRange range) {
  const auto same = Each([](auto x) { return x; });
  const Rows rows = {packing, range.begin, range.end};
  const uint16_t* narrow = static_cast<const uint16_t*>(from);
  switch (kind) {
    case PackKind::kSame2:
      return PackAs(rows, narrow, static_cast<uint16_t*>(to), same);
    case PackKind::kSame4:
      return PackAs(rows, static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to), same);
    case PackKind::kBf16ToF32:
      return PackAs(rows, narrow, static_cast<float*>(to), Each(tensor::DecodeBf16));
    case PackKind::kF16ToF32:
      return PackAs(rows, narrow, static_cast<float*>(to), WidenHalf);
  }
}

// Splits the outermost batch loop first, which costs nothing, then n, then m. n is split before m because every tile
// rearranges its part of rhs in time proportional to k * n. While m is not split, each part of rhs is rearranged only
// once. Tiles of 256 by 512 are as fast as the undivided product. If there would be fewer than kFew tiles, they are
// smaller. A product that would still be one tile is divided into smaller parts of m or, if m is too small, of n. These
// make oneDNN slower by up to a tenth. If rhs is transposed, parts of n would make it slower by much more, so n is not
// divided then.
DotGrid ChooseGrid(const DotShape& shape) {
  constexpr int64_t kFew = 8, kRows = 256, kColumns = 512, kMinRows = 128, kMinColumns = 192;
  constexpr int64_t kFewestRows = 32, kFewestColumns = 128, kFewestTiles = 2;
  const int64_t m = shape.Elements(shape.m), n = shape.Elements(shape.n), k = shape.Elements(shape.k);
  const int64_t batch = shape.batch.empty() ? 1 : shape.batch[0].size, batches = shape.Elements(shape.batch);
  const double products = static_cast<double>(batches) * static_cast<double>(m) * static_cast<double>(n);
  const double bytes = 4.0 * static_cast<double>(batches) * static_cast<double>(m * k + k * n + m * n);
  const double worth = std::max(2 * products * static_cast<double>(k) / kMinDotTileFlops, bytes / kMinTileBytes);
  const auto tiles = [worth](double per_tile, int64_t most) {
    return std::clamp<int64_t>(std::min(worth * per_tile, 1e6), 1, most);
  };
  const int64_t wanted = tiles(1, kMaxDotTiles);
  const int64_t b = std::min(batch, tiles(4, kMaxDotTiles));
  int64_t rest = CeilDiv(wanted, b);
  int64_t columns = std::clamp<int64_t>(n / kColumns, 1, rest);
  int64_t rows = std::clamp<int64_t>(m / kRows, 1, CeilDiv(rest, columns));
  rest = std::min(rest, CeilDiv(kFew, b));
  if (columns * rows < rest) columns = std::clamp<int64_t>(n / kMinColumns, columns, CeilDiv(rest, rows));
  if (columns * rows < rest) rows = std::clamp<int64_t>(m / kMinRows, rows, CeilDiv(rest, columns));
  if (b * columns * rows == 1) {
    const bool transposed = !shape.k.empty() && shape.k.back().rhs == 1 && n > 1;
    const int64_t parts = tiles(2, kFewestTiles);
    rows = std::clamp<int64_t>(m / kFewestRows, 1, parts);
    if (rows == 1 && !transposed) columns = std::clamp<int64_t>(n / kFewestColumns, 1, parts);
  }
  return {PartSize(batch, b, 1), PartSize(m, rows, 16), PartSize(n, columns, 64)};
}

}  // namespace xlad::runtime

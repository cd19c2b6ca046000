#include "hlo/analysis/bitcast.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace xlad::hlo {
namespace {

// The tiles of a layout: "T(8,128)(2,1)" of the suffix "T(8,128)(2,1)S(1)", or "" if there are none.
absl::string_view TilesOf(const Shape& shape) {
  if (shape.layout() == nullptr) return "";
  const absl::string_view suffix = shape.layout()->suffix;
  const size_t begin = suffix.find("T(");
  if (begin == absl::string_view::npos) return "";
  const size_t end = suffix.find_first_not_of("(),*0123456789", begin + 1);
  return suffix.substr(begin, end == absl::string_view::npos ? end : end - begin);
}

// Whether the memory of both arrays is a sequence of equal tiled blocks. The first tile of T(8,128)(2,1) has two
// dimensions, so the two minor dimensions of an array are one block.
bool HaveEqualBlocks(const Shape& a, const Shape& b, absl::string_view tiles) {
  const absl::string_view first = tiles.substr(0, tiles.find(')'));
  const auto ndim = 1 + std::count(first.begin(), first.end(), ',');
  if (a.ndim() < ndim || b.ndim() < ndim) return false;
  const Dims order_a = MajorToMinor(a), order_b = MajorToMinor(b);
  for (int64_t d = 1; d <= ndim; ++d) {
    if (a.dim(order_a[a.ndim() - d]) != b.dim(order_b[b.ndim() - d])) return false;
  }
  return true;
}

bool TilesMatch(const Shape& from, const Shape& to) {
  if (from.elements() != to.elements()) return false;
  if (from.elements() <= 1) return true;
  const absl::string_view tiles = TilesOf(from);
  if (tiles != TilesOf(to) || tensor::BitWidth(from.type()) != tensor::BitWidth(to.type())) return false;
  return HaveEqualBlocks(from, to, tiles);
}

bool HaveEqualLayouts(const Shape& a, const Shape& b) {
  if (a.is_array()) return MajorToMinor(a) == MajorToMinor(b) && TilesOf(a) == TilesOf(b);
  return std::equal(a.tuple().begin(), a.tuple().end(), b.tuple().begin(), b.tuple().end(), HaveEqualLayouts);
}

}  // namespace

Dims MajorToMinor(const Shape& shape) {
  Dims order(shape.ndim());
  std::iota(order.begin(), order.end(), 0);
  const Layout* layout = shape.layout();
  if (layout != nullptr && layout->minor_to_major.size() == order.size()) {
    order.assign(layout->minor_to_major.rbegin(), layout->minor_to_major.rend());
  }
  return order;
}

absl::Status CheckBitcast(const Instruction& bitcast) {
  const Shape &from = bitcast.operand(0)->shape(), &to = bitcast.shape();
  const auto refuse = [&](absl::string_view expected) {
    return absl::UnimplementedError(absl::StrCat("found a bitcast of ", from.ToString(), " to ", to.ToString(),
                                                 ", expected ", expected,
                                                 "; use the program from before optimization"));
  };
  if (!from.is_array() || !to.is_array()) {
    return HaveEqualLayouts(from, to) ? absl::OkStatus() : refuse("equal layouts of the arrays in tuples");
  }
  if (!TilesOf(from).empty() || !TilesOf(to).empty()) {
    return TilesMatch(from, to) ? absl::OkStatus() : refuse("the same tiled dimensions");
  }
  const int from_bits = tensor::BitWidth(from.type()), to_bits = tensor::BitWidth(to.type());
  if (from_bits != to_bits && std::min(from_bits, to_bits) < 8) return refuse("elements of 8 bits or more");
  return absl::OkStatus();
}

}  // namespace xlad::hlo

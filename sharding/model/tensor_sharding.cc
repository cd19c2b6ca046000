#include "sharding/model/tensor_sharding.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/work.h"
#include "sharding/model/axes.h"

namespace xlad::sharding {
namespace {

// A long chain keeps this many lines at each end. In a network of many layers, an axis may be propagated through all
// of them. Without a limit, the chains of all collectives would take space quadratic in the number of layers.
constexpr int64_t kMaxChainEnd = 24;

std::string QuotedAxis(const Mesh& mesh, const AxisRef& ref) {
  const Axis& axis = mesh.axes()[ref.axis];
  std::string text = absl::StrCat("\"", axis.name, "\"");
  if (ref.size != axis.size) absl::StrAppend(&text, ":(", ref.pre, ")", ref.size);
  return text;
}

std::string AxisSet(const Mesh& mesh, const AxisList& axes) {
  return absl::StrCat(
      "{",
      absl::StrJoin(axes, ", ",
                    [&](std::string* out, const AxisRef& ref) { absl::StrAppend(out, QuotedAxis(mesh, ref)); }),
      "}");
}

std::string DimensionText(const Mesh& mesh, const DimensionSharding& dim) {
  std::vector<std::string> parts;
  for (const AxisRef& ref : dim.axes) parts.push_back(QuotedAxis(mesh, ref));
  if (!dim.closed) parts.push_back("?");
  return absl::StrCat("{", absl::StrJoin(parts, ", "), "}",
                      dim.priority > 0 ? absl::StrCat("p", dim.priority) : std::string());
}

// The reduction as Shardy prints it: an empty string for a sum.
std::string ReductionPrefix(hlo::Opcode reduction) {
  switch (reduction) {
    case hlo::Opcode::kMaximum:
      return "max";
    case hlo::Opcode::kMinimum:
      return "min";
    case hlo::Opcode::kAdd:
      return "";
    default:
      return std::string(hlo::ToString(reduction));
  }
}

}  // namespace

std::vector<std::string> Chain(const OriginPtr& origin) {
  int64_t links = 0;
  for (const Origin* link = origin.get(); link != nullptr; link = link->because.get()) ++links;
  const int64_t dropped = links <= 2 * kMaxChainEnd + 1 ? 0 : links - 2 * kMaxChainEnd;
  std::vector<std::string> lines;
  int64_t number = 0;
  for (const Origin* link = origin.get(); link != nullptr; link = link->because.get(), ++number) {
    if (dropped > 0 && number == kMaxChainEnd) lines.push_back(absl::StrCat("(through ", dropped, " more values)"));
    if (number >= kMaxChainEnd && number < kMaxChainEnd + dropped) continue;
    CountWork();
    std::string line = absl::StrCat(link->op, ": ", link->what);
    if (!link->source.empty()) absl::StrAppend(&line, " (", link->source, ")");
    lines.push_back(std::move(line));
  }
  return lines;
}

TensorSharding TensorSharding::Open(int64_t ndim) {
  TensorSharding sharding;
  sharding.dims.resize(ndim);
  return sharding;
}

TensorSharding TensorSharding::Replicated(int64_t ndim) {
  TensorSharding sharding = Open(ndim);
  for (DimensionSharding& dim : sharding.dims) dim.closed = true;
  return sharding;
}

bool TensorSharding::IsReplicated() const {
  return unreduced.empty() &&
         std::all_of(dims.begin(), dims.end(), [](const DimensionSharding& dim) { return dim.axes.empty(); });
}

Dims LocalDims(absl::Span<const int64_t> dims, const TensorSharding& sharding) {
  XLAD_CHECK(dims.size() == sharding.dims.size())
      << "a sharding of " << sharding.dims.size() << " dimensions for a tensor of " << dims.size();
  Dims local(dims.begin(), dims.end());
  for (size_t d = 0; d < local.size(); ++d) local[d] = ShardSize(local[d], ShardCount(sharding.dims[d].axes));
  return local;
}

tensor::Box BoxOf(absl::Span<const int64_t> dims, const Mesh& mesh, const TensorSharding& sharding, int64_t device) {
  const Dims local = LocalDims(dims, sharding);
  tensor::Box box;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t position = mesh.Position(device, sharding.dims[d].axes);
    box.lo.push_back(std::min(dims[d], position * local[d]));
    box.hi.push_back(std::min(dims[d], box.lo.back() + local[d]));
  }
  return box;
}

std::string ToString(const Mesh& mesh, const TensorSharding& sharding) {
  std::string text = absl::StrCat("[",
                                  absl::StrJoin(sharding.dims, ", ",
                                                [&](std::string* out, const DimensionSharding& dim) {
                                                  absl::StrAppend(out, DimensionText(mesh, dim));
                                                }),
                                  "]");
  if (!sharding.replicated.empty()) absl::StrAppend(&text, ", replicated=", AxisSet(mesh, sharding.replicated));
  if (!sharding.unreduced.empty()) {
    absl::StrAppend(&text, ", unreduced=", ReductionPrefix(sharding.unreduced_reduction),
                    AxisSet(mesh, sharding.unreduced));
  }
  return text;
}

}  // namespace xlad::sharding

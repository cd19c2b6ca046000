// The results of collectives by their definition, element by element, on small integers that all types represent.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#include "collectives/exec/layout.h"
#include "collectives/plan/spec.h"
#include "tensor/small_float.h"

namespace xlad::nccl_double {

using collectives::CollectiveKind;
using collectives::CollectiveSpec;
using collectives::Reduction;
using tensor::ElementType;

using Bytes = std::vector<std::byte>;
using Values = std::vector<double>;

template <typename T>
void Append(T value, Bytes* out) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  out->insert(out->end(), bytes, bytes + sizeof value);
}

// Appends an element. Types other than integers and these floats are used only by collectives that move data; the bytes
// of their elements are multiples of the value.
inline void AppendElement(ElementType type, double value, Bytes* out) {
  const auto small = static_cast<float>(value);
  if (type == ElementType::kF64) return Append(value, out);
  if (type == ElementType::kF32) return Append(small, out);
  if (type == ElementType::kF16) return Append(tensor::SmallFloat<ElementType::kF16>::Encode(small), out);
  if (type == ElementType::kBF16) return Append(tensor::EncodeBf16(small), out);
  if (!tensor::IsInteger(type)) {
    for (int64_t b = 1; b <= tensor::ByteWidth(type); ++b)
      Append(static_cast<uint8_t>(value * static_cast<double>(b)), out);
    return;
  }
  const auto whole = static_cast<int64_t>(value);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&whole);
  out->insert(out->end(), bytes, bytes + tensor::ByteWidth(type));
}

inline Bytes Encode(ElementType type, const Values& values) {
  Bytes out;
  for (const double value : values) AppendElement(type, value, &out);
  return out;
}

inline Values InputOf(const CollectiveSpec& spec, int rank, size_t operand) {
  Values values(static_cast<size_t>(collectives::InputCounts(spec, rank)[operand]));
  for (size_t e = 0; e < values.size(); ++e) {
    values[e] = 1 + static_cast<double>((static_cast<size_t>(rank) * 5 + operand * 3 + e * 7 + e / 3) % 3);
  }
  return values;
}

inline double ReducedValue(const CollectiveSpec& spec, const Values& values) {
  switch (spec.reduction) {
    case Reduction::kProduct:
      return std::accumulate(values.begin(), values.end(), 1.0, std::multiplies<>());
    case Reduction::kMax:
      return *std::max_element(values.begin(), values.end());
    case Reduction::kMin:
      return *std::min_element(values.begin(), values.end());
    default:
      break;
  }
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return spec.reduction == Reduction::kAverage ? sum / spec.ranks : sum;
}

// The first element and the size of the part for rank `to` in the input of rank `from` (AllToAll, Scatter,
// ReduceScatter).
inline std::pair<int64_t, int64_t> PartOf(const CollectiveSpec& spec, int from, int to, size_t operand) {
  const int64_t n = spec.ranks;
  if (spec.sizes.empty()) return {to * (spec.counts[operand] / n), spec.counts[operand] / n};
  const auto row = spec.sizes.begin() + (spec.kind == CollectiveKind::kAllToAll ? from * n : 0);
  return {std::accumulate(row, row + to, int64_t{0}), row[to]};
}

// Returns the output of a rank. `before` is its contents before the collective.
inline Values OutputOf(const CollectiveSpec& spec, int rank, size_t operand, const Values& before) {
  Values out;
  const auto append_part = [&](int from, int64_t begin, int64_t count) {
    const Values input = InputOf(spec, from, operand);
    out.insert(out.end(), input.begin() + begin, input.begin() + begin + count);
  };
  const auto append_all = [&](int from) { append_part(from, 0, std::ssize(InputOf(spec, from, operand))); };
  const auto reduce = [&](int64_t begin, int64_t count) {
    std::vector<Values> inputs;
    for (int from = 0; from < spec.ranks; ++from) inputs.push_back(InputOf(spec, from, operand));
    for (int64_t e = begin; e < begin + count; ++e) {
      Values values;
      for (const Values& input : inputs) values.push_back(input[e]);
      out.push_back(ReducedValue(spec, values));
    }
  };
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
      reduce(0, spec.counts[operand]);
      break;
    case CollectiveKind::kReduce:
      if (rank == spec.root) reduce(0, spec.counts[operand]);
      break;
    case CollectiveKind::kReduceScatter:
      reduce(PartOf(spec, 0, rank, operand).first, PartOf(spec, 0, rank, operand).second);
      break;
    case CollectiveKind::kBroadcast:
      append_all(spec.root);
      break;
    case CollectiveKind::kGather:
      if (rank != spec.root) break;
      [[fallthrough]];
    case CollectiveKind::kAllGather:
      for (int from = 0; from < spec.ranks; ++from) append_all(from);
      break;
    case CollectiveKind::kScatter:
      append_part(spec.root, PartOf(spec, spec.root, rank, operand).first,
                  PartOf(spec, spec.root, rank, operand).second);
      break;
    case CollectiveKind::kAllToAll:
      for (int from = 0; from < spec.ranks; ++from) {
        const auto [begin, count] = PartOf(spec, from, rank, operand);
        append_part(from, begin, count);
      }
      break;
    default: {  // CollectivePermute and SendRecv.
      const auto pair = std::find_if(spec.pairs.begin(), spec.pairs.end(),
                                     [rank](const collectives::RankPair& p) { return p.target == rank; });
      if (pair != spec.pairs.end()) {
        append_all(pair->source);
      } else {
        out = spec.kind == CollectiveKind::kSendRecv ? before : Values(before.size());
      }
    }
  }
  return out;
}

}  // namespace xlad::nccl_double

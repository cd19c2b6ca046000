// For tests: collectives of the kinds in kTestedKinds with every algorithm that needs no mapped memory, on data whose
// results are exact.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/case_count.h"
#include "collectives/exec/collective_set.h"
#include "collectives/plan/algorithm.h"
#include "tensor/small_float.h"

namespace xlad::collectives {

using tensor::ElementType;

using Buffers = std::vector<std::vector<std::byte>>;

inline constexpr CollectiveKind kTestedKinds[] = {CollectiveKind::kAllReduce,         CollectiveKind::kAllGather,
                                                  CollectiveKind::kReduceScatter,     CollectiveKind::kAllToAll,
                                                  CollectiveKind::kCollectivePermute, CollectiveKind::kBroadcast};

inline Collective MakeCollective(const CollectiveSpec& spec, const CollectivePlan& plan, int num_devices) {
  Collective collective;
  collective.name = absl::StrCat(ToString(spec.kind), ".", plan.algorithm);
  collective.spec = spec;
  collective.plan = plan;
  for (int first = 0; first + spec.ranks <= num_devices; first += spec.ranks) {
    collective.groups.emplace_back();
    for (int rank = 0; rank < spec.ranks; ++rank) collective.groups.back().push_back(first + rank);
  }
  collective.hash = *ScheduleHash(plan, spec);
  return collective;
}

// Returns collectives of all tested kinds over devices 0 to n - 1, for every combination of the operand sizes `counts`
// in elements and the algorithms that apply and do not need mapped memory. The types (f32, bf16 or s32) take turns.
// With the default sizes, each algorithm has each type with one or two of them. If XLAD_ALL_CASES is set, all
// combinations have all types.
inline CollectiveSet EverythingOver(
    int n, const std::vector<ElementType>& types = {ElementType::kF32, ElementType::kBF16, ElementType::kS32},
    const std::vector<std::vector<int64_t>>& counts = {{0}, {1}, {13}, {5, 0, 7}, {3001}}) {
  CollectiveSet set;
  set.num_devices = n;
  for (CollectiveKind kind : kTestedKinds) {
    for (size_t t = 0; t < types.size(); ++t) {
      for (size_t c = 0; c < counts.size(); ++c) {
        const std::vector<int64_t>& sizes = counts[c];
        CollectiveSpec spec;
        spec.kind = kind;
        spec.type = types[t];
        spec.ranks = n;
        spec.counts = sizes;
        spec.reduction = Reduces(kind) ? Reduction::kSum : Reduction::kNone;
        if (InputHasParts(kind)) {
          for (int64_t& count : spec.counts) count *= n;
        }
        if (kind == CollectiveKind::kCollectivePermute) {
          for (int rank = 0; rank + 1 < n; ++rank) spec.pairs.push_back({rank, (rank + 2) % n});
        }
        size_t turn = c + static_cast<size_t>(n);
        for (const Algorithm& algorithm : Algorithms()) {
          if (!Applies(algorithm, spec) || algorithm.needs_windows) continue;
          if (!AllCases() && turn++ % types.size() != t) continue;
          const CollectivePlan plan{std::string(algorithm.name), sizes[0] == 13 ? 3 : 1, sizes[0] == 13 ? 2 : 1};
          set.collectives.push_back(MakeCollective(spec, plan, n));
        }
      }
    }
  }
  return set;
}

// Returns an input element. The values are small integers, so sums are exact in every type.
inline int ValueAt(int spec, int device, size_t operand, int64_t element) {
  return static_cast<int>((spec * 5 + device * 3 + static_cast<int64_t>(operand) * 7 + element) % 11) - 5;
}

inline void WriteElement(ElementType type, int value, std::byte* out) {
  if (type == ElementType::kF32) {
    const float v = static_cast<float>(value);
    std::memcpy(out, &v, 4);
  } else if (type == ElementType::kBF16) {
    const uint16_t v = tensor::EncodeBf16(static_cast<float>(value));
    std::memcpy(out, &v, 2);
  } else {
    std::memcpy(out, &value, 4);
  }
}

inline int ReadElement(ElementType type, const std::byte* in) {
  if (type == ElementType::kS32) {
    int v;
    std::memcpy(&v, in, 4);
    return v;
  }
  float v;
  if (type == ElementType::kF32) {
    std::memcpy(&v, in, 4);
  } else {
    uint16_t bits;
    std::memcpy(&bits, in, 2);
    v = tensor::DecodeBf16(bits);
  }
  return static_cast<int>(v);
}

// Returns an element of the expected result, by the definition of the kind.
inline int ExpectedAt(const CollectiveSpec& spec, int index, int rank, size_t operand, int64_t element) {
  const int64_t count = spec.counts[operand], n = spec.ranks;
  const auto value = [&](int64_t from, int64_t at) { return ValueAt(index, static_cast<int>(from), operand, at); };
  int sum = 0;
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
      for (int from = 0; from < n; ++from) sum += value(from, element);
      return sum;
    case CollectiveKind::kReduceScatter:
      for (int from = 0; from < n; ++from) sum += value(from, rank * (count / n) + element);
      return sum;
    case CollectiveKind::kAllGather:
      return value(element / count, element % count);
    case CollectiveKind::kAllToAll:
      return value(element / (count / n), rank * (count / n) + element % (count / n));
    case CollectiveKind::kBroadcast:
      return value(0, element);
    case CollectiveKind::kCollectivePermute:
      for (const RankPair& pair : spec.pairs) {
        if (pair.target == rank) return value(pair.source, element);
      }
      return 0;
    default:
      break;
  }
  return 0;
}

inline Buffers MakeInputs(const CollectiveSpec& spec, int index, int device) {
  Buffers inputs;
  const int64_t width = tensor::ByteWidth(spec.type);
  for (size_t operand = 0; operand < spec.counts.size(); ++operand) {
    inputs.emplace_back(spec.counts[operand] * width);
    for (int64_t e = 0; e < spec.counts[operand]; ++e) {
      WriteElement(spec.type, ValueAt(index, device, operand, e), inputs.back().data() + e * width);
    }
  }
  return inputs;
}

inline void CheckOne(const Collective& collective, int index, int rank, const Buffers& outputs) {
  const int64_t width = tensor::ByteWidth(collective.spec.type);
  for (size_t operand = 0; operand < outputs.size(); ++operand) {
    for (int64_t e = 0; e * width < std::ssize(outputs[operand]); ++e) {
      ASSERT_EQ(ReadElement(collective.spec.type, outputs[operand].data() + e * width),
                ExpectedAt(collective.spec, index, rank, operand, e))
          << collective.ToString() << " " << collective.plan.ToString() << ", rank " << rank << ", operand " << operand
          << ", element " << e;
    }
  }
}

}  // namespace xlad::collectives

// Sizes, names and validation of collective specs.
#include "collectives/plan/spec.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace xlad::collectives {
namespace {

using tensor::ElementType;

constexpr int64_t kMaxBytes = 1LL << 62;

int64_t Sum(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (const int64_t count : counts) sum += count;
  return sum;
}

bool IsKind(CollectiveKind kind) { return kind >= CollectiveKind::kAllReduce && kind <= CollectiveKind::kBroadcast; }

absl::Status Error(const CollectiveSpec& spec, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(ToString(spec.kind), ": found ", found, ", expected ", expected));
}

absl::Status ValidateCounts(const CollectiveSpec& spec) {
  // The output of an AllGather is `ranks` times its input.
  const int64_t factor = spec.kind == CollectiveKind::kAllGather ? spec.ranks : 1;
  int64_t left = kMaxBytes / tensor::ByteWidth(spec.type) / factor;
  for (int64_t count : spec.counts) {
    if (count < 0) return Error(spec, absl::StrCat("an operand of ", count, " elements"), "0 or more");
    if (count > left) return Error(spec, "operands of more than 2^62 bytes", "less");
    left -= count;
    if (InputHasParts(spec.kind) && count % spec.ranks != 0) {
      return Error(spec, absl::StrCat("an operand of ", count, " elements on ", spec.ranks, " ranks"),
                   "a multiple of the number of ranks");
    }
  }
  if (spec.counts.empty()) return Error(spec, "no operands", "at least one");
  return absl::OkStatus();
}

absl::Status ValidateReduction(const CollectiveSpec& spec) {
  if (!Reduces(spec.kind)) {
    if (spec.reduction == Reduction::kNone) return absl::OkStatus();
    return Error(spec, absl::StrCat("reduction ", ToString(spec.reduction)), "none because the kind does not reduce");
  }
  if (spec.reduction < Reduction::kSum || spec.reduction > Reduction::kOr) {
    return Error(spec, absl::StrCat("reduction number ", static_cast<int>(spec.reduction)), "1 to 6");
  }
  const bool bitwise = spec.reduction == Reduction::kAnd || spec.reduction == Reduction::kOr;
  const bool ordered = spec.reduction == Reduction::kMax || spec.reduction == Reduction::kMin;
  if (bitwise && (tensor::IsFloating(spec.type) || tensor::IsComplex(spec.type))) {
    return Error(spec, absl::StrCat(ToString(spec.reduction), " of ", tensor::ToString(spec.type)), "integers or pred");
  }
  if (ordered && tensor::IsComplex(spec.type)) {
    return Error(spec, absl::StrCat(ToString(spec.reduction), " of ", tensor::ToString(spec.type)), "an ordered type");
  }
  return absl::OkStatus();
}

absl::Status ValidatePairs(const CollectiveSpec& spec) {
  if (spec.kind != CollectiveKind::kCollectivePermute) {
    return spec.pairs.empty() ? absl::OkStatus()
                              : Error(spec, "pairs", "none because only a collective permute has pairs");
  }
  std::vector<bool> sends(spec.ranks), receives(spec.ranks);
  for (const RankPair& pair : spec.pairs) {
    const std::string text = absl::StrCat("pair ", pair.source, " -> ", pair.target);
    if (pair.source < 0 || pair.source >= spec.ranks || pair.target < 0 || pair.target >= spec.ranks) {
      return Error(spec, text, absl::StrCat("ranks of 0 to ", spec.ranks - 1));
    }
    if (sends[pair.source] || receives[pair.target]) {
      return Error(spec, absl::StrCat(text, " and another pair with the same source or target"), "each at most once");
    }
    sends[pair.source] = receives[pair.target] = true;
  }
  return absl::OkStatus();
}

}  // namespace

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
}
bool InputHasParts(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll;
}
bool OutputHasParts(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll;
}

absl::string_view ToString(CollectiveKind kind) {
  static constexpr absl::string_view kNames[] = {"all_reduce", "all_gather",         "reduce_scatter",
                                                 "all_to_all", "collective_permute", "broadcast"};
  return IsKind(kind) ? kNames[static_cast<int>(kind) - 1] : "collective of unknown kind";
}

absl::string_view ToString(Reduction reduction) {
  static constexpr absl::string_view kNames[] = {"none", "sum", "product", "max", "min", "and", "or"};
  const int index = static_cast<int>(reduction);
  return index >= 0 && index <= 6 ? kNames[index] : "unknown";
}

int64_t CollectiveSpec::input_elements() const { return Sum(counts); }

int64_t CollectiveSpec::output_elements() const { return Sum(output_counts()); }

int64_t CollectiveSpec::input_bytes() const { return input_elements() * tensor::ByteWidth(type); }

std::vector<int64_t> CollectiveSpec::output_counts() const {
  std::vector<int64_t> outputs = counts;
  for (int64_t& count : outputs) {
    if (kind == CollectiveKind::kAllGather) count *= ranks;
    if (kind == CollectiveKind::kReduceScatter) count /= ranks;
  }
  return outputs;
}

std::string CollectiveSpec::ToString() const {
  std::string out(collectives::ToString(kind));
  if (reduction != Reduction::kNone) absl::StrAppend(&out, "(", collectives::ToString(reduction), ")");
  absl::StrAppend(&out, " ", tensor::ToString(type), "[", absl::StrJoin(counts, ","), "] over ", ranks, " ranks");
  if (!pairs.empty()) {
    absl::StrAppend(&out, " {",
                    absl::StrJoin(pairs, ",",
                                  [](std::string* text, const RankPair& pair) {
                                    absl::StrAppend(text, pair.source, "->", pair.target);
                                  }),
                    "}");
  }
  return out;
}

absl::Status ValidateSpec(const CollectiveSpec& spec) {
  if (!IsKind(spec.kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found collective kind number ", static_cast<int>(spec.kind), ", expected 1 to 6"));
  }
  if (spec.ranks < 1) return Error(spec, absl::StrCat(spec.ranks, " ranks"), "at least 1");
  if (tensor::ToString(spec.type).empty() || tensor::ByteWidth(spec.type) < 1) {
    return Error(spec, absl::StrCat("element type number ", static_cast<int>(spec.type)), "a known type");
  }
  XLAD_RETURN_IF_ERROR(ValidateCounts(spec));
  XLAD_RETURN_IF_ERROR(ValidateReduction(spec));
  return ValidatePairs(spec);
}

}  // namespace xlad::collectives

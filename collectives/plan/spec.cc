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

bool IsKind(CollectiveKind kind) { return kind >= CollectiveKind::kAllReduce && kind <= CollectiveKind::kSendRecv; }

constexpr absl::string_view kKindNames[] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute", "broadcast",
    "reduce",     "gather",     "scatter",        "barrier",    "send_recv"};
constexpr absl::string_view kReductionNames[] = {"none", "sum", "product", "max", "min", "and", "or", "xor", "avg"};

absl::Status Error(const CollectiveSpec& spec, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(ToString(spec.kind), ": found ", found, ", expected ", expected));
}

absl::Status ValidateCounts(const CollectiveSpec& spec) {
  // The output of an AllGather or Gather is `ranks` times its input.
  const bool gathers = spec.kind == CollectiveKind::kAllGather || spec.kind == CollectiveKind::kGather;
  const int64_t factor = gathers && spec.sizes.empty() ? spec.ranks : 1;
  int64_t left = kMaxBytes / tensor::ByteWidth(spec.type) / factor;
  for (int64_t count : spec.counts) {
    if (count < 0) return Error(spec, absl::StrCat("an operand of ", count, " elements"), "0 or more");
    if (count > left) {
      return Error(spec, gathers ? "an output of more than 2^62 bytes" : "operands of more than 2^62 bytes",
                   "at most 2^62 bytes");
    }
    left -= count;
    if (spec.sizes.empty() && InputHasParts(spec.kind) && count % spec.ranks != 0) {
      return Error(spec, absl::StrCat("an operand of ", count, " elements on ", spec.ranks, " ranks"),
                   "a multiple of the number of ranks");
    }
  }
  if (spec.counts.empty()) return Error(spec, "no operands", "at least one");
  if (spec.kind == CollectiveKind::kBarrier && spec.counts != std::vector<int64_t>{0}) {
    return Error(spec, absl::StrCat(spec.counts.size(), " operands with ", Sum(spec.counts), " elements"),
                 "one without elements, because a barrier moves no data");
  }
  return absl::OkStatus();
}

absl::Status ValidateSizes(const CollectiveSpec& spec) {
  if (spec.sizes.empty()) return absl::OkStatus();
  if (!InputHasParts(spec.kind) && !OutputHasParts(spec.kind)) {
    return Error(spec, "sizes of parts", "none, because the kind has no parts");
  }
  const int64_t expected = int64_t{spec.ranks} * (spec.kind == CollectiveKind::kAllToAll ? spec.ranks : 1);
  if (std::ssize(spec.sizes) != expected) {
    return Error(spec, absl::StrCat(spec.sizes.size(), " sizes of parts"), absl::StrCat(expected));
  }
  int64_t left = kMaxBytes / tensor::ByteWidth(spec.type);
  for (const int64_t size : spec.sizes) {
    if (size < 0 || size > left) {
      return Error(spec, absl::StrCat("a part of ", size, " elements"),
                   "0 or more, and at most 2^62 bytes in all parts together");
    }
    left -= size;
  }
  if (spec.counts.size() != 1 || spec.counts[0] != Sum(spec.sizes)) {
    return Error(spec, "counts that differ from the sizes of the parts",
                 absl::StrCat("one operand of ", Sum(spec.sizes), " elements"));
  }
  return absl::OkStatus();
}

absl::Status ValidateReduction(const CollectiveSpec& spec) {
  if (!Reduces(spec.kind)) {
    if (spec.reduction == Reduction::kNone) return absl::OkStatus();
    return Error(spec, absl::StrCat("reduction ", ToString(spec.reduction)), "none, because the kind does not reduce");
  }
  if (spec.reduction < Reduction::kSum || spec.reduction > Reduction::kAverage) {
    return Error(spec, absl::StrCat("reduction number ", static_cast<int>(spec.reduction)),
                 absl::StrCat("1 to ", std::size(kReductionNames) - 1));
  }
  const bool bitwise =
      spec.reduction == Reduction::kAnd || spec.reduction == Reduction::kOr || spec.reduction == Reduction::kXor;
  const bool ordered = spec.reduction == Reduction::kMax || spec.reduction == Reduction::kMin;
  if (bitwise && (tensor::IsFloating(spec.type) || tensor::IsComplex(spec.type))) {
    return Error(spec, absl::StrCat(ToString(spec.reduction), " of ", tensor::ToString(spec.type)), "integers or pred");
  }
  if (spec.reduction == Reduction::kAverage && spec.type == ElementType::kPred) {
    return Error(spec, "avg of pred", "numbers");
  }
  if (ordered && tensor::IsComplex(spec.type)) {
    return Error(spec, absl::StrCat(ToString(spec.reduction), " of ", tensor::ToString(spec.type)), "an ordered type");
  }
  return absl::OkStatus();
}

absl::Status ValidatePairs(const CollectiveSpec& spec) {
  if (spec.kind != CollectiveKind::kCollectivePermute && spec.kind != CollectiveKind::kSendRecv) {
    return spec.pairs.empty() ? absl::OkStatus() : Error(spec, "pairs", "none, because the kind has no pairs");
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
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kReduce;
}
bool InputHasParts(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll ||
         kind == CollectiveKind::kScatter;
}
bool OutputHasParts(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kGather;
}
bool HasRoot(CollectiveKind kind) { return kind >= CollectiveKind::kBroadcast && kind <= CollectiveKind::kScatter; }

absl::string_view ToString(CollectiveKind kind) {
  return IsKind(kind) ? kKindNames[static_cast<int>(kind) - 1] : "collective of unknown kind";
}

absl::string_view ToString(Reduction reduction) {
  const size_t index = static_cast<size_t>(reduction);
  return index < std::size(kReductionNames) ? kReductionNames[index] : "unknown";
}

absl::StatusOr<CollectiveKind> ParseCollectiveKind(absl::string_view name) {
  for (int i = 0; i < kNumCollectiveKinds; ++i) {
    if (kKindNames[i] == name) return static_cast<CollectiveKind>(i + 1);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found collective \"", name, "\", expected one of ", absl::StrJoin(kKindNames, ", ")));
}

absl::StatusOr<Reduction> ParseReduction(absl::string_view name) {
  if (name == "prod") return Reduction::kProduct;
  for (size_t i = 1; i < std::size(kReductionNames); ++i) {
    if (kReductionNames[i] == name) return static_cast<Reduction>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("found reduction \"", name, "\", expected one of ",
                                                 absl::StrJoin(absl::MakeSpan(kReductionNames).subspan(1), ", ")));
}

int64_t CollectiveSpec::input_elements(int rank) const {
  const int64_t all = Sum(counts);
  if (kind == CollectiveKind::kScatter && rank != root) return 0;
  if (sizes.empty() || kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kScatter) return all;
  if (kind != CollectiveKind::kAllToAll) return sizes[rank];
  int64_t sent = 0;
  for (int to = 0; to < ranks; ++to) sent += sizes[int64_t{rank} * ranks + to];
  return sent;
}

int64_t CollectiveSpec::output_elements(int rank) const {
  const int64_t all = Sum(counts);
  switch (kind) {
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kScatter:
      return sizes.empty() ? all / ranks : sizes[rank];
    case CollectiveKind::kAllGather:
      return sizes.empty() ? all * ranks : all;
    case CollectiveKind::kGather:
      return rank != root ? 0 : sizes.empty() ? all * ranks : all;
    case CollectiveKind::kReduce:
      return rank != root ? 0 : all;
    case CollectiveKind::kAllToAll: {
      if (sizes.empty()) return all;
      int64_t received = 0;
      for (int from = 0; from < ranks; ++from) received += sizes[int64_t{from} * ranks + rank];
      return received;
    }
    default:
      return all;
  }
}

int64_t CollectiveSpec::input_bytes() const { return input_elements() * tensor::ByteWidth(type); }

std::vector<int64_t> CollectiveSpec::output_counts() const {
  if (!sizes.empty()) return {output_elements()};
  std::vector<int64_t> outputs = counts;
  for (int64_t& count : outputs) {
    if (kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather) count *= ranks;
    if (kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kScatter) count /= ranks;
  }
  return outputs;
}

std::string CollectiveSpec::ToString() const {
  std::string out(collectives::ToString(kind));
  if (reduction != Reduction::kNone) absl::StrAppend(&out, "(", collectives::ToString(reduction), ")");
  absl::StrAppend(&out, " ", tensor::ToString(type), "[", absl::StrJoin(counts, ","), "] over ", ranks, " ranks");
  if (root != 0) absl::StrAppend(&out, " root ", root);
  if (!sizes.empty()) absl::StrAppend(&out, " sizes ", absl::StrJoin(sizes, ","));
  if (mode == ReductionMode::kCanonical) absl::StrAppend(&out, " canonical");
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
    return absl::InvalidArgumentError(absl::StrCat("found collective kind number ", static_cast<int>(spec.kind),
                                                   ", expected 1 to ", kNumCollectiveKinds));
  }
  if (spec.ranks < 1) return Error(spec, absl::StrCat(spec.ranks, " ranks"), "at least 1");
  if (tensor::ToString(spec.type).empty() || tensor::ByteWidth(spec.type) < 1) {
    return Error(spec, absl::StrCat("element type number ", static_cast<int>(spec.type)), "a known type");
  }
  if (spec.root < 0 || spec.root >= (HasRoot(spec.kind) ? spec.ranks : 1)) {
    return Error(spec, absl::StrCat("root ", spec.root),
                 HasRoot(spec.kind) ? absl::StrCat("0 to ", spec.ranks - 1) : "0, because the kind has no root");
  }
  XLAD_RETURN_IF_ERROR(ValidateSizes(spec));
  XLAD_RETURN_IF_ERROR(ValidateCounts(spec));
  XLAD_RETURN_IF_ERROR(ValidateReduction(spec));
  return ValidatePairs(spec);
}

}  // namespace xlad::collectives

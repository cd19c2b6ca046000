#include "cli/bench/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "tensor/small_float.h"

namespace xlad::cli {
namespace {

using collectives::CollectiveKind;
using collectives::Reduction;
using tensor::ElementType;

template <typename T>
void Put(double value, std::byte* to) {
  const T stored = static_cast<T>(value);
  std::memcpy(to, &stored, sizeof stored);
}

void Encode(ElementType type, double value, std::byte* to) {
  if (tensor::IsSmallFloat(type)) {
    const uint16_t bits = tensor::EncodeSmallFloat(type, value);
    std::memcpy(to, &bits, tensor::ByteWidth(type));
    return;
  }
  if (type == ElementType::kF32) return Put<float>(value, to);
  if (type == ElementType::kF64) return Put<double>(value, to);
  const int64_t integer = static_cast<int64_t>(value);
  std::memcpy(to, &integer, std::min<int64_t>(8, tensor::ByteWidth(type)));
}

// Element i of a rank's input. It is a small integer, so that sums and averages over up to 16 ranks are exact even with
// 3 bits of mantissa. If there are more ranks, only one of them has a 1 in a sum, and all inputs of an average are 0.
// Products are exact because at most one rank has a factor of 2.
double Input(Reduction reduction, int rank, int ranks, int64_t i) {
  switch (reduction) {
    case Reduction::kSum:
      return ranks > 16 ? (i % ranks == rank ? 1 : 0) : (i + rank) % 3 == 0 ? 1 : 0;
    case Reduction::kAverage:
      return ranks > 16 ? 0 : i % 2;
    case Reduction::kProduct:
      return i % ranks == rank ? 2 : 1;
    case Reduction::kAnd:
      return (i + rank) % 7 == 0 ? 0 : 1;
    default:
      return static_cast<double>((3 * i + 5 * rank) % 8);
  }
}

double Combine(Reduction reduction, double a, double b) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      return a + b;
    case Reduction::kProduct:
      return a * b;
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kAnd:
      return static_cast<double>(static_cast<int64_t>(a) & static_cast<int64_t>(b));
    case Reduction::kOr:
      return static_cast<double>(static_cast<int64_t>(a) | static_cast<int64_t>(b));
    default:
      return static_cast<double>(static_cast<int64_t>(a) ^ static_cast<int64_t>(b));
  }
}

}  // namespace

BenchData::BenchData(const collectives::CollectiveSpec& spec)
    : spec_(spec),
      width_(tensor::ByteWidth(spec.type)),
      reduced_(kBenchPeriod * width_),
      zeros_(kBenchPeriod * width_) {
  inputs_.assign(spec.ranks, std::vector<std::byte>(kBenchPeriod * width_));
  const bool pred = spec.type == ElementType::kPred;
  for (int64_t i = 0; i < kBenchPeriod; ++i) {
    double reduced = 0;
    for (int rank = 0; rank < spec.ranks; ++rank) {
      double value = Input(spec.reduction, rank, spec.ranks, i);
      if (pred) value = static_cast<int64_t>(value) % 2;
      Encode(spec.type, value, &inputs_[rank][i * width_]);
      reduced = rank == 0 ? value : Combine(spec.reduction, reduced, value);
    }
    if (spec.reduction == Reduction::kAverage) reduced /= spec.ranks;
    // The sum of pred values is their logical or.
    Encode(spec.type, pred ? std::min(reduced, 1.0) : reduced, &reduced_[i * width_]);
  }
}

void BenchData::Fill(const std::vector<std::byte>& pattern, int64_t begin, int64_t count, std::byte* to) const {
  for (int64_t done = 0; done < count;) {
    const int64_t at = (begin + done) % kBenchPeriod, n = std::min(count - done, kBenchPeriod - at);
    std::memcpy(to + done * width_, &pattern[at * width_], n * width_);
    done += n;
  }
}

int64_t BenchData::Differences(const std::vector<std::byte>& pattern, int64_t begin, int64_t count,
                               const std::byte* found) const {
  int64_t wrong = 0;
  for (int64_t done = 0; done < count;) {
    const int64_t at = (begin + done) % kBenchPeriod, n = std::min(count - done, kBenchPeriod - at);
    if (std::memcmp(found + done * width_, &pattern[at * width_], n * width_) != 0) {
      for (int64_t i = 0; i < n; ++i) {
        wrong += std::memcmp(found + (done + i) * width_, &pattern[(at + i) * width_], width_) != 0;
      }
    }
    done += n;
  }
  return wrong;
}

void BenchData::FillInput(int rank, std::byte* input) const {
  Fill(inputs_[rank], 0, spec_.input_elements(rank), input);
}

void BenchData::FillRandom(int rank, std::byte* input) const {
  const bool is_float = tensor::IsFloating(spec_.type);
  const int64_t count = spec_.input_elements(rank);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t key[] = {rank, i};
    const uint64_t bits = Hash64(absl::string_view(reinterpret_cast<const char*>(key), sizeof key));
    // The exponents differ, so that the bits of a sum depend on the order of its terms.
    const double real = std::ldexp(static_cast<double>(bits >> 11) * 0x1p-52 - 1, static_cast<int>(bits % 5));
    const double value = is_float ? real : static_cast<double>(bits % 2);
    Encode(spec_.type, value, input + i * width_);
  }
}

int64_t BenchData::CountWrongRagged(int rank, const std::byte* output) const {
  const bool is_all_to_all = spec_.kind == CollectiveKind::kAllToAll;
  int64_t wrong = 0, at = 0;
  for (int from = 0; from < spec_.ranks; ++from) {
    const int64_t* const sizes = spec_.sizes.data() + (is_all_to_all ? int64_t{from} * spec_.ranks : 0);
    int64_t begin = 0;
    for (int to = 0; is_all_to_all && to < rank; ++to) begin += sizes[to];
    const int64_t size = sizes[is_all_to_all ? rank : from];
    wrong += Differences(inputs_[from], begin, size, output + at * width_);
    at += size;
  }
  return wrong;
}

int64_t BenchData::CountWrong(int rank, const std::byte* output) const {
  if (!spec_.sizes.empty()) return CountWrongRagged(rank, output);
  const int64_t count = spec_.output_elements(rank), part = count / spec_.ranks;
  int64_t wrong = 0;
  switch (spec_.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
      return Differences(reduced_, 0, count, output);
    case CollectiveKind::kReduceScatter:
      return Differences(reduced_, rank * count, count, output);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      for (int r = 0; r < spec_.ranks; ++r) wrong += Differences(inputs_[r], 0, part, output + r * part * width_);
      return wrong;
    case CollectiveKind::kAllToAll:
      for (int r = 0; r < spec_.ranks; ++r) {
        wrong += Differences(inputs_[r], rank * part, part, output + r * part * width_);
      }
      return wrong;
    case CollectiveKind::kBroadcast:
      return Differences(inputs_[spec_.root], 0, count, output);
    case CollectiveKind::kScatter:
      return Differences(inputs_[spec_.root], rank * count, count, output);
    case CollectiveKind::kCollectivePermute:
    case CollectiveKind::kSendRecv:
      for (const collectives::RankPair& pair : spec_.pairs) {
        if (pair.target == rank) return Differences(inputs_[pair.source], 0, count, output);
      }
      return spec_.kind == CollectiveKind::kSendRecv ? 0 : Differences(zeros_, 0, count, output);
    case CollectiveKind::kBarrier:
      return 0;
  }
  return wrong;
}

}  // namespace xlad::cli

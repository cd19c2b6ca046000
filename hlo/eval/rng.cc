// rng-bit-generator: Threefry 2x32 and Philox 4x32 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). Counters are assigned to elements as in XLA, so that the bits equal those of XLA.
//
// The state is a key (64 bits) and a counter (64 or 128 bits). Each element is a function of the key, the counter
// and its index in the array.
#include <array>
#include <bit>
#include <cstring>

#include "hlo/eval/operation.h"
#include "hlo/threefry.h"

namespace xlad::hlo::eval {
namespace {

using Words2 = std::array<uint32_t, 2>;
using Words4 = std::array<uint32_t, 4>;

Words2 SplitWord(uint64_t x) { return {static_cast<uint32_t>(x), static_cast<uint32_t>(x >> 32)}; }
uint64_t JoinWords(uint32_t low, uint64_t high) { return low | (high << 32); }

Words2 Threefry(Words2 x, Words2 key) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  constexpr uint32_t kParity = 0x1BD11BDA;
  const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ kParity};
  x[0] += keys[0];
  x[1] += keys[1];
  for (uint32_t block = 0; block < 5; ++block) {
    for (const int rotation : kRotations[block % 2]) {
      x[0] += x[1];
      x[1] = std::rotl(x[1], rotation) ^ x[0];
    }
    x[0] += keys[(block + 1) % 3];
    x[1] += keys[(block + 2) % 3] + block + 1;
  }
  return x;
}

Words4 Philox(Words4 x, Words2 key) {
  constexpr uint64_t kMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
  constexpr uint32_t kWeyl[2] = {0x9E3779B9, 0xBB67AE85};
  for (int round = 0; round < 10; ++round) {
    const Words2 a = SplitWord(x[0] * kMultipliers[0]), b = SplitWord(x[2] * kMultipliers[1]);
    x = {b[1] ^ x[1] ^ key[0], b[0], a[1] ^ x[3] ^ key[1], a[0]};
    key[0] += kWeyl[0];
    key[1] += kWeyl[1];
  }
  return x;
}

// The elements of the result, each in the low bits of a word, and the next state.
struct Bits {
  std::vector<uint64_t> words;
  std::vector<uint64_t> state;
};

// Each counter determines two 32-bit numbers, for two neighboring elements (ThreefryPairDimension).
Bits Threefry32(const std::vector<uint64_t>& state, const Dims& dims) {
  Bits bits{{}, state};
  const int64_t split = ThreefryPairDimension(dims);
  Dims half = dims;
  if (!half.empty()) half[split] = (half[split] + 1) / 2;
  for (const Dims& index : tensor::MultiIndices(dims)) {
    Dims at = index;
    if (!at.empty()) at[split] /= 2;
    const Words2 pair = Threefry(SplitWord(state[1] + tensor::LinearIndex(half, at)), SplitWord(state[0]));
    bits.words.push_back(pair[dims.empty() ? 0 : index[split] % 2]);
  }
  bits.state[1] += tensor::Product(half);
  return bits;
}

Bits Threefry64(const std::vector<uint64_t>& state, const Dims& dims) {
  Bits bits{{}, state};
  const int64_t elements = tensor::Product(dims);
  for (int64_t i = 0; i < elements; ++i) {
    const Words2 pair = Threefry(SplitWord(state[1] + i), SplitWord(state[0]));
    bits.words.push_back(JoinWords(pair[0], pair[1]));
  }
  bits.state[1] += bits.words.size();
  return bits;
}

// Each counter determines four 32-bit or two 64-bit numbers, for consecutive elements. If the state contains only the
// low word of the counter, the key is used as its high word.
Bits Philox32Or64(const std::vector<uint64_t>& state, const Dims& dims, int64_t width) {
  Bits bits{{}, state};
  const size_t elements = tensor::Product(dims);
  const size_t per_counter = width == 64 ? 2 : 4, counters = (elements + per_counter - 1) / per_counter;
  const uint64_t high = state.size() > 2 ? state[2] : state[0];
  for (uint64_t i = 0; i < counters; ++i) {
    const uint64_t low = state[1] + i;
    const Words2 l = SplitWord(low), h = SplitWord(high + (low < state[1] ? 1 : 0));
    const Words4 four = Philox({l[0], l[1], h[0], h[1]}, SplitWord(state[0]));
    for (size_t k = 0; k < per_counter && bits.words.size() < elements; ++k) {
      bits.words.push_back(width == 64 ? JoinWords(four[2 * k], four[2 * k + 1]) : four[k]);
    }
  }
  bits.state[1] += counters;
  if (bits.state.size() > 2 && bits.state[1] < state[1]) ++bits.state[2];
  return bits;
}

absl::StatusOr<Value> EvalRngBitGenerator(const Operation& operation) {
  const Value& operand = operation.operand(0);
  std::vector<uint64_t> state(operand.bytes().size() / sizeof(uint64_t));
  std::memcpy(state.data(), operand.bytes().data(), state.size() * sizeof(uint64_t));
  const bool only_bits = operation.shape().is_array();
  const tensor::Shape& shape = only_bits ? operation.result() : operation.result(1);
  const int64_t width = tensor::ByteWidth(shape.type) * 8;
  const std::string& algorithm = operation.attributes().rng_algorithm;
  if (state.size() < 2 || state.size() > 3 || tensor::BitWidth(shape.type) < 8 || tensor::IsComplex(shape.type)) {
    return absl::UnimplementedError(
        absl::StrCat("rng-bit-generator of ", shape.ToString(), " from ", operand.shape().ToString(),
                     " is not evaluated, expected a real type of 8 to 64 bits and a state of 128 to 192 bits"));
  }
  Bits bits;
  if (algorithm == "rng_three_fry") {
    bits = width == 64 ? Threefry64(state, shape.dims) : Threefry32(state, shape.dims);
  } else if (algorithm == "rng_philox" || algorithm == "rng_default") {
    bits = Philox32Or64(state, shape.dims, width);
  } else {
    return absl::UnimplementedError(
        absl::StrCat("found algorithm \"", algorithm, "\", expected rng_three_fry, rng_philox or rng_default"));
  }
  Array out(shape);
  const size_t bytes = width / 8;
  for (size_t i = 0; i < bits.words.size(); ++i) {
    std::memcpy(out.bytes().data() + i * bytes, &bits.words[i], bytes);  // Copies the low bits (little-endian).
  }
  if (only_bits) return Value(std::move(out));
  Array next(operand.shape());
  std::memcpy(next.bytes().data(), bits.state.data(), bits.state.size() * sizeof(uint64_t));
  return Value::Tuple({Value(std::move(next)), Value(std::move(out))});
}

constexpr EvalRow kRngRows[] = {{Opcode::kRngBitGenerator, EvalRngBitGenerator}};

}  // namespace

absl::Span<const EvalRow> RngRows() { return kRngRows; }

}  // namespace xlad::hlo::eval

// rng-bit-generator: Threefry 2x32 and Philox 4x32 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011), with the counters and result layout of XLA, so that the bits are those of XLA.
//
// The state is a key and a counter. Each element is a function of the state and of its index in the global array.
#include <llvm/IR/Intrinsics.h>

#include <functional>

#include "compiler/codegen/llvm/kernel.h"
#include "hlo/threefry.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

// Two 32-bit words in registers.
struct Words {
  llvm::Value* low;
  llvm::Value* high;
};

Words Split(IrBuilder& b, llvm::Value* x) {
  return {b.CreateTrunc(x, b.getInt32Ty()), b.CreateTrunc(b.CreateLShr(x, 32), b.getInt32Ty())};
}

llvm::Value* Join(IrBuilder& b, const Words& words) {
  llvm::Value* high = b.CreateShl(b.CreateZExt(words.high, b.getInt64Ty()), 32);
  return b.CreateOr(b.CreateZExt(words.low, b.getInt64Ty()), high);
}

llvm::Value* RotateLeft(IrBuilder& b, llvm::Value* x, uint32_t bits) {
  return b.CreateIntrinsic(llvm::Intrinsic::fshl, {b.getInt32Ty()}, {x, x, b.getInt32(bits)});
}

Words Threefry(IrBuilder& b, Words x, const Words& key) {
  constexpr uint32_t kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  llvm::Value* parity = b.CreateXor(b.CreateXor(key.low, key.high), b.getInt32(0x1BD11BDA));
  llvm::Value* keys[3] = {key.low, key.high, parity};
  x = {b.CreateAdd(x.low, keys[0]), b.CreateAdd(x.high, keys[1])};
  for (uint32_t block = 0; block < 5; ++block) {
    for (const uint32_t rotation : kRotations[block % 2]) {
      x.low = b.CreateAdd(x.low, x.high);
      x.high = b.CreateXor(RotateLeft(b, x.high, rotation), x.low);
    }
    x.low = b.CreateAdd(x.low, keys[(block + 1) % 3]);
    x.high = b.CreateAdd(b.CreateAdd(x.high, keys[(block + 2) % 3]), b.getInt32(block + 1));
  }
  return x;
}

Words Product(IrBuilder& b, llvm::Value* x, uint32_t factor) {
  return Split(b, b.CreateMul(b.CreateZExt(x, b.getInt64Ty()), b.getInt64(factor)));
}

// Returns the four random words of a counter, whose halves are `low` and `high`.
Values Philox(IrBuilder& b, const Words& low, const Words& high, Words key) {
  Values x = {low.low, low.high, high.low, high.high};
  for (int round = 0; round < 10; ++round) {
    const Words p = Product(b, x[0], 0xD2511F53), q = Product(b, x[2], 0xCD9E8D57);
    x = {b.CreateXor(b.CreateXor(q.high, x[1]), key.low), q.low, b.CreateXor(b.CreateXor(p.high, x[3]), key.high),
         p.low};
    key = {b.CreateAdd(key.low, b.getInt32(0x9E3779B9)), b.CreateAdd(key.high, b.getInt32(0xBB67AE85))};
  }
  return x;
}

// A generator under construction.
class Generator {
 public:
  Generator(KernelContext* kernel, const Instruction& root)
      : kernel_(*kernel), ir_(kernel->ir()), b_(ir_.b), bits_(kernel->outputs()[1].array) {
    const Instruction* state = root.operand(0);
    const int64_t bytes = state->shape().array().bytes();
    for (int64_t i = 0; i < bytes / 8; ++i) state_.push_back(Word(kernel->elements(), state, i));
    width_ = 8 * tensor::ByteWidth(bits_.shape.type);
    // On a GPU, one thread computes each element.
    if (kernel_.has_threads()) kernel_.DivideThreads(bits_.shape.elements());
  }

  // Returns the number of counters used.
  int64_t Threefry32() {
    const Dims& dims = bits_.shape.dims;
    const auto split = static_cast<size_t>(hlo::ThreefryPairDimension(dims));
    Dims half = dims;
    if (!half.empty()) half[split] = (half[split] + 1) / 2;
    ForPositions(ir_, kernel_.range(), dims, [&](const Index& place) {
      const Values index = DimsOf(ir_, place, dims);
      Values at = index;
      llvm::Value* odd = b_.getFalse();
      if (!at.empty()) {
        odd = b_.CreateICmpEQ(ir_.Rem(index[split], 2), ir_.I64(1));
        at[split] = ir_.Div(index[split], 2);
      }
      llvm::Value* counter = b_.CreateAdd(state_[1], LinearOf(ir_, Index::Of(at), half));
      const Words pair = Threefry(b_, Split(b_, counter), Split(b_, state_[0]));
      Store(Index::Of(index), b_.CreateSelect(odd, pair.high, pair.low));
    });
    return tensor::Product(half);
  }

  int64_t Threefry64() {
    ForLinear(ir_, kernel_.range(), bits_.shape.elements(), [&](const Index& place) {
      const Words pair = Threefry(b_, Split(b_, b_.CreateAdd(state_[1], place.linear)), Split(b_, state_[0]));
      Store(place, Join(b_, pair));
    });
    return bits_.shape.elements();
  }

  int64_t PhiloxAny() {
    const int64_t per_counter = width_ == 64 ? 2 : 4, elements = bits_.shape.elements();
    const auto one = [&](llvm::Value* counter, int64_t take) {
      llvm::Value* low = b_.CreateAdd(state_[1], counter);
      llvm::Value* high = state_.size() > 2 ? state_[2] : state_[0];
      llvm::Value* carry = b_.CreateZExt(b_.CreateICmpULT(low, state_[1]), b_.getInt64Ty());
      const Values four = Philox(b_, Split(b_, low), Split(b_, b_.CreateAdd(high, carry)), Split(b_, state_[0]));
      for (int64_t k = 0; k < take; ++k) {
        const size_t word = k;
        llvm::Value* value = width_ == 64 ? Join(b_, {four[2 * word], four[2 * word + 1]}) : four[word];
        Store(Index::OfLinear(ir_.Add(ir_.Mul(counter, per_counter), ir_.I64(k))), value);
      }
    };
    const int64_t whole = elements / per_counter, rest = elements % per_counter;
    ForLinear(ir_, kernel_.range(), whole, [&](const Index& counter) { one(counter.linear, per_counter); });
    if (rest != 0) Once([&] { one(ir_.I64(whole), rest); });
    return whole + (rest != 0 ? 1 : 0);
  }

  // Stores the state after `counters` more counters have been used.
  void StoreState(const ArrayView& out, int64_t counters) {
    Values next = state_;
    next[1] = b_.CreateAdd(state_[1], ir_.I64(counters));
    if (next.size() > 2) {
      llvm::Value* carry = b_.CreateZExt(b_.CreateICmpULT(next[1], state_[1]), b_.getInt64Ty());
      next[2] = b_.CreateAdd(state_[2], carry);
    }
    Once([&] {
      for (int64_t i = 0; i < std::ssize(next); ++i) {
        b_.CreateAlignedStore(next[i], ir_.Address(b_.getInt64Ty(), out.base, ir_.I64(i)), llvm::Align(4));
      }
    });
  }

  int64_t width() const { return width_; }

 private:
  // Emits code that only one thread executes.
  void Once(const std::function<void()>& body) {
    if (kernel_.range().thread == nullptr) return body();
    ir_.If(b_.CreateICmpEQ(kernel_.range().thread, ir_.I64(0)), body);
  }

  // The 64-bit word `i` of the state. The state is an array of u64, or of twice as many u32.
  llvm::Value* Word(Elements& elements, const Instruction* state, int64_t i) {
    if (tensor::ByteWidth(state->shape().type()) == 8) return elements.Emit(state, Index::OfLinear(ir_.I64(i)));
    llvm::Value* low = elements.Emit(state, Index::OfLinear(ir_.I64(2 * i)));
    return Join(b_, {low, elements.Emit(state, Index::OfLinear(ir_.I64(2 * i + 1)))});
  }

  void Store(const Index& index, llvm::Value* word) {
    llvm::Value* value = b_.CreateZExtOrTrunc(word, b_.getIntNTy(static_cast<unsigned>(width_)));
    const llvm::Align align(width_ / 8);
    b_.CreateAlignedStore(value, AddressOf(ir_, bits_, index), align);
  }

  KernelContext& kernel_;
  Ir& ir_;
  IrBuilder& b_;
  ArrayView bits_;
  Values state_;
  int64_t width_;
};

}  // namespace

void EmitRngBitGenerator(KernelContext& kernel, const Instruction& root) {
  Generator generator(&kernel, root);
  int64_t counters;
  if (root.attributes().rng_algorithm == "rng_three_fry") {
    counters = generator.width() == 64 ? generator.Threefry64() : generator.Threefry32();
  } else {
    counters = generator.PhiloxAny();
  }
  generator.StoreState(kernel.outputs()[0].array, counters);
}

}  // namespace xlad::compiler

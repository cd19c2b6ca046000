// A merge sort waits for the result of every comparison before the next one, and a processor can't predict the results.
// A sorting network compares the same pairs of places whatever the elements are. So eight rows are sorted at once, one
// in each lane of vectors of 64 bits. Each number has a key in the high half, and in the low half the position in the
// row, so that equal keys keep their order. The network is Batcher's odd-even merge sort (Knuth, The Art of Computer
// Programming, volume 3, section 5.2.2, algorithm M), which sorts rows of any length.
#include "compiler/codegen/llvm/sort_network.h"

#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/powers_of_two.h"
#include "base/rounding.h"
#include "compiler/analysis/same_code.h"
#include "compiler/codegen/llvm/convert_ops.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::Dims;

constexpr int64_t kRowsAtOnce = 8;
// With rows of this length, the scratch memory of a tile is 128 KiB.
constexpr int64_t kMaxRow = 2048;
// The scratch memory of all tiles is at most the sorted array divided by kMaxScratchShare, or that of kFewTiles tiles.
constexpr int64_t kMaxScratchShare = 4, kFewTiles = 8;

// Whether `x` and `y` are the same function of one value, which is `of_x` in one case and `of_y` in the other.
class SameFunction {
 public:
  SameFunction(const Instruction* of_x, const Instruction* of_y) : of_x_(of_x), of_y_(of_y) {}

  bool Check(const Instruction* x, const Instruction* y) {
    if (x == of_x_ || y == of_y_) return x == of_x_ && y == of_y_;
    if (x->opcode() == Opcode::kParameter || !SameCode(*x, *y)) return false;
    if (!known_.emplace(x, y).second) return true;
    for (int64_t i = 0; i < x->operand_count(); ++i) {
      if (!Check(x->operand(i), y->operand(i))) return false;
    }
    return true;
  }

 private:
  const Instruction* of_x_;
  const Instruction* of_y_;
  std::set<std::pair<const Instruction*, const Instruction*>> known_;
};

bool HasKey(ElementType type) { return !tensor::IsComplex(type) && tensor::BitWidth(type) <= 32; }

std::optional<KeyOrder> OrderOfComparator(const Instruction& sort) {
  const hlo::Computation& comparator = *sort.called()[0];
  const Instruction& compare = *comparator.root();
  if (compare.opcode() != Opcode::kCompare) return std::nullopt;
  const hlo::Attributes& attributes = compare.attributes();
  const bool is_less = attributes.comparison == hlo::Comparison::kLt;
  const ElementType type = compare.operand(0)->shape().type();
  if ((!is_less && attributes.comparison != hlo::Comparison::kGt) || !HasKey(type)) return std::nullopt;
  // In other orders of floats, a NaN is neither before nor after another number.
  const bool is_total = attributes.comparison_type == hlo::ComparisonType::kFloatTotalOrder;
  if (tensor::IsFloating(type) && !is_total) return std::nullopt;
  for (int64_t i = 0; i < sort.operand_count(); ++i) {
    const Instruction* first = comparator.parameter(2 * i);
    const Instruction* second = comparator.parameter(2 * i + 1);
    for (const bool swapped : {false, true}) {
      const Instruction* value = compare.operand(swapped ? 1 : 0);
      if (!SameFunction(first, second).Check(value, compare.operand(swapped ? 0 : 1))) continue;
      return KeyOrder{i, value, first, type, is_less == swapped};
    }
  }
  return std::nullopt;
}

class NetworkSorter {
 public:
  NetworkSorter(KernelContext* kernel, const Instruction& root, const KeyOrder& order)
      : kernel_(*kernel), ir_(kernel->ir()), root_(root), order_(order), rows_(root.operand(0)->shape().dims()) {
    count_ = std::exchange(rows_[SortedDimension(root)], 1);
  }

  void Emit() {
    const int64_t rows = tensor::Product(rows_), groups = CeilDiv(rows, kRowsAtOnce);
    const int64_t bytes = count_ * kRowsAtOnce * 8, sorted_bytes = root_.operand(0)->shape().array().bytes();
    const int64_t most = std::clamp(sorted_bytes / kMaxScratchShare / bytes, kFewTiles, kMaxTilesWithScratch);
    const Dims positions = {groups, 1};
    kernel_.Divide(TileRows(positions, std::min(kernel_.wanted_tiles(), most)));
    numbers_ = kernel_.ScratchOfTile({ElementType::kS64, {count_ * kRowsAtOnce}}).base;
    ForPositions(ir_, kernel_.range(), positions, [&](const Index& position) {
      llvm::Value* first = ir_.Mul(LinearOf(ir_, position, positions), kRowsAtOnce);
      llvm::Value* left = ir_.b.CreateSub(ir_.I64(rows), first);
      llvm::Value* lanes = ir_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, ir_.I64(kRowsAtOnce));
      // If there are fewer rows than lanes, the other lanes sort unused numbers.
      ForLanes(first, lanes, [&](llvm::Value* lane, const PlaceInRow& at) { Load(lane, at); });
      Sort();
      ForLanes(first, lanes, [&](llvm::Value* lane, const PlaceInRow& at) { Store(lane, at); });
    });
  }

 private:
  void ForLanes(llvm::Value* first, llvm::Value* lanes,
                const std::function<void(llvm::Value* lane, const PlaceInRow& at)>& body) {
    ir_.DynamicLoop(lanes, [&](llvm::Value* lane) {
      const Values row = DimsOf(ir_, Index::OfLinear(ir_.Add(first, lane)), rows_);
      body(lane, [&](llvm::Value* position) {
        Values dims = row;
        dims[SortedDimension(root_)] = position;
        return Index::Of(dims);
      });
    });
  }
  llvm::Value* NumberAddress(llvm::Value* position, llvm::Value* lane) {
    return ir_.Address(ir_.b.getInt64Ty(), numbers_, ir_.Add(ir_.Mul(position, kRowsAtOnce), lane));
  }

  // The key of an element, a signed number of 32 bits.
  llvm::Value* KeyOf(const Index& index) {
    IrBuilder& b = ir_.b;
    llvm::Value* value = kernel_.elements().Emit(root_.operand(order_.operand), index);
    if (order_.value != nullptr) {
      Elements body(&ir_);
      body.Bind(order_.parameter, [value](int, const Index&) { return value; });
      value = body.EmitScalar(order_.value);
    }
    const bool is_float = tensor::IsFloating(order_.type);
    if (is_float) value = TotalOrderKey(b, order_.type, value);
    const bool is_signed = is_float || tensor::IsSigned(order_.type);
    llvm::Value* key = b.CreateIntCast(value, b.getInt64Ty(), is_signed);
    if (!is_signed) key = b.CreateSub(key, ir_.I64(int64_t{1} << 31));
    return order_.descending ? b.CreateNot(key) : key;
  }

  void Load(llvm::Value* lane, const PlaceInRow& at) {
    ir_.Loop(count_, [&](llvm::Value* position) {
      llvm::Value* number = ir_.b.CreateOr(ir_.b.CreateShl(KeyOf(at(position)), 32), position);
      ir_.b.CreateStore(number, NumberAddress(position, lane));
    });
  }

  void Store(llvm::Value* lane, const PlaceInRow& at) {
    const int64_t kept = kernel_.outputs()[0].array.shape.dims[SortedDimension(root_)];
    ir_.Loop(kept, [&](llvm::Value* rank) {
      llvm::Value* number = ir_.b.CreateLoad(ir_.b.getInt64Ty(), NumberAddress(rank, lane));
      StoreRanked(kernel_, root_, at, rank, ir_.b.CreateAnd(number, ir_.I64(UINT32_MAX)));
    });
  }

  // Algorithm M, with its names p, q, r and d.
  void Sort() {
    IrBuilder& b = ir_.b;
    llvm::Type* i64 = b.getInt64Ty();
    llvm::Value *p = ir_.Slot(i64), *q = ir_.Slot(i64), *r = ir_.Slot(i64), *d = ir_.Slot(i64);
    const auto load = [&](llvm::Value* slot) { return b.CreateLoad(i64, slot); };
    llvm::Value* top = ir_.I64(PowerOfTwoAtLeast(count_) / 2);
    b.CreateStore(top, p);
    ir_.While([&] { return b.CreateICmpSGT(load(p), ir_.I64(0)); },
              [&] {
                b.CreateStore(top, q);
                b.CreateStore(ir_.I64(0), r);
                b.CreateStore(load(p), d);
                ir_.While([&] { return b.CreateICmpSGT(load(d), ir_.I64(0)); },
                          [&] {
                            Exchange(load(p), load(r), load(d));
                            b.CreateStore(b.CreateSub(load(q), load(p)), d);
                            b.CreateStore(b.CreateLShr(load(q), 1), q);
                            b.CreateStore(load(p), r);
                          });
                b.CreateStore(b.CreateLShr(load(p), 1), p);
              });
  }

  // Orders the numbers at i and i + d, for each i with (i & p) == r. These are runs of p places, which begin at r.
  void Exchange(llvm::Value* p, llvm::Value* r, llvm::Value* d) {
    IrBuilder& b = ir_.b;
    llvm::Type* i64 = b.getInt64Ty();
    llvm::Type* vector = llvm::FixedVectorType::get(i64, kRowsAtOnce);
    llvm::Value* end = b.CreateSub(ir_.I64(count_), d);
    llvm::Value* begin = ir_.Slot(i64);
    b.CreateStore(r, begin);
    ir_.While([&] { return b.CreateICmpSLT(b.CreateLoad(i64, begin), end); },
              [&] {
                llvm::Value* from = b.CreateLoad(i64, begin);
                llvm::Value* to = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b.CreateAdd(from, p), end);
                ir_.RangeLoop(from, to, [&](llvm::Value* i) {
                  llvm::Value* low = ir_.Address(vector, numbers_, i);
                  llvm::Value* high = ir_.Address(vector, numbers_, b.CreateAdd(i, d));
                  llvm::Value* x = b.CreateAlignedLoad(vector, low, llvm::Align(64));
                  llvm::Value* y = b.CreateAlignedLoad(vector, high, llvm::Align(64));
                  b.CreateAlignedStore(b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y), low, llvm::Align(64));
                  b.CreateAlignedStore(b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y), high, llvm::Align(64));
                });
                b.CreateStore(b.CreateAdd(from, b.CreateShl(p, 1)), begin);
              });
  }

  KernelContext& kernel_;
  Ir& ir_;
  const Instruction& root_;
  const KeyOrder& order_;
  Dims rows_;  // The sizes of the array, with 1 for the sorted dimension.
  int64_t count_ = 0;
  llvm::Value* numbers_ = nullptr;  // For each place, the numbers of eight rows.
};

}  // namespace

std::optional<KeyOrder> FindKeyOrder(const Instruction& root) {
  const hlo::Shape& shape = root.operand(0)->shape();
  if (shape.elements() == 0 || shape.ndim() == 0) return std::nullopt;
  const int64_t count = shape.dim(SortedDimension(root));
  if (count < 2 || count > kMaxRow) return std::nullopt;
  if (root.opcode() == Opcode::kSort) return OrderOfComparator(root);
  if (!HasKey(shape.type())) return std::nullopt;
  return KeyOrder{0, nullptr, nullptr, shape.type(), root.attributes().largest};
}

void EmitSortNetwork(KernelContext& kernel, const Instruction& root, const KeyOrder& order) {
  NetworkSorter(&kernel, root, order).Emit();
}

}  // namespace xlad::compiler

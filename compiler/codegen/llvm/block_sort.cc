// Sort and topk on a GPU: a block of threads sorts the positions of one row.
//
// The row is divided into chunks of equal size, and every thread sorts a chunk. Then runs are merged in pairs until one
// is left. All threads take part in a merge: each writes one chunk of the merged run. A binary search finds how many
// elements of the left run come before the chunk (part kSplit). If the comparator is not a strict weak order, for
// example because of NaNs, the numbers that different threads find may contradict each other. Therefore the first
// thread changes the numbers so that they ascend (part kAlign). Then every position is written once, whatever the
// comparator returns.
#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/IR/CFG.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>

#include "base/powers_of_two.h"
#include "base/rounding.h"
#include "compiler/codegen/llvm/nest.h"
#include "compiler/codegen/llvm/sorting.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;
using tensor::ElementType;

// How a row is divided.
struct Plan {
  int64_t count = 0;   // The number of positions in the row.
  int64_t chunk = 1;   // A power of two.
  int64_t chunks = 1;  // One for each thread that sorts.
  int passes = 0;      // The number of passes that merge pairs of runs.

  explicit Plan(int64_t positions) : count(positions) {
    constexpr int64_t kLong = 4096, kFewThreads = 256, kManyThreads = 1024;
    const int64_t threads = count > kLong ? kManyThreads : kFewThreads;
    chunk = PowerOfTwoAtLeast(CeilDiv(std::max<int64_t>(count, 1), threads));
    chunks = std::max<int64_t>(1, CeilDiv(count, chunk));
    passes = CeilLog2(chunks);
  }
};

// The parts of a pass, and their number.
enum PassPart { kSplit, kAlign, kMerge, kPassParts };

bool IsEmpty(const Instruction& root) { return LeafShapes(root.shape())[0].elements() == 0; }
int64_t CountOf(const Instruction& root) { return root.operand(0)->shape().dims()[SortedDimension(root)]; }

class BlockSorter {
 public:
  BlockSorter(KernelContext* kernel, const Instruction& root, SharedMemory* shared)
      : kernel_(*kernel), ir_(kernel->ir()), b_(ir_.b), root_(root), plan_(CountOf(root)) {
    constexpr int64_t kWarp = 32;
    Dims rows = root.operand(0)->shape().dims();
    rows[SortedDimension(root)] = 1;
    kernel_.DivideBlocks(tensor::Product(rows), RoundUp(plan_.chunks, kWarp));
    const ElementType type = PositionType(plan_.count);
    llvm::Type* element = StorageType(ir_.context(), type);
    splits_ = {shared->Place(ir_, element, plan_.chunks), type};
    for (Positions& array : arrays_) {
      array = {shared->Place(ir_, element, plan_.count), type};
      if (array.base == nullptr) array.base = kernel_.ScratchOfTile({type, {plan_.count}}).base;
    }
    row_ = DimsOf(ir_, Index::OfLinear(kernel_.tile()), rows);
    at_ = [this](llvm::Value* position) {
      Values dims = row_;
      dims[SortedDimension(root_)] = position;
      return Index::Of(dims);
    };
    before_ = OrderOf(kernel_, root_, at_);
  }

  void SortChunks() {
    ForChunk([&](llvm::Value* begin) {
      SortPositions(ir_, {begin, UpTo(ir_.Add(begin, ir_.I64(plan_.chunk)), plan_.count), plan_.chunk}, arrays_,
                    before_);
    });
  }

  // The number of elements of the left run that come before this thread's chunk of the merged run.
  void Split(int pass) {
    ForChunk([&](llvm::Value* place) {
      const Pair pair = PairOf(pass, place);
      llvm::Type* i64 = b_.getInt64Ty();
      llvm::Value* fewest = ir_.Slot(i64);
      llvm::Value* most = ir_.Slot(i64);
      llvm::Value* beyond = b_.CreateSub(pair.offset, b_.CreateSub(pair.end, pair.middle));
      b_.CreateStore(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, beyond, ir_.I64(0)), fewest);
      llvm::Value* left = b_.CreateSub(pair.middle, pair.begin);
      b_.CreateStore(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, pair.offset, left), most);
      ir_.While([&] { return b_.CreateICmpSLT(b_.CreateLoad(i64, fewest), b_.CreateLoad(i64, most)); },
                [&] {
                  llvm::Value* sum = b_.CreateAdd(b_.CreateLoad(i64, fewest), b_.CreateLoad(i64, most));
                  llvm::Value* half = b_.CreateLShr(sum, 1);
                  llvm::Value* l = LoadPosition(ir_, From(pass), b_.CreateAdd(pair.begin, half));
                  llvm::Value* other = b_.CreateSub(b_.CreateSub(pair.offset, half), ir_.I64(1));
                  llvm::Value* r = LoadPosition(ir_, From(pass), b_.CreateAdd(pair.middle, other));
                  ir_.If(
                      before_(r, l), [&] { b_.CreateStore(half, most); },
                      [&] { b_.CreateStore(b_.CreateAdd(half, ir_.I64(1)), fewest); });
                });
      StorePosition(ir_, splits_, kernel_.thread(), b_.CreateLoad(i64, fewest));
    });
  }

  void Align(int pass) {
    ir_.If(b_.CreateICmpEQ(kernel_.thread(), ir_.I64(0)), [&] {
      llvm::Value* last = ir_.Slot(b_.getInt64Ty());
      b_.CreateStore(ir_.I64(0), last);
      ir_.Loop(plan_.chunks, [&](llvm::Value* chunk) {
        const Pair pair = PairOf(pass, ir_.Mul(chunk, plan_.chunk));
        llvm::Value* is_first = b_.CreateICmpEQ(pair.offset, ir_.I64(0));
        llvm::Value* fewest = b_.CreateSelect(is_first, ir_.I64(0), b_.CreateLoad(b_.getInt64Ty(), last));
        llvm::Value* most = b_.CreateAdd(fewest, ir_.I64(plan_.chunk));
        llvm::Value* split = LoadPosition(ir_, splits_, chunk);
        split = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, split, fewest);
        split = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, split, most);
        StorePosition(ir_, splits_, chunk, split);
        b_.CreateStore(split, last);
      });
    });
  }

  void MergeChunks(int pass) {
    ForChunk([&](llvm::Value* place) {
      const Pair pair = PairOf(pass, place);
      llvm::Value* thread = kernel_.thread();
      llvm::Value* next = ir_.Add(pair.offset, ir_.I64(plan_.chunk));
      llvm::Value* is_last = b_.CreateICmpSGE(next, b_.CreateSub(pair.end, pair.begin));
      llvm::Value* split = LoadPosition(ir_, splits_, thread);
      llvm::Value* after = b_.CreateSelect(is_last, thread, ir_.Add(thread, ir_.I64(1)));
      llvm::Value* split_after = LoadPosition(ir_, splits_, after);
      const auto right = [&](llvm::Value* offset, llvm::Value* left) {
        return b_.CreateAdd(pair.middle, b_.CreateSub(offset, left));
      };
      Merge(ir_, From(pass), arrays_[1 - Side(pass)],
            {b_.CreateAdd(pair.begin, split),
             b_.CreateSelect(is_last, pair.middle, b_.CreateAdd(pair.begin, split_after)), right(pair.offset, split),
             b_.CreateSelect(is_last, pair.end, right(next, split_after)), place},
            before_);
    });
  }

  void StoreResults() {
    const int64_t kept = kernel_.outputs()[0].array.shape.dims[SortedDimension(root_)];
    const Positions& order = arrays_[Side(plan_.passes)];
    ForBlock(kernel_, kept,
             [&](llvm::Value* rank) { StoreRanked(kernel_, root_, at_, rank, LoadPosition(ir_, order, rank)); });
  }

 private:
  // Two runs that are merged, left (begin to middle) and right (middle to end), and the offset of a chunk in the merged
  // run.
  struct Pair {
    llvm::Value *begin, *middle, *end, *offset;
  };
  Pair PairOf(int pass, llvm::Value* place) {
    const int64_t width = plan_.chunk << pass;
    llvm::Value* offset = ir_.Rem(place, 2 * width);
    llvm::Value* begin = b_.CreateSub(place, offset);
    return {begin, UpTo(b_.CreateAdd(begin, ir_.I64(width)), plan_.count),
            UpTo(b_.CreateAdd(begin, ir_.I64(2 * width)), plan_.count), offset};
  }
  // The array that a pass reads.
  int Side(int pass) const { return (SortedIn(plan_.chunk) + pass) % 2; }
  const Positions& From(int pass) const { return arrays_[Side(pass)]; }

  llvm::Value* UpTo(llvm::Value* x, int64_t limit) {
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, ir_.I64(limit));
  }
  // Emits `body` with the beginning of this thread's chunk. Threads without a chunk do not execute it.
  void ForChunk(const std::function<void(llvm::Value*)>& body) {
    ir_.If(b_.CreateICmpULT(kernel_.thread(), ir_.I64(plan_.chunks)),
           [&] { body(ir_.Mul(kernel_.thread(), plan_.chunk)); });
  }

  KernelContext& kernel_;
  Ir& ir_;
  IrBuilder& b_;
  const Instruction& root_;
  const Plan plan_;
  std::array<Positions, 2> arrays_;
  Positions splits_;
  Values row_;
  PlaceInRow at_;
  Before before_;
};

// Marks loops so that neither LLVM nor ptxas unrolls them. Every pass has several loops, and ptxas takes 17 to 30 s to
// optimize a row of 1,000 elements for sm_80 if it unrolls all of them. Branches to earlier blocks continue loops.
void KeepLoops(llvm::Function& function) {
  llvm::LLVMContext& context = function.getContext();
  llvm::MDNode* mark = llvm::MDNode::get(context, llvm::MDString::get(context, "llvm.loop.unroll.disable"));
  llvm::SmallPtrSet<const llvm::BasicBlock*, 32> before;
  for (llvm::BasicBlock& block : function) {
    before.insert(&block);
    llvm::Instruction* end = block.getTerminator();
    if (end == nullptr || end->hasMetadata(llvm::LLVMContext::MD_loop)) continue;
    for (const llvm::BasicBlock* next : llvm::successors(&block)) {
      if (!before.contains(next)) continue;
      llvm::MDNode* loop = llvm::MDNode::getDistinct(context, {nullptr, mark});
      loop->replaceOperandWith(0, loop);  // The metadata of a loop refers to itself.
      end->setMetadata(llvm::LLVMContext::MD_loop, loop);
    }
  }
}

}  // namespace

int BlockSortParts(const Instruction& root) { return IsEmpty(root) ? 1 : 2 + kPassParts * Plan(CountOf(root)).passes; }

void EmitBlockSort(KernelContext& kernel, const Instruction& root, int part, SharedMemory* shared) {
  if (IsEmpty(root)) return kernel.UseOneThread();
  BlockSorter sorter(&kernel, root, shared);
  const int pass = (part - 1) / kPassParts;
  if (part == 0) {
    sorter.SortChunks();
  } else if (part + 1 == BlockSortParts(root)) {
    sorter.StoreResults();
  } else if ((part - 1) % kPassParts == kSplit) {
    sorter.Split(pass);
  } else if ((part - 1) % kPassParts == kAlign) {
    sorter.Align(pass);
  } else {
    sorter.MergeChunks(pass);
  }
  KeepLoops(*kernel.ir().function());
}

}  // namespace xlad::compiler

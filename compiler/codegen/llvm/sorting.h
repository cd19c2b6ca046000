// Common parts of the kernels for sort and topk, for one thread and for blocks of threads. The kernels sort the
// positions of a row. Their comparator reads the elements at two positions. Elements are moved only once, at the end.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "compiler/codegen/llvm/kernel.h"

namespace xlad::compiler {

// The maximum number of tiles that sort rows on a CPU, because every tile has scratch memory of its own.
inline constexpr int64_t kMaxTilesWithScratch = 64;

// The index of the element at a position of the row.
using PlaceInRow = std::function<Index(llvm::Value* position)>;
// Whether the element at position i comes strictly before the one at position j.
using Before = std::function<llvm::Value*(llvm::Value* i, llvm::Value* j)>;

// The dimension that a sort or topk orders.
size_t SortedDimension(const hlo::Instruction& root);
// The order of a sort is that of its comparator. A topk has the largest (or smallest) elements first, with floats in
// IEEE 754's total order. In both, equal elements keep their order.
Before OrderOf(KernelContext& kernel, const hlo::Instruction& root, const PlaceInRow& at);
// Stores the results at position `rank` of the row, from the element at `position`.
void StoreRanked(KernelContext& kernel, const hlo::Instruction& root, const PlaceInRow& at, llvm::Value* rank,
                 llvm::Value* position);

// An array of positions: s32, or s64 if rows are too long for s32.
struct Positions {
  llvm::Value* base = nullptr;
  ElementType type = ElementType::kS32;
};
ElementType PositionType(int64_t row_size);
llvm::Value* LoadPosition(Ir& ir, const Positions& from, llvm::Value* at);  // An i64.
void StorePosition(Ir& ir, const Positions& to, llvm::Value* at, llvm::Value* position);

// Two sorted runs of one array, left and right, and the position in another array at which the merged run begins.
struct Runs {
  llvm::Value *left_begin, *left_end, *right_begin, *right_end, *out;
};
// Merges two runs of `from` into `to`. Equal elements keep their order.
void Merge(Ir& ir, const Positions& from, const Positions& to, const Runs& runs, const Before& before);

// The positions begin .. end-1, of which there are at most `limit`.
struct PositionRange {
  llvm::Value *begin, *end;
  int64_t limit;
};
// Sorts the positions of a range by merging. Both arrays are used; the result is in arrays[SortedIn(limit)], at the
// same positions.
void SortPositions(Ir& ir, const PositionRange& range, const std::array<Positions, 2>& arrays, const Before& before);
int SortedIn(int64_t limit);

}  // namespace xlad::compiler

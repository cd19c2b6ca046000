#include "compiler/codegen/llvm/lanes.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace xlad::compiler {
namespace {

llvm::Type* VectorOf(const Lanes& lanes) {
  return llvm::FixedVectorType::get(lanes.type, static_cast<unsigned>(lanes.width));
}

llvm::Align AlignmentOf(Ir& ir, const Lanes& lanes) {
  const uint64_t bytes = ir.module().getDataLayout().getTypeAllocSize(VectorOf(lanes)).getFixedValue();
  return llvm::Align(std::min<uint64_t>(bytes, 64));
}

// The elements from `begin` to begin + count - 1.
llvm::Value* LanesFrom(Ir& ir, llvm::Value* vector, int64_t begin, int64_t count) {
  std::vector<int> which(count);
  std::iota(which.begin(), which.end(), static_cast<int>(begin));
  return ir.b.CreateShuffleVector(vector, which);
}

}  // namespace

void FillLanes(Ir& ir, const Lanes& lanes, llvm::Value* value) {
  llvm::Value* vector = ir.b.CreateVectorSplat(static_cast<unsigned>(lanes.width), value);
  for (int64_t at = 0; at < lanes.count; at += lanes.width) {
    ir.b.CreateAlignedStore(vector, ir.Address(lanes.type, lanes.base, ir.I64(at)), AlignmentOf(ir, lanes));
  }
}

llvm::Value* CombineLanes(Ir& ir, const Lanes& lanes,
                          const std::function<llvm::Value*(llvm::Value*, llvm::Value*)>& combine) {
  std::vector<llvm::Value*> vectors;
  for (int64_t at = 0; at < lanes.count; at += lanes.width) {
    vectors.push_back(ir.b.CreateAlignedLoad(VectorOf(lanes), ir.Address(lanes.type, lanes.base, ir.I64(at)),
                                             AlignmentOf(ir, lanes)));
  }
  for (size_t half = vectors.size() / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) vectors[i] = combine(vectors[i], vectors[i + half]);
  }
  llvm::Value* rest = vectors[0];
  for (int64_t half = lanes.width / 2; half > 1; half /= 2) {
    rest = combine(LanesFrom(ir, rest, 0, half), LanesFrom(ir, rest, half, half));
  }
  if (lanes.width == 1) return rest;
  return combine(ir.b.CreateExtractElement(rest, uint64_t{0}), ir.b.CreateExtractElement(rest, uint64_t{1}));
}

}  // namespace xlad::compiler

// The state of LowerToLlo. Its functions are in lower.cc, lower_elementwise.cc, lower_moves.cc and lower_products.cc.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/hlo_names.h"
#include "compiler/codegen/tpu/llo_builder.h"
#include "compiler/codegen/tpu/lower.h"
#include "compiler/codegen/tpu/tile_pipeline.h"

namespace xlad::compiler {

// A copy of an array of `sizes` between two buffers: element (i0, i1, ...) is at base + sum of i * stride in each. The
// stride of the last dimension is 1 in both.
struct Move {
  int from = 0, to = 0;
  Dims sizes, from_strides, to_strides;
  int64_t from_base = 0, to_base = 0;
};

// `batch` products [m,k] x [k,n], with dense operands.
struct MatrixProductOf {
  int64_t batch = 1, m = 1, k = 1, n = 1;
  int lhs = 0, rhs = 0, result = 0;  // The numbers of the buffers.
  int passes = 1;                    // The number of bf16 products: 1, 3, 4 or 6.
};

// The class has more than 25 methods, because it has one for each kind of HLO instruction.
class LloLowering {
 public:
  explicit LloLowering(const machine::Chip& chip) : chip_(chip) {}

  absl::StatusOr<LoweredLlo> Run(const Computation& computation);

 private:
  friend class TileExpression;

  // lower.cc
  int NewBuffer(const std::string& name, machine::LloType type, int64_t elements);
  int NewBuffer(const Instruction& instruction, const Shape& leaf, const std::string& suffix);
  machine::LloType TypeOf(int buffer) const { return result_.program.buffers[buffer].type; }
  void AddKernel(LloBuilder* builder, const std::vector<int>& inputs, const std::vector<int>& outputs);
  // The buffer of an array instruction. The instruction is lowered if it does not have a buffer yet.
  int Materialize(const Instruction* instruction);
  const std::vector<int>& LeavesOf(const Instruction* instruction);
  void Lower(const Instruction* instruction);
  bool LowerArray(const Instruction& instruction, int out);
  void LowerFusion(const Instruction& fusion);
  void AddMacro(const Instruction& instruction);
  void FillConstant(const Instruction& constant, int buffer);
  LloBuilder NewBuilder() const { return LloBuilder(chip_.vector_alus, VmemTiles()); }
  // The maximum number of tiles in a block of a kernel with `streams` streams: `most`, or fewer if VMEM is small.
  int64_t BlockTiles(int64_t most, int64_t streams) const;
  int64_t VmemTiles() const { return static_cast<int64_t>(chip_.vmem_bytes) / machine::kTileBytes; }

  // lower_elementwise.cc. Here and below, a function that returns a bool returns false if there is no code for the
  // instruction, which then becomes a macro-operation.
  void LowerMap(const Instruction& root, int out);
  bool LowerReduce(const Instruction& reduce, int out);

  // lower_moves.cc
  void EmitMove(const Move& move);
  // Sets all elements of a buffer to the scalar in another buffer.
  void EmitFill(int scalar, int to);
  // Writes the dense array of `sizes` in `buffer` to `out`, with its dimensions permuted as by HLO's transpose.
  void EmitPermute(int buffer, const Dims& sizes, const Dims& permutation, int out);
  int Permuted(int buffer, const Dims& sizes, const Dims& permutation);
  void EmitBlockTransposes(int buffer, const Dims& sizes, int out);  // `sizes` are [batch, rows, columns].
  bool LowerBroadcast(const Instruction& broadcast, int out);
  bool LowerSlice(const Instruction& slice, int out);
  bool LowerPad(const Instruction& pad, int out);
  bool LowerConcatenate(const Instruction& concatenate, int out);

  // lower_products.cc
  bool LowerDot(const Instruction& dot, int out);
  bool LowerConvolution(const Instruction& convolution, int out);
  void EmitProduct(const MatrixProductOf& product);

  const machine::Chip& chip_;
  LoweredLlo result_;
  absl::flat_hash_map<const Instruction*, std::vector<int>> leaves_;
  // The names of the buffers, and the words that have another meaning in the text of a program.
  std::set<std::string> names_ = {"inputs", "outputs"};
  const Instruction* current_ = nullptr;  // The instruction whose kernels are being written.
};

// The value of MatrixProductOf.passes for an instruction.
int PassesOf(const Instruction& product);

}  // namespace xlad::compiler

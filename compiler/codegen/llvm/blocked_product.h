// Products of matrices in blocks, for dots and convolutions that are not library ops.
//
// A block of the result has some rows, which are lines of the left operand, and some columns, which are lines of the
// right operand. The operands are packed on the stack, converted to the type of the sums, and multiplied by a loop that
// holds the sums of a few rows and a few vectors of columns in registers (the scheme of GotoBLAS):
//
//   for each chunk of the depth (the contracted positions):
//     pack the columns of the chunk, in panels of a few vectors, and its rows, in panels of a few rows
//     for each panel of columns, for each panel of rows: sums of the panels += their products over the chunk
//
// The sizes of blocks, chunks and panels, the order of loops, and whether rows are packed are data: those of the
// kernel's schedule (compiler/kernel/product_schedule.h), or the compiler's own if the kernel has no schedule.
//
// Packing makes all orders of dimensions equally fast, because the inner loop always reads the same layout. It also
// computes and converts each element once for many products.
//
// Each sum is computed in the order of the depth, however the product is divided into blocks. The bits of the result
// therefore do not depend on the sizes of blocks.
#pragma once

#include <functional>

#include "compiler/codegen/llvm/element_rules.h"
#include "compiler/codegen/llvm/kernel.h"

namespace xlad::compiler {

// Positions begin .. end-1.
struct LineRange {
  llvm::Value* begin;
  llvm::Value* end;
};

// The smaller of two signed positions.
llvm::Value* Smaller(Ir& ir, llvm::Value* x, llvm::Value* y);

// How the factors of a product are packed and multiplied.
struct ProductArithmetic {
  // For a dot, ragged-dot or convolution.
  ProductArithmetic(Ir& ir, const hlo::Instruction& product);

  tensor::ElementType factor;  // The type to which factors are converted.
  llvm::Type* packed;          // The type of a packed element.
  llvm::Type* sum;             // The type of a sum.
  int64_t sum_bytes = 0;
  int64_t parts = 1;  // 2 if real and imaginary parts are in different vectors.
  // The number of neighboring positions of the depth that are packed together. If it is 2, the sum of two products of
  // s16 is added to a sum of s32, which is one instruction on x86.
  int64_t step = 1;
};

// One of the matrices of a product: lines (rows of lhs, columns of rhs) and depth.
struct ProductMatrix {
  // Emits an element, converted to ProductArithmetic::factor.
  std::function<llvm::Value*(llvm::Value* line, llvm::Value* depth)> element;
  // Emits the part of an element's position in the result that depends on its line in this matrix. The position is the
  // sum of the parts of both lines.
  std::function<llvm::Value*(llvm::Value* line)> place;
  // Whether the elements of a line are neighbors in memory. Otherwise, elements of neighboring lines may be.
  bool has_contiguous_lines = false;
  // If more than 1, the elements of a line at depths i * run to (i + 1) * run - 1 are neighbors in memory, or all are
  // zero because they are outside of the operand's array. The depth is a multiple of `run`.
  int64_t run = 1;
  // Emits the element at depth `first + within`, which is in the same run as `first`. What depends only on `first` is
  // computed once for the run, in particular its position in the array.
  std::function<llvm::Value*(llvm::Value* line, llvm::Value* first, llvm::Value* within)> element_in_run;
};

struct MatrixSizes {
  int64_t groups = 1, lhs_lines = 1, rhs_lines = 1, depth = 1;
  bool has_groups = false;  // Whether the rows of a block are any lines of lhs, as in a ragged-dot.
};

// The class has more than 25 methods because packing, multiplying and writing share the sizes and the memory of panels.
class BlockedProduct {
 public:
  // Reserves memory on the stack. Emits no other code.
  BlockedProduct(KernelContext* kernel, const hlo::Instruction& product, const MatrixSizes& sizes);

  // The blocks of the lines of lhs, and those of the lines of rhs.
  int64_t row_blocks() const { return BlocksOf(PanelsOf(true)); }
  int64_t column_blocks() const { return BlocksOf(PanelsOf(false)); }
  LineRange RowsOf(llvm::Value* row_block) const { return LinesOf(PanelsOf(true), row_block); }
  LineRange ColumnsOf(llvm::Value* column_block) const { return LinesOf(PanelsOf(false), column_block); }

  struct Block {
    ProductMatrix lhs, rhs;
    // The lines of lhs and of rhs. Not empty, and no more than in a block of RowsOf and ColumnsOf.
    LineRange rows, columns;
    const LineRange* depth = nullptr;  // If null, the whole depth. It may be empty.
  };
  // Divides the kernel into tiles of blocks, and emits `body` for the blocks of the tile: `outer` are the indices of
  // loops of sizes `loops` around the loops over blocks.
  void ForBlocks(const tensor::Dims& loops,
                 const std::function<void(const Values& outer, const LineRange& rows, const LineRange& columns)>& body);
  // Computes a block and writes it to the result.
  void Emit(const Block& block);

 private:
  // One of the packed operands, in panels of `width` lines.
  struct Panels {
    bool is_lhs = true;
    int64_t lines = 1;      // The number of lines of the whole matrix.
    int64_t width = 1;
    int64_t block = 1;      // The number of lines of a block.
    int64_t padded = 1;     // The same, rounded up to whole panels.
    bool complete = false;  // Whether every panel is complete.
    bool is_packed = true;  // Otherwise elements are read where they are.
    llvm::Value* memory = nullptr;
  };
  struct Panel {
    llvm::Value* memory;
    llvm::Value* first;  // The first line.
    llvm::Value* last;   // The last line of an incomplete panel, or null.
  };
  struct Chunk {
    llvm::Value* begin;  // The first position of the depth.
    llvm::Value* end;
    llvm::Value* steps;  // The number of positions divided by `arithmetic_.step`, rounded up.
  };
  struct PanelPair {
    llvm::Value* row_panel;
    llvm::Value* column_panel;
    bool from_zero;  // Whether sums begin at zero, not at their values in memory.
  };
  void SetSizes(const MatrixSizes& sizes);
  const Panels& PanelsOf(bool is_lhs) const { return rows_.is_lhs == is_lhs ? rows_ : columns_; }
  int64_t BlocksOf(const Panels& panels) const;
  LineRange LinesOf(const Panels& panels, llvm::Value* block) const;
  const ProductMatrix& MatrixOf(const Block& block, const Panels& panels) const {
    return panels.is_lhs ? block.lhs : block.rhs;
  }
  // The number of panels in a block.
  llvm::Value* PanelsIn(const Block& block, const Panels& panels);
  const LineRange& LinesIn(const Block& block, const Panels& panels) const {
    return panels.is_lhs ? block.rows : block.columns;
  }
  int64_t PanelElements(const Panels& panels) const { return chunk_memory_ * arithmetic_.parts * panels.width; }
  void ForChunks(const Block& block, const std::function<void(const Chunk&)>& body);
  void Pack(const Block& block, const Panels& panels, const Chunk& chunk);
  int64_t RunIn(const ProductMatrix& matrix) const;
  void PackLine(const ProductMatrix& matrix, llvm::Value* line, const Chunk& chunk,
                const std::function<void(llvm::Value* number, llvm::Value* value)>& store);
  void PackByLines(const ProductMatrix& matrix, const Panels& panels, const Panel& panel, const Chunk& chunk);
  void PackByDepth(const ProductMatrix& matrix, const Panels& panels, const Panel& panel, const Chunk& chunk);
  void StorePacked(llvm::Value* to, int64_t imag_offset, llvm::Value* value, llvm::Value* inside);
  void Clear(llvm::Value* row_panels);
  void Multiply(const Block& block, const Chunk& chunk, const PanelPair& pair);
  Values RowFactors(const Block& block, const Chunk& chunk, llvm::Value* row_panel, llvm::Value* number, int64_t row);
  llvm::Value* Repeated(llvm::Value* address);
  void AddProducts(llvm::ArrayRef<llvm::Value*> sums, const Values& x, llvm::ArrayRef<llvm::Value*> y);
  void Write(const Block& block);
  llvm::Value* SumAddress(int64_t part, llvm::Value* row, llvm::Value* column);
  llvm::Type* SumVector() const;
  llvm::Align VectorAlign() const;

  KernelContext& kernel_;
  Ir& ir_;
  const hlo::Instruction& product_;
  const ProductArithmetic arithmetic_;
  ProductBlocks blocks_;
  Panels rows_, columns_;  // The lines of vectors are columns. They are lines of lhs if blocks_.vectorizes_rows.
  int64_t lanes_ = 1;      // The number of sums in a vector.
  int64_t depth_ = 1, chunk_ = 1;
  int64_t chunk_memory_ = 1;  // The depth for which a panel has memory, a multiple of the side of transposed tiles.
  llvm::Value* sums_ = nullptr;
  llvm::Value* staged_ = nullptr;  // A panel before it is transposed.
};

}  // namespace xlad::compiler

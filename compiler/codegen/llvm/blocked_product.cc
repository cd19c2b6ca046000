#include "compiler/codegen/llvm/blocked_product.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <numeric>

#include "base/powers_of_two.h"
#include "base/rounding.h"
#include "compiler/analysis/product_form.h"
#include "compiler/codegen/llvm/tile_mover.h"
#include "compiler/kernel/product_schedule.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;

// The sums of 8 rows and 2 vectors of columns are held in 16 registers, which is half of the registers of AVX-512.
// Other targets have half as many registers.
constexpr int64_t kRowsInRegisters = 8, kVectorsInRegisters = 2, kMinLanes = 4;
// A block is code of about this many loop bodies, so loops around it are not unrolled.
constexpr int64_t kCopies = 64;

// The side of the tiles that are transposed. It divides the width of every panel and the size of every chunk.
constexpr int64_t kMaxSide = 16;
int64_t SideOf(int64_t width, int64_t bytes) { return std::min({width, kMaxSide, 64 / bytes}); }

// The number of rows in a panel: a power of two, at most `most`. It is halved if there are few panels and at least half
// of the last one would be padding.
int64_t RowsInPanel(int64_t rows, int64_t most) {
  int64_t width = std::min(most, PowerOfTwoAtLeast(rows));
  if (width > kMinLanes && rows < 4 * width && RoundUp(rows, width) - rows >= width / 2) width /= 2;
  return width;
}

// The sums of the products of neighboring s16 in two vectors. x86 has an instruction for this. LLVM finds it only if
// the pass `reassociate` has not merged the sums with other additions, which the freeze prevents.
llvm::Value* SumOfPairs(IrBuilder& b, llvm::Value* x, llvm::Value* y) {
  const auto* const vector = llvm::cast<llvm::FixedVectorType>(x->getType());
  llvm::Type* wide = vector->getWithNewType(b.getInt32Ty());
  llvm::Value* products = b.CreateMul(b.CreateSExt(x, wide), b.CreateSExt(y, wide));
  std::vector<int> even, odd;
  for (int lane = 0; lane < static_cast<int>(vector->getNumElements()); lane += 2) {
    even.push_back(lane);
    odd.push_back(lane + 1);
  }
  return b.CreateFreeze(b.CreateAdd(b.CreateShuffleVector(products, even), b.CreateShuffleVector(products, odd)));
}

}  // namespace

llvm::Value* Smaller(Ir& ir, llvm::Value* x, llvm::Value* y) {
  return ir.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
}

ProductArithmetic::ProductArithmetic(Ir& ir, const Instruction& product)
    : factor(SumTypeOf(product.shape().type())) {
  packed = sum = RegisterType(ir.context(), tensor::IsComplex(factor) ? tensor::RealPartOf(factor) : factor);
  parts = tensor::IsComplex(factor) ? 2 : 1;
  if (factor == ElementType::kPred) packed = sum = ir.b.getInt8Ty();
  if (MultipliesPairs(product)) {
    packed = ir.b.getInt16Ty();
    sum = ir.b.getInt32Ty();
    step = 2;
  }
  sum_bytes = sum->getPrimitiveSizeInBits().getFixedValue() / 8;
}

BlockedProduct::BlockedProduct(KernelContext* kernel, const Instruction& product, const MatrixSizes& sizes)
    : kernel_(*kernel), ir_(kernel->ir()), product_(product), arithmetic_(ir_, product) {
  const ProductSizes own = {sizes.groups, sizes.lhs_lines, sizes.rhs_lines, sizes.depth, product.shape().type(),
                            arithmetic_.step == 2, sizes.has_groups};
  blocks_ = kernel_.blocks() != nullptr ? *kernel_.blocks() : DefaultBlocks(own, kernel_.wanted_tiles());
  SetSizes(sizes);
  for (Panels* panels : {&rows_, &columns_}) {
    if (!panels->is_packed) continue;
    panels->memory = ir_.Slot(arithmetic_.packed, PanelElements(*panels) * (panels->padded / panels->width));
  }
  sums_ = ir_.Slot(arithmetic_.sum, arithmetic_.parts * rows_.padded * columns_.padded);
  // The staged lines of an odd depth end with a zero.
  const int64_t widest = std::max(rows_.is_packed ? rows_.width : 1, columns_.width);
  staged_ = ir_.Slot(arithmetic_.packed, arithmetic_.parts * widest * chunk_memory_ + 1);
  // The stack frame is large. If kernels were inlined into a native program, the frames of all its dots would add up.
  ir_.function()->addFnAttr(llvm::Attribute::NoInline);
}

void BlockedProduct::SetSizes(const MatrixSizes& sizes) {
  const bool by_rows = blocks_.vectorizes_rows;
  rows_.is_lhs = !by_rows;
  columns_.is_lhs = by_rows;
  rows_.is_packed = by_rows ? blocks_.packs_rhs : blocks_.packs_lhs;
  for (Panels* panels : {&rows_, &columns_}) {
    panels->lines = panels->is_lhs ? sizes.lhs_lines : sizes.rhs_lines;
    panels->block = panels->is_lhs ? blocks_.rows : blocks_.columns;
  }
  const int64_t full_lanes = std::max<int64_t>(1, kernel_.vector_bytes() / arithmetic_.sum_bytes);
  if (blocks_.atom_rows > 0) {
    columns_.width = by_rows ? blocks_.atom_rows : blocks_.atom_columns;
    rows_.width = by_rows ? blocks_.atom_columns : blocks_.atom_rows;
    lanes_ = std::min(full_lanes, columns_.width);
  } else {
    lanes_ = std::min(full_lanes, PowerOfTwoAtLeast(std::max(columns_.lines, kMinLanes)));
    columns_.width = lanes_ * (columns_.lines > lanes_ ? kVectorsInRegisters : 1);
    const int64_t in_registers = kRowsInRegisters / arithmetic_.parts / (kernel_.vector_bytes() < 64 ? 2 : 1);
    rows_.width = RowsInPanel(rows_.lines, in_registers);
  }
  for (Panels* panels : {&rows_, &columns_}) {
    panels->padded = RoundUp(panels->block, panels->width);
    panels->complete = panels->lines % panels->width == 0 &&
                       (panels->block % panels->width == 0 || panels->block >= panels->lines);
  }
  if (sizes.has_groups) rows_.complete = false;
  depth_ = sizes.depth;
  chunk_ = blocks_.depth;
  chunk_memory_ = RoundUp(chunk_, arithmetic_.step * kMaxSide);
}

void BlockedProduct::ForBlocks(
    const tensor::Dims& loops,
    const std::function<void(const Values& outer, const LineRange& rows, const LineRange& columns)>& body) {
  const bool by_columns = blocks_.blocks_by_columns;
  tensor::Dims pieces = loops;
  pieces.push_back(by_columns ? column_blocks() : row_blocks());
  pieces.push_back(by_columns ? row_blocks() : column_blocks());
  const int64_t positions = tensor::Product(pieces);
  kernel_.Divide({positions, positions, std::min(blocks_.tile, positions), 1});
  ForPositions(ir_, kernel_.range(), pieces, [&](const Index& position) {
    Values at = DimsOf(ir_, position, pieces);
    llvm::Value* const inner = at.back();
    at.pop_back();
    llvm::Value* const outer = at.back();
    at.pop_back();
    body(at, RowsOf(by_columns ? inner : outer), ColumnsOf(by_columns ? outer : inner));
  });
}

int64_t BlockedProduct::BlocksOf(const Panels& panels) const { return CeilDiv(panels.lines, panels.block); }

LineRange BlockedProduct::LinesOf(const Panels& panels, llvm::Value* block) const {
  llvm::Value* begin = ir_.Mul(block, panels.block);
  llvm::Value* end = ir_.Add(begin, ir_.I64(panels.block));
  return {begin, panels.lines % panels.block == 0 ? end : Smaller(ir_, end, ir_.I64(panels.lines))};
}

void BlockedProduct::Emit(const Block& block) {
  ir_.CountCopies(kCopies);
  llvm::Value* row_panels = PanelsIn(block, rows_);
  llvm::Value* column_panels = PanelsIn(block, columns_);
  // If there is exactly one chunk, the sums need not be cleared in memory.
  const bool from_zero = block.depth == nullptr && depth_ > 0 && depth_ <= chunk_;
  if (!from_zero) Clear(row_panels);
  ForChunks(block, [&](const Chunk& chunk) {
    Pack(block, columns_, chunk);
    if (rows_.is_packed) Pack(block, rows_, chunk);
    const bool rows_outside = rows_.is_lhs == blocks_.panels_by_rows;
    ir_.RangeLoop(ir_.I64(0), rows_outside ? row_panels : column_panels, [&](llvm::Value* outer) {
      ir_.RangeLoop(ir_.I64(0), rows_outside ? column_panels : row_panels, [&](llvm::Value* inner) {
        Multiply(block, chunk, {rows_outside ? outer : inner, rows_outside ? inner : outer, from_zero});
      });
    });
  });
  Write(block);
}

llvm::Value* BlockedProduct::PanelsIn(const Block& block, const Panels& panels) {
  const LineRange& lines = LinesIn(block, panels);
  llvm::Value* count = ir_.b.CreateSub(lines.end, lines.begin);
  return ir_.Div(ir_.Add(count, ir_.I64(panels.width - 1)), panels.width);
}

void BlockedProduct::ForChunks(const Block& block, const std::function<void(const Chunk&)>& body) {
  const int64_t step = arithmetic_.step;
  const auto emit = [&](llvm::Value* begin, llvm::Value* end) {
    llvm::Value* count = ir_.b.CreateSub(end, begin);
    body({begin, end, ir_.Div(ir_.Add(count, ir_.I64(step - 1)), step)});
  };
  if (block.depth == nullptr) {
    if (depth_ <= chunk_) {
      if (depth_ > 0) emit(ir_.I64(0), ir_.I64(depth_));
      return;
    }
    ir_.RangeLoop(ir_.I64(0), ir_.I64(CeilDiv(depth_, chunk_)), [&](llvm::Value* number) {
      llvm::Value* begin = ir_.Mul(number, chunk_);
      llvm::Value* end = ir_.Add(begin, ir_.I64(chunk_));
      emit(begin, depth_ % chunk_ == 0 ? end : Smaller(ir_, end, ir_.I64(depth_)));
    });
    return;
  }
  llvm::Value* count = ir_.b.CreateSub(block.depth->end, block.depth->begin);
  ir_.DynamicLoop(ir_.Div(ir_.Add(count, ir_.I64(chunk_ - 1)), chunk_), [&](llvm::Value* number) {
    llvm::Value* begin = ir_.Add(block.depth->begin, ir_.Mul(number, chunk_));
    emit(begin, Smaller(ir_, ir_.Add(begin, ir_.I64(chunk_)), block.depth->end));
  });
}

void BlockedProduct::Pack(const Block& block, const Panels& panels, const Chunk& chunk) {
  const LineRange& lines = LinesIn(block, panels);
  const ProductMatrix& matrix = MatrixOf(block, panels);
  ir_.RangeLoop(ir_.I64(0), PanelsIn(block, panels), [&](llvm::Value* panel) {
    llvm::Value* first = ir_.Add(lines.begin, ir_.Mul(panel, panels.width));
    llvm::Value* to =
        ir_.Address(arithmetic_.packed, panels.memory, ir_.Mul(panel, PanelElements(panels)));
    const bool has_neighbors = matrix.has_contiguous_lines || RunIn(matrix) >= kMinLanes;
    const bool by_depth = has_neighbors && panels.width >= kMinLanes;
    const auto pack = [&](llvm::Value* last) {
      by_depth ? PackByDepth(matrix, panels, {to, first, last}, chunk)
               : PackByLines(matrix, panels, {to, first, last}, chunk);
    };
    if (panels.complete) return pack(nullptr);
    llvm::Value* is_complete = ir_.b.CreateICmpSLE(ir_.Add(first, ir_.I64(panels.width)), lines.end);
    // The last lines of an incomplete panel are copies of its last line. Their products are not used.
    ir_.If(is_complete, [&] { pack(nullptr); }, [&] { pack(ir_.b.CreateSub(lines.end, ir_.I64(1))); });
  });
}

void BlockedProduct::PackByLines(const ProductMatrix& matrix, const Panels& panels, const Panel& panel,
                                 const Chunk& chunk) {
  const int64_t step = arithmetic_.step;
  ir_.RangeLoop(ir_.I64(0), chunk.steps, [&](llvm::Value* number) {
    Values depths, inside(static_cast<size_t>(step));
    for (int64_t i = 0; i < step; ++i) {
      depths.push_back(ir_.Add(chunk.begin, ir_.Add(ir_.Mul(number, step), ir_.I64(i))));
    }
    if (step == 2) {  // The last pair of an odd depth has one product.
      inside[1] = ir_.b.CreateICmpSLT(depths[1], chunk.end);
      depths[1] = ir_.b.CreateSelect(inside[1], depths[1], depths[0]);
    }
    llvm::Value* group = ir_.Mul(number, arithmetic_.parts * panels.width * step);
    ir_.Loop(panels.width, [&](llvm::Value* lane) {
      llvm::Value* line = ir_.Add(panel.first, lane);
      if (panel.last != nullptr) line = Smaller(ir_, line, panel.last);
      for (int64_t i = 0; i < step; ++i) {
        llvm::Value* value = matrix.element(line, depths[i]);
        llvm::Value* at = ir_.Add(group, ir_.Add(ir_.Mul(lane, step), ir_.I64(i)));
        StorePacked(ir_.Address(arithmetic_.packed, panel.memory, at), panels.width, value, inside[i]);
      }
    });
  });
}

// The number of neighbors in each part of a chunk. It divides the matrix's run, the chunk's begin and its size.
int64_t BlockedProduct::RunIn(const ProductMatrix& matrix) const {
  return depth_ <= chunk_ ? matrix.run : std::gcd(matrix.run, chunk_);
}

// Emits the elements of a line in a chunk, and calls `store` for each with its number in the chunk.
void BlockedProduct::PackLine(const ProductMatrix& matrix, llvm::Value* line, const Chunk& chunk,
                              const std::function<void(llvm::Value* number, llvm::Value* value)>& store) {
  llvm::Value* count = ir_.b.CreateSub(chunk.end, chunk.begin);
  const int64_t run = RunIn(matrix);
  if (run == 1) {
    ir_.RangeLoop(ir_.I64(0), count, [&](llvm::Value* number) {
      store(number, matrix.element(line, ir_.Add(chunk.begin, number)));
    });
    return;
  }
  ir_.RangeLoop(ir_.I64(0), ir_.Div(count, run), [&](llvm::Value* number) {
    llvm::Value* in_chunk = ir_.Mul(number, run);
    llvm::Value* first = ir_.Add(chunk.begin, in_chunk);
    ir_.RangeLoop(ir_.I64(0), ir_.I64(run), [&](llvm::Value* within) {
      store(ir_.Add(in_chunk, within), matrix.element_in_run(line, first, within));
    });
  });
}

// Packs a panel in two passes that read and write whole vectors: each line is converted, and the result transposed.
// Loads of single elements of many lines would be gathers, which take about as long as all products of an element.
void BlockedProduct::PackByDepth(const ProductMatrix& matrix, const Panels& panels, const Panel& panel,
                                 const Chunk& chunk) {
  IrBuilder& b = ir_.b;
  const int64_t step = arithmetic_.step, parts = arithmetic_.parts, width = panels.width;
  llvm::Type* packed = arithmetic_.packed;
  llvm::Value* count = b.CreateSub(chunk.end, chunk.begin);
  ir_.RangeLoop(ir_.I64(0), ir_.I64(width), [&](llvm::Value* lane) {
    llvm::Value* line = ir_.Add(panel.first, lane);
    if (panel.last != nullptr) line = Smaller(ir_, line, panel.last);
    llvm::Value* to = ir_.Address(packed, staged_, ir_.Mul(lane, chunk_memory_));
    PackLine(matrix, line, chunk, [&](llvm::Value* number, llvm::Value* value) {
      StorePacked(ir_.Address(packed, to, number), width * chunk_memory_, value, nullptr);
    });
    if (step == 2) b.CreateStore(llvm::Constant::getNullValue(packed), ir_.Address(packed, to, count));
  });
  const int64_t bytes = step * static_cast<int64_t>(packed->getPrimitiveSizeInBits().getFixedValue() / 8);
  const int64_t side = SideOf(width, bytes), chunk_steps = chunk_memory_ / step;
  TileMover tile(&ir_, bytes, side);
  llvm::Value* pieces = ir_.Div(ir_.Add(chunk.steps, ir_.I64(side - 1)), side);
  ir_.RangeLoop(ir_.I64(0), pieces, [&](llvm::Value* piece) {
    ir_.RangeLoop(ir_.I64(0), ir_.I64(width / side), [&](llvm::Value* lines) {
      for (int64_t part = 0; part < parts; ++part) {
        llvm::Value* line = ir_.Add(ir_.Mul(lines, side), ir_.I64(part * width));
        llvm::Value* from = ir_.Add(ir_.Mul(line, chunk_steps), ir_.Mul(piece, side));
        llvm::Value* to = ir_.Add(ir_.Mul(piece, side * parts * width), line);
        tile.Move(tile.At(staged_, from), chunk_steps, tile.At(panel.memory, to), parts * width);
      }
    });
  });
}

void BlockedProduct::StorePacked(llvm::Value* to, int64_t imag_offset, llvm::Value* value, llvm::Value* inside) {
  IrBuilder& b = ir_.b;
  if (arithmetic_.parts == 2) {
    b.CreateStore(Real(b, value), to);
    b.CreateStore(Imag(b, value), ir_.Address(arithmetic_.packed, to, ir_.I64(imag_offset)));
    return;
  }
  if (arithmetic_.factor == ElementType::kPred) value = b.CreateZExt(value, arithmetic_.packed);
  if (arithmetic_.step == 2) {
    value = tensor::IsSigned(arithmetic_.factor) ? b.CreateSExtOrTrunc(value, arithmetic_.packed)
                                                 : b.CreateZExtOrTrunc(value, arithmetic_.packed);
  }
  if (inside != nullptr) value = b.CreateSelect(inside, value, llvm::Constant::getNullValue(arithmetic_.packed));
  b.CreateStore(value, to);
}

llvm::Type* BlockedProduct::SumVector() const {
  return llvm::FixedVectorType::get(arithmetic_.sum, static_cast<unsigned>(lanes_));
}

llvm::Align BlockedProduct::VectorAlign() const {
  return llvm::Align(std::min<uint64_t>(64, static_cast<uint64_t>(lanes_ * arithmetic_.sum_bytes)));
}

llvm::Value* BlockedProduct::SumAddress(int64_t part, llvm::Value* row, llvm::Value* column) {
  llvm::Value* at = ir_.Add(ir_.Mul(ir_.Add(row, ir_.I64(part * rows_.padded)), columns_.padded), column);
  return ir_.Address(arithmetic_.sum, sums_, at);
}

void BlockedProduct::Clear(llvm::Value* row_panels) {
  llvm::Value* zero = llvm::Constant::getNullValue(SumVector());
  for (int64_t part = 0; part < arithmetic_.parts; ++part) {
    ir_.RangeLoop(ir_.I64(0), ir_.Mul(row_panels, rows_.width), [&](llvm::Value* row) {
      ir_.RangeLoop(ir_.I64(0), ir_.I64(columns_.padded / lanes_), [&](llvm::Value* vector) {
        ir_.b.CreateAlignedStore(zero, SumAddress(part, row, ir_.Mul(vector, lanes_)), VectorAlign());
      });
    });
  }
}

void BlockedProduct::Multiply(const Block& block, const Chunk& chunk, const PanelPair& pair) {
  const int64_t parts = arithmetic_.parts, step = arithmetic_.step, vectors = columns_.width / lanes_;
  IrBuilder& b = ir_.b;
  llvm::Type* packed = arithmetic_.packed;
  llvm::Type* vector = SumVector();
  llvm::Value* right = ir_.Address(packed, columns_.memory, ir_.Mul(pair.column_panel, PanelElements(columns_)));
  Values sums, addresses;
  for (int64_t row = 0; row < rows_.width; ++row) {
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t part = 0; part < parts; ++part) {
        sums.push_back(ir_.Slot(vector));
        addresses.push_back(SumAddress(part, ir_.Add(ir_.Mul(pair.row_panel, rows_.width), ir_.I64(row)),
                                       ir_.Add(ir_.Mul(pair.column_panel, columns_.width), ir_.I64(v * lanes_))));
        llvm::Value* before = pair.from_zero ? static_cast<llvm::Value*>(llvm::Constant::getNullValue(vector))
                                             : b.CreateAlignedLoad(vector, addresses.back(), VectorAlign());
        b.CreateStore(before, sums.back());
      }
    }
  }
  llvm::Type* packed_vector = llvm::FixedVectorType::get(packed, static_cast<unsigned>(lanes_ * step));
  ir_.RangeLoop(ir_.I64(0), chunk.steps, [&](llvm::Value* number) {
    Values factors;
    for (int64_t i = 0; i < parts * vectors; ++i) {
      const int64_t at = (i % parts * columns_.width + i / parts * lanes_) * step;
      llvm::Value* from = ir_.Add(ir_.Mul(number, parts * columns_.width * step), ir_.I64(at));
      factors.push_back(b.CreateAlignedLoad(packed_vector, ir_.Address(packed, right, from), VectorAlign()));
    }
    for (int64_t row = 0; row < rows_.width; ++row) {
      const Values x = RowFactors(block, chunk, pair.row_panel, number, row);
      for (int64_t v = 0; v < vectors; ++v) {
        const int64_t first = (row * vectors + v) * parts, y = v * parts;
        AddProducts(llvm::ArrayRef(&sums[first], parts), x, llvm::ArrayRef(&factors[y], parts));
      }
    }
  });
  for (size_t i = 0; i < sums.size(); ++i) {
    b.CreateAlignedStore(b.CreateLoad(vector, sums[i]), addresses[i], VectorAlign());
  }
}

// The factors of a row in step `number` of a chunk, as vectors of copies. There is one of them for each part.
Values BlockedProduct::RowFactors(const Block& block, const Chunk& chunk, llvm::Value* row_panel, llvm::Value* number,
                                  int64_t row) {
  IrBuilder& b = ir_.b;
  const int64_t parts = arithmetic_.parts, step = arithmetic_.step;
  Values factors;
  if (rows_.is_packed) {
    llvm::Value* panel = ir_.Address(arithmetic_.packed, rows_.memory, ir_.Mul(row_panel, PanelElements(rows_)));
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t at = (part * rows_.width + row) * step;
      llvm::Value* from = ir_.Add(ir_.Mul(number, parts * rows_.width * step), ir_.I64(at));
      factors.push_back(Repeated(ir_.Address(arithmetic_.packed, panel, from)));
    }
    return factors;
  }
  const LineRange& lines = LinesIn(block, rows_);
  llvm::Value* line = ir_.Add(lines.begin, ir_.Add(ir_.Mul(row_panel, rows_.width), ir_.I64(row)));
  if (!rows_.complete) line = Smaller(ir_, line, b.CreateSub(lines.end, ir_.I64(1)));
  llvm::Value* value = MatrixOf(block, rows_).element(line, ir_.Add(chunk.begin, number));
  factors = {value};
  if (parts == 2) factors = {Real(b, value), Imag(b, value)};
  if (arithmetic_.factor == ElementType::kPred) factors[0] = b.CreateZExt(value, arithmetic_.packed);
  for (llvm::Value*& factor : factors) factor = b.CreateVectorSplat(static_cast<unsigned>(lanes_), factor);
  return factors;
}

// A vector of copies of the packed elements of one step.
llvm::Value* BlockedProduct::Repeated(llvm::Value* address) {
  IrBuilder& b = ir_.b;
  if (arithmetic_.step == 1) {
    return b.CreateVectorSplat(static_cast<unsigned>(lanes_), b.CreateLoad(arithmetic_.packed, address));
  }
  llvm::Value* pair = b.CreateAlignedLoad(b.getInt32Ty(), address, llvm::Align(2));
  llvm::Value* pairs = b.CreateVectorSplat(static_cast<unsigned>(lanes_), pair);
  return b.CreateBitCast(pairs, llvm::FixedVectorType::get(arithmetic_.packed, static_cast<unsigned>(2 * lanes_)));
}

// Adds the products of vectors of both operands to the sums. There is one of each for each part.
void BlockedProduct::AddProducts(llvm::ArrayRef<llvm::Value*> sums, const Values& x, llvm::ArrayRef<llvm::Value*> y) {
  IrBuilder& b = ir_.b;
  llvm::Type* vector = SumVector();
  const auto add = [&](size_t sum, llvm::Value* left, llvm::Value* right) {
    llvm::Value* before = b.CreateLoad(vector, sums[sum]);
    llvm::Value* after = nullptr;
    if (tensor::IsInteger(arithmetic_.factor)) {
      after = b.CreateAdd(before, arithmetic_.step == 2 ? SumOfPairs(b, left, right) : b.CreateMul(left, right));
    } else if (arithmetic_.factor == ElementType::kPred) {
      after = b.CreateOr(before, b.CreateAnd(left, right));
    } else {
      after = b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {vector}, {left, right, before});
    }
    b.CreateStore(after, sums[sum]);
  };
  add(0, x[0], y[0]);
  if (arithmetic_.parts == 1) return;
  add(0, b.CreateFNeg(x[1]), y[1]);
  // The first of these products has the real part of lhs.
  add(1, x[rows_.is_lhs ? 0 : 1], y[rows_.is_lhs ? 1 : 0]);
  add(1, x[rows_.is_lhs ? 1 : 0], y[rows_.is_lhs ? 0 : 1]);
}

void BlockedProduct::Write(const Block& block) {
  IrBuilder& b = ir_.b;
  const ElementType type = product_.shape().type();
  const ProductMatrix &rows = MatrixOf(block, rows_), &columns = MatrixOf(block, columns_);
  const LineRange &of_rows = LinesIn(block, rows_), &of_columns = LinesIn(block, columns_);
  ir_.RangeLoop(ir_.I64(0), b.CreateSub(of_rows.end, of_rows.begin), [&](llvm::Value* row) {
    llvm::Value* in_row = rows.place(ir_.Add(of_rows.begin, row));
    ir_.RangeLoop(ir_.I64(0), b.CreateSub(of_columns.end, of_columns.begin), [&](llvm::Value* column) {
      Values sums;
      for (int64_t part = 0; part < arithmetic_.parts; ++part) {
        sums.push_back(b.CreateLoad(arithmetic_.sum, SumAddress(part, row, column)));
      }
      llvm::Value* value = sums.size() == 2 ? MakeComplex(b, sums[0], sums[1]) : sums[0];
      if (value->getType()->isIntegerTy()) value = b.CreateTrunc(value, RegisterType(ir_.context(), type));
      llvm::Value* place = ir_.Add(in_row, columns.place(ir_.Add(of_columns.begin, column)));
      StoreTo(ir_, kernel_.outputs()[0].array, Index::OfLinear(place), RoundTo(b, type, value));
    });
  });
}

}  // namespace xlad::compiler

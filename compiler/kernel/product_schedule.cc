#include "compiler/kernel/product_schedule.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/containers.h"
#include "base/powers_of_two.h"
#include "base/rounding.h"
#include "compiler/analysis/kernel_cost.h"
#include "compiler/analysis/product_form.h"
#include "compiler/kernel/scalar_code.h"

namespace xlad::compiler {
namespace {

// The dimensions of a product kernel, and its arrays.
enum { kG = 0, kM = 1, kN = 2, kK = 3 };
constexpr const char* kDimNames[] = {"g", "m", "n", "k"};
enum { kLhs = 0, kRhs = 1, kResult = 2 };

// A chunk of a panel of columns should stay in the first-level cache while it is multiplied with all rows.
constexpr int64_t kChunk = 64;
constexpr int64_t kMaxBlockRows = 128, kMinBlockRows = 32;
constexpr int64_t kBytesOfColumns = 512;  // The bytes of the sums of a row of a block.
constexpr int64_t kVectorBytes = 64;
// Blocks have fewer rows if there would otherwise be fewer tiles.
constexpr int64_t kEnoughTiles = 32;
// The limits of an atom: its rows, its bytes along the lanes of vectors, and its bytes in registers.
constexpr int64_t kMaxAtomLines = 16, kMinLanes = 4, kMaxAtomVectorBytes = 256, kMaxAtomBytes = 4096;
// The bytes of packed operands and sums on the stack of a thread.
constexpr int64_t kMaxStackBytes = 1 << 20;

absl::Status Refuse(absl::string_view primitive, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("kernel schedule: ", primitive, ": ", what));
}

// The bytes of a sum. Sums of pairs have 4 bytes (ProductArithmetic).
int64_t SumBytes(ElementType type, bool pairs) { return pairs ? 4 : tensor::ByteWidth(SumTypeOf(type)); }

// The bytes that a sum has in a vector. The two parts of a complex sum are in two vectors.
int64_t LaneBytes(const ProductSizes& sizes) {
  return SumBytes(sizes.type, sizes.pairs) / (tensor::IsComplex(sizes.type) ? 2 : 1);
}

std::string LoopName(int dim, const char* part) { return absl::StrCat(kDimNames[dim], part); }

// The loops from the outside in. `blocks_by_columns` and `panels_by_rows` are those of ProductBlocks.
std::vector<std::string> LoopsInOrder(bool blocks_by_columns, bool panels_by_rows) {
  const int block = blocks_by_columns ? kN : kM, panel = panels_by_rows ? kM : kN;
  return {kDimNames[kG],      LoopName(block, ".o"), LoopName(kM + kN - block, ".o"),
          LoopName(kK, ".o"), LoopName(panel, ".i"), LoopName(kM + kN - panel, ".i"),
          LoopName(kK, ".i")};
}

// Reads the primitives of a product's schedule.
class ProductScheduler {
 public:
  ProductScheduler(Kernel kernel, KernelSchedule schedule) {
    result_.kernel = std::move(kernel);
    result_.schedule = std::move(schedule);
  }

  absl::StatusOr<ScheduledKernel> Run() {
    XLAD_RETURN_IF_ERROR(Split());
    XLAD_RETURN_IF_ERROR(Order());
    XLAD_RETURN_IF_ERROR(Bind());
    XLAD_RETURN_IF_ERROR(Vectorize());
    XLAD_RETURN_IF_ERROR(Stage());
    XLAD_RETURN_IF_ERROR(Atom());
    for (const auto& [name, is_empty] :
         {std::pair("at", schedule().at.empty()), std::pair("unroll", schedule().unroll.empty())}) {
      if (!is_empty) return Refuse(name, "found it in the schedule of a product, which has one statement");
    }
    XLAD_RETURN_IF_ERROR(CheckStack());
    MakeNest();
    result_.blocks = blocks_;
    return std::move(result_);
  }

 private:
  const KernelSchedule& schedule() const { return result_.schedule; }
  int64_t SizeOf(int dim) const { return result_.kernel.dims[dim].size; }
  int64_t sum_bytes() const {
    return SumBytes(result_.kernel.arrays[kResult].type, MultipliesPairs(ProductOf(result_.kernel)));
  }

  absl::Status Split() {
    factors_[kM] = factors_[kN] = factors_[kK] = 0;
    for (const KernelSchedule::Split& split : schedule().splits) {
      const std::string text = absl::StrCat("split ", split.dim, " ", split.factor);
      const auto* const found = std::find(std::begin(kDimNames) + kM, std::end(kDimNames), split.dim);
      if (found == std::end(kDimNames)) return Refuse(text, "expected the dimension m, n or k of a product");
      int64_t& factor = factors_[found - std::begin(kDimNames)];
      if (split.factor < 1) return Refuse(text, "expected a positive factor");
      if (factor != 0) return Refuse(text, "the dimension is already split");
      factor = std::min(split.factor, SizeOf(found - std::begin(kDimNames)));
    }
    for (const int dim : {kM, kN, kK}) {
      if (factors_[dim] == 0) {
        return Refuse(absl::StrCat("split ", kDimNames[dim]),
                      "found no such split, expected the sizes of blocks of m, n and k");
      }
    }
    blocks_.rows = factors_[kM];
    blocks_.columns = factors_[kN];
    blocks_.depth = factors_[kK];
    return absl::OkStatus();
  }

  absl::Status Order() {
    const std::vector<std::string>& order = schedule().order;
    for (const bool by_columns : {false, true}) {
      for (const bool by_rows : {false, true}) {
        if (order != LoopsInOrder(by_columns, by_rows)) continue;
        blocks_.blocks_by_columns = by_columns;
        blocks_.panels_by_rows = by_rows;
        return absl::OkStatus();
      }
    }
    return Refuse(absl::StrCat("order ", absl::StrJoin(order, " ")),
                  "expected g, then m.o and n.o in any order, then k.o, then m.i and n.i in any order, then k.i, so "
                  "that every sum is in the order of the depth");
  }

  absl::Status Bind() {
    const std::string text = absl::StrCat("bind ", absl::StrJoin(schedule().bind, " "), " ", schedule().tile);
    const std::vector<std::string> outermost(schedule().order.begin(), schedule().order.begin() + 3);
    if (schedule().bind != outermost) {
      return Refuse(text, absl::StrCat("expected the loops over blocks: ", absl::StrJoin(outermost, " ")));
    }
    if (schedule().tile < 1) return Refuse(text, "expected a positive number of iterations");
    const int64_t blocks = SizeOf(kG) * CeilDiv(SizeOf(kM), factors_[kM]) * CeilDiv(SizeOf(kN), factors_[kN]);
    blocks_.tile = std::min(schedule().tile, blocks);
    result_.bound = {0, 1, 2};
    result_.tiles = CeilDiv(blocks, blocks_.tile);
    return absl::OkStatus();
  }

  absl::Status Vectorize() {
    const std::vector<std::string>& names = schedule().vectorize;
    if (names.size() != 1 || (names[0] != "m.i" && names[0] != "n.i")) {
      return Refuse(absl::StrCat("vectorize ", absl::StrJoin(names, " ")), "expected one of m.i and n.i");
    }
    blocks_.vectorizes_rows = names[0] == "m.i";
    return absl::OkStatus();
  }

  absl::Status Stage() {
    const std::string inputs[] = {result_.kernel.arrays[kLhs].name, result_.kernel.arrays[kRhs].name};
    bool packs[] = {false, false};
    for (const KernelSchedule::Place& place : schedule().stage) {
      const std::string text = absl::StrCat("stage ", place.what, " ", place.loop);
      const auto* const found = std::find(std::begin(inputs), std::end(inputs), place.what);
      if (found == std::end(inputs)) return Refuse(text, "expected an operand of the product");
      if (place.loop != "k.o") return Refuse(text, "expected k.o: the blocks of one iteration of k.o are packed");
      bool& pack = packs[found - std::begin(inputs)];
      if (pack) return Refuse(text, "the operand is staged already");
      pack = true;
    }
    const int in_lanes = blocks_.vectorizes_rows ? kLhs : kRhs;
    const auto missing = [&](int operand) { return absl::StrCat("stage ", inputs[operand], " k.o"); };
    if (!packs[in_lanes]) return Refuse(missing(in_lanes), "found no such stage; the lines of vectors must be packed");
    if (!packs[1 - in_lanes] && MultipliesPairs(ProductOf(result_.kernel))) {
      return Refuse(missing(1 - in_lanes), "found no such stage; factors that are multiplied in pairs must be packed");
    }
    blocks_.packs_lhs = packs[kLhs];
    blocks_.packs_rhs = packs[kRhs];
    return absl::OkStatus();
  }

  absl::Status Atom() {
    const KernelSchedule::Tile& atom = schedule().atom;
    if (atom == KernelSchedule::Tile()) return absl::OkStatus();
    const std::string text = absl::StrCat("atom ", atom.rows, " ", atom.columns);
    if (!IsPowerOfTwo(atom.rows) || !IsPowerOfTwo(atom.columns)) return Refuse(text, "expected powers of two");
    const bool by_rows = blocks_.vectorizes_rows;
    const int64_t lanes = by_rows ? atom.rows : atom.columns, lines = by_rows ? atom.columns : atom.rows;
    const int64_t bytes = sum_bytes();
    if (lanes < kMinLanes || lanes * bytes > kMaxAtomVectorBytes) {
      return Refuse(text, absl::StrCat("found ", lanes, " sums along the lanes of vectors, expected ", kMinLanes,
                                       " to ", kMaxAtomVectorBytes / bytes));
    }
    if (lines > kMaxAtomLines) {
      return Refuse(text, absl::StrCat("found ", lines, " lines of vectors, expected at most ", kMaxAtomLines));
    }
    if (lanes * lines * bytes > kMaxAtomBytes) {
      return Refuse(text,
                    absl::StrCat("found sums of ", lanes * lines * bytes, " bytes, expected at most ", kMaxAtomBytes));
    }
    blocks_.atom_rows = atom.rows;
    blocks_.atom_columns = atom.columns;
    return absl::OkStatus();
  }

  // Blocks are rounded up to whole panels and squares, so this is an upper bound.
  absl::Status CheckStack() const {
    const int64_t row_panel = std::max<int64_t>(64, blocks_.atom_rows);
    const int64_t column_panel = std::max<int64_t>(64, blocks_.atom_columns);
    const double rows = static_cast<double>(RoundUp(blocks_.rows, row_panel));
    const double columns = static_cast<double>(RoundUp(blocks_.columns, column_panel));
    const double depth = static_cast<double>(RoundUp(blocks_.depth, 32));
    const double staged = static_cast<double>(std::max(row_panel, column_panel));
    const double needed = static_cast<double>(sum_bytes()) * ((rows + columns + staged) * depth + rows * columns);
    if (needed <= kMaxStackBytes) return absl::OkStatus();
    return Refuse(
        absl::StrCat("split m ", blocks_.rows, ", n ", blocks_.columns, ", k ", blocks_.depth),
        absl::StrCat("found blocks of ", static_cast<int64_t>(needed), " bytes, expected at most ", kMaxStackBytes));
  }

  // The loops in their order, for the interpreter.
  void MakeNest() {
    result_.staged.assign(result_.kernel.arrays.size(), {});
    for (const std::string& name : schedule().order) {
      const int dim = std::find(std::begin(kDimNames), std::end(kDimNames), name.substr(0, 1)) - std::begin(kDimNames);
      const bool is_inner = name.ends_with(".i");
      const int64_t factor = dim == kG || is_inner ? 1 : factors_[dim];
      const int64_t size = is_inner ? factors_[dim] : CeilDiv(SizeOf(dim), factor);
      result_.loops.push_back({name, dim, size, factor, -1});
    }
    for (KernelLoop& outer : result_.loops) {
      if (!outer.name.ends_with(".o")) continue;
      for (int l = 0; l < std::ssize(result_.loops); ++l) {
        if (result_.loops[l].name == LoopName(outer.dim, ".i")) outer.inner = l;
      }
    }
    std::vector<NestNode> nodes = {{NestNode::Kind::kCompute, 0, {}}};
    for (int l = std::ssize(result_.loops); l-- > 0;) nodes = {{NestNode::Kind::kLoop, l, nodes}};
    nodes.insert(nodes.begin(), {NestNode::Kind::kStart, 0, {}});
    nodes.push_back({NestNode::Kind::kFinish, 0, {}});
    result_.nest = std::move(nodes);
  }

  ScheduledKernel result_;
  ProductBlocks blocks_;
  int64_t factors_[4] = {1, 0, 0, 0};
};

// The schedule with these blocks. Fields of `blocks` that a schedule does not state are ignored.
KernelSchedule ScheduleOf(const Kernel& kernel, const ProductBlocks& blocks) {
  KernelSchedule schedule;
  schedule.splits = {{kDimNames[kM], blocks.rows}, {kDimNames[kN], blocks.columns}, {kDimNames[kK], blocks.depth}};
  schedule.order = LoopsInOrder(blocks.blocks_by_columns, blocks.panels_by_rows);
  schedule.bind = {schedule.order.begin(), schedule.order.begin() + 3};
  schedule.tile = blocks.tile;
  if (blocks.packs_lhs) schedule.stage.push_back({kernel.arrays[kLhs].name, "k.o"});
  if (blocks.packs_rhs) schedule.stage.push_back({kernel.arrays[kRhs].name, "k.o"});
  schedule.vectorize = {LoopName(blocks.vectorizes_rows ? kM : kN, ".i")};
  schedule.atom = {blocks.atom_rows, blocks.atom_columns};
  return schedule;
}

int64_t BlocksIn(const ProductSizes& sizes, const ProductBlocks& blocks) {
  return sizes.groups * CeilDiv(sizes.rows, blocks.rows) * CeilDiv(sizes.columns, blocks.columns);
}

// Whether the elements of a line of an operand are neighbors in memory and need no conversion.
bool IsInPlace(const Instruction& product, int64_t operand) {
  if (product.opcode() != Opcode::kDot) return false;
  const hlo::DotDimensions& n = *product.attributes().dot;
  const Dims& contracting = operand == 0 ? n.lhs_contracting : n.rhs_contracting;
  const Shape& shape = product.operand(operand)->shape();
  return !contracting.empty() && contracting.back() == shape.ndim() - 1 &&
         shape.type() == SumTypeOf(product.shape().type());
}

ProductSizes SizesOf(const Kernel& kernel) {
  const Instruction& product = ProductOf(kernel);
  ProductSizes sizes = {kernel.dims[kG].size, kernel.dims[kM].size,        kernel.dims[kN].size,
                        kernel.dims[kK].size, kernel.arrays[kResult].type, MultipliesPairs(product)};
  sizes.lhs_in_place = IsInPlace(product, 0);
  sizes.rhs_in_place = IsInPlace(product, 1);
  return sizes;
}

}  // namespace

bool IsProductKernel(const Kernel& kernel) { return kernel.statements.size() == 1 && kernel.statements[0].is_product; }

const Instruction& ProductOf(const Kernel& kernel) { return *kernel.statements[0].value.computation().root(); }

std::optional<Kernel> BuildProductKernel(const Instruction& product) {
  const bool is_product = product.opcode() == Opcode::kDot || product.opcode() == Opcode::kConvolution;
  if (!is_product || !IsWorthBlocks(product)) return std::nullopt;
  const ProductForm form(product);
  Kernel kernel;
  kernel.name = product.name();
  kernel.dims = {{kDimNames[kG], form.groups()},
                 {kDimNames[kM], form.rows()},
                 {kDimNames[kN], form.columns()},
                 {kDimNames[kK], form.depth()}};
  auto code = std::make_shared<Module>("product");
  Computation* entry = code->Add(std::make_unique<Computation>("product"));
  code->set_entry(entry);
  Statement statement;
  statement.is_product = true;
  statement.name = "s0";
  statement.over = {kG, kM, kN};
  statement.along = {kK};
  statement.results = {kResult};
  statement.at.factors.assign(4, 0);
  std::vector<Instruction*> operands;
  for (int k = 0; k < 2; ++k) {
    const tensor::Shape& shape = product.operand(k)->shape().array();
    kernel.arrays.push_back({absl::StrCat("x", k), KernelArray::Role::kInput, shape.type, shape.elements()});
    statement.value.reads.push_back({k, statement.at});
    auto parameter = std::make_unique<Instruction>(Opcode::kParameter, product.operand(k)->shape());
    parameter->set_number(k);
    parameter->set_name(absl::StrCat("x", k));
    operands.push_back(entry->Add(std::move(parameter)));
  }
  kernel.arrays.push_back({"y0", KernelArray::Role::kOutput, product.shape().type(), product.shape().elements()});
  entry->set_root(entry->Add(BareCopy(product), operands));
  statement.value.code = std::move(code);
  kernel.statements.push_back(std::move(statement));
  return kernel;
}

absl::Status VerifyProduct(const Kernel& kernel) {
  const auto wrong = [](absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("product: ", what)); };
  const Statement& statement = kernel.statements[0];
  const bool has_dims = statement.over == std::vector<int>{kG, kM, kN} && statement.along == std::vector<int>{kK};
  if (kernel.dims.size() != 4 || kernel.arrays.size() != 3 || !has_dims) {
    return wrong("expected one statement over three dimensions along a fourth one, two inputs and an output");
  }
  const KernelCode& value = statement.value;
  if (value.code == nullptr || value.computation().parameters().size() != 2 || value.reads.size() != 2) {
    return wrong("expected code with two parameters, which are read");
  }
  const Instruction& product = ProductOf(kernel);
  if ((product.opcode() != Opcode::kDot && product.opcode() != Opcode::kConvolution) || product.operand_count() != 2) {
    return wrong("expected code whose root is a dot or convolution");
  }
  for (int i = 0; i < 3; ++i) {
    const KernelArray& array = kernel.arrays[i];
    const Shape& shape = i == kResult ? product.shape() : product.operand(i)->shape();
    const auto role = i == kResult ? KernelArray::Role::kOutput : KernelArray::Role::kInput;
    const bool is_read = i == kResult ? statement.results == std::vector<int>{kResult}
                                      : product.operand(i) == value.computation().parameter(i) &&
                                            value.reads[i].array == i && value.reads[i].at == statement.at;
    if (array.role == role && array.type == shape.type() && array.elements == shape.elements() && is_read) continue;
    return wrong(absl::StrCat("array ", array.name, ": expected ", shape.ToString(false), ", which its code ",
                              i == kResult ? "writes" : "reads"));
  }
  const ProductForm form(product);
  if (kernel.sizes() != Dims{form.groups(), form.rows(), form.columns(), form.depth()}) {
    return wrong(absl::StrCat("expected dimensions of ", form.groups(), ", ", form.rows(), ", ", form.columns(),
                              " and ", form.depth(), " elements"));
  }
  return absl::OkStatus();
}

ProductBlocks DefaultBlocks(const ProductSizes& sizes, int64_t wanted_tiles) {
  const int64_t parts = tensor::IsComplex(sizes.type) ? 2 : 1;
  const int64_t bytes = LaneBytes(sizes), lanes = kVectorBytes / bytes;
  ProductBlocks blocks;
  blocks.vectorizes_rows = !sizes.has_any_rows && sizes.columns < lanes && sizes.rows > sizes.columns;
  // An element of a large operand is multiplied with one vector only if the other operand is thin. It is then read
  // where it is, because packing it takes as long as multiplying it.
  if (!sizes.pairs && !sizes.has_any_rows) {
    if (sizes.lhs_in_place && sizes.columns <= lanes && sizes.rows > sizes.columns) {
      blocks.vectorizes_rows = blocks.packs_lhs = false;
    } else if (sizes.rhs_in_place && sizes.rows <= lanes && sizes.columns > sizes.rows) {
      blocks.vectorizes_rows = true;
      blocks.packs_rhs = false;
    }
  }
  blocks.blocks_by_columns = blocks.panels_by_rows = blocks.vectorizes_rows;
  const int64_t lines = blocks.vectorizes_rows ? sizes.columns : sizes.rows;
  const int64_t columns = blocks.vectorizes_rows ? sizes.rows : sizes.columns;
  const int64_t block_columns = std::min(kBytesOfColumns / bytes, columns);
  const int64_t outer = sizes.groups * CeilDiv(columns, block_columns);
  const int64_t enough = std::min(wanted_tiles, kEnoughTiles);
  int64_t most = std::min(kMaxBlockRows / parts, lines);
  while (most > kMinBlockRows && outer * CeilDiv(lines, most) < enough) most /= 2;
  // Blocks of about equal size, which have whole panels of every target.
  const int64_t block_lines = std::min(lines, RoundUp(CeilDiv(lines, CeilDiv(lines, most)), 8));
  blocks.rows = blocks.vectorizes_rows ? block_columns : block_lines;
  blocks.columns = blocks.vectorizes_rows ? block_lines : block_columns;
  blocks.depth = std::max<int64_t>(1, sizes.depth <= kChunk * 3 / 2 ? sizes.depth : kChunk);
  blocks.tile = std::max<int64_t>(1, CeilDiv(BlocksIn(sizes, blocks), std::max<int64_t>(1, wanted_tiles)));
  return blocks;
}

KernelSchedule DefaultProductSchedule(const Kernel& kernel, int64_t wanted_tiles) {
  return ScheduleOf(kernel, DefaultBlocks(SizesOf(kernel), wanted_tiles));
}

absl::StatusOr<ScheduledKernel> ApplyProductSchedule(Kernel kernel, KernelSchedule schedule) {
  return ProductScheduler(std::move(kernel), std::move(schedule)).Run();
}

std::vector<KernelSchedule> CandidateProductSchedules(const ScheduledKernel& usual) {
  const ProductSizes sizes = SizesOf(usual.kernel);
  const int64_t lanes = std::max<int64_t>(kMinLanes, kVectorBytes / LaneBytes(sizes));
  std::vector<KernelSchedule> candidates = {usual.schedule};
  // Adds the blocks that `change` makes of the usual ones, with as many tiles as before.
  const auto add = [&](auto change) {
    ProductBlocks blocks = *usual.blocks;
    change(&blocks);
    blocks.tile = std::max<int64_t>(1, CeilDiv(BlocksIn(sizes, blocks), usual.tiles));
    const auto applied = ApplyProductSchedule(usual.kernel, ScheduleOf(usual.kernel, blocks));
    if (applied.ok() && !Contains(candidates, applied->schedule)) candidates.push_back(applied->schedule);
  };
  const bool by_rows = usual.blocks->vectorizes_rows;
  add([&](ProductBlocks* b) {
    bool& packs = by_rows ? b->packs_rhs : b->packs_lhs;
    packs = !packs;
  });
  add([](ProductBlocks* b) {
    b->vectorizes_rows = b->panels_by_rows = b->blocks_by_columns = !b->vectorizes_rows;
    b->packs_lhs = b->packs_rhs = true;
  });
  add([](ProductBlocks* b) { b->panels_by_rows = !b->panels_by_rows; });
  add([](ProductBlocks* b) { b->blocks_by_columns = !b->blocks_by_columns; });
  for (const int64_t depth : {32, 128, 256}) {
    add([&](ProductBlocks* b) { b->depth = std::min<int64_t>(depth, sizes.depth); });
  }
  for (const auto& [rows, columns] : {std::pair(1, 2), {2, 1}, {1, 4}, {2, 4}, {4, 1}}) {
    add([&](ProductBlocks* b) {
      b->rows = std::min(sizes.rows, std::max<int64_t>(1, b->rows * rows / columns));
      b->columns = std::min(sizes.columns, std::max<int64_t>(1, b->columns * columns / rows));
    });
    add([&](ProductBlocks* b) { b->rows = std::min(sizes.rows, std::max<int64_t>(1, b->rows * rows / columns)); });
  }
  for (const auto& [lines, vectors] : {std::pair(4, 2), {8, 1}, {8, 2}, {16, 1}, {4, 4}}) {
    add([&](ProductBlocks* b) {
      b->atom_rows = by_rows ? vectors * lanes : lines;
      b->atom_columns = by_rows ? lines : vectors * lanes;
    });
  }
  return candidates;
}

}  // namespace xlad::compiler

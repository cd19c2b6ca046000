#include "machine/llo/interpret.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "machine/llo/vector_ops.h"

namespace xlad::machine {
namespace {

using Tile = std::array<uint32_t, kTileWords>;

constexpr uint32_t kNaN = 0x7fc00000u;

float FloatOf(uint32_t word) { return std::bit_cast<float>(word); }
uint32_t WordOf(float value) { return std::bit_cast<uint32_t>(value); }

// A copy that has been started, with the values that its operands had at that time.
struct Copy {
  bool is_in = true;
  int64_t tile = 0, element = 0, rows = 0, columns = 0, stride = 0, tiles = 1;
  int buffer = 0;
};

struct MatrixUnit {
  std::vector<Tile> loaded;  // The weights after the next vmat.swap.
  std::array<Tile, kMatrixTiles> weights = {};
  bool has_weights = false;
  std::deque<Tile> results;
};

// A part of the rows of a packed tile: 8 rows that an unpack returns, or a pack replaces.
class PackedRows {
 public:
  PackedRows(LloType type, int64_t part)
      : type_(type), packing_(PackingOf(type)), first_(static_cast<int>(part & (packing_ - 1)) * kSublanes) {}

  Tile Unpacked(const Tile& packed) const {
    Tile rows;
    ForEach([&](int word, int at, int shift) { rows[word] = WordOfElement(type_, packed[at] >> shift); });
    return rows;
  }
  Tile Packed(Tile packed, const Tile& rows) const {
    const uint32_t ones = ElementMask(packing_);
    ForEach([&](int word, int at, int shift) {
      packed[at] = (packed[at] & ~(ones << shift)) | ElementOfWord(type_, rows[word]) << shift;
    });
    return packed;
  }

  static uint32_t ElementMask(int packing) { return packing == 1 ? ~uint32_t{0} : (uint32_t{1} << 32 / packing) - 1; }

 private:
  // Calls visit(the word of the rows, the word of the packed tile, the position of the element's lowest bit).
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (int s = 0; s < kSublanes; ++s) {
      const int row = first_ + s;
      for (int l = 0; l < kLanes; ++l) {
        visit(s * kLanes + l, row / packing_ * kLanes + l, row % packing_ * (32 / packing_));
      }
    }
  }

  const LloType type_;
  const int packing_, first_;
};

// Whether at least one bundle runs when the items run.
bool RunsBundles(const std::vector<LloItem>& items) {
  return std::any_of(items.begin(), items.end(), [](const LloItem& item) {
    const auto* loop = std::get_if<LloLoop>(&item);
    return loop == nullptr || (loop->trips > 0 && RunsBundles(loop->items));
  });
}

class Core {
 public:
  Core(const LloProgram& program, const LloKernel& kernel, LloMemory* memory)
      : program_(program), memory_(*memory), vmem_(kernel.vmem_tiles) {
    for (Tile& tile : vmem_) tile.fill(kNaN);
  }

  absl::Status Run(const std::vector<LloItem>& items) {
    for (const LloItem& item : items) {
      if (const auto* loop = std::get_if<LloLoop>(&item)) {
        // Iterations without bundles only set counters, so the last iteration is enough. Running all of them could take
        // forever, because only bundles are limited in number.
        const int64_t first = RunsBundles(loop->items) ? 0 : std::max<int64_t>(0, loop->trips - 1);
        for (int64_t i = first; i < loop->trips; ++i) {
          scalars_[loop->counter] = i;
          XLAD_RETURN_IF_ERROR(Run(loop->items));
        }
        continue;
      }
      if (++bundles_ > kMaxBundles) {
        return absl::ResourceExhaustedError("found more than 2^32 bundles, expected at most 2^32");
      }
      XLAD_RETURN_IF_ERROR(Bundle(std::get<LloBundle>(item)));
    }
    return absl::OkStatus();
  }

  absl::Status Finish() const {
    for (int s = 0; s < kSemaphores; ++s) {
      if (!copies_[s].empty()) {
        return absl::InvalidArgumentError(absl::StrCat("found ", copies_[s].size(), " copies of semaphore ", s,
                                                       " that the kernel does not wait for, expected none"));
      }
    }
    return absl::OkStatus();
  }

 private:
  // All sources are read before any register or tile is written.
  absl::Status Bundle(const LloBundle& bundle) {
    std::vector<std::pair<int, int64_t>> scalars;
    std::vector<std::pair<int, Tile>> vectors;
    std::vector<std::pair<int64_t, Tile>> stores;
    std::vector<const LloInstruction*> later;  // DMA instructions, which run after the stores of their bundle.
    std::vector<Copy> copies;
    for (const LloInstruction& i : bundle) {
      const LloOpInfo& info = InfoOf(i.op);
      if (info.slot == LloSlot::kScalar) {
        scalars.emplace_back(i.dst, Scalar(i));
      } else if (info.slot == LloSlot::kMisc) {
        later.push_back(&i);
        copies.push_back(CopyOf(i));
      } else if (i.op == LloOp::kVStore) {
        const int64_t tile = WrappedSum(S(i, 0), i.imm);
        if (tile < 0 || tile >= std::ssize(vmem_)) return OutOfVmem(info, tile);
        stores.emplace_back(tile, V(i, 1));
      } else {
        absl::StatusOr<Tile> result = Vector(i);
        if (!result.ok()) return Annotate(result.status(), info.name);
        if (info.dst == 'v') vectors.emplace_back(i.dst, *result);
      }
    }
    for (const auto& [number, value] : scalars) scalars_[number] = value;
    for (const auto& [number, value] : vectors) vectors_[number] = value;
    for (const auto& [tile, value] : stores) vmem_[tile] = value;
    for (size_t i = 0; i < later.size(); ++i) XLAD_RETURN_IF_ERROR(Misc(*later[i], copies[i]));
    return absl::OkStatus();
  }

  int64_t S(const LloInstruction& i, int source) const { return scalars_[i.sources[source]]; }
  const Tile& V(const LloInstruction& i, int source) const { return vectors_[i.sources[source]]; }

  absl::Status OutOfVmem(const LloOpInfo& info, int64_t tile) const {
    return absl::InvalidArgumentError(
        absl::StrCat(info.name, ": found tile ", tile, " of VMEM, expected one of the kernel's ", vmem_.size()));
  }

  int64_t Scalar(const LloInstruction& i) const { return ScalarResult(i, S(i, 0), S(i, 1)); }

  // Returns the tile whose element (s, l) is element index(s, l) of `from`.
  template <typename Index>
  static Tile Moved(const Tile& from, const Index& index) {
    Tile to;
    for (int s = 0; s < kSublanes; ++s) {
      for (int l = 0; l < kLanes; ++l) to[s * kLanes + l] = from[index(s, l)];
    }
    return to;
  }

  absl::StatusOr<Tile> Vector(const LloInstruction& i) {
    const int imm = static_cast<int>(i.imm & (kLanes - 1));  // Positions in a tile wrap.
    const auto at = [](int s, int l) { return (s & (kSublanes - 1)) * kLanes + (l & (kLanes - 1)); };
    Tile result;
    switch (i.op) {
      case LloOp::kVLoad: {
        const int64_t tile = WrappedSum(S(i, 0), i.imm);
        if (tile < 0 || tile >= std::ssize(vmem_)) return OutOfVmem(InfoOf(i.op), tile);
        return vmem_[tile];
      }
      case LloOp::kVMovI:
        result.fill(static_cast<uint32_t>(i.imm));
        return result;
      case LloOp::kVMovS:
        result.fill(static_cast<uint32_t>(S(i, 0)));
        return result;
      case LloOp::kVLane:
      case LloOp::kVSublane:
        for (int word = 0; word < kTileWords; ++word) {
          result[word] = static_cast<uint32_t>(i.op == LloOp::kVLane ? word % kLanes : word / kLanes);
        }
        return result;
      case LloOp::kVRotLane:
        return Moved(V(i, 0), [&](int s, int l) { return at(s, l + imm); });
      case LloOp::kVRotSub:
        return Moved(V(i, 0), [&](int s, int l) { return at(s + imm, l); });
      case LloOp::kVBcastLane:
        return Moved(V(i, 0), [&](int s, int) { return at(s, imm); });
      case LloOp::kVBcastSub:
        return Moved(V(i, 0), [&](int, int l) { return at(imm, l); });
      case LloOp::kXPush:
      case LloOp::kXPop:
        return Transpose(i);
      case LloOp::kMLoad:
      case LloOp::kMSwap:
      case LloOp::kMPush:
      case LloOp::kMPop:
        return Matrix(i);
      default:
        break;
    }
    for (const auto& [type, unpack, pack] : kPackedTypes) {
      if (i.op == unpack) return PackedRows(type, S(i, 1)).Unpacked(V(i, 0));
      if (i.op == pack) return PackedRows(type, S(i, 2)).Packed(V(i, 0), V(i, 1));
    }
    const LloFunction function = FunctionOf(i.op);
    const Tile &a = V(i, 0), &b = V(i, 1), &c = V(i, 2);
    for (int word = 0; word < kTileWords; ++word) result[word] = function(a[word], b[word], c[word]);
    return result;
  }

  absl::StatusOr<Tile> Transpose(const LloInstruction& i) {
    if (i.op == LloOp::kXPush) {
      pushed_.push_back(V(i, 0));
      if (pushed_.size() < kMatrixTiles) return Tile{};
      for (int tile = 0; tile < kMatrixTiles; ++tile) {
        Tile& out = transposed_.emplace_back();
        for (int s = 0; s < kSublanes; ++s) {
          for (int l = 0; l < kLanes; ++l) {
            out[s * kLanes + l] = pushed_[l / kSublanes][l % kSublanes * kLanes + tile * kSublanes + s];
          }
        }
      }
      pushed_.clear();
      return Tile{};
    }
    if (transposed_.empty()) return absl::InvalidArgumentError("found an empty queue, expected a transposed block");
    const Tile result = transposed_.front();
    transposed_.pop_front();
    return result;
  }

  absl::StatusOr<Tile> Matrix(const LloInstruction& i) {
    MatrixUnit& unit = units_[MatrixUnitOf(i)];
    if (i.op == LloOp::kMLoad) {
      unit.loaded.push_back(V(i, 0));
      if (unit.loaded.size() <= kMatrixTiles) return Tile{};
      return absl::InvalidArgumentError(
          absl::StrCat("found ", unit.loaded.size(), " registers of weights, expected ", kMatrixTiles));
    }
    if (i.op == LloOp::kMPop) {
      if (unit.results.empty()) return absl::InvalidArgumentError("found an empty queue, expected a result");
      const Tile result = unit.results.front();
      unit.results.pop_front();
      return result;
    }
    if (i.op == LloOp::kMSwap) {
      if (unit.loaded.size() != kMatrixTiles) {
        return absl::InvalidArgumentError(
            absl::StrCat("found ", unit.loaded.size(), " registers of weights, expected ", kMatrixTiles));
      }
      for (int k = 0; k < kMatrixTiles; ++k) {
        for (int word = 0; word < kTileWords; ++word) {
          unit.weights[k][word] = WordOf(RoundToBf16(FloatOf(unit.loaded[k][word])));
        }
      }
      unit.loaded.clear();
      unit.has_weights = true;
      return Tile{};
    }
    if (!unit.has_weights) return absl::InvalidArgumentError("found no weights, expected 16 registers");
    unit.results.push_back(Product(V(i, 0), unit));
    return Tile{};
  }

  // The product of 8 rows of 128 elements and the weights.
  static Tile Product(const Tile& rows, const MatrixUnit& unit) {
    Tile result;
    for (int s = 0; s < kSublanes; ++s) {
      std::array<float, kLanes> sums = {};
      for (int k = 0; k < kLanes; ++k) {
        const float a = RoundToBf16(FloatOf(rows[s * kLanes + k]));
        const uint32_t* const weights = &unit.weights[k / kSublanes][k % kSublanes * kLanes];
        for (int l = 0; l < kLanes; ++l) sums[l] += a * FloatOf(weights[l]);
      }
      for (int l = 0; l < kLanes; ++l) result[s * kLanes + l] = WordOf(sums[l]);
    }
    return result;
  }

  Copy CopyOf(const LloInstruction& i) const {
    Copy copy;
    if (!IsDma(i.op)) {
      copy.rows = S(i, 0);  // The predicate of dma.wait.
      return copy;
    }
    copy = {i.op == LloOp::kDmaIn, S(i, 0), S(i, 1), S(i, 2), S(i, 3), i.stride, i.tiles, i.buffer};
    if (S(i, 4) == 0) copy.tiles = 0;  // The predicate is false: no copy is started.
    return copy;
  }

  absl::Status Misc(const LloInstruction& i, const Copy& copy) {
    std::deque<Copy>& copies = copies_[i.semaphore];
    if (IsDma(i.op)) {
      if (copy.tiles > 0) copies.push_back(copy);
      return absl::OkStatus();
    }
    if (copy.rows == 0) return absl::OkStatus();
    if (copies.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("dma.wait: found no copy of semaphore ", i.semaphore,
                                                     ", expected a started copy; the kernel would wait forever"));
    }
    const Copy first = copies.front();
    copies.pop_front();
    return Annotate(Perform(first), first.is_in ? "dma.in" : "dma.out");
  }

  absl::Status Perform(const Copy& copy) {
    const LloBuffer& buffer = program_.buffers[copy.buffer];
    if (copy.rows <= 0 || copy.columns <= 0) return absl::OkStatus();
    // The numbers of a program may have any value, so sums and products may exceed 64 bits.
    using Wide = __int128;
    const Wide last = copy.element + static_cast<Wide>(copy.rows - 1) * copy.stride + copy.columns - 1;
    const int packing = PackingOf(buffer.type);
    const int64_t rows_of_tile = int64_t{kSublanes} * packing;
    const int64_t tile_rows = copy.rows / rows_of_tile + (copy.rows % rows_of_tile != 0 ? 1 : 0);
    const bool fits = copy.element >= 0 && copy.stride >= 0 && last < buffer.elements && copy.tile >= 0 &&
                      copy.tile + static_cast<Wide>(tile_rows) * copy.tiles <= std::ssize(vmem_) &&
                      copy.columns <= static_cast<Wide>(copy.tiles) * kLanes;
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("found ", copy.rows, " rows of ", copy.columns, " elements from ",
                                                     copy.element, " of ", buffer.name, " and ", tile_rows, " x ",
                                                     copy.tiles, " tiles from ", copy.tile, ", expected them in ",
                                                     buffer.elements, " elements and ", vmem_.size(), " tiles"));
    }
    const uint32_t ones = PackedRows::ElementMask(packing);
    for (int64_t row = 0; row < (copy.is_in ? tile_rows * rows_of_tile : copy.rows); ++row) {
      const int shift = static_cast<int>(row % packing) * (32 / packing);
      for (int64_t column = 0; column < (copy.is_in ? copy.tiles * kLanes : copy.columns); ++column) {
        const int64_t tile = copy.tile + row / rows_of_tile * copy.tiles + column / kLanes;
        uint32_t& word = vmem_[tile][row % rows_of_tile / packing * kLanes + column % kLanes];
        const bool is_inside = row < copy.rows && column < copy.columns;
        if (copy.is_in) word &= ~(ones << shift);
        if (!is_inside) continue;
        // Only elements inside the block have offsets that are known to fit into 64 bits.
        const int64_t element = copy.element + row * copy.stride + column;
        if (copy.is_in) {
          word |= Read(copy.buffer, element) << shift;
        } else {
          Write(copy.buffer, element, word >> shift);
        }
      }
    }
    return absl::OkStatus();
  }

  uint32_t Read(int buffer, int64_t element) const {
    const LloType type = program_.buffers[buffer].type;
    uint32_t word = 0;
    std::memcpy(&word, memory_[buffer].data() + element * BytesOf(type), BytesOf(type));
    return type == LloType::kPred ? (word != 0 ? 1 : 0) : word;
  }

  // Writes the lowest bits of the word.
  void Write(int buffer, int64_t element, uint32_t word) {
    const LloType type = program_.buffers[buffer].type;
    std::memcpy(memory_[buffer].data() + element * BytesOf(type), &word, BytesOf(type));
  }

  const LloProgram& program_;
  LloMemory& memory_;
  std::vector<Tile> vmem_;
  std::array<int64_t, kScalarRegisters> scalars_ = {};
  std::array<Tile, kVectorRegisters> vectors_ = {};
  std::array<MatrixUnit, kMatrixUnits> units_;
  std::vector<Tile> pushed_;
  std::deque<Tile> transposed_;
  std::array<std::deque<Copy>, kSemaphores> copies_;
  int64_t bundles_ = 0;
};

absl::Status RunKernel(const LloProgram& program, const LloKernel& kernel, LloMemory* memory) {
  const auto core = std::make_unique<Core>(program, kernel, memory);
  XLAD_RETURN_IF_ERROR(core->Run(kernel.items));
  return core->Finish();
}

}  // namespace

absl::Status RunLlo(const LloProgram& program, const LloMacroFunction& macro, LloMemory* memory) {
  for (const LloKernel& kernel : program.kernels) {
    const absl::Status status = kernel.macro.empty() ? RunKernel(program, kernel, memory) : macro(kernel, memory);
    if (!status.ok()) return Annotate(status, absl::StrCat("kernel ", kernel.name));
  }
  return absl::OkStatus();
}

}  // namespace xlad::machine

// An instruction set for tensor cores like those of TPUs. The compiler translates programs for such chips into it.
//
// It is xlad's own design, not that of a product. It follows what has been published about TPU v2 to v5 (Jouppi et al.,
// CACM 2020; Norrie et al., IEEE Micro 2021; the documentation of JAX's Mosaic and Pallas; "How to Scale Your Model",
// 2025).
//
// A core has 32 scalar registers, 32 vector registers, and VMEM. A vector register is a *tile* of 8 sublanes x 128
// lanes of 32 bits; VMEM is an array of tiles. In VMEM, an array of R rows and C columns has ceil(R/8) x ceil(C/128)
// tiles in row-major order, the layout (8,128). Elements are f32, s32, u32, or 0 and 1 for pred.
//
// Narrow types are packed: a word holds p = 2 elements of 16 bits or p = 4 elements of 8 bits (PackingOf), and a tile
// has 8p rows. The layouts are (16,128) and (32,128). Sublane s, lane l holds the elements of the rows ps, ..., ps+p-1
// of column l, the first row in the lowest bits. The vector and matrix units compute with words of 32 bits, so tiles
// are unpacked after they are loaded: floats become the f32 of the same value, integers are extended.
//
// A *bundle* (a VLIW instruction) is what the core issues in one cycle: at most SlotsOf(slot, vector_alus) instructions
// of each slot. All instructions of a bundle read their sources before any of them writes. A bundle is not issued until
// its sources are ready and the copies that it waits for are complete.
//
//   DMA      copies a block of rows and columns between a buffer in HBM and tiles in VMEM. In the buffer, rows are
//            `stride` elements apart. In VMEM, each row of tiles has `tiles` tiles. DMA is asynchronous: the VMEM tiles
//            and the buffer must not be used before a dma.wait on the same semaphore. A dma.wait waits for the oldest
//            copy of its semaphore. If the block does not fill its tiles, the other elements of these tiles are 0
//            after dma.in, and dma.out does not copy them. The type of the buffer determines the packing.
//   Matrix   unit m holds 128 x 128 weights. The k-th vmat.load (from 0) after a vmat.swap loads rows 8k to 8k+7 of the
//            next weights, which become the current weights at the next vmat.swap. vmat.push multiplies 8 rows of 128
//            elements by the current weights. Both are rounded to bf16, and sums are in f32. The 8 x 128 results are
//            added to a queue, from which vmat.pop removes the oldest.
//   Transpose  16 vxpose.push take the tiles of a block of 128 x 128. Then 16 vxpose.pop return its transpose.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad::machine {

inline constexpr int kScalarRegisters = 32, kVectorRegisters = 32;
inline constexpr int kSublanes = 8, kLanes = 128, kTileWords = kSublanes * kLanes;
inline constexpr int kTileBytes = 4 * kTileWords;
inline constexpr int kMatrixTiles = kLanes / kSublanes;  // The number of registers that hold a block of 128 x 128.
inline constexpr int kSemaphores = 32;
inline constexpr int kMatrixUnits = 64;  // The largest number of matrix units of a core.

// kExtended: transcendental functions and divisions. kCross: moves between lanes, and transposes. kMisc: DMA.
enum class LloSlot { kScalar, kVector, kExtended, kCross, kLoad, kStore, kPush, kPop, kMisc };

enum class LloOp : uint8_t {
#define XLAD_LLO(Id, name, slot, dst, sources, has_imm, latency) k##Id,
#include "machine/llo/isa.def"
#undef XLAD_LLO
};

inline constexpr int kLloOpCount = 0
#define XLAD_LLO(Id, name, slot, dst, sources, has_imm, latency) +1
#include "machine/llo/isa.def"
#undef XLAD_LLO
    ;

struct LloOpInfo {
  absl::string_view name;
  LloSlot slot;
  char dst;                   // 's' (a scalar register), 'v' (a vector register) or '-' (none).
  absl::string_view sources;  // One letter for each source.
  bool has_imm;
  int latency;  // Cycles.
};
const LloOpInfo& InfoOf(LloOp op);
inline bool IsDma(LloOp op) { return op == LloOp::kDmaIn || op == LloOp::kDmaOut; }
// Whether the immediate number is that of a matrix unit.
inline bool UsesMatrixUnit(LloOp op) {
  return op == LloOp::kMLoad || op == LloOp::kMSwap || op == LloOp::kMPush || op == LloOp::kMPop;
}

struct LloInstruction {
  static constexpr int kMaxSources = 5;
  LloOp op = LloOp::kSMov;
  int dst = 0;  // A register.
  std::array<int, kMaxSources> sources = {};
  int64_t imm = 0;
  // DMA only: the buffer (LloProgram.buffers), elements from row to row, tiles in a row of tiles, and the semaphore. A
  // dma.wait has only the semaphore.
  int buffer = 0;
  int64_t stride = 0;
  int64_t tiles = 1;
  int semaphore = 0;

  friend bool operator==(const LloInstruction&, const LloInstruction&) = default;
};

// The matrix unit of an instruction that uses one. It is below kMatrixUnits, even if VerifyLlo would refuse the number.
constexpr int MatrixUnitOf(const LloInstruction& instruction) {
  return static_cast<int>(instruction.imm & (kMatrixUnits - 1));
}

using LloBundle = std::vector<LloInstruction>;

// A loop, which runs its items `trips` times. The scalar register `counter` is 0, 1, ..., trips - 1.
struct LloLoop;
using LloItem = std::variant<LloBundle, LloLoop>;
struct LloLoop {
  int counter = 0;
  int64_t trips = 0;
  std::vector<LloItem> items;
  friend bool operator==(const LloLoop&, const LloLoop&);
};

// An operation that does not consist of instructions. The members state its cost. To compute its result, the
// interpreter calls a LloMacroFunction (interpret.h).
struct LloMacro {
  std::string op;         // The opcode, such as "sort".
  double vector_ops = 0;  // Operations of the vector unit; see Chip::vector_ops. At least 0 and less than 2^63.
  double hbm_bytes = 0;   // Bytes that are read and written. At least 0 and less than 2^63.
  friend bool operator==(const LloMacro&, const LloMacro&) = default;
};

// Whether a number may be a member of a macro-operation, whose text has integers.
inline bool IsLloCount(double number) { return number >= 0 && number < 0x1p63; }

struct LloKernel {
  std::string name;
  int64_t vmem_tiles = 0;
  std::vector<LloItem> items;        // Empty if it is a macro-operation.
  std::vector<LloMacro> macro;       // At most one.
  std::vector<int> inputs, outputs;  // Positions in LloProgram.buffers.
  friend bool operator==(const LloKernel&, const LloKernel&) = default;
};

// The element types that DMA copies. Only macro-operations use arrays of other types (kOther).
enum class LloType { kF32, kBf16, kS32, kU32, kPred, kF16, kS16, kU16, kS8, kU8, kE4m3, kE5m2, kOther };
absl::string_view ToString(LloType type);
int64_t BytesOf(LloType type);  // The size of an element in HBM; 0 for kOther.
// The number of elements of the type in a word of VMEM: 1, 2 or 4.
int PackingOf(LloType type);

// A type whose elements are packed, and the instructions that unpack and pack them. Integers of one width share a pack,
// because it drops the high bits.
struct PackedType {
  LloType type;
  LloOp unpack, pack;
};
inline constexpr PackedType kPackedTypes[] = {
    {LloType::kBf16, LloOp::kVUnpackBf16, LloOp::kVPackBf16}, {LloType::kF16, LloOp::kVUnpackF16, LloOp::kVPackF16},
    {LloType::kE4m3, LloOp::kVUnpackE4m3, LloOp::kVPackE4m3}, {LloType::kE5m2, LloOp::kVUnpackE5m2, LloOp::kVPackE5m2},
    {LloType::kU16, LloOp::kVUnpackU16, LloOp::kVPack16},     {LloType::kS16, LloOp::kVUnpackS16, LloOp::kVPack16},
    {LloType::kU8, LloOp::kVUnpackU8, LloOp::kVPack8},        {LloType::kS8, LloOp::kVUnpackS8, LloOp::kVPack8}};

// An array in HBM, dense and row-major.
struct LloBuffer {
  std::string name;
  LloType type = LloType::kF32;
  int64_t elements = 0;
  friend bool operator==(const LloBuffer&, const LloBuffer&) = default;
};

// Kernels run one after the other.
struct LloProgram {
  std::string name;
  std::vector<LloBuffer> buffers;
  std::vector<LloKernel> kernels;
  friend bool operator==(const LloProgram&, const LloProgram&) = default;
};

// The maximum number of instructions of a slot in a bundle, for a core with Chip::vector_alus = `vector_alus`.
int SlotsOf(LloSlot slot, int vector_alus);

// The assembler text of a verified program. ParseLlo reads it: ParseLlo(PrintLlo(p)) == p if at most 64 loops are
// nested, the costs of macro-operations are integers, all names are single words, the names of buffers differ, and no
// buffer is named "inputs" or "outputs" or has one of the characters , ; { } in its name. An example:
//
//   program double
//   buffer x f32 4096
//   buffer y f32 4096
//   kernel double vmem 8 inputs x outputs y {
//     { smov s0, #0 ; smov s1, #32 }
//     loop s2 4 {
//       { vld v0, s2, #0 }
//       { vadd.f32 v1, v0, v0 }
//       ...
std::string PrintLlo(const LloProgram& program);
// InvalidArgument, with the line, what was found and what was expected, if the text is not a program.
absl::StatusOr<LloProgram> ParseLlo(absl::string_view text);

// Verifies a program for a core with `vector_alus` (see SlotsOf) and `vmem_tiles` tiles of VMEM. InvalidArgument,
// naming the kernel, if
//   - the kernel has a negative number of tiles, or more tiles than the core
//   - a register, buffer, semaphore or matrix unit does not exist
//   - a loop has a negative trip count
//   - two instructions of a bundle write the same register
//   - a bundle has too many instructions for a slot
//   - DMA uses a buffer of type kOther, or fewer than 1 tile in a row of tiles.
// Macro-operations are not verified.
absl::Status VerifyLlo(const LloProgram& program, int vector_alus, int64_t vmem_tiles);

}  // namespace xlad::machine

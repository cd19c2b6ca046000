// An instruction set for tensor cores like those of TPUs: what the compiler makes of a program for such a chip.
//
// It is our own design after what has been published of TPU v2 to v5 (Jouppi et al., CACM 2020; Norrie et al., IEEE
// Micro 2021; the documentation of JAX's Mosaic and Pallas; "How to Scale Your Model", 2025), not that of a product.
//
// A core has 32 scalar registers, 32 vector registers, and VMEM. A vector register is a *tile* of 8 sublanes x 128
// lanes of 32 bits; VMEM is an array of tiles, in which an array of R rows and C columns has ceil(R/8) x ceil(C/128)
// tiles in row-major order, the layout (8,128). Elements are f32, s32, u32, or 0 and 1 for pred; a bf16 is the f32 of
// its value.
//
// A *bundle* (VLIW) is what the core issues in one cycle: at most kSlots[i] instructions for slot i, which read all
// their sources before any of them writes. Bundles wait for their sources and for DMA.
//
//   DMA      copies a block of rows and columns between a buffer in HBM, whose rows are `stride` elements apart, and
//            tiles in VMEM, `tiles` of them for each row of tiles. It is asynchronous: the VMEM tiles and the buffer
//            must not be used before dma.wait on the same semaphore, which waits for its oldest copy. Elements of the
//            last tiles that are not in the block are 0 after dma.in, and are not written by dma.out.
//   Matrix   unit m holds 128 x 128 weights: the k-th vmat.load since the last vmat.swap is rows 8k to 8k+7 of the next
//            weights, which vmat.swap makes the weights of the products after it. vmat.push multiplies 8 rows of 128 by
//            them, rounds both to bf16, adds in f32, and puts 8 x 128 results into a queue from which vmat.pop takes
//            the oldest.
//   Transpose  16 vxpose.push, the rows of a block of 128 x 128, then 16 vxpose.pop, the rows of its transpose.
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
inline constexpr int kMatrixTiles = kLanes / kSublanes;  // Registers of a block of 128 x 128.
inline constexpr int kSemaphores = 32;

// kExtended: transcendental functions and divisions. kCross: moves between lanes, and transposes. kMisc: DMA.
enum class LloSlot { kScalar, kVector, kExtended, kCross, kLoad, kStore, kPush, kPop, kMisc };
inline constexpr int kSlotCount = 9;

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
  char dst;                   // 's', 'v' or '-'
  absl::string_view sources;  // One letter for each.
  bool has_imm;
  int latency;  // Cycles.
};
const LloOpInfo& InfoOf(LloOp op);
inline bool IsDma(LloOp op) { return op == LloOp::kDmaIn || op == LloOp::kDmaOut; }

struct LloInstruction {
  static constexpr int kMaxSources = 5;
  LloOp op = LloOp::kSMov;
  int dst = 0;  // Registers; the elements after those of the op are 0.
  std::array<int, kMaxSources> sources = {};
  int64_t imm = 0;
  // DMA only: the buffer (LloProgram.buffers), elements between rows, tiles in a row of tiles, and the semaphore.
  int buffer = 0;
  int64_t stride = 0;
  int64_t tiles = 1;
  int semaphore = 0;

  friend bool operator==(const LloInstruction&, const LloInstruction&) = default;
};

using LloBundle = std::vector<LloInstruction>;

// Runs its items for counter = 0, 1, ..., trips - 1 in a scalar register.
struct LloLoop;
using LloItem = std::variant<LloBundle, LloLoop>;
struct LloLoop {
  int counter = 0;
  int64_t trips = 0;
  std::vector<LloItem> items;
  friend bool operator==(const LloLoop&, const LloLoop&);
};

// An operation that is not made of instructions: it has a stated cost, and the interpreter asks its caller for the
// result.
struct LloMacro {
  std::string op;         // The opcode, such as "sort".
  double vector_ops = 0;  // Operations of the vector unit, on tiles.
  double hbm_bytes = 0;   // Read and written.
  friend bool operator==(const LloMacro&, const LloMacro&) = default;
};

struct LloKernel {
  std::string name;
  int64_t vmem_tiles = 0;
  std::vector<LloItem> items;        // Empty if it is a macro-operation.
  std::vector<LloMacro> macro;       // None or one.
  std::vector<int> inputs, outputs;  // Buffers.
  friend bool operator==(const LloKernel&, const LloKernel&) = default;
};

// The element types that DMA converts from and to. Arrays of other types are only used by macro-operations.
enum class LloType { kF32, kBf16, kS32, kU32, kPred, kOther };
absl::string_view ToString(LloType type);
int64_t BytesOf(LloType type);  // The size of an element in HBM; 0 for kOther.

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

// The instructions of a slot in a bundle, for a core whose vector unit has `vector_alus` operations per cycle.
int SlotsOf(LloSlot slot, int vector_alus);

// The assembler text. ParseLlo reads it, so that ParseLlo(PrintLlo(p)) == p for every program. An example:
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
// InvalidArgument with line, found and expected.
absl::StatusOr<LloProgram> ParseLlo(absl::string_view text);

// InvalidArgument, naming the kernel and the instruction, if a register, buffer, semaphore or immediate does not exist,
// two instructions of a bundle write one register, or a bundle has too many instructions for a slot.
absl::Status VerifyLlo(const LloProgram& program, int vector_alus);

}  // namespace xlad::machine

// Writes the instructions of a kernel, allocates vector registers, and schedules bundles.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "machine/llo/isa.h"

namespace xlad::compiler {

using machine::LloOp;

// Instructions are appended to straight-line blocks, which end when a loop begins or ends. A block is scheduled when it
// ends: registers are allocated in program order, and values that do not fit are spilled to VMEM. Then each instruction
// is placed in the first bundle in which its sources are ready and a slot is free. Vector values can be used only in
// their own block. Other blocks must load them from VMEM. Not thread-safe.
class LloBuilder {
 public:
  // The kernel is for a core with `vector_alus` vector ALUs and `core_tiles` tiles of VMEM.
  LloBuilder(int vector_alus, int64_t core_tiles);

  // Reserves this number of tiles of VMEM for the whole kernel, and returns the number of the first one.
  int64_t NewTiles(int64_t tiles);
  int64_t tiles() const { return vmem_tiles_; }
  // The maximum number of tiles for the blocks of a kernel's streams. The other tiles are for partial results and
  // spilled values.
  int64_t stream_tiles() const { return core_tiles_ / 2; }

  // Allocates a scalar register, which is freed at the end of the current ScalarScope. Register zero() holds 0 and
  // one() holds 1.
  int NewScalar();
  static constexpr int zero() { return machine::kScalarRegisters - 1; }
  static constexpr int one() { return machine::kScalarRegisters - 2; }

  // dst = op(a, imm), and dst = a + b.
  void Scalar(LloOp op, int dst, int a, int64_t imm) { Append({op, dst, {a}, imm}); }
  void ScalarSum(int dst, int a, int b) { Append({LloOp::kSAdd, dst, {a, b}}); }

  // Vector, Load and Constant return the number of a new vector value of the block. `base` is a scalar register, and
  // `region` is explained at Pending.
  int Vector(LloOp op, std::initializer_list<int> sources, int64_t imm = 0);
  int Load(int base, int64_t offset, int region);
  void Store(int base, int64_t offset, int value, int region);
  int Constant(uint32_t word) { return Vector(LloOp::kVMovI, {}, word); }
  // Appends an instruction without a result: a load of weights, a swap or a push.
  void Push(LloOp op, std::initializer_list<int> sources, int64_t imm = 0);

  struct Copy {
    // Scalar registers. The members below are constants.
    int tile = 0, element = 0, rows = 0, columns = 0, predicate = one();
    int buffer = 0;
    int64_t stride = 0, tiles = 1;
    int semaphore = 0;
  };
  void Start(LloOp op, const Copy& copy);
  void Wait(int semaphore, int predicate = one());

  void BeginLoop(int counter, int64_t trips);
  void EndLoop();

  // Returns the kernel. All loops must have ended.
  machine::LloKernel Finish(std::string name);

 private:
  friend class ScalarScope;
  struct Pending {
    machine::LloInstruction instruction;  // In `block_`, vector registers are the numbers of values.
    // Loads and stores of different regions do not overlap. Region -1 overlaps with all.
    int region = -1;
  };

  void Append(machine::LloInstruction instruction, int region = -1) { block_.push_back({instruction, region}); }
  void EndBlock();

  const int vector_alus_;
  const int64_t core_tiles_;
  int64_t vmem_tiles_ = 0;
  int64_t spill_tiles_ = 0;
  int scalars_ = 0, values_ = 0;
  std::vector<Pending> block_;
  struct OpenLoop {
    int counter;
    int64_t trips;
    std::vector<machine::LloItem> outer;
  };
  std::vector<OpenLoop> loops_;
  std::vector<machine::LloItem> items_;
};

// When destroyed, frees the scalar registers that were allocated after its construction.
class ScalarScope {
 public:
  explicit ScalarScope(LloBuilder* builder) : builder_(*builder), scalars_(builder->scalars_) {}
  ~ScalarScope() { builder_.scalars_ = scalars_; }
  ScalarScope(const ScalarScope&) = delete;

 private:
  LloBuilder& builder_;
  const int scalars_;
};

}  // namespace xlad::compiler

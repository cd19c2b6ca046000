#include "compiler/codegen/tpu/llo_builder.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "compiler/codegen/tpu/schedule_block.h"

namespace xlad::compiler {

using machine::LloInstruction;
using machine::LloItem;
using machine::LloKernel;

LloBuilder::LloBuilder(int vector_alus, int64_t core_tiles) : vector_alus_(vector_alus), core_tiles_(core_tiles) {
  Scalar(LloOp::kSMov, one(), 0, 1);
}

int64_t LloBuilder::NewTiles(int64_t tiles) {
  vmem_tiles_ += tiles;
  return vmem_tiles_ - tiles;
}

int LloBuilder::NewScalar() {
  XLAD_CHECK(scalars_ < one()) << "a kernel needs more scalar registers than the core has";
  return scalars_++;
}

int LloBuilder::Vector(LloOp op, std::initializer_list<int> sources, int64_t imm) {
  LloInstruction instruction{op, values_++, {}, imm};
  std::copy(sources.begin(), sources.end(), instruction.sources.begin());
  Append(instruction);
  return instruction.dst;
}

int LloBuilder::Load(int base, int64_t offset, int region) {
  Append({LloOp::kVLoad, values_, {base}, offset}, region);
  return values_++;
}

void LloBuilder::Store(int base, int64_t offset, int value, int region) {
  Append({LloOp::kVStore, 0, {base, value}, offset}, region);
}

void LloBuilder::Push(LloOp op, std::initializer_list<int> sources, int64_t imm) {
  LloInstruction instruction{op, 0, {}, imm};
  std::copy(sources.begin(), sources.end(), instruction.sources.begin());
  Append(instruction);
}

void LloBuilder::Start(LloOp op, const Copy& copy) {
  LloInstruction instruction{op, 0, {copy.tile, copy.element, copy.rows, copy.columns, copy.predicate}, 0};
  instruction.buffer = copy.buffer;
  instruction.stride = copy.stride;
  instruction.tiles = copy.tiles;
  instruction.semaphore = copy.semaphore;
  Append(instruction);
}

void LloBuilder::Wait(int semaphore, int predicate) {
  LloInstruction instruction{LloOp::kDmaWait, 0, {predicate}, 0};
  instruction.semaphore = semaphore;
  Append(instruction);
}

void LloBuilder::EndBlock() {
  if (block_.empty()) return;
  std::vector<BlockInstruction> block;
  for (Pending& pending : block_) block.push_back({pending.instruction, pending.region});
  block_.clear();
  const int64_t spilled = AllocateRegisters(values_, &block);
  spill_tiles_ = std::max(spill_tiles_, spilled);
  values_ = 0;
  for (machine::LloBundle& bundle : ScheduleBlock(block, vector_alus_)) items_.emplace_back(std::move(bundle));
}

void LloBuilder::BeginLoop(int counter, int64_t trips) {
  EndBlock();
  loops_.push_back({counter, trips, std::move(items_)});
  items_.clear();
}

void LloBuilder::EndLoop() {
  EndBlock();
  OpenLoop loop = std::move(loops_.back());
  loops_.pop_back();
  machine::LloLoop made{loop.counter, loop.trips, std::move(items_)};
  items_ = std::move(loop.outer);
  items_.emplace_back(std::move(made));
}

namespace {

// Spilled tiles are numbered from kSpillBase while the kernel is written.
void PlaceSpills(int64_t first, std::vector<LloItem>* items) {
  for (LloItem& item : *items) {
    if (auto* loop = std::get_if<machine::LloLoop>(&item)) {
      PlaceSpills(first, &loop->items);
      continue;
    }
    for (LloInstruction& i : std::get<machine::LloBundle>(item)) {
      const bool is_memory = i.op == LloOp::kVLoad || i.op == LloOp::kVStore;
      if (is_memory && i.imm >= kSpillBase) i.imm = i.imm - kSpillBase + first;
    }
  }
}

}  // namespace

LloKernel LloBuilder::Finish(std::string name) {
  EndBlock();
  XLAD_CHECK(loops_.empty());
  LloKernel kernel;
  kernel.name = std::move(name);
  PlaceSpills(vmem_tiles_, &items_);
  kernel.vmem_tiles = vmem_tiles_ + spill_tiles_;
  kernel.items = std::move(items_);
  return kernel;
}

}  // namespace xlad::compiler

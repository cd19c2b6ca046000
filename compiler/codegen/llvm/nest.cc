// Statements become straight-line code in LLVM loops. The innermost loops have constant trip counts. The lanes of a
// reduction are an array on the stack, with one element for each iteration. Therefore LLVM vectorizes these loops
// without reordering operations.
#include "compiler/codegen/llvm/nest.h"

#include <llvm/IR/Module.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "compiler/codegen/llvm/lanes.h"
#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {
namespace {

// A store that is deferred until all values of an iteration have been computed. An output may share memory with an
// input that another statement of the iteration reads.
struct PendingStore {
  int array;
  ArrayView view;
  llvm::Value* place;
  llvm::Value* value;
};

// A reduction that has been started.
struct Running {
  Reducer reducer;
  Accumulators lanes;
  Values initial;
};

// The class has more than 25 methods because each form of a statement has one, on a CPU and on a GPU.
class NestEmitter {
 public:
  // `shared` is null unless parts of a block are emitted.
  NestEmitter(KernelContext& context, const ScheduledKernel& scheduled, const std::vector<ArrayView>& inputs,
              SharedMemory* shared = nullptr)
      : context_(context),
        ir_(context.ir()),
        scheduled_(scheduled),
        kernel_(scheduled.kernel),
        in_block_(shared != nullptr),
        iterations_(scheduled.loops.size(), nullptr) {
    if (in_block_) context_.DivideBlocks(scheduled.tiles, scheduled.loops.back().size);
    for (const KernelLoop& loop : scheduled.loops) sizes_.push_back(loop.size);
    for (size_t s = 0; in_block_ && s < kernel_.statements.size(); ++s) {
      const Statement& statement = kernel_.statements[s];
      partial_.push_back(statement.is_reduction() ? shared->Place(ir_, TypeOf(statement), statement.lanes) : nullptr);
    }
    size_t input = 0, output = 0;
    for (int a = 0; a < std::ssize(kernel_.arrays); ++a) {
      const KernelArray& array = kernel_.arrays[a];
      const int64_t staged = scheduled.staged[a].elements;
      const tensor::Shape flat{array.type, {staged > 0 ? staged : array.elements}};
      switch (array.role) {
        case KernelArray::Role::kInput:
          memory_.push_back({inputs[input++].base, flat});
          break;
        case KernelArray::Role::kOutput:
          memory_.push_back({context.outputs()[output++].array.base, flat});
          break;
        case KernelArray::Role::kTemporary:
          memory_.push_back(PlaceTemporary(a, flat, shared));
          break;
      }
    }
    running_.resize(kernel_.statements.size());
    if (in_block_) HoldInputs(shared);
  }

  void RunPart(const BlockPart& part) {
    PlaceInScratch();
    SetRow(context_.tile());
    llvm::Value* thread = context_.thread();
    switch (part.kind) {
      case BlockPart::Kind::kLoop:
        open_loop_ = LoopOf(part.nodes.back());
        EmitNodes(part.nodes);
        for (const NestNode& node : part.nodes) {
          if (node.kind == NestNode::Kind::kStart) {
            ir_.b.CreateStore(running_[node.index][0].lanes.Load()[0], Partial(node.index, thread));
          }
        }
        return;
      case BlockPart::Kind::kCombine:
        return ir_.If(ir_.b.CreateICmpULT(thread, ir_.I64(part.half)), [&] { CombinePartials(part); });
      case BlockPart::Kind::kSingle:
        return ir_.If(ir_.b.CreateICmpEQ(thread, ir_.I64(0)), [&] {
          for (const NestNode& node : part.nodes) {
            if (node.kind == NestNode::Kind::kFinish) FinishPartials(node.index);
            if (node.kind == NestNode::Kind::kCompute) Compute(node.index);
            Flush();
          }
        });
    }
  }

  void Run() {
    int64_t iterations = 1;
    for (const int loop : scheduled_.bound) iterations *= sizes_[loop];
    if (context_.has_threads()) {
      context_.DivideThreads(iterations);
    } else if (scheduled_.tiles > 1) {
      context_.Divide({iterations, iterations, scheduled_.schedule.tile, 1});
    }
    PlaceInScratch();
    EmitBound(scheduled_.nest);
  }

 private:
  void PlaceInScratch() {
    for (size_t a = 0; a < memory_.size(); ++a) {
      if (memory_[a].base == nullptr) memory_[a] = context_.Scratch(memory_[a].shape);
    }
  }

  ArrayView PlaceTemporary(int array, const tensor::Shape& flat, SharedMemory* shared) {
    const int64_t staged = scheduled_.staged[array].elements;
    if (staged == 0) return {nullptr, flat};
    llvm::Type* type = StorageType(ir_.context(), flat.type);
    // In a block, values that several threads use are stored in shared memory, or in scratch if they do not fit.
    const Statement& writer = kernel_.statements[kernel_.WriterOf(array)];
    const bool of_column = !writer.is_reduction() && writer.over.size() == kernel_.dims.size();
    if (!in_block_ || (of_column && staged == 1)) return {ir_.Slot(type, staged), flat};
    llvm::Value* base = shared->Place(ir_, type, staged);
    return base != nullptr ? ArrayView{base, flat} : context_.ScratchOfTile(flat);
  }

  // The type of a reduction's accumulator.
  llvm::Type* TypeOf(const Statement& reduction) const {
    return RegisterType(ir_.context(), kernel_.arrays[reduction.results[0]].type);
  }
  llvm::Value* Partial(int s, llvm::Value* lane) {
    return ir_.Address(TypeOf(kernel_.statements[s]), partial_[s], lane);
  }
  llvm::Value* LoadPartial(int s, llvm::Value* lane) {
    return ir_.b.CreateLoad(TypeOf(kernel_.statements[s]), Partial(s, lane));
  }
  Reducer ReducerOf(const Statement& statement) {
    return Reducer(statement.combine->entry(), kernel_.arrays[statement.results[0]].type, /*strict=*/true);
  }
  void CombinePartials(const BlockPart& part) {
    llvm::Value* thread = context_.thread();
    llvm::Value* other = ir_.Add(thread, ir_.I64(part.half));
    for (const NestNode& node : part.nodes) {
      const Reducer reducer = ReducerOf(kernel_.statements[node.index]);
      const Values sum = reducer.Combine(context_.elements(), {LoadPartial(node.index, thread)},
                                         {LoadPartial(node.index, other)});
      ir_.b.CreateStore(sum[0], Partial(node.index, thread));
    }
  }
  void FinishPartials(int s) {
    const Statement& statement = kernel_.statements[s];
    const Reducer reducer = ReducerOf(statement);
    const Values total =
        reducer.Combine(context_.elements(), {LoadPartial(s, ir_.I64(0))}, {LoadPartial(s, ir_.I64(1))});
    Store(statement, reducer.Combine(context_.elements(), Apply(statement.initial), total));
  }

  // A row of an input that several loops over the columns read. The first of these loops copies the row to shared
  // memory. Each element is read only by the thread that has copied it.
  struct HeldInput {
    ArrayView row;
    std::vector<int64_t> factors;  // For each loop, the stride of its index in `row`, in elements.
    int first_loop = 0;
  };

  // A loop over the columns is identified by the first statement in it.
  static int LoopOf(const NestNode& node) {
    return node.kind == NestNode::Kind::kLoop ? LoopOf(node.body[0]) : node.index;
  }
  static void NumberStatements(const NestNode& node, int loop, std::vector<int>* loops) {
    if (node.kind == NestNode::Kind::kCompute) (*loops)[node.index] = loop;
    for (const NestNode& inner : node.body) NumberStatements(inner, loop, loops);
  }

  void HoldInputs(SharedMemory* shared) {
    const std::vector<NestNode>* level = &scheduled_.nest;
    for (size_t i = 0; i < scheduled_.bound.size(); ++i) level = &(*level)[0].body;
    std::vector<int> loops(kernel_.statements.size(), -1);
    for (const NestNode& node : *level) {
      if (node.kind == NestNode::Kind::kLoop) NumberStatements(node, LoopOf(node), &loops);
    }
    held_.resize(kernel_.arrays.size());
    for (int a = 0; a < std::ssize(kernel_.arrays); ++a) {
      if (kernel_.arrays[a].role == KernelArray::Role::kInput) HoldInput(a, loops, shared);
    }
  }

  void HoldInput(int array, const std::vector<int>& loops, SharedMemory* shared) {
    const Affine* at = nullptr;
    int first = -1, last = -1;
    for (size_t s = 0; s < kernel_.statements.size(); ++s) {
      for (const KernelCode* code : {&kernel_.statements[s].value, &kernel_.statements[s].initial}) {
        for (const KernelRead& read : code->reads) {
          if (read.array != array) continue;
          if (loops[s] < 0 || (at != nullptr && *at != read.at)) return;
          at = &read.at;
          if (first < 0) first = loops[s];
          last = loops[s];
        }
      }
    }
    if (first == last) return;
    HeldInput held{{}, std::vector<int64_t>(iterations_.size(), 0), first};
    int64_t elements = 1;
    for (size_t l = scheduled_.bound.size(); l < iterations_.size(); ++l) {
      held.factors[l] = at->factors[scheduled_.loops[l].dim] * scheduled_.loops[l].factor;
      if (held.factors[l] < 0) return;
      elements += held.factors[l] * (scheduled_.loops[l].size - 1);
    }
    // An input that does not depend on the column is not copied, because all threads would copy it.
    if (held.factors.back() == 0) return;
    const ElementType type = kernel_.arrays[array].type;
    held.row = {shared->Place(ir_, StorageType(ir_.context(), type), elements), {type, {elements}}};
    if (held.row.base != nullptr) held_[array] = std::move(held);
  }

  llvm::Value* LoadHeld(const HeldInput& held, const KernelRead& read) {
    llvm::Value* place = ir_.I64(0);
    for (size_t l = 0; l < iterations_.size(); ++l) {
      if (held.factors[l] != 0) place = ir_.Add(place, ir_.Mul(iterations_[l], held.factors[l]));
    }
    if (open_loop_ != held.first_loop) return LoadFrom(ir_, held.row, Index::OfLinear(place));
    llvm::Value* value = LoadFrom(ir_, memory_[read.array], Index::OfLinear(PositionOf(read.at)));
    StoreTo(ir_, held.row, Index::OfLinear(place), value);
    return value;
  }

  void SetRow(llvm::Value* position) {
    Dims sizes;
    for (const int loop : scheduled_.bound) sizes.push_back(sizes_[loop]);
    const Values indices = DimsOf(ir_, Index::OfLinear(position), sizes);
    for (size_t i = 0; i < indices.size(); ++i) iterations_[scheduled_.bound[i]] = indices[i];
  }

  // A tile is a range of positions in the nest of the bound loops.
  void EmitBound(const std::vector<NestNode>& nodes) {
    if (context_.range().is_whole()) return EmitNodes(nodes);
    const std::vector<NestNode>* level = &nodes;
    for (size_t i = 0; i < scheduled_.bound.size(); ++i) level = &(*level)[0].body;  // The only node.
    const auto row = [&](llvm::Value* position) {
      SetRow(position);
      EmitNodes(*level);
    };
    if (!context_.has_threads()) return ir_.RangeLoop(context_.range().begin, context_.range().end, row);
    Dims sizes;
    for (const int loop : scheduled_.bound) sizes.push_back(sizes_[loop]);
    ForPositions(ir_, context_.range(), sizes, [&](const Index& index) { row(index.linear); });
  }

  void EmitNodes(const std::vector<NestNode>& nodes) {
    for (const NestNode& node : nodes) {
      if (node.kind != NestNode::Kind::kCompute) Flush();
      switch (node.kind) {
        case NestNode::Kind::kStart:
          Start(node.index);
          break;
        case NestNode::Kind::kCompute:
          Compute(node.index);
          break;
        case NestNode::Kind::kFinish:
          Finish(node.index);
          break;
        case NestNode::Kind::kLoop:
          EmitLoop(node);
          break;
      }
    }
    Flush();
  }

  void EmitLoop(const NestNode& node) {
    const int loop = node.index, inner = scheduled_.loops[loop].inner;
    const auto body = [&](llvm::Value* i) {
      iterations_[loop] = i;
      EmitNodes(node.body);
      iterations_[loop] = nullptr;
    };
    if (in_block_ && loop + 1 == std::ssize(scheduled_.loops)) {
      // Each thread computes one iteration of this loop.
      if (sizes_[loop] == scheduled_.loops[loop].size) return body(context_.thread());
      return ir_.If(ir_.b.CreateICmpULT(context_.thread(), ir_.I64(sizes_[loop])), [&] { body(context_.thread()); });
    }
    if (scheduled_.loops[loop].unroll && inner < 0) {
      for (int64_t i = 0; i < sizes_[loop]; ++i) body(ir_.I64(i));
      return;
    }
    const int64_t tail = inner < 0 ? 0 : kernel_.dims[scheduled_.loops[loop].dim].size % scheduled_.loops[inner].size;
    if (tail == 0) return ir_.Loop(sizes_[loop], body);
    // The last iteration has a shorter inner loop.
    ir_.Loop(sizes_[loop] - 1, body);
    sizes_[inner] = tail;
    body(ir_.I64(sizes_[loop] - 1));
    sizes_[inner] = scheduled_.loops[inner].size;
  }

  llvm::Value* Times(llvm::Value* x, int64_t factor) {
    if (factor >= 0) return ir_.Mul(x, factor);
    return ir_.b.CreateNSWMul(x, ir_.I64(factor));
  }

  llvm::Value* PositionOf(const Affine& at) {
    llvm::Value* position = ir_.I64(0);
    bool negative = at.constant < 0;
    for (size_t l = 0; l < iterations_.size(); ++l) {
      const KernelLoop& loop = scheduled_.loops[l];
      const int64_t factor = at.factors[loop.dim] * loop.factor;
      if (factor == 0) continue;
      negative = negative || factor < 0;
      llvm::Value* term = Times(iterations_[l], factor);
      position = negative ? ir_.b.CreateNSWAdd(position, term) : ir_.Add(position, term);
    }
    if (at.constant == 0) return position;
    return negative ? ir_.AddSigned(position, at.constant) : ir_.Add(position, ir_.I64(at.constant));
  }

  llvm::Value* PlaceOf(int array, const Affine& at) {
    const StagedArray& staged = scheduled_.staged[array];
    if (staged.elements == 0) return PositionOf(at);
    llvm::Value* place = ir_.I64(0);
    for (size_t l = 0; l < iterations_.size(); ++l) {
      if (staged.factors[l] != 0) place = ir_.Add(place, ir_.Mul(iterations_[l], staged.factors[l]));
    }
    return place;
  }

  llvm::Value* Load(const KernelRead& read) {
    if (read.array == KernelRead::kPosition) return PositionOf(read.at);
    // The value may have been computed in this iteration and not be stored yet.
    for (const PendingStore& store : pending_) {
      if (store.array == read.array) return store.value;
    }
    if (in_block_ && held_[read.array].has_value()) return LoadHeld(*held_[read.array], read);
    return LoadFrom(ir_, memory_[read.array], Index::OfLinear(PlaceOf(read.array, read.at)));
  }

  void Store(const Statement& statement, const Values& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const int array = statement.results[i];
      pending_.push_back({array, memory_[array], PlaceOf(array, statement.at), values[i]});
    }
  }
  void Flush() {
    for (const PendingStore& store : pending_) {
      StoreTo(ir_, store.view, Index::OfLinear(store.place), store.value);
    }
    pending_.clear();
  }

  Values Apply(const KernelCode& code) {
    Values arguments;
    for (const KernelRead& read : code.reads) arguments.push_back(Load(read));
    return context_.elements().Apply(code.computation(), arguments);
  }

  void Start(int s) {
    const Statement& statement = kernel_.statements[s];
    const hlo::Computation& combine = *statement.combine->entry();
    std::vector<tensor::Shape> shapes;
    for (const int result : statement.results) shapes.push_back({kernel_.arrays[result].type, {}});
    running_[s].clear();
    if (in_block_) {
      running_[s].push_back({ReducerOf(statement), Accumulators(&ir_, shapes, 1), {}});
      return running_[s][0].lanes.Store({Reducer(&combine, shapes[0].type).Neutral(ir_)});
    }
    running_[s].push_back({ReducerOf(statement), Accumulators(&ir_, shapes, statement.lanes),
                           Apply(statement.initial)});
    Running& running = running_[s][0];
    if (statement.lanes == 1) return running.lanes.Store(running.initial, LaneOrNull(statement, 0));
    const Values neutral = {Reducer(&combine, shapes[0].type).Neutral(ir_)};
    if (UsesVectors(statement)) return FillLanes(ir_, LanesOf(s), neutral[0]);
    ir_.Loop(statement.lanes, [&](llvm::Value* lane) { running.lanes.Store(neutral, lane); });
  }

  // Whether the lanes of a reduction are filled and combined as vectors, without loops.
  bool UsesVectors(const Statement& statement) const {
    const ElementType type = kernel_.arrays[statement.results[0]].type;
    return context_.has_vectors() && statement.results.size() == 1 && statement.lanes > 1 &&
           (type == ElementType::kF32 || type == ElementType::kF64) && IsReorderableFloat(*statement.combine->entry());
  }
  Lanes LanesOf(int s) const {
    const Statement& statement = kernel_.statements[s];
    const int64_t bytes = tensor::ByteWidth(kernel_.arrays[statement.results[0]].type);
    return {running_[s][0].lanes.base(), TypeOf(statement), statement.lanes,
            std::min(statement.lanes, context_.vector_bytes() / bytes)};
  }

  // Accumulators with one lane are single variables.
  llvm::Value* LaneOrNull(const Statement& statement, int64_t lane) {
    return statement.lanes == 1 ? nullptr : ir_.I64(lane);
  }

  void Compute(int s) {
    const Statement& statement = kernel_.statements[s];
    const Values values = Apply(statement.value);
    if (!statement.is_reduction()) return Store(statement, values);
    llvm::Value* lane = statement.lanes == 1 || in_block_ ? nullptr : LaneOf(statement);
    Running& running = running_[s][0];
    running.lanes.Store(running.reducer.Combine(context_.elements(), running.lanes.Load(lane), values), lane);
  }

  // The index along the last reduced dimension, modulo the number of lanes.
  llvm::Value* LaneOf(const Statement& statement) {
    llvm::Value* index = ir_.I64(0);
    bool wraps = false;
    for (size_t l = 0; l < iterations_.size(); ++l) {
      const KernelLoop& loop = scheduled_.loops[l];
      if (loop.dim != statement.along.back() || loop.factor % statement.lanes == 0) continue;
      wraps = wraps || (loop.size - 1) * loop.factor >= statement.lanes || index != ir_.I64(0);
      index = ir_.Add(index, ir_.Mul(iterations_[l], loop.factor));
    }
    return wraps ? ir_.Rem(index, statement.lanes) : index;
  }

  void Finish(int s) {
    const Statement& statement = kernel_.statements[s];
    Running& running = running_[s][0];
    const auto combine = [&](const Values& x, const Values& y) {
      return running.reducer.Combine(context_.elements(), x, y);
    };
    if (UsesVectors(statement)) {
      const auto combine_vectors = [&](llvm::Value* x, llvm::Value* y) { return combine({x}, {y})[0]; };
      const Values lanes = {CombineLanes(ir_, LanesOf(s), combine_vectors)};
      return FinishWith(statement, combine(running.initial, lanes));
    }
    for (int64_t half = statement.lanes / 2; half > 0; half /= 2) {
      ir_.Loop(half, [&](llvm::Value* lane) {
        llvm::Value* other = ir_.Add(lane, ir_.I64(half));
        running.lanes.Store(combine(running.lanes.Load(lane), running.lanes.Load(other)), lane);
      });
    }
    Values total = running.lanes.Load(LaneOrNull(statement, 0));
    if (statement.lanes > 1) total = combine(running.initial, total);
    FinishWith(statement, total);
  }

  void FinishWith(const Statement& statement, const Values& total) {
    Store(statement, total);
    Flush();
  }

  KernelContext& context_;
  Ir& ir_;
  const ScheduledKernel& scheduled_;
  const Kernel& kernel_;
  const bool in_block_;
  Values iterations_;           // For each loop, its index, or null if the loop is not open.
  std::vector<int64_t> sizes_;  // For each loop. The inner loop of a split may be shorter in the last outer iteration.
  std::vector<ArrayView> memory_;
  std::vector<std::vector<Running>> running_;  // For each statement, the reduction that has been started, if any.
  std::vector<PendingStore> pending_;
  Values partial_;                              // In a block, for each reduction, the partial results.
  std::vector<std::optional<HeldInput>> held_;  // In a block, for each array, its row that is held, if any.
  int open_loop_ = -1;                          // In a block, the loop over the columns being emitted.
};

// Whether all statements in these loops are in loop `lane`, and no reduction begins or ends in these loops.
bool AreInLaneLoop(const std::vector<NestNode>& nodes, int lane, bool inside) {
  return std::all_of(nodes.begin(), nodes.end(), [&](const NestNode& node) {
    if (node.kind == NestNode::Kind::kLoop) return AreInLaneLoop(node.body, lane, inside || node.index == lane);
    return node.kind == NestNode::Kind::kCompute && inside;
  });
}

void AppendParts(std::vector<NestNode> started, int64_t threads, std::vector<BlockPart>* parts) {
  if (started.empty()) return;
  for (int64_t half = threads / 2; half > 1; half /= 2) {
    parts->push_back({BlockPart::Kind::kCombine, started, half});
  }
}

}  // namespace

std::optional<BlockForm> BlockFormOf(const ScheduledKernel& kernel) {
  constexpr int64_t kWarp = 32, kMaxThreads = 1024;
  if (kernel.bound.empty() || kernel.schedule.tile != 1 || kernel.loops.size() <= kernel.bound.size()) return {};
  const int lane = static_cast<int>(kernel.loops.size()) - 1;
  BlockForm form{kernel.loops[lane].size, {}};
  if (form.threads < kWarp || form.threads > kMaxThreads) return {};
  int64_t reductions = 0;
  for (const Statement& statement : kernel.kernel.statements) {
    if (statement.is_reduction() && (statement.lanes != form.threads || statement.results.size() != 1)) return {};
    reductions += statement.is_reduction() ? 1 : 0;
  }
  // Partial results of 8 bytes take at most half of the shared memory.
  if (reductions * form.threads * 8 > SharedMemory::kMaxBytes / 2) return {};
  const std::vector<NestNode>* level = &kernel.nest;
  for (size_t i = 0; i < kernel.bound.size(); ++i) level = &(*level)[0].body;
  std::vector<NestNode> started;
  for (const NestNode& node : *level) {
    if (node.kind == NestNode::Kind::kStart) {
      started.push_back(node);
    } else if (node.kind == NestNode::Kind::kLoop) {
      if (!AreInLaneLoop(node.body, lane, node.index == lane)) return {};
      BlockPart loop{BlockPart::Kind::kLoop, started, 0};
      loop.nodes.push_back(node);
      form.parts.push_back(std::move(loop));
      AppendParts(std::move(started), form.threads, &form.parts);
      started.clear();
    } else {
      const bool joins = !form.parts.empty() && form.parts.back().kind == BlockPart::Kind::kSingle;
      if (!joins) form.parts.push_back({BlockPart::Kind::kSingle, {}, 0});
      form.parts.back().nodes.push_back(node);
    }
  }
  return form;
}

llvm::Value* SharedMemory::Place(Ir& ir, llvm::Type* type, int64_t count) {
  const auto size = static_cast<int64_t>(ir.module().getDataLayout().getTypeAllocSize(type).getFixedValue());
  const int64_t end = bytes + RoundUp(size * count, XLAD_BUFFER_ALIGNMENT);
  if (end > kMaxBytes) return nullptr;
  llvm::Value* at = ir.Address(ir.b.getInt8Ty(), base, ir.I64(bytes));
  bytes = end;
  return at;
}

void EmitBlockPart(KernelContext& context, const ScheduledKernel& kernel, const std::vector<ArrayView>& inputs,
                   const BlockPart& part, SharedMemory* shared) {
  NestEmitter(context, kernel, inputs, shared).RunPart(part);
}

void EmitNest(KernelContext& context, const ScheduledKernel& kernel, const std::vector<ArrayView>& inputs) {
  NestEmitter(context, kernel, inputs).Run();
}

}  // namespace xlad::compiler

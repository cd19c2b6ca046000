// Statements become straight code in LLVM loops. The innermost loops have constant trip counts, and the lanes of a
// reduction are an array on the stack with one element for each iteration, so that LLVM vectorizes them without
// reordering anything.
#include "compiler/codegen/llvm/nest.h"

#include <algorithm>

#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {
namespace {

// Stores that wait until all values of an iteration are computed: an output may share memory with an input that another
// statement of the iteration reads.
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

class NestEmitter {
 public:
  NestEmitter(KernelContext& context, const ScheduledKernel& scheduled, const std::vector<ArrayView>& inputs)
      : context_(context),
        ir_(context.ir()),
        scheduled_(scheduled),
        kernel_(scheduled.kernel),
        iterations_(scheduled.loops.size(), nullptr) {
    for (const KernelLoop& loop : scheduled.loops) sizes_.push_back(loop.size);
    size_t input = 0, output = 0;
    for (size_t a = 0; a < kernel_.arrays.size(); ++a) {
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
          memory_.push_back(staged > 0 ? ArrayView{ir_.Slot(StorageType(ir_.context(), array.type), staged), flat}
                                       : ArrayView{nullptr, flat});
          break;
      }
    }
    running_.resize(kernel_.statements.size());
  }

  void Run() {
    if (scheduled_.tiles > 1) {
      int64_t iterations = 1;
      for (const int loop : scheduled_.bound) iterations *= sizes_[loop];
      context_.Divide({iterations, iterations, scheduled_.schedule.tile, 1});
    }
    for (size_t a = 0; a < memory_.size(); ++a) {
      if (memory_[a].base == nullptr) memory_[a] = context_.Scratch(memory_[a].shape);
    }
    EmitBound(scheduled_.nest);
  }

 private:
  // Tiles are ranges of the positions in the bound loops together.
  void EmitBound(const std::vector<NestNode>& nodes) {
    if (context_.range().is_whole()) return EmitNodes(nodes);
    const NestNode* inside = nullptr;
    const std::vector<NestNode>* level = &nodes;
    Dims sizes;
    for (const int loop : scheduled_.bound) {
      inside = &(*level)[0];  // The only node: all statements share the bound loops.
      level = &inside->body;
      sizes.push_back(sizes_[loop]);
    }
    ir_.RangeLoop(context_.range().begin, context_.range().end, [&](llvm::Value* position) {
      const Values indices = DimsOf(ir_, Index::OfLinear(position), sizes);
      for (size_t i = 0; i < indices.size(); ++i) iterations_[scheduled_.bound[i]] = indices[i];
      EmitNodes(*level);
    });
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
    // A value of this iteration that is not stored yet: in shared loops it is read where it is written.
    for (const PendingStore& store : pending_) {
      if (store.array == read.array) return store.value;
    }
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
    running_[s].push_back({Reducer(&combine, shapes[0].type, /*strict=*/true),
                           Accumulators(&ir_, shapes, statement.lanes), Apply(statement.initial)});
    Running& running = running_[s][0];
    if (statement.lanes == 1) return running.lanes.Store(running.initial, LaneOrNull(statement, 0));
    const Values neutral = {Reducer(&combine, shapes[0].type).Neutral(ir_)};
    ir_.Loop(statement.lanes, [&](llvm::Value* lane) { running.lanes.Store(neutral, lane); });
  }

  // Accumulators with one lane are single variables.
  llvm::Value* LaneOrNull(const Statement& statement, int64_t lane) {
    return statement.lanes == 1 ? nullptr : ir_.I64(lane);
  }

  void Compute(int s) {
    const Statement& statement = kernel_.statements[s];
    const Values values = Apply(statement.value);
    if (!statement.is_reduction()) return Store(statement, values);
    llvm::Value* lane = statement.lanes == 1 ? nullptr : LaneOf(statement);
    Running& running = running_[s][0];
    running.lanes.Store(running.reducer.Combine(context_.elements(), running.lanes.Load(lane), values), lane);
  }

  // The index along the last reduced dimension, modulo the lanes.
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
    for (int64_t half = statement.lanes / 2; half > 0; half /= 2) {
      ir_.Loop(half, [&](llvm::Value* lane) {
        llvm::Value* other = ir_.Add(lane, ir_.I64(half));
        running.lanes.Store(combine(running.lanes.Load(lane), running.lanes.Load(other)), lane);
      });
    }
    Values total = running.lanes.Load(LaneOrNull(statement, 0));
    if (statement.lanes > 1) total = combine(running.initial, total);
    Store(statement, total);
    Flush();
  }

  KernelContext& context_;
  Ir& ir_;
  const ScheduledKernel& scheduled_;
  const Kernel& kernel_;
  Values iterations_;           // For each open loop.
  std::vector<int64_t> sizes_;  // For each loop. The inner loop of a split may be shorter in the last outer iteration.
  std::vector<ArrayView> memory_;
  std::vector<std::vector<Running>> running_;  // For each statement, none or one.
  std::vector<PendingStore> pending_;
};

}  // namespace

void EmitNest(KernelContext& context, const ScheduledKernel& kernel, const std::vector<ArrayView>& inputs) {
  NestEmitter(context, kernel, inputs).Run();
}

}  // namespace xlad::compiler

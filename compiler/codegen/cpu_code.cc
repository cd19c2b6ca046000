#include "compiler/codegen/cpu_code.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/hash.h"
#include "compiler/analysis/hlo_names.h"
#include "compiler/analysis/op_cost.h"
#include "compiler/codegen/in_threads.h"
#include "compiler/codegen/llvm/cpu_emitter.h"
#include "hlo/analysis/leaves.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

// Symbols begin with this many hexadecimal digits of the object's key.
constexpr size_t kDigits = 24;
constexpr char kKernel[] = "kernel";
// Kernels that together take at most this share of a step are not optimized. The estimate of the step is low: it has
// these nanoseconds for one operation on floats and for one byte. The estimate of the kernels is high: it has these
// nanoseconds for one element of a cheap and of an expensive instruction.
constexpr double kNegligibleShare = 0.01, kMinNsOfFlop = 0.0125, kMinNsOfByte = 0.04;
constexpr double kMaxNsOfCheap = 2, kMaxNsOfExpensive = 20;

template <typename Steps, typename Visit>
void ForEachKernelStep(Steps* steps, const Visit& visit) {
  for (Step& step : *steps) {
    if (step.has_kernel()) visit(step.mutable_kernel());
    if (step.has_while_()) {
      ForEachKernelStep(step.mutable_while_()->mutable_condition(), visit);
      ForEachKernelStep(step.mutable_while_()->mutable_body(), visit);
    }
    if (!step.has_if_()) continue;
    for (IfStep::Branch& branch : *step.mutable_if_()->mutable_branches()) {
      ForEachKernelStep(branch.mutable_steps(), visit);
    }
  }
}

int64_t WeightOf(const KernelRequest& kernel) {
  int64_t weight = 0;
  for (const Computation* called : kernel.root->called()) weight += std::ssize(called->instructions());
  return weight;
}

// The number of elements that an instruction computes or, if it is a reduction, that it reduces.
int64_t CountedElements(const Instruction& instruction) {
  const bool reduces = instruction.opcode() == Opcode::kReduce;
  return hlo::ElementsOfLargestLeaf(reduces ? instruction.operand(0)->shape() : instruction.shape());
}

// A high estimate of the time of an elementwise instruction or member of a fusion that is computed `times` times, in
// code that LLVM has not optimized. Infinity for other instructions, such as sorts, whose time is not known.
double UnoptimizedNs(const Instruction& instruction, int64_t times) {
  const double expensive_ns = kMaxNsOfExpensive * static_cast<double>(times);
  // Conversions from and to small floats consist of several operations.
  const bool is_small = instruction.shape().is_array() && tensor::IsSmallFloat(instruction.shape().type());
  const double cheap_ns = is_small ? expensive_ns : kMaxNsOfCheap * static_cast<double>(times);
  if (instruction.opcode() == Opcode::kParameter || instruction.opcode() == Opcode::kTuple) return cheap_ns;
  if (instruction.opcode() == Opcode::kReduce) return expensive_ns;
  const OpCost cost = CostOf(instruction);
  if (cost == OpCost::kNotFusible) return HUGE_VAL;
  return cost == OpCost::kExpensive ? expensive_ns : cheap_ns;
}

// The same estimate for a kernel. A fusion may compute a member for each element of a larger member, such as a
// broadcast, so every member counts as often as the largest. Only single elements are computed once. The few members
// that are needed at several positions for one element of the result are not counted several times.
double UnoptimizedKernelNs(const Instruction& root) {
  if (root.opcode() != Opcode::kFusion) return UnoptimizedNs(root, CountedElements(root));
  int64_t most = 1;
  for (const auto& member : root.called()[0]->instructions()) {
    if (member->opcode() != Opcode::kParameter) most = std::max(most, CountedElements(*member));
  }
  double ns = 0;
  for (const auto& member : root.called()[0]->instructions()) {
    const int64_t own = CountedElements(*member);
    ns += UnoptimizedNs(*member, own == 1 ? 1 : std::max(own, most));
  }
  return ns;
}

// A kernel or native program. `key` is the key of its object, and empty until it has been emitted for the first time.
// LLVM does not optimize negligible kernels.
struct Part {
  bool is_negligible = false;
  EmittedKernel facts;
  std::string key, symbol;
  std::string ir, assembly;
};

class CpuCode {
 public:
  CpuCode(CpuEmitters emitters, const StepProgram& program, const EmitOptions& options)
      : emitters_(std::move(emitters)), program_(program), options_(options), kernels_(program.kernels.size()) {
    for (size_t k = 0; k < program.kernels.size(); ++k) numbers_[program.kernels[k].symbol] = k;
  }

  absl::StatusOr<EmittedCode> Run() {
    FindCalled();
    FindNegligible();
    EmittedCode code;
    code.target = emitters_.target();
    code.steps = program_.steps;
    XLAD_RETURN_IF_ERROR(
        ForEachInThreads(in_loops_.size(), [&](size_t i) { return EmitKernel(in_loops_[i]).status(); }));
    SetFacts(&code.steps);
    const std::vector<NativeLoop> loops = LoopsOf(&code.steps);
    std::vector<Part> native(loops.size());
    // The objects that probably take the longest are compiled first, so that the threads end at about the same time.
    const std::vector<size_t> order = LargestFirst();
    XLAD_RETURN_IF_ERROR(ForEachInThreads(loops.size() + order.size(), [&](size_t i) {
      return i < loops.size() ? CompileLoop(loops[i].request, &native[i]) : CompileKernel(order[i - loops.size()]);
    }));
    SetFacts(&code.steps);
    absl::flat_hash_map<std::string, std::string> symbols;
    for (size_t k = 0; k < kernels_.size(); ++k) symbols[program_.kernels[k].symbol] = kernels_[k].symbol;
    RenameKernels(&code.steps, symbols);
    for (size_t l = 0; l < loops.size(); ++l) {
      loops[l].step->set_symbol(native[l].symbol);
      loops[l].step->set_scratch_bytes(native[l].facts.scratch_bytes);
    }
    kernels_.insert(kernels_.end(), std::make_move_iterator(native.begin()), std::make_move_iterator(native.end()));
    XLAD_RETURN_IF_ERROR(Collect(&code));
    return code;
  }

 private:
  std::vector<NativeLoop> LoopsOf(std::vector<Step>* steps) const {
    return program_.native_loops ? MakeNativeLoops(steps) : std::vector<NativeLoop>();
  }

  // Finds the kernels of native programs, and the kernels that need an object of their own even if they have one tile.
  // The latter are called by the runtime, or by native programs that do not inline kernels.
  void FindCalled() {
    called_.assign(kernels_.size(), false);
    std::vector<Step> steps = program_.steps;
    std::vector<NativeLoop> loops = LoopsOf(&steps);
    ForEachKernelStep(&steps, [&](const KernelStep* step) {
      const auto found = numbers_.find(step->symbol());
      if (found != numbers_.end()) called_[found->second] = true;
    });
    std::set<size_t> in_loops;
    for (NativeLoop& loop : loops) {
      const bool inlines = InlinesKernels(loop.request);
      ForEachKernelStep(&loop.request.steps, [&](const KernelStep* step) {
        const size_t k = numbers_.at(step->symbol());
        in_loops.insert(k);
        if (!inlines) called_[k] = true;
      });
    }
    in_loops_.assign(in_loops.begin(), in_loops.end());
  }

  // Finds kernels that take so little of a step that it need not be optimized. Kernels in loops take an unknown time.
  void FindNegligible() {
    std::vector<double> ns(kernels_.size(), 0);
    double all_ns = 0;
    for (const Step& step : program_.steps) {
      all_ns += kMinNsOfFlop * step.flops() + kMinNsOfByte * step.bytes();
      std::vector<Step> nested = {step};
      ForEachKernelStep(&nested, [&](const KernelStep* kernel) {
        const size_t k = numbers_.at(kernel->symbol());
        ns[k] += step.has_kernel() ? UnoptimizedKernelNs(*program_.kernels[k].root) : HUGE_VAL;
      });
    }
    std::vector<size_t> order(kernels_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ns[a] < ns[b]; });
    double sum = 0;
    for (const size_t k : order) kernels_[k].is_negligible = (sum += ns[k]) <= kNegligibleShare * all_ns;
  }

  // The kernels that need an object of their own. Called after the kernels of native programs have been emitted.
  std::vector<size_t> LargestFirst() const {
    std::vector<size_t> order;
    std::vector<int64_t> weights;
    for (size_t k = 0; k < kernels_.size(); ++k) {
      weights.push_back(WeightOf(program_.kernels[k]));
      if (called_[k] || kernels_[k].facts.tiles > 1) order.push_back(k);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return weights[a] > weights[b]; });
    return order;
  }

  // Sets the facts of the kernels that have been emitted.
  void SetFacts(std::vector<Step>* steps) const {
    absl::flat_hash_map<std::string, EmittedKernel> facts;
    for (size_t k = 0; k < kernels_.size(); ++k) {
      if (!kernels_[k].key.empty()) facts[program_.kernels[k].symbol] = kernels_[k].facts;
    }
    SetKernelFacts(steps, facts);
  }

  // Emits a kernel, which is named kKernel. The first call also sets its facts, key and symbol, so that native programs
  // can call the kernel before it is compiled. A kernel is emitted again to compile it, because modules need much more
  // memory than objects.
  absl::StatusOr<std::unique_ptr<CpuEmitter>> EmitKernel(size_t k) {
    XLAD_ASSIGN_OR_RETURN(std::unique_ptr<CpuEmitter> emitter, emitters_.Make());
    KernelRequest request = program_.kernels[k];
    request.symbol = kKernel;
    XLAD_ASSIGN_OR_RETURN(const EmittedKernel facts, emitter->EmitKernel(request));
    if (kernels_[k].key.empty()) {
      kernels_[k].facts = facts;
      SetKey(request.symbol, *emitter, &kernels_[k]);
    }
    return emitter;
  }

  absl::Status CompileKernel(size_t k) {
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<CpuEmitter> emitter, EmitKernel(k));
    return Finish(kKernel, emitter.get(), &kernels_[k]);
  }

  // Compiles a native program with the kernels that can be inlined into it. Inside, kernels are named by the order in
  // which they are called, so that the object depends only on what it contains.
  absl::Status CompileLoop(NativeProgramRequest request, Part* part) {
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<CpuEmitter> emitter, emitters_.Make());
    const bool inlines = InlinesKernels(request);
    request.symbol = "program";
    std::map<size_t, std::string> names;
    absl::flat_hash_set<std::string> declared;  // Kernels with equal code have the same symbol.
    absl::Status status;
    ForEachKernelStep(&request.steps, [&](KernelStep* step) {
      const size_t k = numbers_.at(step->symbol());
      const auto [name, is_new] = names.emplace(k, kernels_[k].symbol);
      if (is_new && inlines && kernels_[k].facts.tiles == 1) {
        KernelRequest kernel = program_.kernels[k];
        kernel.symbol = name->second = absl::StrCat("kernel", names.size());
        status.Update(emitter->EmitKernel(kernel).status());
      } else if (is_new && declared.insert(name->second).second) {
        status.Update(emitter->DeclareKernel(name->second, step->buffers_size(), kernels_[k].facts));
      }
      step->set_symbol(name->second);
    });
    XLAD_RETURN_IF_ERROR(std::move(status));
    XLAD_ASSIGN_OR_RETURN(part->facts, emitter->EmitProgram(request));
    SetKey(request.symbol, *emitter, part);
    return Finish(request.symbol, emitter.get(), part);
  }

  // `name` is the kernel or program that the part is named after.
  static void SetKey(const std::string& name, const CpuEmitter& emitter, Part* part) {
    part->key = emitter.Fingerprint();
    if (part->is_negligible) part->key = Sha256Hex(absl::StrCat("not optimized ", part->key));
    part->symbol = absl::StrCat("x", part->key.substr(0, kDigits), "_", name);
  }

  // Compiles the object of `part`, unless the cache has it or another part has the same key.
  absl::Status Finish(const std::string& name, CpuEmitter* emitter, Part* part) {
    emitter->Export(name, part->symbol);
    {
      const std::lock_guard lock(mutex_);
      if (!objects_.try_emplace(part->key).second) return absl::OkStatus();
    }
    std::optional<std::string> object;
    ObjectCache* const cache = options_.want_listings ? nullptr : options_.objects;
    if (cache != nullptr) object = cache->Find(part->key);
    const bool reused = object.has_value();
    const bool is_quick = options_.quick && !part->is_negligible;
    if (!reused) {
      if (options_.want_listings) part->ir = emitter->IrText();
      XLAD_ASSIGN_OR_RETURN(object, is_quick || part->is_negligible ? emitter->FinishQuickly() : emitter->Finish());
      if (cache != nullptr && !is_quick) cache->Add(part->key, *object);
    }
    if (options_.want_listings) {
      XLAD_ASSIGN_OR_RETURN(part->assembly, emitter->AssemblyText());
    }
    const std::lock_guard lock(mutex_);
    objects_[part->key] = *std::move(object);
    ++(reused ? reused_ : compiled_);
    is_quick_ = is_quick_ || (is_quick && !reused);
    return absl::OkStatus();
  }

  absl::Status Collect(EmittedCode* code) {
    std::vector<std::string> objects;
    for (const Part& part : kernels_) {
      code->ir += part.ir;
      code->assembly += part.assembly;
      const auto found = objects_.find(part.key);
      if (found == objects_.end()) continue;
      objects.push_back(std::move(found->second));
      objects_.erase(found);
    }
    code->compiled = compiled_;
    code->reused = reused_;
    code->quick = is_quick_;
    if (objects.empty()) return absl::OkStatus();
    XLAD_ASSIGN_OR_RETURN(code->object, BundleObjects(std::move(objects)));
    return absl::OkStatus();
  }

  const CpuEmitters emitters_;
  const StepProgram& program_;
  const EmitOptions options_;
  absl::flat_hash_map<std::string, size_t> numbers_;  // The kernels, by symbol.
  std::vector<size_t> in_loops_;                      // The kernels of native programs.
  std::vector<bool> called_;                          // See FindCalled.
  std::vector<Part> kernels_;
  std::mutex mutex_;
  absl::flat_hash_map<std::string, std::string> objects_;  // By key. Empty while an object is being compiled.
  int64_t compiled_ = 0, reused_ = 0;
  bool is_quick_ = false;  // See EmittedCode.
};

}  // namespace

absl::StatusOr<EmittedCode> EmitCpuCode(const Target& target, const StepProgram& program, const EmitOptions& options) {
  XLAD_ASSIGN_OR_RETURN(CpuEmitters emitters, CpuEmitters::Create(target));
  return CpuCode(std::move(emitters), program, options).Run();
}

}  // namespace xlad::compiler

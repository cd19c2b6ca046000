#include "compiler/codegen/emit_code.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {
namespace {

// The number of instructions for which an additional object, compiled in its own thread, is worthwhile.
constexpr int64_t kMinPartWeight = 250;
constexpr size_t kMaxParts = 4;

// The contents of one object: the indices of its kernels and of its native programs (`loops`).
struct Part {
  std::vector<size_t> kernels, loops;
  int64_t weight = 0;
};

void AppendSymbols(const google::protobuf::RepeatedPtrField<Step>& steps, std::vector<std::string>* symbols);

void AppendSymbols(const Step& step, std::vector<std::string>* symbols) {
  if (step.has_kernel()) symbols->push_back(step.kernel().symbol());
  AppendSymbols(step.while_().condition(), symbols);
  AppendSymbols(step.while_().body(), symbols);
  for (const IfStep::Branch& branch : step.if_().branches()) AppendSymbols(branch.steps(), symbols);
}

void AppendSymbols(const google::protobuf::RepeatedPtrField<Step>& steps, std::vector<std::string>* symbols) {
  for (const Step& step : steps) AppendSymbols(step, symbols);
}

int64_t WeightOf(const KernelRequest& kernel) {
  int64_t weight = 4;  // For the kernel's function and its loop.
  for (const Computation* called : kernel.root->called()) {
    weight += std::ssize(called->instructions());
  }
  return weight;
}

// The smallest groups that must be in one object: each native program and the kernels that it calls. Found by
// union-find.
std::vector<Part> SmallestParts(const std::vector<KernelRequest>& kernels, const std::vector<NativeLoop>& loops) {
  std::vector<size_t> leader(kernels.size() + loops.size());
  std::iota(leader.begin(), leader.end(), size_t{0});
  const auto find = [&](size_t x) {
    while (leader[x] != x) x = leader[x] = leader[leader[x]];
    return x;
  };
  absl::flat_hash_map<std::string, size_t> number;
  for (size_t k = 0; k < kernels.size(); ++k) number[kernels[k].symbol] = k;
  for (size_t l = 0; l < loops.size(); ++l) {
    std::vector<std::string> symbols;
    for (const Step& step : loops[l].request.steps) AppendSymbols(step, &symbols);
    for (const std::string& symbol : symbols) {
      const auto found = number.find(symbol);
      if (found != number.end()) leader[find(found->second)] = find(kernels.size() + l);
    }
  }
  std::vector<Part> groups(leader.size());
  for (size_t k = 0; k < kernels.size(); ++k) {
    groups[find(k)].kernels.push_back(k);
    groups[find(k)].weight += WeightOf(kernels[k]);
  }
  for (size_t l = 0; l < loops.size(); ++l) groups[find(kernels.size() + l)].loops.push_back(l);
  std::erase_if(groups, [](const Part& group) { return group.kernels.empty() && group.loops.empty(); });
  return groups;
}

// Distributes groups over parts: the heaviest group first, and each group to the part that is lightest so far.
std::vector<Part> Distribute(std::vector<Part> groups, size_t max_parts) {
  int64_t weight = 0;
  for (const Part& group : groups) weight += group.weight;
  std::stable_sort(groups.begin(), groups.end(), [](const Part& a, const Part& b) { return a.weight > b.weight; });
  std::vector<Part> parts(std::clamp<size_t>(weight / kMinPartWeight, 1, max_parts));
  for (const Part& group : groups) {
    Part& part = *std::min_element(parts.begin(), parts.end(),
                                   [](const Part& a, const Part& b) { return a.weight < b.weight; });
    part.kernels.insert(part.kernels.end(), group.kernels.begin(), group.kernels.end());
    part.loops.insert(part.loops.end(), group.loops.begin(), group.loops.end());
    part.weight += group.weight;
  }
  while (parts.size() > 1 && parts.back().kernels.empty() && parts.back().loops.empty()) parts.pop_back();
  for (Part& part : parts) {
    std::sort(part.kernels.begin(), part.kernels.end());
    std::sort(part.loops.begin(), part.loops.end());
  }
  return parts;
}

// Calls `work` for 0 .. count-1, in as many threads as there are cores. Returns the first error in the order of the
// numbers.
absl::Status ForEachInThreads(size_t count, const std::function<absl::Status(size_t)>& work) {
  std::vector<absl::Status> results(count);
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) results[i] = work(i);
  };
  const size_t cores = std::max<size_t>(std::thread::hardware_concurrency(), 1);
  std::vector<std::thread> threads;
  for (size_t t = 1; t < std::min(count, cores); ++t) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
  for (absl::Status& result : results) XLAD_RETURN_IF_ERROR(std::move(result));
  return absl::OkStatus();
}

// The kernels of one object.
struct EmittedPart {
  std::unique_ptr<ObjectEmitter> emitter;
  absl::flat_hash_map<std::string, EmittedKernel> facts;
  std::string object;
};

absl::Status EmitKernels(const Target& target, const StepProgram& program, const Part& part, EmittedPart* emitted) {
  XLAD_ASSIGN_OR_RETURN(emitted->emitter, ObjectEmitter::Create(target));
  for (const size_t k : part.kernels) {
    const KernelRequest& kernel = program.kernels[k];
    XLAD_ASSIGN_OR_RETURN(emitted->facts[kernel.symbol], emitted->emitter->EmitKernel(kernel));
  }
  return absl::OkStatus();
}

std::vector<NativeLoop> NativeLoopsOf(const StepProgram& program, std::vector<Step>* steps) {
  return program.native_loops ? MakeNativeLoops(steps) : std::vector<NativeLoop>();
}

}  // namespace

absl::StatusOr<EmittedCode> EmitCode(const Target& target, const StepProgram& program, bool want_listings) {
  EmittedCode code;
  std::vector<Step> draft = program.steps;
  // PTX code cannot be divided into several objects.
  const size_t max_parts = target.triple().starts_with("nvptx") ? 1 : kMaxParts;
  const std::vector<Part> parts = Distribute(SmallestParts(program.kernels, NativeLoopsOf(program, &draft)), max_parts);
  std::vector<EmittedPart> emitted(parts.size());
  XLAD_RETURN_IF_ERROR(ForEachInThreads(
      parts.size(), [&](size_t p) { return EmitKernels(target, program, parts[p], &emitted[p]); }));
  absl::flat_hash_map<std::string, EmittedKernel> facts;
  for (const EmittedPart& part : emitted) facts.insert(part.facts.begin(), part.facts.end());
  code.target = emitted[0].emitter->target();
  code.steps = program.steps;
  SetKernelFacts(&code.steps, facts);
  const std::vector<NativeLoop> loops = NativeLoopsOf(program, &code.steps);
  for (size_t p = 0; p < parts.size(); ++p) {
    for (const size_t l : parts[p].loops) {
      XLAD_ASSIGN_OR_RETURN(const EmittedKernel native, emitted[p].emitter->EmitProgram(loops[l].request));
      loops[l].step->set_scratch_bytes(native.scratch_bytes);
    }
    if (want_listings) code.ir += emitted[p].emitter->IrText();
  }
  XLAD_RETURN_IF_ERROR(ForEachInThreads(parts.size(), [&](size_t p) -> absl::Status {
    XLAD_ASSIGN_OR_RETURN(emitted[p].object, emitted[p].emitter->Finish());
    return absl::OkStatus();
  }));
  std::vector<std::string> objects;
  for (EmittedPart& part : emitted) {
    objects.push_back(std::move(part.object));
    if (!want_listings) continue;
    XLAD_ASSIGN_OR_RETURN(const std::string assembly, part.emitter->AssemblyText());
    code.assembly += assembly;
  }
  XLAD_ASSIGN_OR_RETURN(code.object, BundleObjects(std::move(objects)));
  return code;
}

}  // namespace xlad::compiler

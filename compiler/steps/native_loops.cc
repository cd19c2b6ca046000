// MakeNativeLoops: while and conditional steps without collectives become native programs.
#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "base/kernel_abi.h"
#include "compiler/steps/step_program.h"

namespace xlad::compiler {
namespace {

// Visits the lists of steps directly inside a while or conditional step.
template <typename Visit>
void ForEachList(Step* step, const Visit& visit) {
  if (step->has_while_()) {
    visit(step->mutable_while_()->mutable_condition());
    visit(step->mutable_while_()->mutable_body());
  } else if (step->has_if_()) {
    for (IfStep::Branch& branch : *step->mutable_if_()->mutable_branches()) visit(branch.mutable_steps());
  }
}

bool HasCollective(Step* step) {
  bool found = step->has_collective();
  ForEachList(step, [&](auto* list) {
    for (Step& inner : *list) found = found || HasCollective(&inner);
  });
  return found;
}

template <typename Visit>
void ForEachSlice(Step* step, const Visit& visit) {
  if (step->has_kernel()) {
    for (BufferSlice& slice : *step->mutable_kernel()->mutable_buffers()) visit(&slice);
  } else if (step->has_library()) {
    for (BufferSlice& slice : *step->mutable_library()->mutable_buffers()) visit(&slice);
  } else if (step->has_copy()) {
    visit(step->mutable_copy()->mutable_from());
    visit(step->mutable_copy()->mutable_to());
  } else if (step->has_while_()) {
    visit(step->mutable_while_()->mutable_predicate());
  } else if (step->has_if_()) {
    visit(step->mutable_if_()->mutable_selector());
  }
  ForEachList(step, [&](auto* list) {
    for (Step& inner : *list) ForEachSlice(&inner, visit);
  });
}

// Each allocation that the step uses becomes one argument, which covers all of the step's slices of the allocation.
NativeLoop MakeNative(Step* step, int number) {
  struct Extent {
    int64_t first, last;
    int32_t argument;
  };
  std::map<int32_t, Extent> extents;
  ForEachSlice(step, [&](BufferSlice* slice) {
    const int64_t first = slice->offset(), last = first + slice->bytes();
    auto [entry, fresh] = extents.emplace(slice->allocation(), Extent{first, last, 0});
    entry->second.first = std::min(entry->second.first, first);
    entry->second.last = std::max(entry->second.last, last);
  });
  NativeLoop native;
  native.request.symbol = absl::StrCat("xn", number);
  KernelStep kernel;
  kernel.set_symbol(native.request.symbol);
  for (auto& [allocation, extent] : extents) {
    extent.argument = native.request.arguments++;
    BufferSlice* slice = kernel.add_buffers();
    slice->set_allocation(allocation);
    slice->set_offset(extent.first);
    slice->set_bytes(extent.last - extent.first);
  }
  ForEachSlice(step, [&](BufferSlice* slice) {
    const Extent& extent = extents.at(slice->allocation());
    slice->set_offset(slice->offset() - extent.first);
    slice->set_allocation(extent.argument);
  });
  native.request.steps = {*step};
  *step->mutable_kernel() = std::move(kernel);
  native.step = step->mutable_kernel();
  return native;
}

template <typename List>
void Collect(List* steps, std::vector<NativeLoop>* loops) {
  for (Step& step : *steps) {
    if (!step.has_while_() && !step.has_if_()) continue;
    if (!HasCollective(&step)) {
      loops->push_back(MakeNative(&step, loops->size()));
    } else {
      ForEachList(&step, [&](auto* list) { Collect(list, loops); });
    }
  }
}

// Calls `change` for the kernel steps whose symbols are in the map, with the value that the map has for the symbol.
template <typename List, typename Map, typename Change>
void ForKernelsIn(const Map& map, List* steps, const Change& change) {
  for (Step& step : *steps) {
    if (step.has_kernel()) {
      const auto found = map.find(step.kernel().symbol());
      if (found != map.end()) change(step.mutable_kernel(), found->second);
    }
    ForEachList(&step, [&](auto* list) { ForKernelsIn(map, list, change); });
  }
}

}  // namespace

std::vector<NativeLoop> MakeNativeLoops(std::vector<Step>* steps) {
  std::vector<NativeLoop> loops;
  Collect(steps, &loops);
  return loops;
}

void SetKernelFacts(std::vector<Step>* steps, const absl::flat_hash_map<std::string, EmittedKernel>& kernels) {
  ForKernelsIn(kernels, steps, [](KernelStep* step, const EmittedKernel& kernel) {
    step->set_scratch_bytes(kernel.scratch_bytes);
    step->set_tiles(kernel.tiles);
  });
}

void RenameKernels(std::vector<Step>* steps, const absl::flat_hash_map<std::string, std::string>& symbols) {
  ForKernelsIn(symbols, steps, [](KernelStep* step, const std::string& symbol) { step->set_symbol(symbol); });
}

}  // namespace xlad::compiler

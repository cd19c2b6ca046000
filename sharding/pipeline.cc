#include "sharding/pipeline.h"

#include "base/clock.h"
#include "base/file_system.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "sharding/explain/step_cost.h"
#include "sharding/proof/check.h"

namespace xlad::sharding {
namespace {

struct State {
  std::unique_ptr<hlo::Module> module;  // Until import.
  std::unique_ptr<hlo::Module> again;   // As imported, where it may be propagated in another order; else null.
  const PipelineOptions* options;
  PipelineResult result;
};

absl::Status RunVerify(State& state) { return hlo::Verify(*state.module); }

absl::Status RunImport(State& state) {
  state.again = state.module->Clone();
  XLAD_ASSIGN_OR_RETURN(state.result.propagated, Import(std::move(state.module), state.options->import));
  if (!OrderCanMatter(state.result.propagated)) state.again = nullptr;
  return absl::OkStatus();
}

absl::Status RunPropagate(State& state) { return Propagate(&state.result.propagated); }

// Propagated in the other order, if that costs less.
absl::Status TryDataFirst(State& state) {
  XLAD_ASSIGN_OR_RETURN(ShardedModule other, Import(std::move(state.again), state.options->import));
  XLAD_RETURN_IF_ERROR(Propagate(&other, PropagationOrder::kStateLast));
  XLAD_ASSIGN_OR_RETURN(PartitionedProgram partitioned, Partition(other));
  XLAD_ASSIGN_OR_RETURN(const double cost, StepCost(partitioned));
  XLAD_ASSIGN_OR_RETURN(const double least, StepCost(state.result.partitioned));
  if (cost >= least) return absl::OkStatus();
  state.result.propagated = std::move(other);
  state.result.partitioned = std::move(partitioned);
  return absl::OkStatus();
}

absl::Status RunPartition(State& state) {
  XLAD_ASSIGN_OR_RETURN(state.result.partitioned, Partition(state.result.propagated));
  if (state.again != nullptr) TryDataFirst(state).IgnoreError();  // The first order stands.
  return absl::OkStatus();
}

absl::Status RunCheck(State& state) {
  if (!state.options->check) return absl::OkStatus();
  return Check(state.result.propagated, state.result.partitioned);
}

struct Pass {
  const char* name;
  absl::Status (*run)(State&);
};

constexpr Pass kPasses[] = {
    {"verify", RunVerify}, {"import", RunImport}, {"propagate", RunPropagate}, {"partition", RunPartition},
    {"check", RunCheck},
};

absl::Status Dump(const State& state, size_t index, const char* pass) {
  const PipelineResult& result = state.result;
  std::string text;
  if (!result.partitioned.variants.empty()) text = hlo::PrintText(*result.partitioned.variants[0].module);
  else if (result.propagated.module != nullptr) text = PrintPropagated(result.propagated);
  else text = hlo::PrintText(*state.module);
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(state.options->dump_folder));
  return RealFileSystem().WriteAtomically(
      JoinPath(state.options->dump_folder, absl::StrCat(index, ".", pass, ".hlo")), text);
}

}  // namespace

absl::StatusOr<PipelineResult> RunPipeline(std::unique_ptr<hlo::Module> module, const PipelineOptions& options) {
  State state{std::move(module), nullptr, &options, {}};
  size_t index = 0;
  for (const Pass& pass : kPasses) {
    const int64_t start = RealClock().NowNs();
    XLAD_RETURN_IF_ERROR(pass.run(state));
    state.result.times.push_back({pass.name, RealClock().NowNs() - start});
    if (!options.dump_folder.empty()) XLAD_RETURN_IF_ERROR(Dump(state, index, pass.name));
    ++index;
  }
  return std::move(state.result);
}

}  // namespace xlad::sharding

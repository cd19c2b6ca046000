#include "sharding/pipeline.h"

#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/containers.h"
#include "base/file_system.h"
#include "hlo/analysis/leaves.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "sharding/explain/step_cost.h"
#include "sharding/partition/ops/families.h"
#include "sharding/proof/check.h"

namespace xlad::sharding {
namespace {

// The program that was propagated in the order kStateLast.
struct Alternative {
  ShardedModule sharded;
  PartitionedProgram partitioned;
};

struct State {
  std::unique_ptr<hlo::Module> module;  // Null after the pass "import", which takes it.
  const PipelineOptions* options;
  PipelineResult result;
  // Set between the passes "import" and "choose" if the order of propagation can matter.
  std::optional<Alternative> alternative;
  absl::Status must_aliases;  // The result of CheckMustAliases, set by "partition" and read by "choose".
};

ShardedModule Clone(const ShardedModule& source) {
  ShardedModule clone;
  clone.module = source.module->Clone();
  clone.mesh = source.mesh;
  clone.results = source.results;
  clone.feeds = source.feeds;
  absl::flat_hash_map<const hlo::Instruction*, const hlo::Instruction*> copies;
  for (size_t c = 0; c < source.module->computations().size(); ++c) {
    const auto& from = source.module->computations()[c]->instructions();
    const auto& to = clone.module->computations()[c]->instructions();
    for (size_t i = 0; i < from.size(); ++i) copies[from[i].get()] = to[i].get();
  }
  for (const auto& [instruction, sharding] : source.shardings) clone.shardings[copies.at(instruction)] = sharding;
  for (const auto& [instruction, direction] : source.barriers) clone.barriers[copies.at(instruction)] = direction;
  for (const auto& group : source.groups) {
    auto& copied = clone.groups.emplace_back();
    for (const hlo::Instruction* instruction : group) copied.push_back(copies.at(instruction));
  }
  return clone;
}

absl::Status RunVerify(State& state) { return hlo::Verify(*state.module); }

absl::Status RunImport(State& state) {
  XLAD_ASSIGN_OR_RETURN(state.result.propagated, Import(std::move(state.module), state.options->import));
  if (OrderCanMatter(state.result.propagated)) state.alternative = Alternative{Clone(state.result.propagated), {}};
  return absl::OkStatus();
}

absl::Status RunPropagate(State& state) { return Propagate(&state.result.propagated); }

// Partition drops an alias if the shards of its parameter and its result have different shapes. This is an error for a
// must-alias.
absl::Status CheckMustAliases(const hlo::Module& source, const PartitionedProgram& program) {
  const hlo::Module& local = *program.variants[0].module;
  for (const hlo::InputOutputAlias& alias : source.input_output_alias) {
    if (!alias.must_alias || Contains(local.input_output_alias, alias)) continue;
    const hlo::Shape& parameter =
        *hlo::PartAt(local.entry()->parameter(alias.parameter)->shape(), alias.parameter_index);
    const hlo::Shape& result = *hlo::PartAt(local.entry()->root()->shape(), alias.output_index);
    return absl::InvalidArgumentError(absl::StrCat(
        "input_output_alias of result {", absl::StrJoin(alias.output_index, ","), "} and parameter ", alias.parameter,
        " {", absl::StrJoin(alias.parameter_index, ","), "}: found must-alias of the shards ", result.ToString(false),
        " and ", parameter.ToString(false),
        ", expected shards of equal shapes: give both the same sharding, or use may-alias"));
  }
  return absl::OkStatus();
}

absl::Status RunPartition(State& state) {
  XLAD_ASSIGN_OR_RETURN(state.result.partitioned, Partition(state.result.propagated, FamilyOf));
  state.must_aliases = CheckMustAliases(*state.result.propagated.module, state.result.partitioned);
  // The alternative may have the aliases that this program drops.
  return state.alternative ? absl::OkStatus() : state.must_aliases;
}

absl::Status RunPropagateAlternative(State& state) {
  return Propagate(&state.alternative->sharded, PropagationOrder::kStateLast);
}

absl::Status RunPartitionAlternative(State& state) {
  XLAD_ASSIGN_OR_RETURN(state.alternative->partitioned, Partition(state.alternative->sharded, FamilyOf));
  return absl::OkStatus();
}

absl::Status RunChoose(State& state) {
  XLAD_ASSIGN_OR_RETURN(const double cost, StepCost(state.result.partitioned));
  XLAD_ASSIGN_OR_RETURN(const double alternative, StepCost(state.alternative->partitioned));
  const hlo::Module& source = *state.alternative->sharded.module;
  const bool is_better = alternative < cost || !state.must_aliases.ok();
  if (is_better && CheckMustAliases(source, state.alternative->partitioned).ok()) {
    state.result.propagated = std::move(state.alternative->sharded);
    state.result.partitioned = std::move(state.alternative->partitioned);
    state.must_aliases = absl::OkStatus();
  }
  state.alternative.reset();
  return state.must_aliases;
}

absl::Status RunCheck(State& state) {
  if (!state.options->check) return absl::OkStatus();
  return Check(state.result.propagated, state.result.partitioned);
}

struct Pass {
  const char* name;
  absl::Status (*run)(State&);
  bool only_alternative = false;
  bool in_thread = false;  // Runs in a thread of its own, concurrently with the passes before it.
};

constexpr Pass kPasses[] = {
    {"verify", RunVerify},
    {"import", RunImport},
    {"propagate", RunPropagate},
    {"partition", RunPartition},
    {"propagate-alternative", RunPropagateAlternative, true, true},
    {"partition-alternative", RunPartitionAlternative, true, true},
    {"choose", RunChoose, true},
    {"check", RunCheck},
};

absl::Status RunPass(const Pass& pass, State& state, std::vector<PassTime>* times) {
  const int64_t start = RealClock().NowNs();
  XLAD_RETURN_IF_ERROR(pass.run(state));
  times->push_back({pass.name, RealClock().NowNs() - start});
  return absl::OkStatus();
}

// Runs the passes of the alternative, which change only State::alternative, in a thread.
class AlternativeThread {
 public:
  explicit AlternativeThread(State& state)
      : thread_([this, &state] {
          for (const Pass& pass : kPasses) {
            if (pass.in_thread && status_.ok()) status_ = RunPass(pass, state, &times_);
          }
        }) {}
  ~AlternativeThread() {
    if (thread_.joinable()) thread_.join();
  }
  AlternativeThread(const AlternativeThread&) = delete;
  AlternativeThread& operator=(const AlternativeThread&) = delete;

  // Waits for the passes, and appends their times.
  absl::Status Join(std::vector<PassTime>* times) {
    thread_.join();
    times->insert(times->end(), times_.begin(), times_.end());
    return status_;
  }

 private:
  absl::Status status_;
  std::vector<PassTime> times_;
  std::thread thread_;
};

// The text of the partitioned program or, if it does not exist yet, of the propagated program.
std::string TextOf(const ShardedModule& propagated, const PartitionedProgram& partitioned) {
  return partitioned.variants.empty() ? PrintPropagated(propagated) : hlo::PrintText(*partitioned.variants[0].module);
}

// Writes the program that the pass changed, or for the pass "choose" the one that it kept.
absl::Status Dump(const State& state, size_t index, const Pass& pass) {
  std::string text;
  if (state.module != nullptr) {
    text = hlo::PrintText(*state.module);
  } else if (pass.only_alternative && state.alternative) {
    text = TextOf(state.alternative->sharded, state.alternative->partitioned);
  } else {
    text = TextOf(state.result.propagated, state.result.partitioned);
  }
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(state.options->dump_directory));
  return RealFileSystem().WriteAtomically(
      JoinPath(state.options->dump_directory, absl::StrCat(index, ".", pass.name, ".hlo")), text);
}

}  // namespace

absl::StatusOr<PipelineResult> RunPipeline(std::unique_ptr<hlo::Module> module, const PipelineOptions& options) {
  State state{std::move(module), &options, {}, {}, {}};
  const bool dumps = !options.dump_directory.empty();
  std::optional<AlternativeThread> alternative;  // Unset if there are dumps, which are written in the order of passes.
  for (const Pass& pass : kPasses) {
    if ((pass.only_alternative && !state.alternative) || (pass.in_thread && alternative)) continue;
    if (pass.run == RunChoose && alternative) XLAD_RETURN_IF_ERROR(alternative->Join(&state.result.times));
    XLAD_RETURN_IF_ERROR(RunPass(pass, state, &state.result.times));
    if (dumps) XLAD_RETURN_IF_ERROR(Dump(state, state.result.times.size() - 1, pass));
    if (pass.run == RunImport && state.alternative && !dumps) alternative.emplace(state);
  }
  return std::move(state.result);
}

}  // namespace xlad::sharding

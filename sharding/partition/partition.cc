#include "sharding/partition/partition.h"

#include <algorithm>

#include "sharding/partition/computation_partitioner.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

// Copies the attributes of the module. An alias is kept only if the parameter and the result have equal local shapes.
void CarryHeader(const hlo::Module& from, const PartitionedProgram& program, hlo::Module* to) {
  to->num_partitions = program.mesh.devices();
  to->replica_count = from.replica_count;
  to->stack_frames = from.stack_frames;
  to->buffer_donors = from.buffer_donors;
  for (const hlo::InputOutputAlias& alias : from.input_output_alias) {
    const auto& parameters = to->entry()->parameters();
    if (alias.parameter < 0 || alias.parameter >= std::ssize(parameters)) continue;
    const hlo::Shape* parameter = hlo::PartAt(parameters[alias.parameter]->shape(), alias.parameter_index);
    const hlo::Shape* result = hlo::PartAt(to->entry()->root()->shape(), alias.output_index);
    if (parameter != nullptr && result != nullptr && parameter->SameIgnoringLayout(*result)) {
      to->input_output_alias.push_back(alias);
    }
  }
}

void DescribeEntry(const ShardedModule& module, PartitionedProgram* program) {
  const hlo::Computation& entry = *module.module->entry();
  for (const Instruction* parameter : entry.parameters()) {
    const std::vector<tensor::Shape> leaves = LeafShapes(parameter->shape());
    program->parameter_shapes.insert(program->parameter_shapes.end(), leaves.begin(), leaves.end());
    const auto found = module.shardings.find(parameter);
    for (size_t i = 0; i < leaves.size(); ++i) {
      program->parameters.push_back(found != module.shardings.end() && i < found->second.size()
                                        ? found->second[i]
                                        : TensorSharding::Replicated(leaves[i].ndim()));
    }
  }
  program->result_shapes = LeafShapes(entry.root()->shape());
  program->results = module.results;
  const auto root = module.shardings.find(entry.root());
  for (size_t i = program->results.size(); i < program->result_shapes.size(); ++i) {
    program->results.push_back(root != module.shardings.end() && i < root->second.size()
                                   ? root->second[i]
                                   : TensorSharding::Replicated(program->result_shapes[i].ndim()));
  }
}

// XLA also runs its partitioner over programs that are already partitioned, and rejects a partition-id unless every
// instruction has the sharding "manual". Reducers and comparators need no sharding.
void MarkManual(const hlo::Computation& computation) {
  for (const auto& instruction : computation.instructions()) {
    auto manual = std::make_unique<hlo::OpSharding>();
    manual->kind = hlo::OpSharding::Kind::kManual;
    instruction->set_sharding(std::move(manual));
    const bool control = instruction->opcode() == hlo::Opcode::kWhile ||
                         instruction->opcode() == hlo::Opcode::kConditional;
    if (!control) continue;
    for (const hlo::Computation* called : instruction->called()) MarkManual(*called);
  }
}

bool UsesPartitionId(const hlo::Module& module) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->opcode() == hlo::Opcode::kPartitionId) return true;
    }
  }
  return false;
}

absl::Status PartitionOverMesh(const ShardedModule& source, FamilyTable families, PartitionedProgram* program,
                               SourceMap* source_map) {
  auto module = std::make_unique<hlo::Module>(source.module->name());
  PartitionContext context(source, families, module.get(), source_map);
  module->num_partitions = source.mesh.devices();
  const ShardingChooser undeferred(source, context.deferred(), families);
  context.set_deferred(DeferReductions(
      source, [&](const Instruction& instruction) { return undeferred.PartialSumAxes(instruction); }));
  const hlo::Computation& entry = *source.module->entry();
  hlo::Computation* target = module->Add(std::make_unique<hlo::Computation>(entry.name()));
  ComputationPartitioner partitioner(&context, target);
  XLAD_ASSIGN_OR_RETURN(LocalValue root, partitioner.Run(entry));
  partitioner.Finish(entry, std::move(root), program->results);
  module->set_entry(target);
  target->RemoveDead();
  partitioner.RecordSourceMap();
  module->RemoveUnusedComputations();
  module->SortComputations();
  if (UsesPartitionId(*module)) MarkManual(*module->entry());
  CarryHeader(*source.module, *program, module.get());
  program->collectives = context.recorder().TakeRecords(*module);
  program->warnings = context.TakeWarnings();
  program->variants.push_back({std::move(module), {}});
  return absl::OkStatus();
}

}  // namespace

CollectivesByChannel ByChannel(const PartitionedProgram& program) {
  CollectivesByChannel infos;
  for (const CollectiveInfo& info : program.collectives) infos[ChannelOf(info.collective_id)] = &info;
  return infos;
}

absl::StatusOr<PartitionedProgram> Partition(const ShardedModule& module, FamilyTable families,
                                             SourceMap* source_map) {
  PartitionedProgram program;
  program.mesh = module.mesh;
  program.feeds = module.feeds;
  DescribeEntry(module, &program);
  if (module.mesh.devices() == 1) {
    program.variants.push_back({module.module->Clone(), {}});
    program.variants[0].module->num_partitions = 1;
  } else {
    if (module.module->replica_count != 1) {
      return absl::InvalidArgumentError(absl::StrCat("found a program of ", module.module->replica_count,
                                                     " replicas, expected 1: replicas cannot be partitioned"));
    }
    XLAD_RETURN_IF_ERROR(PartitionOverMesh(module, families, &program, source_map));
  }
  for (int64_t d = 0; d < module.mesh.devices(); ++d) program.variants[0].devices.push_back(d);
  return program;
}

}  // namespace xlad::sharding

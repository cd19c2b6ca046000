#include "sharding/partition/partition.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "sharding/partition/partitioner.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;


const hlo::Shape* ShapeAt(const hlo::Shape& shape, const Dims& index) {
  const hlo::Shape* at = &shape;
  for (int64_t i : index) {
    if (!at->is_tuple() || i < 0 || i >= std::ssize(at->tuple())) return nullptr;
    at = &at->tuple()[i];
  }
  return at;
}

// What belongs to the module and not to an instruction. A buffer is shared only where both ends are equally large.
void CarryHeader(const hlo::Module& from, const PartitionedProgram& program, hlo::Module* to) {
  to->num_partitions = program.mesh.devices();
  to->replica_count = from.replica_count;
  to->stack_frames = from.stack_frames;
  to->buffer_donors = from.buffer_donors;
  for (const hlo::InputOutputAlias& alias : from.input_output_alias) {
    const auto& parameters = to->entry()->parameters();
    if (alias.parameter < 0 || alias.parameter >= std::ssize(parameters)) continue;
    const hlo::Shape* parameter = ShapeAt(parameters[alias.parameter]->shape(),
                                          alias.parameter_index);
    const hlo::Shape* result = ShapeAt(to->entry()->root()->shape(), alias.output_index);
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

// Collectives whose instruction was removed as dead are no collectives.
void DropUnused(const hlo::Module& module, std::vector<CollectiveInfo>* collectives) {
  absl::flat_hash_set<int64_t> used;
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (hlo::IsCollective(instruction->opcode()) && instruction->attributes().channel_id) {
        used.insert(*instruction->attributes().channel_id);
      }
    }
  }
  std::erase_if(*collectives, [&](const CollectiveInfo& info) { return !used.contains(info.collective_id); });
}

// XLA runs its partitioner over a program that is partitioned already too, and refuses a partition-id unless all of the
// program is marked as manual: per device as it stands. Reducers and comparators are marked by no one.
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

absl::Status PartitionOverMesh(const ShardedModule& source, PartitionedProgram* program, Trace* trace) {
  auto module = std::make_unique<hlo::Module>(source.module->name());
  ProgramInProgress progress;
  progress.source = &source;
  progress.module = module.get();
  progress.trace = trace;
  module->num_partitions = source.mesh.devices();
  const hlo::Computation& entry = *source.module->entry();
  hlo::Computation* target = module->Add(std::make_unique<hlo::Computation>(entry.name()));
  Partitioner partitioner(&progress, target);
  progress.pending = PlacePendingSums(
      source, [&](const Instruction& instruction) { return partitioner.PartialAxes(instruction); });
  XLAD_ASSIGN_OR_RETURN(LocalValue root, partitioner.Run(entry));
  XLAD_RETURN_IF_ERROR(partitioner.Finish(entry, std::move(root), program->results));
  module->set_entry(target);
  target->RemoveDead();
  partitioner.RecordTrace();
  module->RemoveUnusedComputations();
  module->SortComputations();
  if (UsesPartitionId(*module)) MarkManual(*module->entry());
  CarryHeader(*source.module, *program, module.get());
  DropUnused(*module, &progress.collectives);
  program->collectives = std::move(progress.collectives);
  program->warnings = std::move(progress.warnings);
  program->variants.push_back({std::move(module), {}});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PartitionedProgram> Partition(const ShardedModule& module, Trace* trace) {
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
                                                     " replicas, expected one that is split over a mesh only"));
    }
    XLAD_RETURN_IF_ERROR(PartitionOverMesh(module, &program, trace));
  }
  for (int64_t d = 0; d < module.mesh.devices(); ++d) program.variants[0].devices.push_back(d);
  return program;
}

}  // namespace xlad::sharding

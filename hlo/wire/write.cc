// Writes a module to a proto.
#include <climits>

#include "absl/container/flat_hash_map.h"
#include "google/protobuf/arena.h"
#include "hlo/wire/parts.h"
#include "hlo/wire/proto.h"

namespace xlad::hlo {
namespace {

// Computations and instructions are numbered from 1 in the order of the module.
struct Ids {
  absl::flat_hash_map<const Instruction*, int64_t> instructions;
  absl::flat_hash_map<const Computation*, int64_t> computations;
};

void WriteCalled(const Instruction& instruction, const Ids& ids, pb::Instruction* out) {
  const std::vector<Computation*>& called = instruction.called();
  // The proto has the body of a loop before the condition.
  const bool swap = instruction.opcode() == Opcode::kWhile && called.size() == 2;
  for (size_t i = 0; i < called.size(); ++i) {
    const auto found = ids.computations.find(called[swap ? 1 - i : i]);
    out->add_called_computation_ids(found == ids.computations.end() ? -1 : found->second);
  }
}

void WriteInstruction(const Instruction& instruction, const Ids& ids, pb::Instruction* out) {
  out->set_name(instruction.name());
  out->set_opcode(std::string(ToString(instruction.opcode())));
  out->set_id(ids.instructions.at(&instruction));
  WriteShape(instruction.shape(), out->mutable_shape());
  for (const Instruction* const operand : instruction.operands()) out->add_operand_ids(ids.instructions.at(operand));
  for (const Instruction* const before : instruction.control_predecessors()) {
    out->add_control_predecessor_ids(ids.instructions.at(before));
  }
  WriteCalled(instruction, ids, out);
  CopyInts(instruction.dimensions(), out->mutable_dimensions());
  if (instruction.opcode() == Opcode::kParameter) out->set_parameter_number(instruction.number());
  if (instruction.opcode() == Opcode::kGetTupleElement) out->set_tuple_index(instruction.number());
  const Literal* const literal = instruction.literal().get();
  if (literal != nullptr) WriteLiteral(*literal, instruction.shape(), out->mutable_literal());
  WriteMetadata(instruction.metadata(), out->mutable_metadata());
  WriteStringMap(instruction.frontend_attributes(), out->mutable_frontend_attributes());
  if (instruction.sharding() != nullptr) WriteSharding(*instruction.sharding(), out->mutable_sharding());
  WriteAttributes(instruction, out);
}

void WriteComputation(const Computation& computation, const Ids& ids, pb::Computation* out) {
  out->set_name(computation.name());
  out->set_id(ids.computations.at(&computation));
  out->set_root_id(ids.instructions.at(computation.root()));
  out->set_is_fusion_computation(computation.is_fusion());
  out->set_execution_thread(computation.execution_thread());
  WriteProgramShape(computation, out->mutable_program_shape());
  for (const auto& instruction : computation.instructions()) {
    WriteInstruction(*instruction, ids, out->add_instructions());
  }
}

void WriteEntryShape(const Module& module, pb::ProgramShape* out) {
  WriteProgramShape(*module.entry(), out);
  if (!module.has_entry_layout) return;
  out->clear_parameters();
  for (const Shape& shape : module.entry_parameter_layouts) WriteShape(shape, out->add_parameters());
  out->clear_result();
  WriteShape(module.entry_result_layout, out->mutable_result());
}

void WriteStackFrames(const StackFrames& frames, pb::StackFrameIndex* out) {
  for (const std::string& name : frames.file_names) out->add_file_names(name);
  for (const std::string& name : frames.function_names) out->add_function_names(name);
  for (const StackFrames::Location& location : frames.locations) {
    pb::StackFrameIndex::Location* const to = out->add_file_locations();
    to->set_file_name_id(location.file_name_id);
    to->set_function_name_id(location.function_name_id);
    to->set_line(location.line);
    to->set_end_line(location.end_line);
    to->set_column(location.column);
    to->set_end_column(location.end_column);
  }
  for (const StackFrames::Frame& frame : frames.frames) {
    pb::StackFrameIndex::Frame* const to = out->add_stack_frames();
    to->set_file_location_id(frame.file_location_id);
    to->set_parent_frame_id(frame.parent_frame_id);
  }
}

void WriteHeader(const Module& module, const Ids& ids, pb::Module* out) {
  out->set_name(module.name());
  out->set_entry_computation_name(module.entry()->name());
  out->set_entry_computation_id(ids.computations.at(module.entry()));
  WriteEntryShape(module, out->mutable_host_program_shape());
  out->set_no_entry_layout(!module.has_entry_layout);
  for (const InputOutputAlias& alias : module.input_output_alias) {
    pb::InputOutputAlias::Entry* const entry = out->mutable_input_output_alias()->add_entries();
    CopyInts(alias.output_index, entry->mutable_output_shape_index());
    entry->set_parameter_number(alias.parameter);
    CopyInts(alias.parameter_index, entry->mutable_parameter_shape_index());
    entry->set_kind(alias.must_alias ? 2 : 1);
  }
  for (const BufferDonor& donor : module.buffer_donors) {
    pb::BufferDonor::Entry* const entry = out->mutable_buffer_donor()->add_entries();
    entry->set_parameter_number(donor.parameter);
    CopyInts(donor.parameter_index, entry->mutable_parameter_shape_index());
  }
  WriteStackFrames(module.stack_frames, out->mutable_stack_frame_index());
  WriteStringMap(module.frontend_attributes, out->mutable_frontend_attributes());
  if (module.replica_count != 1) out->set_replica_count(module.replica_count);
  if (module.num_partitions != 1) out->set_num_partitions(module.num_partitions);
  for (const bool propagate : module.propagate_to_parameters) out->add_propagate_to_parameters(propagate);
  for (const bool propagate : module.propagate_to_output) out->add_propagate_to_output(propagate);
  out->set_alias_passthrough_params(module.alias_passthrough_params);
  out->set_other(module.other);
}

void WriteSchedule(const Module& module, const Ids& ids, pb::Schedule* out) {
  for (const auto& computation : module.computations()) {
    if (computation->is_fusion()) continue;
    pb::Schedule::Sequence& sequence = (*out->mutable_sequences())[ids.computations.at(computation.get())];
    for (const auto& instruction : computation->instructions()) {
      sequence.add_instruction_ids(ids.instructions.at(instruction.get()));
    }
  }
}

Ids MakeIds(const Module& module) {
  Ids ids;
  for (const auto& computation : module.computations()) {
    const auto id = std::ssize(ids.computations) + 1;
    ids.computations.emplace(computation.get(), id);
    for (const auto& instruction : computation->instructions()) {
      const auto number = std::ssize(ids.instructions) + 1;
      ids.instructions.emplace(instruction.get(), number);
    }
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::string> SerializeProto(const Module& module) {
  XLAD_CHECK(module.entry() != nullptr) << "module " << module.name() << " has no entry";
  const Ids ids = MakeIds(module);
  google::protobuf::Arena arena;
  pb::Module* const out = google::protobuf::Arena::CreateMessage<pb::Module>(&arena);
  WriteHeader(module, ids, out);
  for (const auto& computation : module.computations()) WriteComputation(*computation, ids, out->add_computations());
  if (module.is_scheduled) WriteSchedule(module, ids, out->mutable_schedule());
  const size_t size = out->ByteSizeLong();
  if (size > INT_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("found a module of ", size,
                                                   " bytes, expected at most 2 GiB, the most a proto can hold"));
  }
  std::string bytes;
  // A fixed order of the entries of maps, so that equal modules have equal bytes.
  google::protobuf::io::StringOutputStream stream(&bytes);
  {
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    out->SerializeToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace xlad::hlo

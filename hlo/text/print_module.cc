// HLO text: prints instructions, computations and the header of a module.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/index_comment.h"
#include "hlo/text/attribute_table.h"
#include "hlo/text/print.h"
#include "hlo/text/text.h"

namespace xlad::hlo {
namespace {

void AppendOperands(const Instruction& instruction, std::string* out) {
  if (instruction.opcode() == Opcode::kParameter) return absl::StrAppend(out, instruction.number());
  if (instruction.opcode() == Opcode::kConstant) {
    if (instruction.literal() != nullptr) AppendLiteral(*instruction.literal(), out);
    return;
  }
  const absl::Span<Instruction* const> operands = instruction.operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i > 0) out->append(", ");
    AppendIndexComment(i, out);
    absl::StrAppend(out, "%", operands[i]->name());
  }
}

// Attributes without a meaning in xlad are printed before the sharding and the metadata, as in most dumps.
void AppendAttributes(const Instruction& instruction, std::string* out) {
  bool other_done = instruction.attributes().other.empty();
  for (const AttributeRow* const row : AttributeRows(instruction.opcode())) {
    if (!other_done && row->opcodes.empty()) {
      absl::StrAppend(out, ", ", instruction.attributes().other);
      other_done = true;
    }
    const size_t before = out->size();
    absl::StrAppend(out, ", ", row->name, "=");
    if (!row->print(instruction, out)) out->resize(before);
  }
}

void AppendInstruction(const Instruction& instruction, bool is_root, std::string* out) {
  if (is_root) out->append("ROOT ");
  absl::StrAppend(out, "%", instruction.name(), " = ", instruction.shape().ToString(), " ",
                  ToString(instruction.opcode()), "(");
  AppendOperands(instruction, out);
  out->push_back(')');
  AppendAttributes(instruction, out);
}

// The shapes of a signature have no layouts, but long tuples have their element numbers.
std::string SignatureShape(Shape shape) {
  shape.clear_layout();
  return shape.ToString();
}

void AppendComputation(const Computation& computation, bool is_entry, std::string* out) {
  absl::StrAppend(out, is_entry ? "ENTRY %" : "%", computation.name(), " (");
  for (size_t i = 0; i < computation.parameters().size(); ++i) {
    const Instruction& parameter = *computation.parameters()[i];
    absl::StrAppend(out, i == 0 ? "" : ", ", parameter.name(), ": ", SignatureShape(parameter.shape()));
  }
  absl::StrAppend(out, ") -> ", SignatureShape(computation.ProgramResult()), " {\n");
  for (const auto& instruction : computation.instructions()) {
    out->append("  ");
    AppendInstruction(*instruction, instruction.get() == computation.root(), out);
    out->push_back('\n');
  }
  out->push_back('}');
  if (!computation.execution_thread().empty()) {
    out->append(", execution_thread=");
    AppendQuoted(computation.execution_thread(), out);
  }
  out->append("\n\n");
}

void AppendAliases(const Module& module, std::string* out) {
  if (!module.input_output_alias.empty()) {
    out->append(", input_output_alias={ ");
    for (const InputOutputAlias& alias : module.input_output_alias) {
      if (&alias != &module.input_output_alias.front()) out->append(", ");
      AppendInts(alias.output_index, out);
      absl::StrAppend(out, ": (", alias.parameter, ", ");
      AppendInts(alias.parameter_index, out);
      out->append(alias.must_alias ? ", must-alias)" : ", may-alias)");
    }
    out->append(" }");
  }
  if (!module.buffer_donors.empty()) {
    out->append(", buffer_donor={ ");
    for (const BufferDonor& donor : module.buffer_donors) {
      absl::StrAppend(out, &donor == &module.buffer_donors.front() ? "(" : ", (", donor.parameter, ", ");
      AppendInts(donor.parameter_index, out);
      out->push_back(')');
    }
    out->append(" }");
  }
}

// Appends entry_computation_layout as given, or from the shapes of the entry.
void AppendEntryLayout(const Module& module, std::string* out) {
  std::vector<Shape> parameters = module.entry_parameter_layouts;
  Shape result = module.entry_result_layout;
  if (!module.has_entry_layout) {
    for (const Instruction* const parameter : module.entry()->parameters()) parameters.push_back(parameter->shape());
    result = module.entry()->ProgramResult();
  }
  const Shape tuple = Shape::Tuple(std::move(parameters));
  absl::StrAppend(out, ", entry_computation_layout={", tuple.ToString(), "->", result.ToString(), "}");
}

void AppendHeader(const Module& module, std::string* out) {
  absl::StrAppend(out, "HloModule ", module.name());
  if (module.is_scheduled) out->append(", is_scheduled=true");
  AppendAliases(module, out);
  if (module.alias_passthrough_params) out->append(", alias_passthrough_params=true");
  AppendEntryLayout(module, out);
  const auto append_bools = [out](absl::string_view name, const std::vector<bool>& values) {
    if (values.empty()) return;
    absl::StrAppend(out, ", ", name, "=");
    AppendBools(values, out);
  };
  append_bools("allow_spmd_sharding_propagation_to_parameters", module.propagate_to_parameters);
  append_bools("allow_spmd_sharding_propagation_to_output", module.propagate_to_output);
  if (module.replica_count != 1) absl::StrAppend(out, ", replica_count=", module.replica_count);
  if (module.num_partitions != 1) absl::StrAppend(out, ", num_partitions=", module.num_partitions);
  if (!module.other.empty()) absl::StrAppend(out, ", ", module.other);
  if (!module.frontend_attributes.empty()) {
    out->append(", frontend_attributes=");
    AppendStringMap(module.frontend_attributes, out);
  }
  out->append("\n\n");
}

void AppendStrings(absl::string_view table, const std::vector<std::string>& values, std::string* out) {
  absl::StrAppend(out, table, "\n");
  for (size_t i = 0; i < values.size(); ++i) {
    absl::StrAppend(out, i + 1, " ");
    AppendQuoted(values[i], out);
    out->push_back('\n');
  }
  out->push_back('\n');
}

void AppendStackFrames(const StackFrames& frames, std::string* out) {
  if (frames.empty()) return;
  AppendStrings("FileNames", frames.file_names, out);
  AppendStrings("FunctionNames", frames.function_names, out);
  out->append("FileLocations\n");
  for (size_t i = 0; i < frames.locations.size(); ++i) {
    const StackFrames::Location& l = frames.locations[i];
    absl::StrAppend(out, i + 1, " {file_name_id=", l.file_name_id, " function_name_id=", l.function_name_id);
    absl::StrAppend(out, " line=", l.line, " end_line=", l.end_line, " column=", l.column, " end_column=",
                    l.end_column, "}\n");
  }
  out->append("\nStackFrames\n");
  for (size_t i = 0; i < frames.frames.size(); ++i) {
    // The text has the id of the parent plus one; 1 means no parent.
    absl::StrAppend(out, i + 1, " {file_location_id=", frames.frames[i].file_location_id,
                    " parent_frame_id=", frames.frames[i].parent_frame_id + 1, "}\n");
  }
  out->append("\n\n");
}

}  // namespace

std::string PrintText(const Module& module) {
  std::string out;
  AppendHeader(module, &out);
  AppendStackFrames(module.stack_frames, &out);
  for (const auto& computation : module.computations()) {
    AppendComputation(*computation, computation.get() == module.entry(), &out);
  }
  return out;
}

std::string Instruction::ToString() const {
  std::string out;
  AppendInstruction(*this, parent_ != nullptr && parent_->root() == this, &out);
  return out;
}

}  // namespace xlad::hlo

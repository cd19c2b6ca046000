// Reads a module from a proto.
#include <algorithm>
#include <climits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "base/containers.h"
#include "google/protobuf/arena.h"
#include "hlo/text/attribute_table.h"
#include "hlo/text/parse.h"
#include "hlo/wire/instruction.h"
#include "hlo/wire/parts.h"
#include "hlo/wire/proto.h"
#include "hlo/wire/wire_format.h"

namespace xlad::hlo {
namespace {

absl::Status Bad(absl::string_view message) { return absl::InvalidArgumentError(message); }

// Replaces characters that are not allowed in names of HLO text by '_'.
std::string CleanName(absl::string_view name, absl::string_view otherwise) {
  std::string clean(name.empty() ? otherwise : name);
  if (IsWord(name)) return clean;
  for (char& c : clean) {
    if (!IsWord(absl::string_view(&c, 1))) c = '_';
  }
  return clean;
}

// A map from ids to instructions. In most programs the ids are consecutive.
class InstructionMap {
 public:
  explicit InstructionMap(size_t count) : dense_(2 * count + 64, nullptr) {}

  // Returns false if the id is already present.
  bool Insert(int64_t id, Instruction* instruction) {
    if (!begun_) first_ = id;
    begun_ = true;
    const uint64_t index = Index(id);
    if (index >= dense_.size()) return others_.emplace(id, instruction).second;
    if (dense_[index] != nullptr) return false;
    dense_[index] = instruction;
    return true;
  }
  // Returns null if there is no such instruction.
  Instruction* Find(int64_t id) const {
    const uint64_t index = Index(id);
    if (index < dense_.size()) return dense_[index];
    const auto found = others_.find(id);
    return found == others_.end() ? nullptr : found->second;
  }

 private:
  uint64_t Index(uint64_t id) const { return id - first_; }

  bool begun_ = false;
  uint64_t first_ = 0;
  std::vector<Instruction*> dense_;  // Indexed by id - first_.
  absl::flat_hash_map<int64_t, Instruction*> others_;
};

class ModuleReader {
 public:
  // `in` is the module without its computations, and `computations` are their bytes.
  ModuleReader(const pb::Module& in, absl::Span<const absl::string_view> computations)
      : in_(in), computation_bytes_(computations), module_(std::make_unique<Module>(CleanName(in.name(), "module"))) {}

  absl::StatusOr<std::unique_ptr<Module>> Read() {
    size_t bytes_in_all = 0;
    for (const absl::string_view bytes : computation_bytes_) bytes_in_all += bytes.size();
    module_->ReserveNames(std::min(bytes_in_all / kLikelyInstructionBytes, kMaxReserved));
    std::vector<absl::string_view> instructions;
    std::string rest;
    for (const absl::string_view bytes : computation_bytes_) {
      pb::Computation computation;
      instructions.clear();
      // program_shape is skipped, because the parameters and the root determine it.
      if (!SplitMessage(bytes, pb::Computation::kInstructionsFieldNumber, &instructions, &rest,
                   pb::Computation::kProgramShapeFieldNumber)) {
        return NoModule();
      }
      if (!MergeMessage(rest, &computation)) return NoModule();
      const absl::Status status = ReadComputation(computation, instructions);
      if (!status.ok()) {
        return Annotate(status, absl::StrCat("computation %", CleanName(computation.name(), "?")));
      }
    }
    XLAD_RETURN_IF_ERROR(FindEntry());
    XLAD_RETURN_IF_ERROR(ReadHeader());
    return std::move(module_);
  }

 private:
  static constexpr size_t kLikelyInstructionBytes = 128, kMaxReserved = 1 << 16;
  static constexpr size_t kMessageBytes = 1 << 14;  // Sufficient for most instructions.

  absl::Status ReadComputation(const pb::Computation& in, absl::Span<const absl::string_view> instruction_bytes) {
    Computation* const computation =
        module_->Add(std::make_unique<Computation>(CleanName(in.name(), "computation")));
    InstructionMap instructions(instruction_bytes.size());
    // All messages use the same memory in turn, so that it stays in the cache.
    google::protobuf::ArenaOptions options;
    options.initial_block = message_memory_.data();
    options.initial_block_size = message_memory_.size();
    google::protobuf::Arena arena(options);
    for (const absl::string_view bytes : instruction_bytes) {
      if (!fields_.Read(bytes, &merged_)) return NoModule();
      const pb::Instruction* rest = &pb::Instruction::default_instance();
      if (!fields_.rest.empty()) {
        arena.Reset();
        auto* const message = google::protobuf::Arena::CreateMessage<pb::Instruction>(&arena);
        if (!MergeMessage(fields_.rest, message)) return NoModule();
        rest = message;
      }
      const absl::Status status = ReadInstruction(*rest, in.id(), computation, &instructions);
      if (!status.ok()) {
        return Annotate(status, absl::StrCat("instruction %", CleanName(fields_.name, "?")));
      }
    }
    Instruction* const root = Find(instructions, in.id(), in.root_id());
    if (root == nullptr) {
      return Bad(absl::StrCat("found root id ", in.root_id(), ", expected the id of one of its instructions"));
    }
    computation->set_root(root);
    computation->set_is_fusion(in.is_fusion_computation());
    computation->set_execution_thread(in.execution_thread() == "main" ? "" : in.execution_thread());
    XLAD_RETURN_IF_ERROR(CheckParameters(*computation));
    XLAD_RETURN_IF_ERROR(ReadOrder(in.id(), instructions, computation));
    // The id is entered only after the body is read, because a computation cannot call itself.
    if (!computations_.emplace(in.id(), computation).second) {
      return Bad(absl::StrCat("found computation id ", in.id(), " again, expected each once"));
    }
    return absl::OkStatus();
  }

  // Reorders the instructions as in the schedule, which may differ from the order of the list.
  absl::Status ReadOrder(int64_t id, const InstructionMap& instructions, Computation* computation) const {
    const auto found = in_.schedule().sequences().find(id);
    if (found == in_.schedule().sequences().end()) return absl::OkStatus();
    std::vector<Instruction*> order;
    absl::flat_hash_set<const Instruction*> before;
    for (const int64_t scheduled : found->second.instruction_ids()) {
      Instruction* const instruction = Find(instructions, id, scheduled);
      if (instruction == nullptr || before.contains(instruction)) {
        return Bad(absl::StrCat("found id ", scheduled, " in the schedule, expected the id of each instruction once"));
      }
      const auto late = [&](const Instruction* input) { return !before.contains(input); };
      if (std::any_of(instruction->operands().begin(), instruction->operands().end(), late) ||
          std::any_of(instruction->control_predecessors().begin(), instruction->control_predecessors().end(), late)) {
        return Bad(absl::StrCat("found %", instruction->name(),
                                " before its operands in the schedule, expected it after its inputs"));
      }
      before.insert(instruction);
      order.push_back(instruction);
    }
    if (order.size() != computation->instructions().size()) {
      return Bad(absl::StrCat("found a schedule of ", order.size(), " instructions, expected all ",
                              computation->instructions().size()));
    }
    computation->SetOrder(order);
    return absl::OkStatus();
  }

  absl::Status CheckParameters(const Computation& computation) {
    const auto is_parameter = [](const auto& i) { return i->opcode() == Opcode::kParameter; };
    const auto& instructions = computation.instructions();
    const auto count = std::count_if(instructions.begin(), instructions.end(), is_parameter);
    const std::vector<Instruction*>& parameters = computation.parameters();
    if (std::ssize(parameters) == count && !Contains(parameters, nullptr)) {
      return absl::OkStatus();
    }
    if (count == 1) return Bad("found 1 parameter, expected number 0");
    return Bad(absl::StrCat("found ", count, " parameters, expected numbers 0 to ", count - 1, ", each once"));
  }

  // Ids are unique in the computation or in the module. Both kinds may have the id of the computation in the upper
  // half.
  static Instruction* Find(const InstructionMap& instructions, int64_t computation_id, int64_t id) {
    for (const int64_t candidate : {id, id & 0xFFFFFFFF, computation_id << 32 | id}) {
      if (Instruction* const found = instructions.Find(candidate); found != nullptr) return found;
    }
    return nullptr;
  }

  // `in` has the fields of the message that are not in fields_.
  absl::Status ReadInstruction(const pb::Instruction& in, int64_t computation_id, Computation* computation,
                               InstructionMap* instructions) {
    const std::optional<Opcode> opcode = ParseOpcode(fields_.opcode);
    if (!opcode.has_value()) {
      return Bad(absl::StrCat("found unknown opcode \"", absl::CEscape(fields_.opcode.substr(0, 64)),
                              "\", expected an opcode of HLO", Suggestion(fields_.opcode, OpcodeNames())));
    }
    Shape shape;
    XLAD_RETURN_IF_ERROR(shared_.ShapeOf(fields_.shape, &shape));
    std::unique_ptr<Instruction> instruction = module_->NewInstruction(*opcode, std::move(shape));
    instruction->set_name(CleanName(fields_.name, ToString(*opcode)));
    XLAD_RETURN_IF_ERROR(ReadMembers(in, instruction.get()));
    operands_.clear();
    for (const int64_t id : fields_.operand_ids) {
      operands_.push_back(Find(*instructions, computation_id, id));
      if (operands_.back() == nullptr) {
        return Bad(absl::StrCat("found operand id ", id, ", expected the id of an instruction before this one"));
      }
    }
    for (const int64_t id : fields_.control_predecessor_ids) {
      Instruction* const before = Find(*instructions, computation_id, id);
      if (before == nullptr) {
        return Bad(absl::StrCat("found control predecessor id ", id, ", expected an instruction before this one"));
      }
      instruction->AddControlPredecessor(before);
    }
    Instruction* const added = computation->Add(std::move(instruction), operands_);
    if (!instructions->Insert(fields_.id, added)) {
      return Bad(absl::StrCat("found instruction id ", fields_.id, " again, expected each once"));
    }
    return ReadAttributes(in, added);
  }

  absl::Status ReadMembers(const pb::Instruction& in, Instruction* instruction) {
    instruction->set_dimensions(fields_.dimensions);
    const Opcode opcode = instruction->opcode();
    if (opcode == Opcode::kParameter) {
      if (fields_.parameter_number < 0) return Bad("found a negative parameter number, expected one of at least 0");
      instruction->set_number(fields_.parameter_number);
    }
    if (opcode == Opcode::kGetTupleElement) instruction->set_number(fields_.tuple_index);
    if (opcode == Opcode::kConstant) {
      if (!in.has_literal()) return Bad("found a constant without a literal, expected one");
      auto literal = std::make_shared<Literal>();
      XLAD_RETURN_IF_ERROR(ReadLiteral(in.literal(), instruction->shape(), &elided_bytes_, literal.get()));
      instruction->set_literal(std::move(literal));
    }
    if (!fields_.metadata.empty()) {
      std::shared_ptr<const Metadata> metadata;
      XLAD_RETURN_IF_ERROR(shared_.MetadataOf(fields_.metadata, &metadata));
      instruction->set_metadata(std::move(metadata));
    }
    if (in.frontend_attributes().map_size() > 0) {
      instruction->mutable_frontend_attributes() = ReadStringMap(in.frontend_attributes());
    }
    if (in.has_sharding()) {
      auto sharding = std::make_unique<OpSharding>();
      XLAD_RETURN_IF_ERROR(ReadSharding(in.sharding(), sharding.get()));
      instruction->set_sharding(std::move(sharding));
    }
    return ReadCalled(instruction);
  }

  absl::Status ReadCalled(Instruction* instruction) {
    std::vector<Computation*>& called = instruction->mutable_called();
    for (const int64_t id : fields_.called_computation_ids) {
      const auto found = computations_.find(id);
      if (found == computations_.end()) {
        return Bad(
            absl::StrCat("found called computation id ", id, ", expected that of a computation before this one"));
      }
      called.push_back(found->second);
    }
    // The proto has the body of a loop before the condition.
    if (instruction->opcode() == Opcode::kWhile && called.size() == 2) std::swap(called[0], called[1]);
    if (instruction->opcode() == Opcode::kFusion && called.size() == 1) called[0]->set_is_fusion(true);
    return absl::OkStatus();
  }

  absl::Status FindEntry() {
    if (module_->computations().empty()) return Bad("found a module without computations, expected an entry");
    const auto found = computations_.find(in_.entry_computation_id());
    Computation* entry = found == computations_.end() ? nullptr : found->second;
    for (const auto& computation : module_->computations()) {
      if (entry == nullptr && computation->name() == in_.entry_computation_name()) entry = computation.get();
    }
    if (entry == nullptr) {
      return Bad(absl::StrCat("found entry computation id ", in_.entry_computation_id(),
                              ", expected the id of a computation"));
    }
    module_->set_entry(entry);
    if (module_->computations().back().get() != entry) module_->SortComputations();
    return absl::OkStatus();
  }

  absl::Status ReadHeader() {
    for (const pb::InputOutputAlias::Entry& entry : in_.input_output_alias().entries()) {
      XLAD_RETURN_IF_ERROR(CheckParameterNumber("input_output_alias", entry.parameter_number()));
      module_->input_output_alias.push_back({ToDims(entry.output_shape_index()), entry.parameter_number(),
                                             ToDims(entry.parameter_shape_index()), entry.kind() == 2});
    }
    for (const pb::BufferDonor::Entry& entry : in_.buffer_donor().entries()) {
      XLAD_RETURN_IF_ERROR(CheckParameterNumber("buffer_donor", entry.parameter_number()));
      module_->buffer_donors.push_back({entry.parameter_number(), ToDims(entry.parameter_shape_index())});
    }
    module_->frontend_attributes = ReadStringMap(in_.frontend_attributes());
    module_->is_scheduled = in_.has_schedule();
    module_->replica_count = std::max<int64_t>(1, in_.replica_count());
    module_->num_partitions = std::max<int64_t>(1, in_.num_partitions());
    module_->propagate_to_parameters.assign(in_.propagate_to_parameters().begin(), in_.propagate_to_parameters().end());
    module_->propagate_to_output.assign(in_.propagate_to_output().begin(), in_.propagate_to_output().end());
    module_->alias_passthrough_params = in_.alias_passthrough_params();
    module_->other = in_.other();
    XLAD_RETURN_IF_ERROR(CheckCarriedHeader(module_->other));
    ReadStackFrames();
    return ReadEntryLayout();
  }

  absl::Status CheckParameterNumber(absl::string_view what, int64_t number) {
    const auto count = std::ssize(module_->entry()->parameters());
    if (number >= 0 && number < count) return absl::OkStatus();
    const std::string numbers = count == 0 ? "none" : absl::StrCat("0 to ", count - 1);
    return Bad(absl::StrCat("found ", what, " with parameter ", number, ", expected ", numbers));
  }

  absl::Status ReadEntryLayout() {
    if (in_.no_entry_layout() || !in_.has_host_program_shape()) return absl::OkStatus();
    const pb::ProgramShape& shape = in_.host_program_shape();
    const Computation& entry = *module_->entry();
    bool same = shape.parameters_size() == std::ssize(entry.parameters());
    for (int i = 0; same && i < shape.parameters_size(); ++i) {
      Shape& parameter = module_->entry_parameter_layouts.emplace_back();
      XLAD_RETURN_IF_ERROR(ReadShape(shape.parameters(i), &parameter));
      same = parameter.SameIgnoringLayout(entry.parameter(i)->shape());
    }
    XLAD_RETURN_IF_ERROR(ReadShape(shape.result(), &module_->entry_result_layout));
    module_->has_entry_layout = true;
    if (same && module_->entry_result_layout.SameIgnoringLayout(entry.root()->shape())) return absl::OkStatus();
    return Bad("found another host_program_shape, expected the shapes of the entry's parameters and result");
  }

  void ReadStackFrames() {
    const pb::StackFrameIndex& in = in_.stack_frame_index();
    StackFrames& frames = module_->stack_frames;
    frames.file_names.assign(in.file_names().begin(), in.file_names().end());
    frames.function_names.assign(in.function_names().begin(), in.function_names().end());
    for (const pb::StackFrameIndex::Location& l : in.file_locations()) {
      frames.locations.push_back(
          {l.file_name_id(), l.function_name_id(), l.line(), l.end_line(), l.column(), l.end_column()});
    }
    for (const pb::StackFrameIndex::Frame& frame : in.stack_frames()) {
      // The text has the id of the parent plus one, in 32 bits.
      frames.frames.push_back({frame.file_location_id(), std::clamp(frame.parent_frame_id(), 0, INT_MAX - 1)});
    }
  }

  const pb::Module& in_;
  absl::Span<const absl::string_view> computation_bytes_;
  std::unique_ptr<Module> module_;
  absl::flat_hash_map<int64_t, Computation*> computations_;
  int64_t elided_bytes_ = 1 << 28;
  std::vector<char> message_memory_ = std::vector<char>(kMessageBytes);
  // The fields of the current instruction.
  InstructionFields fields_;
  std::vector<Instruction*> operands_;
  Bump merged_;  // Declared before shared_, which refers to it.
  SharedParts shared_;
};

// Reads a module from its bytes. Splits off the computations first, so that they are not parsed as one large message.
absl::StatusOr<std::unique_ptr<Module>> ReadBytes(absl::string_view bytes) {
  std::vector<absl::string_view> computations;
  std::string rest;
  pb::Module header;
  if (!SplitMessage(bytes, pb::Module::kComputationsFieldNumber, &computations, &rest)) return NoModule();
  if (!MergeMessage(rest, &header)) return NoModule();
  return ModuleReader(header, computations).Read();
}

// Finds the module inside an HloProto. The first field of an HloProto is a message, and that of a module is a name.
bool FindWrapped(absl::string_view bytes, absl::string_view* module) {
  std::vector<absl::string_view> modules, computations;
  if (!SplitMessage(bytes, pb::HloProto::kHloModuleFieldNumber, &modules, nullptr) || modules.size() != 1) return false;
  *module = modules[0];
  return SplitMessage(*module, pb::Module::kComputationsFieldNumber, &computations, nullptr) && !computations.empty();
}

}  // namespace

absl::Status NoModule() { return Bad("found bytes that are not an HloModuleProto (cut short, or of another format)"); }

absl::StatusOr<std::unique_ptr<Module>> ParseProto(absl::string_view bytes) {
  if (bytes.size() > INT_MAX) {
    return Bad(absl::StrCat("found ", bytes.size(), " bytes, expected at most 2 GiB, the most a proto can hold"));
  }
  absl::string_view wrapped;
  return ReadBytes(FindWrapped(bytes, &wrapped) ? wrapped : bytes);
}

}  // namespace xlad::hlo

#include "hlo/wire/instruction.h"

#include "hlo/text/parse.h"
#include "hlo/wire/wire_format.h"

namespace xlad::hlo {
namespace {

using Field = WireReader::Field;

bool AppendPacked(absl::string_view bytes, Dims* numbers) {
  WireReader reader(bytes);
  uint64_t number = 0;
  while (reader.NextVarint(&number)) numbers->push_back(number);
  return reader.ok();
}

absl::string_view* TextOf(InstructionFields* fields, uint32_t number) {
  switch (number) {
    case pb::Instruction::kNameFieldNumber:
      return &fields->name;
    case pb::Instruction::kOpcodeFieldNumber:
      return &fields->opcode;
    case pb::Instruction::kShapeFieldNumber:
      return &fields->shape;
    case pb::Instruction::kMetadataFieldNumber:
      return &fields->metadata;
    default:
      return nullptr;
  }
}

int64_t* NumberOf(InstructionFields* fields, uint32_t number) {
  switch (number) {
    case pb::Instruction::kIdFieldNumber:
      return &fields->id;
    case pb::Instruction::kParameterNumberFieldNumber:
      return &fields->parameter_number;
    case pb::Instruction::kTupleIndexFieldNumber:
      return &fields->tuple_index;
    default:
      return nullptr;
  }
}

Dims* NumbersOf(InstructionFields* fields, uint32_t number) {
  switch (number) {
    case pb::Instruction::kDimensionsFieldNumber:
      return &fields->dimensions;
    case pb::Instruction::kOperandIdsFieldNumber:
      return &fields->operand_ids;
    case pb::Instruction::kControlPredecessorIdsFieldNumber:
      return &fields->control_predecessor_ids;
    case pb::Instruction::kCalledComputationIdsFieldNumber:
      return &fields->called_computation_ids;
    default:
      return nullptr;
  }
}

// Returns true for the messages that are dropped: statistics, and frontend_attributes if it is empty. XLA writes both
// into every instruction.
bool IsDropped(const Field& field) {
  constexpr uint32_t kStatistics = 82;
  return field.number == kStatistics ||
         (field.bytes.empty() && field.number == pb::Instruction::kFrontendAttributesFieldNumber);
}

}  // namespace

bool InstructionFields::Scan(absl::string_view bytes, bool* merged) {
  name = opcode = shape = metadata = {};
  id = parameter_number = tuple_index = 0;
  for (Dims* numbers : {&dimensions, &operand_ids, &control_predecessor_ids, &called_computation_ids}) numbers->clear();
  rest.clear();
  WireReader reader(bytes);
  Field field;
  while (reader.Next(&field)) {
    if (field.type == WireReader::kBytes) {
      if (absl::string_view* const text = TextOf(this, field.number); text != nullptr) {
        *merged |= text->data() != nullptr;
        *text = field.bytes;
        continue;
      }
      if (IsDropped(field)) continue;
    } else if (field.type == WireReader::kVarint) {
      if (int64_t* const number = NumberOf(this, field.number); number != nullptr) {
        *number = field.value;
        continue;
      }
    }
    Dims* const numbers = NumbersOf(this, field.number);
    if (numbers != nullptr && field.type == WireReader::kVarint) {
      numbers->push_back(field.value);
    } else if (numbers != nullptr && field.type == WireReader::kBytes) {
      if (!AppendPacked(field.bytes, numbers)) return false;
    } else {
      rest.append(field.whole.data(), field.whole.size());
    }
  }
  return reader.ok();
}

bool InstructionFields::Read(absl::string_view bytes, Bump* memory) {
  bool merged = false;
  if (!Scan(bytes, &merged)) return false;
  if (!merged) return true;
  // A message may be split into several pieces, which protobuf merges.
  pb::Instruction whole;
  return MergeMessage(bytes, &whole) && Scan(memory->Keep(whole.SerializeAsString()), &merged);
}

absl::Status SharedParts::ShapeOf(absl::string_view bytes, Shape* shape) {
  const auto found = shapes_.find(bytes);
  if (found != shapes_.end()) {
    *shape = found->second;
    return absl::OkStatus();
  }
  pb::Shape message;
  if (!MergeMessage(bytes, &message)) return NoModule();
  XLAD_RETURN_IF_ERROR(ReadShape(message, shape));
  shapes_.emplace(bytes, *shape);
  return absl::OkStatus();
}

absl::Status SharedParts::MetadataOf(absl::string_view bytes, std::shared_ptr<const Metadata>* metadata) {
  const auto found = metadata_.find(bytes);
  if (found != metadata_.end()) {
    *metadata = found->second;
    return absl::OkStatus();
  }
  pb::Metadata message;
  if (!MergeMessage(bytes, &message)) return NoModule();
  auto read = std::make_shared<Metadata>();
  ReadMetadata(&message, read.get());
  XLAD_RETURN_IF_ERROR(CheckMetadata(*read));
  *metadata = metadata_.emplace(bytes, std::move(read)).first->second;
  return absl::OkStatus();
}

}  // namespace xlad::hlo

// A fast reader of the serialized bytes of an instruction. It extracts the fields that most instructions have without
// parsing a protobuf message, because parsing messages dominates the time to read a large program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "hlo/bump.h"
#include "hlo/module.h"
#include "hlo/wire/parts.h"

namespace xlad::hlo {

struct InstructionFields {
  absl::string_view name, opcode;
  absl::string_view shape, metadata;  // The bytes of the messages.
  int64_t id = 0, parameter_number = 0, tuple_index = 0;
  Dims dimensions, operand_ids, control_predecessor_ids, called_computation_ids;
  std::string rest;  // The bytes of the other fields, with their tags.

  // Reads the fields from the bytes of a pb::Instruction. The fields refer to `bytes` or to `memory`. Returns false if
  // the bytes are not a valid message.
  bool Read(absl::string_view bytes, Bump* memory);

 private:
  bool Scan(absl::string_view bytes, bool* merged);
};

// A cache of shapes and metadata, because a program has few distinct ones. The keys are their serialized bytes, which
// must outlive the cache.
class SharedParts {
 public:
  absl::Status ShapeOf(absl::string_view bytes, Shape* shape);
  absl::Status MetadataOf(absl::string_view bytes, std::shared_ptr<const Metadata>* metadata);

 private:
  absl::flat_hash_map<absl::string_view, Shape> shapes_;
  absl::flat_hash_map<absl::string_view, std::shared_ptr<const Metadata>> metadata_;
};

// The InvalidArgument error for bytes that are not an HloModuleProto.
absl::Status NoModule();

}  // namespace xlad::hlo

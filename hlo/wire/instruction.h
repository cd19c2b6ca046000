// An instruction's bytes, taken apart: the fields that most instructions have, found without making a message of them.
// Reading a message takes longer than all that follows, and programs say the same few shapes and metadata throughout.
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
  absl::string_view shape, metadata;  // Bytes of messages.
  int64_t id = 0, parameter_number = 0, tuple_index = 0;
  Dims dimensions, operand_ids, control_predecessor_ids, called_computation_ids;
  std::string rest;  // The bytes of the other fields.

  // Takes them from a pb::Instruction's bytes. What it holds refers to those, or to `memory`. False where they are no
  // message.
  bool Read(absl::string_view bytes, Bump* memory);

 private:
  bool Scan(absl::string_view bytes, bool* merged);
};

// Shapes and metadata by their bytes, which must live on.
class SharedParts {
 public:
  absl::Status ShapeOf(absl::string_view bytes, Shape* shape);
  absl::Status MetadataOf(absl::string_view bytes, std::shared_ptr<const Metadata>* metadata);

 private:
  absl::flat_hash_map<absl::string_view, Shape> shapes_;
  absl::flat_hash_map<absl::string_view, std::shared_ptr<const Metadata>> metadata_;
};

absl::Status NoModule();

}  // namespace xlad::hlo

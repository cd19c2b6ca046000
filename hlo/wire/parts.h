// Conversion of the parts of a module to and from protos. Internal: other folders call hlo/wire/proto.h.
//
// Readers return errors "found ..., expected ..."; the callers add the computation and the instruction.
#pragma once

#include <limits>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "hlo/module.h"
#include "proto/hlo.pb.h"

namespace xlad::hlo {

namespace pb = ::xlad::hlo_proto;

// The element type numbers of the proto that are not the types of arrays.
inline constexpr int kTupleType = 13;
inline constexpr int kOpaqueType = 14;
inline constexpr int kTokenType = 17;
inline constexpr int kBufferType = 34;
// The size of an unbounded dimension in the proto.
inline constexpr int64_t kUnboundedSize = std::numeric_limits<int64_t>::min();

template <typename From, typename To>
void CopyInts(const From& from, google::protobuf::RepeatedField<To>* to) {
  to->Reserve(from.size());
  for (const auto value : from) to->Add(static_cast<To>(value));
}
template <typename From>
Dims ToDims(const google::protobuf::RepeatedField<From>& from) {
  return Dims(from.begin(), from.end());
}

// write_parts.cc. Arrays always get a layout, because other readers require one.
void WriteShape(const Shape& shape, pb::Shape* out);
void WriteMetadata(const Metadata& metadata, pb::Metadata* out);
void WriteStringMap(const StringMap& map, pb::FrontendAttributes* out);
void WriteProgramShape(const Computation& computation, pb::ProgramShape* out);
// write_literal.cc
void WriteLiteral(const Literal& literal, const Shape& shape, pb::Literal* out);
// write_sharding.cc
void WriteSharding(const OpSharding& sharding, pb::OpSharding* out);
void WriteReplicaGroups(const ReplicaGroups& groups, pb::Instruction* out);
// write_attributes.cc
void WriteAttributes(const Instruction& instruction, pb::Instruction* out);

// read_parts.cc
absl::Status ReadShape(const pb::Shape& in, Shape* shape);
void ReadMetadata(pb::Metadata* taken, Metadata* metadata);  // Moves the strings out of `taken`.
StringMap ReadStringMap(const pb::FrontendAttributes& in);
// read_literal.cc. `elided_bytes` is the memory in bytes that elided constants may still use.
absl::Status ReadLiteral(const pb::Literal& in, const Shape& shape, int64_t* elided_bytes, Literal* literal);
// read_sharding.cc
absl::Status ReadSharding(const pb::OpSharding& in, OpSharding* sharding);
absl::Status ReadReplicaGroups(const pb::Instruction& in, ReplicaGroups* groups);
// read_attributes.cc: the instruction must have its operands.
absl::Status ReadAttributes(const pb::Instruction& in, Instruction* instruction);

// carried.cc: attributes without a meaning in xlad. They are stored as text, and also in XLA's fields for some of them.
void WriteCarried(absl::string_view other, pb::Instruction* out);
std::string ReadCarried(const pb::Instruction& in);

// The field of a literal proto that holds the elements of a type as bytes. Types below 8 bits have one byte per
// element.
struct LiteralBytes {
  ElementType type;
  const std::string& (pb::Literal::*get)() const;
  std::string* (pb::Literal::*mutate)();
};
const LiteralBytes* LiteralBytesOf(ElementType type);

// The text of a layout's suffix ("T(8,128)S(1)"). It has only the parts for which the proto has fields.
std::string LayoutSuffix(const pb::Layout& layout);

}  // namespace xlad::hlo

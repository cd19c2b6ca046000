// Inside the proto reader and writer: the parts of a module, to proto and back.
//
// Readers return an error "found ..., expected ..."; callers add the computation and the instruction.
#pragma once

#include <limits>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "hlo/module.h"
#include "proto/hlo.pb.h"

namespace xlad::hlo {

namespace pb = ::xlad::hlo_proto;

// Element types of the proto that are no array types.
inline constexpr int kTupleType = 13;
inline constexpr int kOpaqueType = 14;
inline constexpr int kTokenType = 17;
inline constexpr int kBufferType = 34;
// The size of a dimension without bound.
inline constexpr int64_t kUnboundedSize = std::numeric_limits<int64_t>::min();

template <typename From, typename To>
void CopyInts(const From& from, google::protobuf::RepeatedField<To>* to) {
  to->Reserve(static_cast<int>(from.size()));
  for (const auto value : from) to->Add(static_cast<To>(value));
}
template <typename From>
Dims ToDims(const google::protobuf::RepeatedField<From>& from) {
  return Dims(from.begin(), from.end());
}

// proto_write_parts.cc. Arrays always get a layout, because other readers want one.
void WriteShape(const Shape& shape, pb::Shape* out);
void WriteMetadata(const Metadata& metadata, pb::Metadata* out);
void WriteStringMap(const StringMap& map, pb::FrontendAttributes* out);
void WriteProgramShape(const Computation& computation, pb::ProgramShape* out);
// proto_write_literal.cc
void WriteLiteral(const Literal& literal, const Shape& shape, pb::Literal* out);
// proto_write_sharding.cc
void WriteSharding(const OpSharding& sharding, pb::OpSharding* out);
void WriteReplicaGroups(const ReplicaGroups& groups, pb::Instruction* out);
// proto_write_attributes.cc
void WriteAttributes(const Instruction& instruction, pb::Instruction* out);

// proto_read_parts.cc
absl::Status ReadShape(const pb::Shape& in, Shape* shape);
void ReadMetadata(pb::Metadata* taken, Metadata* metadata);  // Its strings are moved out.
StringMap ReadStringMap(const pb::FrontendAttributes& in);
// proto_read_literal.cc. `elided_bytes`: what constants without values may still take.
absl::Status ReadLiteral(const pb::Literal& in, const Shape& shape, int64_t* elided_bytes, Literal* literal);
// proto_read_sharding.cc
absl::Status ReadSharding(const pb::OpSharding& in, OpSharding* sharding);
absl::Status ReadReplicaGroups(const pb::Instruction& in, ReplicaGroups* groups);
// proto_read_attributes.cc; the instruction has its operands.
absl::Status ReadAttributes(const pb::Instruction& in, Instruction* instruction);

// proto_carried.cc: attributes that are only carried, as text and in the fields that XLA has for them.
void WriteCarried(absl::string_view other, pb::Instruction* out);
std::string ReadCarried(const pb::Instruction& in);

// Fields of literals that hold a type's elements as bytes, one element after the other or (below 8 bits) packed.
struct LiteralBytes {
  ElementType type;
  const std::string& (pb::Literal::*get)() const;
  std::string* (pb::Literal::*mutate)();
};
const LiteralBytes* LiteralBytesOf(ElementType type);

// The layout's suffix in text ("T(8,128)S(1)") as far as the proto's own fields say it.
std::string LayoutSuffix(const pb::Layout& layout);

}  // namespace xlad::hlo

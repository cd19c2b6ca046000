// The parts of the HLO text printer. Internal: other folders call hlo/text/text.h.
#pragma once

#include <string>

#include "hlo/module.h"

namespace xlad::hlo {

// print_values.cc
void AppendInts(absl::Span<const int64_t> values, std::string* out);  // {1,2,3}
void AppendBools(const std::vector<bool>& values, std::string* out);
void AppendQuoted(absl::string_view value, std::string* out);
void AppendStringMap(const StringMap& map, std::string* out);
void AppendMetadata(const Metadata& metadata, std::string* out);
void AppendWindow(const Window& window, std::string* out);
void AppendConvolutionDimensions(const ConvolutionDimensions& dimensions, std::string* out);
void AppendPadding(const std::vector<PaddingDimension>& padding, std::string* out);
void AppendSlice(const std::vector<SliceDimension>& slice, std::string* out);
void AppendPairs(const std::vector<std::pair<int64_t, int64_t>>& pairs, std::string* out);
void AppendShapes(const std::vector<Shape>& shapes, std::string* out);
void AppendOperandAliasing(const std::vector<OutputOperandAlias>& aliasing, std::string* out);
void AppendFloat(float value, std::string* out);

// print_literal.cc
void AppendLiteral(const Literal& literal, std::string* out);

// print_sharding.cc
void AppendSharding(const OpSharding& sharding, std::string* out);
void AppendReplicaGroups(const ReplicaGroups& groups, std::string* out);

}  // namespace xlad::hlo

// Reads the attributes of an instruction from a proto: one small function per group of opcodes.
#include <algorithm>

#include "hlo/enum_names.h"
#include "hlo/text/attribute_table.h"
#include "hlo/text/parse.h"
#include "hlo/wire/parts.h"

namespace xlad::hlo {
namespace {

// Finds the word of an enum's number, or returns an error.
absl::Status ReadWord(absl::string_view what, Words words, int64_t number, std::string* word) {
  if (number < 0 || number >= std::ssize(words)) {
    return absl::InvalidArgumentError(absl::StrCat("found ", what, " number ", number, ", expected 0 to ",
                                                   words.size() - 1, " (", absl::StrJoin(words, ", "), ")"));
  }
  *word = std::string(WordOf(words, number));
  return absl::OkStatus();
}

DotDimensions ReadDot(const pb::DotDimensionNumbers& in) {
  return {ToDims(in.lhs_batch_dimensions()), ToDims(in.rhs_batch_dimensions()),
          ToDims(in.lhs_contracting_dimensions()), ToDims(in.rhs_contracting_dimensions())};
}

absl::Status ReadContraction(const pb::Instruction& in, Attributes* a) {
  if (in.has_dot_dimension_numbers()) a->dot = ReadDot(in.dot_dimension_numbers());
  if (in.has_ragged_dot_dimension_numbers()) {
    a->dot = ReadDot(in.ragged_dot_dimension_numbers().dot_dimension_numbers());
    a->ragged_dims = ToDims(in.ragged_dot_dimension_numbers().lhs_ragged_dimensions());
    a->group_dims = ToDims(in.ragged_dot_dimension_numbers().rhs_group_dimensions());
  }
  for (const int precision : in.precision_config().operand_precision()) {
    XLAD_RETURN_IF_ERROR(ReadWord("precision", kPrecisions, precision, &a->operand_precision.emplace_back()));
  }
  if (in.precision_config().algorithm() != 0) {
    XLAD_RETURN_IF_ERROR(
        ReadWord("dot algorithm", kDotAlgorithms, in.precision_config().algorithm(), &a->algorithm));
  }
  return absl::OkStatus();
}

void ReadConvolution(const pb::ConvolutionDimensionNumbers& in, ConvolutionDimensions* d) {
  d->input_batch = in.input_batch_dimension();
  d->input_feature = in.input_feature_dimension();
  d->kernel_input_feature = in.kernel_input_feature_dimension();
  d->kernel_output_feature = in.kernel_output_feature_dimension();
  d->output_batch = in.output_batch_dimension();
  d->output_feature = in.output_feature_dimension();
  d->input_spatial = ToDims(in.input_spatial_dimensions());
  d->kernel_spatial = ToDims(in.kernel_spatial_dimensions());
  d->output_spatial = ToDims(in.output_spatial_dimensions());
}

// Returns true if labels can represent the dimensions: no dimension has two roles, at most 10 are spatial, and all
// numbers are 0 to 63. The verifier checks everything else.
bool HaveLabels(int64_t first, int64_t second, Dims dims) {
  constexpr size_t kMaxSpatial = 10;  // Labels have one digit per dimension.
  constexpr int64_t kMaxDimensions = 64;
  if (dims.size() > kMaxSpatial) return false;
  dims.push_back(first);
  dims.push_back(second);
  std::sort(dims.begin(), dims.end());
  return dims.front() >= 0 && dims.back() < kMaxDimensions &&
         std::adjacent_find(dims.begin(), dims.end()) == dims.end();
}

absl::Status CheckLabels(const ConvolutionDimensions& d) {
  const bool fit = HaveLabels(d.input_batch, d.input_feature, d.input_spatial) &&
                   HaveLabels(d.kernel_input_feature, d.kernel_output_feature, d.kernel_spatial) &&
                   HaveLabels(d.output_batch, d.output_feature, d.output_spatial);
  if (fit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "found convolution dimensions with two roles or none, or more than labels can represent, expected one role each, "
      "at most 10 spatial dimensions, and numbers from 0 to 63");
}

void ReadGather(const pb::Instruction& in, Attributes* a) {
  if (in.has_gather_dimension_numbers()) {
    const pb::GatherDimensionNumbers& n = in.gather_dimension_numbers();
    a->gather = GatherDimensions{ToDims(n.offset_dims()),           ToDims(n.collapsed_slice_dims()),
                                 ToDims(n.start_index_map()),       ToDims(n.operand_batching_dims()),
                                 ToDims(n.start_indices_batching_dims()), n.index_vector_dim()};
  }
  if (in.has_scatter_dimension_numbers()) {
    const pb::ScatterDimensionNumbers& n = in.scatter_dimension_numbers();
    a->scatter = ScatterDimensions{ToDims(n.update_window_dims()),  ToDims(n.inserted_window_dims()),
                                   ToDims(n.scatter_dims_to_operand_dims()), ToDims(n.input_batching_dims()),
                                   ToDims(n.scatter_indices_batching_dims()), n.index_vector_dim()};
  }
  a->indices_are_sorted = in.indices_are_sorted();
  a->unique_indices = in.unique_indices();
}

void ReadWindow(const pb::Window& in, Window* window) {
  for (const pb::Window::Dimension& d : in.dimensions()) {
    window->push_back({d.size(), d.stride(), d.padding_low(), d.padding_high(), d.window_dilation(), d.base_dilation(),
                       d.window_reversal()});
  }
}

void ReadSlices(const pb::Instruction& in, Attributes* a) {
  for (const pb::Instruction::SliceDimensions& d : in.slice_dimensions()) {
    a->slice.push_back({d.start(), d.limit(), d.stride()});
  }
  for (const pb::PaddingConfig::Dimension& d : in.padding_config().dimensions()) {
    a->padding.push_back({d.edge_padding_low(), d.edge_padding_high(), d.interior_padding()});
  }
  a->slice_sizes = ToDims(in.gather_slice_sizes_size() > 0 ? in.gather_slice_sizes() : in.dynamic_slice_sizes());
}

absl::Status ReadLinearAlgebra(const pb::Instruction& in, Opcode opcode, Attributes* a) {
  a->fft_length = ToDims(in.fft_length());
  a->lower = opcode == Opcode::kCholesky ? in.cholesky_options().lower() : in.triangular_solve_options().lower();
  a->left_side = in.triangular_solve_options().left_side();
  a->unit_diagonal = in.triangular_solve_options().unit_diagonal();
  if (opcode == Opcode::kTriangularSolve && in.triangular_solve_options().transpose_a() != 0) {
    return ReadWord("transpose_a", kTransposes, in.triangular_solve_options().transpose_a(), &a->transpose_a);
  }
  return opcode == Opcode::kFft ? ReadWord("FFT type", kFftTypes, in.fft_type(), &a->fft_type) : absl::OkStatus();
}

absl::Status ReadCompare(const pb::Instruction& in, Attributes* a) {
  const std::optional<int64_t> direction = IndexOf(kComparisons, in.comparison_direction());
  const std::optional<int64_t> type = IndexOf(kComparisonTypes, in.comparison_type());
  if (!direction.has_value()) {
    return absl::InvalidArgumentError("found no known comparison direction, expected EQ, NE, GE, GT, LE or LT");
  }
  if (!type.has_value()) {
    return absl::InvalidArgumentError(
        "found an unknown comparison type, expected FLOAT, TOTALORDER, SIGNED or UNSIGNED");
  }
  a->comparison = static_cast<Comparison>(*direction);
  a->comparison_type = static_cast<ComparisonType>(*type);
  return absl::OkStatus();
}

absl::Status ReadNumbers(const pb::Instruction& in, Opcode opcode, Attributes* a) {
  if (opcode == Opcode::kCompare) XLAD_RETURN_IF_ERROR(ReadCompare(in, a));
  a->exponent_bits = in.exponent_bits();
  a->mantissa_bits = in.mantissa_bits();
  a->epsilon = in.epsilon();
  a->feature_index = in.feature_index();
  if (opcode == Opcode::kRng) {
    XLAD_RETURN_IF_ERROR(ReadWord("distribution", kDistributions, in.distribution(), &a->rng_distribution));
  }
  if (opcode == Opcode::kRngBitGenerator) {
    XLAD_RETURN_IF_ERROR(ReadWord("algorithm", kRngAlgorithms, in.rng_algorithm(), &a->rng_algorithm));
  }
  // Older protos of a topk do not set is_stable, although it is true.
  a->is_stable = opcode == Opcode::kTopk ? !in.unstable() : in.is_stable();
  a->k = in.k();
  a->largest = opcode == Opcode::kTopk ? in.largest() : true;
  a->is_reverse = in.is_reverse();
  a->num_carries = in.num_carries();
  return ReadWord("is_associative", kTriStates, in.is_associative(), &a->is_associative);
}

absl::Status ReadCollective(const pb::Instruction& in, Attributes* a) {
  XLAD_RETURN_IF_ERROR(ReadReplicaGroups(in, &a->replica_groups));
  if (in.channel_id() > 0 || in.has_channel_id()) a->channel_id = in.channel_id();
  a->use_global_device_ids = in.use_global_device_ids();
  a->constrain_layout = in.constrain_layout();
  a->is_host_transfer = in.is_host_transfer();
  for (const pb::SourceTarget& pair : in.source_target_pairs()) {
    a->source_target_pairs.emplace_back(pair.source(), pair.target());
  }
  a->parameter_replication.assign(in.parameter_replication().replicated_at_leaf_buffers().begin(),
                                  in.parameter_replication().replicated_at_leaf_buffers().end());
  return absl::OkStatus();
}

absl::Status ReadCalls(const pb::Instruction& in, Opcode opcode, Attributes* a) {
  a->fusion_kind = in.fusion_kind();
  if (!a->fusion_kind.empty() && !IndexOf(kFusionKinds, a->fusion_kind).has_value()) {
    return absl::InvalidArgumentError("found an unknown fusion kind, expected kLoop, kInput, kOutput or kCustom");
  }
  a->custom_call_target = in.custom_call_target();
  if (opcode == Opcode::kCustomCall) {
    XLAD_RETURN_IF_ERROR(ReadWord("API version", kApiVersions, in.custom_call_api_version(), &a->api_version));
    if (in.custom_call_api_version() == 0) a->api_version.clear();
  }
  a->feature_group_count = std::max<int64_t>(1, in.feature_group_count());
  a->batch_group_count = std::max<int64_t>(1, in.batch_group_count());
  a->has_side_effect = in.custom_call_has_side_effect();
  for (const pb::Shape& shape : in.operand_shapes_with_layout()) {
    XLAD_RETURN_IF_ERROR(ReadShape(shape, &a->operand_layout_constraints.emplace_back()));
  }
  for (const pb::OutputOperandAliasing& alias : in.output_operand_aliasing()) {
    a->output_operand_aliasing.push_back(
        {ToDims(alias.output_shape_index()), alias.operand_index(), ToDims(alias.operand_shape_index())});
  }
  a->infeed_config = in.infeed_config();
  a->outfeed_config = in.outfeed_config();
  if (in.has_outfeed_shape()) XLAD_RETURN_IF_ERROR(ReadShape(in.outfeed_shape(), &a->outfeed_shape));
  a->async_execution_thread = in.async_execution_thread();
  return absl::OkStatus();
}

// Reads the attributes that every opcode may have. The text in `other` is untrusted and must be checked.
absl::Status ReadCommon(const pb::Instruction& in, std::string other, Attributes* a) {
  a->backend_config = in.backend_config();
  a->backend_config_is_json = IsBracedValue(a->backend_config);
  a->other = std::move(other);
  return CheckCarried(a->other);
}

// Returns true if the opcode has attributes of its own that are members of Attributes.
bool HasOwnAttributes(Opcode opcode) {
  static const auto* const table = [] {
    static constexpr absl::string_view kElsewhere[] = {
        "dimensions", "iota_dimension", "index", "condition", "body", "true_computation", "false_computation",
        "branch_computations", "to_apply", "sharding", "frontend_attributes", "control-predecessors", "metadata",
        "backend_config"};
    auto* const own = new std::vector<bool>(OpcodeCount(), false);
    for (int o = 0; o < OpcodeCount(); ++o) {
      for (const AttributeRow* const row : AttributeRows(static_cast<Opcode>(o))) {
        if (!IndexOf(kElsewhere, row->name).has_value()) (*own)[o] = true;
      }
    }
    return own;
  }();
  return (*table)[Index(opcode)];
}

}  // namespace

absl::Status ReadAttributes(const pb::Instruction& in, Instruction* instruction) {
  const Opcode opcode = instruction->opcode();
  std::string other = in.other().empty() ? ReadCarried(in) : in.other();
  if (!HasOwnAttributes(opcode)) {
    if (other.empty() && in.backend_config().empty()) return absl::OkStatus();
    return ReadCommon(in, std::move(other), &instruction->mutable_attributes());
  }
  // A local object, which is dropped if no attribute is set.
  Attributes a;
  XLAD_RETURN_IF_ERROR(ReadContraction(in, &a));
  if (in.has_convolution_dimension_numbers()) {
    ReadConvolution(in.convolution_dimension_numbers(), &a.convolution.emplace());
    if (opcode == Opcode::kCustomCall) XLAD_RETURN_IF_ERROR(CheckLabels(*a.convolution));
  }
  ReadGather(in, &a);
  if (in.has_window()) ReadWindow(in.window(), &a.window.emplace());
  ReadSlices(in, &a);
  XLAD_RETURN_IF_ERROR(ReadLinearAlgebra(in, opcode, &a));
  XLAD_RETURN_IF_ERROR(ReadNumbers(in, opcode, &a));
  XLAD_RETURN_IF_ERROR(ReadCollective(in, &a));
  XLAD_RETURN_IF_ERROR(ReadCalls(in, opcode, &a));
  XLAD_RETURN_IF_ERROR(ReadCommon(in, std::move(other), &a));
  static const Attributes* const none = new Attributes();
  if (!(a == *none)) instruction->mutable_attributes() = std::move(a);
  Canonicalize(instruction, instruction->operands());
  return absl::OkStatus();
}

}  // namespace xlad::hlo

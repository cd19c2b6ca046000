// Writes the attributes of an instruction to a proto: one small function per group of opcodes.
#include "hlo/enum_names.h"
#include "hlo/wire/parts.h"

namespace xlad::hlo {
namespace {

int NumberOf(Words words, absl::string_view word) { return IndexOf(words, word).value_or(0); }

void WriteDot(const DotDimensions& dot, pb::DotDimensionNumbers* out) {
  CopyInts(dot.lhs_batch, out->mutable_lhs_batch_dimensions());
  CopyInts(dot.rhs_batch, out->mutable_rhs_batch_dimensions());
  CopyInts(dot.lhs_contracting, out->mutable_lhs_contracting_dimensions());
  CopyInts(dot.rhs_contracting, out->mutable_rhs_contracting_dimensions());
}

void WriteContraction(const Instruction& i, const Attributes& a, pb::Instruction* out) {
  if (a.dot.has_value() && i.opcode() == Opcode::kRaggedDot) {
    pb::RaggedDotDimensionNumbers* const ragged = out->mutable_ragged_dot_dimension_numbers();
    WriteDot(*a.dot, ragged->mutable_dot_dimension_numbers());
    CopyInts(a.ragged_dims, ragged->mutable_lhs_ragged_dimensions());
    CopyInts(a.group_dims, ragged->mutable_rhs_group_dimensions());
  } else if (a.dot.has_value()) {
    WriteDot(*a.dot, out->mutable_dot_dimension_numbers());
  }
  for (const std::string& precision : a.operand_precision) {
    out->mutable_precision_config()->add_operand_precision(NumberOf(kPrecisions, precision));
  }
  if (!a.algorithm.empty()) out->mutable_precision_config()->set_algorithm(NumberOf(kDotAlgorithms, a.algorithm));
}

void WriteConvolution(const Attributes& a, pb::Instruction* out) {
  if (!a.convolution.has_value()) return;
  const ConvolutionDimensions& d = *a.convolution;
  pb::ConvolutionDimensionNumbers* const numbers = out->mutable_convolution_dimension_numbers();
  numbers->set_input_batch_dimension(d.input_batch);
  numbers->set_input_feature_dimension(d.input_feature);
  numbers->set_kernel_input_feature_dimension(d.kernel_input_feature);
  numbers->set_kernel_output_feature_dimension(d.kernel_output_feature);
  numbers->set_output_batch_dimension(d.output_batch);
  numbers->set_output_feature_dimension(d.output_feature);
  CopyInts(d.input_spatial, numbers->mutable_input_spatial_dimensions());
  CopyInts(d.kernel_spatial, numbers->mutable_kernel_spatial_dimensions());
  CopyInts(d.output_spatial, numbers->mutable_output_spatial_dimensions());
}

void WriteGather(const Attributes& a, pb::Instruction* out) {
  if (a.gather.has_value()) {
    const GatherDimensions& d = *a.gather;
    pb::GatherDimensionNumbers* const numbers = out->mutable_gather_dimension_numbers();
    CopyInts(d.offset_dims, numbers->mutable_offset_dims());
    CopyInts(d.collapsed_slice_dims, numbers->mutable_collapsed_slice_dims());
    CopyInts(d.start_index_map, numbers->mutable_start_index_map());
    CopyInts(d.operand_batching_dims, numbers->mutable_operand_batching_dims());
    CopyInts(d.start_indices_batching_dims, numbers->mutable_start_indices_batching_dims());
    numbers->set_index_vector_dim(d.index_vector_dim);
  }
  if (a.scatter.has_value()) {
    const ScatterDimensions& d = *a.scatter;
    pb::ScatterDimensionNumbers* const numbers = out->mutable_scatter_dimension_numbers();
    CopyInts(d.update_window_dims, numbers->mutable_update_window_dims());
    CopyInts(d.inserted_window_dims, numbers->mutable_inserted_window_dims());
    CopyInts(d.scatter_dims_to_operand_dims, numbers->mutable_scatter_dims_to_operand_dims());
    CopyInts(d.input_batching_dims, numbers->mutable_input_batching_dims());
    CopyInts(d.scatter_indices_batching_dims, numbers->mutable_scatter_indices_batching_dims());
    numbers->set_index_vector_dim(d.index_vector_dim);
  }
  out->set_indices_are_sorted(a.indices_are_sorted);
  out->set_unique_indices(a.unique_indices);
}

void WriteWindow(const Instruction& i, const Attributes& a, pb::Instruction* out) {
  const bool windowed = i.opcode() == Opcode::kReduceWindow || i.opcode() == Opcode::kSelectAndScatter ||
                        i.opcode() == Opcode::kConvolution;
  if (windowed) out->mutable_window();  // XLA requires this field for scalars too.
  if (!a.window.has_value()) return;
  out->mutable_window();
  for (const WindowDimension& d : *a.window) {
    pb::Window::Dimension* const dimension = out->mutable_window()->add_dimensions();
    dimension->set_size(d.size);
    dimension->set_stride(d.stride);
    dimension->set_padding_low(d.padding_low);
    dimension->set_padding_high(d.padding_high);
    dimension->set_window_dilation(d.window_dilation);
    dimension->set_base_dilation(d.base_dilation);
    dimension->set_window_reversal(d.window_reversal);
  }
}

void WriteSlices(const Instruction& i, const Attributes& a, pb::Instruction* out) {
  for (const SliceDimension& d : a.slice) {
    pb::Instruction::SliceDimensions* const slice = out->add_slice_dimensions();
    slice->set_start(d.start);
    slice->set_limit(d.limit);
    slice->set_stride(d.stride);
  }
  if (i.opcode() == Opcode::kPad) out->mutable_padding_config();  // XLA requires this field for scalars too.
  for (const PaddingDimension& d : a.padding) {
    pb::PaddingConfig::Dimension* const padding = out->mutable_padding_config()->add_dimensions();
    padding->set_edge_padding_low(d.low);
    padding->set_edge_padding_high(d.high);
    padding->set_interior_padding(d.interior);
  }
  const bool gather = i.opcode() == Opcode::kGather;
  CopyInts(a.slice_sizes, gather ? out->mutable_gather_slice_sizes() : out->mutable_dynamic_slice_sizes());
}

void WriteLinearAlgebra(const Instruction& i, const Attributes& a, pb::Instruction* out) {
  if (i.opcode() == Opcode::kFft) out->set_fft_type(NumberOf(kFftTypes, a.fft_type));
  CopyInts(a.fft_length, out->mutable_fft_length());
  if (i.opcode() == Opcode::kCholesky) out->mutable_cholesky_options()->set_lower(a.lower);
  if (i.opcode() != Opcode::kTriangularSolve) return;
  pb::TriangularSolveOptions* const options = out->mutable_triangular_solve_options();
  options->set_left_side(a.left_side);
  options->set_lower(a.lower);
  options->set_unit_diagonal(a.unit_diagonal);
  options->set_transpose_a(NumberOf(kTransposes, a.transpose_a));
}

void WriteNumbers(const Instruction& i, const Attributes& a, pb::Instruction* out) {
  if (i.opcode() == Opcode::kCompare) {
    out->set_comparison_direction(std::string(WordOf(kComparisons, a.comparison)));
    out->set_comparison_type(std::string(WordOf(kComparisonTypes, a.comparison_type)));
  }
  out->set_exponent_bits(a.exponent_bits);
  out->set_mantissa_bits(a.mantissa_bits);
  out->set_epsilon(a.epsilon);
  out->set_feature_index(a.feature_index);
  if (!a.rng_distribution.empty()) out->set_distribution(NumberOf(kDistributions, a.rng_distribution));
  if (!a.rng_algorithm.empty()) out->set_rng_algorithm(NumberOf(kRngAlgorithms, a.rng_algorithm));
  out->set_is_stable(a.is_stable);
  if (i.opcode() == Opcode::kTopk) {
    out->set_k(a.k);
    out->set_largest(a.largest);
    out->set_unstable(!a.is_stable);
  }
  out->set_is_reverse(a.is_reverse);
  out->set_num_carries(a.num_carries);
  out->set_is_associative(NumberOf(kTriStates, a.is_associative));
}

void WriteCollective(const Attributes& a, pb::Instruction* out) {
  WriteReplicaGroups(a.replica_groups, out);
  out->set_channel_id(a.channel_id.value_or(0));
  out->set_has_channel_id(a.channel_id.value_or(1) <= 0);
  out->set_use_global_device_ids(a.use_global_device_ids);
  out->set_constrain_layout(a.constrain_layout);
  out->set_is_host_transfer(a.is_host_transfer);
  for (const auto& [source, target] : a.source_target_pairs) {
    pb::SourceTarget* const pair = out->add_source_target_pairs();
    pair->set_source(source);
    pair->set_target(target);
  }
  for (const bool replicated : a.parameter_replication) {
    out->mutable_parameter_replication()->add_replicated_at_leaf_buffers(replicated);
  }
}

void WriteCalls(const Instruction& i, const Attributes& a, pb::Instruction* out) {
  out->set_fusion_kind(a.fusion_kind);
  out->set_custom_call_target(a.custom_call_target);
  if (i.opcode() == Opcode::kCustomCall) {
    // The text omits API_VERSION_ORIGINAL.
    out->set_custom_call_api_version(a.api_version.empty() ? 1 : NumberOf(kApiVersions, a.api_version));
  }
  if (i.opcode() == Opcode::kCustomCall || i.opcode() == Opcode::kConvolution) {
    out->set_feature_group_count(a.feature_group_count);
    out->set_batch_group_count(a.batch_group_count);
  }
  out->set_custom_call_has_side_effect(a.has_side_effect);
  out->set_backend_config(a.backend_config);
  for (const Shape& shape : a.operand_layout_constraints) WriteShape(shape, out->add_operand_shapes_with_layout());
  for (const OutputOperandAlias& alias : a.output_operand_aliasing) {
    pb::OutputOperandAliasing* const aliasing = out->add_output_operand_aliasing();
    CopyInts(alias.output_index, aliasing->mutable_output_shape_index());
    aliasing->set_operand_index(alias.operand);
    CopyInts(alias.operand_index, aliasing->mutable_operand_shape_index());
  }
  out->set_infeed_config(a.infeed_config);
  out->set_outfeed_config(a.outfeed_config);
  if (i.opcode() == Opcode::kOutfeed) WriteShape(a.outfeed_shape, out->mutable_outfeed_shape());
  out->set_async_execution_thread(a.async_execution_thread);
}

}  // namespace

void WriteAttributes(const Instruction& instruction, pb::Instruction* out) {
  const Attributes& a = instruction.attributes();
  WriteContraction(instruction, a, out);
  WriteConvolution(a, out);
  WriteGather(a, out);
  WriteWindow(instruction, a, out);
  WriteSlices(instruction, a, out);
  WriteLinearAlgebra(instruction, a, out);
  WriteNumbers(instruction, a, out);
  WriteCollective(a, out);
  WriteCalls(instruction, a, out);
  WriteCarried(a.other, out);
}

}  // namespace xlad::hlo

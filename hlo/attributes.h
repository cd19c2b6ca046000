// The attributes of an instruction: everything besides its opcode, shape and operands.
//
// The few attributes that most instructions have are members of Instruction. This file has the others; most
// instructions do not have any of them. Names are those of HLO text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hlo/literal.h"
#include "hlo/shape.h"

namespace xlad::hlo {

struct WindowDimension {
  int64_t size = 1, stride = 1, padding_low = 0, padding_high = 0, window_dilation = 1, base_dilation = 1;
  bool window_reversal = false;
  friend bool operator==(const WindowDimension&, const WindowDimension&) = default;
};
using Window = std::vector<WindowDimension>;

struct DotDimensions {  // Used by dot, ragged-dot and scaled-dot.
  Dims lhs_batch, rhs_batch, lhs_contracting, rhs_contracting;
  friend bool operator==(const DotDimensions&, const DotDimensions&) = default;
};
struct ConvolutionDimensions {
  int64_t input_batch = 0, input_feature = 0, kernel_input_feature = 0, kernel_output_feature = 0, output_batch = 0,
          output_feature = 0;
  Dims input_spatial, kernel_spatial, output_spatial;
  friend bool operator==(const ConvolutionDimensions&, const ConvolutionDimensions&) = default;
};
struct GatherDimensions {
  Dims offset_dims, collapsed_slice_dims, start_index_map, operand_batching_dims, start_indices_batching_dims;
  int64_t index_vector_dim = 0;
  friend bool operator==(const GatherDimensions&, const GatherDimensions&) = default;
};
struct ScatterDimensions {
  Dims update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims, input_batching_dims,
      scatter_indices_batching_dims;
  int64_t index_vector_dim = 0;
  friend bool operator==(const ScatterDimensions&, const ScatterDimensions&) = default;
};
struct PaddingDimension {
  int64_t low = 0, high = 0, interior = 0;
  friend bool operator==(const PaddingDimension&, const PaddingDimension&) = default;
};
struct SliceDimension {
  int64_t start = 0, limit = 0, stride = 1;
  friend bool operator==(const SliceDimension&, const SliceDimension&) = default;
};

enum class Comparison { kEq, kNe, kGe, kGt, kLe, kLt };
enum class ComparisonType { kDefault, kFloat, kFloatTotalOrder, kSigned, kUnsigned };

// The groups of devices that take part in a collective. At most one form is set. If no form is set, all devices
// are one group.
struct ReplicaGroups {
  std::vector<std::vector<int64_t>> groups;          // {{0,1},{2,3}}
  struct Iota {                                      // [2,4]<=[8]T(..)
    Dims dims, reshape_dims, transpose;
    friend bool operator==(const Iota&, const Iota&) = default;
  };
  std::optional<Iota> iota;
  struct MeshAxes {                                  // mesh['a'=2,'b'=2] {'b'}
    std::vector<std::pair<std::string, int64_t>> mesh;
    Dims device_ids;                                 // If empty, devices are in the order of the mesh.
    struct Axis {
      std::string name;
      int64_t pre_size = 1, size = 0;                // The part (pre_size)size of the axis; all of it if size is 0.
      friend bool operator==(const Axis&, const Axis&) = default;
    };
    std::vector<Axis> axes;
    friend bool operator==(const MeshAxes&, const MeshAxes&) = default;
  };
  std::optional<MeshAxes> mesh_axes;

  // The groups as lists of ids. If no form is set, the result is one group of the ids below `devices`. Empty
  // if the parts of mesh axes overlap or exceed their axis, or if the size of `device_ids` is not that of the mesh.
  std::vector<std::vector<int64_t>> Expand(int64_t devices) const;
  friend bool operator==(const ReplicaGroups&, const ReplicaGroups&) = default;
};

// The origin of an instruction in the user's program.
struct Metadata {
  std::string op_type, op_name, source_file;
  int64_t source_line = 0, source_end_line = 0, source_column = 0, source_end_column = 0;
  int64_t stack_frame_id = 0;  // Counts from 1 into the module's stack frames; 0 if unknown.
  std::vector<std::pair<std::string, std::string>> other;  // Other keys with their values, as written and in order.
  friend bool operator==(const Metadata&, const Metadata&) = default;
};

// The parsed form of sharding={...}, in all three generations of HLO's syntax: {devices=[2,1]0,1},
// {devices=[2,1]<=[2]}, and {mesh['a'=2], [{'a'}, {}]}.
struct OpSharding {
  enum class Kind { kReplicated, kMaximal, kManual, kUnknown, kUnreduced, kTiled, kTuple, kNamed };
  Kind kind = Kind::kReplicated;
  // For kTiled. The first form sets `devices`, and the second one the dimensions of an iota.
  Dims tile_dims;
  Dims devices;                        // The device list of the first form, or the device of kMaximal.
  Dims iota_reshape_dims, iota_transpose;
  bool replicate_on_last_tile_dim = false;
  std::vector<Kind> last_tile_dims;
  std::vector<OpSharding> tuple;
  enum class Group { kNone, kAs, kLike };
  Group group = Group::kNone;
  int64_t group_id = 0;
  std::vector<Metadata> metadata;
  std::string named;                   // For kNamed: the third form as canonical text, without the outer braces.
  friend bool operator==(const OpSharding&, const OpSharding&) = default;
};

using StringMap = std::map<std::string, std::string>;

struct OutputOperandAlias {
  Dims output_index;
  int64_t operand = 0;
  Dims operand_index;
  friend bool operator==(const OutputOperandAlias&, const OutputOperandAlias&) = default;
};

struct Attributes {
  std::optional<DotDimensions> dot;
  std::optional<ConvolutionDimensions> convolution;
  std::optional<GatherDimensions> gather;
  std::optional<ScatterDimensions> scatter;
  std::optional<Window> window;
  std::vector<PaddingDimension> padding;
  std::vector<SliceDimension> slice;
  Dims slice_sizes;                        // dynamic_slice_sizes, gather's slice_sizes
  Comparison comparison = Comparison::kEq;
  ComparisonType comparison_type = ComparisonType::kDefault;
  int64_t feature_group_count = 1, batch_group_count = 1;
  int32_t exponent_bits = 0, mantissa_bits = 0;
  float epsilon = 0;
  int64_t feature_index = 0;
  bool indices_are_sorted = false, unique_indices = false;
  bool is_stable = false;
  int64_t k = 0;                           // topk
  bool largest = true;
  bool is_reverse = false;                 // scan
  int64_t num_carries = 0;
  std::string is_associative;              // scan: "true", "false", or empty if not given
  std::string fft_type;
  Dims fft_length;
  bool left_side = false, lower = false, unit_diagonal = false;
  std::string transpose_a;                 // triangular-solve: NO_TRANSPOSE, TRANSPOSE, ADJOINT
  std::string rng_distribution, rng_algorithm;
  std::vector<std::string> operand_precision;
  std::string algorithm;                   // dot, ragged-dot, scaled-dot, convolution
  Dims ragged_dims, group_dims;            // ragged-dot: lhs_ragged_dims, rhs_group_dims
  std::string fusion_kind;                 // kLoop, kInput, kOutput, kCustom
  std::string custom_call_target, api_version;
  bool has_side_effect = false;
  std::string backend_config;
  bool backend_config_is_json = false;     // If true, it is printed without quotes.
  std::vector<Shape> operand_layout_constraints;
  std::vector<OutputOperandAlias> output_operand_aliasing;
  // Collectives.
  ReplicaGroups replica_groups;
  std::optional<int64_t> channel_id;
  bool use_global_device_ids = false;
  bool constrain_layout = false;
  std::vector<std::pair<int64_t, int64_t>> source_target_pairs;
  bool is_host_transfer = false;
  std::string infeed_config, outfeed_config;
  Shape outfeed_shape;
  std::string async_execution_thread;
  std::vector<bool> parameter_replication;
  std::string other;                       // Attributes without a meaning in xlad, as canonical text "a=b, c=d".

  friend bool operator==(const Attributes&, const Attributes&);
};

// The comparison type of a compare that names none. `type` is the element type of the operands.
ComparisonType DefaultComparisonType(ElementType type);

}  // namespace xlad::hlo

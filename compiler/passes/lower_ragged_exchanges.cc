// Rewrites ragged-all-to-all, whose sizes are data, into collectives of fixed sizes and a selection of rows. Every
// device receives all input rows of its group. An exchange that is padded to the largest possible size would send just
// as many rows.
//
//   for each sender s of the group and each entry that s has for this device (all-to-alls exchange the entries):
//     row r of the result, if output_offset <= r < output_offset + send_size,
//       is row input_offset + r - output_offset of the input of s; all other rows are those of the output operand
//
// Needs: no layouts. Leaves: no ragged-all-to-all. InvalidArgument if the number of offsets is not a multiple of the
// group size.
#include "compiler/analysis/clone.h"
#include "compiler/analysis/collective_spec.h"
#include "compiler/analysis/instruction_facts.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/passes.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

// Lowers one exchange among groups of `size` devices.
class Lowering {
 public:
  Lowering(Instruction* exchange, int64_t size)
      : exchange_(exchange), size_(size), count_(exchange->operand(2)->shape().dim(0)), builder_(exchange->parent()) {
    builder_.set_template(exchange);
  }

  Instruction* Lower() {
    Instruction* const input = exchange_->operand(0);
    Instruction* const output = exchange_->operand(1);
    if (count_ == 0 || input->shape().elements() == 0 || output->shape().elements() == 0) return output;
    Instruction* const index = SourceRows(input->shape().dim(0), output->shape().dim(0));
    Instruction* const zero = builder_.Full(index->shape(), builder_.Scalar(kIndex, 0));
    Instruction* const has_source = builder_.Compare(hlo::Comparison::kGe, index, zero);
    Instruction* const rows = Rows(AllRows(input), builder_.Binary(Opcode::kMaximum, index, zero));
    return builder_.Select(builder_.Broadcast(has_source, output->shape().dims(), {0}), rows, output);
  }

 private:
  static constexpr ElementType kIndex = ElementType::kS64;

  // Copies the origin of the exchange, which its frontend attributes contain, to a new collective.
  Instruction* WithOrigin(Instruction* collective) {
    collective->mutable_frontend_attributes() = exchange_->frontend_attributes();
    return collective;
  }

  // The entries for this device in operand k of all devices of the group, in the order of the group.
  Instruction* Received(int64_t k) {
    Instruction* const sent = builder_.Convert(kIndex, exchange_->operand(k));
    if (size_ == 1) return sent;
    const hlo::Attributes& attributes = exchange_->attributes();
    return WithOrigin(builder_.AllToAll(sent, 0, 0, attributes.replica_groups, attributes.channel_id.value_or(1)));
  }

  Instruction* AllRows(Instruction* input) {
    if (size_ == 1) return input;
    const hlo::Attributes& attributes = exchange_->attributes();
    return WithOrigin(builder_.AllGather(input, 0, attributes.replica_groups, attributes.channel_id.value_or(1)));
  }

  // For each row of the result, the row of the concatenated inputs of the group that is stored there, or -1 if there is
  // none.
  Instruction* SourceRows(int64_t input_rows, int64_t output_rows) {
    const Dims table = {count_, output_rows};
    const auto along_entries = [&](Instruction* x) { return builder_.Broadcast(x, table, {0}); };
    const auto binary = [&](Opcode opcode, Instruction* x, Instruction* y) { return builder_.Binary(opcode, x, y); };
    Instruction* const sender =
        builder_.Reshape(builder_.Iota(hlo::Shape(kIndex, {size_, count_ / size_}), 0), {count_});
    Instruction* const first =
        binary(Opcode::kMultiply, sender, builder_.Full(sender->shape(), builder_.Scalar(kIndex, input_rows)));
    Instruction* const start = along_entries(binary(Opcode::kAdd, first, Received(2)));
    Instruction* const size = along_entries(Received(3));
    Instruction* const target = along_entries(Received(4));
    // The position of the row relative to the start of the entry's range. In the range, it is from 0 to size - 1.
    Instruction* const at = binary(Opcode::kSubtract, builder_.Iota(hlo::Shape(kIndex, table), 1), target);
    Instruction* const none = builder_.Full(at->shape(), builder_.Scalar(kIndex, -1));
    Instruction* const is_inside = binary(Opcode::kAnd, builder_.Compare(hlo::Comparison::kGt, at, none),
                                          builder_.Compare(hlo::Comparison::kLt, at, size));
    Instruction* const found = builder_.Select(is_inside, binary(Opcode::kAdd, start, at), none);
    hlo::Module* const module = exchange_->parent()->parent();
    return builder_.Reduce(found, builder_.Scalar(kIndex, -1), {0},
                           hlo::ScalarReducer(module, Opcode::kMaximum, kIndex));
  }

  // The rows of x at these indices.
  Instruction* Rows(Instruction* x, Instruction* index) {
    const int64_t rows = index->shape().dim(0);
    Dims sizes = x->shape().dims();
    sizes[0] = rows;
    auto gather = std::make_unique<Instruction>(Opcode::kGather, hlo::Shape(x->shape().type(), sizes));
    sizes[0] = 1;
    hlo::GatherDimensions dimensions;
    for (int64_t d = 1; d < x->shape().ndim(); ++d) dimensions.offset_dims.push_back(d);
    dimensions.collapsed_slice_dims = {0};
    dimensions.start_index_map = {0};
    dimensions.index_vector_dim = 1;
    gather->set_name(exchange_->name());
    gather->mutable_metadata() = exchange_->metadata();
    gather->mutable_attributes().gather = dimensions;
    gather->mutable_attributes().slice_sizes = sizes;
    return exchange_->parent()->Add(std::move(gather), {x, builder_.Reshape(index, {rows, 1})});
  }

  Instruction* const exchange_;
  const int64_t size_;
  const int64_t count_;
  hlo::Builder builder_;
};

}  // namespace

absl::Status LowerRaggedExchanges(hlo::Module& module, PassContext& context) {
  for (Computation* computation : StepComputations(module)) {
    for (Instruction* instruction : Snapshot(*computation)) {
      if (instruction->opcode() != Opcode::kRaggedAllToAll) continue;
      XLAD_ASSIGN_OR_RETURN(const auto groups, DeviceGroups(*instruction, context.devices));
      const int64_t size = groups.empty() ? 1 : std::ssize(groups[0]);
      const int64_t offsets = instruction->operand(2)->shape().dim(0);
      if (offsets % size != 0) {
        return absl::InvalidArgumentError(absl::StrCat(Describe(*instruction), ": found ", offsets,
                                                       " offsets, expected a multiple of ", size,
                                                       ", the number of devices of a group"));
      }
      instruction->ReplaceAllUsesWith(Lowering(instruction, size).Lower());
    }
    FinishEdits(computation);
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler

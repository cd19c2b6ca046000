// Replaces cumulative sums, products, maxima and minima with scans. In a reduce-window, the cost of each result would
// be proportional to the length of the dimension.
//
// Needs: simplified, canonical reducers. Leaves: no cumulative reduce-window along a dimension of at least kMinLength
// elements if its initial value may be combined any number of times. A cumulative reduce-window has one operand, and
// its window covers one whole dimension and is padded on one side. Result i therefore combines the elements up to (or
// from) i.

#include <optional>

#include "compiler/analysis/hlo_names.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/replace_instructions.h"
#include "hlo/analysis/constants.h"
#include "hlo/build/builder.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

// Shorter windows are not replaced, because loops over the window vectorize better than the serial steps of a scan.
constexpr int64_t kMinLength = 16;

// A reduce-window that is a cumulative reduction along `dimension`, beginning with the first or the last element.
struct Cumulative {
  int64_t dimension = 0;
  bool is_reverse = false;
  Opcode opcode = Opcode::kAdd;
};

// Whether combining `initial` once more does not change any result. The padding of a window has the initial value.
bool MayRepeat(Opcode opcode, const Instruction& initial) {
  switch (opcode) {
    case Opcode::kAdd:
      return hlo::SplatValue(initial) == 0;
    case Opcode::kMultiply:
      return hlo::SplatValue(initial) == 1;
    case Opcode::kMaximum:
    case Opcode::kMinimum:
    case Opcode::kAnd:
    case Opcode::kOr:
      return true;
    default:
      return false;
  }
}

std::optional<Cumulative> Match(const Instruction& instruction) {
  if (instruction.opcode() != Opcode::kReduceWindow || instruction.operand_count() != 2) return std::nullopt;
  const std::optional<Opcode> opcode = hlo::ReducerOpcode(*instruction.called()[0]);
  if (!opcode.has_value() || !MayRepeat(*opcode, *instruction.operand(1))) return std::nullopt;
  std::optional<Cumulative> found;
  const hlo::Window& window = *instruction.attributes().window;
  for (int64_t d = 0; d < std::ssize(window); ++d) {
    const hlo::WindowDimension& w = window[d];
    const int64_t size = instruction.operand(0)->shape().dim(d);
    if (w.stride != 1 || w.window_dilation != 1 || w.base_dilation != 1) return std::nullopt;
    if (w.size == 1 && w.padding_low == 0 && w.padding_high == 0) continue;
    const bool forward = w.padding_low == size - 1 && w.padding_high == 0;
    const bool backward = w.padding_low == 0 && w.padding_high == size - 1;
    if (found.has_value() || w.size != size || size < kMinLength || !(forward || backward)) return std::nullopt;
    found = {d, backward, *opcode};
  }
  return found;
}

// (slice of the input, carry) -> (carry op slice, carry op slice): the result and the carry of one step.
Computation* ScanBody(Module& module, const Shape& slice, Opcode opcode) {
  Computation* body = module.Add(std::make_unique<Computation>(module.UniqueName("cumulative")));
  hlo::Builder builder(body);
  Instruction* x = builder.Parameter(0, slice);
  Instruction* carry = builder.Parameter(1, slice);
  Instruction* next = builder.Binary(opcode, carry, x);
  body->set_root(builder.Tuple({next, next}));
  return body;
}

// The type in which a reduction accumulates: f32 for narrower floats.
ElementType AccumulatorType(ElementType type) {
  return tensor::IsSmallFloat(type) ? ElementType::kF32 : type;
}

Instruction* MakeScan(Instruction* window, const Cumulative& found) {
  hlo::Builder builder(window->parent());
  builder.set_template(window);
  const ElementType type = AccumulatorType(window->shape().type());
  Instruction* x = builder.ConvertTo(type, window->operand(0));
  Dims dims = x->shape().dims();
  const Shape whole(type, dims);
  dims.erase(dims.begin() + found.dimension);
  const Shape slice(type, dims);
  Instruction* initial = builder.Full(slice, builder.ConvertTo(type, window->operand(1)));
  auto scan = std::make_unique<Instruction>(Opcode::kScan, Shape::Tuple({whole, slice}));
  scan->set_dimensions({found.dimension});
  scan->mutable_attributes().num_carries = 1;
  scan->mutable_attributes().is_reverse = found.is_reverse;
  scan->mutable_called() = {ScanBody(*window->parent()->parent(), slice, found.opcode)};
  scan->mutable_metadata() = window->metadata();
  Instruction* made = window->parent()->Add(std::move(scan), {x, initial});
  return builder.ConvertTo(window->shape().type(), builder.GetTupleElement(made, 0));
}

}  // namespace

absl::Status MakeScans(hlo::Module& module, PassContext&) {
  ReplaceInstructions(module, [](Instruction* instruction) -> Instruction* {
    const std::optional<Cumulative> found = Match(*instruction);
    return found.has_value() ? MakeScan(instruction, *found) : nullptr;
  });
  module.SortComputations();
  return absl::OkStatus();
}

}  // namespace xlad::compiler

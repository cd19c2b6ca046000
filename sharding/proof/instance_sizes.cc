#include "sharding/proof/instance_sizes.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "sharding/model/mesh.h"
#include "sharding/rules/op_rule.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

constexpr int64_t kMaxElements = 4096;        // The limit for one array of an instance.
constexpr int64_t kMaxElementsMoved = 65536;  // The limit for ops that only move elements, which take less time.

// Whether every size of the op's arrays is a product of the sizes of factors of its rule.
bool SizesFollowFactors(Opcode opcode) {
  return hlo::IsElementwise(opcode) || opcode == Opcode::kBroadcast || opcode == Opcode::kReshape ||
         opcode == Opcode::kTranspose || opcode == Opcode::kDot || opcode == Opcode::kReduce ||
         opcode == Opcode::kIota || opcode == Opcode::kSort || opcode == Opcode::kCopy;
}

// Whether the op moves elements along dimensions whose sizes depend on its attributes.
bool Moves(Opcode opcode) {
  return opcode == Opcode::kSlice || opcode == Opcode::kPad || opcode == Opcode::kReverse ||
         opcode == Opcode::kConcatenate;
}

bool HasWindows(Opcode opcode) {
  return opcode == Opcode::kConvolution || opcode == Opcode::kReduceWindow || opcode == Opcode::kSelectAndScatter;
}

// A small size that `small` shards divide in the same way as `shards` shards divide `size`: evenly or with a remainder.
int64_t SmallSize(int64_t size, int64_t shards, int64_t small) {
  if (shards == 1) return std::min<int64_t>(size, 3);
  if (size % shards == 0) return std::min(size, small * 2);
  if (small == shards) return std::min(size, shards + size % shards);
  return small + std::max<int64_t>(1, size % shards % small);
}

const ValueSharding& ShardingsOf(const ShardedModule& program, const Instruction& instruction) {
  return program.shardings.at(&instruction);
}

class Shrinker {
 public:
  Shrinker(const ShardedModule& program, const Instruction& instruction, const SmallMesh& mesh)
      : program_(program), instruction_(instruction), mesh_(mesh), rule_(RuleOf(instruction)) {}

  std::optional<InstanceSizes> Run() {
    InstanceSizes sizes;
    for (const Instruction* operand : instruction_.operands()) sizes.operands.push_back(operand->shape().dims());
    for (const hlo::Shape& shape : ResultsOf(instruction_)) sizes.results.push_back(shape.dims());
    const Opcode opcode = instruction_.opcode();
    if (SizesFollowFactors(opcode) || Moves(opcode) || HasWindows(opcode)) Shrink(&sizes);
    if (HasWindows(opcode)) ShrinkWindows(&sizes);
    const int64_t most = Moves(opcode) ? kMaxElementsMoved : kMaxElements;
    const auto fits = [&](const Dims& dims) { return tensor::Product(dims) <= most; };
    const bool small = std::all_of(sizes.operands.begin(), sizes.operands.end(), fits) &&
                       std::all_of(sizes.results.begin(), sizes.results.end(), fits);
    return small ? std::optional(std::move(sizes)) : std::nullopt;
  }

 private:
  void CountShards(const TensorFactors& factors, const TensorSharding& sharding) {
    for (size_t d = 0; d < factors.size() && d < sharding.dims.size(); ++d) {
      for (const AxisRef& axis : sharding.dims[d].axes) {
        for (int f : factors[d]) axes_[f].insert(axis);
      }
    }
  }

  int64_t ShardsInProgram(size_t factor) const {
    int64_t shards = 1;
    for (const AxisRef& axis : axes_[factor]) shards *= axis.size;
    return shards;
  }
  int64_t Shards(size_t factor) const {
    int64_t shards = 1;
    for (const AxisRef& axis : axes_[factor]) shards *= mesh_.Shortened(axis).size;
    return shards;
  }

  Dims Small(const Dims& dims, const TensorFactors& factors) const {
    Dims result;
    for (size_t d = 0; d < dims.size(); ++d) {
      int64_t size = 1, small = 1;
      for (int f : factors[d]) {
        size *= rule_.factors[f].size;
        small *= small_[f];
      }
      result.push_back(size == dims[d] ? small : dims[d]);
    }
    return result;
  }

  // Factors whose sizes depend on each other, or on attributes of windows, moves or groups.
  std::vector<bool> Bound() const {
    std::vector<bool> bound(rule_.factors.size(), false);
    if (instruction_.opcode() == Opcode::kBitcastConvert) {
      // One side has an additional dimension, whose size is the ratio of the widths.
      const bool narrows = instruction_.shape().ndim() > instruction_.operand(0)->shape().ndim();
      const bool widens = instruction_.shape().ndim() < instruction_.operand(0)->shape().ndim();
      if (narrows)
        for (int f : rule_.results[0].back()) bound[f] = true;
      if (widens)
        for (int f : rule_.operands[0].back()) bound[f] = true;
    }
    // In a reshape, the product of the sizes of the factors that only the operand has equals the product of the sizes
    // of those that only the result has. The two products must stay equal.
    if (instruction_.opcode() != Opcode::kReshape && SizesFollowFactors(instruction_.opcode())) return bound;
    for (size_t f = 0; f < bound.size(); ++f) {
      const FactorKind kind = rule_.factors[f].kind;
      bound[f] = kind == FactorKind::kPermutation || kind == FactorKind::kNeedReplication;
    }
    if (instruction_.opcode() != Opcode::kConvolution) return bound;
    for (int64_t d : instruction_.attributes().convolution->input_spatial) {
      for (int f : rule_.operands[0][d]) bound[f] = true;
    }
    // Factor 0 is that of the groups.
    if (instruction_.attributes().feature_group_count > 1 || instruction_.attributes().batch_group_count > 1) {
      bound[0] = true;
    }
    return bound;
  }

  void Shrink(InstanceSizes* sizes) {
    axes_.resize(rule_.factors.size());
    for (size_t i = 0; i < rule_.operands.size(); ++i) {
      CountShards(rule_.operands[i], ShardingsOf(program_, *instruction_.operand(i))[0]);
    }
    for (size_t i = 0; i < rule_.results.size(); ++i) {
      CountShards(rule_.results[i], ShardingsOf(program_, instruction_)[i]);
    }
    const std::vector<bool> bound = Bound();
    for (size_t f = 0; f < rule_.factors.size(); ++f) {
      const int64_t size = rule_.factors[f].size;
      small_.push_back(bound[f] ? size : SmallSize(size, ShardsInProgram(f), Shards(f)));
    }
    for (size_t i = 0; i < sizes->operands.size(); ++i) {
      sizes->operands[i] = Small(sizes->operands[i], rule_.operands[i]);
    }
    for (size_t i = 0; i < sizes->results.size(); ++i) sizes->results[i] = Small(sizes->results[i], rule_.results[i]);
  }

  void ShrinkWindows(InstanceSizes* sizes) const;
  void ShrinkWindow(int64_t shards, bool summed, int64_t* input, int64_t* windows, hlo::WindowDimension* window) const;

  const ShardedModule& program_;
  const Instruction& instruction_;
  const SmallMesh& mesh_;
  const OpRule rule_;
  std::vector<std::set<AxisRef>> axes_;
  std::vector<int64_t> small_;
};

// Removes elements from the input together with their windows, the same number from each shard, as long as shards stay
// longer than a window. If the window itself is split and summed over, removes elements of the window instead.
void Shrinker::ShrinkWindow(int64_t shards, bool summed, int64_t* input, int64_t* windows,
                            hlo::WindowDimension* window) const {
  const int64_t step = summed ? window->window_dilation : window->stride;
  const int64_t common = std::gcd(step, window->base_dilation);
  const int64_t less_input = shards * step / common, less = shards * window->base_dilation / common;
  const int64_t span = summed ? (*windows - 1) * window->stride + 1 : (window->size - 1) * window->window_dilation + 1;
  const int64_t keep = shards * (span / window->base_dilation + 1 + step);
  int64_t& shrinks = summed ? window->size : *windows;
  while (*input - less_input >= keep && shrinks - less >= shards) {
    *input -= less_input;
    shrinks -= less;
  }
}

void Shrinker::ShrinkWindows(InstanceSizes* sizes) const {
  if (!instruction_.attributes().window) return;
  hlo::Window window = *instruction_.attributes().window;
  const bool convolution = instruction_.opcode() == Opcode::kConvolution;
  for (size_t s = 0; s < window.size(); ++s) {
    if (window[s] == hlo::WindowDimension{} && !convolution) continue;
    size_t in = s, out = s, kernel = s;
    if (convolution) {
      const hlo::ConvolutionDimensions& dims = *instruction_.attributes().convolution;
      in = dims.input_spatial[s];
      out = dims.output_spatial[s];
      kernel = dims.kernel_spatial[s];
    }
    const size_t factor = rule_.operands[0][in].back();
    const bool summed = rule_.factors[factor].kind == FactorKind::kReduction;
    // The windows of a select-and-scatter are the elements of its second operand.
    const bool scatter = instruction_.opcode() == Opcode::kSelectAndScatter;
    int64_t input = sizes->operands[0][in];
    int64_t windows = scatter ? sizes->operands[1][out] : sizes->results[0][out];
    ShrinkWindow(Shards(factor), summed, &input, &windows, &window[s]);
    for (size_t i = 0; i < sizes->operands.size(); ++i) {
      const bool array = sizes->operands[i].size() == sizes->operands[0].size() && (i == 0 || !convolution);
      if (array) sizes->operands[i][in] = scatter && i == 1 ? windows : input;
    }
    if (convolution) sizes->operands[1][kernel] = window[s].size;
    for (Dims& result : sizes->results) result[out] = scatter ? input : windows;
  }
  sizes->window = std::move(window);
}

}  // namespace

std::vector<hlo::Shape> ResultsOf(const Instruction& instruction) {
  return instruction.shape().is_array() ? std::vector<hlo::Shape>{instruction.shape()} : instruction.shape().tuple();
}

std::optional<InstanceSizes> SmallSizes(const ShardedModule& program, const Instruction& instruction,
                                        const SmallMesh& mesh) {
  return Shrinker(program, instruction, mesh).Run();
}

}  // namespace xlad::sharding

// A reduction that is emitted, and its dimensions.
#pragma once

#include <vector>

#include "base/containers.h"
#include "compiler/codegen/llvm/elements.h"
#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {

struct Reduction {
  const hlo::Instruction* instruction;
  int64_t leaves;
  std::vector<tensor::Shape> shapes;
  Reducer reducer;

  explicit Reduction(const hlo::Instruction* reduce)
      : instruction(reduce),
        leaves(reduce->operand_count() / 2),
        shapes(LeafShapes(reduce->shape())),
        reducer(reduce->called()[0], shapes[0].type) {}

  Values Initial(Elements& elements) const {
    Values values;
    for (int64_t i = 0; i < leaves; ++i) values.push_back(elements.EmitScalar(instruction->operand(leaves + i)));
    return values;
  }
  Values Operands(Elements& elements, const Index& index) const {
    Values values;
    for (int64_t i = 0; i < leaves; ++i) values.push_back(elements.Emit(instruction->operand(i), index));
    return values;
  }
};

// The operand's dimensions, divided into kept and reduced ones.
struct DimensionSplit {
  tensor::Dims sizes;        // The operand's sizes.
  std::vector<size_t> kept;  // Ascending.
  std::vector<size_t> reduced;
  // Whether the innermost dimension (ignoring sizes of 1) is kept. False if the operand has no elements.
  bool columns = false;

  explicit DimensionSplit(const hlo::Instruction* reduce) : sizes(reduce->operand(0)->shape().dims()) {
    for (int64_t d = 0; d < std::ssize(sizes); ++d) {
      const tensor::Dims& dims = reduce->dimensions();
      const bool is_reduced = Contains(dims, d);
      (is_reduced ? reduced : kept).push_back(d);
      if (sizes[d] != 1) columns = !is_reduced;
    }
    columns = columns && tensor::Product(sizes) > 0;
  }
  tensor::Dims Sizes(const std::vector<size_t>& which) const {
    tensor::Dims result;
    for (const size_t d : which) result.push_back(sizes[d]);
    return result;
  }
  Index Join(const Values& of_kept, const Values& of_reduced) const {
    Values dims(sizes.size());
    for (size_t i = 0; i < kept.size(); ++i) dims[kept[i]] = of_kept[i];
    for (size_t i = 0; i < reduced.size(); ++i) dims[reduced[i]] = of_reduced[i];
    return Index::Of(dims);
  }
};

}  // namespace xlad::compiler

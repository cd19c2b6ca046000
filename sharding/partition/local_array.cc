#include "sharding/partition/local_array.h"

namespace xlad::sharding {
namespace {

hlo::Shape Localize(const hlo::Shape& global, const ValueSharding& shardings, size_t* next) {
  if (global.is_array()) {
    const TensorSharding& sharding = shardings[(*next)++];
    return hlo::Shape(global.type(), LocalDims(global.dims(), sharding));
  }
  if (!global.is_tuple()) return global;
  std::vector<hlo::Shape> elements;
  for (const hlo::Shape& element : global.tuple()) elements.push_back(Localize(element, shardings, next));
  return hlo::Shape::Tuple(std::move(elements));
}

}  // namespace

hlo::Shape LocalStructure(const hlo::Shape& global, const ValueSharding& shardings) {
  size_t next = 0;
  return Localize(global, shardings, &next);
}

hlo::Shape LocalShape(const LocalArray& array) {
  return hlo::Shape(array.global.type, LocalDims(array.global.dims, array.sharding));
}

std::vector<hlo::Instruction*> Locals(const std::vector<LocalArray>& arrays) {
  std::vector<hlo::Instruction*> locals;
  for (const LocalArray& array : arrays) locals.push_back(array.local);
  return locals;
}

OriginPtr OriginOf(const TensorSharding& sharding, const AxisRef& axis) {
  for (const DimensionSharding& dim : sharding.dims) {
    for (size_t i = 0; i < dim.axes.size() && i < dim.origins.size(); ++i) {
      if (Overlap(dim.axes[i], axis) && dim.origins[i] != nullptr) return dim.origins[i];
    }
  }
  return nullptr;
}

TensorSharding WithOrigins(const DimensionAxes& dims, const TensorSharding& first, const TensorSharding& second) {
  TensorSharding result = TensorSharding::Replicated(std::ssize(dims));
  for (size_t d = 0; d < dims.size(); ++d) {
    DimensionSharding& dim = result.dims[d];
    dim.axes = Merged(dims[d]);
    for (const AxisRef& axis : dim.axes) {
      OriginPtr origin = OriginOf(first, axis);
      dim.origins.push_back(origin != nullptr ? origin : OriginOf(second, axis));
    }
  }
  return result;
}

}  // namespace xlad::sharding

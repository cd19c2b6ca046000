#include "sharding/testing/random_sharding.h"

#include "sharding/model/axes.h"
#include "sharding/partition/local_array.h"

namespace xlad::sharding {
namespace {

ValueSharding RandomValue(const Mesh& mesh, const hlo::Shape& shape, Random& random) {
  ValueSharding value;
  for (const tensor::Shape& leaf : LeafShapes(shape)) value.push_back(RandomSharding(mesh, leaf.ndim(), random));
  return value;
}

}  // namespace

TensorSharding RandomSharding(const Mesh& mesh, int64_t ndim, Random& random) {
  TensorSharding sharding = TensorSharding::Replicated(ndim);
  if (ndim == 0) return sharding;
  std::vector<AxisRef> parts;
  for (int axis = 0; axis < std::ssize(mesh.axes()); ++axis) {
    const int64_t size = mesh.axes()[axis].size;
    if (size == 1) continue;
    const bool cut = size % 2 == 0 && size > 2 && random.Below(3) == 0;
    if (cut) {
      parts.push_back({axis, 1, 2});
      parts.push_back({axis, 2, size / 2});
    } else {
      parts.push_back({axis, 1, size});
    }
  }
  while (!parts.empty()) {
    const size_t pick = random.Below(parts.size());
    const AxisRef part = parts[pick];
    parts.erase(parts.begin() + pick);
    if (random.Below(3) == 0) continue;
    DimensionSharding& dim = sharding.dims[random.Below(ndim)];
    dim.axes.push_back(part);
    dim.axes = Merged(dim.axes);
  }
  for (DimensionSharding& dim : sharding.dims) dim.origins.resize(dim.axes.size());
  return sharding;
}

ShardedModule WithRandomShardings(std::unique_ptr<hlo::Module> module, const Mesh& mesh, uint64_t seed) {
  const std::unique_ptr<Random> random = SeededRandom(seed);
  ShardedModule result;
  result.mesh = mesh;
  for (const auto& computation : module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      result.shardings[instruction.get()] = RandomValue(mesh, instruction->shape(), *random);
    }
  }
  for (const auto& computation : module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->opcode() != hlo::Opcode::kWhile) continue;
      for (const hlo::Computation* called : instruction->called()) {
        result.shardings[called->parameter(0)] = result.shardings[instruction.get()];
      }
    }
  }
  result.results = RandomValue(mesh, module->entry()->root()->shape(), *random);
  result.module = std::move(module);
  return result;
}

}  // namespace xlad::sharding

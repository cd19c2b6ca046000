#include "absl/strings/str_join.h"
#include "hlo/attribute_keys.h"
#include "hlo/text/text.h"
#include "sharding/import/inline_calls.h"
#include "sharding/propagate/propagate.h"

namespace xlad::sharding {
namespace {

std::string MeshText(const Mesh& mesh) {
  return absl::StrCat("{", mesh.name(), " = #sdy.mesh<[",
                      absl::StrJoin(mesh.axes(), ", ",
                                    [](std::string* out, const Axis& axis) {
                                      absl::StrAppend(out, "\"", axis.name, "\"=", axis.size);
                                    }),
                      "]>}");
}

std::string ShardingText(const Mesh& mesh, const TensorSharding& sharding) {
  return absl::StrCat("<@", mesh.name(), ", ", ToString(mesh, sharding), ">");
}

// The value of an xla.sdy.sharding attribute.
std::string Attribute(const Mesh& mesh, bool is_array, const ValueSharding& shardings) {
  if (is_array) return absl::StrCat("#sdy.sharding", ShardingText(mesh, shardings[0]));
  return absl::StrCat("#sdy.sharding_per_value<[",
                      absl::StrJoin(shardings, ", ",
                                    [&](std::string* out, const TensorSharding& sharding) {
                                      out->append(ShardingText(mesh, sharding));
                                    }),
                      "]>");
}

}  // namespace

std::string PrintPropagated(const ShardedModule& module) {
  // The attributes are added to a clone. Its computations and instructions are in the original's order.
  const std::unique_ptr<hlo::Module> clone = module.module->Clone();
  if (!module.mesh.axes().empty()) clone->frontend_attributes[hlo::kMeshesKey] = MeshText(module.mesh);
  const std::vector<hlo::Computation*> from = FlowComputations(*module.module), to = FlowComputations(*clone);
  for (size_t c = 0; c < from.size(); ++c) {
    for (size_t i = 0; i < from[c]->instructions().size(); ++i) {
      const hlo::Instruction& original = *from[c]->instructions()[i];
      hlo::Instruction& copy = *to[c]->instructions()[i];
      copy.set_sharding(nullptr);
      const auto shardings = module.shardings.find(&original);
      if (shardings == module.shardings.end() || shardings->second.empty() || module.mesh.axes().empty()) continue;
      const bool is_root = &original == module.module->entry()->root();
      copy.mutable_frontend_attributes()[hlo::kShardingKey] =
          Attribute(module.mesh, original.shape().is_array(), is_root ? module.results : shardings->second);
    }
  }
  return hlo::PrintText(*clone);
}

}  // namespace xlad::sharding

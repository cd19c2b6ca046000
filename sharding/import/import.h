// From the user's program with its annotations to a module with a mesh and shardings, ready for propagation.
#pragma once

#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

struct ImportOptions {
  // Replaces the sizes of the program's mesh axes by name; must name exactly the program's axes. Empty: as written.
  Mesh rebind;
  std::vector<Feed> feeds;
};

// Reads meshes and shardings (xla.sdy.*, else V2/V1 sharding=) into a ShardedModule: inlines calls, turns Sharding
// and FuncResultSharding custom calls into constraints. Takes the module over. A program without annotations gets a
// mesh of no axes. InvalidArgument with the instruction's place where an annotation is wrong.
absl::StatusOr<ShardedModule> Import(std::unique_ptr<hlo::Module> module, const ImportOptions& options);

}  // namespace xlad::sharding

// Import: from a user's program with annotations to a module with a mesh and shardings, ready for propagation.
#pragma once

#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

struct ImportOptions {
  // The new sizes of the axes of the program's mesh, by name. It must name all axes whose size is above 1. A mesh
  // without axes leaves the sizes unchanged.
  Mesh rebind;
  std::vector<Feed> feeds;
};

// Reads the meshes and shardings of a program: the attributes xla.sdy.* if there are any, otherwise sharding={...} in
// any of its three syntaxes. Inlines calls, turns Sharding custom calls into constraints, and takes the shardings of
// the results from FuncResultSharding custom calls. Replaces batch normalization and calls of trsm by ops that can be
// split further. A program without annotations gets a mesh without axes. InvalidArgument, with the place of the
// instruction, if an annotation is wrong. Also InvalidArgument if a feed, the rebinding or the program does not fit.
// Unimplemented for forms of annotations that are not supported.
//
//   c = f32[8] custom-call(x), custom_call_target="Sharding", frontend_attributes={xla.sdy.sharding="...[{\"a\"}]>"}
//
// becomes `c = f32[8] copy(x)` with the entry [{"a"}] in ShardedModule::shardings.
absl::StatusOr<ShardedModule> Import(std::unique_ptr<hlo::Module> module, const ImportOptions& options);

}  // namespace xlad::sharding

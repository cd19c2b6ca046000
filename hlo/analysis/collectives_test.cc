// Whether computations communicate.
#include "hlo/analysis/collectives.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "hlo/build/builder.h"

namespace xlad::hlo {
namespace {

// 64 computations, each of which calls the one before it twice. A walk that visits a computation for each call would
// take 2^64 steps.
Computation* AddTower(Module* module, bool communicates) {
  const Shape scalar(ElementType::kF32, {});
  Computation* below = nullptr;
  for (int level = 0; level < 64; ++level) {
    Computation* computation = module->Add(std::make_unique<Computation>(absl::StrCat("level", level)));
    Builder builder(computation);
    Instruction* x = builder.Parameter(0, scalar);
    if (below != nullptr) {
      x = builder.Call(below, {builder.Call(below, {x})});
    } else if (communicates) {
      x = builder.CollectivePermute(x, {{0, 1}}, 1);
    }
    computation->set_root(x);
    below = computation;
  }
  return below;
}

TEST(Collectives, AreFoundInSharedComputations) {
  Module module("m");
  EXPECT_TRUE(ContainsCollective(*AddTower(&module, true)));
  EXPECT_FALSE(ContainsCollective(*AddTower(&module, false)));
}

}  // namespace
}  // namespace xlad::hlo

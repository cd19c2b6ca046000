// What the body of a loop finds the same in every round is resharded once, before the loop, which carries the result.
//
// A value is the same in every round where the body hands it on as it got it, or makes it from such values by ops that
// move or convert data. Weights that a recurrent layer reads at every time step are gathered once so; a layer's slice
// of stacked weights, taken by the loop's counter, is not, and is gathered when its turn comes.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sharding/partition/emitter.h"

namespace xlad::sharding {

class LoopValues {
 public:
  // `before`: where the loop stands. `init`: what it carries, there. Both outlive this.
  LoopValues(const hlo::Instruction& loop, Emitter* before, const LocalValue& init);

  // `array`, of the body, as `to`, if it can be resharded before the loop and there is room for the result.
  std::optional<LocalArray> Reshard(Emitter& body, const LocalArray& array, const TensorSharding& to, const Why& why);
  // Makes both computations carry what was resharded and is used: the values before the loop, behind all that it
  // carries otherwise. The body has its root and no dead instructions.
  std::vector<hlo::Instruction*> Close(hlo::Computation* condition, hlo::Computation* body);

 private:
  struct Moved {
    const hlo::Instruction* from = nullptr;  // Inside.
    LocalArray outside;
    hlo::Instruction* inside = nullptr;
  };

  // The value of `inside`, of the body, before the loop; nullptr where it may change.
  hlo::Instruction* Outside(hlo::Instruction* inside);
  hlo::Instruction* MakeOutside(hlo::Instruction* inside);

  Emitter& before_;
  const LocalValue& init_;
  std::vector<bool> unchanged_;  // By element of the tuple; empty where it is no tuple of arrays.
  double room_ = 0;              // Bytes that may still be held through the loop.
  std::vector<Moved> moved_;
  absl::flat_hash_map<const hlo::Instruction*, hlo::Instruction*> outside_;
};

}  // namespace xlad::sharding

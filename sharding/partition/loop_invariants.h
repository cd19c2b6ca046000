// Moves reshards of loop-invariant values to before the loop (loop-invariant code motion, restricted to resharding).
//
// A value is invariant if the body passes it on unchanged, or computes it from invariant values by ops that move or
// convert data. The weights that a recurrent layer reads at every time step are invariant, so they are all-gathered
// once before the loop:
//
//   body { p = (s32[], f32[64,8], f32[8,8]) parameter(0)      // w, element 2, is split over "dp".
//          w = f32[8,8] get-tuple-element(p), index=2
//          d = f32[64,8] dot(x, w) ...                        // Needs all of w.
//          ROOT t = (...) tuple(i2, x2, w) }                  // Passes w on unchanged.
//
// becomes a loop that carries (s32[], f32[16,8], f32[2,8], f32[8,8]): the last element is the gathered w. A layer's
// slice of stacked weights, taken by the loop's counter, is not invariant and is gathered in every iteration.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sharding/partition/reshard_emitter.h"

namespace xlad::sharding {

class LoopInvariants {
 public:
  // `reshards` and `local`: of the computation that contains the loop. `init`: what the loop carries, in that
  // computation. All must outlive this object.
  LoopInvariants(const hlo::Instruction& loop, ReshardEmitter* reshards, LocalBuilder* local, const LocalValue& init);

  // `array`, a value of the body, with the sharding `to`, if it can be resharded before the loop and the result does
  // not need too much memory. `body`: the emitter of the body that asks.
  std::optional<LocalArray> Reshard(const ReshardEmitter& body, const LocalArray& array, const TensorSharding& to,
                                    const ReshardCause& cause);
  // Appends the resharded values that are used to what the condition and the body carry, and returns their values
  // before the loop. The body must have its root and no dead instructions.
  std::vector<hlo::Instruction*> AddToLoop(hlo::Computation* condition, hlo::Computation* body);

 private:
  struct Hoisted {
    const hlo::Instruction* from = nullptr;  // The value in the body that was to be resharded.
    LocalArray outside;                      // Its resharded form before the loop.
    hlo::Instruction* inside = nullptr;      // The resharded form in the body: an element of the parameter.
  };

  // The value before the loop of an instruction of the body, or null if it may change between iterations.
  hlo::Instruction* Outside(hlo::Instruction* inside);
  hlo::Instruction* EmitOutside(hlo::Instruction* inside);

  ReshardEmitter& reshards_;
  LocalBuilder& local_;
  const LocalValue& init_;
  std::vector<bool> unchanged_;  // By carried element. Empty if nothing is hoisted out of this loop.
  double memory_budget_ = 0;     // Bytes that hoisted values may still use.
  std::vector<Hoisted> hoisted_;
  absl::flat_hash_map<const hlo::Instruction*, hlo::Instruction*> outside_;
};

}  // namespace xlad::sharding

// Hoists reshards of loop-invariant values out of loops (loop-invariant code motion, restricted to resharding).
//
// A value is invariant if the body passes it on unchanged, or computes it from invariant values by elementwise ops and
// ops that move data. The weights that a recurrent layer reads at every time step are invariant, so they are
// all-gathered once before the loop:
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
  // `reshards` and `local` emit into the computation that contains the loop. `init` has the initial carried values. All
  // must outlive this object.
  LoopInvariants(const hlo::Instruction& loop, ReshardEmitter* reshards, LocalBuilder* local, const LocalValue& init);

  // Reshards `array`, a value of the body, to the sharding `to` before the loop. Returns the resharded array in the
  // body. Returns nullopt if the reshard must stay in the body: `array` is not invariant, `to` has unreduced axes, the
  // reshard sends nothing, the result would need too much memory, the loop runs at most once, or the body's root is not
  // a tuple of arrays. `body` is the emitter of the body.
  std::optional<LocalArray> Reshard(const ReshardEmitter& body, const LocalArray& array, const TensorSharding& to,
                                    const ReshardCause& cause);
  // Appends the resharded values, except for unused ones, to the carried values of the condition and the body. Returns
  // their values before the loop. The body's root must be set, and its dead instructions must have been removed.
  std::vector<hlo::Instruction*> AddToLoop(hlo::Computation* condition, hlo::Computation* body);

 private:
  struct Hoisted {
    const hlo::Instruction* from = nullptr;  // The value in the body before resharding.
    LocalArray outside;                      // The resharded value in the computation around the loop.
    hlo::Instruction* inside = nullptr;      // The resharded value in the body: an element of the parameter.
  };

  // The value that an instruction of the body has before the loop, or null if it may change between iterations.
  hlo::Instruction* Outside(hlo::Instruction* inside);
  hlo::Instruction* EmitOutside(hlo::Instruction* inside);

  ReshardEmitter& reshards_;
  LocalBuilder& local_;
  const LocalValue& init_;
  // By carried element: whether the body passes it on unchanged. Empty if nothing is hoisted out of this loop.
  std::vector<bool> unchanged_;
  double memory_budget_ = 0;  // Bytes that hoisted values may still use.
  std::vector<Hoisted> hoisted_;
  absl::flat_hash_map<const hlo::Instruction*, hlo::Instruction*> outside_;
};

}  // namespace xlad::sharding

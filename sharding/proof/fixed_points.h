// The fixed points that an analysis of a program has found for its loops, so that nested loops take linear time.
//
// An analysis of an outer loop visits the body several times, and each visit analyzes the inner loops again. If every
// visit began from the initial state, loops nested n deep would take at least 2^n visits. The state of an outer loop
// moves through the lattice in one direction. The next visit may therefore start each inner loop from the fixed point
// of the previous visit, so that all visits together move the inner loop's state through the lattice once. The lattice
// and the iteration are described in Kam and Ullman, "Global data flow analysis and iterative algorithms", 1976.
//
// A loop that is reached by several paths of calls has a fixed point for each path. How an analysis uses this class:
//
//   Inside(loop, 1, [&] { return RunBody(); })   // RunBody analyzes called computation 1 of `loop`.
//   Of(loop)                                     // The state of `loop` after the last visit; empty at the first one.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "hlo/module.h"

namespace xlad::sharding {

// `State` is a container that is empty until the loop has been visited. Not thread-safe.
template <typename State>
class FixedPoints {
 public:
  // The state of a loop on the current path of calls. The reference stays valid.
  State& Of(const hlo::Instruction& loop) { return at_->loops[&loop]; }

  // Runs `run` with called computation `callee` of `caller` added to the path. Returns what `run` returns.
  template <typename Run>
  auto Inside(const hlo::Instruction& caller, size_t callee, const Run& run) {
    std::unique_ptr<Node>& inner = at_->calls[{&caller, callee}];
    if (inner == nullptr) inner = std::make_unique<Node>();
    Node* const outer = std::exchange(at_, inner.get());
    auto result = run();
    at_ = outer;
    return result;
  }

 private:
  struct Node {
    std::map<const hlo::Instruction*, State> loops;
    std::map<std::pair<const hlo::Instruction*, size_t>, std::unique_ptr<Node>> calls;
  };
  Node root_;
  Node* at_ = &root_;
};

}  // namespace xlad::sharding

// The type of the elements that the messages of a plan carry.
#pragma once

#include "collectives/plan/plan.h"

namespace xlad::collectives {

// Returns the type of the elements of messages, scratch and partial results. It is the type of the spec, except in the
// mode canonical: an algorithm that sends partial sums or products of floating-point elements of less than 4 bytes
// sends them in f32, in which they are accumulated. It then runs on copies of the inputs in f32, and its results are
// rounded once, at the end.
tensor::ElementType MessageType(const CollectivePlan& plan, const CollectiveSpec& spec);

}  // namespace xlad::collectives

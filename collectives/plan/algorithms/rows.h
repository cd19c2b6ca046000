// The rows of the table of algorithms.
#pragma once

#include "collectives/plan/algorithm.h"

namespace xlad::collectives {

Algorithm DirectAlgorithm();            // direct.cc
Algorithm OneShotAlgorithm();           // direct.cc
Algorithm RingAlgorithm();              // ring.cc
Algorithm Ring2dAlgorithm();            // ring_2d.cc
Algorithm DoubleBinaryTreeAlgorithm();  // double_binary_tree.cc

}  // namespace xlad::collectives

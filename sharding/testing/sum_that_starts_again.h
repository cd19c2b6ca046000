// A reducer that the partitioner takes to be associative, although it is not.
#pragma once

namespace xlad::sharding {

// A sum that restarts from 0 if it is between -10 and -8. It is associative for the sample numbers on which the
// partitioner tests the reducer (LawsOf), but not for the sums of an instance of 8 shards. The samples include the
// scalar constants of a reducer and their neighbors. Here the limits are elements of an array, so they are not
// included.
//
// These are the instructions of a computation whose parameters are a and b.
inline constexpr const char* kSumThatStartsAgain =
    "limits = s32[2] constant({-10, -8})\n"
    "  first = s32[1] slice(limits), slice={[0:1]}\n  least = s32[] reshape(first)\n"
    "  second = s32[1] slice(limits), slice={[1:2]}\n  most = s32[] reshape(second)\n"
    "  zero = s32[] constant(0)\n  ab = s32[] add(a, b)\n  clamped = s32[] clamp(least, ab, most)\n"
    "  t = pred[] compare(ab, clamped), direction=EQ\n  ROOT c = s32[] select(t, zero, ab)";

}  // namespace xlad::sharding

// What job states mean.
#pragma once

#include "proto/job.pb.h"
#include "proto/xlad_v1.h"

namespace xlad {

// Whether nothing will happen any more to a job in this state.
inline bool HasEnded(JobState state) { return state == SUCCEEDED || state == FAILED || state == CANCELLED; }

}  // namespace xlad

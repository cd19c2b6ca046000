// What job states mean.
#pragma once

#include "proto/job.pb.h"
#include "proto/xlad_v1.h"

namespace xlad {

// Whether the state is final: a job in this state never changes again.
inline bool HasEnded(JobState state) { return state == SUCCEEDED || state == FAILED || state == CANCELLED; }

}  // namespace xlad

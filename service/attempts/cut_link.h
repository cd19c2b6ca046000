// The end of an attempt because of a link between two of its workers.
#pragma once

#include "service/state/context.h"

namespace xlad::service {

// Ends the attempt if what the worker reports of its peers shows that a link is cut, and keeps the two workers apart
// for a while. Returns whether the attempt was ended.
bool EndIfLinkIsCut(Context& context, const WorkerId& worker, const RunningTask& task, Job* job);

}  // namespace xlad::service

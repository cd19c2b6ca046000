// Ends an attempt because the link between two of its workers is down.
#pragma once

#include "service/state/context.h"

namespace xlad::service {

// Ends the attempt if the worker's report about its peers shows that a link is down. The two workers then get no common
// attempt for keep_apart_ms if other workers are free. Returns whether the attempt was ended.
bool EndIfLinkIsCut(Context& context, const WorkerId& worker, const RunningTask& task, Job* job);

}  // namespace xlad::service

// Explains why a job is in its state, for `xlad why`.
#pragma once

#include "service/state/context.h"

namespace xlad::service {

WhyJobResponse WhyJob(const Context& context, const Job& job);

}  // namespace xlad::service

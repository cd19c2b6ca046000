// Explains why a job is in its state, for `xlad why`.
#pragma once

#include "service/state/context.h"

namespace xlad::service {

// `of_client` is the evidence about the client of a session; it may be empty.
WhyJobResponse WhyJob(const Context& context, const Job& job, const std::string& of_client);

}  // namespace xlad::service

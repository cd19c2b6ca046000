// The timeline of a job in the Trace Event format, which ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <string>

#include "google/protobuf/repeated_ptr_field.h"
#include "observe/alignment.h"
#include "proto/job.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::observe {

// `traces` are aligned. One process for the job, with its events and what it did when; one process for each worker of
// each attempt, with a thread for each device: steps, and inside them instructions; an arrow for each message from its
// sender to its receiver. Times are in microseconds after `start_unix_ns` of the field "otherData", which also names
// the job and says what is missing. The workers of 1,000 devices make as many threads; the size of the text is
// proportional to the number of spans and messages.
std::string TimelineJson(const std::string& job,
                         const google::protobuf::RepeatedPtrField<JobLogResponse::Event>& events, const Traces& traces);

}  // namespace xlad::observe

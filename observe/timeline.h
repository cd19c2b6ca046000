// The timeline of a job in the Trace Event format, which ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <string>

#include "google/protobuf/repeated_ptr_field.h"
#include "observe/alignment.h"
#include "proto/job.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::observe {

// `traces` must be aligned (Align). The timeline has a process for the job, with its events and phases, and a process
// for each worker of each attempt. A worker's process has a thread per device, with steps and their instructions. An
// arrow connects the sender and the receiver of each message. The field "otherData" has the id of the job, the start
// time `start_unix_ns`, which data is missing, and the worst violation (WorstViolationNs). Times are in microseconds
// after the start time. The size of the text is proportional to the number of spans and messages.
std::string TimelineJson(const std::string& job,
                         const google::protobuf::RepeatedPtrField<JobLogResponse::Event>& events, const Traces& traces);

}  // namespace xlad::observe

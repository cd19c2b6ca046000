#include "service/log/job_log.h"

namespace xlad::service {

absl::Status VisitEventsOf(JobLog& log, const JobId& job, const std::function<void(const JobEvent&)>& visit) {
  constexpr int64_t kEventsOfARead = 1000;
  int64_t after = 0;
  while (true) {
    XLAD_ASSIGN_OR_RETURN(const std::vector<JobEvent> events, log.ReadEventsOf(job, after, kEventsOfARead));
    for (const JobEvent& event : events) visit(event);
    if (std::ssize(events) < kEventsOfARead) return absl::OkStatus();
    after = events.back().sequence();
  }
}

}  // namespace xlad::service

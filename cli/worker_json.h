// The JSON of a worker, which `xlad status` and `xlad nodes` print.
#pragma once

#include <nlohmann/json.hpp>

#include "proto/job.pb.h"

namespace xlad::cli {

inline nlohmann::ordered_json WorkerToJson(const ListWorkersResponse::Worker& worker) {
  return {{"id", worker.id()},           {"host", worker.host()},           {"pid", worker.pid()},
          {"devices", worker.devices()}, {"state", worker.state()},         {"reason", worker.reason()},
          {"job", worker.job_id()},      {"silent_ms", worker.silent_ms()}, {"version", worker.version()}};
}

}  // namespace xlad::cli

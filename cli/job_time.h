// The time of a job by cause, as `xlad why` and `xlad status` print it.
#pragma once

#include <nlohmann/json.hpp>

#include "proto/job.pb.h"

namespace xlad::cli {

// Seconds by cause.
inline nlohmann::ordered_json TimeToJson(const google::protobuf::RepeatedPtrField<JobTime>& time) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const JobTime& part : time) json[part.cause()] = part.seconds();
  return json;
}

// Returns the share of a job's time, from 0 to 1, that was spent on steps whose results count; 0 if there is no time.
inline double GoodputOf(const google::protobuf::RepeatedPtrField<JobTime>& time) {
  double all = 0, steps = 0;
  for (const JobTime& part : time) {
    all += part.seconds();
    if (part.cause() == "step") steps += part.seconds();
  }
  return all > 0 ? steps / all : 0;
}

}  // namespace xlad::cli

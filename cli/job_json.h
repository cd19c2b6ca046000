// The JSON of a job, which `xlad ps` and `xlad top` print.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "proto/job.pb.h"
#include "proto/mesh.h"

namespace xlad::cli {

inline nlohmann::ordered_json JobToJson(const JobStatus& job) {
  nlohmann::ordered_json json;
  json["id"] = job.id();
  json["name"] = job.name();
  json["owner"] = job.owner();
  json["state"] = JobState_Name(job.state());
  json["mesh"] = MeshText(job.mesh());
  json["step"] = job.step();
  json["steps"] = job.steps();
  json["loss"] = job.has_loss() ? nlohmann::ordered_json(job.loss()) : nlohmann::ordered_json(nullptr);
  json["reason"] = job.reason();
  json["warnings"] = std::vector<std::string>(job.warnings().begin(), job.warnings().end());
  json["attempt"] = job.attempt();
  json["workers"] = nlohmann::ordered_json::array();
  for (const JobWorker& worker : job.workers()) {
    json["workers"].push_back(
        {{"id", worker.id()}, {"host", worker.host()}, {"pid", worker.pid()}, {"state", worker.state()}});
  }
  return json;
}

}  // namespace xlad::cli

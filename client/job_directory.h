// A job directory: program, manifest, state and data, as `xlad run` and `xlad submit` take them.
//
// docs/job-directory.md has the format.
#pragma once

#include <string>
#include <vector>

#include "base/file_system.h"
#include "proto/job.pb.h"

namespace xlad::client {

// A job ready to be submitted: the spec names the blobs by hash, and here are their bytes.
struct Job {
  JobSpec spec;
  std::string program;  // HLO text or proto, as in the file.
  std::string program_path;
  std::string state;    // safetensors
  std::string data;     // safetensors; may be empty
};

// Reads and checks a job directory. `mesh` is as in --mesh ("dp=4,tp=2"): the program of the manifest's mesh with
// these axes, or, where only the names match, that program with other sizes; empty: the single-device program.
// `steps` < 0: as many as the manifest says. Errors name file, field, what was found and what was expected.
absl::StatusOr<Job> ReadJobDirectory(FileSystem& files, const std::string& directory, const std::string& mesh,
                                     int64_t steps);

// Axes of "dp=4,tp=2", in order.
absl::StatusOr<std::vector<MeshAxis>> ParseMeshFlag(const std::string& text);

}  // namespace xlad::client

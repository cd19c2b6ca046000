// Job directories, the input of `xlad run` and `xlad submit`: the manifest, programs, state and data of a job.
// docs/reference/job-directory.md describes the format.
#pragma once

#include <string>
#include <vector>

#include "base/file_system.h"
#include "proto/job.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::client {

// A job that can be submitted: the spec, which has the hashes of the blobs, and the bytes of the blobs.
struct Job {
  JobSpec spec;
  std::string program;       // HLO text or proto, as in the file.
  std::string program_path;  // The path of that file.
  std::string state;         // safetensors
  std::string data;          // safetensors, or "" if the program has no data parameters.
};

// Reads and checks a job directory.
//
// `mesh` is the value of --mesh, such as "dp=4,tp=2". It selects the program of the manifest's mesh with these axes and
// sizes. If there is no such mesh, it selects the program of the first mesh with the same axis names, which then runs
// with the given sizes. "" selects the program for a single device. If `steps` is 0 or more, it replaces the manifest's
// number of steps. Error messages contain the file and the field, what was found and what was expected.
absl::StatusOr<Job> ReadJobDirectory(FileSystem& files, const std::string& directory, const std::string& mesh,
                                     int64_t steps);

// Parses the axes of "dp=4,tp=2", in order. Returns no axes for "" and "single". Errors: InvalidArgument if `text` is
// malformed or has more than 65,536 devices.
absl::StatusOr<std::vector<MeshAxis>> ParseMeshFlag(const std::string& text);

}  // namespace xlad::client

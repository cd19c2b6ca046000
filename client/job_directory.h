// Job directories: manifest, programs, state and data of a job, the input of `xlad run` and `xlad submit`. The format
// is described in docs/reference/job-directory.md.
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
// sizes, or else of the first mesh with the same axis names, which then runs with the given sizes. "" selects the
// program for a single device. `steps` replaces the manifest's number of steps unless it is negative. Error messages
// have the file and the field, what was found and what was expected.
absl::StatusOr<Job> ReadJobDirectory(FileSystem& files, const std::string& directory, const std::string& mesh,
                                     int64_t steps);

// The axes of "dp=4,tp=2" in order; none for "" and "single". InvalidArgument if `text` is malformed or has more than
// 65,536 devices.
absl::StatusOr<std::vector<MeshAxis>> ParseMeshFlag(const std::string& text);

}  // namespace xlad::client

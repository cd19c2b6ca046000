// Job directories, the input of `xlad run` and `xlad submit`: the manifest, programs, state and data of a job.
// docs/reference/job-directory.md describes the format.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "proto/job.pb.h"
#include "proto/xlad_v1.h"
#include "storage/tensor_source.h"

namespace xlad::client {

// A job that can be submitted: the spec, which has the hashes of the blobs, and the bytes of the blobs.
struct Job {
  JobSpec spec;
  std::string program;       // HLO text or proto, as in the file.
  std::string program_path;  // The path of that file.
  // The safetensors files of the state and the data. They may be larger than memory, so they are read in parts. A path
  // is empty if the spec has a URI instead (state_uri, data_uri). data_path is empty, too, if the program has no data
  // parameters.
  std::string state_path, data_path;
};

// URIs (storage/uri.h) of a job's initial state and data: safetensors files, folders of safetensors files, or
// checkpoints. An empty URI stands for that of the manifest, or for the file in the job directory if the manifest has
// none.
struct TensorUris {
  std::string state, data;
};

// Reads and checks a job directory.
//
// `mesh` is the value of --mesh, such as "dp=4,tp=2". It selects the program of the manifest's mesh with these axes and
// sizes. If there is no such mesh, it selects the program of the first mesh with the same axis names, which then runs
// with the given sizes. "" selects the program for a single device. If `steps` is 0 or more, it replaces the manifest's
// number of steps. Error messages contain the file and the field, what was found and what was expected.
absl::StatusOr<Job> ReadJobDirectory(FileSystem& files, const std::string& directory, const std::string& mesh,
                                     int64_t steps, const TensorUris& uris = {});

// Open the state and the data of a job on this machine. OpenData returns null if the program has no data parameters.
absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenState(FileSystem& files, const Job& job);
absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenData(FileSystem& files, const Job& job);

// Parses the axes of "dp=4,tp=2", in order. Returns no axes for "" and "single". Errors: InvalidArgument if `text` is
// malformed or has more than 65,536 devices.
absl::StatusOr<std::vector<MeshAxis>> ParseMeshFlag(const std::string& text);

}  // namespace xlad::client

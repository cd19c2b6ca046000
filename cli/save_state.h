// Reads the state of a job, from its newest checkpoint or its final state, into a file.
#pragma once

#include <string>

#include "client/coordinator_client.h"
#include "storage/store.h"

namespace xlad::cli {

// Returns a store that opens URIs and reads blobs from the coordinator. The client must outlive the store.
storage::Store StoreOf(client::CoordinatorClient& client);

// Writes all tensors into one safetensors file, or to standard output if `path` is empty or "-".
absl::Status SaveTensors(const storage::Store& store, const std::string& uri, const std::string& path);

// The URI of the job's final state, or of its newest checkpoint if it has no final state. NotFound if the job has
// neither.
absl::StatusOr<std::string> StateUriOf(const JobStatus& status);

}  // namespace xlad::cli

// The worker daemon.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/grpc_channel.h"
#include "base/status.h"

namespace xlad::worker {

struct WorkerOptions {
  Endpoint coordinator;
  int devices = 1;
  std::string listen_host = "127.0.0.1";  // Where peers connect; the port is any free one.
  std::string worker_id;                  // Empty: a random one, or the one kept in data_folder.
  std::string data_folder;                // Empty: nothing is kept.
  int64_t grace_ms = 30'000;              // How long draining may take.
  // A task whose device has been in one operation of a collective for so long has failed; 0: never. Shorter than the
  // longest time between two collectives of a step it ends tasks that are only slow.
  int64_t progress_limit_ms = 600'000;
};

// Runs until *stop is not 0 and then drains: tasks are handed over with their state. OK after an orderly end, also
// where nothing could be handed over because the coordinator is away and nothing runs. DeadlineExceeded where a task
// still ran when the grace was over. InvalidArgument for a listen host that is not loopback, and whatever the
// coordinator refuses for good.
absl::Status RunWorker(const WorkerOptions& options, std::atomic<int>* stop);

}  // namespace xlad::worker

// The table of the coordinator's calls: how each call reads and checks its request, and calls the engine.
#pragma once

#include "service/engine.h"
#include "service/rpc/grpc_calls.h"
#include "service/rpc/grpc_streams.h"

namespace xlad::service {

// The pools on which handlers run. Calls that may wait for a worker, a build or another call have a pool of their own,
// so that they do not delay short requests, downloads and uploads. Handlers of one user occupy at most half of the
// threads of a pool that the others do not occupy, unless the user is a worker or the owner (HandlerPool::Run).
struct HandlerPools {
  HandlerPool requests{64, 4096};   // Short requests. Several submissions share one write to the disk.
  HandlerPool sessions{256, 1024};  // Calls of sessions, which may wait for a build or a worker.
  HandlerPool batches{256, 1024};   // Requests of workers, which may wait for a batch.
  HandlerPool feeds{256, 1024};     // Uploads of batches, which many workers of a job may wait for at once.
  HandlerPool disk{32, 4096};       // Requests that only the disk delays: checks of blobs, backups.
  HandlerPool reads{32, 4096};      // Downloads, which take as long as the networks of their clients need.
  HandlerPool uploads{256, 4096};   // Uploads of blobs, which take as long as the networks of their clients need.
  void Stop();
};

struct Serving {
  Engine* engine = nullptr;
  HandlerPools* pools = nullptr;
  SerialQueue* worker_messages = nullptr;
  Followers* followers = nullptr;
  MessageLimits* message_limits = nullptr;
};

// All objects of `serving` must outlive the table's calls.
CallTable MakeCallTable(const Serving& serving);

}  // namespace xlad::service

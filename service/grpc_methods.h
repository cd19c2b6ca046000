// The table of the coordinator's calls: how each call reads and checks its request, and calls the engine.
#pragma once

#include "service/engine.h"
#include "service/grpc_calls.h"
#include "service/grpc_streams.h"

namespace xlad::service {

// The pools on which handlers run. A call and the calls that it may wait for are in different pools, so that they
// cannot block each other: calls in `waits` wait for workers, calls in `reads` wait for uploads.
struct HandlerPools {
  HandlerPool requests{64, 4096};  // Short requests. Several submissions share one write to the disk.
  HandlerPool waits{256, 1024};    // Requests that wait for a build, a result or a batch.
  HandlerPool reads{32, 4096};     // Downloads, including those that wait for an array.
  HandlerPool uploads{32, 4096};
  void Stop();
};

struct Serving {
  Engine* engine = nullptr;
  HandlerPools* pools = nullptr;
  SerialQueue* worker_messages = nullptr;
  Followers* followers = nullptr;
};

// All objects of `serving` must outlive the table's calls.
CallTable MakeCallTable(const Serving& serving);

}  // namespace xlad::service

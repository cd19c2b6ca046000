// The table of the coordinator's calls: what each one reads, checks, asks of the engine and answers.
#pragma once

#include "service/engine.h"
#include "service/grpc_calls.h"
#include "service/grpc_streams.h"

namespace xlad::service {

// The pools on which handlers run. Calls that may wait for other calls are in another pool than those: a call of
// `waits` for workers, one of `reads` for uploads.
struct HandlerPools {
  HandlerPool requests{64, 4096};  // Short requests. A submission waits for the disk, together with the others.
  HandlerPool waits{256, 1024};    // Requests that wait for a build, a result or a batch.
  HandlerPool reads{32, 4096};     // Downloads, also those that wait for an array.
  HandlerPool uploads{32, 4096};
  void Stop();
};

struct Serving {
  Engine* engine = nullptr;
  HandlerPools* pools = nullptr;
  SerialQueue* worker_messages = nullptr;
  Followers* followers = nullptr;
};

// All of `serving` outlives the table's calls.
CallTable MakeCallTable(const Serving& serving);

}  // namespace xlad::service

// Forwards calls of clients to the first worker of their session, for clients that cannot reach that worker. Messages
// are forwarded one at a time, so the memory use does not depend on the size of an array.
#pragma once

#include <map>
#include <string>

#include "service/engine.h"
#include "service/rpc/grpc_calls.h"

namespace xlad::service {

// The handlers by the names of their calls. A handler waits until the session runs and the worker has answered.
std::map<std::string, Handler> SessionRelays(Engine* engine);

}  // namespace xlad::service

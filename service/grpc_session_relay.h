// Passes calls of clients on to the first worker of their session, for clients that cannot reach it. Messages are
// passed on one at a time, so that the memory that this takes does not depend on the size of an array.
#pragma once

#include <map>
#include <string>

#include "service/engine.h"
#include "service/grpc_calls.h"

namespace xlad::service {

// The handlers by the names of their calls. They wait until the session runs, and for the worker's answer.
std::map<std::string, Handler> SessionRelays(Engine* engine);

}  // namespace xlad::service

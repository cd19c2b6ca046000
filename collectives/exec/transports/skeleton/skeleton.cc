#include "collectives/exec/transports/skeleton/skeleton.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

// The state of a request. In a plugin for a library, it contains that library's request.
struct xlad_transport_request {
  const xlad_transport_peer* peer = nullptr;
  int status = XLAD_TRANSPORT_PENDING;
  const std::byte* data = nullptr;  // The data to send; null in a receive.
  std::byte* to = nullptr;          // The memory to receive in; null in a send.
  size_t bytes = 0;
  std::vector<std::byte> copy;  // The data of a small send, whose request has already ended.
};

struct xlad_transport_engine {
  int64_t id = 0;
  int32_t device = 0;
  std::set<xlad_transport_request*> requests;
};

struct xlad_transport_peer {
  int64_t id = 0;  // The id of the peer's engine.
  int32_t device = 0;
};

namespace xlad::collectives {
namespace {

using Request = xlad_transport_request;
using RequestPtr = std::unique_ptr<Request>;

constexpr size_t kCopyUpTo = 16 << 10;

// The ids of the sending and of the receiving engine, and the stream.
using Route = std::tuple<int64_t, int64_t, int32_t>;

struct Hub {
  std::mutex mutex;
  int64_t last_id = 0;
  std::set<int64_t> engines;
  std::map<Route, std::deque<Request*>> sends, receives;
};

Hub& TheHub() {
  static auto* const hub = new Hub();
  return *hub;
}

int Fail(int code, const std::string& text, xlad_transport_error* error) {
  std::snprintf(error->text, sizeof error->text, "%s", text.c_str());
  return code;
}

// Copies the oldest messages of a route to its oldest receives. A small send has already ended, so the table owns its
// request.
void Match(Hub* hub, const Route& route) {
  std::deque<Request*>& sends = hub->sends[route];
  std::deque<Request*>& receives = hub->receives[route];
  while (!sends.empty() && !receives.empty()) {
    Request* const send = sends.front();
    Request* const receive = receives.front();
    sends.pop_front();
    receives.pop_front();
    receive->status = send->bytes <= receive->bytes ? XLAD_TRANSPORT_OK : XLAD_TRANSPORT_FAILED;
    receive->bytes = std::min(send->bytes, receive->bytes);
    if (receive->bytes > 0) std::memcpy(receive->to, send->data, receive->bytes);
    if (send->status == XLAD_TRANSPORT_OK) {
      delete send;
    } else {
      send->status = XLAD_TRANSPORT_OK;
    }
  }
}

int Open(const xlad_transport_options* options, xlad_transport_engine** engine, xlad_transport_error*) {
  Hub& hub = TheHub();
  const std::lock_guard<std::mutex> lock(hub.mutex);
  *engine = new xlad_transport_engine{++hub.last_id, options->device, {}};
  hub.engines.insert((*engine)->id);
  return XLAD_TRANSPORT_OK;
}

void Close(xlad_transport_engine* engine) {
  Hub& hub = TheHub();
  const std::lock_guard<std::mutex> lock(hub.mutex);
  hub.engines.erase(engine->id);
  delete engine;
}

int Address(xlad_transport_engine* engine, const void** data, size_t* bytes, xlad_transport_error*) {
  *data = &engine->id;
  *bytes = sizeof engine->id;
  return XLAD_TRANSPORT_OK;
}

int Connect(xlad_transport_engine*, const xlad_transport_target* target, xlad_transport_peer** peer,
            xlad_transport_error* error) {
  int64_t id = 0;
  if (target->bytes != sizeof id)
    return Fail(XLAD_TRANSPORT_FAILED, "connect: found an address of another size, expected 8 bytes", error);
  std::memcpy(&id, target->address, sizeof id);
  *peer = new xlad_transport_peer{id, target->device};
  return XLAD_TRANSPORT_OK;
}

// Ends the requests of the peer, whose memory is not accessed again. Small messages are in the table and need no flush.
void Disconnect(xlad_transport_engine* engine, xlad_transport_peer* peer, int32_t) {
  Hub& hub = TheHub();
  const std::lock_guard<std::mutex> lock(hub.mutex);
  for (auto at = engine->requests.begin(); at != engine->requests.end();) {
    Request* const request = *at;
    if (request->peer != peer) {
      ++at;
      continue;
    }
    for (auto* table : {&hub.sends, &hub.receives}) {
      for (auto& [route, queue] : *table) std::erase(queue, request);
    }
    at = engine->requests.erase(at);
    delete request;
  }
  delete peer;
}

int Post(xlad_transport_engine* engine, const xlad_transport_message* message, xlad_transport_request** request,
         xlad_transport_error* error) {
  const auto [peer, stream, data, to, bytes] = *message;
  Hub& hub = TheHub();
  const std::lock_guard<std::mutex> lock(hub.mutex);
  if (!hub.engines.contains(peer->id)) return Fail(XLAD_TRANSPORT_PEER_LOST, "post: the peer has closed", error);
  auto made = std::make_unique<Request>();
  made->peer = peer;
  made->bytes = bytes;
  const bool copies = bytes <= kCopyUpTo;
  const auto* const from = static_cast<const std::byte*>(data);
  if (copies) made->copy.assign(from, from + bytes);
  made->data = copies ? made->copy.data() : from;
  made->status = copies ? XLAD_TRANSPORT_OK : XLAD_TRANSPORT_PENDING;
  Request* const raw = made.release();
  if (!copies) engine->requests.insert(raw);
  const Route route{engine->id, peer->id, stream};
  hub.sends[route].push_back(raw);
  Match(&hub, route);
  if (copies) return XLAD_TRANSPORT_OK;
  *request = raw;
  return XLAD_TRANSPORT_PENDING;
}

int PostReceive(xlad_transport_engine* engine, const xlad_transport_message* message, xlad_transport_request** request,
                size_t*, xlad_transport_error*) {
  const auto [peer, stream, unused, data, bytes] = *message;
  Hub& hub = TheHub();
  const std::lock_guard<std::mutex> lock(hub.mutex);
  auto made = std::make_unique<Request>();
  made->peer = peer;
  made->to = static_cast<std::byte*>(data);
  made->bytes = bytes;
  *request = made.release();
  engine->requests.insert(*request);
  const Route route{peer->id, engine->id, stream};
  hub.receives[route].push_back(*request);
  Match(&hub, route);
  return XLAD_TRANSPORT_PENDING;
}

int Test(xlad_transport_engine* engine, xlad_transport_request* request, size_t* received,
         xlad_transport_error* error) {
  Hub& hub = TheHub();
  const std::lock_guard<std::mutex> lock(hub.mutex);
  const int status = request->status;
  if (status == XLAD_TRANSPORT_PENDING) return status;
  if (received != nullptr) *received = request->bytes;
  engine->requests.erase(request);
  delete request;
  if (status != XLAD_TRANSPORT_OK) return Fail(status, "test: the message is longer than its receive", error);
  return status;
}

int MakeProgress(xlad_transport_engine*) { return 0; }

constexpr xlad_transport_api kApi = {XLAD_TRANSPORT_ABI,
                                     sizeof(xlad_transport_api),
                                     /*flags=*/0,
                                     "skeleton",
                                     "skeleton",
                                     Open,
                                     Close,
                                     Address,
                                     Connect,
                                     Disconnect,
                                     Post,
                                     PostReceive,
                                     Test,
                                     MakeProgress,
                                     /*register_memory=*/nullptr,
                                     /*unregister_memory=*/nullptr,
                                     /*end_process=*/nullptr};

}  // namespace

const xlad_transport_api* SkeletonTransport() { return &kApi; }

}  // namespace xlad::collectives

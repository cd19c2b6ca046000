// The transport plugin "ucx": tagged messages of UCX's protocol layer (openucx.readthedocs.io, UCP). Each engine has
// one UCX worker. The tag of a message contains the device that sends it and the stream.
#include <time.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "collectives/exec/transports/plugin/xlad_transport.h"

struct xlad_transport_request {
  void* ucx = nullptr;
  xlad_transport_peer* peer = nullptr;
  bool receives = false;
};

struct xlad_transport_peer {
  ucp_ep_h endpoint = nullptr;
  int32_t device = 0;
  ucs_status_t failure = UCS_OK;  // Set by UCX when the peer is lost.
  std::set<xlad_transport_request*> requests;
};

struct xlad_transport_engine {
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;  // Null after Stop.
  ucp_address_t* address = nullptr;
  size_t address_bytes = 0;
  int32_t device = 0;
  bool any_network = false;
};

namespace {

// The requests of an endpoint may take `flush_ms` plus this many milliseconds to end. After that, the endpoint may take
// as long again to close.
constexpr int64_t kEndMs = 1000;

int Fail(const char* what, ucs_status_t status, xlad_transport_error* error) {
  std::snprintf(error->text, sizeof error->text, "%s: %s", what, ucs_status_string(status));
  const bool lost = status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT ||
                    status == UCS_ERR_UNREACHABLE || status == UCS_ERR_NOT_CONNECTED || status == UCS_ERR_CANCELED;
  return lost ? XLAD_TRANSPORT_PEER_LOST : XLAD_TRANSPORT_FAILED;
}

int FailStopped(xlad_transport_error* error) {
  return Fail("a message of a disconnected peer did not end, so this engine has stopped", UCS_ERR_CANCELED, error);
}

uint64_t Tag(int32_t from_device, int32_t stream) {
  return static_cast<uint64_t>(static_cast<uint32_t>(from_device)) << 1 | static_cast<uint32_t>(stream);
}

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void OnFailure(void* argument, ucp_ep_h, ucs_status_t status) {
  static_cast<xlad_transport_peer*>(argument)->failure = status;
}

ucs_status_t OpenContext(const xlad_transport_options* options, xlad_transport_engine* engine) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return status;
  if (options->any_network == 0) status = ucp_config_modify(config, "NET_DEVICES", "lo");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG;
  params.name = "xlad";
  if (status == UCS_OK) status = ucp_init(&params, config, &engine->context);
  ucp_config_release(config);
  return status;
}

// Receives the messages that have arrived and that no request waits for, such as the last frames of a peer, which this
// side does not need. Otherwise UCX would print a warning for each of them. A large message, whose payload UCX may have
// to request from its sender, is left, and so are later ones of its stream. UCX may write to the returned memory until
// the worker is destroyed.
std::vector<std::vector<char>> TakeUnexpected(ucp_worker_h worker) {
  constexpr size_t kMaxBytes = 16 << 10;
  constexpr uint64_t kStreamBit = 1;
  std::vector<std::vector<char>> taken;
  ucp_tag_recv_info_t info{};
  for (const int32_t stream : {0, 1}) {
    const uint64_t tag = Tag(/*from_device=*/0, stream);
    while (ucp_tag_probe_nb(worker, tag, kStreamBit, /*remove=*/0, &info) != nullptr && info.length <= kMaxBytes) {
      const ucp_tag_message_h message = ucp_tag_probe_nb(worker, tag, kStreamBit, /*remove=*/1, &info);
      taken.emplace_back(info.length);
      const ucp_request_param_t param{};
      void* const request = ucp_tag_msg_recv_nbx(worker, taken.back().data(), info.length, message, &param);
      if (request != nullptr && !UCS_PTR_IS_ERR(request)) ucp_request_free(request);
    }
  }
  return taken;
}

// Ends the endpoints and requests of all peers. After this, UCX accesses no memory of any operation.
void Stop(xlad_transport_engine* engine) {
  if (engine->address != nullptr) ucp_worker_release_address(engine->worker, engine->address);
  if (engine->worker != nullptr) {
    const std::vector<std::vector<char>> unexpected = TakeUnexpected(engine->worker);
    ucp_worker_destroy(engine->worker);
  }
  engine->address = nullptr;
  engine->address_bytes = 0;
  engine->worker = nullptr;
}

void Close(xlad_transport_engine* engine) {
  Stop(engine);
  if (engine->context != nullptr) ucp_cleanup(engine->context);
  delete engine;
}

int Open(const xlad_transport_options* options, xlad_transport_engine** engine, xlad_transport_error* error) {
  auto* const made = new xlad_transport_engine();
  made->device = options->device;
  made->any_network = options->any_network != 0;
  ucs_status_t status = OpenContext(options, made);
  const char* what = "ucp_init";
  if (status == UCS_OK) {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    what = "ucp_worker_create";
    status = ucp_worker_create(made->context, &params, &made->worker);
  }
  if (status == UCS_OK) {
    what = "ucp_worker_get_address";
    status = ucp_worker_get_address(made->worker, &made->address, &made->address_bytes);
  }
  if (status != UCS_OK) {
    Close(made);
    return Fail(what, status, error);
  }
  *engine = made;
  return XLAD_TRANSPORT_OK;
}

int Address(xlad_transport_engine* engine, const void** data, size_t* bytes, xlad_transport_error*) {
  *data = engine->address;
  *bytes = engine->address_bytes;
  return XLAD_TRANSPORT_OK;
}

int Connect(xlad_transport_engine* engine, const xlad_transport_target* target, xlad_transport_peer** peer,
            xlad_transport_error* error) {
  if (engine->worker == nullptr) return FailStopped(error);
  const std::string copy(static_cast<const char*>(target->address), target->bytes);
  auto* const made = new xlad_transport_peer();
  made->device = target->device;
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(copy.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnFailure;
  params.err_handler.arg = made;
  const ucs_status_t status = ucp_ep_create(engine->worker, &params, &made->endpoint);
  if (status != UCS_OK) {
    delete made;
    const int code = Fail("ucp_ep_create", status, error);
    if (status == UCS_ERR_UNREACHABLE && !engine->any_network) {
      const std::string text = error->text;
      std::snprintf(error->text, sizeof error->text,
                    "%s; without --insecure-network, UCX uses only this host, because its traffic is neither encrypted "
                    "nor authenticated; --transport tcp encrypts between hosts",
                    text.c_str());
    }
    return code;
  }
  *peer = made;
  return XLAD_TRANSPORT_OK;
}

// Polls until `done()` is true, or for at most `ms` milliseconds. Returns whether `done()` was true.
template <typename Done>
bool ProgressUntil(xlad_transport_engine* engine, int64_t ms, const Done& done) {
  const int64_t end_ms = NowMs() + ms;
  while (!done()) {
    if (NowMs() > end_ms) return false;
    ucp_worker_progress(engine->worker);
  }
  return true;
}

bool HasEnded(void* request) { return ucp_request_check_status(request) != UCS_INPROGRESS; }

// Whether all sends to a peer have ended and, if `receives` is true, all receives too.
bool HaveEnded(const xlad_transport_peer& peer, bool receives) {
  return std::all_of(peer.requests.begin(), peer.requests.end(), [&](const xlad_transport_request* request) {
    return (request->receives && !receives) || HasEnded(request->ucx);
  });
}

bool IsRequest(const void* result) { return result != nullptr && !UCS_PTR_IS_ERR(result); }

// Waits at most `ms` milliseconds until the messages that UCX still buffers have left this process.
void Flush(xlad_transport_engine* engine, ucp_ep_h endpoint, int64_t ms) {
  const ucp_request_param_t param{};
  void* const flushing = ucp_ep_flush_nbx(endpoint, &param);
  if (!IsRequest(flushing)) return;
  ProgressUntil(engine, ms, [&] { return HasEnded(flushing); });
  ucp_request_free(flushing);
}

// Forgets a peer whose endpoint and requests Stop has ended.
void Forget(xlad_transport_peer* peer) {
  for (const xlad_transport_request* request : peer->requests) delete request;
  delete peer;
}

// Cancels receives. Sends end with the endpoint. A receive whose message has begun to arrive cannot be canceled. Most
// of these end when the endpoint is closed by force. But UCX keeps a receive of a message that arrives in several
// fragments until the peer has sent the rest, and then writes the rest to its memory, even though the endpoint is
// closed. If such a receive has not ended after `flush_ms` + kEndMs, only the end of the worker keeps UCX from writing.
// The engine is then useless, which is acceptable because xlad disconnects in the middle of a message only if the task
// fails.
void Disconnect(xlad_transport_engine* engine, xlad_transport_peer* peer, int32_t flush_ms) {
  if (engine->worker == nullptr) return Forget(peer);
  const int64_t flush_end_ms = NowMs() + flush_ms;
  bool flushed = peer->failure == UCS_OK && flush_ms > 0 &&
                 ProgressUntil(engine, flush_ms, [&] { return HaveEnded(*peer, /*receives=*/false); });
  for (const xlad_transport_request* request : peer->requests) {
    if (request->receives && !HasEnded(request->ucx)) ucp_request_cancel(engine->worker, request->ucx);
  }
  if (flushed && !HaveEnded(*peer, /*receives=*/true)) {
    Flush(engine, peer->endpoint, flush_end_ms - NowMs());
    flushed = false;
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flushed ? 0 : UCP_EP_CLOSE_FLAG_FORCE;
  void* const closing = ucp_ep_close_nbx(peer->endpoint, &param);
  // The memory of requests belongs to xlad as soon as this function returns.
  if (!ProgressUntil(engine, flush_ms + kEndMs, [&] { return HaveEnded(*peer, /*receives=*/true); })) {
    if (IsRequest(closing)) ucp_request_free(closing);
    Stop(engine);
    return Forget(peer);
  }
  const bool ended = !IsRequest(closing) || ProgressUntil(engine, flush_ms + kEndMs, [&] { return HasEnded(closing); });
  if (IsRequest(closing)) ucp_request_free(closing);
  for (xlad_transport_request* request : peer->requests) {
    ucp_request_free(request->ucx);
    delete request;
  }
  peer->requests.clear();
  // While an endpoint has not ended, UCX may still call OnFailure, so the peer is not deleted.
  if (ended) delete peer;
}

int Started(xlad_transport_peer* peer, void* ucx, bool receives, xlad_transport_request** request,
            xlad_transport_error* error) {
  if (ucx == nullptr) return XLAD_TRANSPORT_OK;
  if (UCS_PTR_IS_ERR(ucx)) {
    return Fail(receives ? "ucp_tag_recv_nbx" : "ucp_tag_send_nbx", UCS_PTR_STATUS(ucx), error);
  }
  *request = new xlad_transport_request{ucx, peer, receives};
  peer->requests.insert(*request);
  return XLAD_TRANSPORT_PENDING;
}

int Post(xlad_transport_engine* engine, const xlad_transport_message* message, xlad_transport_request** request,
         xlad_transport_error* error) {
  const auto [peer, stream, data, to, bytes] = *message;
  if (engine->worker == nullptr) return FailStopped(error);
  if (peer->failure != UCS_OK) return Fail("the peer", peer->failure, error);
  const ucp_request_param_t param{};
  return Started(peer, ucp_tag_send_nbx(peer->endpoint, data, bytes, Tag(engine->device, stream), &param), false,
                 request, error);
}

int PostReceive(xlad_transport_engine* engine, const xlad_transport_message* message, xlad_transport_request** request,
                size_t*, xlad_transport_error* error) {
  const auto [peer, stream, unused, data, bytes] = *message;
  if (engine->worker == nullptr) return FailStopped(error);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  return Started(peer, ucp_tag_recv_nbx(engine->worker, data, bytes, Tag(peer->device, stream), UINT64_MAX, &param),
                 true, request, error);
}

int Test(xlad_transport_engine* engine, xlad_transport_request* request, size_t* received,
         xlad_transport_error* error) {
  if (engine->worker == nullptr) return FailStopped(error);
  ucp_tag_recv_info_t info{};
  const ucs_status_t status =
      request->receives ? ucp_tag_recv_request_test(request->ucx, &info) : ucp_request_check_status(request->ucx);
  xlad_transport_peer* const peer = request->peer;
  if (status == UCS_INPROGRESS) {
    // The request is kept until `disconnect`, which must end it before its memory is used again.
    return peer->failure == UCS_OK ? XLAD_TRANSPORT_PENDING : Fail("the peer", peer->failure, error);
  }
  if (received != nullptr) *received = info.length;
  ucp_request_free(request->ucx);
  peer->requests.erase(request);
  delete request;
  return status == UCS_OK ? XLAD_TRANSPORT_OK : Fail("a transfer", status, error);
}

int Progress(xlad_transport_engine* engine) {
  return engine->worker == nullptr ? 0 : static_cast<int>(ucp_worker_progress(engine->worker));
}

int RegisterMemory(xlad_transport_engine* engine, const xlad_transport_memory* memory_to_map, void** handle,
                   xlad_transport_error* error) {
  if (memory_to_map->kind != XLAD_TRANSPORT_HOST)
    return Fail("ucp_mem_map of pinned or device memory", UCS_ERR_UNSUPPORTED, error);
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory_to_map->data;
  params.length = memory_to_map->bytes;
  ucp_mem_h memory = nullptr;
  const ucs_status_t status = ucp_mem_map(engine->context, &params, &memory);
  if (status != UCS_OK) return Fail("ucp_mem_map", status, error);
  *handle = memory;
  return XLAD_TRANSPORT_OK;
}

void UnregisterMemory(xlad_transport_engine* engine, void* handle) {
  ucp_mem_unmap(engine->context, static_cast<ucp_mem_h>(handle));
}

const char* Library() {
  static const std::string text = std::string("UCX ") + ucp_get_version_string();
  return text.c_str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const xlad_transport_api* xlad_transport(void) {
  static const xlad_transport_api api = {XLAD_TRANSPORT_ABI,
                                         sizeof(xlad_transport_api),
                                         /*flags=*/0,
                                         "ucx",
                                         Library(),
                                         Open,
                                         Close,
                                         Address,
                                         Connect,
                                         Disconnect,
                                         Post,
                                         PostReceive,
                                         Test,
                                         Progress,
                                         RegisterMemory,
                                         UnregisterMemory,
                                         /*end_process=*/nullptr};
  return &api;
}

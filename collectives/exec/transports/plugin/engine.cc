#include "collectives/exec/transports/plugin/engine.h"

#include <chrono>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

// How often the engine makes progress while the device computes. A device that waits polls the engine far more often.
constexpr std::chrono::milliseconds kProgressEvery{2};
// Libraries such as UCX return after each segment of some kilobytes. While data arrives, the engine makes up to this
// many calls at once.
constexpr int kMaxProgressCalls = 16;

}  // namespace

absl::Status Engine::ToStatus(int code, const xlad_transport_error& error) const {
  if (code == XLAD_TRANSPORT_OK || code == XLAD_TRANSPORT_PENDING) return absl::OkStatus();
  const std::string text = absl::StrCat(api_->library, ": ", error.text);
  if (code == XLAD_TRANSPORT_PEER_LOST || code == XLAD_TRANSPORT_UNSUPPORTED) return absl::UnavailableError(text);
  return absl::InternalError(text);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Open(const xlad_transport_api* api, int device, bool any_network) {
  std::unique_ptr<Engine> made(new Engine(api));
  xlad_transport_options options{};
  options.struct_bytes = sizeof options;
  options.device = device;
  options.any_network = any_network ? 1 : 0;
  xlad_transport_error error{};
  XLAD_RETURN_IF_ERROR(made->ToStatus(api->open(&options, &made->engine_, &error), error));
  const void* data = nullptr;
  size_t bytes = 0;
  XLAD_RETURN_IF_ERROR(made->ToStatus(api->address(made->engine_, &data, &bytes, &error), error));
  made->address_.assign(static_cast<const char*>(data), bytes);
  made->progress_thread_ = std::thread([raw = made.get()] { raw->ProgressLoop(); });
  return made;
}

Engine::~Engine() {
  {
    const std::lock_guard<std::mutex> lock(ending_mutex_);
    ending_ = true;
    ending_changed_.notify_all();
  }
  if (progress_thread_.joinable()) progress_thread_.join();
  if (engine_ != nullptr) api_->close(engine_);
}

bool Engine::ProgressLocked() {
  int calls = 0;
  while (calls < kMaxProgressCalls && api_->progress(engine_) != 0) ++calls;
  return calls > 0;
}

void Engine::ProgressLoop() {
  std::unique_lock<std::mutex> ending_lock(ending_mutex_);
  while (!ending_changed_.wait_for(ending_lock, kProgressEvery, [this] { return ending_; })) {
    // A thread that holds the lock is calling the library, and most calls are those of a device that polls. Waiting for
    // the lock would delay the next call of that thread.
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) ProgressLocked();
  }
}

absl::StatusOr<xlad_transport_peer*> Engine::Connect(int peer_device, const std::string& address) {
  // Libraries read the size of an address from its first bytes, so they must not get an empty one.
  if (address.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(api_->library, ": found an empty address of device ", peer_device,
                                                   ", expected the address of its engine"));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const xlad_transport_target target{peer_device, address.data(), address.size()};
  xlad_transport_peer* peer = nullptr;
  xlad_transport_error error{};
  const int code = api_->connect(engine_, &target, &peer, &error);
  XLAD_RETURN_IF_ERROR(ToStatus(code, error));
  return peer;
}

void Engine::Disconnect(xlad_transport_peer* peer, int flush_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  api_->disconnect(engine_, peer, flush_ms);
}

absl::StatusOr<Engine::Started> Engine::Post(xlad_transport_peer* peer, Stream stream,
                                             absl::Span<const std::byte> data) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Started started;
  xlad_transport_error error{};
  const xlad_transport_message message{peer, stream, data.data(), nullptr, data.size()};
  const int code = api_->post(engine_, &message, &started.request, &error);
  XLAD_RETURN_IF_ERROR(ToStatus(code, error));
  if (code == XLAD_TRANSPORT_OK) started.request = nullptr;
  return started;
}

absl::StatusOr<Engine::Started> Engine::PostReceive(xlad_transport_peer* peer, Stream stream,
                                                    absl::Span<std::byte> data) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Started started;
  xlad_transport_error error{};
  const xlad_transport_message message{peer, stream, nullptr, data.data(), data.size()};
  const int code = api_->post_receive(engine_, &message, &started.request, &started.received, &error);
  XLAD_RETURN_IF_ERROR(ToStatus(code, error));
  if (code == XLAD_TRANSPORT_OK) started.request = nullptr;
  return started;
}

absl::StatusOr<bool> Engine::Test(Started* started) {
  if (started->request == nullptr) return true;
  const std::lock_guard<std::mutex> lock(mutex_);
  xlad_transport_error error{};
  const int code = api_->test(engine_, started->request, &started->received, &error);
  if (code == XLAD_TRANSPORT_PENDING) return false;
  started->request = nullptr;
  XLAD_RETURN_IF_ERROR(ToStatus(code, error));
  return true;
}

bool Engine::Progress() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ProgressLocked();
}

absl::StatusOr<std::unique_ptr<Engine::Registration>> Engine::Register(absl::Span<std::byte> memory, int kind) {
  if (api_->register_memory == nullptr) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  void* handle = nullptr;
  xlad_transport_error error{};
  const xlad_transport_memory described{memory.data(), memory.size(), kind};
  const int code = api_->register_memory(engine_, &described, &handle, &error);
  XLAD_RETURN_IF_ERROR(ToStatus(code, error));
  return std::make_unique<Registration>(this, handle);
}

Engine::Registration::~Registration() {
  const std::lock_guard<std::mutex> lock(engine_->mutex_);
  engine_->api_->unregister_memory(engine_->engine_, handle_);
}

}  // namespace xlad::collectives

// The engine of one device in a transport plugin (xlad_transport.h). Its errors are converted to statuses.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/exec/transports/plugin/xlad_transport.h"

namespace xlad::collectives {

// Thread-safe. A thread of the engine makes progress regularly, so messages are transferred while the device computes.
class Engine {
 public:
  // kHeads: the heads of frames, each with its payload if that is small. kBodies: all other payloads.
  enum Stream : int32_t { kHeads = 0, kBodies = 1 };

  // If `any_network` is true, the library may use networks other than the loopback interface. Unavailable, naming the
  // library, if the library cannot be used on this host. Internal if the library fails.
  static absl::StatusOr<std::unique_ptr<Engine>> Open(const xlad_transport_api* api, int device, bool any_network);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::string name() const { return api_->name; }
  std::string library() const { return api_->library; }
  // The address that peers pass to Connect.
  const std::string& address() const { return address_; }
  // Whether posted memory may have to stay allocated until the process ends.
  bool keeps_memory() const { return (api_->flags & XLAD_TRANSPORT_KEEPS_MEMORY) != 0; }

  // `address` comes from the peer's worker. InvalidArgument if it is empty; the library checks the rest.
  absl::StatusOr<xlad_transport_peer*> Connect(int peer_device, const std::string& address);
  // Disconnects from the peer. First waits up to `flush_ms` milliseconds until posted messages have left this process.
  void Disconnect(xlad_transport_peer* peer, int flush_ms);

  // An operation that was started. The request is null if the operation has already ended.
  struct Started {
    xlad_transport_request* request = nullptr;
    size_t received = 0;  // The number of bytes of a message whose receive has ended.
  };
  absl::StatusOr<Started> Post(xlad_transport_peer* peer, Stream stream, absl::Span<const std::byte> data);
  absl::StatusOr<Started> PostReceive(xlad_transport_peer* peer, Stream stream, absl::Span<std::byte> data);
  // Returns whether the operation has ended. After true or an error, its request must not be used again.
  absl::StatusOr<bool> Test(Started* started);
  // Returns whether data has been received or sent. The result may be false if the library does not know.
  bool Progress();

  // Memory that is prepared for faster transfers while the object exists. The engine must outlive the object.
  class Registration {
   public:
    Registration(Engine* engine, void* handle) : engine_(engine), handle_(handle) {}
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    Engine* const engine_;
    void* const handle_;
  };
  // Returns null if the library does not need registration. `kind` is one of XLAD_TRANSPORT_HOST to
  // XLAD_TRANSPORT_DEVICE.
  absl::StatusOr<std::unique_ptr<Registration>> Register(absl::Span<std::byte> memory, int kind);

 private:
  explicit Engine(const xlad_transport_api* api) : api_(api) {}
  absl::Status ToStatus(int code, const xlad_transport_error& error) const;
  bool ProgressLocked();
  void ProgressLoop();

  const xlad_transport_api* const api_;
  std::string address_;
  std::mutex mutex_;  // Held during every call of the library.
  std::mutex ending_mutex_;
  std::condition_variable ending_changed_;
  bool ending_ = false;  // Guarded by ending_mutex_.
  xlad_transport_engine* engine_ = nullptr;
  std::thread progress_thread_;
};

}  // namespace xlad::collectives

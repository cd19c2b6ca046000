// A queue of work with its own thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/device.h"
#include "runtime/devices/opaque/opaque_heap.h"

namespace xlad::runtime {

// Work runs later, in order, on the stream's thread. Tests therefore detect a missing Synchronize as a wrong result or
// a data race. After an error, later work is skipped.
class OpaqueStream final : public Stream {
 public:
  // `native` is a stream of the cpu device, for the launchers of native code. If `runs_schedules` is set, collectives
  // may run their schedules in the device's memory.
  OpaqueStream(std::shared_ptr<OpaqueHeap> heap, std::unique_ptr<Stream> native, bool runs_schedules);
  ~OpaqueStream() override;

  bool host_can_access() const override { return false; }
  absl::Status CopyToDevice(void* to, absl::Span<const std::byte> from) override;
  absl::Status CopyToHost(absl::Span<std::byte> to, const void* from) override;
  absl::Status Copy(void* to, const void* from, int64_t bytes) override;
  absl::Status FillZero(void* to, int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<Event>> Record() override;
  absl::Status WaitFor(const Event& event) override;
  absl::Status Synchronize() override;
  std::string memory_name() const override;
  absl::StatusOr<std::shared_ptr<std::byte>> AllocateDevice(int64_t bytes) override;
  std::string shared_memory_name() const override;
  absl::StatusOr<SharedMemory> AllocateShared(int64_t bytes) override;
  absl::StatusOr<std::shared_ptr<std::byte>> OpenShared(const std::string& handle) override;
  bool CanReduce(const collectives::DeviceReduction& reduction) const override;
  absl::Status Reduce(const collectives::DeviceReduction& reduction, void* to, absl::Span<const void* const> sources,
                      int64_t count) override;

  // Enqueues work on real addresses. Returns the error of earlier work, if there is one.
  absl::Status Enqueue(std::function<absl::Status()> work);
  const OpaqueHeap& heap() const { return *heap_; }
  Stream* native() const { return native_.get(); }

 private:
  void Run();
  std::shared_ptr<std::byte> Owned(void* address) const;

  const std::shared_ptr<OpaqueHeap> heap_;
  const std::unique_ptr<Stream> native_;
  const bool runs_schedules_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<absl::Status()>> queue_;  // The first item may be running.
  absl::Status status_;                              // The first error.
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace xlad::runtime

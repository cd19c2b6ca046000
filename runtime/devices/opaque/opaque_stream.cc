#include "runtime/devices/opaque/opaque_stream.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/exec/device/reduce_code.h"

namespace xlad::runtime {
namespace {

// Shared by the event and the work that reaches it, because either may be destroyed first.
struct Point {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  absl::Status status;

  absl::Status Wait() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return done; });
    return status;
  }
};

class OpaqueEvent final : public Event {
 public:
  OpaqueEvent(std::shared_ptr<Point> point, std::string device)
      : point_(std::move(point)), device_(std::move(device)) {}
  bool IsDone() const override {
    const std::lock_guard<std::mutex> lock(point_->mutex);
    return point_->done;
  }
  absl::Status Wait() const override { return point_->Wait(); }
  const std::shared_ptr<Point>& point() const { return point_; }
  const std::string& device() const { return device_; }

 private:
  const std::shared_ptr<Point> point_;
  const std::string device_;
};

// Work that marks its event as reached when it runs, or as failed when it is dropped because earlier work failed.
class Reach {
 public:
  // `error` is the stream's first error, which does not change after the work that failed.
  Reach(std::shared_ptr<Point> point, const absl::Status& error) : point_(std::move(point)), error_(error) {}
  ~Reach() { Finish(error_); }
  void Finish(absl::Status status) {
    const std::lock_guard<std::mutex> lock(point_->mutex);
    if (std::exchange(point_->done, true)) return;
    point_->status = std::move(status);
    point_->changed.notify_all();
  }

 private:
  const std::shared_ptr<Point> point_;
  const absl::Status& error_;
};

}  // namespace

OpaqueStream::OpaqueStream(std::shared_ptr<OpaqueHeap> heap, std::unique_ptr<Stream> native, bool runs_schedules)
    : heap_(std::move(heap)), native_(std::move(native)), runs_schedules_(runs_schedules), thread_([this] { Run(); }) {}

OpaqueStream::~OpaqueStream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

absl::Status OpaqueStream::Enqueue(std::function<absl::Status()> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  XLAD_RETURN_IF_ERROR(status_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return absl::OkStatus();
}

void OpaqueStream::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    // The work stays in the queue while it runs, so that Synchronize waits for it.
    std::function<absl::Status()>& work = queue_.front();
    lock.unlock();
    const absl::Status status = work();
    work = nullptr;
    lock.lock();
    queue_.pop_front();
    if (!status.ok()) {
      status_ = status;
      queue_.clear();
    }
    changed_.notify_all();
  }
}

absl::Status OpaqueStream::Synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty(); });
  return status_;
}

absl::Status OpaqueStream::CopyToDevice(void* to, absl::Span<const std::byte> from) {
  XLAD_ASSIGN_OR_RETURN(std::byte* const real, heap_->Translate(to, std::ssize(from)));
  std::vector<std::byte> bytes(from.begin(), from.end());  // The caller may reuse `from` before the work runs.
  return Enqueue([real, bytes = std::move(bytes)] {
    if (!bytes.empty()) std::memcpy(real, bytes.data(), bytes.size());
    return absl::OkStatus();
  });
}

absl::Status OpaqueStream::CopyToHost(absl::Span<std::byte> to, const void* from) {
  XLAD_ASSIGN_OR_RETURN(const std::byte* const real, heap_->Translate(from, std::ssize(to)));
  return Enqueue([to, real] {
    if (!to.empty()) std::memcpy(to.data(), real, to.size());
    return absl::OkStatus();
  });
}

absl::Status OpaqueStream::Copy(void* to, const void* from, int64_t bytes) {
  XLAD_ASSIGN_OR_RETURN(std::byte* const real_to, heap_->Translate(to, bytes));
  XLAD_ASSIGN_OR_RETURN(const std::byte* const real_from, heap_->Translate(from, bytes));
  return Enqueue([real_to, real_from, bytes] {
    if (bytes > 0) std::memmove(real_to, real_from, bytes);
    return absl::OkStatus();
  });
}

absl::Status OpaqueStream::FillZero(void* to, int64_t bytes) {
  XLAD_ASSIGN_OR_RETURN(std::byte* const real, heap_->Translate(to, bytes));
  return Enqueue([real, bytes] {
    if (bytes > 0) std::memset(real, 0, bytes);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Event>> OpaqueStream::Record() {
  auto point = std::make_shared<Point>();
  auto reach = std::make_shared<Reach>(point, status_);
  // The work holds the only reference: the destructor reads status_, which the stream's thread may change later.
  XLAD_RETURN_IF_ERROR(Enqueue([reach = std::move(reach)] {
    reach->Finish(absl::OkStatus());
    return absl::OkStatus();
  }));
  return std::make_unique<OpaqueEvent>(std::move(point), heap_->device());
}

absl::Status OpaqueStream::WaitFor(const Event& event) {
  const auto* const opaque = dynamic_cast<const OpaqueEvent*>(&event);
  if (opaque == nullptr || opaque->device() != heap_->device()) {
    return absl::InvalidArgumentError(heap_->device() +
                                      ": found an event of another kind of device, expected one of this kind");
  }
  return Enqueue([point = opaque->point()] { return point->Wait(); });
}

std::string OpaqueStream::memory_name() const {
  return runs_schedules_ ? absl::StrCat(heap_->device(), " ", reinterpret_cast<uintptr_t>(heap_.get())) : "";
}

absl::StatusOr<std::shared_ptr<std::byte>> OpaqueStream::AllocateDevice(int64_t bytes) {
  if (!runs_schedules_) return Stream::AllocateDevice(bytes);
  XLAD_ASSIGN_OR_RETURN(void* const address, heap_->Allocate(bytes, MEMORY_DEVICE));
  return Owned(address);
}

std::shared_ptr<std::byte> OpaqueStream::Owned(void* address) const {
  return {static_cast<std::byte*>(address), [heap = heap_](std::byte* freed) { heap->Free(freed); }};
}

std::string OpaqueStream::shared_memory_name() const {
  const std::string machine = runs_schedules_ ? collectives::MachineName() : "";
  return machine.empty() ? "" : absl::StrCat(heap_->device(), " ", machine);
}

absl::StatusOr<collectives::DeviceOps::SharedMemory> OpaqueStream::AllocateShared(int64_t bytes) {
  if (!runs_schedules_) return Stream::AllocateShared(bytes);
  XLAD_ASSIGN_OR_RETURN(OpaqueHeap::Shared shared, heap_->AllocateShared(bytes));
  return SharedMemory{Owned(shared.address), std::move(shared.segment)};
}

absl::StatusOr<std::shared_ptr<std::byte>> OpaqueStream::OpenShared(const std::string& handle) {
  if (!runs_schedules_) return Stream::OpenShared(handle);
  XLAD_ASSIGN_OR_RETURN(void* const address, heap_->OpenShared(handle));
  return Owned(address);
}

bool OpaqueStream::CanReduce(const collectives::DeviceReduction& reduction) const {
  return runs_schedules_ && collectives::KernelReductionOf(reduction).has_value();
}

absl::Status OpaqueStream::Reduce(const collectives::DeviceReduction& reduction, void* to,
                                  absl::Span<const void* const> sources, int64_t count) {
  if (!runs_schedules_) return Stream::Reduce(reduction, to, sources, count);
  XLAD_ASSIGN_OR_RETURN(const collectives::KernelReduction kernel,
                        collectives::CheckedKernelReduction(reduction, sources.size(), count));
  const int64_t bytes = count * tensor::ByteWidth(reduction.type), numbers = count * kernel.numbers_per_element;
  XLAD_ASSIGN_OR_RETURN(std::byte* const real_to, heap_->Translate(to, bytes));
  std::vector<const void*> real;
  for (const void* const source : sources) {
    XLAD_ASSIGN_OR_RETURN(real.emplace_back(), heap_->Translate(source, bytes));
  }
  return Enqueue([what = kernel.what, real_to, real = std::move(real), numbers] {
    collectives::RunReduceKernel(what, real_to, real, numbers);
    return absl::OkStatus();
  });
}

}  // namespace xlad::runtime

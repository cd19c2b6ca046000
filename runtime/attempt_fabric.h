// The connections of this worker to the other workers of an attempt. All programs of the attempt share them.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/net/network.h"
#include "collectives/exec/fabric/fabric.h"
#include "collectives/exec/recorder.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/device.h"

namespace xlad::runtime {

// The objects and settings that all tasks of a worker share. Every object here must outlive the tasks.
struct WorkerEnvironment {
  // One device of each kind and model; each runs any number of logical shards.
  std::vector<Device*> devices;
  const Clock* clock = nullptr;
  Network* network = nullptr;
  collectives::DataPlane* data_plane = nullptr;
  std::string worker_id;
  uint64_t incarnation = 0;
  // The longest time that one operation of a collective may take before the task fails, or 0 if there is no limit.
  int64_t progress_limit_ms = 0;
  // The number of cores that one device may keep busy. Its shards divide them equally
  // (ExecutableLaunch::shards_per_device). If it is 0, all shards of this process divide the machine's cores equally.
  int threads_of_each = 0;
  collectives::TransportChoice transport;
  // If set, a thread of the attempt calls this function about every 100 ms while the machines of some peers do not
  // answer, and once when all answer again. `silent` maps each silent worker to the milliseconds of its silence.
  std::function<void(const std::map<std::string, int64_t>& silent)> on_silence;
};

// The connections of an attempt and up to two threads. If there is a progress limit, one thread raises the attempt's
// abort signal when a collective exceeds it. If `on_silence` is set and there are other workers, another thread looks
// for peers whose machines are silent. Programs of the attempt reuse existing connections.
//
// Thread-safe.
class AttemptFabric {
 public:
  // Listens for the peers of a launch, and connects to a peer when it is first needed. `environment` and `abort` must
  // outlive the object.
  static absl::StatusOr<std::unique_ptr<AttemptFabric>> Make(const LaunchTask& launch,
                                                             const WorkerEnvironment& environment,
                                                             collectives::AbortSignal* abort);
  ~AttemptFabric();

  collectives::Fabric& fabric() { return *fabric_; }
  int num_devices() const { return num_devices_; }  // The number of devices of all workers of the attempt.

  // Between Watch and Unwatch, the progress of the device that writes to `recorder` is checked.
  void Watch(const collectives::Recorder* recorder);
  void Unwatch(const collectives::Recorder* recorder);

  // Finish and Leave end the use of the connections without an error; see collectives::Fabric.
  absl::Status Finish() { return fabric_->Finish(); }
  void Leave() { fabric_->Leave(); }

 private:
  AttemptFabric(const WorkerEnvironment& environment, collectives::AbortSignal* abort)
      : environment_(environment), abort_(abort) {}
  void WatchProgress();
  void WatchSilence();

  const WorkerEnvironment& environment_;
  collectives::AbortSignal* const abort_;
  int num_devices_ = 0;
  std::unique_ptr<collectives::Bootstrap> bootstrap_;
  std::unique_ptr<collectives::Fabric> fabric_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::set<const collectives::Recorder*> recorders_;
  std::thread watch_, watch_silence_;
};

}  // namespace xlad::runtime

// What connects this worker to the other workers of an attempt, shared by all programs that run in it.
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
#include "base/network.h"
#include "collectives/exec/fabric/fabric.h"
#include "collectives/exec/recorder.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/device.h"

namespace xlad::runtime {

// What a worker has for all its tasks. All of it must outlive them.
struct WorkerEnvironment {
  // One device of each kind and model; each runs any number of logical shards.
  std::vector<Device*> devices;
  const Clock* clock = nullptr;
  Network* network = nullptr;
  collectives::DataPlane* data_plane = nullptr;
  std::string worker_id;
  uint64_t incarnation = 0;
  // The longest time in one operation of a collective before the task fails; 0: no limit.
  int64_t progress_limit_ms = 0;
  // The cores that each logical shard may keep busy; 0: an equal share of the machine for each shard of this process.
  int threads_of_each = 0;
  collectives::TransportChoice transport;
  // If it is set, it is called, by a thread of the attempt, about every 100 ms while machines of peers answer nothing,
  // and once when all answer again. By worker: the milliseconds of its silence.
  std::function<void(const std::map<std::string, int64_t>& silent)> on_silence;
};

// The connections of an attempt, a thread that raises its signal if a collective makes no progress, and one that looks
// for peers whose machines are silent. A program opens no connection that exists already.
//
// Thread-safe.
class AttemptFabric {
 public:
  // Listens for the peers of a launch and dials them when they are needed. `environment` and `abort` must outlive the
  // object.
  static absl::StatusOr<std::unique_ptr<AttemptFabric>> Make(const LaunchTask& launch,
                                                             const WorkerEnvironment& environment,
                                                             collectives::AbortSignal* abort);
  ~AttemptFabric();

  collectives::Fabric& fabric() { return *fabric_; }
  int num_devices() const { return num_devices_; }  // The number of all devices of the attempt.

  // Watches the progress of a device between these calls.
  void Watch(const collectives::Recorder* recorder);
  void Unwatch(const collectives::Recorder* recorder);

  // End in good order; see collectives::Fabric.
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

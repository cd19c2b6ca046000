#include "runtime/attempt_fabric.h"

#include <algorithm>
#include <chrono>

#include "collectives/exec/watchdog.h"

namespace xlad::runtime {
namespace {

using collectives::PeerInfo;
using collectives::PeerKey;

constexpr int64_t kMaxWatchPeriodMs = 1000;
constexpr std::chrono::milliseconds kSilencePeriod{100};

}  // namespace

absl::StatusOr<std::unique_ptr<AttemptFabric>> AttemptFabric::Make(const LaunchTask& launch,
                                                                   const WorkerEnvironment& environment,
                                                                   collectives::AbortSignal* abort) {
  std::unique_ptr<AttemptFabric> made(new AttemptFabric(environment, abort));
  std::map<std::string, std::string> values;
  for (const Peer& peer : launch.peers()) {
    const PeerInfo info{peer.worker_id(), peer.incarnation(), peer.host(), peer.pid(), peer.data_address()};
    for (const int device : peer.devices()) values[PeerKey(device)] = EncodePeer(info);
    made->num_devices_ += peer.devices_size();
  }
  made->bootstrap_ = collectives::MapBootstrap(std::move(values));
  collectives::FabricOptions options;
  for (const LaunchRecord& record : launch.devices()) options.devices.push_back(record.device());
  options.num_devices = made->num_devices_;
  options.tcp.job_id = launch.job_id();
  options.tcp.attempt = launch.attempt();
  options.tcp.generation = launch.generation();
  options.tcp.worker_id = environment.worker_id;
  options.tcp.incarnation = environment.incarnation;
  options.tcp.key = launch.spec().session() ? launch.data_key() : launch.session_key();
  for (const Peer& peer : launch.peers()) {
    if (peer.worker_id() == environment.worker_id) options.tcp.data_address = peer.data_address();
  }
  options.network = environment.network;
  options.data_plane = environment.data_plane;
  options.transport = environment.transport;
  XLAD_ASSIGN_OR_RETURN(made->fabric_, collectives::Fabric::Make(options, *made->bootstrap_, abort));
  if (environment.progress_limit_ms > 0) made->watch_ = std::thread([raw = made.get()] { raw->WatchProgress(); });
  if (environment.on_silence != nullptr && launch.peers_size() > 1) {
    made->watch_silence_ = std::thread([raw = made.get()] { raw->WatchSilence(); });
  }
  return made;
}

void AttemptFabric::Watch(const collectives::Recorder* recorder) {
  const std::lock_guard<std::mutex> lock(mutex_);
  recorders_.insert(recorder);
}

void AttemptFabric::Unwatch(const collectives::Recorder* recorder) {
  const std::lock_guard<std::mutex> lock(mutex_);
  recorders_.erase(recorder);
}

void AttemptFabric::WatchProgress() {
  const std::chrono::milliseconds period(std::clamp<int64_t>(environment_.progress_limit_ms / 4, 1, kMaxWatchPeriodMs));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, period, [this] { return ending_; })) {
    collectives::ProgressWatchdog watchdog(environment_.clock, environment_.progress_limit_ms,
                                           {recorders_.begin(), recorders_.end()}, abort_);
    if (watchdog.Poll()) return;
  }
}

void AttemptFabric::WatchSilence() {
  bool was_silent = false;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kSilencePeriod, [this] { return ending_; })) {
    lock.unlock();
    const std::map<std::string, int64_t> silent = fabric_->SilentWorkers(environment_.clock->NowNs());
    if (was_silent || !silent.empty()) environment_.on_silence(silent);
    was_silent = !silent.empty();
    lock.lock();
  }
}

AttemptFabric::~AttemptFabric() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (watch_.joinable()) watch_.join();
  if (watch_silence_.joinable()) watch_silence_.join();
}

}  // namespace xlad::runtime

// The reports of an attempt's process to its daemon. A thread sends them from a queue, so that steps do not wait for a
// daemon that is stopped.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/net/message_socket.h"
#include "proto/attempt.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::worker {

// Thread-safe.
class ReportQueue {
 public:
  // Sends on `socket`, which another thread may use to receive. `progress` returns the number of finished steps. If it
  // or the silence of peers has changed, both are sent before other reports. After the first report, the queue looks
  // for a change about every 100 ms. `lost` is called, on the queue's thread, if the daemon can no longer be reached;
  // reports are dropped from then on.
  ReportQueue(MessageSocket* socket, std::function<int64_t()> progress, std::function<void()> lost);
  // Sends all reports in the queue, if the daemon can be reached.
  ~ReportQueue();

  void Push(WorkerMessage message);
  // `silent` has the milliseconds for which a peer's machine has been silent, by worker id.
  void SetSilence(const std::map<std::string, int64_t>& silent);

 private:
  void Run();
  absl::Status Send(const std::vector<WorkerMessage>& messages);
  absl::Status SendProgress();

  MessageSocket* const socket_;
  const std::function<int64_t()> progress_;
  const std::function<void()> lost_;
  int64_t reported_ = -1;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WorkerMessage> queue_;
  std::map<std::string, int64_t> silent_;
  bool silence_is_new_ = false;
  bool started_ = false;  // Whether there has been a report.
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace xlad::worker

// What an attempt's process reports to its daemon. Reports wait in a queue that a thread sends, so that no step waits
// for a daemon that is stopped.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/message_socket.h"
#include "proto/attempt.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::worker {

// Thread-safe.
class ReportQueue {
 public:
  // Sends on `socket`, which another thread may use to receive. `progress` returns the number of finished steps, which
  // is reported, if it has changed, about every 100 ms after the first report. `lost` is called, on the queue's thread,
  // if the daemon cannot be reached any more.
  ReportQueue(MessageSocket* socket, std::function<int64_t()> progress, std::function<void()> lost);
  // Sends what is in the queue.
  ~ReportQueue();

  void Push(WorkerMessage message);
  // By worker: the milliseconds for which the machine of a peer has been silent.
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

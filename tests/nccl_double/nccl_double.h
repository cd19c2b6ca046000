// The state of the test double of NCCL: its settings, and its communicators, whose data goes through host memory and
// local sockets (hub.h).
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/exec/nccl/nccl_api.h"
#include "runtime/devices/cuda/driver_api.h"

namespace xlad::nccl_double {

using collectives::nccl::DataType;
using collectives::nccl::Op;
using collectives::nccl::Result;
using collectives::nccl::StreamHandle;

// "KEY=VALUE,...", from the environment variable XLAD_NCCL_DOUBLE or from xladNcclDoubleConfigure:
//   version=22809               the version, as ncclGetVersion returns it
//   fail=FUNCTION:CODE[:CALLS]  the first CALLS calls (default: 0) of the function succeed, later ones return CODE
//   stop=CODE:GROUPS            each communicator runs GROUPS groups of operations; the next one does not end, and the
//                               communicator reports CODE, or nothing if CODE is 0
//   silent=1                    a communicator that loses a peer reports nothing, and its operations do not end
struct Settings {
  int version = 22809;
  struct Failure {
    Result code = 0;
    int calls = 0;
  };
  std::map<std::string, Failure> failures;
  Result stop_code = 0;
  int stop_after = -1;
  bool silent = false;
};

class NcclDouble {
 public:
  static NcclDouble& Get();
  void Configure(const std::string& text);
  Settings settings();
  // Called at the beginning of each function that returns a Result. Returns the injected error, if any.
  Result Enter(const std::string& function);

 private:
  NcclDouble();
  std::mutex mutex_;
  Settings settings_;
};

enum class Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce, kSend, kReceive };

// One call of a function that communicates.
struct Call {
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  DataType type;
  Op op = 0;
  int root = 0;  // The root, or the peer of a kSend or kReceive.
};

// A communicator that does not block. As with NCCL, it must be polled until it is ready before it is used again.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int file, int rank, int ranks) : file_(file), rank_(rank), ranks_(ranks) {}
  ~Communicator();

  Result Poll();
  // Enqueues the calls of a group on a stream. Returns kInProgress, or an error if the arguments are wrong, the
  // communicator is not ready or has failed, or the driver fails.
  Result Enqueue(const std::vector<Call>& calls, StreamHandle stream);
  Result Finalize();
  void Destroy();
  void Abort();
  std::string last_error();

 private:
  struct Work;
  using Bytes = std::vector<std::byte>;
  Result CheckArguments(const std::vector<Call>& calls);
  // Exchanges the data of a group. Runs on the thread of the stream.
  void Run(Work* work);
  bool SendAll(const Call& call, const Bytes& in);
  bool ReceiveAll(const Call& call, Bytes* out);
  bool SendTo(int peer, const Call& call, const std::byte* data, size_t bytes);
  bool ReceiveFrom(int peer, const Call& call, Bytes* out);
  // Reports an error, unless `code` is 0, waits for an abort, and returns false.
  bool Stop(Result code, const std::string& text);
  Result Refuse(const std::string& text);

  const int file_, rank_, ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool connected_ = false, aborted_ = false, finalized_ = false;
  int polls_ = 1;  // How many more times Poll reports that the communicator is in progress.
  Result error_ = 0;
  std::string last_error_;
  // Used by the thread of the stream.
  int groups_ = 0;                            // The number of groups that have begun to run.
  std::map<int, std::deque<Bytes>> arrived_;  // The messages that have arrived, by sender.
};

}  // namespace xlad::nccl_double

// Measures a coordinator's CPU time and response times under load: many workers on real gRPC streams, and a flood of
// connections that never authenticate.
//
//   coordinator_load XLAD FOLDER [WORKERS [SECONDS]]
//
// Starts `XLAD coordinator` with its data in FOLDER, and attaches WORKERS (default 1000) streams that each send a
// heartbeat per second for SECONDS (default 60). The streams then continue, while times are measured in windows without
// and with a flood, by turns. The flood consists of 1,000 unauthenticated connections per second, 1,000 idle
// connections, and 24 requests that stop in the middle of their bodies. Measured are the time from a worker's
// ClockProbe to its answer, which the coordinator handles as it handles heartbeats, and the time of a client's small
// request. Prints one JSON object with the coordinator's CPU time and memory, these times, and the ratio of the 99th
// percentiles in each pair of windows.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/numbers.h"
#include "base/file_system.h"
#include "base/net/grpc_channel.h"
#include "base/net/network.h"
#include "base/process/child_process.h"
#include "base/testing/http2.h"
#include "proto/protocol.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"

namespace xlad {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kToken[] = "token of the load test";
constexpr char kPutBlob[] = "/xlad.v1.Coordinator/PutBlob";
constexpr int kProbesPerSecond = 100;
constexpr int kFloodPerSecond = 1000;
constexpr int kRounds = 3;
constexpr int kWindowSeconds = 6;

// One worker's stream: sends messages one at a time, and counts the messages that it receives. Thread-safe.
class WorkerStream final : public grpc::ClientBidiReactor<WorkerMessage, CoordinatorMessage> {
 public:
  WorkerStream(const Endpoint& endpoint, int number) : stub_(Coordinator::NewStub(*MakeChannel(endpoint))) {
    PrepareCall(&context_, kToken, /*timeout_ms=*/0);
    RegisterWorker* registration = message_.mutable_register_();
    registration->set_worker_id(absl::StrCat("load-", number));
    registration->set_incarnation(number + 1);
    registration->set_host("host");
    registration->set_devices(1);
    registration->set_data_address("127.0.0.1:1");
    registration->set_protocol(kProtocol);
    message_.set_incarnation(number + 1);
    stub_->async()->Attach(&context_, this);
    AddHold();
    StartRead(&incoming_);
    StartWrite(&message_);
    StartCall();
  }

  void Beat() {
    if (writing_.exchange(true)) return;
    message_.mutable_heartbeat();
    StartWrite(&message_);
  }
  // Sends a ClockProbe and returns the milliseconds until its answer, or -1 if there is none within 10 s.
  double ProbeMs() {
    while (writing_.exchange(true)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    const auto start = Clock::now();
    const int64_t number = start.time_since_epoch().count();
    message_.mutable_clock_probe()->set_sent_ns(number);
    StartWrite(&message_);
    std::unique_lock lock(mutex_);
    const bool answered =
        changed_.wait_for(lock, milliseconds(10'000), [&] { return done_ || answered_ == number; }) && !done_;
    return answered ? std::chrono::duration<double, std::milli>(answered_at_ - start).count() : -1;
  }
  void Cancel() {
    context_.TryCancel();
    RemoveHold();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  bool is_registered() const { return received_ > 0; }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (incoming_.has_clock()) {
      const std::lock_guard lock(mutex_);
      answered_ = incoming_.clock().sent_ns();
      answered_at_ = Clock::now();
      changed_.notify_all();
    }
    ++received_;
    StartRead(&incoming_);
  }
  void OnWriteDone(bool) override { writing_ = false; }
  void OnDone(const grpc::Status&) override {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  const std::unique_ptr<Coordinator::Stub> stub_;
  grpc::ClientContext context_;
  WorkerMessage message_;
  CoordinatorMessage incoming_;
  std::atomic<bool> writing_ = true;
  std::atomic<int> received_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  int64_t answered_ = 0;  // The sent_ns of the last answer.
  Clock::time_point answered_at_;
};

// The streams of all workers, and a thread that sends a heartbeat per second on each.
class Fleet {
 public:
  Fleet(const Endpoint& endpoint, int workers) {
    for (int w = 0; w < workers; ++w) streams_.push_back(std::make_unique<WorkerStream>(endpoint, w));
    thread_ = std::thread([this] { Run(); });
  }
  ~Fleet() {
    ending_ = true;
    thread_.join();
    for (const auto& stream : streams_) stream->Cancel();
  }
  bool WaitForRegistration(std::chrono::seconds limit) const {
    const auto all = [&] {
      return std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream->is_registered(); });
    };
    const auto give_up = Clock::now() + limit;
    while (!all() && Clock::now() < give_up) std::this_thread::sleep_for(milliseconds(50));
    return all();
  }
  // Probes one stream after the other.
  double ProbeMs() { return streams_[next_++ % streams_.size()]->ProbeMs(); }

 private:
  void Run() {
    auto due = Clock::now();
    for (size_t beat = 0; !ending_; ++beat) {
      streams_[beat % streams_.size()]->Beat();
      due += std::chrono::nanoseconds(1'000'000'000 / static_cast<int64_t>(streams_.size()));
      std::this_thread::sleep_until(due);
    }
  }

  std::vector<std::unique_ptr<WorkerStream>> streams_;
  size_t next_ = 0;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

// --- Linux's statistics of a process.

double CpuSeconds(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double StatusField(pid_t pid, const std::string& field) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(field + ":", 0) == 0) return std::atof(line.c_str() + field.size() + 1);
  }
  return 0;
}

nlohmann::json Summary(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) { return times.empty() ? -1 : times[part * static_cast<double>(times.size() - 1)]; };
  return {{"answers", times.size()}, {"p50_ms", at(0.5)}, {"p99_ms", at(0.99)}};
}

// Round-trip times of the probes of workers and of small authenticated requests during `seconds`.
nlohmann::json Probe(Coordinator::Stub* stub, Fleet* fleet, int seconds) {
  std::vector<double> heartbeats, requests;
  auto due = Clock::now();
  const auto end = due + std::chrono::seconds(seconds);
  while (due < end) {
    const double heartbeat_ms = fleet->ProbeMs();
    if (heartbeat_ms >= 0) heartbeats.push_back(heartbeat_ms);
    grpc::ClientContext context;
    PrepareCall(&context, kToken, /*timeout_ms=*/10000);
    GetJobRequest request;
    request.set_job_id("no-such-job");
    JobStatus response;
    const auto start = Clock::now();
    if (stub->GetJob(&context, request, &response).error_code() == grpc::StatusCode::NOT_FOUND) {
      requests.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    due += milliseconds(1000 / kProbesPerSecond);
    std::this_thread::sleep_until(due);
  }
  return {{"heartbeats", Summary(std::move(heartbeats))}, {"requests", Summary(std::move(requests))}};
}

void Send(Connection* connection, const std::string& bytes) {
  (void)connection->Write({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

// Connections without a token: kFloodPerSecond new ones per second, and others that stay open and send nothing, or stop
// in the middle of a request.
class Flood {
 public:
  explicit Flood(const std::string& address) : address_(address), thread_([this] { Run(); }) {}
  ~Flood() {
    ending_ = true;
    thread_.join();
  }
  int64_t opened() const { return opened_; }

 private:
  void Run() {
    std::vector<std::unique_ptr<Connection>> kept;
    for (int i = 0; i < 1000; ++i) Keep(&kept, "");
    for (int i = 0; i < 24; ++i) Keep(&kept, StalledCall(kPutBlob));
    auto due = Clock::now();
    while (!ending_) {
      const auto connection = TcpNetwork().Dial(address_, 1000);
      if (connection.ok()) {
        Send(connection->get(), StalledCall(kPutBlob));
        ++opened_;
      }
      due += std::chrono::microseconds(1'000'000 / kFloodPerSecond);
      std::this_thread::sleep_until(due);
    }
  }
  void Keep(std::vector<std::unique_ptr<Connection>>* kept, const std::string& bytes) {
    auto connection = TcpNetwork().Dial(address_, 1000);
    if (!connection.ok()) return;
    Send(connection->get(), bytes);
    kept->push_back(*std::move(connection));
  }

  const std::string address_;
  std::atomic<bool> ending_ = false;
  std::atomic<int64_t> opened_ = 0;
  std::thread thread_;
};

nlohmann::json MeasureWorkers(const Fleet& fleet, pid_t pid, int workers, int seconds) {
  const bool registered = fleet.WaitForRegistration(std::chrono::seconds(60));
  const double before = CpuSeconds(pid);
  const auto start = Clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  const double cpu = CpuSeconds(pid) - before;
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  return {{"workers", workers},
          {"registered", registered},
          {"seconds", wall},
          {"cpu_percent_of_a_core", 100 * cpu / wall},
          {"threads", StatusField(pid, "Threads")},
          {"rss_mb", StatusField(pid, "VmRSS") / 1024}};
}

// A window without the flood and a window with it.
nlohmann::json MeasureFlood(const std::string& address, Coordinator::Stub* stub, Fleet* fleet, pid_t pid) {
  nlohmann::json result;
  result["quiet"] = Probe(stub, fleet, kWindowSeconds);
  result["quiet"]["rss_mb"] = StatusField(pid, "VmRSS") / 1024;
  {
    const Flood flood(address);
    std::this_thread::sleep_for(milliseconds(1000));
    result["flood"] = Probe(stub, fleet, kWindowSeconds);
    result["flood"]["connections"] = flood.opened();
    result["flood"]["rss_mb"] = StatusField(pid, "VmRSS") / 1024;
    result["flood"]["threads"] = StatusField(pid, "Threads");
  }
  for (const char* kind : {"heartbeats", "requests"}) {
    const double quiet_ms = result["quiet"][kind]["p99_ms"], flood_ms = result["flood"][kind]["p99_ms"];
    result["p99_ratio"][kind] = flood_ms / quiet_ms;
  }
  std::this_thread::sleep_for(milliseconds(1000));
  return result;
}

absl::StatusOr<std::string> ListenAddress(const std::string& log_path) {
  for (int i = 0; i < 200; ++i) {
    std::ifstream file(log_path);
    std::string line;
    while (std::getline(file, line)) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_object() && json.value("msg", "") == "coordinator listens") return json.value("address", "");
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
  return absl::DeadlineExceededError(absl::StrCat("the coordinator does not listen; see ", log_path));
}

absl::Status Measure(const std::string& program, const std::string& folder, int workers, int seconds) {
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(folder));
  const std::string token_file = JoinPath(folder, "token"), log = JoinPath(folder, "coordinator.log");
  XLAD_RETURN_IF_ERROR(RealFileSystem().WriteAtomically(token_file, kToken));
  XLAD_ASSIGN_OR_RETURN(const auto process,
                        ChildProcess::Start({program, "coordinator", "--listen", "127.0.0.1:0", "--data",
                                             JoinPath(folder, "data"), "--token-file", token_file},
                                            log));
  XLAD_ASSIGN_OR_RETURN(const std::string address, ListenAddress(log));
  const Endpoint endpoint{address, "", token_file};
  const pid_t pid = process->pid();
  nlohmann::json result;
  Fleet fleet(endpoint, workers);
  result["streams"] = MeasureWorkers(fleet, pid, workers, seconds);
  const auto stub = Coordinator::NewStub(*MakeChannel(endpoint));
  for (int round = 0; round < kRounds; ++round) {
    result["rounds"].push_back(MeasureFlood(address, stub.get(), &fleet, pid));
  }
  result["afterwards"] = Probe(stub.get(), &fleet, 2);
  result["afterwards"]["rss_mb"] = StatusField(pid, "VmRSS") / 1024;
  std::printf("%s\n", result.dump(2).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace xlad

int main(int argc, char** argv) {
  int workers = 1000, seconds = 60;
  if (argc < 3 || (argc > 3 && !absl::SimpleAtoi(argv[3], &workers)) ||
      (argc > 4 && !absl::SimpleAtoi(argv[4], &seconds)) || workers < 1 || seconds < 1) {
    std::fprintf(stderr, "usage: coordinator_load XLAD FOLDER [WORKERS [SECONDS]]\n");
    return 2;
  }
  const absl::Status status = xlad::Measure(argv[1], argv[2], workers, seconds);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

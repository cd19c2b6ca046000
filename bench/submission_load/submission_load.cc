// Measures durable submissions: how many of them a coordinator acknowledges per second, and how long one takes when the
// coordinator is otherwise idle.
//
//   submission_load FOLDER [CLIENTS [SECONDS]]
//
// Runs a coordinator in this process with its data in FOLDER, and four loads of SECONDS (default 5) each:
//   1. One gRPC client submits at most 50 jobs per second.
//   2. CLIENTS (default 32) clients each submit one job after the other.
//   3. The same as 2, with 5 ms added to each sync.
//   4. The same as 1, with many jobs in the log.
// There are no workers, so the coordinator only accepts submissions. Prints one JSON object: the acknowledgments and
// syncs per second of each load, and the milliseconds from a submission to its acknowledgment.
//
// During loads 1 and 4, another thread overwrites 12 KiB of a file in FOLDER and syncs them, as often as the client
// submits and between its submissions. These times, "disk", are lower bounds of the time of an acknowledgment on this
// disk and this machine at this moment.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/net/grpc_channel.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "service/rpc/coordinator_daemon.h"

namespace {

std::atomic<int64_t> syncs = 0;
std::atomic<int64_t> added_us = 0;

int CountedSync(long call, int fd) {
  ++syncs;
  const int result = static_cast<int>(syscall(call, fd));
  if (added_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(added_us));
  return result;
}

}  // namespace

// SQLite calls these functions, because a program's own definitions take precedence over those of the C library.
extern "C" int fsync(int fd) { return CountedSync(SYS_fsync, fd); }
extern "C" int fdatasync(int fd) { return CountedSync(SYS_fdatasync, fd); }

namespace xlad {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class Client {
 public:
  Client(const std::string& address, std::string program)
      : stub_(Coordinator::NewStub(*MakeChannel({address, "", ""}))), program_(std::move(program)) {}

  absl::Status Upload(const std::string& bytes) {
    grpc::ClientContext context;
    PrepareCall(&context, "", /*timeout_ms=*/30000);
    PutBlobResponse response;
    const auto writer = stub_->PutBlob(&context, &response);
    PutBlobRequest request;
    request.set_digest(program_);
    request.set_chunk(bytes);
    writer->Write(request);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    return status.ok() ? absl::OkStatus() : absl::InternalError(status.error_message());
  }

  // Returns the milliseconds until the acknowledgment, or -1 if there was none.
  double Submit(const std::string& key) {
    grpc::ClientContext context;
    PrepareCall(&context, "", /*timeout_ms=*/30000);
    SubmitJobRequest request;
    request.set_client_key(key);
    JobSpec* spec = request.mutable_spec();
    spec->set_name("load");
    spec->set_program_blob(program_);
    spec->set_steps(1000);
    MeshAxis* axis = spec->add_mesh();
    axis->set_name("dp");
    axis->set_size(8);
    SubmitJobResponse response;
    const auto start = SteadyClock::now();
    if (!stub_->SubmitJob(&context, request, &response).ok()) return -1;
    return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
  }

 private:
  const std::unique_ptr<Coordinator::Stub> stub_;
  const std::string program_;
};

// Overwrites a file and syncs it, again and again, with at most `per_second` syncs per second.
class DiskProbe {
 public:
  DiskProbe(const std::string& folder, int per_second)
      : file_(open(JoinPath(folder, "probe").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    const std::string zeros(kFileBytes, '\0');
    is_good_ = pwrite(file_, zeros.data(), zeros.size(), 0) == kFileBytes && syscall(SYS_fsync, file_) == 0;
    thread_ = std::thread([this, per_second] { Run(per_second); });
  }
  ~DiskProbe() { close(file_); }
  // Ends the probe and returns the times in milliseconds.
  std::vector<double> Times() {
    ending_ = true;
    thread_.join();
    return std::move(times_);
  }

 private:
  static constexpr int64_t kFileBytes = 4 << 20, kWrittenBytes = 12 << 10;

  void Run(int per_second) {
    const std::string bytes(kWrittenBytes, 'x');
    const milliseconds period(1000 / per_second);
    auto due = SteadyClock::now() + period / 2;
    for (int64_t at = 0; is_good_ && !ending_; at = (at + kWrittenBytes) % (kFileBytes - kWrittenBytes)) {
      std::this_thread::sleep_until(due);
      due += period;
      const auto start = SteadyClock::now();
      is_good_ = pwrite(file_, bytes.data(), bytes.size(), at) == kWrittenBytes && syscall(SYS_fdatasync, file_) == 0;
      times_.push_back(std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count());
    }
  }

  const int file_;
  std::atomic<bool> is_good_ = false, ending_ = false;
  std::vector<double> times_;
  std::thread thread_;
};

nlohmann::json Summary(std::vector<double> times, double seconds, int64_t synced) {
  const auto failed = std::count(times.begin(), times.end(), -1.0);
  std::erase(times, -1.0);
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    return times.empty() ? -1 : times[static_cast<size_t>(part * static_cast<double>(times.size() - 1))];
  };
  return {{"acknowledged", times.size()},
          {"failed", failed},
          {"per_second", static_cast<double>(times.size()) / seconds},
          {"syncs_per_second", static_cast<double>(synced) / seconds},
          {"p50_ms", at(0.5)},
          {"p99_ms", at(0.99)}};
}

// Each client submits its next job when the previous one is acknowledged, and at most `per_second` jobs per second
// unless `per_second` is 0.
nlohmann::json Load(std::vector<std::unique_ptr<Client>>* clients, const std::string& label, int seconds,
                    int per_second) {
  std::vector<std::vector<double>> times(clients->size());
  std::vector<std::thread> threads;
  const int64_t synced = syncs;
  const auto start = SteadyClock::now();
  const auto end = start + std::chrono::seconds(seconds);
  for (size_t c = 0; c < clients->size(); ++c) {
    threads.emplace_back([&, c] {
      for (int i = 0; SteadyClock::now() < end; ++i) {
        times[c].push_back((*clients)[c]->Submit(absl::StrCat(label, "-", c, "-", i)));
        if (per_second > 0) std::this_thread::sleep_until(start + (i + 1) * milliseconds(1000 / per_second));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (const auto& some : times) all.insert(all.end(), some.begin(), some.end());
  const double wall = std::chrono::duration<double>(SteadyClock::now() - start).count();
  return Summary(std::move(all), wall, syncs - synced);
}

absl::Status Measure(const std::string& folder, int clients, int seconds) {
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(folder));
  const std::string log = JoinPath(folder, "coordinator.log");
  if (!LogToFile(log)) return absl::InternalError(absl::StrCat("cannot write the log to ", log));
  service::DaemonOptions options;
  options.listen = "127.0.0.1:0";
  options.data_folder = JoinPath(folder, "data");
  options.program_path = "/bin/false";
  XLAD_ASSIGN_OR_RETURN(const auto daemon, service::CoordinatorDaemon::Start(options));
  const std::string program = "HloModule load";
  std::vector<std::unique_ptr<Client>> many, one;
  for (int c = 0; c < clients; ++c) many.push_back(std::make_unique<Client>(daemon->Address(), Sha256Hex(program)));
  XLAD_RETURN_IF_ERROR(many[0]->Upload(program));
  one.push_back(std::make_unique<Client>(daemon->Address(), Sha256Hex(program)));
  (void)Load(&many, "warm", 1, 0);
  nlohmann::json result;
  const auto idle = [&](const std::string& label) {
    DiskProbe probe(folder, 50);
    nlohmann::json times = Load(&one, label, seconds, 50);
    const nlohmann::json disk = Summary(probe.Times(), seconds, 0);
    times["disk"] = {{"p50_ms", disk["p50_ms"]}, {"p99_ms", disk["p99_ms"]}};
    return times;
  };
  result["idle"] = idle("idle");
  result["loaded"] = Load(&many, "loaded", seconds, 0);
  added_us = 5000;
  result["with_5_ms_added_to_each_sync"] = Load(&many, "slow", seconds, 0);
  added_us = 0;
  result["idle_with_many_jobs"] = idle("idle-again");
  std::printf("%s\n", result.dump(2).c_str());
  daemon->Shutdown();
  return absl::OkStatus();
}

}  // namespace
}  // namespace xlad

int main(int argc, char** argv) {
  int clients = 32, seconds = 5;
  if (argc < 2 || (argc > 2 && !absl::SimpleAtoi(argv[2], &clients)) ||
      (argc > 3 && !absl::SimpleAtoi(argv[3], &seconds))) {
    std::fprintf(stderr, "usage: submission_load FOLDER [CLIENTS [SECONDS]]\n");
    return 2;
  }
  const absl::Status status = xlad::Measure(argv[1], clients, seconds);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

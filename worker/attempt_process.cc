#include "worker/attempt_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/file_system.h"
#include "base/process/child_process.h"

namespace xlad::worker {
namespace {

constexpr size_t kTailBytes = 8 << 10;
constexpr size_t kMaxLastOutput = 2000;
// How long a process may take to end after its socket was closed. When the system kills a process, it closes the
// descriptors first and reports the end a little later. A kill in between would hide who killed the process.
constexpr int64_t kEndGraceMs = 5000;

// Whether the line is one of xlad's log, which need not be repeated in a message.
bool IsLogLine(absl::string_view line) {
  return absl::StartsWith(line, "{\"ts\":") || (absl::StartsWith(line, "20") && line.size() > 4 && line[4] == '-');
}

// The last lines of the output, without log lines and with printable characters only.
std::string LastOutput(const std::string& tail) {
  std::vector<absl::string_view> lines = absl::StrSplit(tail, '\n', absl::SkipWhitespace());
  std::erase_if(lines, IsLogLine);
  std::string words = absl::StrJoin(lines, "\n");
  if (words.size() > kMaxLastOutput) words.erase(0, words.size() - kMaxLastOutput);
  for (char& c : words) {
    if (c != '\n' && (c < ' ' || c > '~')) c = '?';
  }
  return words;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttemptProcess>> AttemptProcess::Start(const std::vector<std::string>& argv,
                                                                      const AttemptSetup& setup) {
  absl::StatusOr<std::unique_ptr<AttemptProcess>> started = TryStart(argv, setup);
  if (started.ok()) return started;
  return absl::UnavailableError(absl::StrCat("cannot start a process: ", started.status().message(),
                                             "; if a limit is reached, raise it (LimitNOFILE and TasksMax of the ",
                                             "systemd unit, or `ulimit -n` and `ulimit -u`)"));
}

absl::StatusOr<std::unique_ptr<AttemptProcess>> AttemptProcess::TryStart(const std::vector<std::string>& argv,
                                                                         const AttemptSetup& setup) {
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return absl::InternalError(absl::StrCat("eventfd: ", std::strerror(errno)));
  XLAD_ASSIGN_OR_RETURN(auto sockets, MessageSocket::MakePair());
  XLAD_ASSIGN_OR_RETURN(Pipe output, Pipe::Make());
  fcntl(output.read_end.get(), F_SETFL, O_NONBLOCK);
  XLAD_ASSIGN_OR_RETURN(SpawnedProcess process, Spawn({.argv = argv,
                                                       .output = output.write_end.get(),
                                                       .errors = output.write_end.get(),
                                                       .channel = sockets.second.fd()}));
  std::unique_ptr<AttemptProcess> started(
      new AttemptProcess(std::move(process), std::move(sockets.first), std::move(output.read_end), std::move(wake)));
  AttemptCommand command;
  *command.mutable_setup() = setup;
  started->Send(command);
  return started;
}

AttemptProcess::AttemptProcess(SpawnedProcess process, MessageSocket socket, FileDescriptor output, FileDescriptor wake)
    : process_(std::move(process)),
      socket_(std::move(socket)),
      output_(std::move(output)),
      wake_(std::move(wake)),
      oom_kills_before_(OomKills(RealFileSystem())) {
  thread_ = std::thread([this] { Run(); });
}

AttemptProcess::~AttemptProcess() {
  KillAfter(0);
  thread_.join();
}

void AttemptProcess::Listen(std::function<void(const AttemptReport&)> on_report,
                            std::function<void(const ProcessEnd&)> on_end) {
  std::unique_lock<std::mutex> lock(mutex_);
  on_report_ = std::move(on_report);
  on_end_ = std::move(on_end);
  eventfd_write(wake_.get(), 1);
  if (!end_.has_value()) return;
  // This object's thread has ended without calling the functions.
  lock.unlock();
  Deliver();
  on_end_(*end_);
}

void AttemptProcess::Send(const AttemptCommand& command, FileDescriptor descriptor) {
  std::lock_guard<std::mutex> lock(mutex_);
  outgoing_.emplace_back(command.SerializeAsString(), std::move(descriptor));
  eventfd_write(wake_.get(), 1);
}

void AttemptProcess::KillAfter(int64_t ms) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t at_ns = RealClock().NowNs() + ms * kNsPerMs;
  kill_at_ns_ = std::min(kill_at_ns_.value_or(at_ns), at_ns);
  eventfd_write(wake_.get(), 1);
}

bool AttemptProcess::HasEnded() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return end_.has_value();
}

void AttemptProcess::WaitForEnd() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return end_.has_value(); });
}

void AttemptProcess::Run() {
  while (Poll()) {
  }
  Finish();
}

// Returns -1 if there is no limit.
int64_t AttemptProcess::PollTimeoutMs() const {
  if (!kill_at_ns_.has_value() || killed_) return -1;
  return std::clamp<int64_t>((*kill_at_ns_ - RealClock().NowNs()) / kNsPerMs + 1, 0, 1'000'000);
}

bool AttemptProcess::Poll() {
  bool all_sent = true;
  int64_t timeout_ms = -1;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [bytes, descriptor] : outgoing_) socket_.Queue(bytes, std::move(descriptor));
    outgoing_.clear();
    if (kill_at_ns_.has_value() && !killed_ && RealClock().NowNs() >= *kill_at_ns_) {
      killed_ = true;
      SignalProcess(process_, SIGKILL);
    }
    timeout_ms = PollTimeoutMs();
  }
  Deliver();
  if (socket_is_open_) {
    const absl::StatusOr<bool> sent = socket_.Flush();
    all_sent = sent.value_or(true);  // An error is ignored: a process that has closed its socket is about to end.
  }
  pollfd ready[4] = {{wake_.get(), POLLIN, 0},
                     {process_.pidfd.get(), POLLIN, 0},
                     {socket_is_open_ ? socket_.fd() : -1, static_cast<short>(all_sent ? POLLIN : POLLIN | POLLOUT), 0},
                     {output_.get(), POLLIN, 0}};
  poll(ready, 4, static_cast<int>(timeout_ms));
  eventfd_t ignored = 0;
  if (ready[0].revents != 0) eventfd_read(wake_.get(), &ignored);
  if (ready[2].revents != 0) Receive();
  if (ready[3].revents != 0) ReadOutput();
  return ready[1].revents == 0;
}

void AttemptProcess::Receive() {
  while (socket_is_open_) {
    absl::StatusOr<std::optional<MessageSocket::Message>> message = socket_.TryReceive();
    AttemptReport report;
    if (message.ok() && !message->has_value()) return;
    if (!message.ok() || !report.ParseFromString((*message)->bytes)) {
      socket_is_open_ = false;
      // The process is ending, or does not follow the protocol.
      return KillAfter(absl::IsUnavailable(message.status()) ? kEndGraceMs : 0);
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      reports_.push_back(std::move(report));
    }
    Deliver();
  }
}

void AttemptProcess::Deliver() {
  std::deque<AttemptReport> arrived;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (on_report_ == nullptr) return;
    arrived.swap(reports_);
  }
  for (const AttemptReport& report : arrived) on_report_(report);
}

void AttemptProcess::ReadOutput() {
  char buffer[16 << 10];
  while (true) {
    const ssize_t n = read(output_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) output_.Close();
    if (n <= 0) return;
    WriteAll(STDERR_FILENO, absl::string_view(buffer, n));
    tail_.append(buffer, n);
    if (tail_.size() > kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  }
}

void AttemptProcess::Finish() {
  int status = 0;
  rusage usage{};
  while (wait4(pid(), &status, 0, &usage) < 0 && errno == EINTR) {
  }
  Receive();
  if (output_.is_open()) ReadOutput();
  ProcessEnd end;
  end.pid = pid();
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.peak_bytes = int64_t{usage.ru_maxrss} * 1024;
  end.how = DescribeEnd(status);
  end.last_output = LastOutput(tail_);
  std::unique_lock<std::mutex> lock(mutex_);
  end.killed_here = killed_ && end.signal == SIGKILL;
  const bool killed_elsewhere = end.signal == SIGKILL && !end.killed_here;
  end.out_of_memory = end.exit_code == kExitOutOfMemory ||
                      (killed_elsewhere && HasNewOomKills(oom_kills_before_, RealFileSystem()));
  if (on_end_ != nullptr) {
    lock.unlock();
    Deliver();
    on_end_(end);
    lock.lock();
  }
  end_ = end;
  changed_.notify_all();
}

}  // namespace xlad::worker

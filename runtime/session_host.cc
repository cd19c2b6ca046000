#include "runtime/session_host.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xlad::runtime {
namespace {

constexpr size_t kMaxPendingCommands = 16;

absl::Status CheckKey(const std::string& key) {
  if (key.size() <= SessionHost::kMaxKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("request_key: found ", key.size(), " bytes, expected at most ",
                                                 SessionHost::kMaxKeyBytes));
}

}  // namespace

SessionHost::SessionHost(std::string session_id, std::string worker, int64_t workers, const SessionLimits& limits)
    : session_id_(std::move(session_id)), worker_(std::move(worker)), workers_(workers), limits_(limits) {}

void SessionHost::Begin(std::function<void(const SessionCommand&)> deliver) {
  const std::lock_guard lock(mutex_);
  deliver_ = std::move(deliver);
  for (const SessionCommand& command : session_.CommandsAfter(0)) deliver_(command);
}

const std::vector<int64_t>* SessionHost::Remembered(const RequestKey& key) const {
  const auto found = results_.find(key);
  return found == results_.end() ? nullptr : &found->second;
}

void SessionHost::Remember(const RequestKey& key, std::vector<int64_t> result) {
  if (key.second.empty()) return;
  results_[key] = std::move(result);
  keys_.push_back(key);
  if (keys_.size() <= kRememberedKeys) return;
  results_.erase(keys_.front());
  keys_.pop_front();
}

void SessionHost::Perform() {
  SessionEffects effects = session_.TakeEffects();
  for (const SessionEffects::StoredArray& stored : effects.stored) {
    if (stored.expected) {
      arrays_.Expect(stored.array, stored.shape);
      continue;
    }
    auto array = std::make_shared<tensor::Array>(stored.shape);
    if (!stored.bytes.empty()) std::memcpy(array->bytes().data(), stored.bytes.data(), stored.bytes.size());
    arrays_.Put(stored.array, std::move(array));
  }
  if (deliver_) {
    for (const SessionCommand& command : effects.commands) deliver_(command);
  }
  arrays_.Drop(effects.dropped);
  changed_.notify_all();
}

absl::StatusOr<int64_t> SessionHost::AddProgram(const Executable& executable, const AddProgramRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckKey(request.request_key()));
  const std::lock_guard lock(mutex_);
  if (!ended_.ok()) return ended_;
  if (const auto* known = Remembered({Method::kAddProgram, request.request_key()})) return known->front();
  if (session_.programs() >= limits_.programs) {
    return absl::ResourceExhaustedError(absl::StrCat("session ", session_id_, ": found ", session_.programs() + 1,
                                                     " programs, expected at most ", limits_.programs,
                                                     "; open another session for more"));
  }
  const int64_t program = session_.LoadProgram(executable, request.executable_digest(),
                                               {request.plans().begin(), request.plans().end()});
  Remember({Method::kAddProgram, request.request_key()}, {program});
  Perform();
  return program;
}

absl::Status SessionHost::CheckRoom(int64_t bytes) {
  const int64_t used = arrays_.bytes() + uploading_bytes_;
  if (bytes == 0 || bytes <= limits_.host_bytes - used) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("session ", session_id_, ": found ", used, " bytes of whole arrays in the memory of worker ",
                   worker_, " and ", bytes, " more, expected at most ", limits_.host_bytes,
                   " together; free arrays that are not needed"));
}

absl::Status SessionHost::CheckArrays() const {
  if (session_.arrays() < limits_.arrays) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("session ", session_id_, ": found ", session_.arrays(),
                                                   " arrays and a request for more, expected at most ",
                                                   limits_.arrays, " in all; free some"));
}

absl::StatusOr<std::unique_ptr<UploadCount>> SessionHost::BeginUpload(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!ended_.ok()) return ended_;
  XLAD_RETURN_IF_ERROR(CheckArrays());
  XLAD_RETURN_IF_ERROR(CheckRoom(bytes));
  return std::make_unique<UploadCount>(&uploading_bytes_, bytes);
}

absl::StatusOr<int64_t> SessionHost::PutArray(std::shared_ptr<const tensor::Array> array, const std::string& key) {
  XLAD_RETURN_IF_ERROR(CheckKey(key));
  const std::lock_guard lock(mutex_);
  if (!ended_.ok()) return ended_;
  if (const auto* known = Remembered({Method::kPutArray, key})) return known->front();
  XLAD_RETURN_IF_ERROR(CheckArrays());
  const int64_t number = session_.AddArray(array->shape());
  arrays_.Put(number, std::move(array));
  Remember({Method::kPutArray, key}, {number});
  return number;
}

bool SessionHost::CanCall(const CallProgramRequest& request) {
  if (!ended_.ok() || session_.pending() == 0) return true;
  if (Remembered({Method::kCall, request.request_key()}) != nullptr) return true;
  return session_.pending() < kMaxPendingCommands && CheckRoom(session_.BytesToCall(request)).ok();
}

absl::StatusOr<std::vector<int64_t>> SessionHost::Call(const CallProgramRequest& request) {
  XLAD_RETURN_IF_ERROR(CheckKey(request.request_key()));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return CanCall(request); });
  if (!ended_.ok()) return ended_;
  if (const auto* known = Remembered({Method::kCall, request.request_key()})) return *known;
  XLAD_RETURN_IF_ERROR(CheckArrays());
  XLAD_RETURN_IF_ERROR(CheckRoom(session_.BytesToCall(request)));
  XLAD_ASSIGN_OR_RETURN(std::vector<int64_t> results, session_.Call(request));
  Remember({Method::kCall, request.request_key()}, results);
  Perform();
  return results;
}

absl::StatusOr<std::shared_ptr<const tensor::Array>> SessionHost::GetArray(int64_t array) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_.ok()) return ended_;
    XLAD_RETURN_IF_ERROR(CheckRoom(session_.BytesToFetch(array)));
    XLAD_RETURN_IF_ERROR(session_.Pin(array));
    Perform();
  }
  auto contents = arrays_.Wait(array);
  const std::lock_guard lock(mutex_);
  if (!ended_.ok()) return ended_;
  session_.Unpin(array);
  Perform();
  return contents;
}

absl::Status SessionHost::FreeArrays(const std::vector<int64_t>& arrays) {
  const std::lock_guard lock(mutex_);
  if (!ended_.ok()) return ended_;
  session_.Free(arrays);
  Perform();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SessionCommand>> SessionHost::CommandsAfter(int64_t sequence,
                                                                       const std::atomic<bool>& gone) {
  std::unique_lock lock(mutex_);
  std::vector<SessionCommand> commands;
  changed_.wait(lock, [&] {
    commands = session_.CommandsAfter(sequence);
    return gone || !ended_.ok() || !commands.empty();
  });
  if (!ended_.ok()) return ended_;
  return commands;
}

void SessionHost::Wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void SessionHost::Answer(const std::string& worker, int64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (!ended_.ok()) return;
  session_.Answer(worker, sequence, workers_);
  Perform();
}

absl::StatusOr<tensor::Array> SessionHost::ReadBox(int64_t array, const tensor::Box& box) {
  XLAD_ASSIGN_OR_RETURN(const auto whole, arrays_.Wait(array));
  if (!tensor::IsInside(box, whole->shape())) {
    return absl::OutOfRangeError(
        absl::StrCat("found box ", box.ToString(), ", expected one inside ", whole->shape().ToString()));
  }
  return tensor::ExtractBox(*whole, box, box.sizes());
}

absl::StatusOr<int64_t> SessionHost::BytesOf(int64_t array, const tensor::Box& box) {
  return arrays_.BytesOf(array, box);
}

void SessionHost::WriteBox(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes) {
  arrays_.Add(array, box, bytes);
}

void SessionHost::End(const std::string& why) {
  const absl::Status status = absl::AbortedError(absl::StrCat("session ", session_id_, " has ended: ", why));
  {
    const std::lock_guard lock(mutex_);
    if (!ended_.ok()) return;
    ended_ = status;
    changed_.notify_all();
  }
  arrays_.End(status);
}

}  // namespace xlad::runtime

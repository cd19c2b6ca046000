#include "service/trace_store.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/log.h"

namespace xlad::service {
namespace {

// The approximate memory of a job, and of each of its workers and devices.
constexpr int64_t kLiveJobBytes = 512;
constexpr int64_t kLiveEntryBytes = 128;

void AppendRecord(const TraceRecord& record, std::string* bytes) {
  google::protobuf::io::StringOutputStream out(bytes);
  google::protobuf::io::CodedOutputStream coded(&out);
  coded.WriteVarint32(static_cast<uint32_t>(record.ByteSizeLong()));
  record.SerializeToCodedStream(&coded);
}

void WarnOfLoss(const std::string& job_id, const absl::Status& error) {
  LogWarn("a part of the trace of a job cannot be kept", {{"job", job_id}, {"error", std::string(error.message())}});
}

}  // namespace

void TraceStore::Add(const std::string& job_id, const TraceRecord& record) {
  const std::lock_guard lock(mutex_);
  AppendRecord(record, &added_[job_id]);
  NoteShares(job_id, record);
}

// Returns what is known about this attempt of the job, which may be nothing yet.
TraceStore::Live& TraceStore::FindLive(const std::string& job_id, int64_t attempt) {
  const auto [found, is_new] = live_.try_emplace(job_id);
  Live& live = found->second;
  if (is_new) {
    used_.push_front(job_id);
    live.used = used_.begin();
  } else {
    used_.splice(used_.begin(), used_, live.used);
  }
  if (is_new || live.attempt != attempt) {
    live.programs.clear();
    live.shares.clear();
    live.attempt = attempt;
    live_bytes_ -= live.bytes;
    live.bytes = kLiveJobBytes;
    live_bytes_ += live.bytes;
  }
  return live;
}

void TraceStore::NoteShares(const std::string& job_id, const TraceRecord& record) {
  Live& live = FindLive(job_id, record.attempt());
  const auto count = [&](size_t bytes) {
    live.bytes += bytes;
    live_bytes_ += bytes;
  };
  if (record.trace().has_program()) {
    const auto [program, is_new] = live.programs.try_emplace(record.worker_id());
    if (is_new) count(kLiveEntryBytes + record.worker_id().size());
    live_bytes_ -= std::ssize(program->second);
    live.bytes -= std::ssize(program->second);
    program->second.clear();
    for (const TracedInstruction& instruction : record.trace().program().instructions()) {
      const std::string& kind = instruction.kind();
      program->second.push_back(kind == "collective" || kind == "wait" ? Time::kCollective
                                : kind == "loop" || kind == "branch"   ? Time::kContainsOthers
                                                                       : Time::kCompute);
    }
    count(program->second.size());
  }
  const auto program = live.programs.find(record.worker_id());
  for (const TracedStep& step : record.trace().steps()) {
    if (program == live.programs.end()) break;
    const auto [share, is_new] = live.shares.try_emplace(step.device());
    if (is_new) count(kLiveEntryBytes);
    NoteStep(program->second, step, &share->second);
  }
  while (live_bytes_ > max_live_bytes_ && live_.size() > 1) {
    const auto oldest = live_.find(used_.back());
    live_bytes_ -= oldest->second.bytes;
    live_.erase(oldest);
    used_.pop_back();
  }
}

void TraceStore::NoteStep(const std::vector<Time>& program, const TracedStep& step, StepShare* share) {
  double compute_ns = 0, collective_ns = 0;  // Sums of a worker's numbers, which could overflow an integer.
  const int columns = std::min(step.instruction_size(), step.span_ns_size());
  for (int s = 0; s < columns; ++s) {
    const int number = step.instruction(s);
    if (number < 0 || number >= std::ssize(program)) continue;
    const auto span_ns = static_cast<double>(step.span_ns(s));
    if (program[number] == Time::kCollective) collective_ns += span_ns;
    if (program[number] == Time::kCompute) compute_ns += span_ns;
  }
  const double all_ms = static_cast<double>(step.end_ns() - step.begin_ns()) / kNsPerMs;
  share->step = step.step();
  share->compute_ms = compute_ns / kNsPerMs;
  share->collective_ms = collective_ns / kNsPerMs;
  share->other_ms = std::max(0.0, all_ms - share->compute_ms - share->collective_ms);
}

std::map<int, StepShare> TraceStore::Shares(const std::string& job_id) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(job_id);
  return found == live_.end() ? std::map<int, StepShare>() : found->second.shares;
}

void TraceStore::Flush() {
  const std::lock_guard writing(writing_);
  std::map<std::string, std::string> added;
  {
    const std::lock_guard lock(mutex_);
    added.swap(added_);
  }
  for (const auto& [job_id, bytes] : added) Append(job_id, bytes);
}

void TraceStore::Append(const std::string& job_id, const std::string& bytes) {
  const std::string path = path_of_(job_id);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const absl::StatusOr<int64_t> old_size = RealFileSystem().Size(path);
  if (!old_size.ok() && !absl::IsNotFound(old_size.status())) return WarnOfLoss(job_id, old_size.status());
  const int64_t size = old_size.value_or(0);
  if (size >= max_file_bytes_) return;
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (size + std::ssize(bytes) >= max_file_bytes_) {
    TraceRecord last;
    last.set_full(true);
    std::string end;
    AppendRecord(last, &end);
    file.write(end.data(), static_cast<std::streamsize>(end.size()));
  }
  file.close();  // Otherwise the destructor would write the rest of a buffer that did not fit.
  if (file.good()) return;
  // Records that follow a part of a record could not be read.
  std::filesystem::resize_file(path, size, error);
  WarnOfLoss(job_id, absl::UnavailableError(absl::StrCat("cannot write ", path)));
  if (!error || !RealFileSystem().Exists(path)) return;
  WarnOfLoss(job_id, absl::UnavailableError(absl::StrCat("cannot remove a part of a record from ", path, ": ",
                                                         error.message(), "; records that follow it cannot be read")));
}

absl::StatusOr<std::string> TraceStore::Read(const std::string& job_id) {
  Flush();
  const std::lock_guard writing(writing_);
  absl::StatusOr<std::string> bytes = RealFileSystem().Read(path_of_(job_id));
  if (absl::IsNotFound(bytes.status())) return std::string();
  return bytes;
}

}  // namespace xlad::service

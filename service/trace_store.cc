#include "service/trace_store.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/log.h"

namespace xlad::service {
namespace {

void AppendRecord(const TraceRecord& record, std::string* bytes) {
  google::protobuf::io::StringOutputStream out(bytes);
  google::protobuf::io::CodedOutputStream coded(&out);
  coded.WriteVarint32(static_cast<uint32_t>(record.ByteSizeLong()));
  record.SerializeToCodedStream(&coded);
}

}  // namespace

void TraceStore::Add(const std::string& job_id, const TraceRecord& record) {
  const std::lock_guard lock(mutex_);
  AppendRecord(record, &added_[job_id]);
  NoteShares(job_id, record);
}

void TraceStore::NoteShares(const std::string& job_id, const TraceRecord& record) {
  if (live_.size() >= kMaxLive && !live_.contains(job_id)) live_.clear();
  Live& live = live_[job_id];
  if (live.attempt != record.attempt()) live = {{}, {}, record.attempt()};
  if (record.trace().has_program()) live.programs[record.worker_id()] = record.trace().program();
  const TracedProgram& program = live.programs[record.worker_id()];
  for (const TracedStep& step : record.trace().steps()) {
    int64_t compute_ns = 0, collective_ns = 0;
    const int columns = std::min(step.instruction_size(), step.span_ns_size());
    for (int s = 0; s < columns; ++s) {
      const int number = step.instruction(s);
      if (number < 0 || number >= program.instructions_size()) continue;
      const std::string& kind = program.instructions(number).kind();
      const bool is_collective = kind == "collective" || kind == "wait";
      const bool contains_others = kind == "loop" || kind == "branch";
      if (is_collective) collective_ns += step.span_ns(s);
      if (!is_collective && !contains_others) compute_ns += step.span_ns(s);
    }
    const double all_ms = static_cast<double>(step.end_ns() - step.begin_ns()) / kNsPerMs;
    StepShare& share = live.shares[step.device()];
    share.step = step.step();
    share.compute_ms = static_cast<double>(compute_ns) / kNsPerMs;
    share.collective_ms = static_cast<double>(collective_ns) / kNsPerMs;
    share.other_ms = std::max(0.0, all_ms - share.compute_ms - share.collective_ms);
  }
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
  const auto size = static_cast<int64_t>(std::filesystem::exists(path, error) ? std::filesystem::file_size(path, error)
                                                                              : 0);
  if (size >= max_file_bytes_) return;
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (size + static_cast<int64_t>(bytes.size()) >= max_file_bytes_) {
    TraceRecord last;
    last.set_full(true);
    std::string end;
    AppendRecord(last, &end);
    file.write(end.data(), static_cast<std::streamsize>(end.size()));
  }
  file.flush();
  if (!file.good()) LogWarn("a part of the trace of a job cannot be kept", {{"job", job_id}, {"file", path}});
}

absl::StatusOr<std::string> TraceStore::Read(const std::string& job_id) {
  Flush();
  const std::lock_guard writing(writing_);
  absl::StatusOr<std::string> bytes = RealFileSystem().Read(path_of_(job_id));
  if (absl::IsNotFound(bytes.status())) return std::string();
  return bytes;
}

}  // namespace xlad::service

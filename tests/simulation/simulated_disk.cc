#include "tests/simulation/simulated_disk.h"

#include <algorithm>
#include <cstring>

namespace xlad::simulation {
namespace {

constexpr int64_t kSectorBytes = 512;

}  // namespace

DiskFault SimulatedDisk::NextFault(bool grows, bool is_sync) {
  ++operations_;
  failed_full_ = false;
  if (has_crashed()) return DiskFault::kIoError;
  if (operations_ < fail_at_ || fail_count_ <= 0) return DiskFault::kNone;
  const bool of_sync = fault_ == DiskFault::kLostSync || fault_ == DiskFault::kAmbiguousSync;
  if (fault_ == DiskFault::kNoSpace && !grows) return DiskFault::kNone;
  if (of_sync && !is_sync) return DiskFault::kNone;
  if (fault_ == DiskFault::kTornWrite && is_sync) return DiskFault::kNone;
  --fail_count_;
  failed_full_ = fault_ == DiskFault::kNoSpace;
  return fault_;
}

void SimulatedDisk::FailAt(int64_t operation, DiskFault fault, int64_t count) {
  fail_at_ = operation;
  fault_ = fault;
  fail_count_ = count;
}

void SimulatedDisk::Apply(const PendingWrite& write, std::string* contents) {
  if (write.truncate >= 0) {
    contents->resize(write.truncate, '\0');
    return;
  }
  const size_t end = write.offset + write.bytes.size();
  if (contents->size() < end) contents->resize(end, '\0');
  std::memcpy(contents->data() + write.offset, write.bytes.data(), write.bytes.size());
}

// Applies each sector of the write with probability 1/2.
void SimulatedDisk::ApplyInPart(const PendingWrite& write, std::string* contents) {
  if (write.truncate >= 0) return;
  for (int64_t begin = 0; begin < std::ssize(write.bytes);) {
    const int64_t sector_end = (write.offset + begin) / kSectorBytes * kSectorBytes + kSectorBytes;
    const int64_t size = std::min<int64_t>(sector_end - write.offset, std::ssize(write.bytes)) - begin;
    if (random_->Below(2) == 0) Apply({write.offset + begin, write.bytes.substr(begin, size)}, contents);
    begin += size;
  }
}

bool SimulatedDisk::Create(const std::string& path) {
  if (Exists(path)) return true;
  if (NextFault(/*grows=*/true, /*is_sync=*/false) != DiskFault::kNone) return false;
  files_[path];
  return true;
}

bool SimulatedDisk::Delete(const std::string& path) {
  if (NextFault(/*grows=*/false, /*is_sync=*/false) != DiskFault::kNone) return false;
  files_.erase(path);
  return true;
}

bool SimulatedDisk::Read(const std::string& path, int64_t offset, int64_t size, char* out) {
  std::memset(out, 0, size);
  if (has_crashed()) return false;
  const auto found = files_.find(path);
  if (found == files_.end()) return false;
  const std::string& bytes = found->second.seen;
  const int64_t there = std::clamp<int64_t>(std::ssize(bytes) - offset, 0, size);
  if (there > 0) std::memcpy(out, bytes.data() + offset, there);
  return true;
}

int64_t SimulatedDisk::Size(const std::string& path) const {
  const auto found = files_.find(path);
  return found == files_.end() ? 0 : std::ssize(found->second.seen);
}

void SimulatedDisk::CutOff(const std::string& path, int64_t size) {
  File& file = files_.at(path);
  file.seen.resize(size);
  file.durable = file.seen;
  file.pending.clear();
}

bool SimulatedDisk::Write(const std::string& path, int64_t offset, absl::string_view bytes) {
  File& file = files_[path];
  PendingWrite write{offset, std::string(bytes)};
  const DiskFault fault = NextFault(offset + std::ssize(bytes) > std::ssize(file.seen), /*is_sync=*/false);
  if (fault == DiskFault::kIoError) return false;
  if (fault != DiskFault::kNone) write.bytes.resize(random_->Below(write.bytes.size() + 1));
  Apply(write, &file.seen);
  file.pending.push_back(std::move(write));
  return fault == DiskFault::kNone;
}

bool SimulatedDisk::Truncate(const std::string& path, int64_t size) {
  if (NextFault(/*grows=*/false, /*is_sync=*/false) != DiskFault::kNone) return false;
  File& file = files_[path];
  const PendingWrite write{0, "", size};
  Apply(write, &file.seen);
  file.pending.push_back(write);
  return true;
}

bool SimulatedDisk::Sync(const std::string& path) {
  const DiskFault fault = NextFault(/*grows=*/false, /*is_sync=*/true);
  if (fault == DiskFault::kIoError) return false;
  File& file = files_[path];
  if (fault != DiskFault::kLostSync) {
    for (const PendingWrite& write : file.pending) Apply(write, &file.durable);
  }
  file.pending.clear();
  return fault == DiskFault::kNone;
}

bool SimulatedDisk::Lock(const std::string& path, const void* holder) {
  File& file = files_[path];
  if (file.holder != nullptr && file.holder != holder) return false;
  file.holder = holder;
  return true;
}

void SimulatedDisk::Unlock(const std::string& path, const void* holder) {
  const auto found = files_.find(path);
  if (found != files_.end() && found->second.holder == holder) found->second.holder = nullptr;
}

void SimulatedDisk::Restart() {
  for (auto& [path, file] : files_) {
    for (const PendingWrite& write : file.pending) {
      const uint64_t fate = random_->Below(3);
      if (fate == 0) Apply(write, &file.durable);
      if (fate == 1) ApplyInPart(write, &file.durable);
    }
    file.pending.clear();
    file.seen = file.durable;
    file.holder = nullptr;
  }
  crash_at_ = INT64_MAX;
  fail_at_ = INT64_MAX;
  fail_count_ = 0;
}

}  // namespace xlad::simulation

// A disk in memory that loses what was not synced, tears writes, fails and fills up, on command and by a seed.
//
// What a process reads is what it has written. What is on the disk is only what has been synced; of later writes, each
// one may be there, be missing, or be there in part, sector by sector, after a crash. Names are on disk at once. Used
// by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/random.h"

namespace xlad::simulation {

enum class DiskFault {
  kNone,
  kNoSpace,       // A write that makes a file longer fails, in part; syncs and overwrites work.
  kIoError,       // The operation fails and does nothing.
  kTornWrite,     // A write fails after a part of it.
  kLostSync,      // A sync fails and nothing of the file's later writes will be on disk, although reads show them.
  kAmbiguousSync  // A sync fails although everything is on disk.
};

class SimulatedDisk {
 public:
  explicit SimulatedDisk(uint64_t seed) : random_(SeededRandom(seed)) {}

  // --- Files. All return false if the operation failed; a read beyond the end fills with zeros and returns true.
  bool Exists(const std::string& path) const { return files_.contains(path); }
  bool Create(const std::string& path);
  bool Delete(const std::string& path);
  bool Read(const std::string& path, int64_t offset, int64_t size, char* out);
  bool Write(const std::string& path, int64_t offset, absl::string_view bytes);
  bool Truncate(const std::string& path, int64_t size);
  bool Sync(const std::string& path);
  int64_t Size(const std::string& path) const;
  // Whether the last failed operation failed because the disk was full.
  bool is_full() const { return failed_full_; }

  // One holder at a time, as an exclusive lock; false if there is one already.
  bool Lock(const std::string& path, const void* holder);
  void Unlock(const std::string& path, const void* holder);

  // --- Faults. Operations that change the disk, and syncs, are counted.
  int64_t operations() const { return operations_; }
  // `count` operations of a matching kind fail, beginning with the one that has this number.
  void FailAt(int64_t operation, DiskFault fault, int64_t count);
  // Before this operation, the power fails: it and all later operations fail until Restart.
  void CrashAt(int64_t operation) { crash_at_ = operation; }
  bool has_crashed() const { return operations_ > crash_at_; }
  // The power has failed, now or at CrashAt: what was not synced may be lost. All locks are free and all faults over.
  void Restart();

 private:
  struct PendingWrite {
    int64_t offset = 0;
    std::string bytes;
    int64_t truncate = -1;  // Not negative: sets the size instead.
  };
  struct File {
    std::string seen;     // As the process sees it.
    std::string durable;  // As the disk has it.
    std::vector<PendingWrite> pending;
    const void* holder = nullptr;
  };

  // The fault of the next operation, which is counted.
  DiskFault NextFault(bool grows, bool is_sync);
  static void Apply(const PendingWrite& write, std::string* contents);
  void ApplyInPart(const PendingWrite& write, std::string* contents);

  const std::unique_ptr<Random> random_;
  std::map<std::string, File> files_;
  int64_t operations_ = 0;
  int64_t crash_at_ = INT64_MAX;
  int64_t fail_at_ = INT64_MAX, fail_count_ = 0;
  DiskFault fault_ = DiskFault::kNone;
  bool failed_full_ = false;
};

// Makes SQLite use the disk for all files from now on, as its default VFS; the real files again when it is destroyed.
class SqliteOnDisk {
 public:
  explicit SqliteOnDisk(SimulatedDisk* disk);
  ~SqliteOnDisk();
  SqliteOnDisk(const SqliteOnDisk&) = delete;
  SqliteOnDisk& operator=(const SqliteOnDisk&) = delete;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace xlad::simulation

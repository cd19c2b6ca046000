// A disk in memory that, on command, loses unsynced writes, tears writes, fails or fills up. A seed determines its
// random choices.
//
// A process reads what it has written. After a crash, the disk has all synced writes. Each later write may be present,
// be missing, or be present in some of its sectors. Names of files are durable at once. Used by one thread.
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
  // A file cannot be created, and a write that makes a file longer fails after a part of it. Other operations work.
  kNoSpace,
  kIoError,    // The operation fails without an effect.
  kTornWrite,  // A write fails after a part of it. Other changes fail without an effect.
  // A sync fails, and the file's writes since its last sync will never be durable, although reads return them.
  kLostSync,
  kAmbiguousSync  // A sync fails although all writes are durable.
};

class SimulatedDisk {
 public:
  explicit SimulatedDisk(uint64_t seed) : random_(SeededRandom(seed)) {}

  // --- Files. Create, Delete, Read, Write, Truncate and Sync return false if they fail. A read beyond the end of the
  // file succeeds and fills the rest with zeros.
  bool Exists(const std::string& path) const { return files_.contains(path); }
  bool Create(const std::string& path);
  bool Delete(const std::string& path);
  bool Read(const std::string& path, int64_t offset, int64_t size, char* out);
  bool Write(const std::string& path, int64_t offset, absl::string_view bytes);
  bool Truncate(const std::string& path, int64_t size);
  bool Sync(const std::string& path);
  int64_t Size(const std::string& path) const;
  // Shortens a file, as an error of the file system can. This is not a counted operation.
  void CutOff(const std::string& path, int64_t size);
  // Whether the last counted operation (see below) failed because the disk was full.
  bool is_full() const { return failed_full_; }

  // Takes an exclusive lock for `holder`. Returns false if the file is locked by another holder.
  bool Lock(const std::string& path, const void* holder);
  void Unlock(const std::string& path, const void* holder);

  // --- Faults. Operations that change the disk, and syncs, are counted from 1.
  int64_t operations() const { return operations_; }
  // Injects the fault into `count` operations that it can affect, beginning with operation number `operation`.
  void FailAt(int64_t operation, DiskFault fault, int64_t count);
  // The power fails at the next counted operation after operation number `operation`. This one and all later operations
  // fail until Restart.
  void CrashAt(int64_t operation) { crash_at_ = operation; }
  bool has_crashed() const { return operations_ > crash_at_; }
  // Restarts after a power failure, which happens now if CrashAt has not caused one. Unsynced writes may be lost. All
  // locks are released and all faults end.
  void Restart();

 private:
  struct PendingWrite {
    int64_t offset = 0;
    std::string bytes;
    int64_t truncate = -1;  // If not negative, the operation sets the size instead of writing.
  };
  struct File {
    std::string seen;     // The contents that reads return.
    std::string durable;  // The durable contents.
    std::vector<PendingWrite> pending;
    const void* holder = nullptr;
  };

  // Counts the next operation and returns its fault.
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

// Makes SQLite use the simulated disk for all files, as its default VFS. The destructor restores the previous VFS.
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

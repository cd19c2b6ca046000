// The control file of a process group: a small file in memory that all its processes map.
//
// It carries the entries, signals and small payloads of operations, wakes sleepers, and is the flight recorder of the
// group: it exists until the last process has left in order, so that `xlad comm why` can read after a crash, or while
// the processes hang, what each rank has done last.
//
// Threads and processes: the members say who writes them. Everything that one process writes while another reads it is
// atomic, or is written before a release store that the reader has seen.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace xlad::collectives {

constexpr int kMaxGroupRanks = 64;
constexpr int kSignalFlags = 4;
constexpr int kBoardBytes = 48;

// Announces that a rank has entered an operation; operations alternate between two lines. A rank enters operation k
// only after all ranks have entered operation k - 1, and so have finished k - 2, whose line it overwrites.
struct alignas(64) EntryLine {
  std::atomic<uint64_t> sequence = 0;  // The number of the operation, from 1. Written last, with release order.
  uint64_t operation = 0;              // What runs: upper 48 bits of its hash; lower 16 bits: index of its text.
  std::byte payload[kBoardBytes] = {};
};
static_assert(sizeof(EntryLine) == 64);

// The position of a buffer in memory that its owner has shared.
struct WindowPosition {
  uint32_t window = 0;      // Index into RankBlock::windows.
  uint32_t generation = 0;  // The generation of that window.
  uint64_t offset = 0;
};
// Published by a rank for each input and output, in order, if its peers access its buffers.
static_assert(sizeof(WindowPosition) == 16);

struct SharedWindow {
  std::atomic<uint32_t> generation = 0;  // Odd while the window exists.
  char segment[60] = {};                 // SharedSegment::name.
};

struct OperationRecord {
  std::atomic<uint64_t> operation = 0;  // As in EntryLine.
  std::atomic<uint64_t> ticks = 0;      // CpuTicks at the entry.
};

// Written by one rank, read by all. The members that are written often have cache lines of their own.
struct RankBlock {
  static constexpr uint32_t kLeftInOrder = 1, kLeftAfterError = 2;
  static constexpr int kWindows = 256;
  static constexpr int kTexts = 1024;
  static constexpr int kTextBytes = 128;
  static constexpr int kRecords = 64;
  static constexpr int kNoteBytes = 64;

  EntryLine lines[2];
  // By parity of the operation: what the rank says about it to peers that run another one. Written before the entry.
  std::byte notes[2][kNoteBytes] = {};
  // 1 while the rank may read or write buffers of its peers.
  alignas(64) std::atomic<uint32_t> busy = 0;
  // 1 while the rank sleeps, until another rank wakes it.
  alignas(64) std::atomic<uint32_t> asleep = 0;
  std::atomic<int32_t> core = -1;                  // The core on which the rank began its last long wait.
  alignas(64) std::atomic<uint64_t> finished = 0;  // The number of operations that this rank has finished.
  std::atomic<uint32_t> step = 0;                  // The step of the schedule at which it waits, while it waits long.
  std::atomic<int32_t> waits_for = -1;             // The rank for which it waits, while it waits long.
  alignas(64) int64_t pid = 0;
  char host[64] = {};
  uint64_t cores[16] = {};
  std::atomic<uint32_t> joined = 0;
  std::atomic<uint32_t> left = 0;  // kLeftInOrder or kLeftAfterError, after the rank stopped taking part.
  SharedWindow windows[kWindows];
  char texts[kTexts][kTextBytes] = {};
  OperationRecord records[kRecords];
};

struct ControlHead {
  static constexpr uint64_t kMagic = 0x786c6164636f6d31;  // "1mocdalx"
  uint64_t magic = 0;                                     // Written last by the process that creates the file.
  uint32_t version = 0;
  int32_t ranks = 0;
  int64_t bytes = 0;
  char scratch_segment[64] = {};
  alignas(64) std::atomic<uint32_t> sleepers = 0;
  std::atomic<int32_t> failed_rank = -1;  // The rank whose death was noticed first.
  std::atomic<uint32_t> needs_fence = 0;  // 1 if a process cannot use membarrier; see Sleepers in wait.h.
};

// A counter of signals from one rank to another.
using SignalCell = std::atomic<uint64_t>;

class ControlFile {
 public:
  // Creates the file with room for `ranks` ranks. AlreadyExists if there is one.
  static absl::StatusOr<std::unique_ptr<ControlFile>> Create(const std::string& path, int ranks);
  // Opens a file for reading and writing, or, for `xlad comm why`, only for reading. InvalidArgument if it is not the
  // control file of a group.
  static absl::StatusOr<std::unique_ptr<ControlFile>> Open(const std::string& path, bool writable = true);
  // The same in memory that the ranks share otherwise: BytesFor(ranks) bytes, aligned to cache lines, which must
  // outlive the object. The rank that calls InMemory with `create` must do so before the others; the memory is zero
  // before.
  static std::unique_ptr<ControlFile> InMemory(std::byte* address, int ranks, bool create);
  static int64_t BytesFor(int ranks);
  ~ControlFile();

  const std::string& path() const { return path_; }
  int ranks() const { return head().ranks; }
  int64_t bytes() const { return bytes_; }
  ControlHead& head() const { return *reinterpret_cast<ControlHead*>(address_); }
  RankBlock& rank(int rank) const;
  SignalCell& cell(int flag, int from, int to) const;
  // Removes the file from its folder; the mappings stay valid.
  void Unlink();

 private:
  ControlFile() = default;
  absl::Status Map(int file, int64_t bytes, bool writable);

  std::string path_;
  std::byte* address_ = nullptr;
  int64_t bytes_ = 0;
  bool maps_file_ = true;
};

// The folder of control files: XLAD_COMM_DIR, otherwise a folder of this user in /dev/shm, or in /tmp if that does not
// exist. Created, readable by this user only, if it does not exist.
absl::StatusOr<std::string> ControlFolder();

// Removes the control files that are older than a day and whose processes have all ended, and such folders in which
// groups have formed (MeetingFolder).
void RemoveOldControlFiles(const std::string& folder);

// The text of an operation by its word in an entry line or a record.
std::string OperationText(const RankBlock& block, uint64_t operation);

// The counter of the CPU's clock, or nanoseconds if the CPU has none.
uint64_t CpuTicks();

}  // namespace xlad::collectives

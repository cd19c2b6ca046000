// The control file of a process group: a small file in memory that all its processes map.
//
// It contains the entries, signals and small payloads of operations, and the words through which ranks wake each other.
// It is also the flight recorder of the group: after a crash, or while the processes hang, `xlad comm why` reads from
// it what each rank did last. The last process that leaves the group removes the file, but only if no process had an
// error.
//
// Threads and processes: comments say who writes which members. If a process writes a member while another process
// reads it, the member is atomic, or it is written before a release store that the reader has seen.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "collectives/exec/bootstrap/rendezvous.h"

namespace xlad::collectives {

constexpr int kMaxGroupRanks = 64;
constexpr int kSignalFlags = 4;
constexpr int kBoardBytes = 48;

// Announces that a rank has entered an operation. Operations alternate between two lines: a rank enters operation k
// only after all ranks have entered operation k - 1, and so have finished operation k - 2, whose line it overwrites.
struct alignas(64) EntryLine {
  std::atomic<uint64_t> sequence = 0;  // The number of the operation, from 1. Written last, with release order.
  // The upper 48 bits are those of the operation's hash, the lower 16 bits the index of its text.
  uint64_t operation = 0;
  std::byte payload[kBoardBytes] = {};
};
static_assert(sizeof(EntryLine) == 64);

// The position of a buffer in a window. A window is memory that a rank shares with its peers. A rank publishes the
// positions of its inputs and outputs, in order, if its peers access these buffers.
struct WindowPosition {
  uint32_t window = 0;      // The index into RankBlock::windows.
  uint32_t generation = 0;  // The window's generation when the position was published; 0 if the buffer is empty.
  uint64_t offset = 0;      // From the start of the window, in bytes.
};
static_assert(sizeof(WindowPosition) == 16);

struct SharedWindow {
  std::atomic<uint32_t> generation = 0;  // Odd while the window exists.
  char segment[60] = {};                 // SharedSegment::name.
};

// The operations of a rank that exchange messages. They are counted apart from the others, because a rank may enter one
// of them before all ranks have entered the previous one. `entered` is written last, with release order.
struct MessageOperations {
  std::atomic<uint64_t> entered = 0;    // The number of operations that the rank entered.
  std::atomic<uint64_t> finished = 0;   // The number of operations that the rank finished.
  std::atomic<uint64_t> operation = 0;  // The last operation, as in EntryLine.
  std::atomic<uint64_t> after = 0;      // How many operations on mapped memory the rank had entered before it.
  // 0 before the first error; then 1 plus the number of operations on mapped memory that the rank had entered.
  std::atomic<uint64_t> failed = 0;
};

struct OperationRecord {
  std::atomic<uint64_t> operation = 0;  // As in EntryLine.
  std::atomic<uint64_t> ticks = 0;      // CpuTicks() when the rank entered the operation.
};

// Written by one rank and read by all. The members that are written often have cache lines of their own.
struct RankBlock {
  static constexpr uint32_t kLeftInOrder = 1, kLeftAfterError = 2;
  static constexpr int kWindows = 256;
  static constexpr int kTexts = 1024;
  static constexpr int kTextBytes = 128;
  static constexpr int kRecords = 64;
  static constexpr int kNoteBytes = 64;

  EntryLine lines[2];
  // Descriptions of the rank's operations for peers that run a different operation, indexed by the parity of the
  // operation's number. Written before the entry.
  std::byte notes[2][kNoteBytes] = {};
  // 1 while the rank may read or write buffers of its peers.
  alignas(64) std::atomic<uint32_t> busy = 0;
  // 1 while the rank sleeps. Another rank sets it to 0 to wake the rank.
  alignas(64) std::atomic<uint32_t> asleep = 0;
  std::atomic<int32_t> core = -1;                  // The core of the rank when its last long wait began.
  alignas(64) std::atomic<uint64_t> finished = 0;  // The number of operations that this rank has finished.
  std::atomic<uint32_t> step = 0;                  // The index of the schedule's waiting operation, if waits_for >= 0.
  // The rank that is waited for, or -1. Waits in a ProcessGroup set it only when they sleep.
  std::atomic<int32_t> waits_for = -1;
  alignas(64) int64_t pid = 0;
  char host[64] = {};
  uint64_t cores[16] = {};  // The affinity mask of the process: bit i of word w is core 64 w + i.
  std::atomic<uint32_t> joined = 0;
  std::atomic<uint32_t> left = 0;  // kLeftInOrder or kLeftAfterError if the rank has stopped taking part, otherwise 0.
  SharedWindow windows[kWindows];
  char texts[kTexts][kTextBytes] = {};
  // The last operations of the rank. Operation k is in records[k % kRecords]. Operations on mapped memory and with
  // messages are numbered together, from 1.
  OperationRecord records[kRecords];
  uint64_t start_ticks = 0;  // StartOfProcess(pid), or 0 if it is unknown.
  MessageOperations messages;

  // Sets `pid`, `host` and `start_ticks` to those of this process.
  void SetProcess();
  // Writes the text of an operation, truncated to kTextBytes - 1 bytes. `index` is less than kTexts.
  void SetText(size_t index, const std::string& text);
};

struct ControlHead {
  static constexpr uint64_t kMagic = 0x786c6164636f6d31;  // The bytes "1mocdalx" in memory.
  uint64_t magic = 0;                                     // Written last by the process that creates the file.
  uint32_t version = 0;
  int32_t ranks = 0;
  int64_t bytes = 0;
  char scratch_segment[64] = {};  // SharedSegment::name of the ranks' scratch.
  alignas(64) std::atomic<uint32_t> sleepers = 0;  // The number of ranks that sleep or are about to.
  std::atomic<int32_t> failed_rank = -1;  // The first rank whose death was noticed.
  std::atomic<uint32_t> needs_fence = 0;  // 1 if a process cannot use membarrier; see GroupWaiter in wait.cc.
};

// A counter of the signals from one rank to another.
using SignalCell = std::atomic<uint64_t>;

class ControlFile {
 public:
  // Creates the file with room for `ranks` ranks. AlreadyExists if the file exists. InvalidArgument unless there are 1
  // to kMaxGroupRanks ranks.
  static absl::StatusOr<std::unique_ptr<ControlFile>> Create(const std::string& path, int ranks);
  // Opens a file for reading and writing. `xlad comm why` opens it for reading only. InvalidArgument if the file is not
  // the control file of a group.
  static absl::StatusOr<std::unique_ptr<ControlFile>> Open(const std::string& path, bool writable = true);
  // Returns the same structure in memory that the ranks share without a file. The memory at `address` must have
  // BytesFor(ranks) bytes, be aligned to cache lines, be initially zero, and outlive the object. One rank must call
  // InMemory with `create` = true before the others call it with `create` = false.
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

// Returns the folder of control files: XLAD_COMM_DIR if it is set, otherwise a folder of this user in /dev/shm, or in
// /tmp if this user cannot write to /dev/shm. If the folder does not exist, it is created, readable by this user only.
// Errors are those of MakeOwnFolder.
absl::StatusOr<std::string> ControlFolder();

// Returns the control file of a group that is forming. Rank 0 creates the file in ControlFolder(), with a name that
// begins with `name`, and calls `prepare`; the other ranks then open the file. After an error, rank 0 removes the file.
// Before it creates one, it removes files of groups whose processes have all ended, but keeps the newest 16 for a day.
// FailedPrecondition if rank 0 has another number of ranks.
absl::StatusOr<std::unique_ptr<ControlFile>> ShareControlFile(
    absl::string_view name, int rank, int ranks, Rendezvous* rendezvous,
    const std::function<absl::Status(ControlFile&)>& prepare = [](ControlFile&) { return absl::OkStatus(); });

// The texts of one rank's operations in its block. Threads: one at a time.
class OperationTexts {
 public:
  // The index of the text that all further operations share.
  static constexpr size_t kSharedText = RankBlock::kTexts - 1;
  // `block` must outlive this object.
  explicit OperationTexts(RankBlock* block);
  // Keeps the text of an operation until Remove. Returns the word of the operation in an entry line or a record: a hash
  // of the text and the text's index, which is kSharedText if all texts are in use.
  uint64_t Add(const std::string& text);
  void Remove(uint64_t word);

 private:
  RankBlock* const block_;
  std::vector<bool> used_;
  size_t last_ = 0;  // The index of the text that was added last.
};
// Returns the index of the text.
inline size_t TextIndex(uint64_t operation) { return operation & 0xFFFF; }

// Returns the text of an operation, given its word in an entry line or a record.
std::string OperationText(const RankBlock& block, uint64_t operation);

// Returns the number of operations on mapped memory that a rank has entered.
uint64_t EnteredOnMemory(const RankBlock& block);
// How many operations a rank has entered: on mapped memory, and with messages. All ranks run the same operations in the
// same order, so if a rank has entered more of one kind than another rank, it has not entered fewer of the other kind.
// Only after an error of messages can a rank continue with operations on mapped memory while other ranks, which have
// not noticed the error, enter more operations with messages.
struct RankPosition {
  uint64_t mapped = 0, messages = 0;
  bool continued = false;  // The rank has entered an operation on mapped memory after an error of messages.
  bool is_inside = false;  // The rank is in operation `mapped` and has since entered no operation with messages.
  uint64_t all() const { return mapped + messages; }
};
// Returns nullopt if the rank entered an operation meanwhile.
std::optional<RankPosition> PositionOf(const RankBlock& block);
bool AreInOneOrder(const RankPosition& a, const RankPosition& b);
// Returns the text of the last operation that a rank at `position` has entered, or "no operation".
std::string LastOperation(const RankBlock& block, const RankPosition& position);
// Returns the text of an operation that a rank at `position` entered before a rank at `other` did. Requires that the
// positions are not in one order.
std::string OperationAhead(const RankBlock& block, const RankPosition& position, const RankPosition& other);

// Returns the CPU's time-stamp counter on x86-64, and nanoseconds on other CPUs.
uint64_t CpuTicks();

}  // namespace xlad::collectives

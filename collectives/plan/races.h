// Detects data races between the channels and ranks of a set of schedules with vector clocks (Flanagan and Freund,
// "FastTrack: efficient and precise dynamic race detection", PLDI 2009).
//
// Each channel of each rank is a thread. The operations of a thread are numbered from 1. An operation happens before
// another operation if it precedes it in the thread, or if a message or signal connects them.
#pragma once

#include <cstdint>
#include <vector>

namespace xlad::collectives {

// An access of a channel to the elements [begin, end) of a memory.
struct ChannelAccess {
  int memory = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int channel = 0;
  bool writes = false;
};

// Whether two channels access the same elements and at least one of them writes. Otherwise there cannot be a race.
bool ChannelsConflict(std::vector<ChannelAccess> accesses);

class RaceDetector {
 public:
  using Clock = std::vector<int32_t>;
  struct Event {
    int thread = 0;
    int32_t time = 0;
  };
  // A read of the memory of the sender by the receiver of a message, from the send to the end of the receive.
  struct MessageRead {
    Event send;
    Event receive{-1, 0};
  };

  // `rank_of[t]` is the rank of thread t. `sizes[r]` contains the sizes of the memories of rank r.
  RaceDetector(std::vector<int> rank_of, const std::vector<std::vector<int64_t>>& sizes);

  // Starts the next operation of the thread.
  void Step(int thread) { ++clocks_[thread][thread]; }
  Event Now(int thread) const { return {thread, clocks_[thread][thread]}; }
  const Clock& ClockOf(int thread) const { return clocks_[thread]; }
  // Everything in `clock` happens before the current operation of the thread.
  void Join(int thread, const Clock& clock);

  // Records an access of the current operation of a thread. Returns whether there is a race, or whether the memory
  // belongs to another rank that may not have entered the collective yet.
  bool Read(int thread, int rank, int memory, int64_t begin, int64_t end);
  bool Write(int thread, int rank, int memory, int64_t begin, int64_t end);
  // Records the read of a message that the current operation sends. Returns whether there is a race. `message` is set
  // to an index for Receive.
  bool Send(int thread, int memory, int64_t begin, int64_t end, int* message);
  void Receive(int thread, int message) { messages_[message].receive = Now(thread); }

  // Whether a message or signal of the rank happens before the current operation of the thread. If so, the rank has
  // entered the collective.
  bool Knows(int thread, int rank) const;
  // Returns the thread of another rank that may still access memory of `rank` when `rank` leaves the collective, or -1.
  int AccessAfterEnd(int rank) const;
  // Whether messages or signals guarantee that `other` has entered the collective when `rank` leaves it.
  bool KnowsAtEnd(int rank, int other) const;

 private:
  struct ReadRecord {
    Event event;
    int message = -1;  // An index into messages_.
  };
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    Event write{-1, 0};
    std::vector<ReadRecord> reads;
  };
  using Ranges = std::vector<Range>;

  bool Precedes(const Event& event, int thread) const {
    return event.thread < 0 || clocks_[thread][event.thread] >= event.time;
  }
  // Splits the ranges at `begin` and `end`. Returns the index of the first range in [begin, end).
  static size_t Split(Ranges* ranges, int64_t begin, int64_t end);
  // Records an access to the memory of another rank. Returns whether that rank may not have entered the collective yet.
  bool RecordRemoteAccess(int thread, int rank);

  const std::vector<int> rank_of_;
  std::vector<std::vector<int>> threads_of_;  // By rank.
  std::vector<Clock> clocks_;                 // By thread.
  std::vector<std::vector<Ranges>> memories_;
  std::vector<MessageRead> messages_;
  // By rank: the last access of each thread of other ranks, or empty if there is none.
  std::vector<Clock> remote_accesses_;
};

}  // namespace xlad::collectives

// Vector clocks and accesses.
#include "collectives/plan/races.h"

#include <algorithm>
#include <tuple>

namespace xlad::collectives {
namespace {

// The farthest end of the accesses so far, the channel of that access, and the farthest end of accesses by other
// channels.
class Reach {
 public:
  void Extend(int64_t end, int channel) {
    if (channel == channel_) {
      end_ = std::max(end_, end);
    } else if (end > end_) {
      end_of_others_ = end_;
      end_ = end;
      channel_ = channel;
    } else {
      end_of_others_ = std::max(end_of_others_, end);
    }
  }
  int64_t EndOfOthers(int channel) const { return channel == channel_ ? end_of_others_ : end_; }

 private:
  int64_t end_ = 0;
  int channel_ = -1;
  int64_t end_of_others_ = 0;
};

}  // namespace

bool ChannelsConflict(std::vector<ChannelAccess> accesses) {
  std::sort(accesses.begin(), accesses.end(), [](const ChannelAccess& a, const ChannelAccess& b) {
    return std::tie(a.memory, a.begin) < std::tie(b.memory, b.begin);
  });
  Reach touched, written;
  int memory = -1;
  for (const ChannelAccess& access : accesses) {
    if (access.memory != memory) touched = written = Reach();
    memory = access.memory;
    if ((access.writes ? touched : written).EndOfOthers(access.channel) > access.begin) return true;
    touched.Extend(access.end, access.channel);
    if (access.writes) written.Extend(access.end, access.channel);
  }
  return false;
}

RaceDetector::RaceDetector(std::vector<int> rank_of, const std::vector<std::vector<int64_t>>& sizes)
    : rank_of_(std::move(rank_of)),
      threads_of_(sizes.size()),
      clocks_(rank_of_.size(), Clock(rank_of_.size())),
      memories_(sizes.size()),
      remote_accesses_(sizes.size()) {
  for (int t = 0; t < std::ssize(rank_of_); ++t) threads_of_[rank_of_[t]].push_back(t);
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    for (const int64_t size : sizes[rank]) {
      Ranges& ranges = memories_[rank].emplace_back();
      if (size > 0) ranges.push_back({0, size, {-1, 0}, {}});
    }
  }
}

void RaceDetector::Join(int thread, const Clock& clock) {
  Clock& own = clocks_[thread];
  for (size_t t = 0; t < own.size(); ++t) own[t] = std::max(own[t], clock[t]);
}

size_t RaceDetector::Split(Ranges* ranges, int64_t begin, int64_t end) {
  const auto index_of = [&](int64_t position) {
    return std::upper_bound(ranges->begin(), ranges->end(), position,
                            [](int64_t p, const Range& range) { return p < range.end; }) -
           ranges->begin();
  };
  const auto split_at = [&](int64_t position) {
    const size_t i = index_of(position);
    if (i == ranges->size() || (*ranges)[i].begin == position) return;
    Range second = (*ranges)[i];
    second.begin = (*ranges)[i].end = position;
    ranges->insert(ranges->begin() + i + 1, std::move(second));
  };
  split_at(begin);
  split_at(end);
  return index_of(begin);
}

bool RaceDetector::RecordRemoteAccess(int thread, int rank) {
  if (rank_of_[thread] == rank) return false;
  if (remote_accesses_[rank].empty()) remote_accesses_[rank].resize(rank_of_.size());
  remote_accesses_[rank][thread] = clocks_[thread][thread];
  return !Knows(thread, rank);
}

bool RaceDetector::Read(int thread, int rank, int memory, int64_t begin, int64_t end) {
  bool race = RecordRemoteAccess(thread, rank);
  Ranges& ranges = memories_[rank][memory];
  for (size_t i = Split(&ranges, begin, end); i < ranges.size() && ranges[i].begin < end; ++i) {
    race = race || !Precedes(ranges[i].write, thread);
    std::vector<ReadRecord>& reads = ranges[i].reads;
    const auto same = std::find_if(reads.begin(), reads.end(), [&](const ReadRecord& read) {
      return read.message < 0 && read.event.thread == thread;
    });
    if (same != reads.end()) {
      same->event = Now(thread);
    } else {
      reads.push_back({Now(thread), -1});
    }
  }
  return race;
}

bool RaceDetector::Write(int thread, int rank, int memory, int64_t begin, int64_t end) {
  bool race = RecordRemoteAccess(thread, rank);
  const bool is_owner = rank_of_[thread] == rank;
  Ranges& ranges = memories_[rank][memory];
  for (size_t i = Split(&ranges, begin, end); i < ranges.size() && ranges[i].begin < end; ++i) {
    race = race || !Precedes(ranges[i].write, thread);
    for (const ReadRecord& read : ranges[i].reads) {
      race = race || !Precedes(read.event, thread);
      // The owner of the memory is the sender, which blocks until its message has been received. Other ranks do not
      // block.
      if (read.message < 0 || is_owner) continue;
      const Event& receive = messages_[read.message].receive;
      race = race || receive.thread < 0 || !Precedes(receive, thread);
    }
    ranges[i].reads.clear();
    ranges[i].write = Now(thread);
  }
  return race;
}

bool RaceDetector::Send(int thread, int memory, int64_t begin, int64_t end, int* message) {
  *message = std::ssize(messages_);
  messages_.push_back({Now(thread)});
  bool race = false;
  Ranges& ranges = memories_[rank_of_[thread]][memory];
  for (size_t i = Split(&ranges, begin, end); i < ranges.size() && ranges[i].begin < end; ++i) {
    race = race || !Precedes(ranges[i].write, thread);
    ranges[i].reads.push_back({Now(thread), *message});
  }
  return race;
}

bool RaceDetector::Knows(int thread, int rank) const {
  for (const int t : threads_of_[rank]) {
    if (clocks_[thread][t] > 0) return true;
  }
  return false;
}

int RaceDetector::AccessAfterEnd(int rank) const {
  for (int t = 0; t < std::ssize(remote_accesses_[rank]); ++t) {
    const bool known = remote_accesses_[rank][t] == 0 ||
                       std::any_of(threads_of_[rank].begin(), threads_of_[rank].end(),
                                   [&](int own) { return clocks_[own][t] >= remote_accesses_[rank][t]; });
    if (!known) return t;
  }
  return -1;
}

bool RaceDetector::KnowsAtEnd(int rank, int other) const {
  return std::any_of(threads_of_[rank].begin(), threads_of_[rank].end(),
                     [&](int thread) { return Knows(thread, other); });
}

}  // namespace xlad::collectives

#include "collectives/exec/messages/flight_record.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace xlad::collectives {

absl::StatusOr<std::unique_ptr<FlightRecord>> FlightRecord::Join(const std::string& key, int rank, int ranks,
                                                                 Rendezvous* rendezvous) {
  if (ranks > kMaxGroupRanks) return nullptr;
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<ControlFile> control,
                        ShareControlFile(absl::StrCat(key, "-messages"), rank, ranks, rendezvous));
  std::unique_ptr<FlightRecord> record(new FlightRecord(std::move(control), rank));
  RankBlock& self = record->self();
  self.pid = getpid();
  gethostname(self.host, sizeof self.host - 1);
  std::strcpy(self.texts[RankBlock::kTexts - 1], "one of many operations");
  self.joined.store(1, std::memory_order_release);
  return record;
}

FlightRecord::~FlightRecord() {
  if (self().left.load() != 0) return;
  self().left.store(RankBlock::kLeftInOrder);
  bool last = true;
  for (int rank = 0; rank < control_->ranks(); ++rank) {
    const RankBlock& block = control_->rank(rank);
    last = last && (block.joined.load() == 0 || block.left.load() == RankBlock::kLeftInOrder);
  }
  if (last) control_->Unlink();
}

uint64_t FlightRecord::Add(const std::string& text) {
  const size_t free = std::find(used_texts_.begin(), used_texts_.end(), false) - used_texts_.begin();
  if (free < used_texts_.size()) {
    char* const slot = self().texts[free];
    std::memset(slot, 0, RankBlock::kTextBytes);
    std::strncpy(slot, text.c_str(), RankBlock::kTextBytes - 1);
    used_texts_[free] = true;
  }
  return (Hash64(text) & ~uint64_t{0xFFFF}) | free;
}

void FlightRecord::Remove(uint64_t word) {
  if ((word & 0xFFFF) < used_texts_.size()) used_texts_[word & 0xFFFF] = false;
}

void FlightRecord::Begin(uint64_t word) {
  ++sequence_;
  OperationRecord& record = self().records[sequence_ % RankBlock::kRecords];
  record.operation.store(word, std::memory_order_relaxed);
  record.ticks.store(CpuTicks(), std::memory_order_relaxed);
  EntryLine& line = self().lines[sequence_ % 2];
  line.operation = word;
  line.sequence.store(sequence_, std::memory_order_release);
}

}  // namespace xlad::collectives

#include "collectives/exec/messages/flight_record.h"

#include "absl/strings/str_cat.h"

namespace xlad::collectives {

absl::StatusOr<std::unique_ptr<FlightRecord>> FlightRecord::Join(const std::string& key, int rank, int ranks,
                                                                 Rendezvous* rendezvous) {
  if (ranks > kMaxGroupRanks) return nullptr;
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<ControlFile> control,
                        ShareControlFile(absl::StrCat(key, "-messages"), rank, ranks, rendezvous));
  std::unique_ptr<FlightRecord> record(new FlightRecord(std::move(control), rank));
  RankBlock& self = record->self();
  self.SetProcess();
  self.SetText(RankBlock::kTexts - 1, "one of many operations");
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
  const size_t free = NextFreeText(used_texts_, last_text_);
  if (free < used_texts_.size()) {
    self().SetText(free, text);
    used_texts_[free] = true;
    last_text_ = free;
  }
  return OperationWord(text, free);
}

void FlightRecord::Remove(uint64_t word) {
  if (TextIndex(word) < used_texts_.size()) used_texts_[TextIndex(word)] = false;
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

#include "collectives/exec/messages/flight_record.h"

#include "absl/strings/str_cat.h"

namespace xlad::collectives {

absl::StatusOr<std::unique_ptr<FlightRecord>> FlightRecord::Join(const std::string& key, int rank, int ranks,
                                                                 Rendezvous* rendezvous) {
  if (ranks > kMaxGroupRanks) return nullptr;
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<ControlFile> control,
                        ShareControlFile(absl::StrCat(key, "-messages"), rank, ranks, rendezvous));
  RankBlock& self = control->rank(rank);
  auto record = std::make_unique<FlightRecord>(std::move(control), std::make_shared<OperationTexts>(&self), rank);
  record->owns_file_ = true;
  self.SetProcess();
  self.joined.store(1, std::memory_order_release);
  return record;
}

FlightRecord::~FlightRecord() {
  if (!owns_file_ || self().left.load() != 0) return;
  self().left.store(RankBlock::kLeftInOrder);
  bool last = true;
  for (int rank = 0; rank < control_->ranks(); ++rank) {
    const RankBlock& block = control_->rank(rank);
    last = last && (block.joined.load() == 0 || block.left.load() == RankBlock::kLeftInOrder);
  }
  if (last) control_->Unlink();
}

void FlightRecord::Fail() {
  std::atomic<uint64_t>& failed = self().messages.failed;
  if (failed.load() == 0) failed.store(1 + EnteredOnMemory(self()));
  if (owns_file_) self().left.store(RankBlock::kLeftAfterError);
}

void FlightRecord::Begin(uint64_t word) {
  ++sequence_;
  const uint64_t mapped = EnteredOnMemory(self());
  OperationRecord& record = self().records[(sequence_ + mapped) % RankBlock::kRecords];
  record.operation.store(word, std::memory_order_relaxed);
  record.ticks.store(CpuTicks(), std::memory_order_relaxed);
  MessageOperations& messages = self().messages;
  messages.operation.store(word, std::memory_order_relaxed);
  messages.after.store(mapped, std::memory_order_relaxed);
  messages.entered.store(sequence_, std::memory_order_release);
}

}  // namespace xlad::collectives

#include "collectives/exec/recorder.h"

#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t mixed = (a ^ (b * 0x9e3779b97f4a7c15ull)) * 0xbf58476d1ce4e5b9ull;
  mixed ^= mixed >> 29;
  return mixed * 0x94d049bb133111ebull;
}

}  // namespace

void Recorder::Begin(const Place& place, const Schedule* schedule) {
  AtOp(0);
  std::lock_guard<std::mutex> lock(mutex_);
  schedule_ = schedule;
  records_[count_++ % kRecords] = {place, clock_->NowNs(), -1};
}

void Recorder::End() {
  std::lock_guard<std::mutex> lock(mutex_);
  records_[(count_ - 1) % kRecords].end_ns = clock_->NowNs();
  schedule_ = nullptr;
}

void Recorder::AddMessage(const MessageId& id) {
  // Only this thread writes records, so it may read them without the lock.
  const Place& place = records_[(count_ - 1) % kRecords].place;
  const auto [from, to] = id.sent ? std::make_pair(device_, id.peer) : std::make_pair(id.peer, device_);
  uint64_t key = Mix(place.step, place.spec);
  key = Mix(Mix(key, place.iteration), static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to));
  messages_->Add({Mix(key, id.number), clock_->NowNs(), id.sent});
}

Recorder::Waiting Recorder::Now() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (count_ == 0 || records_[(count_ - 1) % kRecords].end_ns >= 0) return {};
  return {true, progress_ns_.load(std::memory_order_relaxed), Text(records_[(count_ - 1) % kRecords])};
}

std::string Recorder::Text(const Record& record) const {
  const Collective& collective = collectives_->collectives[record.place.spec];
  std::string out = absl::StrCat("device ", device_, ": ", collective.name, ", step ", record.place.step);
  if (record.place.iteration != 0) absl::StrAppend(&out, ", iteration ", absl::Hex(record.place.iteration));
  absl::StrAppend(&out, ", rank ", record.place.rank, " of ", collective.spec.ranks);
  if (record.end_ns >= 0) return absl::StrCat(out, ", took ", (record.end_ns - record.begin_ns) / 1000, " us");
  if (schedule_ == nullptr) {
    absl::StrAppend(&out, ", in a library");
    return collective.why.empty() ? out : absl::StrCat(out, ", because ", collective.why);
  }
  const std::vector<ScheduleOp>& ops = schedule_->ops;
  const size_t op = op_.load(std::memory_order_relaxed);
  absl::StrAppend(&out, ", ", op < ops.size() ? absl::StrCat("at \"", Print(ops[op]), "\"") : "ending");
  return collective.why.empty() ? out : absl::StrCat(out, ", because ", collective.why);
}

std::string Recorder::ToString() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string out;
  for (int64_t i = count_ - 1; i >= 0 && i >= count_ - kRecords; --i) {
    absl::StrAppend(&out, Text(records_[i % kRecords]), "\n");
  }
  return out;
}

}  // namespace xlad::collectives

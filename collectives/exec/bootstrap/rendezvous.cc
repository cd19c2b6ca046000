#include "collectives/exec/bootstrap/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace xlad::collectives {

std::string Rendezvous::Key(int rank, const std::string& key) const {
  return absl::StrCat("generation/", options_.generation, "/rank/", rank, "/", key);
}

absl::Status Rendezvous::Put(const std::string& key, const std::string& value) {
  return bootstrap_->Put(Key(options_.rank, key), value);
}

absl::StatusOr<std::string> Rendezvous::Get(int rank, const std::string& key) {
  return GetUntil(DeadlineNs(), rank, key);
}

// Looks up the value at least once, even if the deadline has passed.
absl::StatusOr<std::string> Rendezvous::GetUntil(int64_t deadline_ns, int rank, const std::string& key) {
  int64_t wait_us = 200;
  while (true) {
    absl::StatusOr<std::string> value = bootstrap_->Get(Key(rank, key));
    if (value.ok() || !absl::IsNotFound(value.status())) return value;
    if (clock_->NowNs() >= deadline_ns) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", rank, " of ", options_.ranks, " ", options_.who,
                                                      " has not arrived within ", options_.deadline_ms, " ms"));
    }
    if (options_.check_peer != nullptr) XLAD_RETURN_IF_ERROR(options_.check_peer(rank));
    std::this_thread::sleep_for(std::chrono::microseconds(wait_us));
    wait_us = std::min<int64_t>(wait_us * 3 / 2, 20000);
  }
}

absl::Status Rendezvous::Fence(const std::string& name) {
  const std::string key = absl::StrCat("fence/", name);
  XLAD_RETURN_IF_ERROR(Put(key, "1"));
  const int64_t deadline_ns = DeadlineNs();
  std::vector<int> missing;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const absl::Status status = GetUntil(deadline_ns, rank, key).status();
    if (absl::IsDeadlineExceeded(status)) {
      missing.push_back(rank);
    } else {
      XLAD_RETURN_IF_ERROR(status);
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("the group cannot form: of ", options_.ranks, " ", options_.who,
                                                  ", these have not arrived within ", options_.deadline_ms,
                                                  " ms: ", absl::StrJoin(missing, ", ")));
}

}  // namespace xlad::collectives

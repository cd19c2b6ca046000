#include "sharding/proof/proven_instances.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/hash.h"

namespace xlad::sharding {

ProvenInstances::ProvenInstances(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (IsSha256Hex(line) && outcomes_.emplace(line, ProofOutcome::kProven).second) proven_.emplace_back(line);
  }
}

std::optional<ProofOutcome> ProvenInstances::Find(absl::string_view signature) const {
  const std::string hash = Sha256Hex(signature);
  const std::lock_guard lock(mutex_);
  const auto found = outcomes_.find(hash);
  return found == outcomes_.end() ? std::nullopt : std::optional(found->second);
}

void ProvenInstances::Enter(absl::string_view signature, ProofOutcome outcome) {
  std::string hash = Sha256Hex(signature);
  const std::lock_guard lock(mutex_);
  if (!outcomes_.emplace(hash, outcome).second || outcome != ProofOutcome::kProven) return;
  proven_.push_back(std::move(hash));
  has_new_ = true;
}

bool ProvenInstances::has_new() const {
  const std::lock_guard lock(mutex_);
  return has_new_;
}

std::string ProvenInstances::ToText(size_t max_instances) const {
  const std::lock_guard lock(mutex_);
  const size_t dropped = proven_.size() - std::min(max_instances, proven_.size());
  return absl::StrJoin(proven_.begin() + dropped, proven_.end(), "\n");
}

}  // namespace xlad::sharding

// Remembers which instances (check_instances.h) were proven, so that they are not evaluated again.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace xlad::sharding {

// How the proof of an instance ended. Failed proofs are not remembered.
enum class ProofOutcome {
  kProven,
  kSkipped,  // The evaluator does not support the op.
};

// Thread-safe. An instance is identified by the SHA-256 of its signature, which contains everything that its proof
// depends on except the version of xlad. Therefore only texts of the same version may be read.
class ProvenInstances {
 public:
  ProvenInstances() = default;
  // Reads a text that ToText returned. Lines that are not hashes are ignored.
  explicit ProvenInstances(absl::string_view text);

  // The outcome that was entered for this signature, or nothing.
  std::optional<ProofOutcome> Find(absl::string_view signature) const;
  void Enter(absl::string_view signature, ProofOutcome outcome);

  // Whether ToText returns more instances than the text that was read.
  bool has_new() const;

  // The hashes of the proven instances, one per line, in the order in which they were entered. Skipped instances are
  // omitted. If there are more than `max_instances`, the first are omitted.
  std::string ToText(size_t max_instances) const;

 private:
  mutable std::mutex mutex_;
  absl::flat_hash_map<std::string, ProofOutcome> outcomes_;
  std::vector<std::string> proven_;  // In the order in which they were read or entered.
  bool has_new_ = false;
};

}  // namespace xlad::sharding

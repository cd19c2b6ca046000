// Checksums of the blocks of an object, so that a reader of any part of it can verify what it reads.
//
// The checksums are XXH3 with 64 bits, which are computed at the speed of memory and miss damage once in 2^64 cases.
// They do not find forgery; the SHA-256 of the whole object does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/hash.h"
#include "storage/range_reader.h"

namespace xlad::storage {

inline constexpr int64_t kBlockBytes = 1 << 20;

struct BlockSums {
  int64_t bytes = 0;                  // The size of the object.
  int64_t block_bytes = kBlockBytes;  // The size of every block but the last, which may be shorter.
  std::vector<uint64_t> sums;         // By block; empty if the object is empty.
  friend bool operator==(const BlockSums&, const BlockSums&) = default;
};

// InvalidArgument if the numbers do not fit each other.
absl::Status CheckBlockSums(const BlockSums& sums);

// The SHA-256 and the checksums of an object whose bytes come in pieces: Add any number of times, then Finish once.
struct ObjectInfo {
  std::string sha256;
  BlockSums sums;
};
class ObjectHasher {
 public:
  void Add(absl::string_view bytes);
  ObjectInfo Finish();

 private:
  Sha256 sha256_;
  BlockSums sums_;
  std::string block_;  // The beginning of the current block.
};

// Reads from `reader` and verifies every block that it reads. `name` is for messages. `sums` must have passed
// CheckBlockSums. DataLoss if the size of `reader` differs.
absl::StatusOr<std::shared_ptr<RangeReader>> VerifyBlocks(std::shared_ptr<RangeReader> reader, BlockSums sums,
                                                          std::string name);

// The checksums as the contents of a file, which has a checksum of its own. Parsing returns DataLoss if a bit differs.
std::string SerializeBlockSums(const ObjectInfo& info);
absl::StatusOr<ObjectInfo> ParseBlockSums(absl::string_view text);

}  // namespace xlad::storage

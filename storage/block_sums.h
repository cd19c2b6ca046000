// Checksums of the blocks of an object, so that a reader of a part of the object can verify this part.
//
// The checksums are 64-bit XXH3. They are computed at memory bandwidth and miss one in 2^64 random errors. They do not
// detect forgery; the SHA-256 of the whole object does.
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
  std::vector<uint64_t> sums;         // Indexed by block; empty if the object is empty.
  friend bool operator==(const BlockSums&, const BlockSums&) = default;
};

// InvalidArgument if the sizes and the number of checksums are not consistent.
absl::Status CheckBlockSums(const BlockSums& sums);

// The hashes of an object.
struct ObjectInfo {
  std::string sha256;
  BlockSums sums;
};
// Computes the SHA-256 and the checksums of an object from its bytes, in pieces: call Add any number of times, then
// Finish once.
class ObjectHasher {
 public:
  void Add(absl::string_view bytes);
  ObjectInfo Finish();

 private:
  Sha256 sha256_;
  BlockSums sums_;
  std::string block_;  // The part of the current block that has been added.
};

// Returns a reader that reads from `reader` and verifies every block that it reads. `name` is for messages. `sums` must
// have passed CheckBlockSums. DataLoss if the size of `reader` is not sums.bytes.
absl::StatusOr<std::shared_ptr<RangeReader>> VerifyBlocks(std::shared_ptr<RangeReader> reader, BlockSums sums,
                                                          std::string name);

// Converts the hashes to and from the contents of a file, which ends with its own checksum. Parsing returns DataLoss if
// a bit has changed or the text has another form.
std::string SerializeBlockSums(const ObjectInfo& info);
absl::StatusOr<ObjectInfo> ParseBlockSums(absl::string_view text);

// A file may end with the checksums of its contents. SumsTrailer returns what follows the contents:
// SerializeBlockSums(info) and its size as 16 hexadecimal digits. ReadWithTrailer returns a reader of the contents that
// verifies every block that it reads; `name` is for messages. DataLoss if the trailer is damaged or missing.
std::string SumsTrailer(const ObjectInfo& info);
absl::StatusOr<std::shared_ptr<RangeReader>> ReadWithTrailer(std::shared_ptr<RangeReader> file, std::string name);

}  // namespace xlad::storage

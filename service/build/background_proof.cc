#include "service/build/background_proof.h"

#include <string>

#include "base/clock.h"
#include "base/hash.h"
#include "sharding/proof/check.h"

namespace xlad::service {
namespace {

// The entry has 65 bytes for each instance, so it stays below the largest size of an entry (storage/entry_folder.h).
constexpr size_t kMaxInstances = 10'000;

// The key of the entry with the proven instances.
std::string Key() { return Sha256Hex("proven instances"); }

std::string Remembered(compiler::ObjectCache* cache) {
  return cache == nullptr ? "" : cache->Find(Key()).value_or("");
}

}  // namespace

BackgroundProof::BackgroundProof(const sharding::PipelineResult& program, compiler::ObjectCache* cache)
    : cache_(cache), proven_(Remembered(cache)), thread_([this, &program] {
        const int64_t since_ns = RealClock().NowNs();
        status_ = sharding::Check(program.propagated, program.partitioned, &proven_);
        nanoseconds_ = RealClock().NowNs() - since_ns;
      }) {}

BackgroundProof::~BackgroundProof() {
  if (thread_.joinable()) thread_.join();
}

absl::Status BackgroundProof::Join() {
  thread_.join();
  if (cache_ != nullptr && proven_.has_new()) cache_->Add(Key(), proven_.ToText(kMaxInstances));
  return status_;
}

}  // namespace xlad::service

#include "tests/cuda_driver_double/race_checker.h"

#include "tests/cuda_driver_double/ptx_program.h"

namespace xlad::cuda_double {

void RaceChecker::BeginBlock(uint32_t block) {
  block_ = block + 1;
  epoch_ = 0;
  shared_.clear();
  recent_.fill({});
}

RaceChecker::Shadow& RaceChecker::ShadowOf(uint64_t byte) {
  const uint64_t number = byte / kPageBytes;
  Recent& recent = recent_[number % recent_.size()];
  if (recent.number != number) {
    std::unique_ptr<Page>& page = (byte >= kSharedBase ? shared_ : global_)[number];
    if (page == nullptr) page = std::make_unique<Page>();
    recent = {number, page.get()};
  }
  return (*recent.page)[byte % kPageBytes];
}

bool RaceChecker::RacesWithStore(const Shadow& shadow, uint32_t thread) const {
  if (shadow.write_block == 0) return false;
  if (shadow.write_block != block_ || shadow.write_by_blocks) return true;
  return shadow.write_epoch == epoch_ && (shadow.write_thread != thread || shadow.write_by_threads);
}

bool RaceChecker::RacesWithLoad(const Shadow& shadow, uint32_t thread) const {
  if (shadow.read_block == 0) return false;
  if (shadow.read_block != block_ || shadow.read_by_blocks) return true;
  return shadow.read_epoch == epoch_ && (shadow.read_thread != thread || shadow.read_by_threads);
}

bool RaceChecker::CheckByte(uint64_t byte, const Access& access, uint32_t thread) {
  Shadow& shadow = ShadowOf(byte);
  const bool with_store = RacesWithStore(shadow, thread) && !access.keeps_value;
  if (with_store || (access.is_store && RacesWithLoad(shadow, thread))) {
    const bool is_shared = byte >= kSharedBase;
    const uint32_t other_block = with_store ? shadow.write_block : shadow.read_block;
    const uint32_t other = with_store ? shadow.write_thread : shadow.read_thread;
    const bool is_known = other_block != block_ || other != thread;
    error_ = std::string("race: thread ") + std::to_string(thread) + " of block " + std::to_string(block_ - 1) +
             (access.is_store ? " stores to " : " loads from ") + (is_shared ? "shared" : "global") + " memory at " +
             std::to_string(is_shared ? byte - kSharedBase : byte) + ", which " +
             (is_known ? "thread " + std::to_string(other) + " of block " + std::to_string(other_block - 1)
                       : "another thread") +
             (with_store ? " has stored to" : " has loaded from") + "; expected a barrier between the two";
    return false;
  }
  if (access.is_store) {
    const bool is_same = shadow.write_block == block_ && shadow.write_epoch == epoch_;
    shadow.write_by_threads = is_same && (shadow.write_by_threads || shadow.write_thread != thread);
    shadow.write_by_blocks |= shadow.write_block != 0 && shadow.write_block != block_;
    shadow.write_block = block_, shadow.write_epoch = epoch_, shadow.write_thread = thread;
    return true;
  }
  const bool is_same = shadow.read_block == block_ && shadow.read_epoch == epoch_;
  shadow.read_by_threads = is_same && (shadow.read_by_threads || shadow.read_thread != thread);
  shadow.read_by_blocks |= shadow.read_block != 0 && shadow.read_block != block_;
  shadow.read_block = block_, shadow.read_epoch = epoch_, shadow.read_thread = thread;
  return true;
}

bool RaceChecker::Check(const Access& access, uint32_t thread) {
  for (uint64_t byte = access.address; byte < access.address + access.bytes; ++byte) {
    if (!CheckByte(byte, access, thread)) return false;
  }
  return true;
}

}  // namespace xlad::cuda_double

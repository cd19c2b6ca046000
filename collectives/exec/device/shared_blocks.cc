#include "collectives/exec/device/shared_blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/rounding.h"

namespace xlad::collectives {

absl::StatusOr<std::shared_ptr<SharedBlock>> SharedBlockPool::Get(int device, int64_t bytes, DeviceOps* ops) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Newest& newest = newest_[device];
  if (std::shared_ptr<SharedBlock> block = newest.block.lock(); block != nullptr && block->bytes >= bytes) return block;
  auto block = std::make_shared<SharedBlock>();
  block->bytes = bytes <= newest.bytes ? newest.bytes : std::max(bytes, CeilDiv(5 * newest.bytes, 4));
  absl::StatusOr<DeviceOps::SharedMemory> memory = ops->AllocateShared(block->bytes);
  if (absl::IsResourceExhausted(memory.status()) && block->bytes > bytes) {
    block->bytes = bytes;
    memory = ops->AllocateShared(bytes);
  }
  if (!memory.ok()) return memory.status();
  block->memory = *std::move(memory);
  newest = {block, block->bytes};
  return block;
}

// A device that has a problem takes part to the end, because its peers wait for its texts.
absl::Status SharedBlocks::Exchange(const std::set<int>& peers, const std::set<int>& direct, int64_t bytes,
                                    TextLinks* links) {
  std::string& problem = problems_[device_];
  std::string offer;  // Empty if the device has no block.
  absl::StatusOr<std::shared_ptr<SharedBlock>> own = pool_->Get(device_, bytes, &ops_);
  if (own.ok()) {
    own_ = *std::move(own);
    offer = absl::StrCat(own_->bytes, "\n", own_->memory.handle);
  } else {
    problem = absl::StrCat("device ", device_, ": ", own.status().message());
  }
  for (const int peer : peers) XLAD_RETURN_IF_ERROR(links->Send(peer, offer));
  for (const int peer : peers) {
    XLAD_ASSIGN_OR_RETURN(const std::string text, links->Receive(peer));
    if (text.empty() || direct.contains(peer)) continue;
    const absl::Status opened = Open(peer, text);
    if (opened.ok() || !problem.empty()) continue;
    problem = absl::StrCat("device ", device_, " cannot open the memory of device ", peer, ": ", opened.message());
  }
  for (const int peer : peers) XLAD_RETURN_IF_ERROR(links->Send(peer, problem));
  for (const int peer : peers) {
    XLAD_ASSIGN_OR_RETURN(problems_[peer], links->Receive(peer));
  }
  return links->WaitUntilReceived();
}

absl::Status SharedBlocks::Open(int peer, const std::string& offer) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(offer, absl::MaxSplits('\n', 1));
  Block& block = blocks_[peer];
  if (!absl::SimpleAtoi(parts.first, &block.bytes) || block.bytes < 0) {
    return absl::DataLossError(absl::StrCat("found a block of \"", parts.first, "\" bytes, expected a number"));
  }
  XLAD_ASSIGN_OR_RETURN(block.address, ops_.OpenShared(parts.second));
  return absl::OkStatus();
}

absl::Status SharedBlocks::BeginRun() {
  const bool is_ordered = own_->used == nullptr || own_->stream == &ops_;
  return is_ordered ? absl::OkStatus() : ops_.WaitFor(*own_->used);
}

absl::Status SharedBlocks::EndRun() {
  XLAD_ASSIGN_OR_RETURN(own_->used, ops_.Record());
  own_->stream = &ops_;
  return absl::OkStatus();
}

ConstPiece SharedBlocks::Payload(const void* sender, absl::FunctionRef<Pieces()> pieces_of) {
  const auto [found, is_new] = payloads_.try_emplace(sender);
  std::vector<Range>& ranges = found->second;
  if (is_new) {
    for (const ConstPiece& piece : pieces_of()) ranges.push_back({piece.data() - own(), std::ssize(piece)});
  }
  return {reinterpret_cast<const std::byte*>(ranges.data()), ranges.size() * sizeof(Range)};
}

absl::StatusOr<Pieces> SharedBlocks::Resolve(int peer, const Incoming& message) const {
  const Block& block = blocks_.at(peer);
  std::string payload;
  for (const ConstPiece& piece : message.pieces) {
    payload.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  Pieces pieces;
  for (size_t at = 0; at < payload.size(); at += sizeof(Range)) {
    Range range{-1, -1};
    if (payload.size() - at >= sizeof range) std::memcpy(&range, payload.data() + at, sizeof range);
    if (range.offset < 0 || range.bytes < 0 || range.offset > block.bytes || range.bytes > block.bytes - range.offset) {
      return absl::DataLossError(absl::StrCat("found a message from device ", peer, " with the bytes [", range.offset,
                                              ", ", range.offset, " + ", range.bytes, ") of its memory, expected [0, ",
                                              block.bytes, ") or less"));
    }
    pieces.push_back(ConstPiece(block.address.get() + range.offset, static_cast<size_t>(range.bytes)));
  }
  return pieces;
}

void SharedBlocks::Drop() {
  own_.reset();
  blocks_.clear();
}

void SharedBlocks::KeepOwn() {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<std::byte>>();
  const std::lock_guard<std::mutex> lock(mutex);
  if (own_ != nullptr) kept->push_back(own_->memory.address);
}

}  // namespace xlad::collectives

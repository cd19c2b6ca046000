#include "collectives/exec/device/shared_blocks.h"

#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace xlad::collectives {

// A device that has a problem takes part to the end, because its peers wait for its texts.
absl::Status SharedBlocks::Exchange(const std::set<int>& peers, const std::set<int>& direct, int64_t bytes,
                                    TextLinks* links) {
  std::string& problem = problems_[device_];
  std::string offer;  // Empty if the device has no block.
  absl::StatusOr<DeviceOps::SharedMemory> own = ops_.AllocateShared(bytes);
  if (own.ok()) {
    own_ = std::move(own->address);
    offer = absl::StrCat(bytes, "\n", own->handle);
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

ConstPiece SharedBlocks::Payload(const void* sender, const Pieces& pieces) {
  const auto [found, is_new] = payloads_.try_emplace(sender);
  std::vector<Range>& ranges = found->second;
  for (const ConstPiece& piece : pieces) {
    if (is_new) ranges.push_back({piece.data() - own_.get(), std::ssize(piece)});
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
  if (own_ != nullptr) kept->push_back(own_);
}

}  // namespace xlad::collectives

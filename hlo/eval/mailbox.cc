#include "hlo/eval/mailbox.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "hlo/attribute_keys.h"

namespace xlad::hlo::eval {
namespace {

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

// The number of ids that source-target pairs may contain.
int64_t IdCount(const DeviceGrid& grid) { return grid.partitions > 1 ? grid.partitions : grid.replicas; }

// The source-target pairs of a send or recv, or nullopt if the instruction does not have the attribute.
absl::StatusOr<std::optional<Pairs>> PairsOf(const Instruction& instruction, const DeviceGrid& grid) {
  const std::string* text = FindAttribute(instruction, kSendRecvPairsKey);
  if (text == nullptr) return std::optional<Pairs>();
  std::vector<int64_t> ids;
  for (const absl::string_view word : absl::StrSplit(*text, absl::ByAnyChar("{}, "), absl::SkipEmpty())) {
    int64_t id = 0;
    ids.push_back(absl::SimpleAtoi(word, &id) ? id : -1);
  }
  const int64_t count = IdCount(grid);
  const auto bad = [&](int64_t id) { return id < 0 || id >= count; };
  if (ids.size() % 2 != 0 || std::any_of(ids.begin(), ids.end(), bad)) {
    return absl::InvalidArgumentError(absl::StrCat("found ", kSendRecvPairsKey, "=\"", *text,
                                                   "\", expected pairs such as {{0,1},{1,2}} of ids from 0 to ",
                                                   count - 1));
  }
  Pairs pairs;
  for (int64_t i = 0; i < std::ssize(ids); i += 2) pairs.emplace_back(ids[i], ids[i + 1]);
  return std::optional<Pairs>(std::move(pairs));
}

// IdOf returns the id that denotes `device` in source-target pairs. DeviceOf is the inverse, for the replica of device
// `peer`.
int64_t IdOf(const DeviceGrid& grid, int64_t device) { return grid.partitions > 1 ? device % grid.partitions : device; }

int64_t DeviceOf(const DeviceGrid& grid, int64_t id, int64_t peer) {
  return grid.partitions > 1 ? peer / grid.partitions * grid.partitions + id : id;
}

absl::Status CheckPeer(const Instruction& instruction) {
  if (!instruction.attributes().is_host_transfer) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      ToString(instruction.opcode()), " with is_host_transfer=true is not evaluated because its peer is the host"));
}

}  // namespace

absl::Status Mailbox::Send(const Instruction& send, const DeviceGrid& grid, int64_t device, const Value& data) {
  XLAD_RETURN_IF_ERROR(CheckPeer(send));
  XLAD_ASSIGN_OR_RETURN(const std::optional<Pairs> pairs, PairsOf(send, grid));
  std::deque<Message>& channel = channels_[send.attributes().channel_id.value_or(0)];
  if (!pairs.has_value()) {
    channel.push_back({-1, data});
    return absl::OkStatus();
  }
  for (const auto& [source, target] : *pairs) {
    if (source == IdOf(grid, device)) channel.push_back({DeviceOf(grid, target, device), data});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Value>> Mailbox::Receive(const Instruction& done, const DeviceGrid& grid, int64_t device) {
  const Instruction& recv = *done.operand(0);
  XLAD_RETURN_IF_ERROR(CheckPeer(recv));
  XLAD_ASSIGN_OR_RETURN(const std::optional<Pairs> pairs, PairsOf(recv, grid));
  const Shape& shape = done.shape().tuple()[0];
  const auto is_target = [&](const auto& pair) { return pair.second == IdOf(grid, device); };
  if (pairs.has_value() && std::none_of(pairs->begin(), pairs->end(), is_target)) {
    return std::optional<Value>(Value::Tuple({Value::Zeros(shape), Value()}));
  }
  std::deque<Message>& channel = channels_[recv.attributes().channel_id.value_or(0)];
  const auto message = std::find_if(channel.begin(), channel.end(),
                                    [&](const Message& m) { return m.target == (pairs.has_value() ? device : -1); });
  if (message == channel.end()) return std::optional<Value>();
  if (!message->data.HasShape(shape)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found data of a different shape on the channel, expected ", shape.ToString(false)));
  }
  Value result = Value::Tuple({std::move(message->data), Value()});
  channel.erase(message);
  return std::optional<Value>(std::move(result));
}

}  // namespace xlad::hlo::eval

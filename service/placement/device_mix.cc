#include "service/placement/device_mix.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "service/placement/placement.h"

namespace xlad::service {
namespace {

constexpr int64_t kMaxCount = 1 << 20;

bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

absl::StatusOr<AllowedDevices> ParseOne(const std::string& text) {
  AllowedDevices allowed{text};
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos && IsNumber(text.substr(colon + 1))) {
    allowed.name = text.substr(0, colon);
    if (!absl::SimpleAtoi(text.substr(colon + 1), &allowed.most) || allowed.most < 1 || allowed.most > kMaxCount) {
      return absl::InvalidArgumentError(
          absl::StrCat("found count ", text.substr(colon + 1), " in \"", text, "\", expected 1 to ", kMaxCount));
    }
  }
  if (!allowed.name.empty()) return allowed;
  return absl::InvalidArgumentError(absl::StrCat("found \"", text, "\", expected KIND[:MODEL][:COUNT]"));
}

// Returns the order of collectives as text: "3 while(5)(6 6) if()|(7)". Loops and conditionals without collectives are
// left out, because they need not be the same on all devices.
std::string CollectiveOrder(const google::protobuf::RepeatedPtrField<Step>& steps) {
  std::string order;
  const auto append = [&order](const std::string& text) { absl::StrAppend(&order, order.empty() ? "" : " ", text); };
  for (const Step& step : steps) {
    if (step.has_collective()) append(absl::StrCat(step.collective().spec()));
    if (step.has_while_()) {
      const std::string condition = CollectiveOrder(step.while_().condition());
      const std::string body = CollectiveOrder(step.while_().body());
      if (!condition.empty() || !body.empty()) append(absl::StrCat("while(", condition, ")(", body, ")"));
    }
    if (step.has_if_()) {
      std::string branches;
      bool has_any = false;
      for (const IfStep::Branch& branch : step.if_().branches()) {
        const std::string inside = CollectiveOrder(branch.steps());
        has_any = has_any || !inside.empty();
        absl::StrAppend(&branches, branches.empty() ? "" : "|", "(", inside, ")");
      }
      if (has_any) append(absl::StrCat("if", branches));
    }
  }
  return order;
}

// Serializes the fields of an entry that do not depend on the device's memory.
std::string EntryKey(EntryValue entry) {
  entry.clear_buffer();
  entry.clear_donated();
  return entry.SerializeAsString();
}

std::string EntriesKey(const google::protobuf::RepeatedPtrField<EntryValue>& entries) {
  std::string key;
  for (const EntryValue& entry : entries) {
    const std::string one = EntryKey(entry);
    absl::StrAppend(&key, one.size(), ":", one);
  }
  return key;
}

std::string CollectivesKey(const Executable& executable) {
  std::string key;
  for (const CollectiveSpec& spec : executable.collectives()) {
    const std::string one = spec.SerializeAsString();
    absl::StrAppend(&key, one.size(), ":", one);
  }
  return key;
}

// Returns what differs between the executables, or an empty text if they are the same program.
std::string Difference(const Executable& first, const Executable& other) {
  if (first.program_hash() != other.program_hash()) return "the partitioned program";
  if (CollectivesKey(first) != CollectivesKey(other)) return "the collectives";
  const std::string first_order = CollectiveOrder(first.steps()), other_order = CollectiveOrder(other.steps());
  if (first_order != other_order) {
    return absl::StrCat("the order of collectives: found ", other_order, ", expected ", first_order);
  }
  if (EntriesKey(first.parameters()) != EntriesKey(other.parameters())) return "the sharding of the parameters";
  if (EntriesKey(first.results()) != EntriesKey(other.results())) return "the sharding of the results";
  return "";
}

}  // namespace

absl::StatusOr<std::vector<AllowedDevices>> ParseAllowedDevices(const std::string& text) {
  std::vector<AllowedDevices> allowed;
  if (text.empty()) return allowed;
  std::set<std::string> names;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    XLAD_ASSIGN_OR_RETURN(allowed.emplace_back(), ParseOne(part));
    if (names.insert(allowed.back().name).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("found ", allowed.back().name, " twice in \"", text, "\", expected each kind and model once"));
  }
  return allowed;
}

int64_t MostDevices(const std::vector<AllowedDevices>& allowed) {
  int64_t most = 0;
  for (const AllowedDevices& devices : allowed) {
    if (devices.most > std::numeric_limits<int64_t>::max() - most) return std::numeric_limits<int64_t>::max();
    most += devices.most;
  }
  return most;
}

absl::Status CheckSameProgram(const Executable& first, const Executable& other) {
  const std::string difference = Difference(first, other);
  if (difference.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the executables for ", TargetText(first.target()), " and ",
                                                 TargetText(other.target()), " differ in ", difference,
                                                 "; a job cannot run on both; choose one of them with --device"));
}

}  // namespace xlad::service

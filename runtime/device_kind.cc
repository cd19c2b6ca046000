#include "runtime/device_kind.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/containers.h"
#include "base/suggest.h"
#include "proto/device_name.h"

namespace xlad::runtime {
namespace {

bool IsNumber(const std::string& text) {
  const size_t first = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return text.size() > first && std::all_of(text.begin() + first, text.end(), absl::ascii_isdigit);
}

absl::Status Unexpected(const std::string& found, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat("found ", found, ", expected ", expected));
}

// Names that users may give although no device kind has them, and what to use instead.
constexpr std::pair<const char*, const char*> kHints[] = {
    {"nvidia", "NVIDIA GPUs are devices of kind cuda; "},
    {"gpu", "NVIDIA GPUs are devices of kind cuda, and gpu_sim simulates them; "},
    {"rocm", "not available: this version of xlad has no device for AMD GPUs; "},
    {"tpu", "not available: this version of xlad has no device for TPUs, but tpu_sim simulates them; "},
};

std::string HintFor(const std::string& name) {
  for (const auto& [known, hint] : kHints) {
    if (name == known) return hint;
  }
  return "";
}

absl::StatusOr<const DeviceKind*> FindKind(const std::string& name, DeviceKinds kinds) {
  std::vector<std::string> names;
  for (const DeviceKind& kind : kinds) {
    if (kind.name == name) return &kind;
    names.push_back(kind.name);
  }
  const std::string lower = absl::AsciiStrToLower(name);
  const std::string hint = HintFor(lower);
  const std::string nearest = hint.empty() ? NearestName(lower, names) : "";
  const absl::Status unknown =
      Unexpected(absl::StrCat("kind \"", name, "\""),
                 absl::StrCat("one of ", absl::StrJoin(names, ", "),
                              nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
  return absl::InvalidArgumentError(absl::StrCat(hint, unknown.message()));
}

absl::Status ReadModel(const DeviceKind& kind, const std::string& model, DeviceRequest* request) {
  if (kind.models.empty()) {
    return Unexpected(absl::StrCat("model \"", model, "\" of kind ", kind.name),
                      absl::StrCat(kind.name, " or ", kind.name, ":COUNT, because ", kind.name, " has no models"));
  }
  if (!Contains(kind.models, model)) {
    if (kind.read_model != nullptr) {
      XLAD_ASSIGN_OR_RETURN(request->model, kind.read_model(model));
      return absl::OkStatus();
    }
    return Unexpected(absl::StrCat("model \"", model, "\" of kind ", kind.name),
                      absl::StrCat("one of ", absl::StrJoin(kind.models, ", ")));
  }
  request->model = model;
  return absl::OkStatus();
}

absl::Status ReadCount(const std::string& text, DeviceRequest* request) {
  if (absl::SimpleAtoi(text, &request->count) && request->count >= 1 && request->count <= kMaxDeviceCount) {
    return absl::OkStatus();
  }
  return Unexpected(absl::StrCat("count ", text, " of kind ", request->kind),
                    absl::StrCat("a number from 1 to ", kMaxDeviceCount));
}

absl::StatusOr<DeviceRequest> ReadRequest(const std::string& text, DeviceKinds kinds) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  const std::string form = "KIND[:MODEL][:COUNT]";
  if (parts.size() > 3 || parts[0].empty()) return Unexpected(absl::StrCat("\"", text, "\""), form);
  DeviceRequest request;
  request.kind = parts[0];
  XLAD_ASSIGN_OR_RETURN(const DeviceKind* kind, FindKind(request.kind, kinds));
  if (!kind->models.empty()) request.model = kind->models[0];
  if (parts.size() == 1) return request;
  if (parts.back().empty()) return Unexpected(absl::StrCat("\"", text, "\""), form);
  const bool has_count = IsNumber(parts.back());
  if (parts.size() == 3 && !has_count) {
    return Unexpected(absl::StrCat("count \"", parts[2], "\" in \"", text, "\""),
                      absl::StrCat("a number from 1 to ", kMaxDeviceCount));
  }
  if (parts.size() == 3 || !has_count) XLAD_RETURN_IF_ERROR(ReadModel(*kind, parts[1], &request));
  if (has_count) XLAD_RETURN_IF_ERROR(ReadCount(parts.back(), &request));
  return request;
}

absl::StatusOr<const DeviceKind*> FindAvailable(const DeviceRequest& request, DeviceKinds kinds) {
  XLAD_ASSIGN_OR_RETURN(const DeviceKind* kind, FindKind(request.kind, kinds));
  const absl::Status available = kind->available();
  if (available.ok()) return kind;
  return absl::UnavailableError(
      absl::StrCat("this machine has no devices of kind ", kind->name, ": ", available.message()));
}

}  // namespace

std::string DeviceRequest::ToString() const { return count == 0 ? Name() : absl::StrCat(Name(), ":", count); }

absl::StatusOr<std::vector<DeviceRequest>> ParseDeviceRequests(absl::string_view text, DeviceKinds kinds) {
  std::vector<DeviceRequest> requests;
  std::set<std::string> names;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    if (part.empty() && !text.empty()) {
      return Unexpected(absl::StrCat("an empty entry in \"", text, "\""), "KIND[:MODEL][:COUNT] around each comma");
    }
    XLAD_ASSIGN_OR_RETURN(requests.emplace_back(), ReadRequest(part, kinds));
    if (!names.insert(requests.back().Name()).second) {
      return Unexpected(absl::StrCat(requests.back().Name(), " twice in \"", text, "\""), "each kind and model once");
    }
  }
  for (const DeviceRequest& request : requests) {
    if (requests.size() == 1 || request.count > 0) continue;
    return Unexpected(absl::StrCat("no count of kind ", request.kind, " in \"", text, "\""),
                      "a count for each of several kinds, as in cpu:2,opaque:2");
  }
  return requests;
}

std::vector<std::vector<DeviceRequest>> DealDevices(const std::vector<DeviceRequest>& requests, int64_t workers) {
  std::vector<std::vector<DeviceRequest>> dealt(std::max<int64_t>(1, workers));
  size_t first = 0;  // The worker that gets the first device of the remainder after an even division.
  for (const DeviceRequest& request : requests) {
    const int64_t each = request.count / std::ssize(dealt), left_over = request.count % std::ssize(dealt);
    for (int64_t i = 0; i < std::ssize(dealt); ++i) {
      DeviceRequest share = request;
      share.count = each + (i < left_over ? 1 : 0);
      if (share.count > 0) dealt[(first + i) % dealt.size()].push_back(share);
    }
    first += left_over;
  }
  std::erase_if(dealt, [](const std::vector<DeviceRequest>& worker) { return worker.empty(); });
  return dealt;
}

absl::StatusOr<DeviceOffer> MakeOffer(const DeviceRequest& request, DeviceKinds kinds) {
  XLAD_ASSIGN_OR_RETURN(const DeviceKind* kind, FindAvailable(request, kinds));
  DeviceOffer offer;
  offer.set_count(request.count);
  *offer.mutable_target() = kind->target(request.model);
  for (const MemoryKind memory : kind->memory) offer.add_memory(memory);
  return offer;
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceRequest& request, DeviceKinds kinds) {
  XLAD_ASSIGN_OR_RETURN(const DeviceKind* kind, FindAvailable(request, kinds));
  return kind->make(request.model);
}

absl::Status CheckTarget(const Executable& executable, const std::string& device_name) {
  if (DeviceName(executable.target()) == device_name) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("executable '", executable.name(), "': found a target of kind ",
                                                 DeviceName(executable.target()), ", expected ", device_name,
                                                 ", the kind of this device; compile the program for it"));
}

std::string MemoryKindName(MemoryKind kind) { return kind == MEMORY_PINNED_HOST ? "pinned_host" : "device"; }

}  // namespace xlad::runtime

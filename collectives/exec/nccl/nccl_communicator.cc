#include "collectives/exec/nccl/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/net/network.h"
#include "collectives/exec/layout.h"

namespace xlad::collectives::nccl {
namespace {

// The reason is a part of the greeting, which has at most 1000 bytes (HostCommunicator::Options).
constexpr size_t kMaxReasonBytes = 500;

// Returns the boot id and the host name. Containers of one machine have the same boot id, but NCCL regards two ranks as
// being on one machine only if their host names are equal too.
absl::StatusOr<std::string> MachineId() {
  XLAD_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().Read("/proc/sys/kernel/random/boot_id"));
  const std::string host = HostName();
  if (host.empty()) return absl::UnavailableError("the system does not report the name of this machine");
  return absl::StrCat(absl::StripAsciiWhitespace(text), " ", host);
}

absl::Status OpenInto(DeviceOps* ops, absl::StatusOr<const Library*> (*load)(), OpenedDevice* opened) {
  XLAD_ASSIGN_OR_RETURN(opened->stream, ops->MakeSideStream());
  XLAD_ASSIGN_OR_RETURN(const Library* const library, load());
  XLAD_ASSIGN_OR_RETURN(const std::string machine, MachineId());
  opened->library = library;
  opened->endpoint.version = library->version;
  opened->endpoint.machine = machine;
  opened->endpoint.gpu = opened->stream->gpu();
  return absl::OkStatus();
}

// Whether NCCL can run a kind in place. Kinds that use ncclSend and ncclRecv need separate buffers.
bool CanBeInPlace(CollectiveKind kind) {
  return Reduces(kind) || kind == CollectiveKind::kAllGather || kind == CollectiveKind::kBroadcast;
}

}  // namespace

OpenedDevice OpenDevice(DeviceOps* ops, absl::StatusOr<const Library*> (*load)()) {
  OpenedDevice opened;
  const absl::Status status = OpenInto(ops, load, &opened);
  if (!status.ok()) opened.endpoint.why = std::string(status.message().substr(0, kMaxReasonBytes));
  return opened;
}

absl::StatusOr<std::unique_ptr<Communicator>> NcclCommunicator::Form(const Options& options, OpenedDevice opened,
                                                                     const std::map<int, Endpoint>& endpoints,
                                                                     std::unique_ptr<Communicator> other) {
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(options, std::move(opened), std::move(other)));
  XLAD_RETURN_IF_ERROR(made->FormGroups(endpoints));
  if (made->groups_.empty()) return std::move(made->other_);
  return made;
}

NcclCommunicator::~NcclCommunicator() {
  if (started_.empty()) return;
  for (const auto& [devices, group] : groups_) group->Abort();
  groups_.clear();
  opened_.stream.reset();  // Waits for the work that uses the copies in `started_`.
  started_.clear();
}

// All devices form their groups in the order of the collectives, so two devices cannot wait for each other in different
// groups.
absl::Status NcclCommunicator::FormGroups(const std::map<int, Endpoint>& endpoints) {
  const std::vector<Collective>& collectives = options_.collectives->collectives;
  by_spec_.resize(collectives.size());
  std::set<std::string> reasons;
  int own_collectives = 0;
  TextLinks links(options_.transport, options_.channel);
  absl::Status status = [&]() -> absl::Status {
    for (size_t i = 0; i < collectives.size(); ++i) {
      const Collective& collective = collectives[i];
      const auto [devices, rank] = FindGroup(collective, options_.device);
      if (devices == nullptr) continue;
      ++own_collectives;
      const bool required = collective.plan.engine == kNcclEngine;
      const std::string why = WhyNotCollective(collective, *devices, endpoints);
      if (!why.empty() && required) {
        return absl::FailedPreconditionError(absl::StrCat(collective.ToString(), ": found plan \"",
                                                          collective.plan.ToString(),
                                                          "\", but NCCL cannot run the collective: ", why));
      }
      if (!why.empty()) {
        reasons.insert(why);
        continue;
      }
      XLAD_ASSIGN_OR_RETURN(by_spec_[i], FormGroup(*devices, rank, &links));
    }
    return links.WaitUntilReceived();
  }();
  if (status.ok()) {
    LogChoice(own_collectives, reasons);
    return status;
  }
  status = Annotate(status, absl::StrCat("device ", options_.device, " cannot form its communicator"));
  options_.abort->Raise({status, ""});
  links.Revoke();
  return status;
}

// Rank 0 sends the id to the others.
absl::StatusOr<Group*> NcclCommunicator::FormGroup(const std::vector<int>& devices, int rank, TextLinks* links) {
  const auto found = groups_.find(devices);
  if (found != groups_.end()) return found->second.get();
  UniqueId id;
  if (rank == 0) {
    XLAD_RETURN_IF_ERROR(opened_.stream->Activate());
    XLAD_RETURN_IF_ERROR(opened_.library->Check(opened_.library->ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr));
    const std::string text(id.bytes, sizeof id.bytes);
    for (size_t r = 1; r < devices.size(); ++r) XLAD_RETURN_IF_ERROR(links->Send(devices[r], text));
  } else {
    XLAD_ASSIGN_OR_RETURN(const std::string text, links->Receive(devices[0]));
    if (text.size() != sizeof id.bytes) {
      return absl::DataLossError(
          absl::StrCat("found an NCCL id of ", text.size(), " bytes, expected ", sizeof id.bytes));
    }
    std::memcpy(id.bytes, text.data(), text.size());
  }
  Group::Options options;
  options.library = opened_.library;
  options.stream = opened_.stream.get();
  options.abort = options_.abort;
  options.transport = options_.transport;
  options.rank = rank;
  options.ranks = static_cast<int>(devices.size());
  options.reason_ms = options_.reason_ms;
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Group> group, Group::Form(options, id));
  return groups_.emplace(devices, std::move(group)).first->second.get();
}

void NcclCommunicator::LogChoice(int collectives, const std::set<std::string>& reasons) const {
  if (opened_.stream == nullptr || collectives == 0) return;
  const auto own = std::count_if(by_spec_.begin(), by_spec_.end(), [](const Group* group) { return group != nullptr; });
  LogInfo("collectives of a GPU",
          {{"device", absl::StrCat(options_.device)},
           {"by_nccl", absl::StrCat(own, " of ", collectives)},
           {"nccl", opened_.library == nullptr ? "none" : VersionText(opened_.library->version)},
           {"others_because", absl::StrJoin(reasons, "; ")}});
}

absl::Status NcclCommunicator::Launch(const CollectiveLaunch& launch) {
  if (!IsOwn(launch.spec)) return other_->Launch(launch);
  XLAD_ASSIGN_OR_RETURN(const int64_t number, Start(launch));
  return Wait(number);
}

absl::StatusOr<int64_t> NcclCommunicator::Start(const CollectiveLaunch& launch) {
  if (!IsOwn(launch.spec)) return other_->Start(launch);
  const Collective& collective = options_.collectives->collectives[launch.spec];
  const CollectiveSpec& spec = collective.spec;
  const Recorder::Place place{launch.spec, FindGroup(collective, options_.device).second, launch.step,
                              launch.iteration};
  if (launch.inputs.size() != spec.counts.size() || launch.outputs.size() != spec.counts.size()) {
    return absl::InvalidArgumentError(absl::StrCat(collective.ToString(), ": inputs and outputs: found ",
                                                   launch.inputs.size(), " and ", launch.outputs.size(), ", expected ",
                                                   spec.counts.size(), " of each"));
  }
  if (options_.abort->raised()) {
    return Annotate(options_.abort->status(), absl::StrCat("before ", collective.ToString(), ", step ", launch.step,
                                                           ", device ", options_.device));
  }
  // After an error, the side stream may still use the copies, so they are kept until the destructor.
  Started& started = started_[--last_number_];
  started.place = place;
  if (const absl::Status status = Enqueue(launch, &started); !status.ok()) return Fail(place, status);
  return last_number_;
}

absl::Status NcclCommunicator::Enqueue(const CollectiveLaunch& launch, Started* started) {
  const CollectiveSpec& spec = options_.collectives->collectives[launch.spec].spec;
  SideStream& stream = *opened_.stream;
  XLAD_RETURN_IF_ERROR(stream.Activate());
  XLAD_RETURN_IF_ERROR(stream.WaitForDevice());
  const int rank = started->place.rank;
  started->group = by_spec_[launch.spec];
  std::vector<const std::byte*> inputs(launch.inputs.begin(), launch.inputs.end());
  if (NeedsCopyOfInputs(spec, rank, CanBeInPlace(spec.kind), launch.inputs, launch.outputs)) {
    const std::vector<int64_t> counts = InputCounts(spec, rank);
    for (size_t i = 0; i < inputs.size(); ++i) {
      XLAD_ASSIGN_OR_RETURN(auto copy, stream.CopyAside(inputs[i], counts[i] * tensor::ByteWidth(spec.type)));
      inputs[i] = copy.get();
      started->copies.push_back(std::move(copy));
    }
  }
  XLAD_RETURN_IF_ERROR(started->group->Enqueue(spec, inputs, launch.outputs));
  XLAD_ASSIGN_OR_RETURN(started->mark, stream.Record());
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Wait(int64_t number) {
  if (number >= 0) return other_->Wait(number);
  const auto found = started_.find(number);
  if (found == started_.end() || found->second.mark == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("found collective start ", number,
                                                   ", expected the number of a Start that has not been waited for"));
  }
  const Started& started = found->second;
  const Recorder::Place place = started.place;
  options_.recorder->Begin(place, nullptr);
  const absl::Status status = started.group->Wait(*started.mark);
  options_.recorder->End();
  if (!status.ok()) return Fail(place, status);  // The destructor ends the operation before its memory is freed.
  started_.erase(found);
  return status;
}

absl::Status NcclCommunicator::Fail(const Recorder::Place& place, const absl::Status& status) {
  const Collective& collective = options_.collectives->collectives[place.spec];
  const absl::Status annotated =
      Annotate(status, absl::StrCat(collective.ToString(), ", step ", place.step, ", device ", options_.device,
                                    ", rank ", place.rank, " of ", collective.spec.ranks));
  options_.abort->Raise({annotated, ""});
  for (const auto& [devices, group] : groups_) group->Abort();
  return annotated;
}

}  // namespace xlad::collectives::nccl

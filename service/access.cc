#include "service/access.h"

#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/net/network.h"
#include "base/net/peer_user.h"
#include "base/secret.h"

namespace xlad::service {

using security::Access;
using security::Caller;
using security::Role;

namespace {

// How often the tokens of open streams are checked. Their files are read at most once per second.
constexpr std::chrono::milliseconds kWatchPeriod{250};
constexpr size_t kMaxUserBytes = 1 << 20;  // The limit on an entry of the database of users.

// The name that this machine knows for the user, or "".
std::string NameOfUser(uid_t user) {
  for (size_t size = 4096; size <= kMaxUserBytes; size *= 4) {  // An entry of a directory service may be large.
    std::vector<char> buffer(size);
    passwd entry;
    passwd* found = nullptr;
    const int error = getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found);
    if (error != ERANGE) return error == 0 && found != nullptr ? found->pw_name : "";
  }
  return "";
}

}  // namespace

AccessControl::AccessControl(Options options) : options_(std::move(options)) {
  for (const uid_t user : {uid_t{0}, geteuid()}) names_.emplace(user, NameOfUser(user));
}

std::string AccessControl::ActorOf(uid_t user, absl::string_view how) const {
  const std::string id = absl::StrCat("uid ", user);
  std::optional<std::string> name;
  {
    const std::lock_guard lock(names_mutex_);
    if (const auto known = names_.find(user); known != names_.end()) name = known->second;
  }
  if (!name.has_value()) {  // Names are looked up once, and without the lock, because a look-up can block.
    name = NameOfUser(user);
    const std::lock_guard lock(names_mutex_);
    names_.emplace(user, *name);
  }
  if (name->empty()) return how.empty() ? id : absl::StrCat(id, " (", how, ")");
  return absl::StrCat(*name, " (", id, how.empty() ? "" : ", ", how, ")");
}

// On loopback, the kernel knows the user. This is only a name: the token alone decides what the caller may do.
std::string AccessControl::ActorOfSharedToken(const std::string& peer) const {
  const absl::StatusOr<uid_t> user = IsOffLoopback(options_.address)
                                         ? absl::NotFoundError("the client may be on another machine")
                                         : UserOfClient(peer, options_.address);
  return user.ok() ? ActorOf(*user, "shared token") : "shared token";
}

absl::StatusOr<Caller> AccessControl::Identify(const std::string& peer, const std::vector<std::string>& bearers) const {
  const bool needs_token = !options_.shared_token.empty() || options_.tokens != nullptr;
  if (!needs_token) {
    XLAD_ASSIGN_OR_RETURN(const uid_t user, FindSameUser(peer, options_.address));
    return Caller{.role = Role::kOwner, .actor = ActorOf(user)};
  }
  absl::Status refused = absl::UnauthenticatedError(
      options_.tokens == nullptr
          ? "found no token or a wrong token, expected the coordinator's token (--token-file)"
          : "found no token, expected the token of a join file (--join FILE, from `xlad token`)");
  for (const std::string& bearer : bearers) {
    if (!options_.shared_token.empty() && SameSecret(bearer, options_.shared_token)) {
      return Caller{.role = Role::kOwner, .actor = ActorOfSharedToken(peer)};
    }
    if (options_.tokens == nullptr) continue;
    absl::StatusOr<Caller> caller = options_.tokens->Find(bearer);
    if (caller.ok()) caller->actor = absl::StrCat(caller->user, " (token ", caller->token_id, ")");
    if (caller.ok()) return caller;
    refused = caller.status();
  }
  return refused;
}

absl::Status AccessControl::Check(const Caller& caller) const { return CheckToken(caller.token_id); }

absl::Status AccessControl::CheckToken(const std::string& token_id) const {
  if (options_.tokens == nullptr || token_id.empty()) return absl::OkStatus();
  const absl::Status valid = options_.tokens->Check(token_id);
  // An open call continues while the file of its token cannot be read.
  return absl::IsUnauthenticated(valid) ? valid : absl::OkStatus();
}

AccessControl::~AccessControl() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    ending_changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::unique_ptr<AccessControl::Watched> AccessControl::Watch(const Caller& caller,
                                                             std::function<void(const absl::Status&)> refuse) {
  if (options_.tokens == nullptr || caller.token_id.empty()) return nullptr;
  std::unique_ptr<Watched> watched(new Watched(this, caller.token_id, std::move(refuse)));
  const std::lock_guard lock(mutex_);
  watched_.insert(watched.get());
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  return watched;
}

// Waits while `refuse` runs.
AccessControl::Watched::~Watched() {
  const std::lock_guard lock(control_->mutex_);
  control_->watched_.erase(this);
}

void AccessControl::Run() {
  std::unique_lock lock(mutex_);
  while (!ending_changed_.wait_for(lock, kWatchPeriod, [this] { return ending_; })) {
    lock.unlock();
    RefuseInvalid();
    lock.lock();
  }
}

void AccessControl::RefuseInvalid() {
  std::map<std::string, absl::Status> tokens;  // By id. Many streams may have the same token.
  {
    const std::lock_guard lock(mutex_);
    for (const Watched* watched : watched_) tokens[watched->token_id_];
  }
  // The files are read without the lock, so that new streams do not wait.
  for (auto& [id, status] : tokens) status = CheckToken(id);
  const std::lock_guard lock(mutex_);
  for (Watched* watched : watched_) {
    const auto found = tokens.find(watched->token_id_);
    if (found == tokens.end() || found->second.ok() || watched->refuse_ == nullptr) continue;
    std::exchange(watched->refuse_, nullptr)(found->second);
  }
}

absl::Status CallerAccess::CheckToken() const { return control == nullptr ? absl::OkStatus() : control->Check(caller); }

absl::StatusOr<CallerAccess> Authorize(const Caller& caller, absl::string_view call) {
  const Access access = AccessTo(call, caller.role);
  if (access != Access::kDenied) return CallerAccess{caller, caller.role == Role::kSubmitter};
  std::vector<std::string> roles;
  for (const Role role : {Role::kReader, Role::kSubmitter, Role::kWorker, Role::kOperator}) {
    if (AccessTo(call, role) != Access::kDenied) roles.emplace_back(RoleName(role));
  }
  return absl::PermissionDeniedError(absl::StrCat("found a token of role ", RoleName(caller.role),
                                                  ", which may not call ", call, "; expected ",
                                                  absl::StrJoin(roles, " or ")));
}

std::string OwnedKey(const Caller& caller, const std::string& client_key) {
  return caller.user.empty() ? client_key : absl::StrCat("@", caller.user, "/", client_key);
}

bool MaySee(const CallerAccess& access, absl::string_view key) {
  return !access.own_only || OwnerOfKey(key) == access.caller.user;
}

absl::Status CheckOwner(const CallerAccess& access, const std::string& job_id, absl::string_view key) {
  if (MaySee(access, key)) return absl::OkStatus();
  // The error does not reveal whether another user has a job of this id.
  return absl::NotFoundError(absl::StrCat("found no job ", job_id, " of user ", access.caller.user));
}

absl::Status CheckSpecOf(const Caller& caller, const JobSpec& spec) {
  if (caller.role != Role::kSubmitter) return absl::OkStatus();
  for (const std::string& uri : {spec.state_uri(), spec.data_uri(), spec.resume(), spec.checkpoint().uri()}) {
    const bool is_file = absl::StrContains(uri, ':') && !absl::StartsWith(uri, "xlad:") && uri != "stream:";
    if (is_file) {
      return absl::PermissionDeniedError(
          absl::StrCat("found ", uri,
                       " in the job of a submitter, expected xlad: or stream:, because workers would read "
                       "and write it as the user who runs them; an operator may submit this job"));
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::service

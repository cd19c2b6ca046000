#include "security/tokens.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/secret.h"
#include "security/private_files.h"

namespace xlad::security {
namespace {

constexpr absl::string_view kPrefix = "xlad_";
constexpr int kIdBytes = 6;
constexpr int kSecretBytes = 32;
constexpr int64_t kCacheNs = kNsPerSecond;
constexpr size_t kMaxCached = 10'000;
constexpr char kSuffix[] = ".token";

bool IsHex(absl::string_view text, size_t bytes) {
  if (text.size() != 2 * bytes) return false;
  for (const char c : text) {
    if (!absl::ascii_isdigit(c) && (c < 'a' || c > 'f')) return false;
  }
  return true;
}

struct Parts {
  std::string id, secret;
};

absl::StatusOr<Parts> Split(absl::string_view token) {
  const std::vector<std::string> parts = absl::StrSplit(token, '_');
  if (parts.size() == 3 && absl::StartsWith(token, kPrefix) && IsHex(parts[1], kIdBytes) &&
      IsHex(parts[2], kSecretBytes)) {
    return Parts{parts[1], parts[2]};
  }
  return absl::UnauthenticatedError(
      "found a token that is not of the form xlad_ID_SECRET, expected one that `xlad token` has issued");
}

std::string Text(const TokenRecord& record) {
  return absl::StrCat("role ", RoleName(record.role), "\nuser ", record.user, "\ncreated ", record.created_unix_s,
                      "\nexpires ", record.expires_unix_s, "\nsha256 ", record.secret_sha256, "\n");
}

}  // namespace

std::string TokenId(const std::string& token) {
  const absl::StatusOr<Parts> parts = Split(token);
  return parts.ok() ? parts->id : "";
}

std::string TokenStore::PathOf(const std::string& id) const { return JoinPath(folder_, absl::StrCat(id, kSuffix)); }

absl::StatusOr<std::string> TokenStore::Issue(Role role, const std::string& user, int64_t valid_s, Random* random) {
  if (role == Role::kOwner) return absl::InvalidArgumentError("found role owner, which no token can have");
  if (!IsUserName(user)) {
    return absl::InvalidArgumentError(absl::StrCat("found user \"", user, "\", expected ", kUserNameText));
  }
  if (valid_s <= 0) return absl::InvalidArgumentError("found a token that expires at once, expected a later time");
  TokenRecord record;
  record.id = random->Hex(kIdBytes);
  record.role = role;
  record.user = user;
  record.created_unix_s = clock_->WallNs() / kNsPerSecond;
  record.expires_unix_s = record.created_unix_s + valid_s;
  const std::string secret = random->Hex(kSecretBytes);
  record.secret_sha256 = Sha256Hex(secret);
  // The coordinator may be a service with a user of its own, and root may issue its tokens.
  XLAD_RETURN_IF_ERROR(MakePrivateFolder(folder_, PrivateOwner::kOwnerOfParent));
  XLAD_RETURN_IF_ERROR(WritePrivateFile(PathOf(record.id), Text(record), PrivateOwner::kOwnerOfParent));
  return absl::StrCat(kPrefix, record.id, "_", secret);
}

absl::StatusOr<TokenRecord> TokenStore::Load(const std::string& id) const {
  const absl::StatusOr<std::string> text = RealFileSystem().Read(PathOf(id));
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat("found token ", id, ", which does not exist or was revoked"));
  }
  XLAD_RETURN_IF_ERROR(text.status());
  std::map<absl::string_view, absl::string_view> fields;
  bool is_whole = true;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    is_whole = is_whole && fields.insert(absl::StrSplit(line, absl::MaxSplits(' ', 1))).second;
  }
  TokenRecord record;
  record.id = id;
  const std::optional<Role> role = ParseRole(fields["role"]);
  record.role = role.value_or(Role::kReader);
  record.user = std::string(fields["user"]);
  record.secret_sha256 = std::string(fields["sha256"]);
  if (is_whole && role.has_value() && IsUserName(record.user) && IsHex(record.secret_sha256, 32) &&
      absl::SimpleAtoi(fields["created"], &record.created_unix_s) &&
      absl::SimpleAtoi(fields["expires"], &record.expires_unix_s)) {
    return record;
  }
  return absl::DataLossError(
      absl::StrCat(PathOf(id), " is damaged: expected role, user, created, expires and sha256, each once"));
}

absl::StatusOr<TokenRecord> TokenStore::Get(const std::string& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (cache_.size() > kMaxCached) cache_.clear();
  const int64_t now_ns = clock_->NowNs();
  auto found = cache_.find(id);
  if (found == cache_.end() || now_ns - found->second.read_ns >= kCacheNs) {
    absl::StatusOr<TokenRecord> loaded = Load(id);
    const absl::Status& status = loaded.status();
    const bool is_known = loaded.ok() || absl::IsNotFound(status) || absl::IsDataLoss(status);
    if (!status.ok() && !absl::IsNotFound(status)) {
      LogWarn("a token is refused", {{"error", std::string(status.message())}});
    }
    if (!is_known) return absl::UnavailableError("the coordinator cannot read its tokens now; try again");
    found = cache_.insert_or_assign(id, Cached{std::move(loaded), now_ns}).first;
  }
  return found->second.record;
}

absl::Status TokenStore::CheckTime(const TokenRecord& record) const {
  if (clock_->WallNs() / kNsPerSecond < record.expires_unix_s) return absl::OkStatus();
  return absl::UnauthenticatedError(
      absl::StrCat("found token ", record.id, ", which has expired; ask for another one (xlad token)"));
}

absl::StatusOr<Caller> TokenStore::Find(const std::string& token) {
  XLAD_ASSIGN_OR_RETURN(const TokenRecord record, FindRecord(token));
  Caller caller{record.user, record.role};
  caller.token_id = record.id;
  return caller;
}

absl::StatusOr<TokenRecord> TokenStore::FindRecord(const std::string& token) {
  XLAD_ASSIGN_OR_RETURN(const Parts parts, Split(token));
  const absl::StatusOr<TokenRecord> record = Get(parts.id);
  if (absl::IsUnavailable(record.status())) return record.status();
  // The error is the same for an unknown id, a damaged file and a wrong secret, so that callers cannot search for valid
  // ids.
  if (!record.ok() || !SameSecret(Sha256Hex(parts.secret), record->secret_sha256)) {
    return absl::UnauthenticatedError(absl::StrCat("found token ", parts.id, ", which does not exist or was revoked"));
  }
  XLAD_RETURN_IF_ERROR(CheckTime(*record));
  return record;
}

absl::Status TokenStore::Check(const std::string& id) {
  const absl::StatusOr<TokenRecord> record = Get(id);
  if (absl::IsUnavailable(record.status())) return record.status();
  if (!record.ok()) return absl::UnauthenticatedError(absl::StrCat("found token ", id, ", which was revoked"));
  return CheckTime(*record);
}

absl::StatusOr<TokenList> TokenStore::List() const {
  TokenList list;
  if (!RealFileSystem().IsDirectory(folder_)) return list;
  XLAD_ASSIGN_OR_RETURN(std::vector<std::string> names, RealFileSystem().List(folder_));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, kSuffix)) continue;  // Another process is writing this file.
    const std::string id = name.substr(0, name.size() - (sizeof kSuffix - 1));
    absl::StatusOr<TokenRecord> record = Load(id);
    if (record.ok()) {
      list.records.push_back(*std::move(record));
    } else if (RealFileSystem().Exists(PathOf(id))) {  // Otherwise it has just been revoked.
      list.unreadable.push_back(record.status());
    }
  }
  return list;
}

absl::Status TokenStore::Revoke(const std::string& id) {
  if (!IsHex(id, kIdBytes) || !RealFileSystem().Exists(PathOf(id))) {
    return absl::NotFoundError(absl::StrCat("found no token ", id, "; see xlad token --list"));
  }
  return RealFileSystem().Remove(PathOf(id));
}

}  // namespace xlad::security

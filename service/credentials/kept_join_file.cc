#include "service/credentials/kept_join_file.h"

#include <filesystem>
#include <utility>

#include "base/containers.h"
#include "base/file_system.h"
#include "base/log.h"
#include "security/join_file.h"
#include "security/private_files.h"
#include "security/tokens.h"
#include "service/credentials/managed_security.h"

namespace xlad::service {
namespace {

constexpr int64_t kCheckMs = 60'000;

absl::StatusOr<security::JoinFile> ReadJoinFile(const std::string& path) {
  XLAD_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().Read(path));
  return security::ParseJoinFile(text);
}

}  // namespace

absl::StatusOr<KeptJoinFile> KeptJoinFile::Write(Options options) {
  KeptJoinFile file(std::move(options));
  const Options& own = file.options_;
  security::TokenStore tokens(TokenFolder(own.data_folder), own.clock);
  const auto known = ReadJoinFile(own.path);
  if (known.ok() && known->address == own.address) {
    const auto record = tokens.FindRecord(known->token);
    if (record.ok()) {
      if (record->role != own.caller.role || record->user != own.caller.user) return file;
      file.ids_.push_back(record->id);
      file.expires_unix_s_ = record->expires_unix_s;
      // The token is still valid, and RenewIfDue is called again.
      if (const auto renewed = file.RenewIfDue(); !renewed.ok()) {
        LogError("the join file cannot be renewed",
                 {{"file", own.path}, {"error", std::string(renewed.status().message())}});
      }
      return file;
    }
  }
  // Revoke fails if another coordinator issued the token.
  if (known.ok()) tokens.Revoke(security::TokenId(known->token)).IgnoreError();
  XLAD_RETURN_IF_ERROR(security::MakePrivateFolder(std::filesystem::path(own.path).parent_path().string()));
  XLAD_RETURN_IF_ERROR(file.WriteNew());
  return file;
}

absl::Status KeptJoinFile::WriteNew() {
  XLAD_ASSIGN_OR_RETURN(const security::JoinFile join,
                        MakeJoinFile(options_.data_folder, options_.caller, options_.valid_s, options_.clock));
  const std::string id = security::TokenId(join.token);
  const absl::Status written = security::WritePrivateFile(options_.path, security::FormatJoinFile(join));
  if (!written.ok()) {
    security::TokenStore(TokenFolder(options_.data_folder), options_.clock).Revoke(id).IgnoreError();  // Unused.
    return written;
  }
  ids_.push_back(id);
  expires_unix_s_ = options_.clock->WallNs() / kNsPerSecond + options_.valid_s;
  return absl::OkStatus();
}

std::string KeptJoinFile::IdInFile() const {
  const auto join = ReadJoinFile(options_.path);
  return join.ok() ? security::TokenId(join->token) : "";
}

absl::StatusOr<bool> KeptJoinFile::RenewIfDue() {
  const int64_t left_s = expires_unix_s_ - options_.clock->WallNs() / kNsPerSecond;
  if (ids_.empty() || left_s > options_.valid_s / 3) return false;
  if (IdInFile() != ids_.back()) return false;  // The user has replaced or removed the file.
  XLAD_RETURN_IF_ERROR(WriteNew());
  return true;
}

absl::Status KeptJoinFile::Revoke() {
  security::TokenStore tokens(TokenFolder(options_.data_folder), options_.clock);
  absl::Status status;
  if (Contains(ids_, IdInFile())) status = RealFileSystem().Remove(options_.path);
  for (const std::string& id : std::exchange(ids_, {})) {
    const absl::Status revoked = tokens.Revoke(id);
    if (!absl::IsNotFound(revoked)) status.Update(revoked);  // The data folder may have been removed.
  }
  return status;
}

absl::StatusOr<std::unique_ptr<JoinFileKeeper>> JoinFileKeeper::Start(KeptJoinFile::Options options, AtEnd at_end) {
  XLAD_ASSIGN_OR_RETURN(KeptJoinFile file, KeptJoinFile::Write(std::move(options)));
  return std::unique_ptr<JoinFileKeeper>(new JoinFileKeeper(std::move(file), at_end));
}

JoinFileKeeper::JoinFileKeeper(KeptJoinFile file, AtEnd at_end) : file_(std::move(file)), at_end_(at_end) {
  renewal_ = std::make_unique<Renewal>("join file", file_.path(), kCheckMs, [this] { return file_.RenewIfDue(); });
}

JoinFileKeeper::~JoinFileKeeper() {
  renewal_.reset();
  if (at_end_ == AtEnd::kKeepFile) return;
  const absl::Status revoked = file_.Revoke();
  if (revoked.ok()) return;
  LogWarn("a token cannot be revoked", {{"file", file_.path()}, {"error", std::string(revoked.message())}});
}

}  // namespace xlad::service

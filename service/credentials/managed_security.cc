#include "service/credentials/managed_security.h"

#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/net/advertised.h"
#include "base/net/network.h"
#include "base/random.h"
#include "security/certificates.h"
#include "security/private_files.h"
#include "security/tokens.h"

namespace xlad::service {
namespace {

std::string FolderOf(const std::string& data_folder) { return JoinPath(data_folder, "security"); }
std::string AddressFile(const std::string& data_folder) { return JoinPath(FolderOf(data_folder), "address"); }

}  // namespace

std::string TokenFolder(const std::string& data_folder) { return JoinPath(FolderOf(data_folder), "tokens"); }

absl::StatusOr<ManagedCertificate> ManagedCertificate::Issue(Options options) {
  ManagedCertificate made(std::move(options));
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(made.options_.data_folder));
  made.file_ = JoinPath(FolderOf(made.options_.data_folder), "server.pem");
  XLAD_RETURN_IF_ERROR(made.Write());
  return made;
}

absl::Status ManagedCertificate::Write() {
  XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(options_.listen));
  std::set<std::string> names = {"localhost", "127.0.0.1", "::1"};
  if (!IsWildcard(host_port.host)) names.insert(host_port.host);
  if (!options_.advertise.empty()) {
    absl::StatusOr<std::string> advertised = ParseHost(options_.advertise);
    if (!advertised.ok()) return Annotate(advertised.status(), "--advertise");
    names.insert(*std::move(advertised));
  }
  if (const std::string host = HostName(); !host.empty()) names.insert(host);
  for (const std::string& address : OwnAddresses()) names.insert(address);
  XLAD_ASSIGN_OR_RETURN(const security::KeyPair authority,
                        security::AuthorityIn(FolderOf(options_.data_folder), *options_.clock));
  const int64_t now_unix_s = options_.clock->WallNs() / kNsPerSecond;
  XLAD_ASSIGN_OR_RETURN(const security::KeyPair server,
                        security::IssueServer(authority, {names.begin(), names.end()}, now_unix_s));
  XLAD_RETURN_IF_ERROR(security::WritePrivateFile(file_, absl::StrCat(server.certificate, server.key)));
  issued_unix_s_ = now_unix_s;
  return absl::OkStatus();
}

absl::StatusOr<bool> ManagedCertificate::RenewIfDue() {
  constexpr int64_t kDaySeconds = 24 * 3600;
  const int64_t age_s = options_.clock->WallNs() / kNsPerSecond - issued_unix_s_;
  if (age_s < security::kServerDays * kDaySeconds * 2 / 3) return false;
  XLAD_RETURN_IF_ERROR(Write());
  return true;
}

absl::Status StoreAddress(const std::string& data_folder, const std::string& address) {
  return security::WritePrivateFile(AddressFile(data_folder), address);
}

absl::StatusOr<security::JoinFile> MakeJoinFile(const std::string& data_folder, const security::Caller& caller,
                                                int64_t valid_s, const Clock* clock) {
  if (!RealFileSystem().Exists(AddressFile(data_folder))) {
    return absl::FailedPreconditionError(
        absl::StrCat("found no address in ", FolderOf(data_folder),
                     ", expected the data folder of a coordinator that listens on an address other than loopback "
                     "(--listen HOST:PORT), without --tls-cert; on loopback there are no tokens: "
                     "the user who runs the coordinator may do everything, and other users nothing"));
  }
  security::JoinFile join;
  XLAD_ASSIGN_OR_RETURN(join.address, RealFileSystem().Read(AddressFile(data_folder)));
  XLAD_ASSIGN_OR_RETURN(join.authority, RealFileSystem().Read(JoinPath(FolderOf(data_folder), "ca.pem")));
  security::TokenStore tokens(TokenFolder(data_folder), clock);
  const std::unique_ptr<Random> random = SystemRandom();
  XLAD_ASSIGN_OR_RETURN(join.token, tokens.Issue(caller.role, caller.user, valid_s, random.get()));
  return join;
}

}  // namespace xlad::service

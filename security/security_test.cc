// Roles, tokens, join files, and certificates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/testing/test_folder.h"
#include "security/certificates.h"
#include "security/join_file.h"
#include "security/private_files.h"
#include "security/tokens.h"

namespace xlad::security {
namespace {

using ::testing::HasSubstr;

// The permissions. Folders may inherit the other bits of the mode from the folder that they are in.
int ModeOf(const std::string& path) {
  struct stat found{};
  return stat(path.c_str(), &found) == 0 ? static_cast<int>(found.st_mode & 0777) : -1;
}

class FolderTest : public testing::Test {
 protected:
  const TestFolder own_folder_;
  const std::string folder_ = JoinPath(own_folder_.path(), "made");  // The tests make it.
};

TEST(Roles, CallsThatAreNotInTheTableAreDenied) {
  for (const Role role : {Role::kReader, Role::kSubmitter, Role::kWorker, Role::kOperator, Role::kOwner}) {
    for (const char* call : {"", "submitjob", "SubmitJob ", "DropEverything", "../Attach"}) {
      EXPECT_EQ(AccessTo(call, role), Access::kDenied) << call;
    }
  }
  EXPECT_EQ(AccessTo("CancelJob", Role::kReader), Access::kDenied);
  EXPECT_EQ(AccessTo("CancelJob", Role::kSubmitter), Access::kOwn);
  EXPECT_EQ(AccessTo("CancelJob", Role::kOperator), Access::kAll);
  EXPECT_EQ(AccessTo("CancelJob", Role::kWorker), Access::kDenied);
  EXPECT_EQ(AccessTo("Attach", Role::kOperator), Access::kDenied);
}

TEST(Roles, ReadersChangeNothingAndWorkersSeeNoJobs) {
  const std::set<std::string> reads = {"ListJobs",
                                       "GetJob",
                                       "WatchJob",
                                       "JobLog",
                                       "WhyJob",
                                       "ListWorkers",
                                       "GetStatus",
                                       "GetTrace",
                                       "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                       "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
  // The health of the server reveals nothing about jobs, so all roles may ask for it.
  const std::string health = "grpc.health.v1.Health/Watch";
  std::set<std::string> calls;
  for (const CallRule& rule : CallRules()) {
    EXPECT_TRUE(calls.insert(rule.call).second) << rule.call << " is in the table twice";
    if (rule.call == health) continue;
    EXPECT_EQ(AccessTo(rule.call, Role::kReader) != Access::kDenied, reads.contains(rule.call)) << rule.call;
    if (reads.contains(rule.call)) EXPECT_EQ(AccessTo(rule.call, Role::kWorker), Access::kDenied) << rule.call;
    EXPECT_EQ(AccessTo(rule.call, Role::kOwner), Access::kAll) << rule.call;
  }
}

TEST(Roles, NamesAndUsers) {
  for (const Role role : {Role::kReader, Role::kSubmitter, Role::kWorker, Role::kOperator}) {
    EXPECT_EQ(ParseRole(RoleName(role)), role);
  }
  EXPECT_FALSE(ParseRole("owner").has_value());
  EXPECT_FALSE(ParseRole("root").has_value());
  for (const char* good : {"a", "alice", "a-b_c.d9"}) EXPECT_TRUE(IsUserName(good)) << good;
  for (const char* bad : {"", "Alice", "9a", "-a", "a b", "a/b", "a\nb", "../x", "abcdefghijklmnopqrstuvwxyzabcdefg"}) {
    EXPECT_FALSE(IsUserName(bad)) << bad;
  }
}

class TokensTest : public FolderTest {
 protected:
  ManualClock clock_{1'800'000'000 * kNsPerSecond};
  std::unique_ptr<Random> random_ = SystemRandom();
};

TEST_F(TokensTest, AreFoundUntilTheyExpire) {
  TokenStore store(folder_, &clock_);
  const auto token = store.Issue(Role::kSubmitter, "alice", 3600, random_.get());
  ASSERT_TRUE(token.ok()) << token.status();
  const auto caller = store.Find(*token);
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->user, "alice");
  EXPECT_EQ(caller->role, Role::kSubmitter);
  clock_.Advance(3599 * kNsPerSecond);
  EXPECT_TRUE(store.Find(*token).ok());
  clock_.Advance(kNsPerSecond);
  const absl::Status expired = store.Find(*token).status();
  EXPECT_TRUE(absl::IsUnauthenticated(expired));
  EXPECT_THAT(std::string(expired.message()), HasSubstr("expired"));
}

TEST_F(TokensTest, AreRefusedAfterAnotherStoreRevokesThem) {
  TokenStore serving(folder_, &clock_);
  TokenStore command(folder_, &clock_);
  const std::string token = *command.Issue(Role::kWorker, "w", 60, random_.get());
  EXPECT_TRUE(serving.Find(token).ok());
  EXPECT_TRUE(command.Revoke(TokenId(token)).ok());
  clock_.Advance(kNsPerSecond);
  EXPECT_TRUE(absl::IsUnauthenticated(serving.Find(token).status()));
  EXPECT_TRUE(absl::IsNotFound(command.Revoke(TokenId(token))));
  EXPECT_TRUE(absl::IsNotFound(command.Revoke("../../etc/passwd")));
}

// A token is refused if any character of the secret differs, or if it has only the id.
TEST_F(TokensTest, OtherTextsAreRefused) {
  TokenStore store(folder_, &clock_);
  const std::string token = *store.Issue(Role::kOperator, "op", 60, random_.get());
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_TRUE(absl::IsUnauthenticated(store.Find(changed).status())) << i;
  }
  for (const std::string& other : {std::string(), std::string("xlad_"), TokenId(token), token + "0", token + "\n",
                                   absl::StrCat("xlad_../../x_", std::string(64, '0')), std::string(1 << 20, 'x')}) {
    EXPECT_TRUE(absl::IsUnauthenticated(store.Find(other).status()));
  }
  const std::string unknown = absl::StrCat("xlad_000000000000_", std::string(64, '0'));
  std::string wrong = token;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  // The errors for an unknown id and for a wrong secret differ only in the id.
  EXPECT_EQ(std::string(store.Find(unknown).status().message()).substr(25),
            std::string(store.Find(wrong).status().message()).substr(25));
}

TEST_F(TokensTest, FilesHaveNoSecretAndOnlyTheOwnerCanReadThem) {
  TokenStore store(folder_, &clock_);
  const std::string token = *store.Issue(Role::kReader, "r", 60, random_.get());
  const std::string secret = token.substr(token.rfind('_') + 1);
  EXPECT_EQ(ModeOf(folder_), 0700);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    ++files;
    EXPECT_EQ(ModeOf(entry.path().string()), 0600);
    const std::string text = *RealFileSystem().Read(entry.path().string());
    EXPECT_FALSE(absl::StrContains(text, secret));
    EXPECT_THAT(text, HasSubstr(Sha256Hex(secret)));
  }
  EXPECT_EQ(files, 1);
  const auto all = store.List();
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->records.size(), 1u);
  EXPECT_EQ(all->records.front().id, TokenId(token));
}

TEST_F(TokensTest, RootIssuesTokensThatTheOwnerOfTheDataFolderCanRead) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to others";
  TokenStore store(folder_, &clock_);
  constexpr uid_t kService = 61'111;
  if (chown(own_folder_.path().c_str(), kService, kService) != 0) {
    GTEST_SKIP() << "user " << kService << " does not exist in this user namespace";
  }
  for (int i = 0; i < 2; ++i) {  // Before and after the folder exists.
    ASSERT_TRUE(store.Issue(Role::kWorker, "worker", 60, random_.get()).ok());
  }
  std::vector<std::string> paths = {folder_};
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) paths.push_back(entry.path().string());
  EXPECT_EQ(paths.size(), 3u);
  for (const std::string& path : paths) {
    struct stat found{};
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_uid, kService) << path;
    EXPECT_EQ(found.st_gid, kService) << path;
  }
}

// The owner of the data folder can replace the folder of tokens. If root followed a link, it would change the mode and
// the owner of any folder for this user, or write into it.
TEST_F(TokensTest, OnlyRootRefusesALinkAsTheFolderOfTokens) {
  const std::string target = JoinPath(own_folder_.path(), "target");
  ASSERT_TRUE(RealFileSystem().MakeDirectories(target).ok());
  ASSERT_EQ(chmod(target.c_str(), 0755), 0);
  ASSERT_EQ(symlink(target.c_str(), folder_.c_str()), 0);
  TokenStore store(folder_, &clock_);
  const absl::StatusOr<std::string> token = store.Issue(Role::kWorker, "worker", 60, random_.get());
  if (geteuid() != 0) {
    ASSERT_TRUE(token.ok()) << token.status();
    EXPECT_TRUE(store.Find(*token).ok());
    EXPECT_EQ(ModeOf(target), 0700);
    return;
  }
  const std::string expected = absl::StrCat("cannot open the folder ", folder_);
  EXPECT_THAT(std::string(token.status().message()), HasSubstr(expected));
  EXPECT_EQ(ModeOf(target), 0755);
  // The folder may be replaced after it was made.
  const absl::Status written = WritePrivateFile(JoinPath(folder_, "f"), "x", PrivateOwner::kOwnerOfParent);
  EXPECT_THAT(std::string(written.message()), HasSubstr(expected));
  EXPECT_TRUE(RealFileSystem().List(target)->empty());
}

// If files are damaged, the tokens of the other files are still listed.
TEST_F(TokensTest, ListNamesDamagedFiles) {
  TokenStore store(folder_, &clock_);
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(TokenId(*store.Issue(Role::kReader, "a", 60, random_.get())));
  std::sort(ids.begin(), ids.end());
  const auto path = [&](int i) { return JoinPath(folder_, ids[static_cast<size_t>(i)] + ".token"); };
  ASSERT_TRUE(WritePrivateFile(path(0), "role reader\n").ok());
  ASSERT_TRUE(WritePrivateFile(path(2), "").ok());
  const auto list = store.List();
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->records.size(), 2u);
  EXPECT_EQ(list->records[0].id, ids[1]);
  EXPECT_EQ(list->records[1].id, ids[3]);
  ASSERT_EQ(list->unreadable.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(absl::IsDataLoss(list->unreadable[static_cast<size_t>(i)]));
    EXPECT_THAT(std::string(list->unreadable[static_cast<size_t>(i)].message()), HasSubstr(path(2 * i)));
  }
}

// A file in which a field occurs twice is refused, even if another field is missing and the number of lines is right.
TEST_F(TokensTest, FilesHaveEachFieldOnce) {
  TokenStore store(folder_, &clock_);
  const std::string token = *store.Issue(Role::kReader, "a", 60, random_.get());
  const std::string path = JoinPath(folder_, TokenId(token) + ".token");
  const std::string text = *RealFileSystem().Read(path);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 5u);
  const auto refused = [&](const std::vector<std::string>& found) {
    ASSERT_TRUE(WritePrivateFile(path, absl::StrCat(absl::StrJoin(found, "\n"), "\n")).ok());
    clock_.Advance(kNsPerSecond);
    EXPECT_TRUE(absl::IsUnauthenticated(store.Find(token).status())) << absl::StrJoin(found, "\n");
  };
  for (size_t from = 0; from < lines.size(); ++from) {
    for (size_t to = 0; to < lines.size(); ++to) {
      std::vector<std::string> found = lines;
      found[to] = lines[from];
      if (from != to) refused(found);
    }
    std::vector<std::string> found = lines;
    found.push_back(lines[from]);
    refused(found);
  }
  ASSERT_TRUE(WritePrivateFile(path, text).ok());
  clock_.Advance(kNsPerSecond);
  EXPECT_TRUE(store.Find(token).ok());
}

TEST_F(TokensTest, RefusesOwnersInvalidUsersAndDamagedFiles) {
  TokenStore store(folder_, &clock_);
  EXPECT_TRUE(absl::IsInvalidArgument(store.Issue(Role::kOwner, "a", 60, random_.get()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(store.Issue(Role::kReader, "a b", 60, random_.get()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(store.Issue(Role::kReader, "a", 0, random_.get()).status()));
  const std::string token = *store.Issue(Role::kReader, "a", 60, random_.get());
  const std::string path = JoinPath(folder_, TokenId(token) + ".token");
  const std::string text = *RealFileSystem().Read(path);
  for (size_t line = 0; line < 5; ++line) {  // The file is refused if any one of its lines is missing.
    std::vector<std::string> lines = absl::StrSplit(text, '\n');
    lines.erase(lines.begin() + static_cast<int64_t>(line));
    ASSERT_TRUE(WritePrivateFile(path, absl::StrJoin(lines, "\n")).ok());
    clock_.Advance(kNsPerSecond);
    EXPECT_TRUE(absl::IsUnauthenticated(store.Find(token).status())) << line;
  }
  for (const absl::string_view role : {"owner", "admin", "operator"}) {
    const std::string changed = absl::StrReplaceAll(text, {{"role reader\n", absl::StrCat("role ", role, "\n")}});
    ASSERT_NE(changed, text);
    ASSERT_TRUE(WritePrivateFile(path, changed).ok());
    clock_.Advance(kNsPerSecond);
    EXPECT_EQ(store.Find(token).ok(), role == "operator") << role << ", which is the only one that a token can have";
  }
  // A field of a later version is ignored.
  ASSERT_TRUE(WritePrivateFile(path, absl::StrCat(text, "color blue\n")).ok());
  clock_.Advance(kNsPerSecond);
  EXPECT_EQ(store.Find(token)->role, Role::kReader);
}

// The error tells a caller neither that the id exists nor the path of its file.
TEST_F(TokensTest, ADamagedFileIsReportedToCallersAsAnUnknownToken) {
  TokenStore store(folder_, &clock_);
  const std::string token = *store.Issue(Role::kReader, "a", 60, random_.get());
  const std::string id = TokenId(token), unknown_id(id.size(), '0');
  const std::string unknown = absl::StrReplaceAll(token, {{id, unknown_id}});
  ASSERT_TRUE(WritePrivateFile(JoinPath(folder_, id + ".token"), "role reader\n").ok());
  clock_.Advance(kNsPerSecond);
  EXPECT_EQ(absl::StrReplaceAll(store.Find(token).status().ToString(), {{id, unknown_id}}),
            store.Find(unknown).status().ToString());
}

TEST_F(TokensTest, AFileThatCannotBeReadForAMomentRevokesNoToken) {
  TokenStore store(folder_, &clock_);
  const std::string token = *store.Issue(Role::kReader, "a", 60, random_.get());
  const std::string path = JoinPath(folder_, TokenId(token) + ".token"), elsewhere = path + "-elsewhere";
  std::filesystem::rename(path, elsewhere);
  std::filesystem::create_directory(path);  // Reading it fails, but not with NotFound.
  EXPECT_TRUE(absl::IsUnavailable(store.Find(token).status())) << store.Find(token).status();
  std::filesystem::remove(path);
  std::filesystem::rename(elsewhere, path);
  EXPECT_TRUE(store.Find(token).ok()) << "the failure is not remembered";
}

TEST(JoinFiles, RoundTripAndErrorsNameTheMissingPart) {
  const JoinFile join = {"10.0.0.1:7411", "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n",
                         absl::StrCat("xlad_0123456789ab_", std::string(64, 'f'))};
  const std::string text = FormatJoinFile(join);
  const auto parsed = ParseJoinFile(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->address, join.address);
  EXPECT_EQ(parsed->token, join.token);
  EXPECT_EQ(parsed->authority, join.authority);
  EXPECT_EQ(text.substr(0, text.find('\n')), join.token);  // The join file is therefore also a token file.
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJoinFile(text.substr(0, size)).status())) << size;
  }
}

TEST(Certificates, AuthoritiesAndServersDiffer) {
  const auto authority = MakeAuthority(1'800'000'000);
  ASSERT_TRUE(authority.ok()) << authority.status();
  const auto server = IssueServer(*authority, {"host", "*.svc", "10.0.0.1", "fd00::1"}, 1'800'000'000);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(server->certificate, HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_THAT(server->key, HasSubstr("BEGIN PRIVATE KEY"));
  EXPECT_NE(server->certificate, authority->certificate);
  EXPECT_NE(MakeAuthority(1'800'000'000)->certificate, authority->certificate);
  EXPECT_TRUE(absl::IsInvalidArgument(IssueServer(*authority, {}, 0).status()));
  for (const char* bad : {"", "a b", "a,DNS:evil", "a\nb"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(IssueServer(*authority, {bad}, 0).status())) << bad;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(IssueServer({"x", "y"}, {"host"}, 0).status()));
}

using CertificatesTest = FolderTest;

TEST_F(CertificatesTest, TheAuthorityOfAFolderIsMadeOnce) {
  const ManualClock clock{1'800'000'000 * kNsPerSecond};
  const auto first = AuthorityIn(folder_, clock);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(AuthorityIn(folder_, clock)->certificate, first->certificate);
  EXPECT_EQ(ModeOf(folder_), 0700);
  EXPECT_EQ(ModeOf(JoinPath(folder_, "ca-key.pem")), 0600);
}

using PrivateFilesTest = FolderTest;

TEST_F(PrivateFilesTest, ReplaceOlderFilesAndNeverWidenTheirMode) {
  ASSERT_TRUE(MakePrivateFolder(folder_).ok());
  const std::string path = JoinPath(folder_, "f");
  for (const std::string& contents : {std::string("a"), std::string(), std::string(1 << 20, 'x')}) {
    ASSERT_TRUE(WritePrivateFile(path, contents).ok());
    EXPECT_EQ(*RealFileSystem().Read(path), contents);
    EXPECT_EQ(ModeOf(path), 0600);
    chmod(path.c_str(), 0644);
  }
  EXPECT_FALSE(WritePrivateFile(JoinPath(folder_, "missing/f"), "x").ok());
}

// Makes the system call fail with EIO in this process from now on.
bool MakeFail(int call) {
  sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{std::size(rules), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(PrivateFilesTest, AFailureLeavesTheOldFileOnly) {
  ASSERT_TRUE(MakePrivateFolder(folder_).ok());
  const std::string path = JoinPath(folder_, "f");
  ASSERT_TRUE(WritePrivateFile(path, "old").ok());
  for (const int call : {SYS_write, SYS_fsync}) {
    const pid_t child = fork();
    if (child == 0) _exit(MakeFail(call) && absl::IsUnavailable(WritePrivateFile(path, "new")) ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << call;
    EXPECT_EQ(*RealFileSystem().List(folder_), std::vector<std::string>{"f"}) << call;
    EXPECT_EQ(*RealFileSystem().Read(path), "old") << call;
  }
  ASSERT_TRUE(MakePrivateFolder(JoinPath(folder_, "d")).ok());
  EXPECT_TRUE(absl::IsUnavailable(WritePrivateFile(JoinPath(folder_, "d"), "a file cannot replace a folder")));
  EXPECT_EQ(RealFileSystem().List(folder_)->size(), 2u);
}

}  // namespace
}  // namespace xlad::security

#include "service/credentials/kept_join_file.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/file_system.h"
#include "base/testing/test_folder.h"
#include "security/certificates.h"
#include "security/join_file.h"
#include "security/private_files.h"
#include "security/tokens.h"
#include "service/credentials/managed_security.h"

namespace xlad::service {
namespace {

constexpr int64_t kDayNs = int64_t{86'400} * kNsPerSecond;
constexpr char kAddress[] = "10.0.0.1:7411";

class KeptJoinFileTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(security::MakePrivateFolder(JoinPath(data_, "security")).ok());
    ASSERT_TRUE(security::AuthorityIn(JoinPath(data_, "security"), clock_).ok());
    ASSERT_TRUE(StoreAddress(data_, kAddress).ok());
  }

  KeptJoinFile Write(security::Caller caller = {"worker", security::Role::kWorker}) {
    auto file = KeptJoinFile::Write({.path = path_,
                                     .data_folder = data_,
                                     .address = kAddress,
                                     .caller = std::move(caller),
                                     .valid_s = 30 * 86'400,
                                     .clock = &clock_});
    XLAD_CHECK(file.ok()) << file.status();
    return *std::move(file);
  }
  std::string Token() const {
    const auto text = RealFileSystem().Read(path_);
    const auto join = text.ok() ? security::ParseJoinFile(*text) : text.status();
    return join.ok() ? join->token : "";
  }
  bool IsValid(const std::string& token) { return security::TokenStore(TokenFolder(data_), &clock_).Find(token).ok(); }
  size_t Tokens() { return security::TokenStore(TokenFolder(data_), &clock_).List()->records.size(); }

  const TestFolder folder_;
  const std::string data_ = JoinPath(folder_.path(), "data");
  const std::string path_ = JoinPath(folder_.path(), "meet/worker.join");
  ManualClock clock_{1'800'000'000 * kNsPerSecond};
};

TEST_F(KeptJoinFileTest, TheFileHasAValidTokenForAYear) {
  KeptJoinFile file = Write();
  const std::string first = Token();
  std::string last = first;
  for (int day = 0; day < 365; ++day) {
    EXPECT_TRUE(IsValid(Token())) << "day " << day;
    const auto renewed = file.RenewIfDue();
    ASSERT_TRUE(renewed.ok()) << renewed.status();
    EXPECT_EQ(*renewed, day > 0 && day % 20 == 0) << "day " << day;
    EXPECT_EQ(Token() != last, *renewed) << "day " << day;
    // Open streams use the replaced token.
    EXPECT_TRUE(IsValid(last)) << "day " << day;
    last = Token();
    clock_.Advance(kDayNs);
  }
  EXPECT_FALSE(IsValid(first));
}

TEST_F(KeptJoinFileTest, TheFileOfAnEarlierProcessIsKeptUntilItIsDue) {
  Write();
  const std::string first = Token();
  clock_.Advance(19 * kDayNs);
  Write();
  EXPECT_EQ(Token(), first);
  clock_.Advance(kDayNs);
  KeptJoinFile file = Write();
  const std::string second = Token();
  EXPECT_NE(second, first);
  EXPECT_TRUE(IsValid(first));
  clock_.Advance(20 * kDayNs);
  EXPECT_TRUE(file.RenewIfDue().value_or(false));
  clock_.Advance(40 * kDayNs);
  const std::string expired = Token();
  EXPECT_FALSE(IsValid(expired));
  Write();
  EXPECT_TRUE(IsValid(Token()));
}

TEST_F(KeptJoinFileTest, AValidTokenIsKeptIfTheRenewalFails) {
  Write();
  const std::string first = Token();
  clock_.Advance(25 * kDayNs);
  const std::string authority = JoinPath(data_, "security/ca.pem");
  ASSERT_TRUE(RealFileSystem().Rename(authority, authority + ".away").ok());
  KeptJoinFile file = Write();
  EXPECT_FALSE(file.RenewIfDue().ok()) << "A renewal needs the certificate of the authority.";
  EXPECT_EQ(Token(), first);
  EXPECT_TRUE(IsValid(first));
  ASSERT_TRUE(RealFileSystem().Rename(authority + ".away", authority).ok());
  EXPECT_TRUE(file.RenewIfDue().value_or(false));
  EXPECT_NE(Token(), first);
}

TEST_F(KeptJoinFileTest, AFileOfTheUserIsNotReplaced) {
  KeptJoinFile file = Write();
  const auto own = MakeJoinFile(data_, {"alice", security::Role::kReader}, 60 * 86'400, &clock_);
  ASSERT_TRUE(own.ok()) << own.status();
  ASSERT_TRUE(security::WritePrivateFile(path_, security::FormatJoinFile(*own)).ok());
  clock_.Advance(29 * kDayNs);
  EXPECT_FALSE(file.RenewIfDue().value_or(true));
  EXPECT_TRUE(file.Revoke().ok());
  EXPECT_EQ(Token(), own->token);
  EXPECT_FALSE(Write().RenewIfDue().value_or(true)) << "a token of another caller";
  EXPECT_EQ(Token(), own->token);
  EXPECT_TRUE(IsValid(own->token));
}

TEST_F(KeptJoinFileTest, AllItsTokensAreRevoked) {
  KeptJoinFile file = Write();
  const std::string first = Token();
  clock_.Advance(20 * kDayNs);
  ASSERT_TRUE(file.RenewIfDue().value_or(false));
  const std::string second = Token();
  ASSERT_TRUE(IsValid(first) && IsValid(second));
  EXPECT_TRUE(file.Revoke().ok());
  EXPECT_FALSE(IsValid(first));
  EXPECT_FALSE(IsValid(second));
  EXPECT_EQ(Tokens(), 0);
  EXPECT_FALSE(RealFileSystem().Exists(path_));
  EXPECT_TRUE(file.Revoke().ok());
}

TEST_F(KeptJoinFileTest, AKeeperRevokesOnlyIfItShould) {
  KeptJoinFile::Options options{.path = path_, .data_folder = data_, .address = kAddress};
  options.caller = {"worker", security::Role::kWorker};
  using AtEnd = JoinFileKeeper::AtEnd;
  ASSERT_TRUE(JoinFileKeeper::Start(options, AtEnd::kKeepFile).ok());
  EXPECT_EQ(Tokens(), 1);
  ASSERT_TRUE(JoinFileKeeper::Start(options, AtEnd::kRevokeTokens).ok()) << "of the same file";
  EXPECT_EQ(Tokens(), 0);
}

}  // namespace
}  // namespace xlad::service

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/network.h"
#include "base/quoted.h"
#include "base/random.h"
#include "base/secret.h"
#include "base/suggest.h"

namespace xlad {
namespace {

std::string TestDirectory() {
  const std::string directory = JoinPath(testing::TempDir(), absl::StrCat("base_test_", getpid()));
  std::filesystem::create_directories(directory);
  return directory;
}

TEST(Status, AnnotateKeepsTheCode) {
  const absl::Status status = Annotate(absl::NotFoundError("gone"), "here");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "here: gone");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "here").ok());
}

TEST(Random, EqualSeedsGiveEqualNumbers) {
  const auto a = SeededRandom(7), b = SeededRandom(7), c = SeededRandom(8);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = a->Next();
    EXPECT_EQ(value, b->Next());
    differs = differs || value != c->Next();
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(SystemRandom()->Hex(8).size(), 16u);
}

TEST(Hash, Sha256OfKnownTexts) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Hash, Sha256OfPiecesIsThatOfTheWhole) {
  const std::string text(1000, 'q');
  Sha256 hash;
  for (const size_t piece : {0, 1, 63, 64, 65, 807}) hash.Add(text.substr(0, piece));
  EXPECT_EQ(hash.FinishHex(), Sha256Hex(text));
}

TEST(FileSystem, OpenFilesAreReadAndWrittenInPieces) {
  FileSystem& files = RealFileSystem();
  const std::string path = JoinPath(TestDirectory(), "pieces"), renamed = path + ".renamed";
  {
    auto file = *files.Open(path, OpenMode::kCreate);
    for (const std::string& piece : {std::string("ab"), std::string(), std::string("cdef")}) {
      ASSERT_TRUE(file->Append(piece).ok());
    }
    ASSERT_TRUE(file->Sync().ok());
    EXPECT_EQ(*file->Size(), 6);
  }
  EXPECT_EQ(files.Open(path, OpenMode::kCreate).status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(files.Rename(path, renamed).ok());
  ASSERT_TRUE(files.SyncDirectory(TestDirectory()).ok());
  EXPECT_TRUE(absl::IsNotFound(files.Open(path, OpenMode::kRead).status()));
  const auto file = *files.Open(renamed, OpenMode::kRead);
  std::string out(3, '\0');
  const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(out.data()), out.size());
  ASSERT_TRUE(file->Read(2, bytes).ok());
  EXPECT_EQ(out, "cde");
  EXPECT_EQ(file->Read(4, bytes).code(), absl::StatusCode::kDataLoss);
  EXPECT_GT(*files.FreeBytes(TestDirectory()), 0);
  EXPECT_FALSE(files.RemoveDirectory(TestDirectory()).ok()) << "it is not empty";
  ASSERT_TRUE(files.Remove(renamed).ok());
}

TEST(FileSystem, WritesAllOrNothing) {
  FileSystem& files = RealFileSystem();
  const std::string path = JoinPath(TestDirectory(), "file");
  for (const std::string& bytes : {std::string(), std::string("x"), std::string(3'000'001, 'y')}) {
    ASSERT_TRUE(files.WriteAtomically(path, bytes).ok());
    EXPECT_EQ(*files.Read(path), bytes);
  }
  EXPECT_EQ(*files.ReadRange(path, 3'000'000, 1), "y");
  EXPECT_EQ(files.ReadRange(path, 3'000'000, 2).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::IsNotFound(files.Read(path + ".not").status()));
  EXPECT_EQ(files.Read(TestDirectory()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(files.WriteAtomically("/proc/no/such/file", "x").ok());
  const auto names = *files.List(TestDirectory());
  EXPECT_EQ(names, std::vector<std::string>{"file"});  // The temporary file is gone.
}

TEST(FileSystem, PipesDevicesAndLinksAreNotReplaced) {
  FileSystem& files = RealFileSystem();
  const std::string pipe = JoinPath(TestDirectory(), "pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { EXPECT_TRUE(files.WriteAtomically(pipe, std::string(300'001, 'z')).ok()); });
  EXPECT_EQ(*files.Read(pipe), std::string(300'001, 'z'));
  writer.join();
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(files.WriteAtomically("/dev/zero", "x").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/zero"));
  EXPECT_EQ(files.WriteAtomically("/dev/full", "x").code(), absl::StatusCode::kResourceExhausted);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_TRUE(files.WriteAtomically(absl::StrCat("/proc/self/fd/", ends[1]), "x").ok());  // Like /dev/stdout.
  close(ends[0]);
  close(ends[1]);
  const std::string file = JoinPath(TestDirectory(), "behind"), link = JoinPath(TestDirectory(), "link");
  std::filesystem::create_symlink("behind", link);
  ASSERT_TRUE(files.WriteAtomically(link, "through").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(*files.Read(file), "through");
}

TEST(Network, AddressesAreChecked) {
  EXPECT_EQ(ParseHostPort("localhost:80")->port, 80);
  EXPECT_EQ(ParseHostPort("[::1]:80")->host, "::1");
  for (const char* bad : {"", "host", ":80", "host:", "host:x", "host:65536", "host:-1"}) {
    EXPECT_FALSE(ParseHostPort(bad).ok()) << bad;
  }
  for (const char* here : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) EXPECT_TRUE(IsLoopback(here)) << here;
  for (const char* elsewhere :
       {"0.0.0.0", "10.0.0.1", "127.evil.com", "127.0.0.1.evil.com", "127.", "::", "1.127.0.0"}) {
    EXPECT_FALSE(IsLoopback(elsewhere)) << elsewhere;
  }
}

TEST(Network, BytesArriveInOrderAndThenUnavailable) {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  std::string sent(1'000'000, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7);
  std::thread client([&] {
    const auto connection = *TcpNetwork().Dial(listener->Address(), 5000);
    EXPECT_TRUE(connection->Write({reinterpret_cast<const std::byte*>(sent.data()), sent.size()}).ok());
  });
  const auto connection = *listener->Accept();
  std::string received(sent.size(), '\0');
  size_t done = 0;
  absl::Status end;
  while (end.ok()) {
    std::byte buffer[4096];
    const auto n = connection->Read(absl::MakeSpan(buffer));
    end = n.status();
    if (!n.ok()) break;
    ASSERT_LE(done + *n, received.size());
    std::copy_n(reinterpret_cast<const char*>(buffer), *n, received.data() + done);
    done += *n;
  }
  client.join();
  EXPECT_EQ(done, sent.size());
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(absl::IsUnavailable(end)) << end;
}

TEST(Network, PortInUseIsAlreadyExists) {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  const auto second = TcpNetwork().Listen(listener->Address());
  EXPECT_TRUE(absl::IsAlreadyExists(second.status()));
  EXPECT_NE(std::string(second.status().message()).find(listener->Address()), std::string::npos);
}

TEST(Network, ShutdownWakesAccept) {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  std::thread waiter([&] { EXPECT_TRUE(absl::IsCancelled(listener->Accept().status())); });
  listener->Shutdown();
  waiter.join();
}

TEST(Subprocess, ReturnsOutputCrashesAndTimeouts) {
  const auto echo = RunChild({"/bin/cat"}, std::string(300'000, 'z'));
  ASSERT_TRUE(echo.ok());
  EXPECT_EQ(echo->output, std::string(300'000, 'z'));
  EXPECT_EQ(RunChild({"/bin/sh", "-c", "echo no >&2; exit 3"}, "")->exit_code, 3);
  EXPECT_EQ(RunChild({"/bin/sh", "-c", "kill -SEGV $$"}, "")->signal, 11);
  EXPECT_EQ(RunChild({"/no/such/program"}, "")->exit_code, 127);
  ChildLimits limits;
  limits.timeout_ms = 50;
  EXPECT_TRUE(absl::IsDeadlineExceeded(RunChild({"/bin/sleep", "30"}, "", limits).status()));
}

TEST(Subprocess, CanBeCancelledAndHasALimitOfProcessorTime) {
  CancelSignal cancel;
  ChildLimits limits;
  limits.cancel = &cancel;
  std::thread canceller([&] { cancel.Raise(); });
  EXPECT_TRUE(absl::IsCancelled(RunChild({"/bin/sleep", "30"}, "", limits).status()));
  canceller.join();
  EXPECT_TRUE(absl::IsCancelled(RunChild({"/bin/sleep", "30"}, "", limits).status())) << "it stays raised";
  limits = {};
  limits.cpu_seconds = 1;
  EXPECT_EQ(RunChild({"/bin/sh", "-c", "while :; do :; done"}, "", limits)->signal, 9);
}

TEST(Subprocess, InheritsNoOtherDescriptor) {
  const int inheritable = dup(0);
  const auto listed = RunChild({"/bin/ls", "/proc/self/fd"}, "");
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->output, "0\n1\n2\n3\n") << "3 is the folder that ls reads";
  close(inheritable);
}

TEST(ChildProcess, ReportsHowItEnded) {
  const auto child = *ChildProcess::Start({"/bin/sh", "-c", "exit 4"}, JoinPath(TestDirectory(), "log"));
  EXPECT_TRUE(child->WaitFor(10'000));
  EXPECT_EQ(child->HowEnded(), "exit code 4");
  const auto long_child = *ChildProcess::Start({"/bin/sleep", "60"}, "");
  long_child->Signal(9);
  EXPECT_TRUE(long_child->WaitFor(10'000));
  EXPECT_NE(long_child->HowEnded().find("signal 9"), std::string::npos);
  std::filesystem::remove(JoinPath(TestDirectory(), "log"));
}

TEST(Secret, IsTheSameOnlyIfAllBytesAre) {
  const std::string secret("a\0b\xff", 4);
  EXPECT_TRUE(SameSecret(secret, std::string("a\0b\xff", 4)));
  EXPECT_TRUE(SameSecret("", ""));
  EXPECT_FALSE(SameSecret(secret, ""));
  EXPECT_FALSE(SameSecret(secret, secret + "c"));
  for (size_t i = 0; i < secret.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = secret;
      other[i] = static_cast<char>(other[i] ^ (1 << bit));
      EXPECT_FALSE(SameSecret(secret, other)) << i << " " << bit;
    }
  }
}

TEST(Quoted, EscapesBytesAndCutsLongText) {
  EXPECT_EQ(Quoted("ring 3"), "\"ring 3\"");
  EXPECT_EQ(Quoted(""), "\"\"");
  EXPECT_EQ(Quoted(absl::string_view("\0\x1b[2J\n\"", 7)), "\"\\x00\\x1b[2J\\n\\\"\"");
  EXPECT_EQ(Quoted(std::string(40, 'a')), "\"" + std::string(40, 'a') + "\"");
  EXPECT_EQ(Quoted(std::string(41, 'a')), "\"" + std::string(40, 'a') + "...\" (41 bytes)");
}

TEST(Suggest, SuggestsOnlyForTypos) {
  const std::vector<std::string> names = {"partition", "explain", "run", "--steps"};
  EXPECT_EQ(NearestName("partiton", names), "partition");
  EXPECT_EQ(NearestName("--step", names), "--steps");
  EXPECT_EQ(NearestName("rnu", names), "run");
  EXPECT_EQ(NearestName("banana", names), "");
  EXPECT_EQ(NearestName("", names), "");
}

}  // namespace
}  // namespace xlad

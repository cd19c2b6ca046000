#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/bytes_text.h"
#include "base/file_error.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/net/advertised.h"
#include "base/net/network.h"
#include "base/net/socket_address.h"
#include "base/powers_of_two.h"
#include "base/quoted.h"
#include "base/random.h"
#include "base/secret.h"
#include "base/serial_queue.h"
#include "base/suggest.h"
#include "base/testing/test_folder.h"

namespace xlad {
namespace {

TEST(Status, AnnotateKeepsTheCode) {
  const absl::Status status = Annotate(absl::NotFoundError("gone"), "here");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "here: gone");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "here").ok());
}

TEST(BytesText, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(999.6), "1 kB");
  EXPECT_EQ(BytesText(4'194'304), "4.19 MB");
  EXPECT_EQ(BytesText(16e9), "16 GB");
  EXPECT_EQ(BytesText(999.4e12), "999 TB");
  EXPECT_EQ(BytesText(1e15), "1 PB");
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

TEST(Hash, OnlyItsFormMakesATextASha256) {
  const std::string hash = Sha256Hex("abc");
  EXPECT_TRUE(IsSha256Hex(hash));
  for (const char digit : {'A', 'g', '/', '\0'}) EXPECT_FALSE(IsSha256Hex(digit + hash.substr(1))) << digit;
  for (const std::string& other : {std::string(), hash.substr(1), hash + "0"}) {
    EXPECT_FALSE(IsSha256Hex(other)) << other;
  }
}

TEST(Hash, Sha256OfPiecesEqualsThatOfTheirConcatenation) {
  const std::string text(1000, 'q');
  Sha256 hash;
  for (const size_t piece : {0, 1, 63, 64, 65, 807}) hash.Add(text.substr(0, piece));
  EXPECT_EQ(hash.FinishHex(), Sha256Hex(text));
}

TEST(PowersOfTwo, AreTheNearestOnes) {
  for (int64_t n = 1; n < 1000; ++n) {
    const int64_t below = PowerOfTwoAtMost(n), above = PowerOfTwoAtLeast(n);
    EXPECT_TRUE(below <= n && n < 2 * below && above / 2 < n && n <= above) << n;
    EXPECT_EQ(int64_t{1} << FloorLog2(n), below);
    EXPECT_EQ(int64_t{1} << CeilLog2(n), above);
    EXPECT_EQ(IsPowerOfTwo(n), below == above) << n;
  }
  EXPECT_EQ(PowerOfTwoAtLeast((int64_t{1} << 61) + 1), int64_t{1} << 62);
  EXPECT_EQ(PowerOfTwoAtMost(INT64_MAX), int64_t{1} << 62);
  EXPECT_EQ(PowerOfTwoAtMost(0), 0);
  EXPECT_FALSE(IsPowerOfTwo(0) || IsPowerOfTwo(-1) || IsPowerOfTwo(INT64_MIN));
}

TEST(FileSystem, OpenFilesAreReadAndWrittenInPieces) {
  FileSystem& files = RealFileSystem();
  const TestFolder folder;
  const std::string path = JoinPath(folder.path(), "pieces"), renamed = path + ".renamed";
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
  ASSERT_TRUE(files.SyncDirectory(folder.path()).ok());
  EXPECT_TRUE(absl::IsNotFound(files.Open(path, OpenMode::kRead).status()));
  const auto file = *files.Open(renamed, OpenMode::kRead);
  std::string out(3, '\0');
  const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(out.data()), out.size());
  ASSERT_TRUE(file->Read(2, bytes).ok());
  EXPECT_EQ(out, "cde");
  EXPECT_EQ(file->Read(4, bytes).code(), absl::StatusCode::kDataLoss);
  EXPECT_GT(*files.FreeBytes(folder.path()), 0);
  EXPECT_FALSE(files.RemoveDirectory(folder.path()).ok()) << "it is not empty";
  ASSERT_TRUE(files.Remove(renamed).ok());
}

TEST(FileSystem, WritesAllOrNothing) {
  FileSystem& files = RealFileSystem();
  const TestFolder folder;
  const std::string path = JoinPath(folder.path(), "file");
  for (const std::string& bytes : {std::string(), std::string("x"), std::string(3'000'001, 'y')}) {
    ASSERT_TRUE(files.WriteAtomically(path, bytes).ok());
    EXPECT_EQ(*files.Read(path), bytes);
  }
  EXPECT_EQ(*files.ReadRange(path, 3'000'000, 1), "y");
  EXPECT_EQ(files.ReadRange(path, 3'000'000, 2).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::IsNotFound(files.Read(path + ".not").status()));
  EXPECT_EQ(files.Read(folder.path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(files.WriteAtomically("/proc/no/such/file", "x").ok());
  const auto names = *files.List(folder.path());
  EXPECT_EQ(names, std::vector<std::string>{"file"});  // The temporary file has been removed.
}

TEST(FileSystem, PipesDevicesAndLinksAreNotReplaced) {
  FileSystem& files = RealFileSystem();
  const TestFolder folder;
  const std::string pipe = JoinPath(folder.path(), "pipe");
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
  // A descriptor's path, like /dev/stdout.
  EXPECT_TRUE(files.WriteAtomically(absl::StrCat("/proc/self/fd/", ends[1]), "x").ok());
  close(ends[0]);
  close(ends[1]);
  const std::string file = JoinPath(folder.path(), "target"), link = JoinPath(folder.path(), "link");
  std::filesystem::create_symlink("target", link);
  ASSERT_TRUE(files.WriteAtomically(link, "through").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(*files.Read(file), "through");
}

// Callers repeat only what is Unavailable: the error of a path remains until a user changes something.
TEST(FileSystem, TheCodeOfAnErrorSaysWhetherItMayEnd) {
  FileSystem& files = RealFileSystem();
  const TestFolder folder;
  const std::string loop = JoinPath(folder.path(), "loop"), file = JoinPath(folder.path(), "file");
  std::filesystem::create_symlink("loop", loop);
  ASSERT_TRUE(files.WriteAtomically(file, "x").ok());
  std::byte byte;
  EXPECT_TRUE(absl::IsInvalidArgument((*files.Open(folder.path(), OpenMode::kRead))->Read(0, {&byte, 1})));
  EXPECT_TRUE(absl::IsInvalidArgument(files.Open(loop, OpenMode::kRead).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(files.Open(std::string(300, 'x'), OpenMode::kRead).status()));
  EXPECT_TRUE(absl::IsNotFound(files.Open(file + "/x", OpenMode::kRead).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(files.RemoveDirectory(folder.path())));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status without_descriptors = files.Open(file, OpenMode::kRead).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(absl::IsUnavailable(without_descriptors)) << without_descriptors;
  EXPECT_TRUE(IsFileError(Annotate(without_descriptors, "here")));
  EXPECT_FALSE(IsFileError(Annotate(absl::UnavailableError("a process does not answer"), "here")));
}

TEST(FileSystem, PathsHaveAFolder) {
  const std::pair<const char*, const char*> paths[] = {{"a/b/x", "a/b"}, {"/a/x", "/a"}, {"/x", "/"}, {"x", "."}};
  for (const auto& [path, folder] : paths) EXPECT_EQ(FolderOfPath(path), folder);
}

TEST(SerialQueue, RunsAllFunctionsInOrder) {
  std::vector<int> ran;
  std::thread::id thread;
  {
    SerialQueue queue;
    for (int i = 0; i < 1000; ++i) {
      queue.Push([&ran, &thread, i] {
        thread = std::this_thread::get_id();
        ran.push_back(i);
      });
    }
  }  // The queued functions are run first.
  ASSERT_EQ(ran.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(Network, AddressesAreChecked) {
  EXPECT_EQ(ParseHostPort("localhost:80")->port, 80);
  EXPECT_EQ(ParseHostPort("[::1]:80")->host, "::1");
  for (const char* bad : {"", "host", ":80", "host:", "host:x", "host:65536", "host:-1", "[::1]", "[::1:80", "::1]:80",
                          "[[::1]]:80", "[::1]x:80", "[host]:80", "[]:80"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseHostPort(bad).status())) << bad;
  }
  for (const char* here : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) EXPECT_TRUE(IsLoopback(here)) << here;
  for (const char* elsewhere :
       {"0.0.0.0", "10.0.0.1", "127.evil.com", "127.0.0.1.evil.com", "127.", "::", "1.127.0.0"}) {
    EXPECT_FALSE(IsLoopback(elsewhere)) << elsewhere;
  }
  for (const char* off : {"10.0.0.1:80", "[fd00::1]:80", "0.0.0.0:0", "host:80"})
    EXPECT_TRUE(IsOffLoopback(off)) << off;
  for (const char* here : {"127.0.0.1:80", "[::1]:80", "localhost:80", "10.0.0.1", "?"}) {
    EXPECT_FALSE(IsOffLoopback(here)) << here;
  }
  EXPECT_NE(HostName(), "");
}

TEST(Network, HostsHaveBracketsOnlyBeforeAPort) {
  const std::pair<const char*, const char*> hosts[] = {{"::1", "[::1]:7"},
                                                       {"[::1]", "[::1]:7"},
                                                       {"[fd00::1]", "[fd00::1]:7"},
                                                       {"fd00::1:7411", "[fd00::1:7411]:7"},
                                                       {"fe80::1%eth0", "[fe80::1%eth0]:7"},
                                                       {"10.0.0.1", "10.0.0.1:7"},
                                                       {"host", "host:7"}};
  for (const auto& [text, joined] : hosts) {
    const absl::StatusOr<std::string> host = ParseHost(text);
    ASSERT_TRUE(host.ok()) << host.status();
    EXPECT_EQ(JoinHostPort(*host, 7), joined);
    EXPECT_EQ(ParseHostPort(joined)->host, *host);
    EXPECT_EQ(*AddressForOthers("0.0.0.0:7", text), joined);
  }
  for (const char* bad : {"", "[]", "[::1", "::1]", "[[::1]]", "[::1]:80", "host:80", "10.0.0.1:80", "[host]", "a b",
                          "host\n", "a,b", "user@host", "http://host", "10.0.0.0/8", "fe80::1%a b", "::1%\n", "::1%"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseHost(bad).status())) << bad;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ParseHost(std::string("::1\0", 4)).status()));
  const absl::Status advertised = AddressForOthers("0.0.0.0:7", "host:80").status();
  EXPECT_NE(std::string(advertised.message()).find("--advertise: found host \"host:80\""), std::string::npos);
}

TEST(Network, AnInterfaceIsReplacedByItsAddress) {
  EXPECT_EQ(*AddressOfInterface("lo"), "127.0.0.1");
  for (const char* other : {"localhost", "127.0.0.1", "::1", "no-such-interface", ""}) {
    EXPECT_EQ(*AddressOfInterface(other), other);
  }
  EXPECT_NE(InterfacesText().find("lo (127.0.0.1)"), std::string::npos) << InterfacesText();
  // No name server is asked for a name with more than 63 letters.
  const absl::Status unknown = TcpNetwork().Listen(std::string(64, 'x') + ":0").status();
  EXPECT_TRUE(absl::IsInvalidArgument(unknown)) << unknown;
  EXPECT_NE(std::string(unknown.message()).find("the interfaces of this machine are " + InterfacesText()),
            std::string::npos)
      << unknown;
}

TEST(Network, ReadsReturnTheBytesInOrderAndThenUnavailable) {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  std::string sent(1'000'000, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7);
  std::thread client([&] {
    const auto connection = *TcpNetwork().Dial(listener->Address(), 600'000);
    EXPECT_TRUE(connection->Write({reinterpret_cast<const std::byte*>(sent.data()), sent.size()}).ok());
  });
  const auto connection = *listener->Accept();
  EXPECT_EQ(connection->Read({}).value_or(1), 0u) << "the peer has not closed the connection";
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

TEST(Network, TryWriteDetectsABrokenConnection) {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  const auto connection = *TcpNetwork().Dial(listener->Address(), 600'000);
  (*listener->Accept())->Shutdown();
  const std::string text = "abort";
  absl::StatusOr<size_t> written = 0;
  do {  // The first bytes may be sent before the peer's system answers that the connection is closed.
    written = connection->TryWrite({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  } while (written.ok());
  EXPECT_TRUE(absl::IsUnavailable(written.status())) << written.status();
}

TEST(Network, TryWriteReturnsZeroIfTheBufferIsFull) {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  const auto connection = *TcpNetwork().Dial(listener->Address(), 600'000);
  const auto peer = *listener->Accept();
  const std::string text(1 << 20, 'x');
  absl::StatusOr<size_t> written = 0;
  do {
    written = connection->TryWrite({reinterpret_cast<const std::byte*>(text.data()), text.size()});
    ASSERT_TRUE(written.ok()) << written.status();
  } while (*written > 0);
}

TEST(Network, PortInUseIsAlreadyExists) {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  const auto second = TcpNetwork().Listen(listener->Address());
  EXPECT_TRUE(absl::IsAlreadyExists(second.status()));
  EXPECT_NE(std::string(second.status().message()).find(listener->Address()), std::string::npos);
}

// Signals that arrive while a connection is being established must not end the attempt. The listener's queue is full,
// so the system drops further attempts.
TEST(Network, ASignalDoesNotEndADial) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  const std::string address = BoundAddress(listener);
  const auto queued = TcpNetwork().Dial(address, 600'000);
  ASSERT_TRUE(queued.ok()) << queued.status();
  pollfd full{listener, POLLIN, 0};
  ASSERT_EQ(poll(&full, 1, -1), 1) << "the only place of the listener is taken";
  struct sigaction interrupt{}, before{};
  interrupt.sa_handler = [](int) {};
  sigaction(SIGUSR1, &interrupt, &before);
  std::atomic<bool> done = false;
  std::thread sender([&, receiver = pthread_self()] {
    while (!done) {
      pthread_kill(receiver, SIGUSR1);
      std::this_thread::yield();
    }
  });
  const absl::Status status = TcpNetwork().Dial(address, 100).status();
  done = true;
  sender.join();
  sigaction(SIGUSR1, &before, nullptr);
  close(listener);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(std::string(status.message()).find(std::strerror(ETIMEDOUT)), std::string::npos) << status;
}

// The first address has a socket that does not listen, as if the host had an IPv6 address on which no server listens.
TEST(Network, ADialTriesAllAddressesOfAHost) {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  const int closed = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to[2]{};
  addrinfo addresses[2]{};
  for (int i = 0; i < 2; ++i) {
    to[i].sin_family = AF_INET;
    to[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    addresses[i].ai_family = AF_INET;
    addresses[i].ai_addr = reinterpret_cast<sockaddr*>(&to[i]);
    addresses[i].ai_addrlen = sizeof to[i];
  }
  ASSERT_EQ(bind(closed, addresses[0].ai_addr, sizeof to[0]), 0);
  to[0].sin_port = htons(ParseHostPort(BoundAddress(closed))->port);
  to[1].sin_port = htons(ParseHostPort(listener->Address())->port);
  const absl::Status refused = ConnectToAny(addresses[0], 600'000).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  addresses[0].ai_next = &addresses[1];
  const absl::StatusOr<int> fd = ConnectToAny(addresses[0], 600'000);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const auto client = AdoptSocket(*fd, "client");
  const auto server = *listener->Accept();
  const std::byte sent[1] = {std::byte{7}};
  std::byte received[1] = {};
  ASSERT_TRUE(client->Write(sent).ok());
  EXPECT_EQ(*server->Read(absl::MakeSpan(received)), 1u);
  EXPECT_EQ(received[0], sent[0]);
  close(closed);
}

TEST(Network, ShutdownWakesAccept) {
  const auto listener = *TcpNetwork().Listen("127.0.0.1:0");
  std::thread waiter([&] { EXPECT_TRUE(absl::IsCancelled(listener->Accept().status())); });
  listener->Shutdown();
  waiter.join();
}

TEST(Secret, IsEqualOnlyIfAllBytesAreEqual) {
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

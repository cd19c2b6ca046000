// Messages of many sizes, with and without descriptors, between two threads and between two processes.
#include "base/net/message_socket.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/process/spawn.h"
#include "base/random.h"
#include "base/testing/no_free_descriptors.h"

namespace xlad {
namespace {

struct Pair {
  Pair() : Pair(*MessageSocket::MakePair()) {}
  explicit Pair(std::pair<MessageSocket, MessageSocket> made) : a(std::move(made.first)), b(std::move(made.second)) {}
  MessageSocket a, b;
};

// Returns the write end of a pipe, and its read end through `read_end`.
FileDescriptor NewPipe(FileDescriptor* read_end) {
  Pipe pipe = *Pipe::Make();
  *read_end = std::move(pipe.read_end);
  return std::move(pipe.write_end);
}

TEST(MessageSocket, MessagesArriveInOrderWithTheirDescriptors) {
  const std::unique_ptr<Random> random = SeededRandom(3);
  Pair pair;
  constexpr int kMessages = 400;
  std::vector<std::string> texts;
  std::vector<FileDescriptor> read_ends(kMessages);
  for (int i = 0; i < kMessages; ++i) {
    const size_t size = random->Below(8) == 0 ? random->Below(300'000) : random->Below(100);
    texts.push_back(absl::StrCat(i, std::string(size, static_cast<char>('a' + i % 26))));
  }
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i) {
      pair.a.Queue(texts[i], i % 3 == 0 ? NewPipe(&read_ends[i]) : FileDescriptor());
      if (i % 5 == 0) ASSERT_TRUE(pair.a.SendAll().ok());
    }
    ASSERT_TRUE(pair.a.SendAll().ok());
  });
  for (int i = 0; i < kMessages; ++i) {
    auto message = pair.b.Receive();
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(message->bytes, texts[i]);
    ASSERT_EQ(message->descriptor.is_open(), i % 3 == 0) << i;
    if (i % 3 != 0) continue;
    ASSERT_EQ(write(message->descriptor.get(), &i, sizeof i), sizeof i);
  }
  sender.join();
  for (int i = 0; i < kMessages; i += 3) {
    int number = -1;
    ASSERT_EQ(read(read_ends[i].get(), &number, sizeof number), sizeof number);
    EXPECT_EQ(number, i) << "the descriptor came with its message";
  }
}

TEST(MessageSocket, MessagesSentBeforeTheEndArrive) {
  Pair pair;
  pair.a.Queue("last message");
  ASSERT_TRUE(pair.a.SendAll().ok());
  EXPECT_FALSE(pair.a.TryReceive()->has_value());
  { const MessageSocket gone = std::move(pair.a); }
  EXPECT_EQ(pair.b.Receive()->bytes, "last message");
  EXPECT_TRUE(absl::IsUnavailable(pair.b.Receive().status()));
  pair.b.Queue("too late");
  EXPECT_TRUE(absl::IsUnavailable(pair.b.SendAll()));
}

TEST(MessageSocket, DoesNotBlockIfThePeerDoesNotRead) {
  Pair pair;
  const std::string text(100'000, 'x');
  int sent = 0;
  while (true) {
    pair.a.Queue(text);
    ++sent;
    const absl::StatusOr<bool> all = pair.a.Flush();
    ASSERT_TRUE(all.ok());
    if (!*all) break;
    ASSERT_LT(sent, 1000) << "expected the socket to be full by now";
  }
  for (int i = 0; i < sent; ++i) {
    const auto message = pair.b.TryReceive();
    ASSERT_TRUE(message.ok());
    if (!message->has_value()) {  // The rest of this message has not been sent yet.
      ASSERT_TRUE(pair.a.Flush().ok());
      --i;
      continue;
    }
    EXPECT_EQ((*message)->bytes, text);
  }
}

// The limit on open files leaves no descriptor for the first message, of which only a part has been sent. The second
// message is sent after the limit has been restored. Its descriptor must not be given to the first message.
TEST(MessageSocket, ALostDescriptorIsAnErrorOfItsMessage) {
  Pair pair;
  const int buffer = 100'000;  // Some systems have larger buffers than the first message.
  ASSERT_EQ(setsockopt(pair.a.fd(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer), 0);
  FileDescriptor read_ends[2];
  pair.a.Queue(std::string(4'000'000, 'x'), NewPipe(&read_ends[0]));
  pair.a.Queue("second", NewPipe(&read_ends[1]));
  EXPECT_FALSE(*pair.a.Flush());
  {
    const NoFreeDescriptors none;
    EXPECT_TRUE(absl::IsResourceExhausted(pair.b.TryReceive().status()));
  }
  ASSERT_TRUE(pair.a.Flush().ok());
  EXPECT_TRUE(absl::IsResourceExhausted(pair.b.TryReceive().status()));
}

TEST(MessageSocket, AChildAnswers) {
  Pair pair;
  const auto child = Spawn({.argv = {"/bin/cat"}, .input = pair.b.fd(), .output = pair.b.fd()});
  ASSERT_TRUE(child.ok());
  pair.a.Queue("there and back");
  ASSERT_TRUE(pair.a.SendAll().ok());
  EXPECT_EQ(pair.a.Receive()->bytes, "there and back");
  SignalProcess(*child, SIGKILL);
  EXPECT_EQ(waitpid(child->pid, nullptr, 0), child->pid);
}

}  // namespace
}  // namespace xlad

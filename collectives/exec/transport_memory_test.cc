// The conformance suite of transports, second part: when each side may use which memory, aborts, and the end of a task.
#include <cstring>
#include <deque>
#include <future>

#include "base/random.h"
#include "collectives/exec/testing/transport_fixture.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

class TransportMemoryTest : public TransportTest {};

TEST_P(TransportMemoryTest, AbortWakesAllWaitingDevices) {
  TestWorld world = World();
  const int n = world.num_devices();
  std::atomic<int> woken = 0;
  world.Run([&](int device) {
    // All other devices connect to device 0 and wait for a message that device 0 never sends.
    if (device == 0) {
      for (int peer = 1; peer < n; ++peer) {
        ASSERT_TRUE((*world.transport(0).OpenSend(peer, 0))->Post(Header(0), {}).ok());
      }
      world.worker_of(0).abort.Raise({absl::DataLossError("device 0 gives up"), "w9"});
      return;
    }
    ReceiveLink* from = *world.transport(device).OpenReceive(0, 0);
    ASSERT_TRUE(from->Next().ok() || world.worker_of(device).abort.raised());
    const absl::Status status = from->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("device 0 gives up"));
    EXPECT_EQ(world.worker_of(device).abort.failure().suspect_worker, "w9");
    ++woken;
  });
  EXPECT_EQ(woken.load(), n - 1);
}

TEST_P(TransportMemoryTest, MemoryMayBeReusedAfterItsRelease) {
  for (const size_t size : {100, 50000}) {
    const auto send = [&](SendLink* link) {
      std::string buffer;
      for (int i = 0; i < 20; ++i) {
        buffer = Pattern(size, i);
        ASSERT_TRUE(link->Post(Header(0), {Bytes(buffer)}).ok());
        ASSERT_TRUE(link->WaitReleased(i + 1).ok());
        std::fill(buffer.begin(), buffer.end(), '!');
      }
    };
    TestWorld fresh = World();
    Between(&fresh, send, [&](ReceiveLink* link) {
      for (int i = 0; i < 20; ++i) EXPECT_EQ(Take(link), Pattern(size, i));
    });
  }
}

TEST_P(TransportMemoryTest, WaitingForNoMessagesReturnsAtOnce) {
  TestWorld world = World();
  Between(&world, [](SendLink* link) { EXPECT_TRUE(link->WaitReleased(0).ok()); }, [](ReceiveLink*) {});
}

TEST_P(TransportMemoryTest, HeldMessagesStayValid) {
  TestWorld world = World();
  const auto send = [&](SendLink* link) {
    std::vector<std::string> texts;
    for (int i = 0; i < 40; ++i) texts.push_back(Pattern(i % 2 == 0 ? 30000 : 300, i));
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(link->Post(Header(0), {Bytes(texts[i])}).ok());
    ASSERT_TRUE(link->WaitReleased(40).ok());
  };
  Between(&world, send, [&](ReceiveLink* link) {
    std::deque<Incoming> held;
    for (int i = 0; i < 40; ++i) {
      held.push_back(*link->Next());
      if (held.size() < 3) continue;
      EXPECT_EQ(Text(held.front()), Pattern((i - 2) % 2 == 0 ? 30000 : 300, i - 2));
      held.pop_front();
      ASSERT_TRUE(link->Release().ok());
    }
    ASSERT_TRUE(link->Release().ok());
    ASSERT_TRUE(link->Release().ok());
  });
}

// The sender starts when the receive has been posted.
TEST_P(TransportMemoryTest, ReceivesInPlace) {
  for (const size_t size : {64, 20000, 1 << 20}) {
    TestWorld world = World();
    std::promise<void> posted;
    const auto send = [&](SendLink* link) {
      posted.get_future().wait();
      const std::string text = Pattern(size, 1);
      ASSERT_TRUE(link->Post(Header(0), {Bytes(text)}).ok());
      ASSERT_TRUE(link->WaitReleased(1).ok());
    };
    Between(&world, send, [&](ReceiveLink* link) {
      std::string memory(size, '?');
      link->PostInto(Memory(&memory));
      posted.set_value();
      const auto message = link->Next();
      ASSERT_TRUE(message.ok()) << message.status();
      EXPECT_EQ(Text(*message), Pattern(size, 1));
      const bool in_place = message->pieces[0].data() == Memory(&memory).data();
      EXPECT_EQ(in_place, link->ReceivesInPlace());
      EXPECT_EQ(memory == Pattern(size, 1), in_place);
      ASSERT_TRUE(link->Release().ok());
    });
  }
}

TEST_P(TransportMemoryTest, MemoryOfAnotherSizeIsNotWritten) {
  for (const size_t size : {999, 1001, 1}) {
    TestWorld world = World();
    const std::string text = Pattern(1000, 2);
    Between(
        &world, [&](SendLink* link) { ASSERT_TRUE(link->Post(Header(0), {Bytes(text)}).ok()); },
        [&](ReceiveLink* link) {
          std::string memory(size, '?');
          link->PostInto(Memory(&memory));
          EXPECT_EQ(Take(link), text);
          EXPECT_EQ(memory, std::string(size, '?'));
        });
  }
}

TEST_P(TransportMemoryTest, PostedMemoryIsForOneMessageOnly) {
  TestWorld world = World();
  const auto send = [&](SendLink* link) {
    for (int i = 0; i < 3; ++i) {
      const std::string text = Pattern(1000, i);
      ASSERT_TRUE(link->Post(Header(0), {Bytes(text)}).ok());
      ASSERT_TRUE(link->WaitReleased(i + 1).ok());
    }
  };
  Between(&world, send, [&](ReceiveLink* link) {
    std::string memory(1000, '?');
    link->PostInto(Memory(&memory));
    EXPECT_EQ(Take(link), Pattern(1000, 0));
    memory.assign(1000, '?');
    for (int i = 1; i < 3; ++i) EXPECT_EQ(Take(link), Pattern(1000, i));
    EXPECT_EQ(memory, std::string(1000, '?'));
  });
}

TEST_P(TransportMemoryTest, RegisteredMemoryIsSent) {
  TestWorld world = World();
  const auto run = [&](int device) {
    if (device > 1) return;
    std::string memory = Pattern(300000, device);
    Transport& transport = world.transport(device);
    const auto registered = transport.Register(Memory(&memory), MemoryKind::kHost);
    ASSERT_TRUE(registered.ok()) << registered.status();
    EXPECT_EQ((*registered)->memory().data(), Memory(&memory).data());
    EXPECT_EQ((*registered)->kind(), MemoryKind::kHost);
    SendLink* const to = *transport.OpenSend(1 - device, 0);
    ASSERT_TRUE(to->Post(Header(0), {Bytes(memory)}).ok());
    EXPECT_EQ(Take(*transport.OpenReceive(1 - device, 0)), Pattern(300000, 1 - device));
    ASSERT_TRUE(to->WaitReleased(1).ok());
  };
  world.Run(run);
}

TEST_P(TransportMemoryTest, MemoryOfDevicesIsRefused) {
  TestWorld world = World();
  std::string memory(10, ' ');
  const absl::Status status = world.transport(0).Register(Memory(&memory), MemoryKind::kDevice).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
}

// A write through a window changes the memory of the peer. A transport without windows returns an error that names the
// device.
TEST_P(TransportMemoryTest, WindowsShowTheMemoryOfThePeerOrAreRefused) {
  TestWorld world = World();
  std::string memory = Pattern(5000, 9);
  const auto registered = world.transport(1).Register(Memory(&memory), MemoryKind::kHost);
  ASSERT_TRUE(registered.ok());
  const auto window = world.transport(0).OpenWindow(1, (*registered)->key());
  if (!window.ok()) {
    EXPECT_TRUE(absl::IsUnimplemented(window.status())) << window.status();
    EXPECT_THAT(std::string(window.status().message()), HasSubstr("device 1"));
    return;
  }
  EXPECT_EQ(std::memcmp(window->data(), memory.data(), 5000), 0);
  (*window)[17] = std::byte{0};
  EXPECT_EQ(memory[17], 0);
}

TEST_P(TransportMemoryTest, UnknownWindowsAreRefused) {
  TestWorld world = World();
  EXPECT_FALSE(world.transport(0).OpenWindow(1, "").ok());
  EXPECT_FALSE(world.transport(0).OpenWindow(1, "99").ok());
}

TEST_P(TransportMemoryTest, AbortWakesASenderWithoutSlots) {
  TestWorld world = World(/*slots=*/2);
  std::atomic<int> posted = 0;
  world.Run([&](int device) {
    if (device == 0) {
      const std::string text = Pattern(20000, 1);
      SendLink* const link = *world.transport(0).OpenSend(1, 0);
      absl::Status status;
      while (status.ok()) {
        status = link->Post(Header(0), {Bytes(text)});
        if (status.ok()) ++posted;
      }
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      link->Revoke();
    } else if (device == 1) {
      ReceiveLink* const link = *world.transport(1).OpenReceive(0, 0);
      ASSERT_TRUE(link->Next().ok());
      while (posted < 2) world.transport(1).Poll();  // The sender may need a slot that the receiver frees in Poll.
      world.worker_of(1).abort.Raise({absl::DataLossError("device 1 gives up"), ""});
      link->Release().IgnoreError();
    }
  });
  EXPECT_LE(posted, 3);
}

TEST_P(TransportMemoryTest, AbortEndsAPostedReceive) {
  TestWorld world = World();
  world.Run([&](int device) {
    if (device == 0) {
      ASSERT_TRUE((*world.transport(0).OpenSend(1, 0))->Post(Header(0), {}).ok());
      world.worker_of(0).abort.Raise({absl::DataLossError("device 0 gives up"), ""});
    } else if (device == 1) {
      ReceiveLink* const link = *world.transport(1).OpenReceive(0, 0);
      std::string memory(100000, '?');
      absl::Status status;
      while (status.ok()) {
        link->PostInto(Memory(&memory));
        const auto message = link->Next();
        status = message.status();
        if (message.ok()) ASSERT_TRUE(link->Release().ok() || world.worker_of(1).abort.raised());
      }
      EXPECT_THAT(std::string(status.message()), HasSubstr("device 0 gives up"));
    }
  });
}

TEST_P(TransportMemoryTest, AllCallsFailAfterAnAbort) {
  TestWorld world = World();
  Between(
      &world, [](SendLink* link) { ASSERT_TRUE(link->Post(Header(0), {}).ok()); },
      [](ReceiveLink* link) { EXPECT_EQ(Take(link), ""); });
  for (int device = 0; device < world.num_devices(); ++device) {
    world.worker_of(device).abort.Raise({absl::DataLossError("enough"), ""});
  }
  Between(
      &world,
      [](SendLink* link) {
        while (link->Post(Header(0), {}).ok()) continue;
        EXPECT_FALSE(link->Post(Header(0), {}).ok());
        link->Revoke();
      },
      [](ReceiveLink* link) {
        while (true) {
          const auto message = link->Next();
          if (!message.ok()) break;
          link->Release().IgnoreError();
        }
        EXPECT_FALSE(link->Next().ok());
      });
}

TEST_P(TransportMemoryTest, WorldsAreIndependent) {
  TestWorld first = World(), second = World();
  first.worker_of(0).abort.Raise({absl::DataLossError("only the first"), ""});
  Between(
      &second, [](SendLink* link) { ASSERT_TRUE(link->Post(Header(0), {}).ok()); },
      [](ReceiveLink* link) { EXPECT_EQ(Take(link), ""); });
}

TEST_P(TransportMemoryTest, FinishSucceedsWhenAllMessagesWereReleased) {
  TestWorld world = World();
  const int n = world.num_devices();
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int w = 0; w < std::ssize(GetParam().placement); ++w) {
    threads.emplace_back([&, w] {
      std::vector<std::thread> devices;
      for (const int device : GetParam().placement[w]) {
        devices.emplace_back([&, device] {
          SendLink* const to = *world.transport(device).OpenSend((device + 1) % n, 0);
          const std::string text = Pattern(50000, device);
          ASSERT_TRUE(to->Post(Header(0), {Bytes(text)}).ok());
          EXPECT_EQ(Take(*world.transport(device).OpenReceive((device + n - 1) % n, 0)),
                    Pattern(50000, (device + n - 1) % n));
          ASSERT_TRUE(to->WaitReleased(1).ok());
        });
      }
      for (std::thread& thread : devices) thread.join();
      EXPECT_TRUE(world.worker(w).fabric->Finish().ok());
      EXPECT_FALSE(world.worker(w).abort.raised());
      ++done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, std::ssize(GetParam().placement));
}

INSTANTIATE_TEST_SUITE_P(Memory, TransportMemoryTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace xlad::collectives

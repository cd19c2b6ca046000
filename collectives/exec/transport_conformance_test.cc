// The conformance suite of transports, first part: which messages arrive, and with which contents. Every transport must
// pass all tests. To test a new transport, add a case to Cases() in testing/transport_fixture.h.
#include <algorithm>
#include <cstring>
#include <deque>
#include <future>

#include "base/random.h"
#include "collectives/exec/testing/transport_fixture.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

TEST_P(TransportTest, DeliversInOrderWithManyMessagesInFlight) {
  TestWorld world = World();
  const int n = world.num_devices();
  world.Run([&](int device) {
    const int next = (device + 1) % n, previous = (device + n - 1) % n;
    SendLink* to = *world.transport(device).OpenSend(next, 0);
    ReceiveLink* from = *world.transport(device).OpenReceive(previous, 0);
    for (uint32_t i = 0; i < 300; ++i) {
      const std::string payload(i * 37 % 9000, static_cast<char>('a' + i % 26));
      ASSERT_TRUE(to->Post(Header(i), {Bytes(payload)}).ok());
      const absl::StatusOr<Incoming> message = from->Next();
      ASSERT_TRUE(message.ok()) << message.status();
      EXPECT_EQ(message->header, Header(i));
      EXPECT_EQ(Text(*message), payload);
      ASSERT_TRUE(from->Release().ok());
      ASSERT_TRUE(to->WaitReleased(i + 1).ok());
    }
  });
}

TEST_P(TransportTest, SlotsBoundTheSenderAndSeveralMessagesMayBeHeld) {
  TestWorld world = World();
  std::atomic<int> posted = 0;
  std::promise<void> held;
  world.Run([&](int device) {
    const std::string big(20000, 'x'), end = "!";
    if (device == 0) {
      SendLink* to = *world.transport(0).OpenSend(1, 5);
      for (uint32_t i = 0; i < 12; ++i) {
        ASSERT_TRUE(to->Post(Header(i), {Bytes(big), Bytes(end)}).ok());
        ++posted;
      }
      ASSERT_TRUE(to->WaitReleased(12).ok());
    } else if (device == 1) {
      ReceiveLink* from = *world.transport(1).OpenReceive(0, 5);
      std::vector<Incoming> messages;
      for (int i = 0; i < 4; ++i) messages.push_back(*from->Next());
      EXPECT_LE(posted.load(), 4);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(messages[i].header.index, i);
        EXPECT_EQ(Text(messages[i]), big + "!");
      }
      for (int i = 0; i < 4; ++i) ASSERT_TRUE(from->Release().ok());
      for (int i = 4; i < 12; ++i) {
        EXPECT_EQ(Text(*from->Next()), big + "!");
        ASSERT_TRUE(from->Release().ok());
      }
    }
  });
}

TEST_P(TransportTest, ChannelsAreIndependent) {
  TestWorld world = World();
  world.Run([&](int device) {
    if (device == 0) {
      for (int channel : {2, 1, 0}) {
        SendLink* to = *world.transport(0).OpenSend(1, channel);
        ASSERT_TRUE(to->Post(Header(0), {Bytes(absl::StrCat("channel ", channel))}).ok());
        ASSERT_TRUE(to->Post(Header(1), {}).ok());
      }
      // The payloads above may be temporaries, because every transport copies small messages.
    } else if (device == 1) {
      for (int channel : {0, 1, 2}) {
        ReceiveLink* from = *world.transport(1).OpenReceive(0, channel);
        EXPECT_EQ(Text(*from->Next()), absl::StrCat("channel ", channel));
        EXPECT_EQ(Text(*from->Next()), "");
        ASSERT_TRUE(from->Release().ok());
        ASSERT_TRUE(from->Release().ok());
      }
    }
  });
}

// The messages are many times as large as all buffers between the devices. A ring of 200 bytes would take seconds for 8
// MiB, because the sender wakes the receiver for each frame.
TEST_P(TransportTest, LargeMessagesBothWaysAtOnce) {
  const int64_t ring_bytes = GetParam().ring_bytes;
  const int64_t bytes = ring_bytes == 0 ? 8 << 20 : std::min<int64_t>(8 << 20, 500 * ring_bytes);
  TestWorld world = World();
  world.Run([&](int device) {
    if (device > 1) return;
    const int peer = 1 - device;
    std::vector<std::byte> mine(bytes, static_cast<std::byte>(device + 1));
    SendLink* to = *world.transport(device).OpenSend(peer, 0);
    ReceiveLink* from = *world.transport(device).OpenReceive(peer, 0);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(to->Post(Header(i), {ConstPiece(mine)}).ok());
    for (int i = 0; i < 3; ++i) {
      const Incoming message = *from->Next();
      EXPECT_EQ(message.bytes, bytes);
      EXPECT_EQ(message.pieces.back().back(), static_cast<std::byte>(peer + 1));
      ASSERT_TRUE(from->Release().ok());
    }
    ASSERT_TRUE(to->WaitReleased(3).ok());
  });
}

TEST_P(TransportTest, RefusesInvalidLinks) {
  TestWorld world = World();
  EXPECT_FALSE(world.transport(0).OpenSend(99, 0).ok());
  EXPECT_FALSE(world.transport(0).OpenReceive(0, 0).ok());
  EXPECT_FALSE(world.transport(0).OpenSend(1, -1).ok());
  EXPECT_FALSE(world.transport(0).OpenSend(1, kMaxChannels).ok());
}

TEST_P(TransportTest, SizesAroundEveryThreshold) {
  TestWorld world = World();
  std::vector<size_t> sizes;
  for (const size_t size : {0, 64, 200, 4096, 8192, 16384, 65536, 262144, 1 << 20}) {
    for (const int more : {-1, 0, 1}) {
      if (size > 0 || more >= 0) sizes.push_back(size + more);
    }
  }
  const auto send = [&](SendLink* link) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::string text = Pattern(sizes[i], i);
      ASSERT_TRUE(link->Post(Header(0), {Bytes(text)}).ok());
      ASSERT_TRUE(link->WaitReleased(static_cast<int64_t>(i) + 1).ok());
    }
  };
  Between(&world, send, [&](ReceiveLink* link) {
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(Take(link), Pattern(sizes[i], i)) << sizes[i];
  });
}

TEST_P(TransportTest, PiecesAreJoined) {
  TestWorld world = World();
  for (const size_t size : {7, 8191, 100003}) {
    const std::string all = Pattern(size, 5);
    const auto send = [&](SendLink* link) {
      std::vector<ConstPiece> pieces;
      for (size_t at = 0, step = 1; at < size; at += step, step = step * 3 + 1) {
        pieces.push_back({});
        pieces.push_back(Bytes(all).subspan(at, std::min(step, size - at)));
      }
      ASSERT_TRUE(link->Post(Header(0), pieces).ok());
      ASSERT_TRUE(link->WaitReleased(1).ok());
    };
    Between(&world, send, [&](ReceiveLink* link) { EXPECT_EQ(Take(link), all); });
  }
}

TEST_P(TransportTest, HeadersArriveUnchanged) {
  TestWorld world = World();
  const auto header = [](uint64_t i) {
    const std::unique_ptr<Random> random = SeededRandom(i);
    MessageHeader made;
    made.step = static_cast<int64_t>(random->Next());
    made.iteration = random->Next();
    made.schedule_hash = random->Next();
    made.spec = static_cast<uint32_t>(random->Next());
    made.sequence = static_cast<uint32_t>(random->Next());
    made.index = static_cast<uint32_t>(random->Next());
    made.checksum = static_cast<uint32_t>(random->Next());
    return made;
  };
  const auto send = [&](SendLink* link) {
    for (uint64_t i = 0; i < 50; ++i) ASSERT_TRUE(link->Post(header(i), {}).ok());
  };
  Between(&world, send, [&](ReceiveLink* link) {
    for (uint64_t i = 0; i < 50; ++i) {
      const auto message = link->Next();
      ASSERT_TRUE(message.ok());
      EXPECT_EQ(message->header, header(i));
      ASSERT_TRUE(link->Release().ok());
    }
  });
}

TEST_P(TransportTest, TheSameArgumentsGiveTheSameLink) {
  TestWorld world = World();
  world.Run([&](int device) {
    if (device > 1) return;
    Transport& transport = world.transport(device);
    EXPECT_EQ(*transport.OpenSend(1 - device, 4), *transport.OpenSend(1 - device, 4));
    EXPECT_NE(*transport.OpenSend(1 - device, 4), *transport.OpenSend(1 - device, 5));
    EXPECT_EQ(*transport.OpenReceive(1 - device, 4), *transport.OpenReceive(1 - device, 4));
  });
}

TEST_P(TransportTest, PollReturnsWithoutMessages) {
  TestWorld world = World();
  world.Run([&](int device) {
    for (int i = 0; i < 1000; ++i) world.transport(device).Poll();
  });
}

TEST_P(TransportTest, PeersAreDescribedByTheirDevice) {
  TestWorld world = World();
  EXPECT_THAT(world.transport(0).Describe(1), HasSubstr("device 1"));
}

TEST_P(TransportTest, EveryDeviceSendsToEveryOther) {
  TestWorld world = World();
  const int n = world.num_devices();
  world.Run([&](int device) {
    std::vector<std::string> texts;
    for (int peer = 0; peer < n; ++peer) texts.push_back(Pattern(20000 + device * 100 + peer, device * n + peer));
    for (int peer = 0; peer < n; ++peer) {
      if (peer == device) continue;
      ASSERT_TRUE((*world.transport(device).OpenSend(peer, 1))->Post(Header(0), {Bytes(texts[peer])}).ok());
    }
    for (int peer = n - 1; peer >= 0; --peer) {
      if (peer == device) continue;
      EXPECT_EQ(Take(*world.transport(device).OpenReceive(peer, 1)),
                Pattern(20000 + peer * 100 + device, peer * n + device));
    }
    for (int peer = 0; peer < n; ++peer) {
      if (peer != device) ASSERT_TRUE((*world.transport(device).OpenSend(peer, 1))->WaitReleased(1).ok());
    }
  });
}

TEST_P(TransportTest, AnswersFollowQuestions) {
  TestWorld world = World();
  world.Run([&](int device) {
    if (device > 1) return;
    SendLink* const to = *world.transport(device).OpenSend(1 - device, 0);
    ReceiveLink* const from = *world.transport(device).OpenReceive(1 - device, 0);
    for (int i = 0; i < 300; ++i) {
      const std::string text = Pattern(8, 2 * i + device);
      if (device == 0) ASSERT_TRUE(to->Post(Header(0), {Bytes(text)}).ok());
      EXPECT_EQ(Take(from), Pattern(8, 2 * i + 1 - device));
      if (device == 1) ASSERT_TRUE(to->Post(Header(0), {Bytes(text)}).ok());
    }
  });
}

TEST_P(TransportTest, ManyChannels) {
  TestWorld world = World();
  constexpr int kChannels = 64;
  world.Run([&](int device) {
    if (device == 0) {
      for (int channel = 0; channel < kChannels; ++channel) {
        const std::string text = Pattern(100, channel);
        ASSERT_TRUE((*world.transport(0).OpenSend(1, channel))->Post(Header(0), {Bytes(text)}).ok());
      }
    } else if (device == 1) {
      for (int channel = kChannels - 1; channel >= 0; --channel) {
        EXPECT_EQ(Take(*world.transport(1).OpenReceive(0, channel)), Pattern(100, channel));
      }
    }
  });
}

TEST_P(TransportTest, TheLastChannel) {
  TestWorld world = World();
  const std::string text = Pattern(100, 3);
  world.Run([&](int device) {
    if (device == 0) {
      ASSERT_TRUE((*world.transport(0).OpenSend(1, kMaxChannels - 1))->Post(Header(0), {Bytes(text)}).ok());
    } else if (device == 1) {
      EXPECT_EQ(Take(*world.transport(1).OpenReceive(0, kMaxChannels - 1)), text);
    }
  });
}

TEST_P(TransportTest, OneSlot) {
  TestWorld world = World(/*slots=*/1);
  const auto send = [&](SendLink* link) {
    for (int i = 0; i < 50; ++i) {
      const std::string text = Pattern(i * 700, i);
      ASSERT_TRUE(link->Post(Header(0), {Bytes(text)}).ok());
      ASSERT_TRUE(link->WaitReleased(i + 1).ok());
    }
  };
  Between(&world, send, [&](ReceiveLink* link) {
    for (int i = 0; i < 50; ++i) EXPECT_EQ(Take(link), Pattern(i * 700, i));
  });
}

// In each round every device sends and receives one message of random size on each channel, in random order.
TEST_P(TransportTest, RandomTraffic) {
  TestWorld world = World();
  const int n = world.num_devices();
  constexpr int kChannels = 3, kRounds = 60;
  const auto size = [](int from, int channel, int round) {
    return SeededRandom(from * 1000003 + channel * 1009 + round)->Below(round % 7 == 0 ? 70000 : 5000);
  };
  world.Run([&](int device) {
    const int next = (device + 1) % n, previous = (device + n - 1) % n;
    const std::unique_ptr<Random> random = SeededRandom(device);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::string> texts;
      for (int channel = 0; channel < kChannels; ++channel)
        texts.push_back(Pattern(size(device, channel, round), round));
      for (const uint64_t first = random->Below(kChannels); int k : {0, 1, 2}) {
        const int channel = static_cast<int>((first + k) % kChannels);
        SendLink* const to = *world.transport(device).OpenSend(next, channel);
        ASSERT_TRUE(to->Post(Header(round), {Bytes(texts[channel])}).ok());
      }
      for (const uint64_t first = random->Below(kChannels); int k : {0, 2, 1}) {
        const int channel = static_cast<int>((first + k) % kChannels);
        EXPECT_EQ(Take(*world.transport(device).OpenReceive(previous, channel)),
                  Pattern(size(previous, channel, round), round));
      }
      for (int channel = 0; channel < kChannels; ++channel) {
        ASSERT_TRUE((*world.transport(device).OpenSend(next, channel))->WaitReleased(round + 1).ok());
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, TransportTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace xlad::collectives

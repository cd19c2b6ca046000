// The test worlds in which the conformance suites of transports run.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "collectives/exec/testing/test_world.h"
#include "collectives/exec/transports/frame.h"
#include "collectives/exec/transports/plugin/load.h"
#include "collectives/exec/transports/skeleton/skeleton.h"

namespace xlad::collectives {

struct TransportCase {
  std::string name;
  DevicesOfWorkers placement;
  size_t ring_bytes = 0;  // The size of the rings in shared memory, or 0 to use none.
  std::string plugin;  // The name of the plugin, or empty for no plugin. "skeleton" is linked into the tests.
};

inline const DevicesOfWorkers kApart = {{0}, {1}, {2}, {3}};
inline const DevicesOfWorkers kMixed = {{0, 2}, {1, 3, 4}};

// Returns cases for every transport. A ring of 200 bytes has room for one frame with a payload of at most 136 bytes, so
// it tests larger payloads, which are split, and frames that wrap around.
inline std::vector<TransportCase> Cases() {
  return {{"in_process", {{0, 1, 2, 3}}},
          {"tcp", kApart},
          {"shared", kApart, 256 << 10},
          {"shared_small", kApart, 200},
          {"mixed", kMixed},
          {"mixed_shared", kMixed, 4096},
          {"skeleton", kApart, 0, "skeleton"},
          {"mixed_skeleton", kMixed, 0, "skeleton"},
          {"ucx", kApart, 0, "ucx"},
          {"mixed_ucx", kMixed, 0, "ucx"},
          {"openmpi", kApart, 0, "openmpi"}};
}

class TransportTest : public ::testing::TestWithParam<TransportCase> {
 protected:
  // Skips the tests of a plugin that was not built.
  void SetUp() override {
    choice_.shares_memory = GetParam().ring_bytes > 0;
    if (GetParam().plugin.empty()) return;
    if (GetParam().plugin == "skeleton") {
      choice_.plugin = SkeletonTransport();
      return;
    }
    const auto loaded = LoadPlugin({GetParam().plugin, "-", "-"});
    if (absl::IsNotFound(loaded.status())) GTEST_SKIP() << loaded.status();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    choice_.plugin = *loaded;
  }

  TestWorld World(int slots = 4) const {
    return TestWorld(GetParam().placement, TestWorld::Options{slots, GetParam().ring_bytes, choice_, nullptr});
  }

  static ConstPiece Bytes(const std::string& text) { return AsBytes(text); }
  static absl::Span<std::byte> Memory(std::string* text) {
    return {reinterpret_cast<std::byte*>(text->data()), text->size()};
  }
  static std::string Text(const Incoming& message) {
    std::string text;
    for (const ConstPiece& piece : message.pieces) {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    EXPECT_EQ(std::ssize(text), message.bytes);
    return text;
  }
  // Receives one message, releases it, and returns its text.
  static std::string Take(ReceiveLink* link) {
    const absl::StatusOr<Incoming> message = link->Next();
    EXPECT_TRUE(message.ok()) << message.status();
    if (!message.ok()) return "";
    const std::string text = Text(*message);
    EXPECT_TRUE(link->Release().ok());
    return text;
  }
  static MessageHeader Header(uint32_t index) {
    MessageHeader header;
    header.step = -3;
    header.index = index;
    return header;
  }
  // Returns a text of `size` bytes that depends on `seed` modulo 256.
  static std::string Pattern(size_t size, uint64_t seed) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(seed * 31 + i * 7 + i / 251);
    return text;
  }
  // Runs `send` on device 0 with a link to device 1, and `receive` on device 1.
  static void Between(TestWorld* world, const std::function<void(SendLink*)>& send,
                      const std::function<void(ReceiveLink*)>& receive) {
    world->Run([&](int device) {
      if (device == 0) send(*world->transport(0).OpenSend(1, 3));
      if (device == 1) receive(*world->transport(1).OpenReceive(0, 3));
    });
  }

  TransportChoice choice_;
};

}  // namespace xlad::collectives

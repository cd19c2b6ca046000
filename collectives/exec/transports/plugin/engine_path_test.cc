// Frames whose sizes are wrong, from a library that receives everything at once or only when it is asked.
#include "collectives/exec/transports/plugin/engine_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

// What the library receives. It has one engine with one peer, and refuses nothing.
struct Library {
  std::deque<std::string> heads;
  size_t head_bytes = 0;  // If positive, the reported size of a head.
  size_t body_bytes = 0;  // The reported size of each body.
  bool is_fast = true;    // Whether receives of bodies end at once.
};
Library* library = nullptr;

char engine_tag, peer_tag, head_tag, body_tag;
constexpr char kAddress[] = "here";

int Open(const xlad_transport_options*, xlad_transport_engine** engine, xlad_transport_error*) {
  *engine = reinterpret_cast<xlad_transport_engine*>(&engine_tag);
  return XLAD_TRANSPORT_OK;
}
void Close(xlad_transport_engine*) {}
int Address(xlad_transport_engine*, const void** data, size_t* bytes, xlad_transport_error*) {
  *data = kAddress;
  *bytes = sizeof kAddress;
  return XLAD_TRANSPORT_OK;
}
int Connect(xlad_transport_engine*, const xlad_transport_target*, xlad_transport_peer** peer, xlad_transport_error*) {
  *peer = reinterpret_cast<xlad_transport_peer*>(&peer_tag);
  return XLAD_TRANSPORT_OK;
}
void Disconnect(xlad_transport_engine*, xlad_transport_peer*, int32_t) {}
int Post(xlad_transport_engine*, const xlad_transport_message*, xlad_transport_request**, xlad_transport_error*) {
  return XLAD_TRANSPORT_OK;
}
int PostReceive(xlad_transport_engine*, const xlad_transport_message* message, xlad_transport_request** request,
                size_t* received, xlad_transport_error*) {
  const bool is_head = message->stream == Engine::kHeads;
  if (is_head ? library->heads.empty() : !library->is_fast) {
    *request = reinterpret_cast<xlad_transport_request*>(is_head ? &head_tag : &body_tag);
    return XLAD_TRANSPORT_PENDING;
  }
  *received = library->body_bytes;
  if (is_head) {
    const std::string head = library->heads.front();
    library->heads.pop_front();
    std::memcpy(message->to, head.data(), head.size());
    *received = library->head_bytes > 0 ? library->head_bytes : head.size();
  }
  return XLAD_TRANSPORT_OK;
}
int Test(xlad_transport_engine*, xlad_transport_request* request, size_t* received, xlad_transport_error*) {
  if (request == reinterpret_cast<xlad_transport_request*>(&head_tag)) return XLAD_TRANSPORT_PENDING;
  *received = library->body_bytes;
  return XLAD_TRANSPORT_OK;
}
std::atomic<int> progress_result = 0;  // The engine's thread reads it, too.
int FakeProgress(xlad_transport_engine*) { return progress_result; }

constexpr xlad_transport_api kApi = {XLAD_TRANSPORT_ABI,
                                     sizeof(xlad_transport_api),
                                     0,
                                     "fake",
                                     "Fake 1",
                                     Open,
                                     Close,
                                     Address,
                                     Connect,
                                     Disconnect,
                                     Post,
                                     PostReceive,
                                     Test,
                                     FakeProgress,
                                     nullptr,
                                     nullptr,
                                     nullptr};

class Sink final : public FrameSink {
 public:
  absl::StatusOr<FrameBuffer> OnHead(const FrameHead& head) override {
    FrameBuffer buffer;
    buffer.owned = std::make_unique<std::byte[]>(head.bytes);
    buffer.data = buffer.owned.get();
    buffer.capacity = head.bytes;
    return buffer;
  }
  void OnFrame(const FrameHead& head, FrameBuffer) override { delivered.push_back(head.bytes); }

  std::vector<uint64_t> delivered;
};

std::string HeadOf(uint64_t bytes) {
  FrameHead head;
  head.bytes = bytes;
  return std::string(reinterpret_cast<const char*>(&head), sizeof head);
}

// Receives one frame. Returns the message of the error, or "" if the frame is delivered.
std::string Received(Library made) {
  library = &made;
  auto engine = Engine::Open(&kApi, 0, false);
  EXPECT_TRUE(engine.ok()) << engine.status();
  EnginePath path(engine->get(), 1, "there");
  Sink sink;
  const absl::Status status = path.Receive(&sink).status();
  EXPECT_EQ(sink.delivered.size(), status.ok() ? 1u : 0u);
  if (!status.ok()) EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  return std::string(status.message());
}

TEST(EnginePath, BodiesHaveTheSizeThatTheirHeadsAnnounce) {
  constexpr uint64_t kBytes = EnginePath::kInlineBytes + 1000;
  for (const bool is_fast : {true, false}) {
    EXPECT_EQ(Received({{HeadOf(kBytes)}, 0, kBytes, is_fast}), "");
    for (const uint64_t found : {uint64_t{0}, kBytes - 1, kBytes + 1}) {
      EXPECT_THAT(Received({{HeadOf(kBytes)}, 0, found, is_fast}),
                  HasSubstr(absl::StrCat("found a payload of ", found, " bytes, expected ", kBytes)));
    }
  }
}

TEST(EnginePath, HeadsHaveTheSizeOfTheirFrames) {
  EXPECT_EQ(Received({{HeadOf(3) + "abc"}, 0, 0, true}), "");
  EXPECT_THAT(Received({{HeadOf(3) + "ab"}, 0, 0, true}),
              HasSubstr("found a frame of 66 bytes for a message of 3 bytes, expected 67"));
  EXPECT_THAT(Received({{HeadOf(100000) + "ab"}, 0, 0, true}),
              HasSubstr("found a frame of 66 bytes for a message of 100000 bytes, expected 64"));
  EXPECT_THAT(Received({{"abc"}, 0, 0, true}), HasSubstr("found a frame of 3 bytes, expected 64 to 8256"));
  EXPECT_THAT(Received({{HeadOf(3)}, 9000, 0, true}), HasSubstr("found a frame of 9000 bytes, expected 64 to 8256"));
}

// A library may always report progress, or never, so Receive distinguishes what is reported from what is certain.
TEST(EnginePath, ReceiveReturnsWhichProgressThereWas) {
  Library made{{HeadOf(0)}, 0, 0, true};
  library = &made;
  const auto engine = *Engine::Open(&kApi, 0, false);
  EnginePath path(engine.get(), 1, "there");
  Sink sink;
  EXPECT_EQ(*path.Receive(&sink), Progress::kMade) << "a head arrived";
  EXPECT_EQ(sink.delivered.size(), 1u);
  EXPECT_EQ(*path.Receive(&sink), Progress::kNone);
  progress_result = 1;
  EXPECT_EQ(*path.Receive(&sink), Progress::kReported);
  progress_result = 0;
  EXPECT_EQ(*path.Receive(&sink), Progress::kNone);
}

}  // namespace
}  // namespace xlad::collectives

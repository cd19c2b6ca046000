// Checkpoints of random states on random meshes. They are damaged, truncated, and read by workers other than those that
// wrote them.
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/testing/test_folder.h"
#include "base/utf8.h"
#include "gmock/gmock.h"
#include "storage/checkpoint_folder.h"
#include "storage/checkpoint_index.h"
#include "storage/checkpoint_shard.h"
#include "storage/export.h"
#include "storage/store.h"
#include "storage/testing/checkpoints.h"
#include "storage/testing/memory_files.h"
#include "tensor/wire.h"

namespace xlad::storage {
namespace {

using tensor::Array;
using tensor::Box;
using tensor::ElementType;
using ::testing::HasSubstr;

std::string NameOf(const std::string& folder) { return folder.substr(folder.rfind('/') + 1); }

TEST(Checkpoint, IsReadOnAnyOtherMesh) {
  Random random(5);
  for (int round = 0; round < 150; ++round) {
    const int64_t workers = 1 + random() % 4, devices_each = 1 + random() % 3;
    State state = RandomState(random, workers * devices_each);
    MemoryFiles files;
    const auto folder = WriteCheckpoint(files, state, workers, devices_each, {"job", 1, round});
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_TRUE(Store(files).VerifyCheckpoint(FileUri(*folder)).ok());
    for (const int64_t devices : {1, 2, 3, 4, 6, 8, 16}) {
      for (auto& [name, sharded] : state) sharded.boxes = RandomBoxes(random, sharded.array.shape(), devices);
      const absl::Status read = ReadCheckpoint(files, *folder, state);
      ASSERT_TRUE(read.ok()) << read << " round " << round << ", " << devices << " devices";
    }
  }
}

TEST(Checkpoint, LargeTensorsAreReadInParts) {
  Random random(6);
  State state;
  state["rows"].array = RandomArray(random, {ElementType::kF32, {5, 1'000'003}});
  state["columns"].array = RandomArray(random, {ElementType::kF32, {1'000'003, 5}});
  for (auto& [name, sharded] : state) sharded.boxes = RandomBoxes(random, sharded.array.shape(), 4);
  MemoryFiles files;
  const auto folder = WriteCheckpoint(files, state, 2, 2, {"job", 1, 9});
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (auto& [name, sharded] : state) {
    for (const int64_t d : {0, 1}) {
      Box low = FullBox(sharded.array.shape()), high = low;
      low.hi[d] = high.lo[d] = low.hi[d] / 2;
      sharded.boxes = {low, high};
      const absl::Status read = ReadCheckpoint(files, *folder, {{name, sharded}});
      EXPECT_TRUE(read.ok()) << read;
    }
  }
}

TEST(Checkpoint, ExportsToOneFile) {
  Random random(7);
  const State state = RandomState(random, 6);
  MemoryFiles files;
  const auto folder = WriteCheckpoint(files, state, 2, 3, {"job", 1, 9});
  const auto source = Store(files).OpenTensors(FileUri(*folder));
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_TRUE(ExportSafetensors(**source, files, "/whole.safetensors").ok());
  const auto arrays = tensor::ReadSafetensors(files, "/whole.safetensors");
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  EXPECT_EQ(arrays->size(), state.size());
  for (const auto& [name, sharded] : state) {
    const auto array = tensor::FromStored(arrays->at(name), sharded.array.shape());
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(*array, sharded.array) << name;
  }
}

TEST(Checkpoint, TheNewestCommittedOneSurvivesAFailureOrACrashAtAnyOperation) {
  Random random(8);
  const State first = SmallState(random), second = SmallState(random);
  bool finished = false;
  for (int64_t fail_after = 0; !finished; ++fail_after) {
    // The process is killed, or the machine loses power, with and without the loss of new file names.
    for (const int how : {0, 1, 2}) {
      MemoryFiles files;
      const std::string old = *WriteCheckpoint(files, first, 2, 2, {"job", 1, 10});
      files.fail_after = files.operations + fail_after;
      const auto written = WriteCheckpoint(files, second, 2, 2, {"job", 1, 20});
      finished = written.ok();
      if (how > 0) files.Crash(/*lose_names=*/how == 2);
      files.fail_after = INT64_MAX;
      const auto found = ListCheckpoints(files, "/c");
      ASSERT_TRUE(found.ok()) << found.status();
      ASSERT_FALSE(found->empty());
      const FoundCheckpoint& newest = found->back();
      ASSERT_TRUE(newest.index.ok()) << newest.index.status() << " after " << fail_after;
      if (finished) EXPECT_EQ(newest.index->step(), 20);
      const absl::Status read = ReadCheckpoint(files, newest.folder, newest.index->step() == 20 ? second : first);
      EXPECT_TRUE(read.ok()) << read << " after " << fail_after << " operations";
      EXPECT_TRUE(ReadCheckpoint(files, old, first).ok());
      // Files of the failed write do not affect a later attempt, which removes them.
      EXPECT_TRUE(RemoveObsoleteFolders(files, "/c/job", {30, 2, {NameOf(old), NameOf(newest.folder)}}).ok());
      const auto next = WriteCheckpoint(files, second, 2, 2, {"job", 2, 20});
      ASSERT_TRUE(next.ok()) << next.status();
      EXPECT_TRUE(ReadCheckpoint(files, *next, second).ok());
    }
  }
}

TEST(CheckpointFolders, AFolderThatCannotBeRemovedDoesNotKeepTheOthers) {
  const TestFolder folder;
  FileSystem& files = RealFileSystem();
  const std::string stuck = JoinPath(folder.path(), "step-000000000010-attempt-1");
  const std::string old = JoinPath(folder.path(), "step-000000000020-attempt-1");
  const std::string newest = JoinPath(folder.path(), "step-000000000030-attempt-1");
  for (const std::string& made : {JoinPath(stuck, "a folder, which is not removed"), old, newest}) {
    ASSERT_TRUE(files.MakeDirectories(made).ok());
  }
  for (const char* const name : {"1", "z"}) ASSERT_TRUE(files.WriteAtomically(JoinPath(stuck, name), "shard").ok());
  EXPECT_FALSE(RemoveObsoleteFolders(files, folder.path(), {30, 1, {}}).ok());
  EXPECT_FALSE(files.Exists(old));
  EXPECT_TRUE(files.Exists(newest));
  EXPECT_EQ(files.List(stuck)->size(), 1u) << "the shards do not stay";
}

// The paths of the files in the folder of a checkpoint.
std::vector<std::string> FilesOf(const MemoryFiles& files, const std::string& folder) {
  std::vector<std::string> paths;
  for (const std::string& path : files.Paths()) {
    if (absl::StartsWith(path, folder)) paths.push_back(path);
  }
  return paths;
}

TEST(Checkpoint, EveryFlippedBitIsFound) {
  Random random(9);
  const State state = SmallState(random);
  MemoryFiles files;
  const std::string folder = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 10});
  const std::vector<std::string> paths = FilesOf(files, folder);
  ASSERT_EQ(paths.size(), 3u);
  const Store store(files);
  for (int i = 0; i < 1000; ++i) {
    std::string& bytes = files.BytesOf(paths[random() % paths.size()]);
    const uint64_t bit = random() % (bytes.size() * 8);
    bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_FALSE(store.VerifyCheckpoint(FileUri(folder)).ok()) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
  }
  EXPECT_TRUE(store.VerifyCheckpoint(FileUri(folder)).ok());
  // A flipped bit of a tensor is also found when the tensor is read.
  std::string& shard = files.BytesOf(paths[1]);
  shard[shard.size() - 3] ^= 4;
  const absl::Status read = ReadCheckpoint(files, folder, state);
  EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(read.message()), HasSubstr(paths[1]));
}

TEST(Checkpoint, EveryTruncationIsFound) {
  Random random(10);
  State state;
  state["w"].array = RandomArray(random, {ElementType::kF32, {300, 250}});
  state["w"].boxes = RandomBoxes(random, state["w"].array.shape(), 4);
  MemoryFiles files;
  const std::string older = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 5});
  const std::string folder = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 10});
  for (const std::string& path : FilesOf(files, folder)) {
    const std::string whole = files.BytesOf(path);
    for (size_t size = 0; size < whole.size(); size += 4096) {
      files.BytesOf(path) = whole.substr(0, size);
      EXPECT_FALSE(Store(files).VerifyCheckpoint(FileUri(folder)).ok()) << path << " cut at " << size;
      EXPECT_TRUE(absl::IsDataLoss(ReadCheckpoint(files, folder, state))) << path << " cut at " << size;
      EXPECT_TRUE(ReadCheckpoint(files, older, state).ok());
    }
    files.BytesOf(path) = whole;
  }
}

TEST(Checkpoint, AMissingShardIsDataLoss) {
  Random random(13);
  const State state = SmallState(random);
  MemoryFiles files;
  const std::string folder = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 10});
  for (const std::string& path : FilesOf(files, folder)) {
    const std::string whole = files.BytesOf(path);
    ASSERT_TRUE(files.Remove(path).ok());
    const absl::Status read = ReadCheckpoint(files, folder, state);
    // A missing index may only mean that the file system is not mounted.
    EXPECT_EQ(absl::IsDataLoss(read), !absl::EndsWith(path, kIndexFileName)) << path << ": " << read;
    EXPECT_FALSE(read.ok()) << path;
    ASSERT_TRUE(files.WriteAtomically(path, whole).ok());
  }
  EXPECT_TRUE(ReadCheckpoint(files, folder, state).ok());
}

TEST(Checkpoint, TheIndexOfAnOldCheckpointIsRemovedFirst) {
  Random random(11);
  const State state = SmallState(random);
  for (int64_t fail_after = 0;; ++fail_after) {
    MemoryFiles files;
    const std::string old = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 10});
    const std::string kept = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 20});
    files.fail_after = files.operations + fail_after;
    const absl::Status removed = RemoveCheckpointFolder(files, old);
    files.fail_after = INT64_MAX;
    const auto found = *ListCheckpoints(files, "/c/job");
    for (const FoundCheckpoint& checkpoint : found) {
      EXPECT_TRUE(ReadCheckpoint(files, checkpoint.folder, state).ok()) << "listed, and loads";
    }
    EXPECT_EQ(found.back().folder, kept);
    EXPECT_TRUE(RemoveCheckpointFolder(files, old).ok()) << "again";
    EXPECT_EQ(files.List("/c/job")->size(), 1u);
    if (removed.ok()) return;
  }
}

TEST(Checkpoint, AReplacedOneIsNotListed) {
  Random random(13);
  const State state = SmallState(random);
  for (const std::string& path : {"/c", "/c/job", "/c/job/step-000000000010-attempt-1"}) {
    for (const bool is_read : {false, true}) {
      MemoryFiles files;
      const std::string old = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 10});
      std::string now;
      (is_read ? files.before_read : files.after_list) = [&] {
        now = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 20});
        EXPECT_TRUE(RemoveCheckpointFolder(files, old).ok());
      };
      const auto found = ListCheckpoints(files, path);
      EXPECT_FALSE(now.empty());
      if (path.find("step") != std::string::npos) {
        EXPECT_TRUE(absl::IsNotFound(found.status())) << "its folder has gone";
        continue;
      }
      ASSERT_TRUE(found.ok()) << found.status();
      ASSERT_EQ(found->size(), 1u) << path << ", " << is_read;
      EXPECT_EQ(found->front().folder, now);
      EXPECT_TRUE(found->front().index.ok()) << found->front().index.status();
    }
  }
}

TEST(Checkpoint, AReplacedOneIsNotListedBesideThatOfAnotherJob) {
  Random random(13);
  const State state = SmallState(random);
  MemoryFiles files;
  const std::string old = *WriteCheckpoint(files, state, 2, 2, {"a", 1, 10});
  const std::string other = *WriteCheckpoint(files, state, 2, 2, {"b", 1, 10});
  std::string now;
  files.before_read = [&] {  // The index of the old checkpoint is read first.
    now = *WriteCheckpoint(files, state, 2, 2, {"a", 1, 20});
    EXPECT_TRUE(RemoveCheckpointFolder(files, old).ok());
  };
  const auto found = ListCheckpoints(files, "/c");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ(found->front().folder, now);
  EXPECT_EQ(found->back().folder, other);
}

TEST(Checkpoint, ListsOfAJobThatReplacesItsCheckpointTooFastAreErrors) {
  Random random(15);
  const State state = SmallState(random);
  for (const bool is_read : {false, true}) {
    MemoryFiles files;
    int64_t step = 10;
    std::string newest = *WriteCheckpoint(files, state, 2, 2, {"job", 1, step});
    const std::string other = *WriteCheckpoint(files, state, 2, 2, {"other", 1, 10});
    std::function<void()>& hook = is_read ? files.before_read : files.after_list;
    const std::function<void()> replace = [&] {
      step += 10;
      const std::string old = std::exchange(newest, *WriteCheckpoint(files, state, 2, 2, {"job", 1, step}));
      EXPECT_TRUE(RemoveCheckpointFolder(files, old).ok());
      hook = replace;
    };
    hook = replace;
    const absl::Status of_job = ListCheckpoints(files, "/c/job").status();
    EXPECT_TRUE(absl::IsAborted(of_job)) << of_job << ", " << is_read;
    hook = replace;
    const auto of_root = ListCheckpoints(files, "/c");
    hook = nullptr;
    ASSERT_TRUE(of_root.ok()) << of_root.status();
    ASSERT_EQ(of_root->size(), 2u);
    EXPECT_EQ(of_root->front().folder, "/c/job");
    EXPECT_EQ(of_root->front().index.status(), of_job);
    EXPECT_THAT(of_job.message(), HasSubstr("/c/job: the job replaces its checkpoints faster than they can be read"));
    EXPECT_EQ(of_root->back().folder, other);
    EXPECT_TRUE(of_root->back().index.ok());
    EXPECT_EQ(ListCheckpoints(files, "/c/job")->size(), 1u);
    EXPECT_EQ(ListCheckpoints(files, "/c")->size(), 2u);
  }
}

// Calls `change` when the folder of a job is listed for the second time. The first list only shows that the folder is
// not a root. Counts all lists.
struct ChangeDuringSecondList {
  ChangeDuringSecondList(MemoryFiles* files, std::function<void()> change) : files(files), change(std::move(change)) {
    files->after_list = [this] { Listed(); };
  }
  ~ChangeDuringSecondList() { files->after_list = nullptr; }
  void Listed() {
    if (++lists == 2) change();
    files->after_list = [this] { Listed(); };
  }
  MemoryFiles* files;
  std::function<void()> change;
  int lists = 0;
};

TEST(Checkpoint, ListsWithoutACommittedCheckpointEnd) {
  Random random(16);
  const State state = SmallState(random);
  for (const bool vanishes : {false, true}) {
    MemoryFiles files;
    const std::string kept = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 10});
    ASSERT_TRUE(files.Remove(JoinPath(kept, kIndexFileName)).ok());
    const std::string old = vanishes ? *WriteCheckpoint(files, state, 2, 2, {"job", 1, 20}) : "";
    const ChangeDuringSecondList change(&files, [&] {
      if (vanishes) EXPECT_TRUE(RemoveCheckpointFolder(files, old).ok());
    });
    const auto found = ListCheckpoints(files, "/c/job");
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->empty());
    EXPECT_EQ(change.lists, vanishes ? 4 : 3) << "the last two lists of the job are equal";
  }
}

TEST(Checkpoint, AReplacedOneIsNotListedIfOnlyItsIndexIsRemoved) {
  Random random(17);
  const State state = SmallState(random);
  MemoryFiles files;
  const std::string old = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 10});
  std::string now;
  const ChangeDuringSecondList change(&files, [&] {
    now = *WriteCheckpoint(files, state, 2, 2, {"job", 1, 20});
    EXPECT_TRUE(files.Remove(JoinPath(old, kIndexFileName)).ok());
  });
  const auto found = ListCheckpoints(files, "/c/job");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().folder, now);
}

TEST(Checkpoint, JobsThatAreRemovedWhileARootIsListedAreLeftOut) {
  Random random(14);
  const State state = SmallState(random);
  MemoryFiles files;
  const std::string removed = *WriteCheckpoint(files, state, 2, 2, {"a", 1, 10});
  const std::string kept = *WriteCheckpoint(files, state, 2, 2, {"b", 1, 10});
  files.after_list = [&] {
    EXPECT_TRUE(RemoveCheckpointFolder(files, removed).ok());
    EXPECT_TRUE(files.RemoveDirectory("/c/a").ok());
  };
  const auto found = ListCheckpoints(files, "/c");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().folder, kept);
}

v1::CheckpointIndex ValidIndex(MemoryFiles& files) {
  Random random(12);
  const std::string folder = *WriteCheckpoint(files, SmallState(random), 2, 2, {"job", 1, 10});
  return *ParseIndex(*files.Read(JoinPath(folder, kIndexFileName)));
}

TEST(CheckpointIndex, IsComparedWithTheDigestThatWasRecorded) {
  MemoryFiles files;
  const std::string text = *SerializeIndex(ValidIndex(files));
  ASSERT_TRUE(files.MakeDirectories("/c").ok());
  ASSERT_TRUE(files.WriteAtomically("/c/index.json", text).ok());
  const Store store(files);
  for (const char* uri : {"file:/c", "file:/c/index.json"}) {
    EXPECT_TRUE(store.CheckIndex(uri, Sha256Hex(text)).ok());
    EXPECT_TRUE(store.CheckIndex(uri, ParseIndex(text)->index_sha256()).ok());
    const absl::Status other = store.CheckIndex(uri, Sha256Hex("another"));
    EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(other.message()), HasSubstr("found another checkpoint"));
  }
  EXPECT_TRUE(absl::IsNotFound(store.CheckIndex("file:/nowhere", Sha256Hex(text))));
  EXPECT_TRUE(store.CheckIndex(BlobUri(std::string(64, '0')), std::string(64, '0')).ok());
}

TEST(CheckpointIndex, SaysWhatIsInconsistent) {
  MemoryFiles files;
  const v1::CheckpointIndex valid = ValidIndex(files);
  const auto refused = [&](const std::function<void(v1::CheckpointIndex*)>& change, const std::string& words) {
    v1::CheckpointIndex index = valid;
    change(&index);
    EXPECT_THAT(std::string(CheckIndex(index).message()), HasSubstr(words));
  };
  ASSERT_TRUE(CheckIndex(valid).ok());
  refused([](auto* i) { i->mutable_shards(0)->mutable_pieces()->RemoveLast(); }, "found pieces with");
  refused([](auto* i) { *i->mutable_shards(0)->add_pieces() = i->shards(0).pieces(0); }, "overlap");
  refused([](auto* i) { i->mutable_shards(0)->mutable_pieces(0)->set_begin(-1); }, "inside its tensor and file");
  refused([](auto* i) { i->mutable_shards(0)->mutable_pieces(0)->set_begin(INT64_MAX); }, "inside its tensor and file");
  refused([](auto* i) { i->mutable_shards(0)->mutable_pieces(0)->mutable_box()->clear_hi(); }, "inside its tensor");
  refused([](auto* i) { i->mutable_shards(0)->set_bytes(5 << 20); }, "checksums of blocks");
  refused([](auto* i) { i->mutable_shards(0)->set_block_bytes(0); }, "checksums of blocks");
  refused([](auto* i) { i->mutable_shards(0)->set_sha256("x"); }, "no valid SHA-256");
  refused([](auto* i) { *i->add_tensors() = i->tensors(0); }, "occurs twice");
  refused([](auto* i) { i->mutable_tensors(0)->mutable_shape()->set_dims(0, -5); }, "\"m\"");
  refused([](auto* i) { i->set_step(-1); }, "step -1");
}

// A worker reports the error in a protocol buffer, whose text must be UTF-8.
TEST(CheckpointIndex, ErrorsAreUtf8) {
  for (int after = 0; after < 3; ++after) {
    std::string text = "{\"";
    for (int i = 0; i < 20; ++i) text += "\xe2\x82\xac";
    const std::string zeros(64, '0');
    text += absl::StrCat(std::string(after, 'x'), "\" x \"\": 1, \"index_sha256\": \"", zeros, "\"}");
    text.replace(text.rfind(zeros), 64, Sha256Hex(text));
    const absl::Status refused = ParseIndex(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_EQ(refused.message(), ToUtf8(refused.message()));
  }
}

TEST(CheckpointIndex, OtherFormatVersionsAreRefusedWithTheirNumber) {
  MemoryFiles files;
  std::string text = *SerializeIndex(ValidIndex(files));
  text.replace(text.find("\"format_version\": 1"), 19, "\"format_version\": 7");
  const std::string hash = text.substr(text.rfind("\"index_sha256\": \"") + 17, 64);
  std::string zeros = text;
  zeros.replace(text.find(hash), 64, std::string(64, '0'));
  text.replace(text.find(hash), 64, Sha256Hex(zeros));
  EXPECT_THAT(std::string(ParseIndex(text).status().message()), HasSubstr("found a checkpoint of format version 7"));
}

TEST(Store, OpensFilesFoldersAndCheckpoints) {
  Random random(13);
  const Array whole = RandomArray(random, {ElementType::kF32, {10, 3}});
  MemoryFiles files;
  ASSERT_TRUE(files.MakeDirectories("/data/rows").ok());
  State state;
  state["x"] = {whole, {FullBox(whole.shape()), Box{{2, 1}, {9, 3}}}};
  ASSERT_TRUE(tensor::WriteSafetensors(files, "/data/x.safetensors", {{"x", whole}}).ok());
  for (const int64_t begin : {0, 4, 5}) {
    const int64_t end = begin == 0 ? 4 : begin == 4 ? 5 : 10;
    const Array rows = tensor::ExtractBox(whole, {{begin, 0}, {end, 3}}, {{end - begin, 3}});
    const std::string path = absl::StrCat("/data/rows/part-", begin, ".safetensors");
    ASSERT_TRUE(tensor::WriteSafetensors(files, path, {{"x", rows}}).ok());
  }
  ASSERT_TRUE(files.WriteAtomically("/data/rows/README", "not a shard").ok());
  const Store store(files);
  for (const char* uri : {"file:/data/x.safetensors", "file:/data/rows"}) {
    const auto source = store.OpenTensors(uri);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_TRUE(ReadBoxes(**source, state).ok()) << uri;
  }
  const Array other({ElementType::kF32, {4}});
  ASSERT_TRUE(tensor::WriteSafetensors(files, "/data/rows/z.safetensors", {{"x", other}}).ok());
  ASSERT_TRUE(files.MakeDirectories("/empty").ok());
  EXPECT_THAT(std::string(store.OpenTensors("file:/data/rows").status().message()),
              HasSubstr("z.safetensors: found \"x\" of shape f32[4], expected more rows of f32[10,3]"));
  EXPECT_THAT(std::string(store.OpenTensors("file:/empty").status().message()), HasSubstr("without index.json"));
  EXPECT_TRUE(absl::IsNotFound(store.OpenTensors("file:/nowhere").status()));
  EXPECT_TRUE(absl::IsUnimplemented(store.OpenTensors(BlobUri(std::string(64, '0'))).status()));
  const auto source = *store.OpenTensors("file:/data/x.safetensors");
  EXPECT_THAT(std::string(source->CheckShape("x", {ElementType::kF32, {10, 4}}).message()),
              HasSubstr("\"x\": found f32[10,3], expected f32[10,4]"));
  std::vector<std::byte> out(4);
  for (const BoxRead& bad : {BoxRead{"y", ElementType::kF32, {{0, 0}, {1, 1}}, absl::MakeSpan(out)},
                             BoxRead{"x", ElementType::kBF16, {{0, 0}, {1, 2}}, absl::MakeSpan(out)},
                             BoxRead{"x", ElementType::kF32, {{0, 0}, {11, 3}}, absl::MakeSpan(out)},
                             BoxRead{"x", ElementType::kF32, {{0}, {1}}, absl::MakeSpan(out)},
                             BoxRead{"x", ElementType::kF32, {{3, 0}, {1, 1}}, absl::MakeSpan(out)},
                             BoxRead{"x", ElementType::kF32, {{0, 0}, {2, 2}}, absl::MakeSpan(out)}}) {
    EXPECT_FALSE(source->Read({&bad, 1}).ok()) << bad.tensor << bad.box.ToString();
  }
}

}  // namespace
}  // namespace xlad::storage

#include "runtime/batch_reader.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "gmock/gmock.h"

namespace xlad::runtime {
namespace {

using collectives::AbortSignal;
using tensor::Array;
using tensor::Box;
using tensor::ElementType;
using ::testing::HasSubstr;

// Counts reads, and fails after a number of reads.
class CountingReader final : public storage::RangeReader {
 public:
  explicit CountingReader(std::string bytes) : inner_(storage::MakeMemoryReader(std::move(bytes))) {}
  int64_t size() const override { return inner_->size(); }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    if (++reads > fail_after) return absl::DataLossError("the disk is broken");
    bytes += std::ssize(out);
    return inner_->Read(offset, out);
  }
  std::atomic<int64_t> reads = 0, bytes = 0;
  std::atomic<int64_t> fail_after = INT64_MAX;

 private:
  const std::shared_ptr<storage::RangeReader> inner_;
};

// A file with the contents of another file, except that the first four bytes are its number.
class NumberedReader final : public storage::RangeReader {
 public:
  NumberedReader(std::shared_ptr<storage::RangeReader> inner, int32_t number)
      : inner_(std::move(inner)), number_(number) {}
  int64_t size() const override { return inner_->size(); }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    XLAD_RETURN_IF_ERROR(inner_->Read(offset, out));
    if (offset == 0) std::memcpy(out.data(), &number_, std::min(out.size(), sizeof number_));
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<storage::RangeReader> inner_;
  const int32_t number_;
};

struct Data {
  Array rows;
  std::shared_ptr<CountingReader> reader;
  std::shared_ptr<storage::TensorSource> source;
};

Data MakeData(int64_t rows, int64_t width) {
  Data data{Array({ElementType::kS32, {rows, width}}), nullptr, nullptr};
  int32_t next = 0;
  for (int32_t& value : data.rows.values<int32_t>()) value = next++;
  data.reader = std::make_shared<CountingReader>(tensor::SerializeSafetensors({{"x", data.rows}}));
  data.source = *storage::OpenSafetensors({data.reader}, {"data"});
  return data;
}

struct PlanSizes {
  int64_t batch_size, batch_count, width, first_step, end_step;
  int devices;
};
// Two inputs: the complete batch on every device, and its columns divided among the devices (with padding).
BatchPlan MakePlan(const PlanSizes& sizes) {
  const auto& [batch_size, batch_count, width, first_step, end_step, devices] = sizes;
  BatchPlan plan{{}, batch_size, batch_count, first_step, end_step, devices};
  const tensor::Shape global{ElementType::kS32, {batch_size, width}};
  const int64_t columns = (width + devices - 1) / devices;
  plan.inputs.push_back({"x", global, global, std::vector<Box>(devices, FullBox(global))});
  plan.inputs.push_back({"x", global, {ElementType::kS32, {batch_size, columns}}, {}});
  for (int64_t d = 0; d < devices; ++d) {
    const int64_t lo = std::min(width, d * columns);
    plan.inputs[1].boxes.push_back({{0, lo}, {batch_size, std::min(width, lo + columns)}});
  }
  return plan;
}

std::vector<std::byte> Expected(const Data& data, const BatchPlan& plan, int device, int input, int64_t step) {
  Box box = plan.inputs[input].boxes[device];
  const int64_t row = step % plan.batch_count * plan.batch_size;
  box.lo[0] += row;
  box.hi[0] += row;
  const Array shard = tensor::ExtractBox(data.rows, box, plan.inputs[input].local.dims);
  return {shard.bytes().begin(), shard.bytes().end()};
}

TEST(BatchReader, EveryDeviceGetsItsRowsOfEveryStep) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    const int64_t batch_size = 1 + random() % 5, batch_count = 1 + random() % 700, width = 1 + random() % 9;
    const int devices = 1 + static_cast<int>(random() % 4);
    const Data data = MakeData(batch_size * batch_count + random() % 3, width);
    const int64_t first = random() % 1000;
    const BatchPlan plan = MakePlan({batch_size, batch_count, width, first, first + 1500, devices});
    AbortSignal abort;
    const auto reader = BatchReader::Start(data.source, plan, &abort);
    ASSERT_TRUE(reader.ok()) << reader.status();
    std::vector<std::thread> threads;
    for (int device = 0; device < devices; ++device) {
      threads.emplace_back([&, device] {
        for (int64_t step = first; step < plan.end_step; ++step) {
          for (const int input : {0, 1}) {
            const auto bytes = (*reader)->Get(device, input, step);
            ASSERT_TRUE(bytes.ok()) << bytes.status();
            ASSERT_EQ(**bytes, Expected(data, plan, device, input, step)) << "step " << step;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(data.reader->bytes, data.reader->size() + 8)
        << "small data are read once, except the header's length, whose 8 bytes are read twice";
  }
}

TEST(BatchReader, LargeDataAreReadAheadButNotAllAtOnce) {
  // 120 MiB, in batches of 2 MiB, which is almost twice as much as is read ahead.
  const int64_t width = 1 << 19, batch_count = 60;
  Data data = MakeData(1, width);
  const std::string row(reinterpret_cast<const char*>(data.rows.bytes().data()), data.rows.bytes().size());
  // The rows of the batches differ only in their first numbers, so that the expected contents need not be in memory.
  std::map<std::string, storage::StoredTensor> tensors;
  storage::StoredTensor& tensor = tensors["x"];
  tensor.shape = {ElementType::kS32, {batch_count, width}};
  for (int64_t batch = 0; batch < batch_count; ++batch) {
    tensor.pieces.push_back({Box{{batch, 0}, {batch + 1, width}}, batch, 0});
  }
  const auto reader = std::make_shared<CountingReader>(row);
  std::vector<std::shared_ptr<storage::RangeReader>> files;
  for (int32_t batch = 0; batch < batch_count; ++batch) {
    files.push_back(std::make_shared<NumberedReader>(reader, batch));
  }
  const auto source = std::make_shared<storage::TensorSource>(files, tensors);
  BatchPlan plan = MakePlan({1, batch_count, width, 0, 1000, 1});
  plan.inputs.pop_back();
  AbortSignal abort;
  const auto batches = *BatchReader::Start(source, plan, &abort);
  for (int64_t step = 0; step < 75; ++step) {
    const auto bytes = batches->Get(0, 0, step);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto number = static_cast<int32_t>(step % batch_count);
    ASSERT_EQ(std::ssize(**bytes), std::ssize(row));
    ASSERT_EQ(std::memcmp((*bytes)->data(), &number, sizeof number), 0) << "step " << step;
    ASSERT_EQ(std::memcmp((*bytes)->data() + 4, row.data() + 4, row.size() - 4), 0) << "step " << step;
    const int64_t used = (step + 1) * std::ssize(row);
    EXPECT_LE(reader->bytes, used + BatchReader::kAheadBytes + BatchReader::kGroupBytes) << "step " << step;
  }
}

TEST(BatchReader, CallsReturnTheErrorOfAReadOrOfTheAbort) {
  const Data data = MakeData(100, 3);
  data.reader->fail_after = data.reader->reads.load();
  AbortSignal abort;
  const auto failing = *BatchReader::Start(data.source, MakePlan({1, 100, 3, 0, 100, 1}), &abort);
  const auto failed = failing->Get(0, 0, 0);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("data: the disk is broken"));
  abort.Raise({absl::CancelledError("canceled"), ""});
  EXPECT_EQ(failing->Get(0, 0, 0).status().code(), absl::StatusCode::kCancelled);
}

TEST(BatchReader, SaysWhichRowsAreMissing) {
  const Data data = MakeData(10, 3);
  AbortSignal abort;
  const auto words = [&](const BatchPlan& plan) {
    return std::string(BatchReader::Start(data.source, plan, &abort).status().message());
  };
  EXPECT_THAT(words(MakePlan({2, 6, 3, 0, 9, 1})), HasSubstr("\"x\": found s32[10,3], expected s32[12,3]"));
  EXPECT_THAT(words(MakePlan({2, 5, 4, 0, 9, 1})), HasSubstr("expected s32[10,4]"));
  EXPECT_THAT(words(MakePlan({2, 0, 3, 0, 9, 1})), HasSubstr("found 0 batches"));
  BatchPlan other = MakePlan({2, 5, 3, 0, 9, 1});
  other.inputs[0].tensor = "y";
  EXPECT_THAT(words(other), HasSubstr("\"y\": found no tensor"));
}

}  // namespace
}  // namespace xlad::runtime

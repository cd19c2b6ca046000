// Collectives of more than 2^31 elements, lowered for mapped memory and for messages, without the data.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/testing/case_count.h"
#include "collectives/exec/group/lowering.h"
#include "collectives/exec/group/plans.h"
#include "collectives/exec/layout.h"
#include "collectives/plan/mapped.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using Intervals = std::vector<std::pair<int64_t, int64_t>>;

// Whether the intervals cover [0, bytes), each byte once.
bool CoverOnce(Intervals intervals, int64_t bytes) {
  std::sort(intervals.begin(), intervals.end());
  int64_t at = 0;
  for (const auto& [begin, end] : intervals) {
    if (begin != at) return false;
    at = end;
  }
  return at == bytes;
}

// Lowers the schedules of all ranks. Adds the bytes that they write to the output of each rank to `written`.
void LowerAll(const CollectiveSpec& spec, const CollectivePlan& plan, std::map<int, Intervals>* written) {
  for (int rank = 0; rank < spec.ranks; ++rank) {
    const absl::StatusOr<Schedule> schedule = BuildSchedule(plan, spec, rank);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const absl::StatusOr<GroupProgram> program = LowerForGroup(spec, *schedule, ProtocolOf(plan, spec));
    ASSERT_TRUE(program.ok()) << program.status();
    for (const GroupStep& step : program->steps) {
      for (const GroupRegion& dst : step.dsts) {
        for (int owner = 0; owner < spec.ranks; ++owner) {
          if (dst.base != program->bases.Output(owner)) continue;
          (*written)[owner].emplace_back(dst.offset, dst.offset + step.bytes);
        }
      }
    }
  }
}

TEST(LargeCounts, MappedPlansWriteEachByteOfTheOutputsOnce) {
  for (const int64_t count : {(int64_t{1} << 31) + 7, (int64_t{1} << 33) + 5}) {
    for (const int ranks : {2, 3}) {
      for (int kind = 1; kind <= kNumCollectiveKinds; ++kind) {
        CollectiveSpec spec = MakeSpec(static_cast<CollectiveKind>(kind), ranks, count);
        spec.type = tensor::ElementType::kU8;
        if (spec.kind == CollectiveKind::kSendRecv) continue;  // Rank 0 receives nothing and keeps its output.
        const GroupMachine machine{ranks, /*exclusive=*/false, /*scratch_bytes=*/1 << 20, /*cache_bytes=*/32 << 20};
        for (const bool registered : {false, true}) {
          CollectivePlan plan = ChooseGroupPlan(spec, registered, machine).plan;
          // The group uses up to 55,297 chunks. By default, only one case has all of its chunks, which are 6,565.
          const bool has_all = count < int64_t{1} << 32 && ranks == 2 && spec.kind == CollectiveKind::kAllReduce;
          if (!AllCases() && !has_all) plan.chunks = std::min(plan.chunks, 100);
          SCOPED_TRACE(plan.ToString() + " " + spec.ToString());
          std::map<int, Intervals> written;
          ASSERT_NO_FATAL_FAILURE(LowerAll(spec, plan, &written));
          for (int rank = 0; rank < ranks; ++rank) {
            EXPECT_TRUE(CoverOnce(written[rank], spec.output_elements(rank))) << rank;
          }
        }
      }
    }
  }
}

TEST(LargeCounts, PiecesOfSeveralOperandsHave64BitOffsets) {
  const int64_t a = int64_t{1} << 33, b = (int64_t{1} << 31) + 6;
  const BufferLayout layout({a, b}, /*parts=*/2, /*element_bytes=*/8);
  const std::vector<Piece> pieces = layout.Pieces(a / 2 - 1, b / 2 + 2);  // The end of a, all of b, the start of a.
  ASSERT_EQ(pieces.size(), 3);
  EXPECT_EQ(pieces[0].offset, (a / 2 - 1) * 8);
  EXPECT_EQ(pieces[1].operand, 1);
  EXPECT_EQ(pieces[1].offset, 0);
  EXPECT_EQ(pieces[1].bytes, b / 2 * 8);
  EXPECT_EQ(pieces[2].operand, 0);
  EXPECT_EQ(pieces[2].offset, a / 2 * 8);
  EXPECT_EQ(pieces[2].bytes, 8);
}

}  // namespace
}  // namespace xlad::collectives

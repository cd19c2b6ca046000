// Tests how a Session stores arrays, which commands it sends, and which copies it drops.
#include "runtime/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using tensor::Shape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Shape kMatrix{ElementType::kF32, {8, 4}};
const Shape kScalar{ElementType::kF32, {}};

// A parameter or result on two devices; if `split`, its rows are divided between them.
void AddEntry(EntryValue* entry, const Shape& shape, bool split) {
  tensor::ShapeToWire(shape, entry->mutable_global());
  Shape local = shape;
  if (split) local.dims[0] /= 2;
  tensor::ShapeToWire(local, entry->mutable_local());
  for (int device = 0; device < (split ? 2 : 1); ++device) {
    tensor::Box box = tensor::FullBox(shape);
    if (split) box.lo[0] = device * local.dims[0];
    if (split) box.hi[0] = (device + 1) * local.dims[0];
    tensor::BoxToWire(box, entry->add_boxes());
  }
}

// The program (w, x) -> (w', loss); `w` and `w'` are split or replicated.
Executable MakeSplitExecutable(bool split_parameter, bool split_result) {
  Executable executable;
  AddEntry(executable.add_parameters(), kMatrix, split_parameter);
  AddEntry(executable.add_parameters(), kScalar, false);
  AddEntry(executable.add_results(), kMatrix, split_result);
  AddEntry(executable.add_results(), kScalar, false);
  return executable;
}

CallProgramRequest Call(int64_t program, int64_t w, int64_t x, const std::vector<int64_t>& free = {}) {
  CallProgramRequest request;
  request.set_program(program);
  request.add_arguments()->set_array(w);
  request.add_arguments()->set_array(x);
  if (x == 0) request.mutable_arguments(1)->set_value("abcd");
  for (const int64_t array : free) request.add_free(array);
  return request;
}

class SessionTest : public ::testing::Test {
 protected:
  std::vector<std::string> Kinds() {
    std::vector<std::string> kinds;
    effects_ = session_.TakeEffects();
    for (const SessionCommand& command : effects_.commands) {
      kinds.push_back(command.has_load()    ? "load"
                      : command.has_call()  ? "call"
                      : command.has_fetch() ? "fetch"
                                            : "free");
      last_ = command.sequence();
    }
    return kinds;
  }
  void AnswerAll() {
    session_.Answer("a", last_, 2);
    session_.Answer("b", last_, 2);
  }

  Session session_;
  SessionEffects effects_;
  int64_t last_ = 0;
};

TEST_F(SessionTest, DonatedStateStaysOnTheWorkers) {
  const int64_t program = session_.LoadProgram(MakeSplitExecutable(true, true), "digest", {});
  int64_t w = session_.AddArray(kMatrix);
  EXPECT_THAT(Kinds(), ElementsAre("load"));
  AnswerAll();
  for (int i = 0; i < 5; ++i) {
    const auto results = session_.Call(Call(program, w, 0, {w}));
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_THAT(Kinds(), ElementsAre("call"));
    // The call frees the inline value and the donated state.
    ASSERT_EQ(effects_.stored.size(), 1u);
    EXPECT_EQ(effects_.stored[0].bytes, "abcd");
    EXPECT_THAT(effects_.commands[0].free(), ElementsAre(w, effects_.stored[0].array));
    EXPECT_EQ(session_.Call(Call(program, w, 0)).status().code(), absl::StatusCode::kNotFound);
    AnswerAll();
    // An uploaded array is dropped when the workers have their boxes.
    Kinds();
    EXPECT_EQ(effects_.dropped.size(), i == 0 ? 2u : 1u);
    w = (*results)[0];
  }
  EXPECT_EQ(session_.pending(), 0u);
}

TEST_F(SessionTest, ChangesLayoutThroughTheWholeArray) {
  const int64_t program = session_.LoadProgram(MakeSplitExecutable(false, true), "digest", {});
  const auto first = session_.Call(Call(program, session_.AddArray(kMatrix), 0));
  Kinds();
  const int64_t w = (*first)[0];
  ASSERT_TRUE(session_.Call(Call(program, w, 0)).ok());
  EXPECT_THAT(Kinds(), ElementsAre("fetch", "call"));
  ASSERT_TRUE(session_.Call(Call(program, w, 0)).ok());
  EXPECT_THAT(Kinds(), ElementsAre("call"));  // The workers have the array in both layouts.
  AnswerAll();
  Kinds();
  EXPECT_THAT(effects_.dropped, ::testing::Contains(w));
}

TEST_F(SessionTest, ReadersPinArrays) {
  const int64_t program = session_.LoadProgram(MakeSplitExecutable(true, true), "digest", {});
  const int64_t loss = (*session_.Call(Call(program, session_.AddArray(kMatrix), 0)))[1];
  Kinds();
  AnswerAll();
  Kinds();
  ASSERT_TRUE(session_.Pin(loss).ok());
  ASSERT_TRUE(session_.Pin(loss).ok());  // Two readers, one fetch.
  EXPECT_THAT(Kinds(), ElementsAre("fetch"));
  EXPECT_TRUE(effects_.stored.at(0).expected);
  session_.Free({loss, 12345});
  EXPECT_THAT(Kinds(), ElementsAre("free"));
  EXPECT_EQ(session_.Pin(loss).code(), absl::StatusCode::kNotFound);
  AnswerAll();
  session_.Unpin(loss);
  Kinds();
  EXPECT_THAT(effects_.dropped, IsEmpty());
  session_.Unpin(loss);
  Kinds();
  EXPECT_THAT(effects_.dropped, ElementsAre(loss));
}

TEST_F(SessionTest, RefusedCallsChangeNothing) {
  const int64_t program = session_.LoadProgram(MakeSplitExecutable(true, true), "digest", {});
  const int64_t w = session_.AddArray(kMatrix), x = session_.AddArray(kScalar);
  Kinds();
  const auto message = [&](const CallProgramRequest& request) {
    return std::string(session_.Call(request).status().message());
  };
  EXPECT_THAT(message(Call(77, w, x)), HasSubstr("no program 77"));
  EXPECT_THAT(message(Call(program, x, x)), HasSubstr("argument 0: found f32[], expected f32[8,4]"));
  EXPECT_THAT(message(Call(program, w, 99)), HasSubstr("argument 1: found array 99"));
  CallProgramRequest request = Call(program, w, 0);
  request.mutable_arguments(1)->set_value("abc");
  EXPECT_THAT(message(request), HasSubstr("argument 1: found 3 bytes, expected 4 for f32[]"));
  request.mutable_arguments()->RemoveLast();
  EXPECT_THAT(message(request), HasSubstr("found 1 argument, expected 2"));
  EXPECT_THAT(Kinds(), IsEmpty());
  EXPECT_THAT(effects_.stored, IsEmpty());
}

TEST_F(SessionTest, RepeatsUnansweredCommands) {
  const int64_t program = session_.LoadProgram(MakeSplitExecutable(true, true), "digest", {});
  const int64_t w = session_.AddArray(kMatrix);
  ASSERT_TRUE(session_.Call(Call(program, w, 0)).ok());
  ASSERT_TRUE(session_.Call(Call(program, w, 0)).ok());
  session_.Answer("a", 3, 2);
  session_.Answer("b", 1, 2);
  EXPECT_EQ(session_.pending(), 2u);
  EXPECT_THAT(session_.CommandsAfter(3), IsEmpty());
  EXPECT_EQ(session_.CommandsAfter(1).size(), 2u);
  session_.Answer("b", 3, 2);
  session_.Answer("b", 2, 2);  // A late answer changes nothing.
  EXPECT_EQ(session_.pending(), 0u);
}

// Makes random calls. When all arrays are freed and all commands answered, the first worker stores no whole array.
TEST_F(SessionTest, RandomUseLeavesNothingBehind) {
  const auto random = SeededRandom(11);
  const int64_t program = session_.LoadProgram(MakeSplitExecutable(true, false), "digest", {});
  std::vector<int64_t> matrices = {session_.AddArray(kMatrix)}, pinned;
  std::set<int64_t> here = {matrices[0]};
  const auto settle = [&] {
    Kinds();
    for (const auto& stored : effects_.stored) EXPECT_TRUE(here.insert(stored.array).second) << stored.array;
    for (const int64_t array : effects_.dropped) EXPECT_EQ(here.erase(array), 1u) << array;
  };
  for (int i = 0; i < 2000; ++i) {
    const size_t pick = matrices.empty() ? 0 : random->Below(matrices.size());
    switch (random->Below(6)) {
      case 0:
        matrices.push_back(session_.AddArray(kMatrix));
        here.insert(matrices.back());
        break;
      case 1:
        if (!matrices.empty() && session_.Pin(matrices[pick]).ok()) pinned.push_back(matrices[pick]);
        break;
      case 2:
        if (!pinned.empty()) session_.Unpin(pinned.back());
        if (!pinned.empty()) pinned.pop_back();
        break;
      case 3:
        if (!matrices.empty()) session_.Free({matrices[pick]});
        if (!matrices.empty()) matrices.erase(matrices.begin() + pick);
        break;
      case 4:
        if (!matrices.empty()) {
          const auto results = session_.Call(Call(program, matrices[pick], 0));
          ASSERT_TRUE(results.ok()) << results.status();
          matrices.push_back((*results)[0]);
          session_.Free({(*results)[1]});
        }
        break;
      default:
        settle();
        AnswerAll();
    }
    settle();
  }
  for (const int64_t array : pinned) session_.Unpin(array);
  session_.Free(matrices);
  settle();
  AnswerAll();
  settle();
  EXPECT_THAT(here, IsEmpty());
  EXPECT_EQ(session_.arrays(), 0u);
  EXPECT_EQ(session_.pending(), 0u);
}

}  // namespace
}  // namespace xlad::runtime

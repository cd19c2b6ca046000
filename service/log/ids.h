// Typed names and numbers of the coordinator's objects, so that one kind of id cannot be passed as another.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

namespace xlad::service {

template <typename Tag>
class StringId {
 public:
  StringId() = default;
  explicit StringId(std::string text) : text_(std::move(text)) {}
  const std::string& str() const { return text_; }
  bool empty() const { return text_.empty(); }
  friend auto operator<=>(const StringId&, const StringId&) = default;

 private:
  std::string text_;
};

template <typename Tag>
class NumberId {
 public:
  constexpr NumberId() = default;
  constexpr explicit NumberId(int64_t value) : value_(value) {}
  constexpr int64_t value() const { return value_; }
  friend constexpr auto operator<=>(const NumberId&, const NumberId&) = default;

 private:
  int64_t value_ = 0;
};

using JobId = StringId<struct JobTag>;                 // A session is a job as well.
using WorkerId = StringId<struct WorkerTag>;           // Chosen by the worker; the same in all its processes.
using ConnectionId = NumberId<struct ConnectionTag>;   // The Attach stream of one worker; 0 if it is not connected.
using Generation = NumberId<struct GenerationTag>;     // Incremented by each placement of any job.
using Term = NumberId<struct TermTag>;                 // Incremented each time a coordinator begins to write the log.

// One attempt of a job. Messages about any other attempt or generation of the job are stale.
struct AttemptId {
  JobId job;
  int64_t number = 0;
  Generation generation;
  friend auto operator<=>(const AttemptId&, const AttemptId&) = default;
};

}  // namespace xlad::service

#include "runtime/session.h"

#include <algorithm>

#include "base/counted.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

constexpr size_t kMaxInlineBytes = 1 << 20;

// Returns equal keys for parameters and results of equal shape that are divided among devices in the same way.
std::string LayoutKey(const EntryValue& entry) {
  EntryValue key;
  *key.mutable_global() = entry.global();
  *key.mutable_local() = entry.local();
  *key.mutable_boxes() = entry.boxes();
  return key.SerializeAsString();
}

}  // namespace

Session::EntryType Session::ReadEntry(const EntryValue& entry) {
  const auto layout = layouts_.try_emplace(LayoutKey(entry), std::ssize(layouts_)).first;
  return {tensor::ShapeFromWire(entry.global()), layout->second};
}

Session::ArrayInfo* Session::Find(int64_t array) {
  const auto found = arrays_.find(array);
  return found == arrays_.end() || found->second.freed ? nullptr : &found->second;
}

SessionCommand& Session::AddCommand(std::vector<int64_t> pinned) {
  for (const int64_t array : pinned) ++arrays_.at(array).pins;
  Pending& pending = pending_.emplace_back();
  pending.command.set_sequence(next_sequence_++);
  pending.pinned = std::move(pinned);
  return pending.command;
}

int64_t Session::LoadProgram(const Executable& executable, const std::string& digest,
                             const std::vector<CollectivePlanProto>& plans) {
  const int64_t number = next_program_++;
  Program& program = programs_[number];
  SessionCommand& command = AddCommand({});
  SessionLoad* load = command.mutable_load();
  load->set_program(number);
  load->set_executable_digest(digest);
  for (const EntryValue& entry : executable.parameters()) {
    program.parameters.push_back(ReadEntry(entry));
    load->add_parameter_layouts(program.parameters.back().layout);
  }
  for (const EntryValue& entry : executable.results()) {
    program.results.push_back(ReadEntry(entry));
    load->add_result_layouts(program.results.back().layout);
  }
  command.mutable_plans()->Assign(plans.begin(), plans.end());
  effects_.commands.push_back(command);
  return number;
}

int64_t Session::AddArray(const tensor::Shape& shape) {
  const int64_t array = next_array_++;
  ArrayInfo& info = arrays_[array];
  info.shape = shape;
  info.whole = true;
  return array;
}

int64_t Session::AddInline(const tensor::Shape& shape, const std::string& bytes) {
  const int64_t array = AddArray(shape);
  effects_.stored.push_back({array, shape, bytes, false});
  return array;
}

absl::Status Session::CheckArguments(const Program& program, const CallProgramRequest& request) {
  if (request.arguments_size() != program.parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("found ", Counted(request.arguments_size(), "argument"),
                                                   ", expected ", program.parameters.size(),
                                                   ", one per parameter of the program"));
  }
  for (int p = 0; p < request.arguments_size(); ++p) {
    const CallProgramRequest::Argument& argument = request.arguments(p);
    const tensor::Shape& expected = program.parameters[p].shape;
    if (argument.array() == 0) {
      if (argument.value().size() == expected.bytes() &&
          argument.value().size() <= kMaxInlineBytes) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat("argument ", p, ": found ", argument.value().size(),
                                                     " bytes, expected ", expected.bytes(), " for ",
                                                     expected.ToString(), ", and at most ", kMaxInlineBytes,
                                                     " (PutArray takes larger ones)"));
    }
    const ArrayInfo* info = Find(argument.array());
    if (info == nullptr) {
      return absl::NotFoundError(absl::StrCat("argument ", p, ": found array ", argument.array(),
                                              ", expected an array that exists: it was never created, or was freed or "
                                              "donated to a call"));
    }
    if (info->shape != expected) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", p, ": found ", info->shape.ToString(),
                                                     ", expected ", expected.ToString()));
    }
  }
  return absl::OkStatus();
}

// Fetches the array from any layout. An array that is not stored as a whole has at least one layout.
void Session::FetchWhole(int64_t array, ArrayInfo* info) {
  if (info->whole) return;
  info->whole = true;
  effects_.stored.push_back({array, info->shape, "", true});
  SessionCommand& command = AddCommand({array});
  command.mutable_fetch()->set_array(array);
  command.mutable_fetch()->set_layout(*info->layouts.begin());
  effects_.commands.push_back(command);
}

int64_t Session::BytesToCall(const CallProgramRequest& request) {
  const auto found = programs_.find(request.program());
  if (found == programs_.end() || !CheckArguments(found->second, request).ok()) return 0;
  int64_t bytes = 0;
  std::set<int64_t> fetched;
  for (int p = 0; p < request.arguments_size(); ++p) {
    const EntryType& parameter = found->second.parameters[p];
    const int64_t array = request.arguments(p).array();
    if (array == 0) {
      bytes += parameter.shape.bytes();
    } else if (!arrays_.at(array).layouts.contains(parameter.layout) && fetched.insert(array).second) {
      bytes += BytesToFetch(array);
    }
  }
  return bytes;
}

absl::StatusOr<std::vector<int64_t>> Session::Call(const CallProgramRequest& request) {
  const auto found = programs_.find(request.program());
  if (found == programs_.end()) {
    return absl::NotFoundError(absl::StrCat("found no program ", request.program(), ", expected a loaded program"));
  }
  const Program& program = found->second;
  XLAD_RETURN_IF_ERROR(CheckArguments(program, request));
  SessionCall call;
  call.set_program(request.program());
  std::vector<int64_t> pinned, inlined, results;
  for (int p = 0; p < request.arguments_size(); ++p) {
    const EntryType& parameter = program.parameters[p];
    int64_t array = request.arguments(p).array();
    if (array == 0) inlined.push_back(array = AddInline(parameter.shape, request.arguments(p).value()));
    call.add_arguments(array);
    ArrayInfo& info = arrays_.at(array);
    if (!info.layouts.contains(parameter.layout)) {
      FetchWhole(array, &info);
      pinned.push_back(array);
      info.layouts.insert(parameter.layout);
    }
  }
  for (const EntryType& result : program.results) {
    const int64_t array = next_array_++;
    arrays_[array] = {result.shape, false, 0, false, {result.layout}};
    call.add_results(array);
    results.push_back(array);
  }
  SessionCommand& command = AddCommand(std::move(pinned));
  *command.mutable_call() = std::move(call);
  for (const int64_t array : request.free()) MarkFreed(array, &command);
  for (const int64_t array : inlined) MarkFreed(array, &command);
  effects_.commands.push_back(command);
  return results;
}

int64_t Session::BytesToFetch(int64_t array) {
  const ArrayInfo* info = Find(array);
  return info == nullptr || info->whole ? 0 : info->shape.bytes();
}

absl::Status Session::Pin(int64_t array) {
  ArrayInfo* info = Find(array);
  if (info == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("found array ", array,
                     ", expected an array that exists: it was never created, or was freed or donated to a call"));
  }
  ++info->pins;
  FetchWhole(array, info);
  return absl::OkStatus();
}

void Session::Unpin(int64_t array) {
  --arrays_.at(array).pins;
  ReleaseIfUnused(array);
}

void Session::MarkFreed(int64_t array, SessionCommand* command) {
  ArrayInfo* info = Find(array);
  if (info == nullptr) return;
  info->freed = true;
  if (!info->layouts.empty()) command->add_free(array);
  ReleaseIfUnused(array);
}

void Session::Free(const std::vector<int64_t>& arrays) {
  SessionCommand* command = nullptr;
  for (const int64_t array : arrays) {
    const ArrayInfo* info = Find(array);
    if (info != nullptr && !info->layouts.empty() && command == nullptr) command = &AddCommand({});
    MarkFreed(array, command);
  }
  if (command != nullptr) effects_.commands.push_back(*command);
}

void Session::ReleaseIfUnused(int64_t array) {
  ArrayInfo& info = arrays_.at(array);
  if (info.pins > 0 || !(info.freed || !info.layouts.empty())) return;
  if (std::exchange(info.whole, false)) effects_.dropped.push_back(array);
  if (info.freed) arrays_.erase(array);
}

void Session::Answer(const std::string& worker, int64_t sequence, int64_t workers) {
  int64_t& answered = answered_[worker];
  answered = std::max(answered, sequence);
  if (std::ssize(answered_) < workers) return;
  int64_t done = answered;
  for (const auto& [id, through] : answered_) done = std::min(done, through);
  while (!pending_.empty() && pending_.front().command.sequence() <= done) {
    const Pending pending = std::move(pending_.front());
    pending_.pop_front();
    for (const int64_t array : pending.pinned) Unpin(array);
  }
}

std::vector<SessionCommand> Session::CommandsAfter(int64_t sequence) const {
  std::vector<SessionCommand> commands;
  for (const Pending& pending : pending_) {
    if (pending.command.sequence() > sequence) commands.push_back(pending.command);
  }
  return commands;
}

}  // namespace xlad::runtime

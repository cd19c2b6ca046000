// What rematerialization needs to know about one list of operations of a LinearProgram: the entry, a body or a branch.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/buffers/coalesce.h"

namespace xlad::compiler {

// The path from the entry's operations to a nested list: positions of operations and numbers of their bodies.
struct ListPath {
  struct Entry {
    int position = 0, body = 0;
  };
  std::vector<Entry> entries;  // Empty for the entry's operations.
};
std::vector<LinearOp>& ListAt(LinearProgram* program, const ListPath& path);

// Liveness, shared buffers and live bytes of a program.
struct MemoryProfile {
  explicit MemoryProfile(const LinearProgram& program);

  Liveness liveness;
  BufferClasses classes;
  std::vector<int64_t> live_bytes;  // For each point, the bytes of live temporaries.
  int64_t peak_point = 0, peak_bytes = 0;
};

// Returns the nested lists that contain the point, from the outermost to the innermost. Conditions of loops are left
// out.
std::vector<ListPath> ListsAt(const LinearProgram& program, const Liveness& liveness, int64_t point);

// Facts about the operations of one list, by their position in it. An operation with nested operations also reads and
// writes what these read and write.
struct RecomputeFacts {
  RecomputeFacts(const LinearProgram& program, const ListPath& path_of_list, const MemoryProfile& profile);

  // Returns the position of the first operation that overwrites the content of `value` that the operation at `reader`
  // reads. The overwriting operation writes `value` or another value in the same buffer. Before it, the content can be
  // read again. Returns `size` if there is no such operation. For a value with a def, only copies, collectives,
  // dynamic-update-slices and scatters that run in place on it count, because any other operation can write to a new
  // buffer instead.
  int LastRead(int value, int reader) const;

  ListPath path;                         // The list.
  int size = 0;                          // The number of operations.
  std::vector<std::vector<int>> reads;   // For each operation, the distinct values that it reads.
  std::vector<std::vector<int>> writes;  // For each operation that contains no others, its results.
  std::vector<bool> can_repeat;          // Whether the operation may be executed again.
  std::vector<double> ns;                // For each operation, its estimated time, or 0 if it may not be repeated.
  std::vector<int64_t> live_bytes;       // For each operation, the most bytes of temporaries that are live during it.
  std::vector<int> def;                  // For each temporary whose only writer is in the list, that writer; or -1.
  std::vector<std::vector<int>> uses;    // For each value with a def, the operations that read it.
  std::vector<int64_t> bytes;            // For each value, rounded up to the alignment of buffers.

 private:
  void AddOperations(const std::vector<LinearOp>& ops, const std::vector<int>& writers, const LinearProgram& program);
  void AddLiveBytes(const std::vector<LinearOp>& ops, const MemoryProfile& profile);

  std::vector<int> closed_;  // For each value with a def: see LastRead.
  std::vector<int> class_of_;
  std::vector<std::vector<int>> class_writes_;  // For each class, the positions at which its values are written.
};

}  // namespace xlad::compiler

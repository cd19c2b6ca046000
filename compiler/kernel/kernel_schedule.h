// A kernel schedule specifies the loops in which the statements of a kernel are computed, and the memory of
// temporaries.
//
// A kernel schedule is a list of primitives. For the softmax of kernel.h:
//
//   split c 64               dimension c becomes the loops c.o (outer) and c.i (inner, 64 iterations)
//   order r c.o c.i          the loops from the outside in; a statement has those of its dimensions
//   bind r 128               tiles of 128 iterations of the loop r, which several threads compute at once
//   at m r                   statement m shares the loops up to r with the next statement
//   at e c.i                 e and s are computed in one loop over the columns
//   at s r
//   stage e r                temporary e holds the values of one iteration of r: a row, which stays in the cache
//   vectorize c.i            compute several iterations at once, if the backend can
//
// The schedule of a product of matrices has `split`, `order`, `bind`, `stage`, `vectorize` and
//
//   atom 8 16                the sums of 8 rows and 16 columns are in registers (compiler/kernel/product_schedule.h)
//
// The primitives are those of Halide and TVM (split, reorder, bind, compute-at, vectorize, unroll, stage). They never
// change results: ApplySchedule rejects a schedule in which a value would be read before it is written, or the elements
// of a reduction's lane would be combined in another order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/kernel/kernel.h"

namespace xlad::compiler {

struct KernelSchedule {
  struct Split {
    std::string dim;
    int64_t factor = 1;
    friend bool operator==(const Split&, const Split&) = default;
  };
  // A statement or temporary, and a loop.
  struct Place {
    std::string what, loop;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct Tile {
    int64_t rows = 0, columns = 0;
    friend bool operator==(const Tile&, const Tile&) = default;
  };
  std::vector<Split> splits;       // At most one for each dimension.
  std::vector<std::string> order;  // Every loop exactly once, from the outermost to the innermost.
  std::vector<std::string> bind;   // The outermost loops, whose iterations are divided into tiles of `tile` iterations.
  int64_t tile = 0;
  std::vector<Place> at, stage;
  std::vector<std::string> vectorize, unroll;
  Tile atom;  // For products. If its sizes are 0, the code generator chooses them.

  friend bool operator==(const KernelSchedule&, const KernelSchedule&) = default;
};

// One loop of a scheduled kernel.
struct KernelLoop {
  std::string name;
  int dim = 0;
  // The number of iterations. In a split, the last iteration of the outer loop may have fewer inner iterations.
  int64_t size = 1;
  int64_t factor = 1;  // The number that one iteration adds to the index of `dim`.
  int inner = -1;      // For the outer loop of a split, the number of the inner loop. Otherwise -1.
  bool vectorize = false, unroll = false;
};

// A node of the loop nest. Nodes are in order of execution. A reduction is computed by three nodes: start (outside its
// reduced loops), compute, and finish.
struct NestNode {
  enum class Kind { kLoop, kStart, kCompute, kFinish };
  Kind kind = Kind::kLoop;
  int index = 0;  // The number of a loop or of a statement.
  std::vector<NestNode> body;
};

// The memory of a temporary with a primitive `stage`. It holds the values of one iteration of the loop that the
// primitive names. The statements that write and read the temporary share this loop.
struct StagedArray {
  int64_t elements = 0;
  std::vector<int64_t> factors;  // For each loop, the stride of its index in this memory, in elements.
};

// The schedule of a product of matrices, as its code generator reads it (compiler/kernel/product_schedule.h).
struct ProductBlocks {
  int64_t rows = 1, columns = 1, depth = 1;  // The sizes of blocks of m, n and k.
  bool vectorizes_rows = false;              // Whether the lanes of vectors are rows, not columns.
  bool packs_lhs = true, packs_rhs = true;
  bool blocks_by_columns = false;            // Whether the loop over blocks of columns is outside of that of rows.
  bool panels_by_rows = false;               // Whether the loop over panels of rows is outside of that of columns.
  int64_t tile = 1;                          // The number of blocks in a tile.
  int64_t atom_rows = 0, atom_columns = 0;   // The sums in registers; 0 if the code generator chooses them.
};

// A kernel with a valid schedule, as a loop nest. Backends lower it, and the interpreter runs it.
struct ScheduledKernel {
  Kernel kernel;
  KernelSchedule schedule;
  std::vector<KernelLoop> loops;
  std::vector<NestNode> nest;
  std::vector<StagedArray> staged;  // For each array. `elements` is 0 unless the array is staged.
  std::vector<int> bound;           // The loops that are divided into tiles.
  int64_t tiles = 1;
  std::optional<ProductBlocks> blocks;  // If the kernel is a product.
};

// InvalidArgument, naming the primitive, if a primitive does not fit the kernel (for example, if it names a loop that
// the kernel does not have) or would change results. The kernel must be verified.
absl::StatusOr<ScheduledKernel> ApplySchedule(Kernel kernel, KernelSchedule schedule);

// The compiler's own schedule: rows are divided into about `wanted_tiles` tiles, and consecutive statements share a
// loop over the columns if none needs a reduction that another one computes. A temporary holds one row, or one element
// if only the loop that writes it reads it. If reductions along short rows are followed only by maps over the rows,
// blocks of up to 256 rows are computed together, and a temporary holds a block. The result depends only on the
// arguments.
KernelSchedule DefaultSchedule(const Kernel& kernel, int64_t wanted_tiles);

// The text form, as in the example above, one primitive on each line.
std::string ScheduleText(const KernelSchedule& schedule);
// InvalidArgument with the line, what was found and what was expected.
absl::StatusOr<KernelSchedule> ParseSchedule(absl::string_view text);
uint64_t ScheduleHash(const KernelSchedule& schedule);

}  // namespace xlad::compiler

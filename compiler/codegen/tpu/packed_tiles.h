// Rows of packed tiles (machine/llo/isa.h).
#pragma once

#include "compiler/codegen/tpu/llo_builder.h"

namespace xlad::compiler {

// `rows` of a packed tile: the rows 8 part, ..., 8 part + 7. `part` is a scalar register.
//
// Unpack returns the vector value with these rows of the tile `packed`. Pack returns the tile with these rows replaced
// by `rows`. If elements of the type are not packed, Unpack returns `packed` and Pack returns `rows`.
int Unpack(LloBuilder* builder, machine::LloType type, int packed, int part);
int Pack(LloBuilder* builder, machine::LloType type, int packed, int rows, int part);

// The place of 8 rows in VMEM: a part of the tile `base` + `offset`, where `base` is a scalar register. `region` has
// the meaning that it has in LloBuilder::Store.
struct RowsInVmem {
  int base;
  int64_t offset;
  int part, region;
};
// Stores 8 rows, and keeps the other rows of a packed tile.
void StoreRows(LloBuilder* builder, machine::LloType type, const RowsInVmem& to, int rows);

// The position of 8 rows in the tiles of a block: the registers of the row of tiles, and of the part of a packed tile.
// `row` is the register of the number of the rows, in units of 8. If elements are not packed, `tile_row` is `row`.
struct RowPosition {
  int tile_row, part;
};
RowPosition PositionOfRows(LloBuilder* builder, machine::LloType type, int row);

// A register with the constant part `number` (0 to 3).
int PartRegister(LloBuilder* builder, int number);

}  // namespace xlad::compiler

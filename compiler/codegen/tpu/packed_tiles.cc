#include "compiler/codegen/tpu/packed_tiles.h"

#include <algorithm>
#include <iterator>

#include "base/status.h"

namespace xlad::compiler {

using machine::LloType;
using machine::PackingOf;

namespace {

const machine::PackedType& PackedTypeOf(LloType type) {
  const auto* found = std::find_if(std::begin(machine::kPackedTypes), std::end(machine::kPackedTypes),
                                   [type](const machine::PackedType& packed) { return packed.type == type; });
  XLAD_CHECK(found != std::end(machine::kPackedTypes));
  return *found;
}

}  // namespace

int Unpack(LloBuilder* builder, LloType type, int packed, int part) {
  return PackingOf(type) == 1 ? packed : builder->Vector(PackedTypeOf(type).unpack, {packed, part});
}

int Pack(LloBuilder* builder, LloType type, int packed, int rows, int part) {
  return PackingOf(type) == 1 ? rows : builder->Vector(PackedTypeOf(type).pack, {packed, rows, part});
}

void StoreRows(LloBuilder* builder, LloType type, const RowsInVmem& to, int rows) {
  if (PackingOf(type) > 1) rows = Pack(builder, type, builder->Load(to.base, to.offset, to.region), rows, to.part);
  builder->Store(to.base, to.offset, rows, to.region);
}

RowPosition PositionOfRows(LloBuilder* builder, LloType type, int row) {
  const int packing = PackingOf(type);
  if (packing == 1) return {row, LloBuilder::zero()};
  const RowPosition at{builder->NewScalar(), builder->NewScalar()};
  builder->Scalar(LloOp::kSDivI, at.tile_row, row, packing);
  builder->Scalar(LloOp::kSAndI, at.part, row, packing - 1);
  return at;
}

int PartRegister(LloBuilder* builder, int number) {
  if (number < 2) return number == 0 ? LloBuilder::zero() : LloBuilder::one();
  const int part = builder->NewScalar();
  builder->Scalar(LloOp::kSMov, part, 0, number);
  return part;
}

}  // namespace xlad::compiler

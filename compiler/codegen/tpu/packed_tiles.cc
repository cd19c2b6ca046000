#include "compiler/codegen/tpu/packed_tiles.h"

#include "base/status.h"

namespace xlad::compiler {

using machine::LloType;
using machine::PackingOf;

namespace {

LloOp UnpackOf(LloType type) {
  switch (type) {
    case LloType::kBf16:
      return LloOp::kVUnpackBf16;
    case LloType::kF16:
      return LloOp::kVUnpackF16;
    case LloType::kS16:
      return LloOp::kVUnpackS16;
    case LloType::kU16:
      return LloOp::kVUnpackU16;
    case LloType::kS8:
      return LloOp::kVUnpackS8;
    case LloType::kE4m3:
      return LloOp::kVUnpackE4m3;
    case LloType::kE5m2:
      return LloOp::kVUnpackE5m2;
    default:
      XLAD_CHECK(type == LloType::kU8);
      return LloOp::kVUnpackU8;
  }
}

LloOp PackOf(LloType type) {
  if (type == LloType::kBf16) return LloOp::kVPackBf16;
  if (type == LloType::kF16) return LloOp::kVPackF16;
  if (type == LloType::kE4m3) return LloOp::kVPackE4m3;
  if (type == LloType::kE5m2) return LloOp::kVPackE5m2;
  return PackingOf(type) == 2 ? LloOp::kVPack16 : LloOp::kVPack8;
}

}  // namespace

int Unpack(LloBuilder* builder, LloType type, int packed, int part) {
  return PackingOf(type) == 1 ? packed : builder->Vector(UnpackOf(type), {packed, part});
}

int Pack(LloBuilder* builder, LloType type, int packed, int rows, int part) {
  return PackingOf(type) == 1 ? rows : builder->Vector(PackOf(type), {packed, rows, part});
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

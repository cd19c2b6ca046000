// Element rules of opcodes that only move data: they map an output element to an operand element.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Module.h>

#include <cstddef>
#include <map>

#include "base/kernel_abi.h"
#include "compiler/codegen/llvm/element_rules.h"
#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::Dims;

const Dims& SizesOf(const Instruction& instruction) { return instruction.shape().dims(); }

Values Broadcast(Elements& elements, const Instruction& broadcast, const Index& index) {
  const Instruction* operand = broadcast.operand(0);
  if (operand->shape().is_scalar()) return {elements.EmitScalar(operand)};
  const Values dims = DimsOf(elements.ir(), index, SizesOf(broadcast));
  Values picked;
  for (int64_t d = 0; d < operand->shape().ndim(); ++d) {
    // Older programs broadcast dimensions of size 1 implicitly.
    const int64_t to = broadcast.dimensions()[d];
    picked.push_back(operand->shape().dim(d) == 1 ? elements.ir().I64(0) : dims[to]);
  }
  return {elements.Emit(operand, Index::Of(picked))};
}

Values Reshape(Elements& elements, const Instruction& reshape, const Index& index) {
  const Instruction* operand = reshape.operand(0);
  return {elements.Emit(operand, ReshapeIndex(elements.ir(), index, SizesOf(reshape), SizesOf(*operand)))};
}

Values Transpose(Elements& elements, const Instruction& transpose, const Index& index) {
  const Values dims = DimsOf(elements.ir(), index, SizesOf(transpose));
  Values permuted(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) permuted[transpose.dimensions()[d]] = dims[d];
  return {elements.Emit(transpose.operand(0), Index::Of(permuted))};
}

Values Slice(Elements& elements, const Instruction& slice, const Index& index) {
  Ir& ir = elements.ir();
  Values dims = DimsOf(ir, index, SizesOf(slice));
  for (size_t d = 0; d < dims.size(); ++d) {
    const hlo::SliceDimension& part = slice.attributes().slice[d];
    dims[d] = ir.Add(ir.Mul(dims[d], part.stride), ir.I64(part.start));
  }
  return {elements.Emit(slice.operand(0), Index::Of(dims))};
}

Values Reverse(Elements& elements, const Instruction& reverse, const Index& index) {
  Ir& ir = elements.ir();
  Values dims = DimsOf(ir, index, SizesOf(reverse));
  for (const int64_t d : reverse.dimensions()) {
    llvm::Value*& i = dims[d];
    i = ir.b.CreateSub(ir.I64(SizesOf(reverse)[d] - 1), i, "", true, true);
  }
  return {elements.Emit(reverse.operand(0), Index::Of(dims))};
}

// Computes both the element of the operand, at a clamped index, and the padding value, because a branch would prevent
// vectorization.
Values Pad(Elements& elements, const Instruction& pad, const Index& index) {
  Ir& ir = elements.ir();
  const Instruction* operand = pad.operand(0);
  llvm::Value* filler = elements.EmitScalar(pad.operand(1));
  if (operand->shape().elements() == 0) return {filler};
  Values dims = DimsOf(ir, index, SizesOf(pad));
  llvm::Value* inside = ir.b.getTrue();
  for (size_t d = 0; d < dims.size(); ++d) {
    const hlo::PaddingDimension& padding = pad.attributes().padding[d];
    const int64_t size = operand->shape().dims()[d], step = padding.interior + 1;
    if (padding.low == 0 && padding.high == 0 && step == 1) continue;
    llvm::Value* position = ir.AddSigned(dims[d], -padding.low);
    inside = ir.b.CreateAnd(inside, ir.InRange(position, 0, (size - 1) * step + 1));
    if (step != 1) {
      inside = ir.b.CreateAnd(inside, ir.b.CreateICmpEQ(ir.b.CreateSRem(position, ir.I64(step)), ir.I64(0)));
      position = ir.b.CreateSDiv(position, ir.I64(step));
    }
    dims[d] = ir.Clamp(position, 0, size - 1);
  }
  return {ir.b.CreateSelect(inside, elements.Emit(operand, Index::Of(dims)), filler)};
}

// A binary search finds the operand. The code has few nested branches even if there are many operands: LLVM's analyses
// take time in proportion to the depth of the nesting for each branch.
Values Concatenate(Elements& elements, const Instruction& concatenate, const Index& index) {
  Ir& ir = elements.ir();
  const size_t along = concatenate.dimensions()[0];
  const Values dims = DimsOf(ir, index, SizesOf(concatenate));
  llvm::Value* result = ir.Slot(RegisterType(ir.context(), concatenate.shape().type()));
  std::vector<int64_t> begins;
  int64_t end = 0;
  for (const Instruction* operand : concatenate.operands()) {
    begins.push_back(end);
    end += operand->shape().dims()[along];
  }
  // One of the operands `first` to `last` - 1 has the element.
  const std::function<void(int64_t, int64_t)> search = [&](int64_t first, int64_t last) {
    if (last - first == 1) {
      Values inner = dims;
      inner[along] = ir.AddSigned(dims[along], -begins[first]);
      ir.b.CreateStore(elements.Emit(concatenate.operand(first), Index::Of(inner)), result);
      return;
    }
    const int64_t middle = first + (last - first) / 2;
    ir.If(ir.b.CreateICmpULT(dims[along], ir.I64(begins[middle])), [&] { search(first, middle); },
          [&] { search(middle, last); });
  };
  search(0, concatenate.operand_count());
  return {ir.b.CreateLoad(RegisterType(ir.context(), concatenate.shape().type()), result)};
}

Values Iota(Elements& elements, const Instruction& iota, const Index& index) {
  Ir& ir = elements.ir();
  const Values dims = DimsOf(ir, index, SizesOf(iota));
  llvm::Value* position = dims[iota.dimensions()[0]];
  const ElementType type = iota.shape().type();
  llvm::Type* target = RegisterType(ir.context(), tensor::IsComplex(type) ? tensor::RealPartOf(type) : type);
  if (target->isIntegerTy()) return {ir.b.CreateZExtOrTrunc(position, target)};
  // The position is converted from 32 bits if possible, because vector units support this conversion.
  llvm::Value* narrow =
      iota.shape().elements() < (int64_t{1} << 31) ? ir.b.CreateTrunc(position, ir.b.getInt32Ty()) : position;
  llvm::Value* real = RoundTo(ir.b, type, ir.b.CreateSIToFP(narrow, target));
  if (!tensor::IsComplex(type)) return {real};
  return {MakeComplex(ir.b, real, llvm::ConstantFP::get(target, 0.0))};
}

// The bytes of an array become a global variable of the module. A splat becomes an immediate.
Values Constant(Elements& elements, const Instruction& constant, const Index& index) {
  Ir& ir = elements.ir();
  const tensor::Array& array = constant.literal()->array;
  const ElementType type = array.shape().type;
  const size_t width = tensor::ByteWidth(type);
  const absl::Span<const std::byte> bytes = array.bytes();
  bool uniform = true;
  for (size_t i = width; i < bytes.size() && uniform; ++i) uniform = bytes[i] == bytes[i - width];
  if (uniform && !bytes.empty()) return {ConstantOf(ir.context(), type, bytes.subspan(0, width))};
  const std::string name = "xlad.constant." + constant.name();
  const llvm::StringRef raw(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  llvm::Constant* data = llvm::ConstantDataArray::getString(ir.context(), raw, false);
  llvm::GlobalVariable* global = ir.module().getGlobalVariable(name, true);
  // LLVM makes equal constants unique, so pointers to equal contents are equal. The contents are compared because names
  // are unique only in one HLO module.
  if (global == nullptr || global->getInitializer() != data) {
    global =
        new llvm::GlobalVariable(ir.module(), data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, name);
    global->setAlignment(llvm::Align(64));
  }
  return {LoadFrom(ir, ArrayView{global, array.shape()}, index)};
}

Values DynamicSlice(Elements& elements, const Instruction& slice, const Index& index) {
  Ir& ir = elements.ir();
  const Values starts = SliceStarts(elements, slice, 1, SizesOf(*slice.operand(0)), SizesOf(slice));
  Values dims = DimsOf(ir, index, SizesOf(slice));
  for (size_t d = 0; d < dims.size(); ++d) dims[d] = ir.Add(starts[d], dims[d]);
  return {elements.Emit(slice.operand(0), Index::Of(dims))};
}

Values DynamicUpdateSlice(Elements& elements, const Instruction& update_slice, const Index& index) {
  Ir& ir = elements.ir();
  const Instruction* update = update_slice.operand(1);
  if (update->shape().elements() == 0) return {elements.Emit(update_slice.operand(0), index)};
  const Dims& sizes = SizesOf(*update);
  const Values starts = SliceStarts(elements, update_slice, 2, SizesOf(update_slice), sizes);
  Values dims = DimsOf(ir, index, SizesOf(update_slice));
  llvm::Value* inside = ir.b.getTrue();
  for (size_t d = 0; d < dims.size(); ++d) {
    if (sizes[d] == SizesOf(update_slice)[d]) continue;
    llvm::Value* offset = ir.b.CreateSub(dims[d], starts[d]);
    inside = ir.b.CreateAnd(inside, ir.InRange(offset, 0, sizes[d]));
    dims[d] = ir.Clamp(offset, 0, sizes[d] - 1);
  }
  llvm::Value* kept = elements.Emit(update_slice.operand(0), index);
  return {ir.b.CreateSelect(inside, elements.Emit(update, Index::Of(dims)), kept)};
}

// If the widths of the types differ, an element of the wider type is k elements of the narrower type (little-endian)
// along an additional minor dimension.
Values BitcastConvert(Elements& elements, const Instruction& bitcast, const Index& index) {
  Ir& ir = elements.ir();
  const Instruction* operand = bitcast.operand(0);
  const ElementType from = operand->shape().type(), to = bitcast.shape().type();
  const unsigned from_bits = static_cast<unsigned>(tensor::BitWidth(from));
  const unsigned to_bits = static_cast<unsigned>(tensor::BitWidth(to));
  Values dims = DimsOf(ir, index, SizesOf(bitcast));
  if (from_bits > to_bits) {
    llvm::Value* part = dims.back();
    dims.pop_back();
    llvm::Value* bits = ToBits(ir.b, from, elements.Emit(operand, Index::Of(dims)));
    llvm::Value* shift = ir.b.CreateZExtOrTrunc(ir.Mul(part, to_bits), bits->getType());
    return {FromBits(ir.b, to, ir.b.CreateTrunc(ir.b.CreateLShr(bits, shift), ir.b.getIntNTy(to_bits)))};
  }
  llvm::Value* whole = llvm::ConstantInt::get(ir.b.getIntNTy(to_bits), 0);
  for (int64_t i = 0; i < SizesOf(*operand).back(); ++i) {
    Values inner = dims;
    inner.push_back(ir.I64(i));
    llvm::Value* bits = ToBits(ir.b, from, elements.Emit(operand, Index::Of(inner)));
    bits = ir.b.CreateZExt(bits, whole->getType());
    whole = ir.b.CreateOr(whole, ir.b.CreateShl(bits, static_cast<uint64_t>(i) * from_bits));
  }
  return {FromBits(ir.b, to, whole)};
}

Values PartitionId(Elements& elements, const Instruction&, const Index&) {
  IrBuilder& b = elements.ir().b;
  llvm::Value* address =
      b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), elements.ir().api(), offsetof(XladKernelApi, partition_id));
  return {b.CreateLoad(b.getInt32Ty(), address)};
}

Values ReplicaId(Elements& elements, const Instruction&, const Index&) { return {elements.ir().b.getInt32(0)}; }

Values DimensionSize(Elements& elements, const Instruction& instruction, const Index&) {
  const int64_t size = instruction.operand(0)->shape().dim(instruction.dimensions()[0]);
  return {elements.ir().b.getInt32(static_cast<uint32_t>(size))};
}

}  // namespace

llvm::Value* ClampedIndex(Ir& ir, ElementType type, llvm::Value* value, int64_t limit) {
  if (tensor::IsSigned(type)) return ir.Clamp(ir.b.CreateSExtOrTrunc(value, ir.b.getInt64Ty()), 0, limit);
  value = ir.b.CreateZExtOrTrunc(value, ir.b.getInt64Ty());
  return ir.b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, value, ir.I64(limit));
}

Values SliceStarts(Elements& elements, const Instruction& instruction, int64_t first, const Dims& sizes,
                   const Dims& window) {
  Ir& ir = elements.ir();
  Values starts;
  for (int64_t d = 0; d < std::ssize(sizes); ++d) {
    const int64_t limit = sizes[d] - window[d];
    const bool one_array = instruction.operand_count() == first + 1 && instruction.operand(first)->shape().ndim() == 1;
    if (limit == 0) {
      starts.push_back(ir.I64(0));
      continue;
    }
    const Instruction* start = instruction.operand(one_array ? first : first + d);
    llvm::Value* value = one_array ? elements.Emit(start, Index::Of({ir.I64(d)})) : elements.EmitScalar(start);
    starts.push_back(ClampedIndex(ir, start->shape().type(), value, limit));
  }
  return starts;
}

const std::map<Opcode, ElementRule>& IndexRules() {
  static const auto* const rules = new std::map<Opcode, ElementRule>{
      {Opcode::kBroadcast, Broadcast},
      {Opcode::kReshape, Reshape},
      {Opcode::kTranspose, Transpose},
      {Opcode::kSlice, Slice},
      {Opcode::kReverse, Reverse},
      {Opcode::kPad, Pad},
      {Opcode::kConcatenate, Concatenate},
      {Opcode::kIota, Iota},
      {Opcode::kConstant, Constant},
      {Opcode::kDynamicSlice, DynamicSlice},
      {Opcode::kDynamicUpdateSlice, DynamicUpdateSlice},
      {Opcode::kBitcastConvert, BitcastConvert},
      {Opcode::kPartitionId, PartitionId},
      {Opcode::kReplicaId, ReplicaId},
      {Opcode::kGetDimensionSize, DimensionSize},
  };
  return *rules;
}

}  // namespace xlad::compiler

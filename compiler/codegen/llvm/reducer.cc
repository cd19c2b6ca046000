#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {

using hlo::Opcode;

Reducer::Reducer(const hlo::Computation* computation, ElementType type, bool strict)
    : computation_(computation), type_(type), strict_(strict) {
  const std::optional<Opcode> plain = PlainReducer(*computation);
  free_order_ = !strict && tensor::IsFloating(type) && (plain == Opcode::kAdd || plain == Opcode::kMultiply);
}

Values Reducer::Combine(Elements& elements, const Values& accumulators, const Values& values) const {
  if (free_order_) {
    IrBuilder& b = elements.ir().b;
    const llvm::IRBuilderBase::FastMathFlagGuard guard(b);
    llvm::FastMathFlags flags;
    flags.setAllowReassoc();
    b.setFastMathFlags(flags);
    return {PlainReducer(*computation_) == Opcode::kAdd ? b.CreateFAdd(accumulators[0], values[0])
                                                        : b.CreateFMul(accumulators[0], values[0])};
  }
  Values arguments = accumulators;
  arguments.insert(arguments.end(), values.begin(), values.end());
  return elements.Apply(*computation_, arguments);
}

Values Reducer::Round(Ir& ir, Values accumulators) const {
  if (free_order_) accumulators[0] = RoundTo(ir.b, type_, accumulators[0]);
  return accumulators;
}

llvm::Value* Reducer::Neutral(Ir& ir) const {
  const std::optional<Opcode> plain = PlainReducer(*computation_);
  llvm::Type* type = RegisterType(ir.context(), type_);
  if (strict_ || !plain.has_value() || !(type->isFloatTy() || type->isDoubleTy())) return nullptr;
  switch (*plain) {
    case Opcode::kAdd:
      return llvm::ConstantFP::getNegativeZero(type);
    case Opcode::kMultiply:
      return llvm::ConstantFP::get(type, 1.0);
    case Opcode::kMaximum:
    case Opcode::kMinimum:
      return llvm::ConstantFP::getInfinity(type, *plain == Opcode::kMaximum);
    default:
      return nullptr;
  }
}

Accumulators::Accumulators(Ir* ir, const std::vector<tensor::Shape>& leaves, int64_t count) : ir_(*ir) {
  for (const tensor::Shape& leaf : leaves) {
    types_.push_back(RegisterType(ir_.context(), leaf.type));
    is_bool_.push_back(types_.back()->isIntegerTy(1) && count > 1);
    if (is_bool_.back()) types_.back() = ir_.b.getInt8Ty();
    slots_.push_back(ir_.Slot(types_.back(), count));
  }
}

llvm::Value* Accumulators::Address(size_t leaf, llvm::Value* at) const {
  return at == nullptr ? slots_[leaf] : ir_.Address(types_[leaf], slots_[leaf], at);
}

void Accumulators::Store(const Values& values, llvm::Value* at) {
  for (size_t i = 0; i < values.size(); ++i) {
    llvm::Value* value = values[i];
    if (is_bool_[i]) value = ir_.b.CreateZExt(value, types_[i]);
    ir_.b.CreateStore(value, Address(i, at));
  }
}

Values Accumulators::Load(llvm::Value* at) const {
  Values values;
  for (size_t i = 0; i < slots_.size(); ++i) {
    llvm::Value* value = ir_.b.CreateLoad(types_[i], Address(i, at));
    if (is_bool_[i]) value = ir_.b.CreateTrunc(value, ir_.b.getInt1Ty());
    values.push_back(value);
  }
  return values;
}

}  // namespace xlad::compiler

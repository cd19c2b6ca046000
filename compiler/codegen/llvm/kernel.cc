#include "compiler/codegen/llvm/kernel.h"

#include <llvm/IR/Module.h>

#include <algorithm>
#include <map>

#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "compiler/codegen/llvm/nest.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// The leaves of a kernel's arguments, and the results that share the memory of an operand.
struct Arguments {
  std::vector<tensor::Shape> operands;
  std::vector<tensor::Shape> results;
  // For each operand leaf, the argument from which it is read. A repeated operand is read from its first argument.
  std::vector<unsigned> source;
  std::map<int, unsigned> in_place;  // Maps a result leaf to an argument.

  explicit Arguments(const KernelRequest& request) : results(LeafShapes(request.root->shape())) {
    std::map<const Instruction*, unsigned> first;
    for (const Instruction* operand : request.root->operands()) {
      unsigned from = first.try_emplace(operand, static_cast<unsigned>(operands.size())).first->second;
      for (tensor::Shape& leaf : LeafShapes(operand->shape())) {
        operands.push_back(std::move(leaf));
        source.push_back(from++);
      }
    }
    for (const auto& [result, operand] : request.in_place) in_place[result] = source[operand];
  }
};

absl::Status CheckInPlace(const KernelRequest& request) {
  int operands = 0;
  for (const Instruction* operand : request.root->operands()) operands += CountArrayLeaves(operand->shape());
  for (const auto& [result, operand] : request.in_place) {
    if (result < 0 || result >= CountArrayLeaves(request.root->shape()) || operand < 0 || operand >= operands) {
      return absl::InvalidArgumentError(absl::StrCat("kernel ", request.symbol, ": found in-place pair (", result, ", ",
                                                     operand, "), expected a result leaf below ",
                                                     CountArrayLeaves(request.root->shape()),
                                                     " and an operand leaf below ", operands));
    }
  }
  return absl::OkStatus();
}

void Annotate(llvm::Argument* argument, int64_t bytes, bool no_alias) {
  llvm::AttrBuilder attributes(argument->getContext());
  attributes.addAlignmentAttr(XLAD_BUFFER_ALIGNMENT);
  attributes.addAttribute(llvm::Attribute::NoCapture);
  if (bytes > 0) attributes.addDereferenceableAttr(bytes);
  if (no_alias) attributes.addAttribute(llvm::Attribute::NoAlias);
  argument->addAttrs(attributes);
}

llvm::Function* MakeFunction(llvm::Module* module, const std::string& name, const Arguments& arguments,
                             const std::vector<llvm::Type*>& more) {
  llvm::LLVMContext& context = module->getContext();
  llvm::Type* pointer = llvm::PointerType::get(context, 0);
  const size_t count = arguments.operands.size() + arguments.results.size();
  std::vector<llvm::Type*> types(count + 2, pointer);
  types.push_back(llvm::Type::getInt64Ty(context));
  types.insert(types.end(), more.begin(), more.end());
  llvm::FunctionType* type = llvm::FunctionType::get(llvm::Type::getInt32Ty(context), types, false);
  llvm::Function* function = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr(llvm::Attribute::MustProgress);
  // Results in place are written through the operand's pointer, because that pointer is declared noalias.
  unsigned n = 0;
  for (const tensor::Shape& shape : arguments.operands) Annotate(function->getArg(n++), shape.bytes(), true);
  for (const tensor::Shape& shape : arguments.results) {
    const int result = n - arguments.operands.size();
    Annotate(function->getArg(n++), shape.bytes(), !arguments.in_place.contains(result));
  }
  Annotate(function->getArg(n), 0, true);
  return function;
}

void BindOperands(KernelContext& kernel, const KernelRequest& request, const Arguments& arguments) {
  const Instruction* root = request.root;
  const bool is_fusion = root->opcode() == Opcode::kFusion;
  llvm::Function* function = kernel.ir().function();
  unsigned n = 0;
  for (int64_t i = 0; i < root->operand_count(); ++i) {
    std::vector<ArrayView> leaves;
    for (const tensor::Shape& shape : LeafShapes(root->operand(i)->shape())) {
      leaves.push_back({function->getArg(arguments.source[n++]), shape});
    }
    const Instruction* bound = is_fusion ? root->called()[0]->parameter(i) : root->operand(i);
    kernel.elements().BindArrays(bound, std::move(leaves));
  }
  const Instruction* inner = is_fusion ? root->called()[0]->root() : root;
  for (int r = 0; r < std::ssize(arguments.results); ++r) {
    const auto shared = arguments.in_place.find(r);
    const bool in_place = shared != arguments.in_place.end();
    llvm::Value* base = function->getArg(in_place ? shared->second : n + r);
    kernel.outputs().push_back({inner, r, ArrayView{base, arguments.results[r]}, in_place});
  }
}

}  // namespace

void KernelContext::Divide(const Tiling& tiling) {
  if (tiling.tiles() > 1) range_ = RangeOfTile(ir_, tiling, tile_);
}

void KernelContext::DivideThreads(int64_t positions) {
  constexpr int64_t kWarp = 32, kMost = 256;
  const int64_t threads = std::min(kMost, RoundUp(std::max<int64_t>(positions, 1), kWarp));
  DivideBlocks(std::max<int64_t>(1, CeilDiv(positions, threads)), threads);
}

void KernelContext::DivideBlocks(int64_t tiles, int64_t threads) {
  threads_ = threads;
  blocks_ = tiles;
  range_.thread = tiles == 1 ? thread_ : ir_.Add(ir_.Mul(tile_, threads), thread_);
  range_.threads = tiles * threads;
}

ArrayView KernelContext::ScratchOfTile(const tensor::Shape& shape) {
  const int64_t bytes = RoundUp(shape.bytes(), XLAD_BUFFER_ALIGNMENT);
  const ArrayView first = Scratch(shape);
  scratch_bytes_ += (tiles() - 1) * bytes;
  if (tiles() == 1) return first;
  return {ir_.Address(ir_.b.getInt8Ty(), first.base, ir_.Mul(tile_, bytes)), shape};
}

ArrayView KernelContext::Scratch(const tensor::Shape& shape) {
  llvm::Value* base = ir_.b.CreateConstInBoundsGEP1_64(ir_.b.getInt8Ty(), scratch_, scratch_bytes_);
  scratch_bytes_ += RoundUp(shape.bytes(), XLAD_BUFFER_ALIGNMENT);
  return {base, shape};
}

KernelRule FindKernelRule(Opcode opcode) {
  static const auto* const rules = new std::map<Opcode, KernelRule>{
      {Opcode::kDynamicUpdateSlice, EmitDynamicUpdateSlice},
      {Opcode::kScatter, EmitScatter},
      {Opcode::kSort, EmitSort},
      {Opcode::kTopk, EmitTopk},
      {Opcode::kSelectAndScatter, EmitSelectAndScatter},
      {Opcode::kScan, EmitScan},
      {Opcode::kTranspose, EmitTranspose},
      {Opcode::kDot, EmitDot},
      {Opcode::kRaggedDot, EmitRaggedDotKernel},
      {Opcode::kConvolution, EmitConvolution},
      {Opcode::kRngBitGenerator, EmitRngBitGenerator},
      {Opcode::kCholesky, EmitCholesky},
      {Opcode::kTriangularSolve, EmitTriangularSolve},
      {Opcode::kBatchNormTraining, EmitBatchNorm},
      {Opcode::kBatchNormInference, EmitBatchNorm},
      {Opcode::kBatchNormGrad, EmitBatchNorm},
  };
  const auto found = rules->find(opcode);
  return found == rules->end() ? nullptr : found->second;
}

const BlockRule* FindBlockRule(Opcode opcode) {
  static constexpr BlockRule kSort = {BlockSortParts, EmitBlockSort};
  static constexpr BlockRule kBatchNorm = {BatchNormParts, EmitBatchNormPart};
  switch (opcode) {
    case Opcode::kSort:
    case Opcode::kTopk:
      return &kSort;
    case Opcode::kBatchNormTraining:
    case Opcode::kBatchNormInference:
    case Opcode::kBatchNormGrad:
      return &kBatchNorm;
    default:
      return nullptr;
  }
}

void ForBlock(KernelContext& kernel, int64_t count, const std::function<void(llvm::Value*)>& body) {
  Ir& ir = kernel.ir();
  const int64_t threads = kernel.threads(), turns = count / threads, rest = count % threads;
  const auto turn = [&](llvm::Value* number) { body(ir.Add(ir.Mul(number, threads), kernel.thread())); };
  ir.Loop(turns, turn);
  if (rest > 0) ir.If(ir.b.CreateICmpULT(kernel.thread(), ir.I64(rest)), [&] { turn(ir.I64(turns)); });
}

llvm::Argument* KernelFunction::Additional(size_t i) const {
  return function->getArg(static_cast<unsigned>(static_cast<size_t>(arguments) + 3 + i));
}

absl::StatusOr<KernelFunction> OpenKernelFunction(llvm::Module* module, const KernelRequest& request,
                                                  const std::string& name, const std::vector<llvm::Type*>& more) {
  std::string why;
  if (!CanEmit(*request.root, &why)) return absl::UnimplementedError(why);
  XLAD_RETURN_IF_ERROR(CheckInPlace(request));
  const Arguments arguments(request);
  KernelFunction result;
  result.function = MakeFunction(module, name, arguments, more);
  result.arguments = std::ssize(arguments.operands) + std::ssize(arguments.results);
  const unsigned count = static_cast<unsigned>(result.arguments);
  for (size_t i = 0; i < arguments.operands.size(); ++i) {
    result.operands.push_back({result.function->getArg(arguments.source[i]), arguments.operands[i]});
  }
  result.ir = std::make_unique<Ir>(module, result.function, result.function->getArg(count + 1));
  result.context = std::make_unique<KernelContext>(result.ir.get(), result.function->getArg(count),
                                                   result.function->getArg(count + 2), request.wanted_tiles);
  BindOperands(*result.context, request, arguments);
  return result;
}

const Instruction* InnerRoot(const KernelFunction& kernel, const KernelRequest& request) {
  const std::vector<Output>& outputs = kernel.context->outputs();
  return outputs.empty() ? request.root : outputs[0].instruction;
}

absl::StatusOr<EmittedFunction> EmitKernelFunction(llvm::Module* module, const KernelRequest& request,
                                                   int64_t vector_bytes) {
  XLAD_ASSIGN_OR_RETURN(KernelFunction opened, OpenKernelFunction(module, request, request.symbol + ".body", {}));
  KernelContext& kernel = *opened.context;
  kernel.SetVectorBytes(vector_bytes);
  const Instruction* inner = InnerRoot(opened, request);
  const KernelRule rule = FindKernelRule(inner->opcode());
  const bool is_product = request.kernel != nullptr && request.kernel->blocks.has_value();
  if (is_product) kernel.SetBlocks(&*request.kernel->blocks);
  if (request.kernel != nullptr && !is_product) {
    EmitNest(kernel, *request.kernel, opened.operands);
  } else if (rule != nullptr) {
    rule(kernel, *inner);
  } else {
    EmitLoops(kernel);
  }
  IrBuilder& b = opened.ir->b;
  b.CreateRet(b.getInt32(XLAD_KERNEL_OK));
  // The bits of a result must not depend on how tiles are distributed among calls, so the code of all tiles must be the
  // same.
  if (kernel.tiles() > 1) opened.function->addFnAttr(llvm::Attribute::NoInline);
  return EmittedFunction{opened.function, opened.arguments, {kernel.scratch_bytes(), kernel.tiles()}, nullptr};
}

}  // namespace xlad::compiler

// Inside the HLO text parser: what its parts offer to each other. Callers outside use hlo/text/text.h.
//
// Every function takes up where the lexer stands, returns false once the lexer has failed, and leaves the error there.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hlo/module.h"
#include "hlo/text/lexer.h"

namespace xlad::hlo {

// parse_shape.cc
bool ParseShape(Lexer& lexer, Shape* shape);
// Whether a shape stands next (and not a name or an opcode).
bool AtShape(Lexer& lexer);
// "{1,0:T(8,128)}" behind an array of `ndim` dimensions.
bool ParseLayout(Lexer& lexer, int64_t ndim, Layout* layout);
// set_layout, but nearly all shapes, which lie row-major, share one layout.
void SetLayout(Layout layout, Shape* shape);

// parse_literal.cc. `elided_bytes` is what constants without values ("{...}") may still take; it is counted down, and
// those beyond it have no bytes.
bool ParseLiteral(Lexer& lexer, const Shape& shape, int64_t* elided_bytes, Literal* literal);

// parse_values.cc
bool ParseInts(Lexer& lexer, Dims* values);  // {1,2,3}
bool ParseBools(Lexer& lexer, std::vector<bool>* values);  // {true,false}, or one without braces.
bool ParseStringMap(Lexer& lexer, StringMap* map);
bool ParseMetadata(Lexer& lexer, Metadata* metadata);
bool ParseWindow(Lexer& lexer, Window* window);
bool ParseConvolutionDimensions(Lexer& lexer, ConvolutionDimensions* dimensions);
bool ParsePadding(Lexer& lexer, std::vector<PaddingDimension>* padding);
bool ParseSlice(Lexer& lexer, std::vector<SliceDimension>* slice);
bool ParsePairs(Lexer& lexer, std::vector<std::pair<int64_t, int64_t>>* pairs);
bool ParseShapes(Lexer& lexer, std::vector<Shape>* shapes);  // {f32[2], s32[]}
bool ParseOperandAliasing(Lexer& lexer, std::vector<OutputOperandAlias>* aliasing);
// "{" item {"," item} "}", where `item` parses one.
template <typename Item>
bool ParseBraced(Lexer& lexer, const Item& item) {
  if (!lexer.Expect('{')) return false;
  if (lexer.Accept('}')) return true;
  do {
    if (!item()) return false;
  } while (lexer.Accept(','));
  return lexer.Expect('}');
}

// parse_sharding.cc
bool ParseSharding(Lexer& lexer, OpSharding* sharding);
bool ParseReplicaGroups(Lexer& lexer, ReplicaGroups* groups);
// Integers and commas up to `close`, which is taken too.
bool ParseIntsUntil(Lexer& lexer, char close, Dims* values);
// "T(1,0)" directly behind the sizes of an iota of `ndim` dimensions, or nothing.
bool ParseTranspose(Lexer& lexer, size_t ndim, Dims* transpose);
// That an iota of sizes `reshape`, transposed, numbers `devices` devices.
bool CheckIota(Lexer& lexer, const char* at, int64_t devices, const Dims& reshape, const Dims& transpose);
// The numbers of such an iota in order.
Dims TransposedIota(const Dims& reshape, const Dims& transpose);

// parse_checks.cc. Attributes of one meaning in one spelling, so that equal programs are equal.
void Canonicalize(Instruction* instruction, absl::Span<Instruction* const> operands);
// What protos bring as text must print as what it says it is.
absl::Status CheckCarried(absl::string_view other);
absl::Status CheckCarriedHeader(absl::string_view other);
absl::Status CheckMetadata(const Metadata& metadata);
absl::Status CheckLayoutSuffix(absl::string_view suffix);
// Header attributes that are only carried.
bool IsCarriedHeader(absl::string_view name);
std::vector<absl::string_view> OpcodeNames();

// parse_async.cc. "slice-start": async-start, and slice for `wrapped`; false for what has no such spelling.
bool SplitAsyncName(absl::string_view name, Opcode* opcode, Opcode* wrapped);
// Whether an attribute of "slice-start" says something of the pair, not of the slice.
bool IsAsyncAttribute(absl::string_view name);

// parse_module.cc, parse_instruction.cc, parse_async.cc
class Parser {
 public:
  explicit Parser(absl::string_view text) : lexer_(text) {}
  absl::StatusOr<std::unique_ptr<Module>> Run();

  // For the attribute table.
  Lexer& lexer() { return lexer_; }
  // The name of a computation that the text has already defined, or a computation without name in braces.
  bool ParseComputationReference(Computation** computation);
  // Programs repeat their metadata: the same text gives the same object.
  bool ParseSharedMetadata(std::shared_ptr<const Metadata>* metadata);
  // The name of an instruction of the computation that is being read.
  bool ParseInstructionReference(Instruction** instruction);

 private:
  // The computation that is being read.
  struct Scope {
    Computation* computation = nullptr;
    absl::flat_hash_map<absl::string_view, Instruction*> names;
    bool invent_parameters = false;  // Operands that nothing defines become parameters.
  };
  struct Signature {
    const char* at = nullptr;  // Null: the computation has none.
    Shape result;
  };
  // One instruction on its way in.
  struct Draft {
    const char* at = nullptr;
    int line = 0, column = 0;
    absl::string_view name;
    bool is_root = false;
    bool infer_shape = false;
    std::unique_ptr<Instruction> instruction;
    std::unique_ptr<Instruction> wrapped;  // Of "slice-start": the slice.
    std::vector<Instruction*> operands;
  };

  bool ParseText();
  bool ParseHeader();
  bool ParseHeaderAttribute(absl::string_view name, const char* at);
  bool ParseStackFrames();
  bool ParseComputations();
  bool ParseComputation();
  bool ParseSignature(Signature* signature);
  bool CheckSignature(const Signature& signature, const Computation& computation);
  bool ParseBody(const char* at, Scope* scope);
  bool CheckParameters(const char* at, const Computation& computation);
  bool ParseLoneInstruction();
  bool Finish();

  Draft NewDraft(const char* at);
  bool ParseInstruction(Scope* scope);
  bool ParseRightSide(Scope* scope, Draft* draft, bool with_attributes);
  bool ParseOpcodeName(Opcode* opcode, std::optional<Opcode>* wrapped);
  bool AddWrapped(Draft* draft);
  void BindWrapped(const Draft& draft);
  bool ParseOperands(Scope* scope, Draft* draft);
  bool ParseOperand(Scope* scope, Draft* draft);
  // "#1#0" behind %name: elements of its tuple.
  bool ParseOperandPart(Scope* scope, absl::string_view name, Instruction** operand);
  bool ParseParameterNumber(Draft* draft);
  bool ParseConstant(Draft* draft);
  bool ParseAttributes(Draft* draft);
  bool ParseAttribute(Draft* draft, std::vector<const void*>* seen);
  Instruction* AddDraft(Scope* scope, Draft* draft);
  Instruction* InventParameter(Scope* scope, absl::string_view name, const Shape& shape, const char* at);

  Lexer lexer_;
  std::unique_ptr<Module> module_;
  absl::flat_hash_map<absl::string_view, Computation*> computations_;
  absl::flat_hash_map<absl::string_view, std::shared_ptr<const Metadata>> metadata_;  // By its text.
  Computation* last_ = nullptr;  // The last one that is not inside another.
  Scope* scope_ = nullptr;
  absl::flat_hash_set<const Computation*> wrappers_;  // Made for "slice-start" and alike.
  bool nested_ = false;  // Some computation stands inside another's attributes.
  int64_t elided_bytes_ = int64_t{1} << 28;
  int64_t inferred_parts_ = 0;  // Of all shapes that the text leaves out.
};

}  // namespace xlad::hlo

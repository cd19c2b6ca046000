// The parts of the HLO text parser. Internal: other folders call hlo/text/text.h.
//
// Every function whose name begins with Parse parses from the lexer's current position. It returns false if the lexer
// has failed, and the lexer keeps the error.
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
// Returns true if the next token begins a shape, not a name or an opcode.
bool AtShape(Lexer& lexer);
// Parses "{1,0:T(8,128)}" after the sizes of an array of `ndim` dimensions.
bool ParseLayout(Lexer& lexer, int64_t ndim, Layout* layout);
// Like Shape::set_layout, but all row-major shapes share one layout object.
void SetLayout(Layout layout, Shape* shape);

// parse_literal.cc. `elided_bytes` limits the memory of constants whose elements are not all in the text: elided
// constants ("{...}") and constants with a single value. The function subtracts the bytes that it uses. If too few
// bytes are left, an elided constant gets no bytes, and a constant with a single value is an error.
bool ParseLiteral(Lexer& lexer, const Shape& shape, int64_t* elided_bytes, Literal* literal);

// parse_values.cc
bool ParseInts(Lexer& lexer, Dims* values);  // {1,2,3}
bool ParseBools(Lexer& lexer, std::vector<bool>* values);  // {true,false}, or a single word without braces.
bool ParseStringMap(Lexer& lexer, StringMap* map);
bool ParseMetadata(Lexer& lexer, Metadata* metadata);
bool ParseMetadataList(Lexer& lexer, std::vector<Metadata>* list);  // {op_name="a"} or {{op_name="a"},{op_name="b"}}
bool ParseWindow(Lexer& lexer, Window* window);
bool ParseConvolutionDimensions(Lexer& lexer, ConvolutionDimensions* dimensions);
bool ParsePadding(Lexer& lexer, std::vector<PaddingDimension>* padding);
bool ParseSlice(Lexer& lexer, std::vector<SliceDimension>* slice);
bool ParsePairs(Lexer& lexer, std::vector<std::pair<int64_t, int64_t>>* pairs);
bool ParseShapes(Lexer& lexer, std::vector<Shape>* shapes);  // {f32[2], s32[]}
bool ParseOperandAliasing(Lexer& lexer, std::vector<OutputOperandAlias>* aliasing);
// Parses "{" item {"," item} "}"; `item` parses one item.
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
// Parses integers and commas up to and including `close`.
bool ParseIntsUntil(Lexer& lexer, char close, Dims* values);
// Parses "T(1,0)" directly after the sizes of an iota of `ndim` dimensions. If it is absent, `transpose` becomes the
// identity. If `ndim` is at most 1, `transpose` is always empty.
bool ParseTranspose(Lexer& lexer, size_t ndim, Dims* transpose);
// Checks that a transposed iota of sizes `reshape` has `devices` elements, and that `transpose` is a permutation of its
// dimensions or empty.
bool CheckIota(Lexer& lexer, const char* at, int64_t devices, const Dims& reshape, const Dims& transpose);

// parse_checks.cc. Converts attributes with several spellings to one spelling, so that equal programs compare equal.
void Canonicalize(Instruction* instruction, absl::Span<Instruction* const> operands);
// Checks attribute text from a proto: it must parse as a list of attributes without a meaning in xlad.
absl::Status CheckCarried(absl::string_view other);
absl::Status CheckCarriedHeader(absl::string_view other);
absl::Status CheckMetadata(const Metadata& metadata);
absl::Status CheckLayoutSuffix(absl::string_view suffix);
// Returns true for a header attribute without a meaning in xlad, which is stored as text.
bool IsCarriedHeader(absl::string_view name);
std::vector<absl::string_view> OpcodeNames();

// parse_async.cc. For "slice-start" sets `opcode` to async-start and `wrapped` to slice, and similarly for
// "slice-update" and "slice-done". Returns false if `name` is not such a short spelling.
bool SplitAsyncName(absl::string_view name, Opcode* opcode, Opcode* wrapped);
// Returns true if an attribute of "slice-start" belongs to the async-start, not to the slice.
bool IsAsyncAttribute(absl::string_view name);

// parse_module.cc, parse_instruction.cc, parse_async.cc
class Parser {  // This class has more than 25 methods, one for each part of the grammar.
 public:
  explicit Parser(absl::string_view text) : lexer_(text) {}
  absl::StatusOr<std::unique_ptr<Module>> Run();

  // The following functions are for the attribute table.
  Lexer& lexer() { return lexer_; }
  // Parses the name of a computation that is already defined, or a computation without a name in braces.
  bool ParseComputationReference(Computation** computation);
  // Instructions with the same metadata text share one object.
  bool ParseSharedMetadata(std::shared_ptr<const Metadata>* metadata);
  // Parses the name of an instruction of the current computation.
  bool ParseInstructionReference(Instruction** instruction);

 private:
  // The current computation.
  struct Scope {
    Computation* computation = nullptr;
    absl::flat_hash_map<absl::string_view, Instruction*> names;
    bool invent_parameters = false;  // Undefined operands become parameters.
  };
  struct Signature {
    const char* at = nullptr;  // Null if there is no signature.
    Shape result;
  };
  // An instruction that is not complete yet.
  struct Draft {
    const char* at = nullptr;
    int line = 0, column = 0;
    absl::string_view name;
    bool is_root = false;
    bool infer_shape = false;
    std::unique_ptr<Instruction> instruction;
    std::unique_ptr<Instruction> wrapped;  // The wrapped instruction of a short spelling: the slice of "slice-start".
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
  // Parses "#1#0" after %name, which selects elements of a tuple.
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
  absl::flat_hash_map<absl::string_view, std::shared_ptr<const Metadata>> metadata_;  // Keyed by the text.
  Computation* last_ = nullptr;  // The last computation that is not nested in another one.
  Scope* scope_ = nullptr;
  absl::flat_hash_set<const Computation*> wrappers_;  // Computations made for short spellings such as "slice-start".
  bool nested_ = false;  // True if a computation is nested in the attributes of an instruction.
  int64_t elided_bytes_ = 1 << 28;  // The bytes that ParseLiteral may still use.
  int64_t inferred_parts_ = 0;  // The sum of Shape::part_count over the shapes that the text omits.
};

}  // namespace xlad::hlo

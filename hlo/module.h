// The program: modules of computations of instructions, in the vocabulary of XLA's HLO.
//
// Ownership: a Module owns its Computations, a Computation its Instructions; every other pointer is a reference that
// lives as long as the module. Operands and users are kept in step by the methods below. A module is used by one
// thread at a time; a module that nobody changes may be read by many.
#pragma once

#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hlo/attributes.h"
#include "hlo/bump.h"
#include "hlo/opcode.h"
#include "hlo/shape.h"

namespace xlad::hlo {

class Computation;
class Module;

class Instruction {
 public:
  Instruction(Opcode opcode, Shape shape) : opcode_(opcode), shape_(std::move(shape)) {}
  Instruction(const Instruction&) = delete;
  Instruction& operator=(const Instruction&) = delete;
  // Gives the memory back unless it is a module's (Module::NewInstruction).
  static void operator delete(Instruction* instruction, std::destroying_delete_t);

  Opcode opcode() const { return opcode_; }
  const std::string& name() const { return name_; }     // Unique in the module, without '%'.
  void set_name(std::string name) { name_ = std::move(name); }
  const Shape& shape() const { return shape_; }
  Shape& mutable_shape() { return shape_; }
  Computation* parent() const { return parent_; }

  absl::Span<Instruction* const> operands() const { return operands_; }
  Instruction* operand(int64_t i) const { return operands_[i]; }
  int64_t operand_count() const { return std::ssize(operands_); }
  // Each user once, in the order in which they began to use this.
  absl::Span<Instruction* const> users() const { return users_; }
  void ReplaceOperand(int64_t i, Instruction* with);
  // Operand lists are changed through these only.
  void AppendOperand(Instruction* operand);
  // Every user other than `with` itself, and the computation's root, takes `with` instead.
  void ReplaceAllUsesWith(Instruction* with);

  const std::vector<Instruction*>& control_predecessors() const { return control_predecessors_; }
  void AddControlPredecessor(Instruction* before) { control_predecessors_.push_back(before); }

  const std::vector<Computation*>& called() const { return called_; }  // In attribute order (while: condition, body).
  std::vector<Computation*>& mutable_called() { return called_; }

  // Attributes that many opcodes have.
  const Dims& dimensions() const { return dimensions_; }  // broadcast, transpose, reduce, concatenate, iota, sort ...
  void set_dimensions(Dims dimensions) { dimensions_ = std::move(dimensions); }
  int64_t number() const { return number_; }              // parameter number; get-tuple-element index
  void set_number(int64_t number) { number_ = number; }
  const std::shared_ptr<const Literal>& literal() const { return literal_; }  // constant
  void set_literal(std::shared_ptr<const Literal> literal) { literal_ = std::move(literal); }
  // The rest; a shared empty object where nothing is set.
  const Attributes& attributes() const;
  Attributes& mutable_attributes();

  const Metadata& metadata() const;
  Metadata& mutable_metadata();  // This instruction's own from now on.
  // Many instructions may share one; nullptr where there is none.
  const std::shared_ptr<const Metadata>& shared_metadata() const { return metadata_; }
  void set_metadata(std::shared_ptr<const Metadata> metadata) { metadata_ = std::move(metadata); }
  const StringMap& frontend_attributes() const { return frontend_attributes_; }
  StringMap& mutable_frontend_attributes() { return frontend_attributes_; }
  const OpSharding* sharding() const { return sharding_.get(); }
  void set_sharding(std::unique_ptr<OpSharding> sharding) { sharding_ = std::move(sharding); }

  // Where the text that was parsed has it: line and column, 1-based; 0 for protos and made instructions.
  int line() const { return line_; }
  int column() const { return column_; }
  void set_place(int line, int column) {
    line_ = line;
    column_ = column;
  }

  // Everything but name, operands and parent: what Clone keeps. Called computations are shared.
  std::unique_ptr<Instruction> CloneWithoutOperands() const;
  // One line of HLO text.
  std::string ToString() const;

 private:
  friend class Computation;
  friend class Module;
  void RemoveUser(Instruction* user);

  Opcode opcode_;
  Shape shape_;
  std::string name_;
  Computation* parent_ = nullptr;
  absl::InlinedVector<Instruction*, 2> operands_, users_;
  std::vector<Instruction*> control_predecessors_;
  std::vector<Computation*> called_;
  Dims dimensions_;
  int64_t number_ = 0;
  std::shared_ptr<const Literal> literal_;
  std::unique_ptr<Attributes> attributes_;
  std::shared_ptr<const Metadata> metadata_;
  StringMap frontend_attributes_;
  std::unique_ptr<OpSharding> sharding_;
  int line_ = 0, column_ = 0;
  bool in_module_memory_ = false;
};

class Computation {
 public:
  explicit Computation(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  Module* parent() const { return parent_; }

  // In an order in which operands come before users.
  const std::vector<std::unique_ptr<Instruction>>& instructions() const { return instructions_; }
  const std::vector<Instruction*>& parameters() const { return parameters_; }  // By parameter number.
  Instruction* parameter(int64_t i) const { return parameters_[i]; }
  Instruction* root() const { return root_; }
  void set_root(Instruction* root) { root_ = root; }

  // Appends `instruction` with `operands`; gives it a unique name where it has none or its name is taken. A
  // parameter is entered by its number (not where the number is taken or negative: the verifier says so).
  Instruction* Add(std::unique_ptr<Instruction> instruction, absl::Span<Instruction* const> operands = {});
  // Takes out an instruction without users that is neither root nor parameter.
  void Remove(Instruction* instruction);
  // Removes what neither the root nor a side effect needs (parameters stay). Returns how many.
  int64_t RemoveDead();
  // Re-establishes the operands-before-users order after edits, changing no more than it must. XLAD_CHECKs that there
  // is no cycle.
  void SortTopologically();
  // The instructions in this order, which must name each once, operands first (XLAD_CHECKed).
  void SetOrder(absl::Span<Instruction* const> order);
  // Renumbers parameters after one was taken out; see Module's passes. `kept` lists old numbers in new order.
  void KeepParameters(absl::Span<const int64_t> kept);

  Shape ProgramResult() const { return root_->shape(); }
  bool is_fusion() const { return is_fusion_; }
  void set_is_fusion(bool is_fusion) { is_fusion_ = is_fusion; }
  const std::string& execution_thread() const { return execution_thread_; }
  void set_execution_thread(std::string thread) { execution_thread_ = std::move(thread); }

 private:
  friend class Module;
  void EnterParameter(Instruction* parameter);
  void Erase(const absl::flat_hash_set<const Instruction*>& gone);

  std::string name_;
  Module* parent_ = nullptr;
  std::vector<std::unique_ptr<Instruction>> instructions_;
  std::vector<Instruction*> parameters_;       // nullptr where a number is missing.
  std::vector<Instruction*> late_parameters_;  // Numbers far beyond what has been seen so far.
  Instruction* root_ = nullptr;
  bool is_fusion_ = false;
  std::string execution_thread_;
};

struct InputOutputAlias {
  Dims output_index;
  int64_t parameter = 0;
  Dims parameter_index;
  bool must_alias = false;
  friend bool operator==(const InputOutputAlias&, const InputOutputAlias&) = default;
};
struct BufferDonor {
  int64_t parameter = 0;
  Dims parameter_index;
  friend bool operator==(const BufferDonor&, const BufferDonor&) = default;
};

// The stack-frame tables of newer dumps: 1-based ids, as in the text.
struct StackFrames {
  struct Location {
    int64_t file_name_id = 0, function_name_id = 0, line = 0, end_line = 0, column = 0, end_column = 0;
    friend bool operator==(const Location&, const Location&) = default;
  };
  struct Frame {
    int64_t file_location_id = 0, parent_frame_id = 0;
    friend bool operator==(const Frame&, const Frame&) = default;
  };
  std::vector<std::string> file_names, function_names;
  std::vector<Location> locations;
  std::vector<Frame> frames;
  bool empty() const { return frames.empty() && locations.empty() && file_names.empty() && function_names.empty(); }
  friend bool operator==(const StackFrames&, const StackFrames&) = default;
};

class Module {
 public:
  explicit Module(std::string name) : name_(std::move(name)) {}
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  // Callees before callers and the entry last, as parsed; after edits that add calls, SortComputations() makes it so
  // again.
  const std::vector<std::unique_ptr<Computation>>& computations() const { return computations_; }
  Computation* entry() const { return entry_; }
  void set_entry(Computation* entry) { entry_ = entry; }
  // Gives it a unique name where its name is taken.
  Computation* Add(std::unique_ptr<Computation> computation);
  // Drops computations that nothing reachable from the entry calls. Returns how many.
  int64_t RemoveUnusedComputations();
  void SortComputations();
  // A name that no instruction has yet: `base`, or base.N.
  std::string UniqueName(absl::string_view base);
  // Makes room for as many names.
  void ReserveNames(size_t count) { names_.reserve(count); }
  // An instruction in the module's memory, which is given back with the module and not before: cheaper than one by
  // one where a whole program is read. To be added to one of this module's computations.
  std::unique_ptr<Instruction> NewInstruction(Opcode opcode, Shape shape);

  std::unique_ptr<Module> Clone() const;
  // A deep copy of `computation` (which may belong to another module) with everything that it calls.
  Computation* CloneComputation(const Computation& computation, absl::string_view name);

  // Header attributes.
  bool is_scheduled = false;
  int64_t replica_count = 1, num_partitions = 1;
  std::vector<InputOutputAlias> input_output_alias;
  std::vector<BufferDonor> buffer_donors;
  StringMap frontend_attributes;
  std::vector<bool> propagate_to_parameters, propagate_to_output;  // allow_spmd_sharding_propagation_to_*
  bool alias_passthrough_params = false;
  // entry_computation_layout, where the text or proto gave one; else made from the entry.
  std::vector<Shape> entry_parameter_layouts;
  Shape entry_result_layout;
  bool has_entry_layout = false;
  StackFrames stack_frames;
  std::string other;  // Header attributes that are only carried, canonical text "a=b, c=d".

  // "model.py:57 (Mlp.step)" of the innermost frame, or metadata's source_file:line, or op_name; empty where
  // nothing is known. For messages.
  std::string SourceOf(const Instruction& instruction) const;

 private:
  struct NameState {
    bool used = false;
    int64_t next = 1;  // The suffix to try next where this is a base.
  };
  using Names = absl::flat_hash_map<absl::string_view, NameState>;  // In name_memory_.
  friend class Computation;
  NameState& StateOf(Names* names, absl::string_view name);
  bool TakeName(absl::string_view name);  // False where an instruction has it.
  std::string Unique(Names* names, absl::string_view base);
  void CopyNames(const Names& from, Names* to);

  std::string name_;
  Bump instruction_memory_, name_memory_;  // Before what lies there.
  std::vector<std::unique_ptr<Computation>> computations_;
  Computation* entry_ = nullptr;
  Names names_, computation_names_;
};

}  // namespace xlad::hlo

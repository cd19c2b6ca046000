"""Checks that the tree is in plain technical English (prose.py) and that its references exist (references.py), and
tests both checkers."""

import tempfile
import unittest
import unittest.mock

import prose
import references

# Sentences that this code base has contained; each must be flagged.
FLAGGED = """
The kind, or null where there is none.
A tuple, or empty where nothing is known.
InvalidArgument where they do not fit the program.
Where not empty, every pass leaves the program's text there.
Where the shapes differ, the array is copied.
Of a kWhile; nullopt where it is not of that form.
That of the kernel; expired if its module was unloaded.
Those with enough room.
A copy of the shape. Of the first device only.
Indices outside are nobody's.
What nobody needs any more goes.
Commands that went lost.
A permute that is none.
These instructions are no collectives.
The coordinator's brain.
Ends forsaken sessions.
For people: one line per op.
One line an op.
The value is made whole before the loop.
The operand is needed whole.
The reduction stands before the loop.
What lies there is copied.
The loop goes on with the next block.
The price of a reshard in bytes.
Partial sums that wait are reduced here.
Whoever reads the array frees it.
It is compiled anew when the target changes.
The script would be requeued for ever.
Drops what is left of the buffer.
Same kinds and sizes; layouts aside.
Dots, reduces and alike.
The instruction wants its operand replicated.
Refuses the program with a clear word.
Behind the last dimension.
Gives it a unique name.
Only where the sizes divide.
Reads the whole of the file.
The error is told apart by its code.
The initial value is normalised.
The neighbour's rows.
The first message that it did not hear.
A broken invariant of ours.
The loop's trip count where its bounds are constant.
Else the array is copied.
Frees the arrays where "free" is true, or where `free`.
Limits what a stranger can hold.
The URI of the state. NotFound if there is none.
The rank gives way to other processes.
The check is called now and then.
Starts so many processes.
Elements behind the end of the dimension are padding.
The readers of a value, behind reshapes.
The allocation at the begin of the chain.
An infinite operand is to blame.
The rows of the widest array; 0 if there is none.
The user in such a key; "" if there is none.
Waits until all blocks are there.
The job is there, and waits.
Registers that the op has not are 0.
Connections off loopback are encrypted.
The oldest idle connection is closed, or else the oldest.
A wider type if there is one, else f32.
The exit code is another one.
The sizes may be others.
The sum has another layout than the result.
Elements at other positions than their own.
A process of another local owner than the launch's.
Before, the limit was the size of the vectors.
The job fails if that remains.
The newest saved state, also while the job runs.
The proof runs beside the compilation.
""".strip().split("\n")

# Correct sentences that resemble the ones above; none may be flagged.
ACCEPTED = """
The kind, or null if there is none.
The queue behind it waits for the disk.
The model behind the prediction is explained there.
The process leaves no file behind.
Begins with the first step that has not begun.
Those of length k are the columns of V.
Explains the collectives and why they are there.
There are two of them, and there is one of each.
The address to listen on, "" for none; the port is 0 if there are none to choose from.
Returns the place where the shard begins.
Records where each array is stored.
The file where executables are kept.
The result is y = x * w, where w is the weight.
Of these, only the first is read.
There is no longer a copy of the array.
There are none in the second module.
Operates on the whole array of every shard.
The client wants the result at once.
A value that lies in [0, 1).
A name that stands for the whole computation.
The job goes on the queue.
The worker reports the cost in bytes.
Is no larger than the operand.
The word size is 8 bytes.
The prose "or null where there is none" is an example.
Set the lock aside before the call.
The reader waits for the writer.
Sums the partial results of all ranks.
The analyses of the module.
All promises are kept until the end of the run.
One of a list of names.
One device per shard.
A revised schedule.
The program exercises every opcode.
Wakes the thread when its turn comes.
Tells the peer that nothing more will be sent.
One launch of a collective.
The worker with that name, or null if there is none.
Many collectives over so many devices that listing their groups would take too long.
The branch is empty unless the if has an else branch.
One rank waits while another one writes.
Before it writes, the rank waits.
A type other than that of the operands.
It has no other operand than this one.
The other one rather than this one.
The ranks wait for each other longer than that.
All other tests longer than a minute have a cost.
It has another limit lower than this one.
The value of another rank rather than a copy.
The byte that remains is padding.
The plan is kept if it remains valid.
""".strip().split("\n")


class ProseTest(unittest.TestCase):
    def test_flags(self):
        for sentence in FLAGGED:
            self.assertTrue(prose.findings_in(sentence) or prose.findings_in_names(sentence), sentence)

    def test_accepts(self):
        for sentence in ACCEPTED:
            self.assertEqual(prose.findings_in(sentence) + prose.findings_in_names(sentence), [], sentence)

    @unittest.skipIf(prose.parser is None, "this Python has no re._parser")
    def test_parts_of_matches(self):
        for pattern, parts in ((r"(?<!x)ab[cd]?(?:ef|gh)", {"ab"}), (r"\b(?:is|are) Not\b", {" not"}),
                               (r"a(?:bcd|ef)", {"bcd", "ef"}), (r"(?:abc)?d", {"d"}), (r"(?:abc){2}d", {"abc"}),
                               (r"abc|[de]", None), (r"[ab]*", None)):
            self.assertEqual(prose.parts_of_matches(prose.parser.parse(pattern)), parts, pattern)
        # Only one of the texts must occur, and other rules are not tried.
        rules = [prose.compiled("a(?:bcd|ef)", 0, "one"), prose.compiled("gh", 0, "two"), prose.compiled("[ij]", 0, "")]
        self.assertEqual([(parts, advice) for _, parts, advice in prose.possible(rules, "An ABCD.")],
                         [(["bcd"], "one"), ([""], "")])

    def test_without_a_parser_all_texts_are_searched(self):
        with unittest.mock.patch.object(prose, "parser", None):
            rules = [prose.compiled("a(?:bcd|ef)", 0, "one")]
        self.assertEqual([parts for _, parts, _ in prose.possible(rules, "An ABCD.")], [[""]])

    def test_spelling_in_names(self):
        for name in ("SerialiseProto", "kMostBytes", "optimised_", "neighbours", "LabelledNode", "last_heard_ns",
                     "NoteHeard", "unheard_ms", "hears_all", "is_cancelled", "cancelling", "signalled", "towards",
                     "outwards"):
            self.assertTrue(prose.findings_in_names(name), name)
        for name in ("SerializeProto", "kMaxBytes", "promise", "Revision", "Exercises", "Otherwise", "analyses",
                     "Elementwise", "shear_x", "heartbeat", "RowsSheared", "two_hearts", "IsCancelled", "CANCELLED",
                     "cancellation", "totally", "toward"):
            self.assertEqual(prose.findings_in_names(name), [], name)

    def test_names_of_tests(self):
        source = "TEST_F(JobTest, AJobGoesOn) {\n}\nclass T:\n    def test_nobody_waits(self):\n"
        self.assertEqual(prose.test_names(source), [(1, "a job goes on"), (4, "nobody waits")])
        for _, words in prose.test_names(source):
            self.assertEqual(len(prose.findings_in(words)), 1, words)
        self.assertEqual(prose.test_names("TEST(Hash, Sha256OfAnHLOProgram) {"), [(1, "sha256 of an hlo program")])

    def test_finds_comments_and_messages(self):
        source = ('// One comment\n// of two lines.\nint x;  // Another.\nError("found this, expected that");\n'
                  '#include "a/b.h"\n')
        self.assertEqual([" ".join(text for _, text in parts) for _, _, parts in prose.c_texts(source)],
                         ["One comment of two lines.", "Another.", "found this, expected that"])
        self.assertEqual([line for line, _, _ in prose.c_texts(source)], [1, 3, 4])

    def test_continued_comments(self):
        source = ('int x = 0;  // The number of\n'
                  '            // rows.\n'
                  'int y = 0;  // The number of columns.\n'
                  '// The number of planes.\n'
                  'int z = 0;\n'
                  '  // A comment of\n'
                  '  // two lines.\n'
                  'Call("a  // b");\n'
                  '         // c\n'
                  'int u = 0;  // The numbers of rows and\n'
                  'int v = 0;  // of columns.\n'
                  'int k = 0;  // topk, sort\n'
                  'int l = 0;  // sort\n')
        self.assertEqual(prose.continued_comments(source),
                         [(1, "// The number of"), (10, "// The numbers of rows and")])

    def test_skips_programs(self):
        self.assertEqual(prose.c_texts('Parse("%p = f32[2] parameter(0)"); Parse(R"(where none is)");'), [])

    def test_finds_docstrings_without_their_code(self):
        source = ('class Job:\n'
                  '    def wait(self):\n'
                  '        \"\"\"Waits for the end\n'
                  '        of the job.\n'
                  '\n'
                  '            job.wait()\n'
                  '        \"\"\"\n')
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(source)
            file.flush()
            self.assertEqual([" ".join(text for _, text in parts) for _, _, parts in prose.python_texts(file.name)],
                             ["Waits for the end of the job."])

    def test_markdown_skips_code(self):
        page = "# A title\n\nText that\ngoes on.\n\n```\nxlad run where none\n```\n| one cell | another |\n"
        self.assertEqual([" ".join(text for _, text in parts) for _, _, parts in prose.markdown_texts(page)],
                         ["A title", "Text that goes on.", "one cell", "another"])

    def test_overlong_lines(self):
        long = "word " * 25
        page = f"{long}\n| {long} |\n```\n{long}\n```\n    {long}\n{'x' * 130}\nshort\n- {long}\n"
        self.assertEqual([line for line, _ in prose.overlong_lines(page, ".md")], [1, 9])
        self.assertEqual([line for line, _ in prose.overlong_lines(page, ".py")], [1, 2, 4, 6, 9])

    def test_tree(self):
        problems = [problem for path in prose.chosen_files([]) for problem in prose.check(path)]
        self.assertEqual(problems, [], "\n" + "\n".join(problems))



class ReferencesTest(unittest.TestCase):
    def test_missing(self):
        for text in ("See hlo/no_such_file.h.", "`NoSuchFunction` does it.", "`hlo::NoSuchType`",
                     "Defined in no_such_file.cc."):
            self.assertEqual(len(references.missing_in(text, "hlo", False)), 1, text)
        self.assertEqual(references.missing_in("Pass `--no-such-flag`.", "docs", True), ["--no-such-flag"])

    def test_present(self):
        for text in ("See hlo/module.h and module.h.", "`Module` and `hlo::Module::entry()`", '"model.py:57"',
                     "cli/NAME.cc", "`all-reduce`", "`kernel.{h,cc}`", "sharding/rules/*_test.cc", "proto/*.proto"):
            self.assertEqual(references.missing_in(text, "hlo", True), [], text)
        self.assertEqual(references.missing_in("Pass `--mesh`.", "docs", True), [])

    def test_tree(self):
        problems = [problem for path in prose.chosen_files([]) for problem in references.check(path)]
        self.assertEqual(problems, [], "\n" + "\n".join(problems))


if __name__ == "__main__":
    unittest.main()
